// SPDX-License-Identifier: Apache-2.0
/* A network of the test's own: what it sends leaves no trace elsewhere. */
#ifndef VB_TESTS_NETWORK_H
#define VB_TESTS_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

/* This process moves into a new network namespace whose loopback is up; else the program skips. */
void network_enter(void);
/* Runs a shell command and says whether it succeeded; its words are dropped. */
bool network_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A new IPv6 address is of use only when the kernel has got round to its route: waits for that. A
 * link-local one is of an interface; that of others is NULL. */
void network_await(const char *ipv6, const char *interface);
/* An IPv4 address in dotted form, or an IPv6 one, as a GID. */
void network_gid(const char *address, uint8_t gid[16]);

#endif
