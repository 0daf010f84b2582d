// SPDX-License-Identifier: Apache-2.0
/*
 * What the environment says of devices and ports, questions to their tables of addresses, and the
 * notes of `verbena run`. Nothing here needs the host's network.
 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "hca/adapter.h"
#include "port/address.h"
#include "port/ports.h"
#include "port/run_note.h"
#include "starved.h"

/* ---- what the environment says --------------------------------------------------------------- */

static struct vb_device_settings settings;

static unsigned read_with(const char *ports, const char *devices)
{
    CHECK_EQ(ports ? setenv("VERBENA_PORTS", ports, 1) : unsetenv("VERBENA_PORTS"), 0);
    CHECK_EQ(devices ? setenv("VERBENA_DEVICES", devices, 1) : unsetenv("VERBENA_DEVICES"), 0);
    return vb_port_devices_read(&settings);
}

static const struct vb_port_setting *port_of(int device, int port)
{
    CHECK(device < settings.count && port < settings.device[device].count);
    return &settings.device[device].port[port];
}

static void expect_lid(int device, int port, unsigned lid, unsigned lmc)
{
    CHECK(port_of(device, port)->infiniband);
    CHECK_EQ(port_of(device, port)->lid, lid);
    CHECK_EQ(port_of(device, port)->lmc, lmc);
}

static void expect_usual(void)
{
    CHECK_EQ(settings.count, 1);
    CHECK_EQ(settings.device[0].device, 0);
    CHECK_EQ(settings.device[0].count, 1);
    CHECK(!port_of(0, 0)->infiniband);
    CHECK_EQ(port_of(0, 0)->lid, 0);
    CHECK_EQ(port_of(0, 0)->pkeys[0], 0xffff);
    CHECK_EQ(port_of(0, 0)->pkeys[1], 0);
}

static void without_settings_there_is_one_ethernet_port(void)
{
    CHECK_EQ(read_with(NULL, NULL), 0);
    expect_usual();
    CHECK(!vb_port_ports_are_infiniband(&settings.device[0]));
    setenv("VERBENA_LINK_LAYER", "infiniband", 1);
    CHECK_EQ(read_with(NULL, NULL), 0);
    expect_lid(0, 0, 1, 0);
    CHECK(vb_port_ports_are_infiniband(&settings.device[0]));
    setenv("VERBENA_LINK_LAYER", "", 1);
    CHECK_EQ(read_with("", ""), 0);
    expect_usual();
    unsetenv("VERBENA_LINK_LAYER");
}

static void each_port_is_as_it_is_described(void)
{
    CHECK_EQ(read_with("infiniband,lid=0x20,lmc=2,pkeys=0x8001+2;ethernet,netdev=va", NULL), 0);
    CHECK_EQ(settings.count, 1);
    CHECK_EQ(settings.device[0].count, 2);
    expect_lid(0, 0, 0x20, 2);
    CHECK_EQ(port_of(0, 0)->pkeys[0], 0x8001);
    CHECK_EQ(port_of(0, 0)->pkeys[1], 2);
    CHECK_EQ(port_of(0, 0)->pkeys[2], 0);
    CHECK(!port_of(0, 1)->infiniband);
    CHECK_EQ(port_of(0, 1)->lid, 0);
    CHECK_EQ(strcmp(port_of(0, 1)->netdev, "va"), 0);
    CHECK_EQ(port_of(0, 1)->pkeys[0], 0xffff);
    CHECK(!vb_port_ports_are_infiniband(&settings.device[0]));
    CHECK_EQ(read_with("infiniband,lid=49151", NULL), 0); /* the last that is no group's */
    expect_lid(0, 0, 0xbfff, 0);
    CHECK_EQ(read_with("infiniband,lid=0Xa0,lmc=5", NULL), 0);
    expect_lid(0, 0, 0xa0, 5);
}

static void ports_without_a_lid_get_one_each(void)
{
    CHECK_EQ(read_with("infiniband;infiniband,lmc=3/infiniband,lmc=1;infiniband", NULL), 0);
    CHECK_EQ(settings.count, 2);
    CHECK_EQ(settings.device[1].device, 1);
    expect_lid(0, 0, 1, 0);
    expect_lid(0, 1, 2 << 3, 3);
    expect_lid(1, 0, 3 << 1, 1);
    expect_lid(1, 1, 4, 0);
}

static void devices_that_are_not_described_are_as_the_last(void)
{
    CHECK_EQ(read_with("ethernet/infiniband", "4"), 0);
    CHECK_EQ(settings.count, 4);
    CHECK(!port_of(0, 0)->infiniband);
    expect_lid(1, 0, 3, 0);
    expect_lid(2, 0, 5, 0);
    expect_lid(3, 0, 7, 0);
    CHECK_EQ(settings.device[3].device, 3);
    CHECK_EQ(read_with(NULL, "8"), 0);
    CHECK_EQ(settings.count, 8);
    CHECK_EQ(read_with("ethernet/ethernet", "2"), 0);
    CHECK_EQ(settings.count, 2);
}

static void the_usual_settings_hold_for_ports_without_their_own(void)
{
    setenv("VERBENA_NETDEV", "vb0", 1);
    setenv("VERBENA_PKEYS", "0x7fff,0x8002", 1);
    CHECK_EQ(read_with("ethernet;ethernet,netdev=other,pkeys=3/infiniband", NULL), 0);
    CHECK_EQ(strcmp(port_of(0, 0)->netdev, "vb0"), 0);
    CHECK_EQ(strcmp(port_of(0, 1)->netdev, "other"), 0);
    CHECK_EQ(port_of(1, 0)->netdev[0], 0); /* LIDs have no interface */
    CHECK_EQ(port_of(0, 0)->pkeys[0], 0x7fff);
    CHECK_EQ(port_of(0, 0)->pkeys[1], 0x8002);
    CHECK_EQ(port_of(0, 1)->pkeys[0], 3);
    CHECK_EQ(port_of(0, 1)->pkeys[1], 0);
    setenv("VERBENA_NETDEV", "fifteen_letters", 1);
    CHECK_EQ(read_with(NULL, NULL), 0);
    CHECK_EQ(strcmp(port_of(0, 0)->netdev, "fifteen_letters"), 0);
    setenv("VERBENA_NETDEV", "sixteen__letters", 1);
    CHECK_EQ(read_with(NULL, NULL), 0);
    CHECK_EQ(strcmp(port_of(0, 0)->netdev, "/"), 0);
    unsetenv("VERBENA_NETDEV");
    setenv("VERBENA_PKEYS", "0x8001,", 1);
    CHECK_EQ(read_with(NULL, NULL), VB_BAD_PKEYS);
    CHECK_EQ(port_of(0, 0)->pkeys[0], 0xffff);
    unsetenv("VERBENA_PKEYS");
}

static void what_is_not_understood_is_ignored_and_told(void)
{
    static const char *const wrong[] = {
        "infiniban",
        "ethernet2",
        "ethernet,",
        "ethernet,lid=3",
        "ethernet,lmc=1",
        "ethernet,netdev=",
        "ethernet,netdev=sixteen__letters",
        "ethernet,speed=3",
        "ethernet,pkeys=",
        "ethernet,pkeys=0x8000", /* of no partition */
        "ethernet,pkeys=1,2",
        "infiniband,netdev=va",
        "infiniband,lid=0",
        "infiniband,lid=",
        "infiniband,lid=0x",
        "infiniband,lid=3x",
        "infiniband,lid=0xc000",
        "infiniband,lid=000001",
        "infiniband,lmc=8",
        "infiniband,lmc=1x",
        "infiniband,lid=6,lmc=2", /* no multiple of four */
        "infiniband,lid=2;infiniband,lid=2",
        "infiniband,lid=4,lmc=2;infiniband,lid=7",
        "infiniband,lid=7/infiniband,lid=4,lmc=2",
        "ethernet;ethernet;ethernet",
        "ethernet/",
        "1/2/3/4/5/6/7/8/9",
        "ethernet/ethernet/ethernet/ethernet/ethernet/ethernet/ethernet/ethernet/ethernet",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        if (read_with(wrong[i], NULL) != VB_BAD_PORTS)
            fprintf(stderr, "%s is taken\n", wrong[i]);
        CHECK_EQ(vb_port_devices_read(&settings), VB_BAD_PORTS);
        expect_usual();
    }
    CHECK_EQ(read_with("infiniband,lid=4,lmc=2;infiniband,lid=8", NULL), 0);
    CHECK_EQ(read_with("ethernet,lid=1", "3"), VB_BAD_PORTS);
    CHECK_EQ(settings.count, 3);
}

static void the_number_of_devices_is_one_to_eight(void)
{
    static const char *const wrong[] = {"0", "9", "two", "3 ", "-1", "0x"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        CHECK_EQ(read_with(NULL, wrong[i]), VB_BAD_DEVICES);
        expect_usual();
    }
    CHECK_EQ(read_with("ethernet/ethernet", "1"), VB_BAD_DEVICES); /* fewer than are described */
    CHECK_EQ(settings.count, 2);
    CHECK_EQ(read_with("bad", "9"), VB_BAD_DEVICES | VB_BAD_PORTS);
}

static void pkeys_are_up_to_a_table_full(void)
{
    char text[VB_MAX_PKEYS * 7 + 7] = "";
    uint16_t pkeys[VB_MAX_PKEYS];

    for (int i = 0; i < VB_MAX_PKEYS; ++i)
        sprintf(text + strlen(text), "%s0x80%02x", i ? "," : "", i + 1);
    CHECK_EQ(vb_port_pkeys_parse(text, ',', pkeys), 0);
    CHECK_EQ(pkeys[0], 0x8001);
    CHECK_EQ(pkeys[VB_MAX_PKEYS - 1], 0x8000 + VB_MAX_PKEYS);
    strcat(text, ",5");
    CHECK_EQ(vb_port_pkeys_parse(text, ',', pkeys), -EINVAL);
    CHECK_EQ(pkeys[0], 0x8001);
    CHECK_EQ(vb_port_pkeys_parse("65536", ',', pkeys), -EINVAL);
    CHECK_EQ(vb_port_pkeys_parse("99999", ',', pkeys), -EINVAL);
    CHECK_EQ(vb_port_pkeys_parse("0xffff", ',', pkeys), 0);
    CHECK_EQ(vb_port_pkeys_parse("65535", ',', pkeys), 0);
    CHECK_EQ(pkeys[0], 0xffff);
    CHECK_EQ(pkeys[1], 0);
    CHECK_EQ(vb_port_pkeys_parse("7", ',', pkeys), 0);
    CHECK_EQ(vb_port_pkeys_parse("", ',', pkeys), 0);
    CHECK_EQ(pkeys[0], 0xffff);
    CHECK_EQ(vb_port_pkeys_parse("7", ',', pkeys), 0);
    CHECK_EQ(vb_port_pkeys_parse(NULL, ',', pkeys), 0);
    CHECK_EQ(pkeys[0], 0xffff);
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

/* IBA's path MTUs, and 58 bytes of headers at least (Linux: rxe_mtu_int_to_enum). */
static void a_path_mtu_leaves_room_for_headers(void)
{
    static const uint16_t mtus[] = {256, 512, 1024, 2048, 4096};
    uint32_t room = 0;

    while (!vb_port_path_mtu(256 + room))
        ++room;
    CHECK(room >= 58);
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
    vb_port_run_note_set(VB_NOTE_DEVICE);
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
    RUN(without_settings_there_is_one_ethernet_port);
    RUN(each_port_is_as_it_is_described);
    RUN(ports_without_a_lid_get_one_each);
    RUN(devices_that_are_not_described_are_as_the_last);
    RUN(the_usual_settings_hold_for_ports_without_their_own);
    RUN(what_is_not_understood_is_ignored_and_told);
    RUN(the_number_of_devices_is_one_to_eight);
    RUN(pkeys_are_up_to_a_table_full);
    RUN(a_table_answers);
    RUN(all_ports_tables_answer);
    RUN(a_path_mtu_leaves_room_for_headers);
    RUN(a_table_without_memory_says_so);
    RUN(notes_are_kept_in_the_file);
    RUN(notes_of_others_are_set_and_not_read);
    RUN(another_file_is_left_alone);
    return 0;
}
