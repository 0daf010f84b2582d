// SPDX-License-Identifier: Apache-2.0
/* Processes that have nothing to do, by counts: on a busy machine every time is wrong. */
#ifndef VB_TESTS_REST_H
#define VB_TESTS_REST_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Waits for `seconds` in which no thread of these processes ran but the caller. False: there was
 * something in each of `tries` such times. What comes late is not held against them, what comes
 * again and again is.
 */
bool rest_comes(const pid_t *pids, int count, unsigned seconds, int tries);

#endif
