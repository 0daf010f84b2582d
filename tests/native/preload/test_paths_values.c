// SPDX-License-Identifier: Apache-2.0
/*
 * What the files below /sys and /dev say about two devices, three ports and a counter, file by
 * file, and which files there are.
 */
#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "dropin/pair.h"
#include "hca/layout.h"
#include "preload/paths/cpus.h"
#include "tree.h"

static const struct {
    const char *path, *text;
} values[] = {
    {TREE_VERBS "/abi_version", "6\n"},
    {TREE_DEVICE "/node_type", "1: CA\n"},
    {TREE_DEVICE "/fw_ver", VERBENA_VERSION "\n"},
    {TREE_DEVICE "/hca_type", "verbena\n"},
    {TREE_DEVICE "/hw_rev", "0x0\n"},
    {TREE_DEVICE "/board_id", "verbena\n"},
    {TREE_DEVICE "/uevent", "NAME=verbena0\n"},
    {TREE_DEVICE "/device/numa_node", "-1\n"},
    {TREE_DEVICE "/device/vendor", "0xffff\n"},
    {TREE_DEVICE "/device/device", "0x0000\n"},
    {TREE_DEVICE "/device/uevent", "DRIVER=verbena\n"},
    {TREE_OTHER "/node_type", "1: CA\n"},
    {TREE_OTHER "/uevent", "NAME=verbena1\n"},

    {TREE_DEVICE "/ports/1/rate", "100 Gb/sec (4X EDR)\n"},
    {TREE_DEVICE "/ports/1/sm_sl", "0\n"},
    {TREE_DEVICE "/ports/1/cap_mask", "0x00010000\n"},
    {TREE_DEVICE "/ports/1/hw_counters/lifespan", "10\n"},
    {TREE_DEVICE "/ports/1/state", "4: ACTIVE\n"},
    {TREE_DEVICE "/ports/1/phys_state", "5: LinkUp\n"},
    {TREE_DEVICE "/ports/1/link_layer", "Ethernet\n"},
    {TREE_DEVICE "/ports/1/lid", "0x0\n"},
    {TREE_DEVICE "/ports/1/sm_lid", "0x0\n"},
    {TREE_DEVICE "/ports/1/lid_mask_count", "0\n"},
    {TREE_DEVICE "/ports/1/pkeys/0", "0xffff\n"},
    {TREE_DEVICE "/ports/1/pkeys/1", "0x0000\n"},

    {TREE_DEVICE "/ports/2/state", "4: ACTIVE\n"},
    {TREE_DEVICE "/ports/2/phys_state", "5: LinkUp\n"},
    {TREE_DEVICE "/ports/2/link_layer", "InfiniBand\n"},
    {TREE_DEVICE "/ports/2/lid", "0x8\n"},
    {TREE_DEVICE "/ports/2/sm_lid", "0x8\n"},
    {TREE_DEVICE "/ports/2/lid_mask_count", "2\n"},
    {TREE_DEVICE "/ports/2/pkeys/0", "0xffff\n"},
    {TREE_DEVICE "/ports/2/pkeys/1", "0x8001\n"},
    {TREE_DEVICE "/ports/2/gid_attrs/types/0", "IB/RoCE v1\n"},
    {TREE_DEVICE "/ports/2/counters/port_xmit_packets", "0\n"},
    {TREE_DEVICE "/ports/2/hw_counters/rdma_sends", "0\n"},

    {TREE_OTHER "/ports/1/state", "4: ACTIVE\n"},
    {TREE_OTHER "/ports/1/link_layer", "InfiniBand\n"},
    {TREE_OTHER "/ports/1/lid", "0x1a\n"},
    {TREE_OTHER "/ports/1/pkeys/0", "0xffff\n"},

    {TREE_VERBS "/uverbs0/ibdev", "verbena0\n"},
    {TREE_VERBS "/uverbs0/abi_version", "1\n"},
    {TREE_VERBS "/uverbs0/dev", "231:192\n"},
    {TREE_VERBS "/uverbs1/ibdev", "verbena1\n"},
    {TREE_VERBS "/uverbs1/dev", "231:193\n"},
    {TREE_VERBS "/uverbs1/device/uevent", "DRIVER=verbena\n"},
};

static void test_the_files_of_two_devices(void)
{
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); ++i)
        tree_expect(values[i].path, values[i].text);
}

/* The names in a directory, sorted, with a space behind each. */
static const char *names_in(const char *path)
{
    static char names[8192];
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);

    CHECK(count >= 0);
    names[0] = '\0';
    for (int i = 0; i < count; ++i) {
        if (entries[i]->d_name[0] != '.') {
            strcat(names, entries[i]->d_name);
            strcat(names, " ");
        }
        free(entries[i]);
    }
    free(entries);
    return names;
}

static int count_in(const char *path)
{
    int count = 0;

    for (const char *name = names_in(path); *name; ++name)
        count += *name == ' ';
    return count;
}

static void expect_names(const char *path, const char *expected)
{
    const char *names = names_in(path);

    if (strcmp(names, expected) != 0)
        fprintf(stderr, "%s: %s\nexpected: %s\n", path, names, expected);
    CHECK(strcmp(names, expected) == 0);
}

#define FILES_OF_A_DEVICE                                                                          \
    "board_id device fw_ver hca_type hw_rev node_desc node_guid node_type ports sys_image_guid "   \
    "uevent "
#define FILES_OF_A_PORT                                                                            \
    "cap_mask counters gid_attrs gids hw_counters lid lid_mask_count link_layer phys_state pkeys " \
    "rate sm_lid sm_sl state "

static void test_which_files_there_are(void)
{
    expect_names(TREE_DEVICE, FILES_OF_A_DEVICE);
    expect_names(TREE_OTHER, FILES_OF_A_DEVICE);
    expect_names(TREE_DEVICE "/ports", "1 2 ");
    expect_names(TREE_OTHER "/ports", "1 ");
    expect_names(TREE_DEVICE "/ports/1", FILES_OF_A_PORT);
    expect_names(TREE_DEVICE "/ports/2", FILES_OF_A_PORT);
    expect_names(TREE_DEVICE "/ports/1/gid_attrs", "ndevs types ");
    expect_names(TREE_DEVICE "/ports/2/gid_attrs", "types "); /* no interface */
    expect_names(TREE_DEVICE "/ports/2/gids", "0 ");
    expect_names(TREE_DEVICE "/device",
                 "device local_cpulist local_cpus net numa_node uevent vendor ");
    expect_names(TREE_DEVICE "/device/net", "lo ");
    expect_names(TREE_OTHER "/device/net", "");
    expect_names(TREE_VERBS "/uverbs1", "abi_version dev device ibdev ");
    CHECK_EQ(count_in(TREE_DEVICE "/ports/1/pkeys"), VB_MAX_PKEYS);
    CHECK_EQ(count_in(TREE_DEVICE "/ports/1/counters"), 21);
    CHECK_EQ(count_in(TREE_DEVICE "/ports/1/hw_counters"),
             count_in(TREE_DEVICE "/ports/2/hw_counters"));
}

/* ---- GUIDs and GIDs ---- */

static void test_guids(void)
{
    char guid[32], other[32], gid[64], link[64];

    strcpy(guid, tree_text(TREE_DEVICE "/node_guid"));
    CHECK_EQ(strlen(guid), 20);
    tree_expect(TREE_DEVICE "/sys_image_guid", guid);
    strcpy(other, tree_text(TREE_OTHER "/node_guid"));
    CHECK(strcmp(guid, other) != 0);
    snprintf(gid, sizeof(gid), "fe80:0000:0000:0000:%s", guid);
    tree_expect(TREE_DEVICE "/ports/1/gids/1", gid);
    snprintf(gid, sizeof(gid), "fe80:0000:0000:0000:%s", other);
    tree_expect(TREE_OTHER "/ports/1/gids/0", gid);
    CHECK(strcmp(tree_text(TREE_DEVICE "/ports/2/gids/0"), gid) != 0);
    CHECK_EQ(readlink(TREE_DEVICE "/device/net/lo", link, sizeof(link)), 17);
    CHECK(memcmp(link, "/sys/class/net/lo", 17) == 0);
}

/* The library says the same, in numbers. */
static void test_the_guid_is_the_librarys(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    const uint8_t *guid;
    char text[32];

    for (int i = 0; i < 2; ++i) {
        uint64_t number = ibv_get_device_guid(list[i]);
        guid = (const uint8_t *)&number;
        snprintf(text, sizeof(text), "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", guid[0], guid[1],
                 guid[2], guid[3], guid[4], guid[5], guid[6], guid[7]);
        tree_expect(i ? TREE_OTHER "/node_guid" : TREE_DEVICE "/node_guid", text);
    }
    ibv_free_device_list(list);
}

static void test_each_gid_has_a_type_and_an_interface(void)
{
    const int count = 3; /* ::1 is no GID (IBTA 1, 4.1.1) */
    char path[96];

    CHECK_EQ(count_in(TREE_DEVICE "/ports/1/gids"), count);
    CHECK_EQ(count_in(TREE_DEVICE "/ports/1/gid_attrs/types"), count);
    CHECK_EQ(count_in(TREE_DEVICE "/ports/1/gid_attrs/ndevs"), count);
    tree_expect(TREE_DEVICE "/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    tree_expect(TREE_DEVICE "/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
    for (int i = 0; i < count; ++i) {
        snprintf(path, sizeof(path), TREE_DEVICE "/ports/1/gid_attrs/types/%d", i);
        tree_expect(path, "RoCE v2\n");
        snprintf(path, sizeof(path), TREE_DEVICE "/ports/1/gid_attrs/ndevs/%d", i);
        tree_expect(path, "lo\n");
    }
}

static void test_the_description_names_host_and_device(void)
{
    char host[65] = "", expected[96];

    CHECK_EQ(gethostname(host, sizeof(host) - 1), 0);
    snprintf(expected, sizeof(expected), "%s verbena0\n", host);
    tree_expect(TREE_DEVICE "/node_desc", expected);
    snprintf(expected, sizeof(expected), "%s verbena1\n", host);
    tree_expect(TREE_OTHER "/node_desc", expected);
}

static void test_device_files(void)
{
    struct stat stat_0, stat_1;

    CHECK_EQ(stat("/dev/infiniband/uverbs0", &stat_0), 0);
    CHECK_EQ(stat("/dev/infiniband/uverbs1", &stat_1), 0);
    CHECK(S_ISCHR(stat_0.st_mode) && S_ISCHR(stat_1.st_mode));
    CHECK_EQ(stat_0.st_rdev, makedev(231, 192));
    CHECK_EQ(stat_1.st_rdev, makedev(231, 193));
    CHECK(stat_0.st_ino != stat_1.st_ino);
}

/* ---- an interface that is not there ---- */

static void test_a_port_without_its_interface_is_down(void)
{
    static const char *const down[][2] = {
        {TREE_DEVICE "/ports/1/state", "1: DOWN\n"},
        {TREE_DEVICE "/ports/1/phys_state", "3: Disabled\n"},
        {TREE_DEVICE "/ports/1/link_layer", "Ethernet\n"},
    };

    setenv("VERBENA_PORT_RECORDS", "1 1 1 0 0 0 1 ffff nosuch0,||||", 1);
    for (size_t i = 0; i < sizeof(down) / sizeof(*down); ++i)
        tree_expect(down[i][0], down[i][1]);
    expect_names(TREE_DEVICE "/device/net", "");
    expect_names(TREE_DEVICE "/ports/1/gids", "0 1 ");
    expect_names(TREE_DEVICE "/ports/1/gid_attrs", "types ");
    expect_names("/dev/infiniband", "rdma_cm umad0 uverbs0 ");
    CHECK(access(TREE_OTHER, F_OK) < 0 && errno == ENOENT);
}

/* ---- counters ---- */

static uint64_t counter(const char *name)
{
    char path[128], *end;
    const char *text;
    uint64_t value;

    snprintf(path, sizeof(path), TREE_DEVICE "/ports/1/%s", name);
    text = tree_text(path);
    value = strtoull(text, &end, 10);
    CHECK(end > text && strcmp(end, "\n") == 0);
    return value;
}

static void test_counters_are_read_when_they_are_opened(void)
{
    enum { WRITES = 3 };
    static struct pair pair;
    struct ibv_sge sge;
    struct ibv_send_wr *bad, wr;
    struct ibv_wc wc;

    CHECK_EQ(counter("counters/port_xmit_packets"), 0);
    pair_open(&pair);
    sge = pair_sge(&pair);
    sge.length = 40;
    wr = pair_write(&pair, &sge);
    for (int i = 0; i < WRITES; ++i) {
        CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
    CHECK_EQ(counter("counters/port_xmit_packets"), WRITES);
    CHECK_EQ(counter("counters/port_rcv_packets"), WRITES);
    CHECK_EQ(counter("counters/port_xmit_data"), WRITES * 40 / 4);
    CHECK_EQ(counter("counters/symbol_error"), 0);
    CHECK_EQ(counter("hw_counters/rdma_sends"), 0);
    CHECK_EQ(counter("hw_counters/direct_writes"), WRITES);
    CHECK_EQ(counter("hw_counters/direct_payload_sent"), WRITES * 40);
    CHECK_EQ(counter("hw_counters/direct_reads"), 0);
    tree_expect(TREE_OTHER "/ports/1/hw_counters/direct_writes", "0\n");
    tree_expect(TREE_DEVICE "/ports/2/hw_counters/direct_writes", "0\n");
    pair_close(&pair);
}

/* ---- the host's CPUs ---- */

static const struct {
    const char *list, *mask; /* NULL: it is no list */
} cpus[] = {
    {"0", "00000001"},
    {"0-3", "0000000f"},
    {"0-3,8", "0000010f"},
    {"1,3,5", "0000002a"},
    {"31", "80000000"},
    {"32", "00000001,00000000"},
    {"30-33", "00000003,c0000000"},
    {"0,64-65", "00000003,00000000,00000001"},
    {"7-7", "00000080"},
    {"", NULL},
    {"x", NULL},
    {"3-", NULL},
    {"-3", NULL},
    {"3-1", NULL},
    {"8192", NULL},
    {"0-8192", NULL},
    {"1,x", NULL},
};

static void test_lists_of_cpus_become_masks(void)
{
    char mask[VB_CPUS_MAX / 32 * 9], *at = mask;

    for (size_t i = 0; i < sizeof(cpus) / sizeof(*cpus); ++i) {
        strcpy(mask, "unchanged");
        CHECK_EQ(vb_preload_cpu_mask(cpus[i].list, mask, sizeof(mask)), cpus[i].mask ? 0 : -EINVAL);
        CHECK(strcmp(mask, cpus[i].mask ? cpus[i].mask : "unchanged") == 0);
    }
    CHECK_EQ(vb_preload_cpu_mask("0,8191", mask, sizeof(mask)), 0);
    CHECK_EQ(strlen(mask), sizeof(mask) - 1);
    CHECK(memcmp(at, "80000000,00000000,", 18) == 0);
    CHECK(strcmp(mask + sizeof(mask) - 1 - 17, "00000000,00000001") == 0);
    CHECK_EQ(vb_preload_cpu_mask("0-95", mask, 12), 0); /* what fits */
    CHECK(strcmp(mask, "ffffffff,ff") == 0);
}

static void test_the_cpus_of_this_host(void)
{
    char online[TREE_TEXT], mask[VB_CPUS_MAX / 32 * 9 + 1];

    strcpy(online, tree_text("/sys/devices/system/cpu/online"));
    tree_expect(TREE_DEVICE "/device/local_cpulist", online);
    online[strlen(online) - 1] = '\0';
    CHECK_EQ(vb_preload_cpu_mask(online, mask, sizeof(mask) - 1), 0);
    strcat(mask, "\n");
    tree_expect(TREE_DEVICE "/device/local_cpus", mask);
}

int main(int argc, char **argv)
{
    tree_begin();
    if (argc == 2) {
        test_a_port_without_its_interface_is_down();
        return 0;
    }
    RUN(test_lists_of_cpus_become_masks);
    RUN(test_the_cpus_of_this_host);
    RUN(test_the_files_of_two_devices);
    RUN(test_which_files_there_are);
    RUN(test_guids);
    RUN(test_the_guid_is_the_librarys);
    RUN(test_each_gid_has_a_type_and_an_interface);
    RUN(test_the_description_names_host_and_device);
    RUN(test_device_files);
    RUN(test_counters_are_read_when_they_are_opened);
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "down", NULL);
    return 1;
}
