// SPDX-License-Identifier: Apache-2.0
/*
 * For the tests of libverbena_paths.so, which they are linked to: the devices that all of them look
 * at, and files as text. tree_begin comes before anything looks below /sys.
 */
#ifndef VB_TESTS_PRELOAD_TREE_H
#define VB_TESTS_PRELOAD_TREE_H

#include <fcntl.h>
#include <unistd.h>

#include "check.h"
#include "network.h"

#define TREE_CLASS  "/sys/class/infiniband"
#define TREE_DEVICE TREE_CLASS "/verbena0"
#define TREE_OTHER  TREE_CLASS "/verbena1"
#define TREE_VERBS  "/sys/class/infiniband_verbs"

enum { TREE_TEXT = 4096 };

/*
 * Two devices: the first with an Ethernet port on the loopback interface and an InfiniBand port of
 * LID 8, LMC 2 and two P_Keys, the second with an InfiniBand port of LID 26. In a network of the
 * test's own no other process has them open.
 */
static inline void tree_begin(void)
{
    network_enter();
    setenv("VERBENA_PORT_RECORDS", "1 2 2 0 0 0 1 ffff lo,1 8 2 2 ffff 8001 ,1 1 1a 0 1 ffff ,||||",
           1);
    unsetenv("VERBENA_PORTS");
    unsetenv("VERBENA_DEVICES");
    unsetenv("VERBENA_PKEYS");
    unsetenv("VERBENA_LINK_LAYER");
    unsetenv("VERBENA_NETDEV");
}

/* All that can be read; the caller compares it before the next call. */
static inline const char *tree_text(const char *path)
{
    static char text[TREE_TEXT];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (fd < 0)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    CHECK(fd >= 0);
    length = read(fd, text, sizeof(text) - 1);
    CHECK(length >= 0);
    text[length] = '\0';
    CHECK_EQ(read(fd, text + length, 1), 0);
    close(fd);
    return text;
}

static inline void tree_expect(const char *path, const char *expected)
{
    const char *text = tree_text(path);

    if (strcmp(text, expected) != 0)
        fprintf(stderr, "%s: %s\nexpected: %s\n", path, text, expected);
    CHECK(strcmp(text, expected) == 0);
}

#endif
