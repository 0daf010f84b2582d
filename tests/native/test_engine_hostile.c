// SPDX-License-Identifier: Apache-2.0
/* Packets that nobody should send: counted, and a connection between others goes on. */
#include <unistd.h>

#include "check.h"
#include "fabric.h"
#include "wire/opcode.h"

static struct fabric fabric;
static struct vb_qp *qp[2];

static void begin(void)
{
    fabric_open(&fabric, (struct fabric_options){.seed = 5});
    fabric_pair(&fabric, fabric_defaults(), qp);
}

static void it_still_works(void)
{
    struct ibv_wc wc;

    fabric_post_recv(&fabric, qp[1], 1, 0, 5000);
    memset(fabric.side[0].memory, 0x3c, 5000);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 5000), 0);
    CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
    wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, 5000);
    CHECK_EQ(memcmp(fabric.side[0].memory, fabric.side[1].memory, 5000), 0);
}

struct forged {
    struct vb_bth bth;
    uint8_t from[16], to[16];
    uint32_t length;
};

/* A WRITE that would be carried out if all were right. */
static struct forged good_write(void)
{
    struct forged forged = {
        .bth = {.opcode = VB_OP_WRITE_ONLY,
                .pkey = 0xffff,
                .dest_qp = qp[1]->number,
                .psn = fabric_defaults().psn[0]},
        .length = VB_BTH + VB_RETH + 64,
    };

    memcpy(forged.from, fabric.side[0].gid, 16);
    memcpy(forged.to, fabric.side[1].gid, 16);
    return forged;
}

static void forge(const struct forged *forged)
{
    uint8_t bytes[256];
    struct vb_reth reth = {(uintptr_t)fabric.side[1].memory, fabric.side[1].mr->ibv.rkey, 64};
    struct vb_arrival arrival = {.length = forged->length};
    uint8_t *exact = malloc(forged->length + 1);

    memset(bytes, 0xdd, sizeof(bytes));
    vb_wire_bth_write(bytes, &forged->bth);
    vb_wire_reth_write(bytes + VB_BTH, &reth);
    memcpy(exact, bytes, forged->length);
    arrival.bytes = exact;
    memcpy(arrival.sgid, forged->from, 16);
    memcpy(arrival.dgid, forged->to, 16);
    vb_engine_receive(fabric.side[1].engine, &arrival, fabric.now);
    free(exact);
}

/* A READ or atomic that is refused ends the connection, and uses no receive request. */
static void a_refused_read_or_atomic_takes_no_receive(void)
{
    static const struct {
        uint8_t opcode;
        uint64_t offset;
        uint32_t length;
    } cases[] = {
        {VB_OP_READ_REQUEST, 0, 1u << 31 | 1},
        {VB_OP_READ_REQUEST, 0, UINT32_MAX},
        {VB_OP_READ_REQUEST, 1 << 20, 1},
        {VB_OP_FETCH_ADD, 4, 0},
        {VB_OP_COMPARE_SWAP, 1, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        uint8_t bytes[VB_BTH + VB_ATOMICETH] = {0};
        struct vb_bth bth = {.opcode = cases[i].opcode, .pkey = 0xffff, .psn = 0xfffff0};
        struct vb_reth reth = {.length = cases[i].length};
        struct ibv_wc wc;

        begin();
        bth.dest_qp = qp[1]->number;
        reth.addr = (uintptr_t)fabric.side[1].memory + cases[i].offset;
        reth.rkey = fabric.side[1].mr->ibv.rkey;
        fabric_post_recv(&fabric, qp[1], 3, 0, 100);
        vb_wire_bth_write(bytes, &bth);
        vb_wire_reth_write(bytes + VB_BTH, &reth);
        fabric_inject(&fabric, 1, bytes, vb_opcodes[bth.opcode].header_length);
        fabric_run(&fabric, 100000);
        wc = fabric_wait(&fabric, fabric.side[1].recv_cq);
        CHECK_EQ(wc.wr_id, 3);
        CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        CHECK(fabric_has_event(&fabric, 1));
        CHECK_EQ(fabric_counters(&fabric, 1)->nak_invalid_sent +
                     fabric_counters(&fabric, 1)->nak_access_sent,
                 1);
        fabric_close(&fabric);
    }
}

static void what_is_not_for_this_connection_is_counted_and_dropped(void)
{
    const struct vb_counters *counters;
    struct forged forged;

    begin();
    counters = fabric_counters(&fabric, 1);
    forged = good_write();
    forged.from[15] ^= 8;
    forge(&forged);
    CHECK_EQ(counters->drop_source, 1);
    forged = good_write();
    forged.to[15] ^= 8;
    forge(&forged);
    CHECK_EQ(counters->drop_source, 2);
    forged = good_write();
    forged.bth.pkey = 0x8123;
    forge(&forged);
    CHECK_EQ(counters->drop_pkey, 1);
    forged = good_write();
    forged.bth.version = 1;
    forge(&forged);
    CHECK_EQ(counters->drop_version, 1);
    forged = good_write();
    forged.bth.dest_qp ^= 0x800;
    forge(&forged);
    CHECK_EQ(counters->drop_no_qp, 1);
    forged = good_write();
    forged.bth.opcode = VB_TRANSPORT_UC | VB_OP_WRITE_ONLY;
    forge(&forged);
    CHECK_EQ(counters->drop_transport, 1);
    forged = good_write();
    forged.bth.opcode = 0xff;
    forge(&forged);
    CHECK_EQ(counters->drop_opcode, 1);
    forged = good_write();
    for (forged.length = 0; forged.length < VB_BTH + VB_RETH; ++forged.length)
        forge(&forged);
    CHECK_EQ(counters->drop_malformed, VB_BTH + VB_RETH);
    forged = good_write();
    forged.bth.psn -= 100; /* replayed: acknowledged at most, not carried out */
    forge(&forged);
    CHECK_EQ(counters->duplicate_requests, 1);
    forged.bth.opcode = VB_OP_ACKNOWLEDGE;
    forged.length = VB_BTH + VB_AETH;
    forge(&forged);
    CHECK_EQ(counters->drop_ghost, 1);
    CHECK_EQ(fabric.side[1].memory[0], 0);
    it_still_works();
    forged = good_write();
    forged.bth.psn += 5; /* after the five packets of the SEND: this one is right */
    forged.bth.psn &= 0xffffff;
    forge(&forged);
    CHECK_EQ(fabric.side[1].memory[0], 0xdd);
    fabric_close(&fabric);
}

static void limited_members_do_not_talk_to_each_other(void)
{
    struct fabric_options options = {0};
    struct forged forged;

    fabric_open(&fabric, options);
    for (int side = 0; side < 2; ++side)
        fabric.side[side].adapter.ports[0].pkeys[0] = 0x7fff;
    fabric_pair(&fabric, fabric_defaults(), qp);
    forged = good_write();
    forged.bth.pkey = 0x7fff;
    forge(&forged);
    CHECK_EQ(fabric_counters(&fabric, 1)->drop_pkey, 1);
    CHECK_EQ(atomic_load(&fabric.side[1].adapter.self.header->port[0].pkey_violations), 1);
    forged.bth.pkey = 0xffff;
    forge(&forged);
    CHECK_EQ(fabric.side[1].memory[0], 0xdd);
    fabric_close(&fabric);
}

/* From elsewhere: random bytes, and copies of real packets with bits flipped. */
static void noise_from_strangers(void)
{
    uint8_t noise[600];

    begin();
    for (int i = 0; i < 20000; ++i) {
        uint32_t length = fabric_random(&fabric) % sizeof(noise);
        struct vb_arrival arrival = {.bytes = noise, .length = length};

        for (uint32_t n = 0; n < length; ++n)
            noise[n] = (uint8_t)fabric_random(&fabric);
        if (length >= VB_BTH && i % 2) { /* far enough in to be looked at */
            struct vb_bth bth = vb_wire_bth_read(noise);

            bth.version = 0;
            bth.pkey = 0xffff;
            bth.dest_qp = qp[i / 2 % 2]->number;
            vb_wire_bth_write(noise, &bth);
        }
        arrival.sgid[3] = 1;
        vb_engine_receive(fabric.side[i / 2 % 2].engine, &arrival, fabric.now);
    }
    CHECK(fabric_counters(&fabric, 0)->drop_source + fabric_counters(&fabric, 1)->drop_source >
          300);
    it_still_works();
    fabric_close(&fabric);
}

static struct vb_qp *bad[2];

/* Flips bits of packets of the connection `bad`, some of which an ICRC would have let pass. */
static enum verdict mutate(struct fabric *f, struct flight *flight)
{
    uint32_t dest = vb_wire_bth_read(flight->bytes).dest_qp;

    if (dest == qp[0]->number || dest == qp[1]->number)
        return PASS;
    if (fabric_random(f) % 4)
        return PASS;
    for (uint32_t flips = 1 + fabric_random(f) % 3; flips--;) {
        uint32_t limit = flight->length < 40 ? flight->length : 40;

        flight->bytes[fabric_random(f) % limit] ^= (uint8_t)(1u << fabric_random(f) % 8);
    }
    /* It stays a packet to its own connection: others are checked by noise_from_strangers. */
    struct vb_bth bth = vb_wire_bth_read(flight->bytes);

    bth.dest_qp = dest;
    vb_wire_bth_write(flight->bytes, &bth);
    if (fabric_random(f) % 8 == 0)
        flight->length = fabric_random(f) % (flight->length + 1);
    return flight->length < VB_BTH ? LOSE : PASS;
}

static void end_of(struct vb_qp *one)
{
    CHECK_EQ(vb_qp_destroy(one), 0);
}

static void a_peer_that_sends_nonsense_ends_its_own_connection_only(void)
{
    struct qp_options options = fabric_defaults();

    options.timeout = 4;
    options.retry_cnt = 2;
    options.type = IBV_QPT_RC;
    begin();
    fabric.rule = mutate;
    for (int round = 0; round < 150; ++round) {
        struct ibv_wc wc;

        options.type = round % 5 == 4 ? IBV_QPT_UC : IBV_QPT_RC;
        fabric_pair(&fabric, options, bad);
        for (int i = 0; i < 12; ++i) {
            static const enum ibv_wr_opcode kinds[] = {
                IBV_WR_SEND,          IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD};
            uint32_t kind = fabric_random(&fabric) % (options.type == IBV_QPT_UC ? 4 : 6);
            struct ibv_send_wr wr = fabric_request(&fabric, i % 2, kinds[kind], 65536);

            fabric_post_recv(&fabric, bad[!(i % 2)], 0, 65536, 4000);
            CHECK_EQ(fabric_post(&fabric, bad[i % 2], wr, 65536,
                                 kind == 5 ? 8 : fabric_random(&fabric) % 4000),
                     0);
        }
        fabric_run(&fabric, 5000000);
        end_of(bad[round % 2]);
        end_of(bad[!(round % 2)]);
        for (int i = 0; i < 2; ++i)
            while (fabric_poll(fabric.side[i].send_cq, &wc) ||
                   fabric_poll(fabric.side[i].recv_cq, &wc))
                ;
        fabric.logged = 0;
    }
    it_still_works();
    fabric_close(&fabric);
}

static long resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages;

    CHECK(file);
    CHECK_EQ(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Neither from nothing nor from another's key, and trying costs the victim 4 MiB, once. */
static void keys_cannot_be_guessed(void)
{
    enum { REGIONS = 64, TRIES = 200000 };
    const struct vb_mr_shared *entry;
    struct vb_mr *mr[REGIONS];
    unsigned near = 0, found = 0;
    long before;

    begin();
    for (int i = 0; i < REGIONS; ++i)
        CHECK_EQ(vb_mr_reg(fabric.side[1].pd, fabric.side[1].memory, 64, 0, 0, &mr[i]), 0);
    for (int i = 1; i < REGIONS; ++i)
        near += (mr[i]->ibv.rkey >> 8) - (mr[i - 1]->ibv.rkey >> 8) + 16 < 32;
    CHECK_EQ(near, 0);
    before = resident_bytes();
    for (int i = 0; i < TRIES; ++i)
        found += vb_mr_check(&fabric.side[1].adapter.self, fabric.side[1].pd->number,
                             fabric_random(&fabric), 0, 1, 0, &entry) != VB_CHECK_KEY;
    CHECK(found <= 1);
    for (uint32_t i = 0; i < TRIES; ++i) /* where regions are */
        vb_mr_check(&fabric.side[1].adapter.self, fabric.side[1].pd->number, i << 8, 0, 1, 0,
                    &entry);
    CHECK(resident_bytes() - before < 5 << 20);
    for (int i = 0; i < REGIONS; ++i)
        CHECK_EQ(vb_mr_check(&fabric.side[1].adapter.self, fabric.side[1].pd->number,
                             mr[i]->ibv.rkey, 0, 1, 0, &entry),
                 VB_CHECK_OK);
    it_still_works();
    fabric_close(&fabric);
}

/*
 * A packet of an earlier connection, far ahead or near, of which the responder thinks that others
 * before it are missing. The requester has nothing more to send, and takes the responder's NAK for
 * the acknowledgement that it is, so no timer expires.
 */
static void a_stray_packet_that_is_ahead_stops_nobody(void)
{
    static const uint32_t ahead[] = {100, 5000, 1 << 16, (1 << 16) + 1, 1 << 22};

    for (int adapts = 0; adapts < 2; ++adapts)
        for (size_t i = 0; i < sizeof(ahead) / sizeof(ahead[0]); ++i) {
            struct forged stray;

            fabric_open(&fabric, (struct fabric_options){.seed = 5, .engine = {.adapts = adapts}});
            fabric_pair(&fabric, fabric_defaults(), qp);
            stray = good_write();
            stray.bth.psn = (stray.bth.psn + ahead[i]) & VB_PSN_MASK;
            forge(&stray);
            CHECK_EQ(fabric_counters(&fabric, 1)->packets_held, adapts && ahead[i] <= 1 << 16);
            fabric_run(&fabric, fabric.now + 100000);
            it_still_works();
            for (int message = 0; message < 3; ++message) {
                fabric_post_recv(&fabric, qp[1], 1, 0, 100);
                CHECK_EQ(
                    fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, IBV_WR_SEND, 0), 0, 100),
                    0);
                CHECK_EQ(fabric_wait(&fabric, fabric.side[0].send_cq).status, IBV_WC_SUCCESS);
            }
            CHECK_EQ(fabric_counters(&fabric, 0)->timeouts, 0);
            fabric_close(&fabric);
        }
}

int main(void)
{
    RUN(a_refused_read_or_atomic_takes_no_receive);
    RUN(what_is_not_for_this_connection_is_counted_and_dropped);
    RUN(limited_members_do_not_talk_to_each_other);
    RUN(keys_cannot_be_guessed);
    RUN(noise_from_strangers);
    RUN(a_stray_packet_that_is_ahead_stops_nobody);
    RUN(a_peer_that_sends_nonsense_ends_its_own_connection_only);
    return 0;
}
