// SPDX-License-Identifier: Apache-2.0
/*
 * What the environment says of devices and ports, their GUIDs, questions to their tables of
 * addresses, and the notes of `verbena run`. Nothing here needs the host's network.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hca/adapter.h"
#include "port/address.h"
#include "port/ports.h"
#include "port/run_note.h"
#include "starved.h"

/* ---- what the environment says --------------------------------------------------------------- */

static struct vb_device_settings settings;

/* Records as src/verbena/_ports.py makes them: numbers in hexadecimal, and the variables' values.
 */
static bool read_records(const char *records)
{
    const char *complaint;

    CHECK_EQ(
        records ? setenv("VERBENA_PORT_RECORDS", records, 1) : unsetenv("VERBENA_PORT_RECORDS"), 0);
    return vb_port_devices_read(&settings, &complaint);
}

static void expect_usual(void)
{
    CHECK_EQ(settings.count, 1);
    CHECK_EQ(settings.device[0].device, 0);
    CHECK_EQ(settings.device[0].count, 1);
    CHECK(!settings.device[0].port[0].infiniband);
    CHECK_EQ(settings.device[0].port[0].lid, 0);
    CHECK_EQ(settings.device[0].port[0].pkeys[0], 0xffff);
    CHECK_EQ(settings.device[0].port[0].pkeys[1], 0);
}

static void without_records_there_is_one_ethernet_port(void)
{
    CHECK(!read_records(NULL));
    expect_usual();
    CHECK(!vb_port_ports_are_infiniband(&settings.device[0]));
    CHECK_EQ(setenv("VERBENA_LINK_LAYER", "infiniband", 1), 0);
    CHECK(!read_records(NULL));
    CHECK(vb_port_ports_are_infiniband(&settings.device[0]));
    CHECK_EQ(settings.device[0].port[0].lid, 1);
    CHECK_EQ(unsetenv("VERBENA_LINK_LAYER"), 0);
}

static void each_port_is_as_its_record_says(void)
{
    const struct vb_port_setting *port = settings.device[0].port;

    CHECK(read_records("1 1 2 1 8 3 2 ffff 8001 ,0 0 0 1 ffff vb1,||||"));
    CHECK_EQ(settings.count, 1);
    CHECK_EQ(settings.device[0].count, 2);
    CHECK(port[0].infiniband && !port[1].infiniband);
    CHECK(!vb_port_ports_are_infiniband(&settings.device[0]));
    CHECK_EQ(port[0].lid, 8);
    CHECK_EQ(port[0].lmc, 3);
    CHECK_EQ(port[0].pkeys[1], 0x8001);
    CHECK_EQ(port[0].pkeys[2], 0);
    CHECK_EQ(strcmp(port[1].netdev, "vb1"), 0);
}

static void each_device_has_its_number_and_ports(void)
{
    CHECK(read_records("1 2 1 0 0 0 1 1 a,1 1 bfff 7 1 7fff ,||||"));
    CHECK_EQ(settings.count, 2);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(settings.device[i].device, i);
        CHECK_EQ(settings.device[i].count, 1);
        CHECK_EQ(settings.device[i].port[0].infiniband, i);
        CHECK_EQ(vb_port_ports_are_infiniband(&settings.device[i]), i);
    }
    CHECK_EQ(settings.device[0].port[0].pkeys[0], 1);
    CHECK_EQ(strcmp(settings.device[0].port[0].netdev, "a"), 0);
    CHECK_EQ(settings.device[1].port[0].lid, 0xbfff);
    CHECK_EQ(settings.device[1].port[0].lmc, 7);
}

static const char *netdev_of(const char *records)
{
    read_records(records);
    return settings.device[0].port[0].netdev;
}

/* VERBENA_NETDEV holds for Ethernet ports without a netdev of their own. */
static void one_variable_names_the_netdev_of_ethernet_ports(void)
{
    CHECK_EQ(setenv("VERBENA_NETDEV", "vb9", 1), 0);
    CHECK_EQ(strcmp(netdev_of(NULL), "vb9"), 0);
    CHECK_EQ(strcmp(netdev_of("1 1 1 0 0 0 1 ffff ,||||"), "vb9"), 0);
    CHECK_EQ(strcmp(netdev_of("1 1 1 0 0 0 1 ffff x,||||"), "x"), 0);
    CHECK_EQ(strcmp(netdev_of("1 1 1 1 8 0 1 ffff ,||||"), ""), 0);
    CHECK_EQ(setenv("VERBENA_LINK_LAYER", "infiniband", 1), 0);
    CHECK_EQ(strcmp(netdev_of(NULL), ""), 0);
    CHECK_EQ(unsetenv("VERBENA_LINK_LAYER"), 0);
    CHECK_EQ(setenv("VERBENA_NETDEV", "fifteen_letters", 1), 0);
    CHECK_EQ(strcmp(netdev_of(NULL), "fifteen_letters"), 0);
    CHECK_EQ(setenv("VERBENA_NETDEV", "sixteen__letters", 1), 0);
    CHECK_EQ(strcmp(netdev_of(NULL), "/"), 0); /* which is no interface's */
    CHECK_EQ(unsetenv("VERBENA_NETDEV"), 0);
}

/* Behind the records stand the values of the variables that they were made of. */
static void records_hold_for_the_values_they_were_made_of(void)
{
    static const char *const variables[] = {"VERBENA_PORTS", "VERBENA_DEVICES", "VERBENA_PKEYS",
                                            "VERBENA_LINK_LAYER"};
    static const char *const made_of[] = {"|ab|||", "||ab||", "|||ab|", "||||ab"};
    const char *complaint = NULL;
    char records[64];

    for (int set = 0; set < 4; ++set) {
        CHECK_EQ(setenv(variables[set], "ab", 1), 0);
        for (int of = 0; of < 4; ++of) {
            sprintf(records, "1 1 1 0 0 0 1 ffff ,%s", made_of[of]);
            CHECK_EQ(read_records(records), set == of);
        }
        CHECK(!read_records("1 1 1 0 0 0 1 ffff ,||||"));
        CHECK_EQ(unsetenv(variables[set]), 0);
    }
    CHECK_EQ(setenv("VERBENA_PORT_RECORDS", "1 1 1 0 0 0 1 ffff ,||||!it is wrong", 1), 0);
    CHECK(vb_port_devices_read(&settings, &complaint));
    CHECK(complaint && strcmp(complaint, "it is wrong") == 0);
    CHECK_EQ(setenv("VERBENA_PORT_RECORDS", "1 1 1 0 0 0 1 ffff ,||||", 1), 0);
    CHECK(vb_port_devices_read(&settings, &complaint));
    CHECK(!complaint);
}

static void records_that_are_wrong_are_refused_as_a_whole(void)
{
    static const char *const wrong[] = {
        "",
        "2 1 1 0 0 0 1 ffff ,||||",                 /* of another version */
        "1 9 1 0 0 0 1 ffff ,||||",                 /* devices */
        "1 1 3 0 0 0 1 ffff ,||||",                 /* ports */
        "1 1 1 2 8 0 1 ffff ,||||",                 /* link layer */
        "1 1 1 1 0 0 1 ffff ,||||",                 /* an InfiniBand port without a LID */
        "1 1 1 1 c000 0 1 ffff ,||||",              /* a multicast LID */
        "1 1 1 1 8 8 1 ffff ,||||",                 /* LMC */
        "1 1 1 0 0 0 0 ,||||",                      /* no P_Key */
        "1 1 1 0 0 0 1 0 ,||||",                    /* an empty one */
        "1 1 1 0 0 0 21 ffff ,||||",                /* too many */
        "1 1 1 0 0 0 1 10000 ,||||",                /* P_Key */
        "1 1 1 0 0 0 1 ffff 1234567890123456,||||", /* the name of no interface */
        "1 1 1 0 0 0 1 ffff ,|ethernet|||",         /* made of other values than are set */
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        CHECK(!read_records(wrong[i]));
        expect_usual();
    }
    CHECK(read_records("1 1 1 0 0 0 1 ffff ,||||"));
}

/* ---- the GUID -------------------------------------------------------------------------------- */

/* The device's GUID where the file has this text; 0: no file can be put there. */
static uint64_t guid_with(const char *path, const char *text)
{
    char name[] = "/tmp/verbena-identity-XXXXXX";
    int fd = mkstemp(name);
    uint64_t guid = 0;

    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    if (mount(name, path, NULL, MS_BIND, NULL) == 0) {
        guid = vb_port_device_guid(0);
        CHECK_EQ(umount(path), 0);
    }
    close(fd);
    unlink(name);
    return guid;
}

/*
 * The GUID is made of /etc/machine-id, or, where that has none, of the kernel's boot_id: FNV-1a of
 * "verbena node GUID" and the text, then the finaliser of MurmurHash3; locally administered, and no
 * group's (the numbers here are from another program). Processes of all builds must agree on it.
 */
static void the_guid_is_made_of_the_hosts_identity(void)
{
    static const char machine[] = "/etc/machine-id", boot[] = "/proc/sys/kernel/random/boot_id";
    static const char *const none[] = {"", "\n", "uninitialized\n",
                                       "0123456789abcdef0123456789abcde\n",
                                       "0123456789abcdef0123456789abcdeg\n"};
    uint64_t by_boot;

    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        !guid_with(machine, "")) {
        printf("# no mounts of its own: the GUID is not tested\n");
        return;
    }
    CHECK_EQ(guid_with(machine, "0123456789abcdef0123456789abcdef\n"), 0x120f2b4cd1830bf0);
    CHECK_EQ(guid_with(machine, "0123456789abcdef0123456789abcdef"), 0x120f2b4cd1830bf0);
    CHECK_EQ(guid_with(machine, "0123456789abcdef0123456789abcdef\nrest"), 0x120f2b4cd1830bf0);
    CHECK_EQ(guid_with(machine, "fedcba9876543210fedcba9876543210\n"), 0xe67fff1efe7160aa);
    by_boot = guid_with(machine, "");
    CHECK(by_boot != vb_port_device_guid(0));
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); ++i)
        CHECK_EQ(guid_with(machine, none[i]), by_boot);
    CHECK_EQ(mount("/dev/null", machine, NULL, MS_BIND, NULL), 0);
    CHECK_EQ(guid_with(boot, "fedcba9876543210fedcba9876543210\n"), 0xe67fff1efe7160aa);
    CHECK_EQ(guid_with(boot, ""), 0x1e54ca35491955d2);
    CHECK_EQ(umount(machine), 0);
}

static void each_port_has_the_next_guid(void)
{
    uint64_t first = vb_port_device_guid(0);

    for (unsigned device = 0; device < VB_MAX_DEVICES; ++device) {
        CHECK_EQ(vb_port_device_guid(device), first + device * VB_MAX_PORTS);
        for (unsigned port_num = 1; port_num <= VB_MAX_PORTS; ++port_num) {
            struct vb_gid gid = vb_port_gid_infiniband(vb_port_unit(device, port_num));
            uint64_t guid = first + vb_port_unit(device, port_num) - 1;

            CHECK_EQ(gid.type, VB_GID_ROCE_V1);
            CHECK_EQ(gid.ndev_ifindex, 0);
            CHECK_EQ(gid.ndev[0], 0);
            for (int i = 0; i < 16; ++i)
                CHECK_EQ(gid.raw[i], i == 0   ? 0xfe
                                     : i == 1 ? 0x80
                                     : i < 8  ? 0
                                              : (uint8_t)(guid >> (120 - 8 * i)));
        }
    }
}

/* ---- tables of addresses --------------------------------------------------------------------- */

/* An IPv4 address's; of the interface `n`, which has an odd name. */
static struct vb_gid gid_of(uint8_t last, uint32_t n)
{
    struct vb_gid gid = {.type = VB_GID_ROCE_V2, .ndev_ifindex = n};

    memcpy(gid.raw, (const uint8_t[]){[10] = 0xff, 0xff, 10, 0, 0, last}, 16);
    sprintf(gid.ndev, "vb%u", n);
    return gid;
}

/* Made from the GUID of the port with this number. */
static struct vb_gid guid_gid_of(uint8_t unit)
{
    struct vb_gid gid = {.type = VB_GID_ROCE_V2, .ndev = "vb1", .ndev_ifindex = 1};

    memcpy(gid.raw, (const uint8_t[]){0xfe, 0x80, [8] = 2, [14] = 1, unit}, 16);
    return gid;
}

static struct vb_adapter adapter;

static void open_tables(struct vb_segment_header *header)
{
    const struct vb_gid first[] = {gid_of(1, 1), guid_gid_of(0x71), gid_of(1, 1), gid_of(2, 2)};
    const struct vb_gid second[] = {gid_of(3, 3), guid_gid_of(0x72), gid_of(3, 3)};

    adapter = (struct vb_adapter){.port_count = 2, .self = {.header = header}};
    CHECK_EQ(vb_port_addresses_fixed(first, 4, 1024, &adapter.ports[0].addresses), 0);
    CHECK_EQ(vb_port_addresses_fixed(second, 3, 4096, &adapter.ports[1].addresses), 0);
}

static void a_table_answers(void)
{
    struct vb_segment_header *header = calloc(1, sizeof(*header));
    struct vb_addresses *table;
    struct vb_gid gid, none = gid_of(9, 1);

    open_tables(header);
    table = adapter.ports[0].addresses;
    CHECK_EQ(vb_port_addresses_count(table), 4);
    CHECK_EQ(vb_port_addresses_fd(table), -1);
    CHECK_EQ(vb_port_addresses_update(table), 0);
    CHECK(vb_port_addresses_active(table));
    CHECK(vb_port_addresses_get(table, 3, &gid));
    CHECK_EQ(gid.raw[15], 2);
    CHECK(vb_port_addresses_get(table, 0, &gid));
    CHECK(!vb_port_addresses_get(table, 4, &gid));
    CHECK(!vb_port_addresses_get(table, -1, &gid));
    CHECK_EQ(vb_port_addresses_mtu(table, 0), 1024);
    CHECK_EQ(vb_port_addresses_mtu(table, 3), 1024);
    CHECK_EQ(vb_port_addresses_mtu(table, 4), 0);
    CHECK_EQ(vb_port_addresses_mtu(table, -1), 0);
    CHECK_EQ(vb_port_addresses_port_mtu(table), 1024);
    CHECK_EQ(vb_port_addresses_find(table, gid_of(1, 1).raw), 2); /* not 0, which stands for it */
    CHECK_EQ(vb_port_addresses_find(table, gid_of(2, 1).raw), 3);
    CHECK_EQ(vb_port_addresses_find(table, guid_gid_of(0x71).raw), -1);
    CHECK_EQ(vb_port_addresses_find(table, none.raw), -1);
    CHECK(vb_port_addresses_has(table, guid_gid_of(0x71).raw));
    CHECK(!vb_port_addresses_has(table, none.raw));
    vb_port_addresses_close(adapter.ports[0].addresses);
    vb_port_addresses_close(adapter.ports[1].addresses);
    free(header);
}

static void all_ports_tables_answer(void)
{
    struct vb_segment_header *header = calloc(1, sizeof(*header));
    struct vb_gid third = gid_of(3, 3), none = gid_of(9, 1);

    open_tables(header);
    CHECK(vb_port_addresses_any_has(&adapter, gid_of(1, 1).raw));
    CHECK(vb_port_addresses_any_has(&adapter, third.raw));
    CHECK(!vb_port_addresses_any_has(&adapter, none.raw));
    CHECK(vb_port_addresses_port_has(&adapter, 0, third.raw));
    CHECK(!vb_port_addresses_port_has(&adapter, 1, third.raw));
    CHECK(vb_port_addresses_port_has(&adapter, 2, third.raw));
    CHECK(vb_port_addresses_any_has_on(&adapter, third.raw, ""));
    CHECK(vb_port_addresses_any_has_on(&adapter, third.raw, "vb3"));
    CHECK(!vb_port_addresses_any_has_on(&adapter, third.raw, "vb1"));
    CHECK(!vb_port_addresses_any_has_on(&adapter, none.raw, ""));
    adapter.port_count = 1;
    CHECK(!vb_port_addresses_any_has(&adapter, third.raw));
    adapter.port_count = 2;
    /* The first port's GUID ends with 0x71: the eight devices of two ports each have the next. */
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x71).raw), 1);
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x72).raw), 2);
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x80).raw), 16);
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x81).raw), 0);
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x70).raw), 0);
    CHECK_EQ(vb_port_addresses_unit(&adapter, third.raw), 0);
    CHECK(vb_port_addresses_host_has(&adapter, guid_gid_of(0x78).raw));
    CHECK(vb_port_addresses_host_has(&adapter, third.raw));
    CHECK(!vb_port_addresses_host_has(&adapter, none.raw));
    header->device = 2;
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x71).raw), 5);
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x6d).raw), 1);
    vb_port_addresses_close(adapter.ports[0].addresses);
    vb_port_addresses_close(adapter.ports[1].addresses);
    free(header);
}

/* An InfiniBand port has one GID, and no byte behind a GID counts. */
static void a_table_of_one_answers(void)
{
    struct vb_segment_header *header = calloc(1, sizeof(*header));
    struct vb_gid own = guid_gid_of(0x71), other = gid_of(1, 1);
    struct vb_addresses *table;
    uint8_t gid[17];

    adapter = (struct vb_adapter){.port_count = 2, .self = {.header = header}};
    CHECK_EQ(vb_port_addresses_fixed(&own, 1, 4096, &table), 0);
    adapter.ports[0].addresses = table;
    CHECK_EQ(vb_port_addresses_fixed(&other, 1, 4096, &adapter.ports[1].addresses), 0);
    memcpy(gid, own.raw, 16);
    for (int behind = 0; behind < 2; ++behind) {
        gid[16] = (uint8_t)(0xa5 + behind);
        CHECK(vb_port_addresses_has(table, gid));
        CHECK(vb_port_addresses_any_has(&adapter, gid));
        CHECK(vb_port_addresses_port_has(&adapter, 1, gid));
        CHECK(!vb_port_addresses_port_has(&adapter, 2, gid));
        CHECK(vb_port_addresses_any_has_on(&adapter, gid, "vb1"));
        CHECK_EQ(vb_port_addresses_find(table, gid), -1); /* which finds addresses alone */
        CHECK_EQ(vb_port_addresses_unit(&adapter, gid), 1);
    }
    CHECK_EQ(vb_port_addresses_unit(&adapter, guid_gid_of(0x75).raw), 5);
    CHECK(vb_port_addresses_any_has(&adapter, other.raw));
    vb_port_addresses_close(adapter.ports[0].addresses);
    vb_port_addresses_close(adapter.ports[1].addresses);
    free(header);
}

/* IBA's path MTUs; the headers around them: IPv6's 40 bytes, UDP's 8, BTH's 12, those of an
 * atomic's 28, an immediate's 4, and an ICRC of 4. */
static void a_path_mtu_leaves_room_for_headers(void)
{
    static const uint16_t mtus[] = {256, 512, 1024, 2048, 4096};
    uint32_t room = 0;

    while (!vb_port_path_mtu(256 + room))
        ++room;
    CHECK_EQ(room, 96);
    for (int i = 0; i < 5; ++i) {
        CHECK_EQ(vb_port_path_mtu(mtus[i] + room), mtus[i]);
        CHECK_EQ(vb_port_path_mtu(mtus[i] + room - 1), i ? mtus[i - 1] : 0);
    }
    CHECK_EQ(vb_port_path_mtu(65536), 4096);
    CHECK_EQ(vb_port_path_mtu(1500), 1024);
}

static void a_table_without_memory_says_so(void)
{
    struct vb_gid gid = gid_of(1, 1);
    struct vb_addresses *table;
    long before = starved_blocks();

    starved_after(0);
    CHECK_EQ(vb_port_addresses_fixed(&gid, 1, 1024, &table), -ENOMEM);
    CHECK(starved_end());
    for (int allocation = 0;; ++allocation) {
        int error;

        starved_after(allocation);
        error = vb_port_addresses_open("none", 1, &table);
        if (!starved_end())
            break;
        CHECK_EQ(error, -ENOMEM);
        CHECK_EQ(starved_blocks(), before);
    }
    vb_port_addresses_close(table);
    CHECK_EQ(starved_blocks(), before);
}

/* ---- notes of `verbena run` ------------------------------------------------------------------ */

static int notes_of(int pid, off_t bytes)
{
    int fd = memfd_create("notes", MFD_CLOEXEC);
    char name[80];
    struct stat stat;

    CHECK_EQ(ftruncate(fd, bytes), 0);
    CHECK_EQ(fstat(fd, &stat), 0);
    sprintf(name, "%d:%d:%lu", pid, fd, (unsigned long)stat.st_ino);
    setenv("VERBENA_RUN", name, 1);
    return fd;
}

static bool is_set(int fd, enum vb_run_note note)
{
    char byte = 0;

    CHECK_EQ(pread(fd, &byte, 1, note), 1);
    return byte;
}

static void notes_are_kept_in_the_file(void)
{
    int fd = notes_of(getpid(), VB_NOTES), next = dup(fd);

    close(next);
    CHECK(vb_port_run_note_is_first());
    CHECK(!vb_port_run_note_is_set(VB_NOTE_NETWORK));
    errno = EXDEV;
    vb_port_run_note_set(VB_NOTE_NETWORK);
    CHECK_EQ(errno, EXDEV);
    CHECK_EQ(dup(fd), next); /* no descriptor is left over */
    close(next);
    CHECK(is_set(fd, VB_NOTE_NETWORK) && !is_set(fd, VB_NOTE_DEVICE));
    CHECK(vb_port_run_note_is_set(VB_NOTE_NETWORK));
    CHECK(!vb_port_run_note_is_set(VB_NOTE_DEVICE));
    close(fd);
    CHECK(!vb_port_run_note_is_first());
    CHECK(!vb_port_run_note_is_set(VB_NOTE_NETWORK));
}

static void each_note_is_of_its_own(void)
{
    int fd = notes_of(getpid(), VB_NOTES);

    vb_port_run_note_set(VB_NOTE_DEVICE);
    CHECK(is_set(fd, VB_NOTE_DEVICE) && !is_set(fd, VB_NOTE_NETWORK));
    CHECK(vb_port_run_note_is_set(VB_NOTE_DEVICE));
    CHECK(!vb_port_run_note_is_set(VB_NOTE_NETWORK));
    close(fd);
}

/* A program that has closed the descriptor finds the file through the first process. */
static void a_program_without_the_descriptor_sets_a_note(void)
{
    int fd = notes_of(getpid(), VB_NOTES), status;

    if (fork() == 0) {
        close(fd);
        errno = EXDEV;
        vb_port_run_note_set(VB_NOTE_NETWORK);
        _exit(errno == EXDEV ? 0 : 1);
    }
    CHECK(wait(&status) > 0);
    CHECK_EQ(status, 0);
    CHECK(is_set(fd, VB_NOTE_NETWORK));
    close(fd);
}

/* Another program that `verbena run` has started, and which has the descriptor too. */
static void notes_of_others_are_set_and_not_read(void)
{
    int fd = notes_of(getppid(), VB_NOTES);

    vb_port_run_note_set(VB_NOTE_DEVICE);
    CHECK(is_set(fd, VB_NOTE_DEVICE));
    CHECK(!vb_port_run_note_is_first());
    CHECK(!vb_port_run_note_is_set(VB_NOTE_DEVICE));
    close(fd);
}

static void another_file_is_left_alone(void)
{
    int fd = notes_of(getpid(), VB_NOTES + 1), next = dup(fd);

    close(next);
    errno = EXDEV;
    vb_port_run_note_set(VB_NOTE_DEVICE);
    CHECK_EQ(errno, EXDEV);
    CHECK(!is_set(fd, VB_NOTE_DEVICE));
    CHECK_EQ(dup(fd), next);
    close(next);
    CHECK(!vb_port_run_note_is_first());
    close(fd);
    setenv("VERBENA_RUN", "1:2", 1);
    vb_port_run_note_set(VB_NOTE_DEVICE);
    CHECK(!vb_port_run_note_is_first());
    unsetenv("VERBENA_RUN");
    vb_port_run_note_set(VB_NOTE_DEVICE);
    CHECK(!vb_port_run_note_is_first());
}

int main(void)
{
    RUN(without_records_there_is_one_ethernet_port);
    RUN(each_port_is_as_its_record_says);
    RUN(each_device_has_its_number_and_ports);
    RUN(one_variable_names_the_netdev_of_ethernet_ports);
    RUN(records_hold_for_the_values_they_were_made_of);
    RUN(records_that_are_wrong_are_refused_as_a_whole);
    RUN(the_guid_is_made_of_the_hosts_identity);
    RUN(each_port_has_the_next_guid);
    RUN(a_table_answers);
    RUN(all_ports_tables_answer);
    RUN(a_table_of_one_answers);
    RUN(a_path_mtu_leaves_room_for_headers);
    RUN(a_table_without_memory_says_so);
    RUN(notes_are_kept_in_the_file);
    RUN(each_note_is_of_its_own);
    RUN(a_program_without_the_descriptor_sets_a_note);
    RUN(notes_of_others_are_set_and_not_read);
    RUN(another_file_is_left_alone);
    return 0;
}
