// SPDX-License-Identifier: Apache-2.0
/* The GID table follows the host's addresses, and each address keeps its index while it is there.
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "network.h"
#include "port/address.h"

static struct vb_addresses *table;

static int index_of(const char *address)
{
    uint8_t gid[16];

    network_gid(address, gid);
    return vb_port_addresses_find(table, gid);
}

/* All that happens until these have come, and for a short while after that. */
static unsigned changes_with(unsigned wanted)
{
    struct pollfd news = {.fd = vb_port_addresses_fd(table), .events = POLLIN};
    unsigned all = 0;

    while (poll(&news, 1, wanted & ~all ? 10000 : 50) == 1)
        all |= vb_port_addresses_update(table);
    return all;
}

static unsigned changes(void)
{
    return changes_with(0);
}

static void expect_same_as_at_open(void)
{
    static struct vb_gid fresh[VB_GID_MAX];
    struct vb_gid gid;
    int count = vb_port_gid_table(NULL, 1, fresh, VB_GID_MAX);

    CHECK_EQ(vb_port_addresses_count(table), count);
    for (int i = 0; i < count; ++i) {
        CHECK(vb_port_addresses_get(table, i, &gid));
        CHECK(memcmp(&gid, &fresh[i], sizeof(gid)) == 0);
    }
    CHECK(!vb_port_addresses_get(table, count, &gid));
    CHECK(!vb_port_addresses_get(table, -1, &gid));
}

static void test_begins_like_the_host(void)
{
    expect_same_as_at_open();
    CHECK_EQ(index_of("127.0.0.1"), 2);
    CHECK_EQ(index_of("10.2.0.1"), -1);
    CHECK(vb_port_addresses_active(table));
}

/* A new table has the addresses of each interface together, by their bytes, and loopback's last. */
static void expect_new_table_in_order(void)
{
    static struct vb_gid fresh[VB_GID_MAX];
    int count = vb_port_gid_table(NULL, 1, fresh, VB_GID_MAX);

    CHECK(count >= 6);
    CHECK_EQ(strcmp(fresh[2].ndev, "va"), 0);
    CHECK_EQ(strcmp(fresh[count - 1].ndev, "lo"), 0);
    for (int i = 3; i < count; ++i) {
        if (fresh[i].ndev_ifindex == fresh[i - 1].ndev_ifindex)
            CHECK(memcmp(fresh[i].raw, fresh[i - 1].raw, 16) > 0);
        CHECK(strcmp(fresh[i - 1].ndev, "lo") != 0 || strcmp(fresh[i].ndev, "lo") == 0);
    }
}

static void test_indices_stay(void)
{
    struct vb_gid gid;
    int first, second, third;

    CHECK(network_run("ip addr add 10.2.0.1/24 dev va && ip addr add 10.2.0.2/24 dev va && "
                      "ip addr add fd02::1/64 dev va nodad"));
    network_await("fd02::1", NULL);
    CHECK(changes_with(VB_GIDS_CHANGED) & VB_GIDS_CHANGED);
    first = index_of("10.2.0.1");
    second = index_of("10.2.0.2");
    third = index_of("fd02::1");
    CHECK(first > 2 && second > 2 && third > 2);
    CHECK_EQ(index_of("127.0.0.1"), 2);
    expect_new_table_in_order();

    /* One goes: the others stay where they are, and its entry is empty. */
    CHECK(network_run("ip addr del 10.2.0.2/24 dev va"));
    CHECK_EQ(changes_with(VB_GIDS_CHANGED), VB_GIDS_CHANGED);
    CHECK_EQ(index_of("10.2.0.1"), first);
    CHECK_EQ(index_of("10.2.0.2"), -1);
    CHECK_EQ(index_of("fd02::1"), third);
    CHECK(!vb_port_addresses_get(table, second, &gid));

    /* The next one gets the free index. */
    CHECK(network_run("ip addr add 10.2.0.3/24 dev va"));
    CHECK_EQ(changes_with(VB_GIDS_CHANGED), VB_GIDS_CHANGED);
    CHECK_EQ(index_of("10.2.0.3"), second);
    CHECK(vb_port_addresses_get(table, second, &gid));
    CHECK(strcmp(gid.ndev, "va") == 0 && gid.type == VB_GID_ROCE_V2);
}

/* More news at once than the socket holds: none of it is needed, as the table is read anew. */
static void test_news_that_is_lost(void)
{
    struct pollfd news = {.fd = vb_port_addresses_fd(table), .events = POLLIN};

    CHECK_EQ(setsockopt(news.fd, SOL_SOCKET, SO_RCVBUF, &(int){1}, sizeof(int)), 0);
    CHECK(network_run("for i in $(seq 1 100); do echo addr add 10.6.0.$i/24 dev va; done | "
                      "ip -batch -"));
    CHECK_EQ(poll(&news, 1, 10000), 1);
    CHECK_EQ(vb_port_addresses_update(table), VB_GIDS_CHANGED);
    CHECK_EQ(poll(&news, 1, 0), 0); /* all of it is read */
    CHECK(index_of("10.6.0.1") > 2 && index_of("10.6.0.100") > 2);
    CHECK_EQ(vb_port_addresses_update(table), 0);
    CHECK(network_run("ip addr flush to 10.6.0.0/24 dev va"));
    CHECK_EQ(setsockopt(news.fd, SOL_SOCKET, SO_RCVBUF, &(int){1 << 16}, sizeof(int)), 0);
    CHECK_EQ(changes_with(VB_GIDS_CHANGED), VB_GIDS_CHANGED);
}

/* More addresses than the table has room for: the first ones are in it, and nothing else changes.
 */
static void test_a_full_table(void)
{
    struct vb_gid gid;

    CHECK(network_run("for i in $(seq 1 254); do echo addr add 10.3.0.$i/24 dev va; "
                      "echo addr add 10.4.0.$i/24 dev va; done | ip -batch -"));
    CHECK_EQ(changes_with(VB_GIDS_CHANGED), VB_GIDS_CHANGED);
    CHECK_EQ(vb_port_addresses_count(table), VB_GID_MAX);
    for (int i = 0; i < VB_GID_MAX; ++i)
        CHECK(vb_port_addresses_get(table, i, &gid));
    CHECK(!vb_port_addresses_get(table, VB_GID_MAX, &gid));
    CHECK(network_run("ip addr flush dev va scope global"));
    CHECK_EQ(changes_with(VB_GIDS_CHANGED), VB_GIDS_CHANGED);
    CHECK(vb_port_addresses_count(table) < 10);
    CHECK_EQ(index_of("10.3.0.1"), -1);
}

static void expect_first(const char *address)
{
    struct vb_gid first;
    uint8_t gid[16];

    network_gid(address, gid);
    CHECK(vb_port_addresses_get(table, 0, &first));
    CHECK(memcmp(first.raw, gid, sizeof(gid)) == 0 && first.type == VB_GID_ROCE_V2);
}

/* Entry 0 is an address that others are reached from, and stays what it is while that is there. */
static void test_first_index(void)
{
    expect_first("127.0.0.1"); /* all that there was when the table was opened */
    CHECK(network_run("ip addr del 127.0.0.1/8 dev lo"));
    changes_with(VB_GIDS_CHANGED);
    expect_first("10.2.0.1");
    CHECK(network_run("ip addr add 127.0.0.1/8 dev lo && ip addr add 10.1.9.9/24 dev va"));
    changes_with(VB_GIDS_CHANGED);
    expect_first("10.2.0.1");
    /* another MTU has taken the IPv6 addresses away */
    CHECK(network_run("ip addr replace fd02::1/64 dev va nodad"));
    network_await("fd02::1", NULL);
    CHECK(network_run("ip -4 addr flush dev va"));
    changes_with(VB_GIDS_CHANGED);
    expect_first("fd02::1");
    CHECK(network_run("ip addr add 10.2.0.1/24 dev va"));
    changes_with(VB_GIDS_CHANGED);
    expect_first("fd02::1");
}

/* What happens to other things is no news. */
static void test_no_change(void)
{
    CHECK(network_run("ip link set va txqueuelen 500"));
    CHECK_EQ(changes(), 0);
}

static void test_port_state(void)
{
    int loopback = index_of("127.0.0.1");

    CHECK(vb_port_addresses_active(table));
    CHECK(network_run("ip addr add 10.2.0.1/24 dev va"));
    CHECK_EQ(changes_with(VB_GIDS_CHANGED), VB_GIDS_CHANGED);
    CHECK(network_run("ip link set vb down"));
    CHECK(changes_with(VB_PORT_WENT_DOWN) & VB_PORT_WENT_DOWN);
    CHECK(!vb_port_addresses_active(table));
    CHECK(network_run("ip link set vb up"));
    CHECK(changes_with(VB_PORT_CAME_UP) & VB_PORT_CAME_UP);
    CHECK(vb_port_addresses_active(table));
    /* Without the interface, loopback is the port. */
    CHECK(network_run("ip link del va"));
    CHECK(changes_with(VB_GIDS_CHANGED) & VB_GIDS_CHANGED);
    CHECK(vb_port_addresses_active(table));
    CHECK_EQ(index_of("10.2.0.1"), -1);
    CHECK(loopback >= 2);
    CHECK_EQ(index_of("127.0.0.1"), loopback);
    CHECK(network_run("ip link set lo down"));
    CHECK(changes_with(VB_PORT_WENT_DOWN) & VB_PORT_WENT_DOWN);
    CHECK(network_run("ip link set lo up"));
    CHECK(changes_with(VB_PORT_CAME_UP) & VB_PORT_CAME_UP);
}

/* ---- a new table, entry by entry ---- */

static struct vb_gid entry_of(const char *address, const char *ndev)
{
    struct vb_gid gid = {.type = VB_GID_ROCE_V2, .ndev_ifindex = if_nametoindex(ndev)};

    network_gid(address, gid.raw);
    strcpy(gid.ndev, ndev);
    return gid;
}

/* What the third port of the host has with the netdev, or of all, in tables of each length. */
static void expect_table(const char *netdev, const struct vb_gid *wanted, int count)
{
    static struct vb_gid fresh[10];

    CHECK(count < 10);
    for (int capacity = 0; capacity < 10; ++capacity) {
        int filled = capacity < count ? capacity : count;

        memset(fresh, 0xa5, sizeof(fresh));
        CHECK_EQ(vb_port_gid_table(netdev, 3, fresh, capacity), filled);
        for (int i = 0; i < filled; ++i)
            CHECK(memcmp(&fresh[i], &wanted[i], sizeof(fresh[i])) == 0);
        CHECK_EQ(fresh[filled].raw[0], 0xa5);
    }
}

/* Entry 0 is `first`, 1 is made of the GUID, and then follow all, in this order. */
static void expect_addresses(const char *netdev, const struct vb_gid *first,
                             const struct vb_gid *all, int count)
{
    struct vb_gid wanted[10] = {*first, vb_port_gid_infiniband(3)};

    wanted[1].type = VB_GID_ROCE_V2;
    wanted[1].ndev_ifindex = all[0].ndev_ifindex;
    strcpy(wanted[1].ndev, all[0].ndev);
    memcpy(wanted + 2, all, (size_t)count * sizeof(*all));
    expect_table(netdev, wanted, count + 2);
}

/* By interface, and then by their bytes; those of interfaces that are down are none, and neither is
 * ::1. An address whose label is another name is its interface's. */
static void test_the_order_of_a_table(void)
{
    struct vb_gid nothing[2] = {vb_port_gid_infiniband(3), vb_port_gid_infiniband(3)}, all[6];
    bool first; /* is wa, which has as many of both families as wb */

    CHECK(network_run("ip link add wa type veth peer name wb && "
                      "ip link set wa up && ip link set wb up && ip addr add 10.9.0.2/24 dev wa && "
                      "ip addr add 10.9.0.1/32 dev wa label wa:x && "
                      "ip addr add fd09::1/64 dev wa nodad && ip addr add 10.8.0.1/24 dev wb && "
                      "ip addr add fd08::1/64 dev wb nodad && "
                      "ip link add wc type veth peer name wd && ip addr add 10.7.0.1/24 dev wc"));
    network_await("fd09::1", NULL);
    network_await("fd08::1", NULL);
    first = if_nametoindex("wa") < if_nametoindex("wb");
    all[first ? 0 : 2] = entry_of("10.9.0.1", "wa");
    all[first ? 1 : 3] = entry_of("10.9.0.2", "wa");
    all[first ? 2 : 4] = entry_of("fd09::1", "wa");
    expect_addresses("wa", &all[first ? 0 : 2], &all[first ? 0 : 2], 3);
    all[first ? 3 : 0] = entry_of("10.8.0.1", "wb");
    all[first ? 4 : 1] = entry_of("fd08::1", "wb");
    all[5] = entry_of("127.0.0.1", "lo");
    expect_addresses(NULL, &all[0], all, 6);
    nothing[0].type = nothing[1].type = VB_GID_ROCE_V2;
    expect_table("wc", nothing, 2); /* it is down */
    expect_table("w", nothing, 2);
    expect_table("waa", nothing, 2);
    CHECK(network_run("ip link del wc"));
}

/* Entry 0: IPv4 before IPv6 before link-local before loopback, and the first of those alike. */
static void test_the_first_entry_of_a_table(void)
{
    static const char *const removals[] = {"10.8.0.1/24 dev wb", "10.9.0.2/24 dev wa",
                                           "10.9.0.1/32 dev wa", "fd09::1/64 dev wa",
                                           "fe80::5/64 dev wa"};
    static const char *const firsts[] = {"10.9.0.1", "10.9.0.1", "fd09::1", "fe80::5", "127.0.0.1"};
    struct vb_gid fresh[8];
    uint8_t gid[16];

    CHECK(network_run("ip addr del fd08::1/64 dev wb && "
                      "ip addr add fe80::5/64 dev wa nodad scope link"));
    for (int i = 0; i < 5; ++i) {
        CHECK(network_run("ip addr del %s", removals[i]));
        CHECK(vb_port_gid_table(NULL, 1, fresh, 8) >= 2);
        network_gid(firsts[i], gid);
        CHECK(memcmp(fresh[0].raw, gid, 16) == 0);
    }
    CHECK(network_run("ip link del wa"));
}

/* Up and with a carrier, of those that count; with nothing else loopback's state counts. */
static void test_an_active_port(void)
{
    CHECK(network_run("ip link add wa type veth peer name wb && ip link set wa up"));
    CHECK(!vb_port_is_active("wa") && vb_port_is_active(NULL)); /* it has no address */
    CHECK(network_run("ip addr add 10.9.0.1/24 dev wa"));
    CHECK(!vb_port_is_active("wa") && !vb_port_is_active(NULL) && vb_port_is_active("lo"));
    CHECK(network_run("ip link set wb up"));
    for (int i = 0; i < 500 && !vb_port_is_active("wa"); ++i)
        usleep(10000);
    CHECK(vb_port_is_active("wa") && vb_port_is_active(NULL) && !vb_port_is_active("none"));
    CHECK(network_run("ip link set lo down"));
    CHECK(!vb_port_is_active("lo") && vb_port_is_active(NULL));
    CHECK(network_run("ip link set wa down"));
    CHECK(!vb_port_is_active("wa") && !vb_port_is_active(NULL));
    CHECK(network_run("ip link del wa && ip link set lo up"));
    CHECK(vb_port_is_active(NULL));
}

/*
 * The kernel gives no interface a link-local address of its own, here and when an MTU of 1280 or
 * more brings IPv6 back: it would be news a second later, when no other host has answered for it.
 */
static void make_veth(void)
{
    CHECK(network_run("echo 1 > /proc/sys/net/ipv6/conf/default/addr_gen_mode && "
                      "ip link add va type veth peer name vb && "
                      "ip link set vb up && ip link set va up"));
}

static void test_mtu(void)
{
    int index = index_of("10.2.0.1");

    CHECK_EQ(vb_port_addresses_mtu(table, index), 1024);
    CHECK_EQ(vb_port_addresses_mtu(table, 0), 4096); /* loopback's */
    CHECK_EQ(vb_port_addresses_mtu(table, 1), 1024); /* of the GUID, on the first interface */
    CHECK(network_run("ip link set va mtu 4200"));
    CHECK_EQ(changes(), 0);
    CHECK_EQ(vb_port_addresses_mtu(table, index), 4096);
    CHECK_EQ(vb_port_addresses_mtu(table, 1), 4096);
    CHECK(network_run("ip link set va mtu 576"));
    changes(); /* so little that Linux takes away IPv6 */
    CHECK_EQ(vb_port_addresses_mtu(table, index), 256);
    CHECK(network_run("ip link set va mtu 1500"));
    changes();
    CHECK_EQ(vb_port_addresses_mtu(table, index_of("127.0.0.1")), 4096);
    CHECK_EQ(vb_port_addresses_mtu(table, 200), 0);
}

/* Where no other interface carries packets, loopback's MTU counts: that of addresses it has. */
static void test_loopbacks_mtu(void)
{
    struct vb_addresses *all;

    CHECK(network_run("ip addr add 127.9.0.2/32 dev lo"));
    CHECK_EQ(vb_port_addresses_open(NULL, 1, &all), 0);
    CHECK(network_run("ip addr add 10.6.1.1/24 dev va"));
    CHECK_EQ(vb_port_addresses_update(all), VB_GIDS_CHANGED);
    CHECK_EQ(vb_port_addresses_port_mtu(all), 1024);
    CHECK(network_run("ip addr del 127.9.0.2/32 dev lo && ip link set lo mtu 1300 && "
                      "ip link set va mtu 300"));
    CHECK_EQ(vb_port_addresses_update(all), VB_GIDS_CHANGED);
    CHECK_EQ(vb_port_addresses_port_mtu(all), 1024);
    CHECK(network_run("ip addr del 10.6.1.1/24 dev va && ip link set lo mtu 65536 && "
                      "ip link set va mtu 1500"));
    vb_port_addresses_close(all);
    changes();
}

/* A device that stands for one interface. */
static void test_one_interface(void)
{
    struct vb_addresses *one;
    uint8_t gid[16];

    CHECK_EQ(vb_port_addresses_open("va", 1, &one), 0);
    network_gid("10.2.0.1", gid);
    CHECK(vb_port_addresses_find(one, gid) >= 2);
    network_gid("127.0.0.1", gid);
    CHECK_EQ(vb_port_addresses_find(one, gid), -1);
    CHECK_EQ(vb_port_addresses_port_mtu(one), 1024);
    CHECK(network_run("ip link set vb down"));
    vb_port_addresses_close(one);
    /* The kernel looks at va's carrier in a thread of its own, after the command has ended. */
    CHECK(changes_with(VB_PORT_WENT_DOWN) & VB_PORT_WENT_DOWN);
    CHECK_EQ(vb_port_addresses_open("va", 1, &one), 0);
    CHECK(!vb_port_addresses_active(one));
    CHECK(network_run("ip link set vb up"));
    CHECK(changes_with(VB_PORT_CAME_UP) & VB_PORT_CAME_UP);
    vb_port_addresses_close(one);
    CHECK_EQ(vb_port_addresses_open("lo", 1, &one), 0);
    CHECK(vb_port_addresses_find(one, gid) >= 2);
    CHECK_EQ(vb_port_addresses_port_mtu(one), 4096);
    vb_port_addresses_close(one);
    CHECK_EQ(vb_port_addresses_open("none", 1, &one), 0);
    CHECK_EQ(vb_port_addresses_count(one), 2);
    vb_port_addresses_close(one);
    changes();
}

static int route(const char *from, const char *to, uint16_t *mtu)
{
    uint8_t source[16], destination[16];

    network_gid(from, source);
    network_gid(to, destination);
    return vb_port_route(source, destination, 0, mtu);
}

static void test_routes(void)
{
    uint16_t mtu;

    CHECK_EQ(route("10.2.0.1", "10.2.0.9", &mtu), 0);
    CHECK_EQ(mtu, 1024);
    CHECK_EQ(route("fd02::1", "fd02::9", &mtu), 0);
    CHECK_EQ(mtu, 1024);
    CHECK_EQ(route("10.2.0.1", "10.2.0.1", &mtu), 0);
    CHECK_EQ(mtu, 4096);
    CHECK_EQ(route("10.2.0.1", "192.0.2.1", &mtu), -ENETUNREACH);
    CHECK_EQ(route("fd02::1", "2001:db8::1", &mtu), -ENETUNREACH);
    CHECK_EQ(route("10.2.0.77", "10.2.0.9", &mtu), -EADDRNOTAVAIL);
    CHECK_EQ(route("fd02::1", "10.2.0.9", &mtu), -EAFNOSUPPORT);
    CHECK(network_run("ip route add unreachable 10.7.0.0/16"));
    CHECK_EQ(route("10.2.0.1", "10.7.0.1", &mtu), -EHOSTUNREACH);
    CHECK(network_run("ip route add 10.8.0.0/16 dev va mtu 600"));
    CHECK_EQ(route("10.2.0.1", "10.8.0.1", &mtu), 0);
    CHECK_EQ(mtu, 256);
}

int main(void)
{
    int next;

    network_enter();
    make_veth();
    next = dup(STDERR_FILENO);
    close(next);
    CHECK_EQ(vb_port_addresses_open(NULL, 1, &table), 0);
    CHECK(vb_port_addresses_fd(table) >= 0);
    RUN(test_begins_like_the_host);
    RUN(test_indices_stay);
    RUN(test_no_change);
    RUN(test_routes);
    RUN(test_mtu);
    RUN(test_loopbacks_mtu);
    RUN(test_one_interface);
    RUN(test_first_index);
    RUN(test_news_that_is_lost);
    RUN(test_a_full_table);
    RUN(test_port_state);
    vb_port_addresses_close(table);
    CHECK_EQ(dup(STDERR_FILENO), next); /* no descriptor is left over */
    RUN(test_the_order_of_a_table);
    RUN(test_the_first_entry_of_a_table);
    RUN(test_an_active_port);
    return 0;
}
