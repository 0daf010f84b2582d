// SPDX-License-Identifier: Apache-2.0
/* Hostile packets at full speed while two processes work: they are refused, counted by reason, and
 * the connection goes on. */
#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/slot.h"
#include "network.h"
#include "roce/bpf.h"
#include "station.h"
#include "wire/opcode.h"

/* The victim's address, its peer's, and a stranger's. */
#define VICTIM   "10.9.0.1"
#define PEER     "10.9.0.2"
#define STRANGER "10.9.0.3"
#define LOCAL    "127.0.0.1"

enum { SECONDS = 2, LENGTH = 20000, JSON = 16384, OLD_PSN = 90, UC_PEER = 0x123456 };
enum { CANARY = 0x5a, BURST = 64 };

/* What the attackers know; the keys too, since they guess near them. */
struct target {
    struct station_card rc, uc, ud;
};

static struct station here;

/*
 * 0.3 s before a packet is asked for again. The victim's socket holds 4 MiB of the attackers'
 * packets, for which a build with a sanitizer, or a host with other work, takes up to a second: an
 * answer cannot come before. The default's eight times 17 ms end in the meantime, as they must.
 */
static const struct station_route to_victim = {.from = PEER, .to = VICTIM, .timeout = 16};

/* ---- attackers ---- */

struct source {
    int fd;
    uint16_t port;
    uint8_t gid[16];
    uint32_t to; /* network order */
    uint8_t to_gid[16];
};

static struct source open_source(const char *from, const char *to)
{
    struct source source = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
    socklen_t size = sizeof(address);
    int probe = IP_PMTUDISC_PROBE; /* the IP identification is 0 then */

    CHECK_EQ(bind(source.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(getsockname(source.fd, (struct sockaddr *)&address, &size), 0);
    CHECK_EQ(setsockopt(source.fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)), 0);
    source.port = ntohs(address.sin_port);
    source.to = inet_addr(to);
    network_gid(from, source.gid);
    network_gid(to, source.to_gid);
    return source;
}

static void throw(const struct source *source, const uint8_t *bytes, uint32_t length)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT), .sin_addr.s_addr = source->to};

    sendto(source->fd, bytes, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

/* With the ICRC that belongs to it; `length` without that. */
static void throw_packet(const struct source *source, uint8_t *bytes, uint32_t length)
{
    struct vb_icrc_flow flow = {.source_port = source->port, .target_port = VB_ROCE_PORT};
    uint32_t crc;

    memcpy(flow.source, source->gid, 16);
    memcpy(flow.target, source->to_gid, 16);
    crc =
        vb_wire_icrc_with(vb_wire_icrc_start_udp(&flow, length), (struct vb_icrc_unseen){0, true});
    vb_wire_icrc_write(bytes + length, vb_wire_icrc_transport(crc, bytes, length));
    throw(source, bytes, length + VB_ICRC);
}

static uint64_t state = 88172645463325252ull;

static uint32_t chance(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

enum { WRITE_BYTES = VB_BTH + VB_RETH + 64 };

/* A WRITE to this card, which lacks nothing but what the caller changes. */
static uint32_t make_write(uint8_t *bytes, struct vb_bth bth, const struct station_card *card,
                           uint32_t rkey)
{
    struct vb_reth reth = {card->addr + chance() % STATION_BYTES / 2, rkey, 64};

    if (!bth.pkey)
        bth.pkey = 0xffff;
    bth.dest_qp = bth.dest_qp ? bth.dest_qp : card->qp_num;
    bth.psn &= VB_PSN_MASK;
    memset(bytes, 0xdd, WRITE_BYTES);
    vb_wire_bth_write(bytes, &bth);
    vb_wire_reth_write(bytes + VB_BTH, &reth);
    return WRITE_BYTES;
}

static uint32_t old_psn(void)
{
    return OLD_PSN - chance() % 100000;
}

static void throw_noise(const struct source *source, const struct target *target)
{
    uint8_t bytes[256];
    uint32_t length = chance() % sizeof(bytes);

    for (uint32_t i = 0; i < length; ++i)
        bytes[i] = (uint8_t)chance();
    throw(source, bytes, length);
    length = make_write(bytes, (struct vb_bth){.opcode = VB_OP_WRITE_ONLY, .psn = chance()},
                        &target->rc, target->rc.rkey);
    bytes[chance() % length] ^= (uint8_t)(1u << chance() % 8); /* and no ICRC that fits */
    memset(bytes + length, (int)chance(), VB_ICRC);
    throw(source, bytes, chance() % (length + VB_ICRC) + 1);
    throw(source, bytes, length + VB_ICRC);
}

static void throw_stranger(const struct source *source, const struct target *target)
{
    uint8_t bytes[256];
    const struct station_card *rc = &target->rc, *uc = &target->uc;

    throw_packet(source, bytes,
                 make_write(bytes, (struct vb_bth){.opcode = VB_OP_WRITE_ONLY, .psn = chance()}, rc,
                            rc->rkey));
    /* It is the UC queue pair's peer, so only the key stands in its way. */
    throw_packet(source, bytes,
                 make_write(bytes, (struct vb_bth){.opcode = VB_TRANSPORT_UC | VB_OP_WRITE_ONLY},
                            uc, uc->rkey ^ (chance() | 1)));
    throw_packet(source, bytes,
                 make_write(bytes,
                            (struct vb_bth){.opcode = VB_OP_WRITE_ONLY,
                                            .dest_qp = rc->qp_num ^ (0x800 + chance() % 0x700)},
                            rc, rc->rkey));
    throw_packet(source, bytes,
                 make_write(bytes, (struct vb_bth){.opcode = VB_TRANSPORT_UD | VB_OP_SEND_ONLY},
                            &target->ud, 0));
    throw_packet(source, bytes,
                 make_write(bytes,
                            (struct vb_bth){.opcode = VB_OP_WRITE_ONLY, /* another process's */
                                            .dest_qp = (chance() % 0xfff + 1) << VB_SLOT_BITS},
                            rc, rc->rkey));
}

/* As the connection's peer, by its address. */
static void throw_spoofed(const struct source *source, const struct target *target)
{
    uint8_t bytes[256];
    const struct station_card *rc = &target->rc;
    struct vb_bth bth = {.opcode = VB_OP_WRITE_ONLY, .psn = old_psn(), .ack_request = true};

    throw_packet(source, bytes, make_write(bytes, bth, rc, rc->rkey));
    bth.pkey = 0x8001;
    throw_packet(source, bytes, make_write(bytes, bth, rc, rc->rkey));
    bth.pkey = 0;
    bth.version = 3;
    throw_packet(source, bytes, make_write(bytes, bth, rc, rc->rkey));
    bth.version = 0;
    bth.opcode = 0x1f;
    throw_packet(source, bytes, make_write(bytes, bth, rc, rc->rkey));
    bth.opcode = VB_OP_READ_REQUEST;
    make_write(bytes, bth, rc, rc->rkey);
    throw_packet(source, bytes, VB_BTH + VB_RETH);
    bth.opcode = VB_OP_ACKNOWLEDGE;
    make_write(bytes, bth, rc, rc->rkey);
    throw_packet(source, bytes, VB_BTH + VB_AETH);
    throw_packet(source, bytes, VB_BTH);
}

/* To those who reuseport: no questions, and requests to do it all again. */
static void throw_questions(const struct source *source, uint32_t index)
{
    uint8_t bytes[VB_BTH + 24 + VB_ICRC] = {0};
    struct vb_bth bth = {.opcode = 0xfe, .pkey = 0xffff, .dest_qp = VB_PROBE_QPN + index % 16};
    static const uint32_t magic = 0x56425354;
    static const uint16_t version_and_kind[2][2] = {{1, 2}, {1, 1}};

    vb_wire_bth_write(bytes, &bth);
    throw_packet(source, bytes, VB_BTH + 24);
    memcpy(bytes + VB_BTH, &magic, 4);
    memcpy(bytes + VB_BTH + 4, version_and_kind[index % 2], 4);
    throw_packet(source, bytes, VB_BTH + 24);
}

static void attack(const struct target *target)
{
    struct source stranger = open_source(STRANGER, VICTIM), spoofed = open_source(PEER, VICTIM);
    struct source local = open_source(LOCAL, LOCAL);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0;; ++i) {
        throw_noise(&stranger, target);
        throw_stranger(&stranger, target);
        throw_spoofed(&spoofed, target);
        throw_questions(&local, i);
    }
}

/* ---- the victim: a process that does nothing, its port's thread serves ---- */

static void meet(int socket)
{
    char token = 0;

    CHECK_EQ(write(socket, &token, 1), 1);
    CHECK_EQ(read(socket, &token, 1), 1);
}

static bool is_all(const uint8_t *at, size_t length, uint8_t value)
{
    return at[0] == value && memcmp(at, at + 1, length - 1) == 0;
}

static struct target make_victim(int socket)
{
    struct station_card peer, stranger = {UC_PEER, 0, 0};
    struct vb_qp *rc, *uc, *ud;
    struct target target;

    station_open(&here, NULL);
    memset(here.memory, CANARY, STATION_BYTES);
    rc = station_qp(&here, IBV_QPT_RC);
    uc = station_qp(&here, IBV_QPT_UC);
    ud = station_qp(&here, IBV_QPT_UD);
    target =
        (struct target){station_card(&here, rc), station_card(&here, uc), station_card(&here, ud)};
    CHECK_EQ(write(socket, &target, sizeof(target)), sizeof(target));
    CHECK_EQ(read(socket, &peer, sizeof(peer)), sizeof(peer));
    station_connect(&here, rc, &peer, (struct station_route){.from = VICTIM, .to = PEER});
    station_connect(&here, uc, &stranger, (struct station_route){.from = VICTIM, .to = STRANGER});
    station_connect(&here, ud, NULL, (struct station_route){.from = VICTIM, .to = STRANGER});
    return target;
}

static void be_victim(int socket)
{
    static char json[JSON];
    int length;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    make_victim(socket);
    meet(socket);
    meet(socket); /* they have come and gone */
    CHECK(is_all(here.memory, STATION_BYTES / 2, CANARY));
    CHECK(is_all(here.memory + STATION_BYTES / 2 + LENGTH, STATION_BYTES / 2 - LENGTH, CANARY));
    length = vb_host_describe(here.host, json, sizeof(json));
    CHECK(length > 0 && length < JSON);
    CHECK_EQ(write(socket, json, (size_t)length + 1), length + 1);
    meet(socket);
    _exit(0);
}

/* ---- the one that works ---- */

static pid_t start(void (*run)(int), int *socket)
{
    int ends[2];
    pid_t child;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        run(ends[1]);
    }
    close(ends[1]);
    *socket = ends[0];
    return child;
}

static void work_one(struct vb_qp *qp, const struct station_card *to, uint8_t value)
{
    memset(here.memory, value, LENGTH);
    station_post(&here, qp, IBV_WR_RDMA_WRITE, LENGTH, to);
    CHECK_EQ(station_sleep(&here, 20).status, IBV_WC_SUCCESS);
    memset(here.memory, 0, LENGTH);
    station_post(&here, qp, IBV_WR_RDMA_READ, LENGTH, to);
    CHECK_EQ(station_sleep(&here, 20).status, IBV_WC_SUCCESS);
    CHECK(is_all(here.memory, LENGTH, value));
}

static uint64_t count_in(const char *json, const char *name)
{
    char quoted[64];
    const char *at;

    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    at = strstr(json, quoted);
    return at ? strtoull(at + strlen(quoted), NULL, 10) : 0;
}

/* What nobody owns goes to either process: the kernel chooses. */
static void expect_counts(const char *victim, const char *own)
{
    static const char *const names[] = {
        "drop_source",        "drop_pkey",     "drop_version",     "drop_opcode",
        "drop_malformed",     "drop_no_qp",    "drop_qkey",        "drop_ghost",
        "duplicate_requests", "refused_key",   "strays",           "drop_absent",
        "receive_bad_length", "drop_question", "receive_bad_icrc", "drop_stale_duplicate",
        "questions"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
        uint64_t count = count_in(victim, names[i]) + count_in(own, names[i]);

        printf("  %s %llu\n", names[i], (unsigned long long)count);
        CHECK(count > 0);
    }
}

static pid_t start_attacker(const struct target *target)
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        attack(target);
    return child;
}

static void test_the_connection_goes_on(void)
{
    struct station_card mine;
    struct target target;
    struct vb_qp *qp;
    static char json[JSON], own[JSON];
    int socket;
    pid_t victim = start(be_victim, &socket), attacker;
    uint64_t begin;
    uint32_t done = 0;

    CHECK_EQ(read(socket, &target, sizeof(target)), sizeof(target));
    attacker = start_attacker(&target);
    station_open(&here, NULL);
    qp = station_qp(&here, IBV_QPT_RC);
    mine = station_card(&here, qp);
    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    station_connect(&here, qp, &target.rc, to_victim);
    meet(socket);
    begin = vb_roce_now();
    while (vb_roce_now() - begin < SECONDS * 1000000000ull)
        work_one(qp, &target.rc, (uint8_t)(++done % 255 + 1));
    kill(attacker, SIGKILL);
    CHECK_EQ(waitpid(attacker, NULL, 0), attacker);
    work_one(qp, &target.rc, 7);
    meet(socket);
    CHECK(read(socket, json, sizeof(json)) > 0);
    CHECK(vb_host_describe(here.host, own, sizeof(own)) < JSON);
    printf("%u messages each way\n%s\n", done, json);
    expect_counts(json, own);
    meet(socket);
    CHECK_EQ(waitpid(victim, NULL, 0), victim);
    station_close(&here);
}

int main(void)
{
    network_enter();
    CHECK(network_run("ip addr add " VICTIM "/24 dev lo && ip addr add " PEER "/24 dev lo && "
                      "ip addr add " STRANGER "/24 dev lo"));
    setlinebuf(stdout);
    RUN(test_the_connection_goes_on);
    return 0;
}
