// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

static void write_file(const char *path, const char *format, unsigned number)
{
    char text[64];
    int fd = open(path, O_WRONLY | O_CLOEXEC), length;

    if (fd < 0)
        return;
    length = snprintf(text, sizeof(text), format, number);
    if (write(fd, text, (size_t)length) != length)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    close(fd);
}

/* With a user namespace around it, so that no privilege is needed. */
static bool enter_as_user(void)
{
    unsigned uid = geteuid(), gid = getegid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return false;
    write_file("/proc/self/setgroups", "deny", 0);
    write_file("/proc/self/uid_map", "0 %u 1", uid);
    write_file("/proc/self/gid_map", "0 %u 1", gid);
    return true;
}

static bool raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;

    if (fd >= 0)
        close(fd);
    return up;
}

void network_enter(void)
{
    if ((unshare(CLONE_NEWNET) && !enter_as_user()) || !raise_loopback()) {
        printf("%s: no network namespace; run the tests as root, or allow user namespaces\n",
               strerror(errno));
        exit(77);
    }
}

bool network_run(const char *format, ...)
{
    char command[512];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    CHECK(length > 0 && (size_t)length + 20 < sizeof(command));
    strcpy(command + length, " >/dev/null 2>&1");
    return system(command) == 0;
}

/* Does a datagram from the address to itself arrive? */
static bool is_usable(const struct sockaddr_in6 *address)
{
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    bool usable = bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 &&
                  connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 &&
                  send(fd, "", 1, 0) == 1 && poll(&readable, 1, 100) == 1;

    close(fd);
    return usable;
}

void network_await(const char *ipv6, const char *interface)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(40000)};
    int waits = 0;

    CHECK_EQ(inet_pton(AF_INET6, ipv6, &address.sin6_addr), 1);
    address.sin6_scope_id = interface ? if_nametoindex(interface) : 0;
    for (; !is_usable(&address); ++waits) {
        CHECK(waits < 200);
        usleep(10000);
    }
}

void network_gid(const char *address, uint8_t gid[16])
{
    memset(gid, 0, 16);
    memset(gid + 10, 0xff, 2);
    CHECK(inet_pton(AF_INET, address, gid + 12) == 1 || inet_pton(AF_INET6, address, gid) == 1);
}
