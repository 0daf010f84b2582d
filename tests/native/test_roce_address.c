// SPDX-License-Identifier: Apache-2.0
/* The GID table follows the host's addresses, and each address keeps its index while it is there.
 */
#include <poll.h>
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
    network_await("fd02::1");
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
    network_await("fd02::1");
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

static void make_veth(void)
{
    CHECK(network_run("ip link add va type veth peer name vb && "
                      "ip link set va addrgenmode none && ip link set vb addrgenmode none && "
                      "ip link set vb up && ip link set va up"));
}

static void test_mtu(void)
{
    int index = index_of("10.2.0.1");

    CHECK_EQ(vb_port_addresses_mtu(table, index), 1024);
    CHECK(network_run("ip link set va mtu 4200"));
    CHECK_EQ(changes(), 0);
    CHECK_EQ(vb_port_addresses_mtu(table, index), 4096);
    CHECK(network_run("ip link set va mtu 576"));
    changes(); /* so little that Linux takes away IPv6 */
    CHECK_EQ(vb_port_addresses_mtu(table, index), 256);
    CHECK(network_run("ip link set va mtu 1500"));
    changes();
    CHECK_EQ(vb_port_addresses_mtu(table, index_of("127.0.0.1")), 4096);
    CHECK_EQ(vb_port_addresses_mtu(table, 200), 0);
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
    network_enter();
    make_veth();
    CHECK_EQ(vb_port_addresses_open(NULL, 1, &table), 0);
    CHECK(vb_port_addresses_fd(table) >= 0);
    RUN(test_begins_like_the_host);
    RUN(test_indices_stay);
    RUN(test_no_change);
    RUN(test_routes);
    RUN(test_mtu);
    RUN(test_one_interface);
    RUN(test_first_index);
    RUN(test_a_full_table);
    RUN(test_port_state);
    vb_port_addresses_close(table);
    return 0;
}
