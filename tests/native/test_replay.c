// SPDX-License-Identifier: Apache-2.0
/*
 * Captures of the Linux driver, played again: the engine takes either side's place, is fed what the
 * other side sent and asked to do what its own side did, and must send what that sent, in order.
 *
 * Requests and responses are compared apart, since which comes first between the two is a matter
 * of time. Byte for byte, but for what the specification leaves open:
 *  - BTH.M: 1 here, as hardware has it; 0 from the driver (no path migration: IBA 17.2.8).
 *  - BTH.A of requests: any packet may ask for an acknowledgement (IBA 9.7.7.1).
 *  - the P_Key of responses: the driver always sends the default one.
 *  - credits in an AETH that acknowledges: the driver reports none, code 31 (IBA 9.7.7.2).
 *  - how many acknowledgements there are: one may stand for several (IBA 9.7.5.1.2). The engine is
 *    asked for packets after each arrival, as the driver does it, so here they are as many.
 */
#include <arpa/inet.h>

#include "check.h"
#include "hca/counters.h"
#include "subject.h"

static struct captured captured;
static struct subject subject;

/* ---- what the other side's memory held, and this one's is to hold --------------------------- */

/* The payloads of a message, or of a READ's response, from its first packet on, one after another.
 */
static uint32_t gather(const struct recorded *packet, uint8_t *to)
{
    uint32_t length = 0;

    for (;; packet = captured_next(&captured, packet)) {
        CHECK(packet);
        if (to)
            memcpy(to + length, packet->fields.payload.bytes, packet->fields.payload.length);
        length += packet->fields.payload.length;
        if (packet->flags & VB_OPCODE_LAST)
            return length;
    }
}

static const struct recorded *response_to(const struct recorded *request)
{
    const struct recorded *end = captured.packets + captured.count;

    for (const struct recorded *next = request + 1; next != end; ++next)
        if (next->from != request->from && next->connection == request->connection &&
            !recorded_is_request(next) && next->fields.bth.psn == request->fields.bth.psn)
            return next;
    CHECK(!"a response in the capture");
    return NULL;
}

/* A READ finds what the capture's found, but for bytes that were written: those are there. */
static void prepare_read(const struct recorded *request)
{
    const struct vb_reth *reth = &request->fields.reth;
    struct region *region = subject_region(&subject, reth->rkey, reth->addr, reth->length);
    uint8_t *bytes = malloc(reth->length);
    uint64_t at;

    if (!reth->length) {
        free(bytes);
        return;
    }
    CHECK(region && bytes);
    at = reth->addr - region->low;
    CHECK_EQ(gather(response_to(request), bytes), reth->length);
    for (uint32_t i = 0; i < reth->length; ++i)
        if (!region->known[at + i])
            region->memory[at + i] = bytes[i];
    free(bytes);
}

/* The first atomic on a word finds there what the capture's found; the next ones count on. */
static void prepare_atomic(const struct recorded *request)
{
    const struct vb_atomiceth *atomic = &request->fields.atomic;
    struct region *region = subject_region(&subject, atomic->rkey, atomic->addr, 8);
    uint64_t at;

    CHECK(region);
    at = atomic->addr - region->low;
    if (!region->known[at])
        memcpy(region->memory + at, &response_to(request)->fields.atomic_ack, 8);
    region->known[at] = 1;
}

/* ---- the other side's packets ---------------------------------------------------------------- */

static bool takes_receive(const struct recorded *packet)
{
    if (packet->flags & VB_OPCODE_SEND)
        return packet->flags & VB_OPCODE_FIRST;
    return (packet->flags & VB_OPCODE_WRITE) && (packet->flags & VB_OPCODE_IMM);
}

static uint8_t *post_recv(struct vb_qp *qp, uint32_t length)
{
    uint8_t *at = subject_scratch(&subject, length);
    struct ibv_sge sge = {(uintptr_t)at, length, subject.mr->ibv.lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(qp->srq ? vb_srq_post_recv(qp->srq, &wr, &bad) : vb_post_recv(qp, &wr, &bad), 0);
    return at;
}

/* What a WRITE brought is where it says. */
static void check_written(const struct recorded *first)
{
    const struct vb_reth *reth = &first->fields.reth;
    struct region *region = subject_region(&subject, reth->rkey, reth->addr, reth->length);
    uint8_t *bytes;

    if (!reth->length)
        return;
    bytes = malloc(reth->length);
    CHECK(region && bytes);
    CHECK_EQ(gather(first, bytes), reth->length);
    CHECK_EQ(memcmp(region->memory + (reth->addr - region->low), bytes, reth->length), 0);
    memset(region->known + (reth->addr - region->low), 1, reth->length);
    free(bytes);
}

static void check_received(const struct recorded *first, const uint8_t *at)
{
    uint32_t header = first->flags & VB_OPCODE_DETH ? VB_GRH : 0, length = gather(first, NULL);
    uint8_t *bytes = malloc(length + 1);
    struct ibv_wc wc;

    CHECK(bytes);
    gather(first, bytes);
    CHECK_EQ(vb_cq_poll(subject.recv_cq, 1, &wc), 1);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, header + length);
    CHECK_EQ(wc.qp_num, first->fields.bth.dest_qp);
    CHECK_EQ(memcmp(at + header, bytes, length), 0);
    if (header)
        CHECK_EQ(wc.src_qp, first->fields.deth.source_qp);
    free(bytes);
}

static void play_arrival(const struct recorded *packet)
{
    static const struct recorded *first[CAPTURED_CONNECTIONS];
    static uint8_t *place[CAPTURED_CONNECTIONS];
    int n = packet->connection;

    if (recorded_is_request(packet) && (packet->flags & VB_OPCODE_FIRST))
        first[n] = packet;
    if (takes_receive(packet)) {
        place[n] = post_recv(subject.qp[n], gather(first[n], NULL) + VB_GRH);
        subject_drain(&subject);
    }
    if (packet->flags & VB_OPCODE_READ)
        prepare_read(packet);
    if (packet->flags & VB_OPCODE_ATOMIC)
        prepare_atomic(packet);
    subject_arrival(&subject, packet);
    if (!recorded_is_request(packet) || !(packet->flags & VB_OPCODE_LAST))
        return;
    if (packet->flags & VB_OPCODE_SEND)
        check_received(first[n], place[n]);
    else if (packet->flags & VB_OPCODE_WRITE)
        check_written(first[n]);
}

/* ---- this side's requests -------------------------------------------------------------------- */

/* What a READ or atomic brings, to be looked at when it is done. */
static struct {
    const struct recorded *request;
    uint8_t *at;
} awaited[1024];
static uint32_t posted, completed;

static const struct recorded *last_of(const struct recorded *packet)
{
    while (!(packet->flags & VB_OPCODE_LAST))
        packet = captured_next(&captured, packet);
    return packet;
}

static enum ibv_wr_opcode opcode_of(const struct recorded *first, const struct recorded *last)
{
    bool imm = last->flags & VB_OPCODE_IMM;

    if (first->flags & VB_OPCODE_READ)
        return IBV_WR_RDMA_READ;
    if (first->flags & VB_OPCODE_ATOMIC)
        return (first->fields.bth.opcode & VB_OP_MASK) == VB_OP_FETCH_ADD
                   ? IBV_WR_ATOMIC_FETCH_AND_ADD
                   : IBV_WR_ATOMIC_CMP_AND_SWP;
    if (first->flags & VB_OPCODE_WRITE)
        return imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    return imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
}

static void fill_remote(struct ibv_send_wr *wr, const struct recorded *first)
{
    const struct vb_atomiceth *atomic = &first->fields.atomic;
    bool add = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

    if (first->flags & VB_OPCODE_ATOMIC) {
        wr->wr.atomic.remote_addr = atomic->addr;
        wr->wr.atomic.rkey = atomic->rkey;
        wr->wr.atomic.compare_add = add ? atomic->swap_add : atomic->compare;
        wr->wr.atomic.swap = atomic->swap_add;
    } else if (first->flags & VB_OPCODE_DETH) {
        wr->wr.ud.ah = &subject.ah[first->connection]->ibv;
        wr->wr.ud.remote_qpn = first->fields.bth.dest_qp;
        wr->wr.ud.remote_qkey = first->fields.deth.qkey;
    } else {
        wr->wr.rdma.remote_addr = first->fields.reth.addr;
        wr->wr.rdma.rkey = first->fields.reth.rkey;
    }
}

static void play_request(const struct recorded *first)
{
    const struct recorded *last = last_of(first);
    struct ibv_send_wr wr = {.opcode = opcode_of(first, last)}, *bad;
    struct ibv_sge sge = {.lkey = subject.mr->ibv.lkey};
    uint8_t *at;

    if (first->flags & VB_OPCODE_READ)
        sge.length = first->fields.reth.length;
    else if (first->flags & VB_OPCODE_ATOMIC)
        sge.length = 8;
    else
        sge.length = gather(first, NULL);
    at = subject_scratch(&subject, sge.length);
    if (first->flags & (VB_OPCODE_SEND | VB_OPCODE_WRITE))
        gather(first, at);
    sge.addr = (uintptr_t)at;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.imm_data = htonl(last->fields.immediate);
    wr.send_flags = IBV_SEND_SIGNALED | (last->fields.bth.solicited ? IBV_SEND_SOLICITED : 0);
    fill_remote(&wr, first);
    CHECK(posted < 1024);
    awaited[posted].request = first;
    awaited[posted].at = at;
    wr.wr_id = posted++;
    CHECK_EQ(vb_post_send(subject.qp[first->connection], &wr, &bad), 0);
    subject_drain(&subject);
}

static void check_read(const struct recorded *request, const uint8_t *at)
{
    uint32_t length = request->fields.reth.length;
    uint8_t *bytes = malloc(length + 1);

    CHECK(bytes);
    CHECK_EQ(gather(response_to(request), bytes), length);
    CHECK_EQ(memcmp(at, bytes, length), 0);
    free(bytes);
}

static void check_completions(void)
{
    struct ibv_wc wc;

    while (vb_cq_poll(subject.send_cq, 1, &wc) == 1) {
        const struct recorded *request = awaited[wc.wr_id].request;

        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        ++completed;
        if (request->flags & VB_OPCODE_READ)
            check_read(request, awaited[wc.wr_id].at);
        if (request->flags & VB_OPCODE_ATOMIC)
            CHECK_EQ(memcmp(awaited[wc.wr_id].at, &response_to(request)->fields.atomic_ack, 8), 0);
    }
}

/* ---- what was sent, and what should have been ------------------------------------------------ */

/* Makes equal what may differ. */
static void normalise(uint8_t *bytes, uint32_t flags)
{
    enum { BTH_FLAGS = 1, BTH_PKEY = 2, BTH_ACK_REQUEST = 8, MIGRATED = 0x40, CREDITS = 0x1f };

    bytes[BTH_FLAGS] &= (uint8_t)~MIGRATED;
    if (!(flags & VB_OPCODE_RESPONSE)) {
        bytes[BTH_ACK_REQUEST] &= 0x7f;
        return;
    }
    memset(bytes + BTH_PKEY, 0xff, 2);
    if ((flags & VB_OPCODE_AETH) && bytes[VB_BTH] >> 5 == VB_AETH_ACK)
        bytes[VB_BTH] &= (uint8_t)~CREDITS;
}

static void show(const char *who, const uint8_t *bytes, uint32_t length)
{
    fprintf(stderr, "%s, %u bytes:", who, length);
    for (uint32_t i = 0; i < length && i < 48; ++i)
        fprintf(stderr, "%s%02x", i % 4 ? "" : " ", bytes[i]);
    fprintf(stderr, "\n");
}

static void compare(const struct recorded *theirs, const struct sent *ours)
{
    uint8_t one[SUBJECT_BYTES_MAX], other[SUBJECT_BYTES_MAX];

    CHECK(theirs->length <= sizeof(one));
    memcpy(one, theirs->bytes, theirs->length);
    memcpy(other, ours->bytes, ours->length);
    normalise(one, theirs->flags);
    normalise(other, ours->flags);
    if (theirs->length == ours->length && memcmp(one, other, ours->length) == 0)
        return;
    fprintf(stderr, "packet %ld of the capture\n", (long)(theirs - captured.packets) + 1);
    show("captured", theirs->bytes, theirs->length);
    show("sent", ours->bytes, ours->length);
    CHECK(!"equal");
}

static const struct sent *next_sent(uint32_t *at, int connection, bool request)
{
    for (; *at < subject.sent_count; ++*at) {
        const struct sent *sent = &subject.sent[*at];

        if (sent->connection == connection && !(sent->flags & VB_OPCODE_RESPONSE) == request)
            return &subject.sent[(*at)++];
    }
    return NULL;
}

/* The last acknowledgement again, because that told of no credits and now there is one. */
static bool is_credit_update(const struct sent *earlier, const struct sent *sent)
{
    struct vb_aeth before = vb_wire_aeth_read(earlier->bytes + VB_BTH);
    struct vb_aeth after = vb_wire_aeth_read(sent->bytes + VB_BTH);

    return (earlier->flags & VB_OPCODE_AETH) &&
           sent->bytes[0] == (VB_TRANSPORT_RC | VB_OP_ACKNOWLEDGE) &&
           vb_wire_bth_read(earlier->bytes).psn == vb_wire_bth_read(sent->bytes).psn &&
           before.msn == after.msn && before.value == 0 && after.value == 1;
}

/* This program posts each receive request when its message comes, which those captured did not. */
static void leave_out_credit_updates(void)
{
    int last[CAPTURED_CONNECTIONS];
    uint32_t kept = 0;

    memset(last, -1, sizeof(last));
    for (uint32_t i = 0; i < subject.sent_count; ++i) {
        int connection = subject.sent[i].connection;

        subject.sent[kept] = subject.sent[i];
        if (subject.sent[i].flags & VB_OPCODE_RESPONSE) {
            if (last[connection] >= 0 &&
                is_credit_update(&subject.sent[last[connection]], &subject.sent[kept]))
                continue;
            last[connection] = (int)kept;
        }
        ++kept;
    }
    subject.sent_count = kept;
}

static uint32_t compare_all(int connection, bool request)
{
    uint32_t at = 0, count = 0;

    for (uint32_t i = 0; i < captured.count; ++i) {
        const struct recorded *packet = &captured.packets[i];
        const struct sent *sent;

        if (packet->from != subject.side || packet->connection != connection ||
            recorded_is_request(packet) != request)
            continue;
        sent = next_sent(&at, connection, request);
        if (!sent)
            show("not sent", packet->bytes, packet->length);
        CHECK(sent);
        compare(packet, sent);
        ++count;
    }
    CHECK(!next_sent(&at, connection, request)); /* nothing more */
    return count;
}

static void nothing_was_dropped(void)
{
    const struct vb_counters *counters = vb_engine_counters(subject.engine);
    const uint64_t *values = (const uint64_t *)counters;

    for (int i = 0; i < VB_COUNTER_COUNT; ++i) {
        const char *name = vb_counter_names[i].name;

        if (strncmp(name, "drop_", 5) == 0 || strncmp(name, "nak_", 4) == 0 ||
            strncmp(name, "dupl", 4) == 0 || strstr(name, "resent"))
            CHECK_EQ(values[i], 0);
    }
}

static void play_side(int side, bool with_srq)
{
    uint32_t requests = 0, responses = 0;

    subject_open(&subject, &captured, side, with_srq);
    posted = completed = 0;
    for (uint32_t i = 0; i < captured.count; ++i) {
        const struct recorded *packet = &captured.packets[i];

        if (packet->from != side)
            play_arrival(packet);
        else if (recorded_is_request(packet) && (packet->flags & VB_OPCODE_FIRST))
            play_request(packet);
        check_completions();
    }
    leave_out_credit_updates();
    for (int i = 0; i < captured.connection_count; ++i) {
        requests += compare_all(i, true);
        responses += compare_all(i, false);
    }
    CHECK_EQ(completed, posted);
    CHECK_EQ(requests + responses, subject.sent_count);
    nothing_was_dropped();
    printf("  side %d: %u requests, %u responses are the same\n", side, requests, responses);
    subject_close(&subject);
}

struct expected {
    const char *name;
    uint32_t packets;
    int connections;
    bool srq;
};

static void play(struct expected expected)
{
    const char *folder = getenv("VERBENA_CAPTURES");
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s.pcap", folder ? folder : VERBENA_CAPTURES, expected.name);
    captured_open(&captured, path);
    printf("  %s\n", expected.name);
    CHECK_EQ(captured.count, expected.packets);
    CHECK_EQ(captured.connection_count, expected.connections);
    play_side(0, expected.srq);
    play_side(1, expected.srq);
    captured_close(&captured);
}

static void messages_through_a_receive_queue(void)
{
    play((struct expected){"rc_pingpong", 32, 1, false});
}

static void messages_through_a_shared_receive_queue(void)
{
    play((struct expected){"srq_pingpong", 20, 2, true});
}

static void writes(void)
{
    play((struct expected){"write_bw", 30, 1, false});
}

static void reads(void)
{
    play((struct expected){"read_bw", 30, 1, false});
}

static void atomics(void)
{
    play((struct expected){"atomic_fa", 10, 1, false});
}

static void unreliable_messages(void)
{
    play((struct expected){"uc_pingpong", 24, 1, false});
}

static void datagrams(void)
{
    play((struct expected){"ud_pingpong", 8, 1, false});
}

static void reads_writes_and_messages_mixed(void)
{
    play((struct expected){"rping", 36, 1, false});
    play((struct expected){"cap_loss", 148, 1, false});
}

int main(void)
{
    RUN(messages_through_a_receive_queue);
    RUN(messages_through_a_shared_receive_queue);
    RUN(writes);
    RUN(reads);
    RUN(atomics);
    RUN(unreliable_messages);
    RUN(datagrams);
    RUN(reads_writes_and_messages_mixed);
    return 0;
}
