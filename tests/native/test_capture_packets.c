// SPDX-License-Identifier: Apache-2.0
/*
 * The packets in a capture file, byte by byte: those of each request that was carried out without
 * any, those that pass, and what becomes of those that cannot be written.
 */
#include "bare_packet.h"
#include "check.h"
#include "rules.h"
#include "wire/dissect.h"
#include "wire/icrc.h"
#include "wrap/capture_message.h"
#include "wrap/wrap.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define FILE_NAME "packets.pcapng"

enum {
    MTU = PATH_MTU,
    MOST = 1024,
    ROOM = 5000,
    PACKETS = 32,
    QP = 0x111,
    PEER = 0x222,
    PSN = 0xfffffe
};

static uint8_t payload[MOST + 64];

/* ---- what a file has ------------------------------------------------------------------------- */

struct got {
    uint64_t time;
    uint32_t captured, length, flags;
    char comment[400];
    uint8_t bytes[ROOM];
    struct vb_dissection packet;
};

static struct got got[PACKETS];
static unsigned got_count;

static uint32_t u32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

static void read_options(struct got *to, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint16_t code, length;

        memcpy(&code, at, 2);
        memcpy(&length, at + 2, 2);
        if (code == 2 && length == 4)
            to->flags = u32(at + 4);
        if (code == 1)
            snprintf(to->comment, sizeof to->comment, "%.*s", length, (const char *)at + 4);
        CHECK(code == 0 || code == 1 || code == 2);
        CHECK(code || (length == 0 && at + 4 == end)); /* the end */
        at += 4 + (length + 3) / 4 * 4;
    }
    CHECK(at == end);
}

static void read_block(const uint8_t *at)
{
    struct got *to = &got[got_count++];
    const uint32_t size = u32(at + 4);

    CHECK(got_count <= PACKETS);
    memset(to, 0, sizeof *to);
    CHECK_EQ(u32(at + 8), 0); /* the interface */
    to->time = (uint64_t)u32(at + 12) << 32 | u32(at + 16);
    to->captured = u32(at + 20);
    to->length = u32(at + 24);
    memcpy(to->bytes, at + 28, to->captured);
    for (uint32_t i = to->captured; i % 4; i++)
        CHECK_EQ(at[28 + i], 0);
    read_options(to, at + 28 + (to->captured + 3) / 4 * 4, at + size - 4);
    if (to->captured == to->length)
        CHECK_EQ(vb_wire_dissect(&to->packet, VB_LAYER_ETHERNET, to->bytes, to->captured),
                 VB_DISSECT_OK);
}

/* All packets of the file; the rest of it is test_capture.c's. */
static void read_file(void)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(FILE_NAME, "re");
    size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;

    CHECK(size > 0 && size < sizeof bytes);
    fclose(file);
    got_count = 0;
    for (size_t at = 0; at < size; at += u32(bytes + at + 4))
        if (u32(bytes + at) == 6)
            read_block(bytes + at);
}

enum { EPOCH = 1000000 };

static struct vb_capture *opened(uint32_t bytes)
{
    struct vb_capture_config config = {.path = FILE_NAME, .bytes = bytes, .epoch = EPOCH};
    struct vb_capture *capture = NULL;

    unlink(FILE_NAME);
    CHECK_EQ(vb_wrap_capture_open(&config, &capture), 0);
    return capture;
}

/* ---- requests that were carried out without packets ------------------------------------------ */

/* Each packet as its direction, its operation, the PSN behind the first one's, and its payload. */
static const char *packets_of_message(void)
{
    static char text[1024];
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < got_count; i++) {
        const struct vb_dissection *packet = &got[i].packet;

        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s +%u %u", i ? ", " : "",
                                 got[i].flags == 2 ? ">" : "<",
                                 strchr(vb_opcodes[packet->bth.opcode].name, ' ') + 1,
                                 (packet->bth.psn - PSN) & VB_PSN_MASK, packet->payload.length);
    }
    return text;
}

static const struct {
    enum ibv_wr_opcode opcode;
    enum vb_transport transport;
    uint32_t length;
    const char *packets;
} messages[] = {
    {IBV_WR_SEND, VB_TRANSPORT_RC, 0, "> SEND Only +0 0, < Acknowledge +0 0"},
    {IBV_WR_SEND, VB_TRANSPORT_RC, 1, "> SEND Only +0 1, < Acknowledge +0 0"},
    {IBV_WR_SEND, VB_TRANSPORT_RC, 256, "> SEND Only +0 256, < Acknowledge +0 0"},
    {IBV_WR_SEND, VB_TRANSPORT_RC, 257,
     "> SEND First +0 256, > SEND Last +1 1, < Acknowledge +1 0"},
    {IBV_WR_SEND, VB_TRANSPORT_RC, 512,
     "> SEND First +0 256, > SEND Last +1 256, < Acknowledge +1 0"},
    {IBV_WR_SEND, VB_TRANSPORT_RC, 513,
     "> SEND First +0 256, > SEND Middle +1 256, > SEND Last +2 1, < Acknowledge +2 0"},
    {IBV_WR_SEND, VB_TRANSPORT_XRC, 300,
     "> SEND First +0 256, > SEND Last +1 44, < Acknowledge +1 0"},
    {IBV_WR_SEND, VB_TRANSPORT_UC, 300, "> SEND First +0 256, > SEND Last +1 44"},
    {IBV_WR_SEND, VB_TRANSPORT_UD, 256, "> SEND Only +0 256"},
    {IBV_WR_SEND, VB_TRANSPORT_UD, 257, ""},
    {IBV_WR_SEND_WITH_IMM, VB_TRANSPORT_RC, 300,
     "> SEND First +0 256, > SEND Last with Immediate +1 44, < Acknowledge +1 0"},
    {IBV_WR_SEND_WITH_IMM, VB_TRANSPORT_UD, 3, "> SEND Only with Immediate +0 3"},
    {IBV_WR_SEND_WITH_INV, VB_TRANSPORT_RC, 300,
     "> SEND First +0 256, > SEND Last with Invalidate +1 44, < Acknowledge +1 0"},
    {IBV_WR_SEND_WITH_INV, VB_TRANSPORT_RC, 5,
     "> SEND Only with Invalidate +0 5, < Acknowledge +0 0"},
    {IBV_WR_SEND_WITH_INV, VB_TRANSPORT_UC, 5, ""},
    {IBV_WR_RDMA_WRITE, VB_TRANSPORT_RC, 600,
     "> WRITE First +0 256, > WRITE Middle +1 256, > WRITE Last +2 88, < Acknowledge +2 0"},
    {IBV_WR_RDMA_WRITE, VB_TRANSPORT_UC, 2, "> WRITE Only +0 2"},
    {IBV_WR_RDMA_WRITE, VB_TRANSPORT_UD, 2, ""},
    {IBV_WR_RDMA_WRITE_WITH_IMM, VB_TRANSPORT_RC, 300,
     "> WRITE First +0 256, > WRITE Last with Immediate +1 44, < Acknowledge +1 0"},
    {IBV_WR_RDMA_WRITE_WITH_IMM, VB_TRANSPORT_XRC, 0,
     "> WRITE Only with Immediate +0 0, < Acknowledge +0 0"},
    {IBV_WR_RDMA_READ, VB_TRANSPORT_RC, 0, "> READ Request +0 0, < READ Response Only +0 0"},
    {IBV_WR_RDMA_READ, VB_TRANSPORT_RC, 600,
     "> READ Request +0 0, < READ Response First +0 256, < READ Response Middle +1 256, "
     "< READ Response Last +2 88"},
    {IBV_WR_RDMA_READ, VB_TRANSPORT_UC, 8, ""},
    {IBV_WR_ATOMIC_CMP_AND_SWP, VB_TRANSPORT_RC, 8, "> CmpSwap +0 0, < Atomic Acknowledge +0 0"},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, VB_TRANSPORT_XRC, 8,
     "> FetchAdd +0 0, < Atomic Acknowledge +0 0"},
    {IBV_WR_ATOMIC_WRITE, VB_TRANSPORT_RC, 8, "> ATOMIC WRITE +0 8, < READ Response Only +0 0"},
    {IBV_WR_FLUSH, VB_TRANSPORT_RC, 600, "> FLUSH +0 0, < READ Response Only +0 0"},
    {IBV_WR_LOCAL_INV, VB_TRANSPORT_RC, 0, ""},
    {(enum ibv_wr_opcode)100, VB_TRANSPORT_RC, 0, ""},
};

static struct vb_capture_message message_of(size_t i, const struct vb_path *path,
                                            struct vb_piece pieces[2])
{
    struct vb_capture_message message = {.path = path,
                                         .transport = messages[i].transport,
                                         .qp_num = QP,
                                         .dest_qp_num = PEER,
                                         .srq_num = 0x333,
                                         .psn = PSN,
                                         .msn = 0x444,
                                         .pkey = 0x8001,
                                         .opcode = messages[i].opcode,
                                         .solicited = true,
                                         .imm = htobe32(0x12345678),
                                         .invalidate_rkey = 0x77,
                                         .addr = 0x7f0000001000,
                                         .rkey = 0x99,
                                         .compare = 5,
                                         .swap_add = 6,
                                         .original = 7,
                                         .flush = {.placement = 2, .selectivity = 1},
                                         .qkey = 0x11111111,
                                         .length = messages[i].length,
                                         .piece = pieces,
                                         .piece_count = 2};

    pieces[0] = (struct vb_piece){payload, message.length / 3};
    pieces[1] =
        (struct vb_piece){payload + message.length / 3, message.length - message.length / 3};
    return message;
}

static void check_request(const struct vb_capture_message *message, const struct got *at,
                          bool is_last)
{
    const struct vb_dissection *packet = &at->packet;
    const uint32_t flags = vb_opcodes[packet->bth.opcode].flags;
    const bool reliable =
        message->transport == VB_TRANSPORT_RC || message->transport == VB_TRANSPORT_XRC;

    CHECK_EQ(packet->bth.dest_qp, PEER);
    CHECK_EQ(packet->bth.ack_request, is_last && reliable);
    CHECK_EQ(packet->bth.solicited,
             is_last && message->solicited && (flags & (VB_OPCODE_SEND | VB_OPCODE_IMM)) != 0);
    if (flags & VB_OPCODE_RETH)
        CHECK(packet->reth.addr == message->addr && packet->reth.rkey == message->rkey &&
              packet->reth.length == message->length);
    if (flags & VB_OPCODE_ATOMICETH)
        CHECK(packet->atomic.addr == message->addr && packet->atomic.rkey == message->rkey &&
              packet->atomic.swap_add == 6 && packet->atomic.compare == 5);
    if (flags & VB_OPCODE_IMM)
        CHECK_EQ(packet->immediate, 0x12345678);
    if (flags & VB_OPCODE_IETH)
        CHECK_EQ(packet->invalidate_rkey, 0x77);
    if (flags & VB_OPCODE_DETH)
        CHECK(packet->deth.qkey == 0x11111111 && packet->deth.source_qp == QP);
    if (flags & VB_OPCODE_XRCETH)
        CHECK_EQ(packet->xrc_srq, 0x333);
    if (flags & VB_OPCODE_FETH)
        CHECK_EQ(packet->flush, 0x12);
    CHECK(strcmp(at->comment, "") == 0);
}

static void check_response(const struct vb_capture_message *message, const struct got *at)
{
    const struct vb_dissection *packet = &at->packet;
    const uint32_t flags = vb_opcodes[packet->bth.opcode].flags;

    CHECK_EQ(packet->bth.dest_qp, QP);
    CHECK(!packet->bth.ack_request && !packet->bth.solicited);
    if (flags & VB_OPCODE_AETH)
        CHECK(packet->aeth.kind == message->answer && packet->aeth.msn == 0x444 &&
              packet->aeth.value ==
                  (message->answer == VB_AETH_ACK ? VB_CREDITS_UNLIMITED : message->answer_value));
    if (flags & VB_OPCODE_ATOMICACKETH)
        CHECK_EQ(packet->atomic_ack, 7);
}

/* What holds for each packet of a message, from either side. */
static void check_message(const struct vb_capture_message *message, uint32_t requests)
{
    const bool is_ipv4 = message->path->source_port != 0;
    uint32_t at = 0;

    for (unsigned i = 0; i < got_count; i++) {
        const struct vb_dissection *packet = &got[i].packet;
        const uint8_t *source = is_ipv4 ? packet->ipv4.source : packet->grh.source;
        const bool is_response = i >= requests;
        const uint8_t *from = is_response ? message->path->dgid : message->path->sgid;

        CHECK_EQ(got[i].flags, is_response ? 1 : 2);
        CHECK_EQ(got[i].time, EPOCH + 99);
        CHECK(memcmp(source, is_ipv4 ? from + 12 : from, is_ipv4 ? 4 : 16) == 0);
        CHECK_EQ(is_ipv4 ? packet->ipv4.tos : packet->grh.traffic_class,
                 message->path->traffic_class);
        CHECK_EQ(is_ipv4 ? packet->ipv4.ttl : packet->grh.hop_limit, is_ipv4 ? 17 : 64);
        CHECK_EQ(packet->grh.flow_label, is_ipv4 ? 0 : 0x54321);
        CHECK_EQ(packet->bth.pkey, message->pkey ? message->pkey : 0xffff);
        CHECK_EQ(packet->bth.migrated, 1);
        CHECK_EQ(packet->bth.pad, -packet->payload.length & 3);
        CHECK(memcmp(packet->payload.bytes, payload + at, packet->payload.length) == 0);
        at += packet->payload.length;
        if (is_response)
            check_response(message, &got[i]);
        else
            check_request(message, &got[i], i + 1 == requests);
    }
}

static uint32_t psns_of(const char *packets)
{
    const char *last = strrchr(packets, '+');

    return last ? (uint32_t)atoi(last + 1) + 1 : 0;
}

static uint32_t requests_of(const char *packets)
{
    uint32_t count = 0;

    for (; (packets = strchr(packets, '>')); ++packets)
        ++count;
    return count;
}

static void test_the_packets_of_each_message(void)
{
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        for (int round = 0; round < 4; round++) {
            struct vb_capture *capture = opened(0);
            struct vb_piece pieces[2];
            struct vb_capture_message message = message_of(i, round % 2 ? &ipv6 : &ipv4, pieces);

            message.solicited = round < 2;
            message.pkey = round < 2 ? 0x8001 : 0;
            CHECK_EQ(vb_wrap_capture_message(capture, &message, 99), psns_of(messages[i].packets));
            vb_wrap_capture_close(capture);
            read_file();
            if (strcmp(packets_of_message(), messages[i].packets) != 0)
                fprintf(stderr, "%s\nexpected: %s\n", packets_of_message(), messages[i].packets);
            CHECK(strcmp(packets_of_message(), messages[i].packets) == 0);
            check_message(&message, requests_of(messages[i].packets));
        }
}

/* A refusal is of the first packet, whatever was asked for; without an answer there is none. */
static void test_answers_of_each_kind(void)
{
    static const struct {
        enum vb_aeth_kind kind;
        uint8_t value;
        const char *comment;
    } answers[] = {
        {VB_AETH_RNR, 12, "RNR NAK: no receive request for PSN 16777214: again after 0.64 ms"},
        {VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, "NAK: PSN sequence error: PSN 16777214 is missing"},
        {VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, "NAK: remote access error: PSN 16777214 is refused"},
    };
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE};

    for (size_t i = 0; i < 4 * (sizeof answers / sizeof *answers); i++) {
        struct vb_capture *capture = opened(0);
        struct vb_piece pieces[2];
        struct vb_capture_message message = message_of(5, &ipv4, pieces);
        const struct got *last;

        message.opcode = opcodes[i % 4];
        message.answer = answers[i / 4].kind;
        message.answer_value = answers[i / 4].value;
        CHECK(vb_wrap_capture_message(capture, &message, 99) > 0);
        message.unanswered = true;
        CHECK(vb_wrap_capture_message(capture, &message, 99) > 0);
        vb_wrap_capture_close(capture);
        read_file();
        last = &got[got_count / 2];
        CHECK_EQ(got_count % 2, 1); /* the second time without the answer */
        CHECK(last->packet.bth.opcode == VB_OP_ACKNOWLEDGE && last->flags == 1);
        CHECK_EQ(last->packet.bth.psn, PSN);
        check_response(&message, last);
        CHECK(strcmp(last->comment, answers[i / 4].comment) == 0);
    }
}

/* Annex A17's rule, where the path has no port: the same for both QP numbers either way. */
static void test_the_source_port_of_a_message(void)
{
    for (uint32_t round = 0; round < 50; round++) {
        const uint32_t qp = any() & VB_QPN_MASK, peer = any() & VB_QPN_MASK;
        struct vb_capture *capture = opened(0);
        struct vb_piece pieces[2];
        struct vb_path path = ipv6;
        struct vb_capture_message message = message_of(0, &path, pieces);
        uint64_t hash = (uint64_t)qp * peer;

        hash ^= hash >> 20;
        hash ^= hash >> 40;
        hash = ((hash & 0x3fff) ^ ((hash & 0xfc000) >> 14)) | 0xc000; /* as in the annex */
        message.qp_num = qp;
        message.dest_qp_num = peer;
        vb_wrap_capture_message(capture, &message, 99);
        path.source_port = 0xd00d;
        vb_wrap_capture_message(capture, &message, 99);
        vb_wrap_capture_close(capture);
        read_file();
        CHECK_EQ(got_count, 4);
        CHECK_EQ(got[0].packet.udp.source_port, hash);
        CHECK_EQ(got[1].packet.udp.source_port, hash);
        CHECK_EQ(got[2].packet.udp.source_port, 0xd00d);
    }
}

static void test_a_message_without_its_bytes(void)
{
    struct vb_capture *capture = opened(0);
    struct vb_piece pieces[2];
    struct vb_capture_message message = message_of(5, &ipv4, pieces);
    struct vb_path path = ipv4;

    pieces[0].bytes = pieces[1].bytes = NULL;
    CHECK_EQ(vb_wrap_capture_message(capture, &message, 99), 3);
    path.mtu = 0;
    message.path = &path;
    CHECK_EQ(vb_wrap_capture_message(capture, &message, 99), 0);
    vb_wrap_capture_close(capture);
    read_file();
    CHECK_EQ(got_count, 4);
    CHECK_EQ(got[0].captured, 42 + VB_BTH);
    CHECK_EQ(got[0].length, 42 + VB_BTH + 256 + VB_ICRC);
    CHECK_EQ(got[2].length, 42 + VB_BTH + 4 + VB_ICRC);
}

/* ---- packets that are captured as they pass -------------------------------------------------- */

static void test_notes_stand_behind_reasons(void)
{
    static const struct {
        enum vb_packet_reason reason;
        const char *note, *comment;
    } all[] = {
        {VB_PACKET_NEW, NULL, ""},
        {VB_PACKET_NEW, "", ""},
        {VB_PACKET_NEW, "noted", "noted"},
        {VB_PACKET_REPLAYED_RESPONSE, NULL, "sent again: the requester repeated its request"},
        {VB_PACKET_REPLAYED_RESPONSE, "", "sent again: the requester repeated its request"},
        {VB_PACKET_REPLAYED_RESPONSE, "noted",
         "sent again: the requester repeated its request; noted"},
    };
    const struct vb_wrap_frame facts = {.source_port = 5, .ip_id = 6, .may_fragment = true};
    struct vb_capture *capture = opened(0);

    for (uint32_t i = 0; i < 6; i++) {
        struct vb_packet packet = packet_of(QP, VB_OP_SEND_ONLY, i, all[i].reason);

        packet.pad = (uint8_t)(i % 4);
        errno = 42;
        vb_wrap_capture_packet(capture, &packet, &facts, 0, all[i].note, i);
        CHECK_EQ(errno, 42);
    }
    vb_wrap_capture_close(capture);
    read_file();
    CHECK_EQ(got_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        CHECK(strcmp(got[i].comment, all[i].comment) == 0);
        CHECK(got[i].flags == 2 && got[i].time == EPOCH + i);
        CHECK(got[i].packet.ipv4.id == 6 && got[i].packet.ipv4.fragment == 0);
        CHECK(got[i].packet.udp.source_port == 5 && got[i].packet.ipv4.tos == 0x6a);
        CHECK_EQ(got[i].length, 42 + VB_BTH + i % 4 + VB_ICRC);
    }
}

static void test_arrivals(void)
{
    static const uint8_t icrc[4] = {9, 8, 7, 6};
    uint8_t bytes[VB_BTH + VB_AETH];
    struct vb_arrival arrival = {.bytes = bytes,
                                 .length = sizeof bytes,
                                 .traffic_class = 0x6a,
                                 .hop_limit = 33,
                                 .flow_label = 0x12345};
    struct vb_wrap_frame facts = {.source_port = 5};
    struct vb_capture *capture = opened(0);
    static const char nak[] = "NAK: remote access error: PSN 9 is refused";

    memcpy(arrival.sgid, ipv6.sgid, 16);
    memcpy(arrival.dgid, ipv6.dgid, 16);
    vb_wire_bth_write(bytes, &(struct vb_bth){.opcode = VB_OP_ACKNOWLEDGE, .psn = 9});
    vb_wire_aeth_write(bytes + VB_BTH, &(struct vb_aeth){VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, 1});
    vb_wrap_capture_arrival(capture, &arrival, &facts, 0, NULL, 1);
    vb_wrap_capture_arrival(capture, &arrival, &facts, 0, "", 2);
    vb_wrap_capture_arrival(capture, &arrival, &facts, 0, "noted", 3);
    vb_wire_aeth_write(bytes + VB_BTH, &(struct vb_aeth){VB_AETH_ACK, 0, 1});
    vb_wrap_capture_arrival(capture, &arrival, &facts, 0xff, "noted", 4);
    facts.icrc = icrc;
    vb_wrap_capture_arrival(capture, &arrival, &facts, 0, NULL, 5);
    arrival.virtual_payload = 100;
    vb_wrap_capture_arrival(capture, &arrival, &facts, 0, NULL, 6);
    vb_wrap_capture_close(capture);
    read_file();
    CHECK_EQ(got_count, 6);
    CHECK(strcmp(got[0].comment, nak) == 0 && strcmp(got[1].comment, nak) == 0);
    CHECK(strncmp(got[2].comment, nak, strlen(nak)) == 0);
    CHECK(strcmp(got[2].comment + strlen(nak), "; noted") == 0);
    CHECK(strcmp(got[3].comment, "noted") == 0 && strcmp(got[4].comment, "") == 0);
    CHECK(memcmp(got[4].packet.icrc, icrc, 4) == 0);
    CHECK_EQ(got[5].captured, 62 + sizeof bytes);
    CHECK_EQ(got[5].length, 62 + sizeof bytes + 100 + VB_ICRC);
    for (int i = 0; i < 5; i++) {
        uint8_t computed[4];

        CHECK(got[i].flags == 1 && got[i].packet.grh.flow_label == 0x12345);
        CHECK(got[i].packet.grh.traffic_class == 0x6a && got[i].packet.grh.hop_limit == 33);
        vb_wire_dissect_icrc(&got[i].packet, got[i].bytes, computed);
        if (i < 4)
            CHECK_EQ(computed[0] ^ got[i].packet.icrc[0], i == 3 ? 0xff : 0);
    }
}

/* What a rule did stands before why the packet was refused; a packet of no rule has neither. */
static void test_arrivals_that_pass_rules(void)
{
    static const struct {
        const char *rules, *refused, *comment;
        bool passes;
    } all[] = {
        {"", NULL, "", true},
        {"", "dropped: unknown QP", "dropped: unknown QP", true},
        {"corrupt dir=in icrc=good", NULL, "corrupted by the fault rule: corrupt dir=in icrc=good",
         true},
        {"corrupt dir=in icrc=good", "dropped: unknown QP",
         "corrupted by the fault rule: corrupt dir=in icrc=good; dropped: unknown QP", true},
        {"corrupt dir=in", NULL, "corrupted by the fault rule: corrupt dir=in", false},
        {"drop dir=in", NULL, "dropped by the fault rule: drop dir=in", false},
    };
    const struct vb_capture_config config = {.path = FILE_NAME, .epoch = EPOCH};
    const struct vb_wrap_frame facts = {.source_port = 5, .ip_id = 6, .may_fragment = true};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uint8_t bytes[VB_BTH + 8] = {0}, icrc[4];
        struct vb_arrival arrival = {.bytes = bytes, .length = sizeof bytes};
        struct vb_wrap_in in;
        struct vb_wrap wrap;

        vb_wire_bth_write(bytes, &(struct vb_bth){.opcode = VB_OP_SEND_ONLY, .psn = 9});
        memcpy(arrival.sgid, ipv4.dgid, 16);
        memcpy(arrival.dgid, ipv4.sgid, 16);
        vb_wrap_init(&wrap);
        unlink(FILE_NAME);
        CHECK_EQ(vb_wrap_set_capture(&wrap, &config), 0);
        CHECK_EQ(vb_wrap_set_fault(&wrap, rules_records(all[i].rules), NULL, 0), 0);
        CHECK_EQ(vb_wrap_incoming(&wrap, &arrival, &facts, 7, &in), all[i].passes);
        if (all[i].passes)
            vb_wrap_received(&wrap, &in, all[i].refused, 7);
        vb_wrap_refused(&wrap, &arrival, &facts, "wrong", 8);
        vb_wrap_fini(&wrap);
        read_file();
        CHECK_EQ(got_count, 2);
        CHECK(strcmp(got[0].comment, all[i].comment) == 0);
        CHECK(strcmp(got[1].comment, "wrong") == 0 && got[1].time == EPOCH + 8);
        CHECK(got[0].flags == 1 && got[0].time == EPOCH + 7);
        CHECK(got[0].packet.udp.source_port == 5 && got[0].packet.ipv4.id == 6);
        CHECK_EQ(got[0].packet.ipv4.fragment, 0);
        vb_wire_dissect_icrc(&got[0].packet, got[0].bytes, icrc);
        CHECK_EQ(memcmp(icrc, got[0].packet.icrc, 4) == 0, i != 4);
    }
}

static void test_frames_that_are_given_as_bytes(void)
{
    struct vb_capture *capture = opened(VB_CAPTURE_BYTES_LEAST);
    char longest[500];

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (uint32_t count = 60; count < 70; count++)
        vb_wrap_capture_bytes(capture, &(struct vb_capture_bytes){payload, count, 1000},
                              count % 2 ? VB_WRAP_IN : VB_WRAP_OUT, count == 69 ? longest : NULL,
                              count);
    vb_wrap_capture_close(capture);
    read_file();
    CHECK_EQ(got_count, 10);
    for (uint32_t i = 0; i < 10; i++) {
        const uint32_t count = 60 + i < 64 ? 60 + i : 64;

        CHECK(got[i].captured == count && got[i].length == 1000);
        CHECK(memcmp(got[i].bytes, payload, count) == 0);
        CHECK_EQ(got[i].flags, i % 2 ? 1 : 2);
    }
    CHECK_EQ(strlen(got[9].comment), 319);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static int failures, failure;

static void failed(int error)
{
    ++failures;
    failure = error;
}

static void test_who_hears_of_a_failure(void)
{
    struct vb_capture *capture = opened(0);
    const struct vb_frame frame = {.piece_count = 1, .piece = {{payload, 1000}}};
    struct rlimit limit, small;

    CHECK_EQ(vb_wrap_capture_frame(capture, &frame, VB_WRAP_OUT, NULL, 0), 1);
    CHECK_EQ(vb_wrap_capture_frame(capture, &frame, VB_WRAP_OUT, NULL, 0), 2);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 2 * 4096; /* the second page just has room */
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    vb_wrap_capture_tell(capture, failed);
    for (uint32_t i = 3; i < 20; i++)
        CHECK_EQ(vb_wrap_capture_frame(capture, &frame, VB_WRAP_OUT, NULL, 0), i < 7 ? i : 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(failures == 1 && failure == -EFBIG);
    CHECK_EQ(vb_wrap_capture_lost(capture), 13);
    CHECK_EQ(vb_wrap_capture_frame(capture, &frame, VB_WRAP_OUT, NULL, 0), 7);
    vb_wrap_capture_close(capture);
    vb_wrap_capture_close(NULL);
}

static void test_problems_have_words(void)
{
    static const struct {
        int error;
        const char *words;
    } all[] = {{-EINVAL, "it is not a regular file"},
               {-EBADMSG, "it exists and is not a capture that Verbena wrote"},
               {-ETIMEDOUT, "another process keeps it locked"},
               {-ERANGE, "the number of bytes to keep is out of range"},
               {-ENOENT, "No such file or directory"}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(strcmp(vb_wrap_capture_problem(all[i].error), all[i].words) == 0);
}

static void test_how_much_may_be_kept(void)
{
    static const struct {
        uint32_t bytes;
        int error;
    } all[] = {{0, 0}, {1, -ERANGE}, {63, -ERANGE}, {64, 0}, {4352, 0}, {4353, -ERANGE}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct vb_capture_config config = {.path = FILE_NAME, .bytes = all[i].bytes};
        struct vb_capture *capture = NULL;

        CHECK_EQ(vb_wrap_capture_open(&config, &capture), all[i].error);
        vb_wrap_capture_close(capture);
    }
}

static void test_the_epoch_of_the_monotonic_clock(void)
{
    struct timespec now;
    uint64_t epoch = vb_wrap_capture_epoch_of_monotonic(), then;

    clock_gettime(CLOCK_MONOTONIC, &now);
    then = epoch + (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - then < 10000000000);
}

int main(void)
{
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)any();
    RUN(test_the_packets_of_each_message);
    RUN(test_answers_of_each_kind);
    RUN(test_the_source_port_of_a_message);
    RUN(test_a_message_without_its_bytes);
    RUN(test_notes_stand_behind_reasons);
    RUN(test_arrivals);
    RUN(test_arrivals_that_pass_rules);
    RUN(test_frames_that_are_given_as_bytes);
    RUN(test_who_hears_of_a_failure);
    RUN(test_problems_have_words);
    RUN(test_how_much_may_be_kept);
    RUN(test_the_epoch_of_the_monotonic_clock);
    unlink(FILE_NAME);
    return 0;
}
