// SPDX-License-Identifier: Apache-2.0
/*
 * Captures of links in a simulated fabric. The tap of a link (event/tap.h) calls `see` for each
 * packet at the end of the link, which writes a frame to the pcapng file: a flow's packet from its
 * headers, a program's packet from its bytes. A capture does not change the run.
 */
#include "sim/capture.h"

#include <errno.h>
#include <stdlib.h>

#include "event/tap.h"
#include "sim/attachment.h"
#include "sim/socket.h"
#include "sim/state.h"
#include "sim/tcp_frame.h"
#include "wire/icrc.h"
#include "wire/opcode.h"
#include "wire/vcrc.h"
#include "wrap/capture.h"
#include "wrap/capture_file.h"

enum {
    MTU_MAX = 4096,
    PAD_MAX = 3,
    FLOW_PORTS = 0xc000,
    FIRST_MULTICAST_LID = 0xc000,
    GRH_NEXT_BTH = 0x1b,
    ERF = 16, /* bytes */
    ERF_INFINIBAND = 21,
    ERF_VARYING_LENGTH = 4,
};

struct vb_sim_capture {
    struct vb_world_tap tap;
    struct vb_sim *sim;
    struct vb_capture *file;
    struct vb_sim_capture *next;
    uint32_t out;    /* port */
    bool infiniband; /* the link layer */
};

static const uint8_t ZEROS[MTU_MAX + PAD_MAX];

static const char *loss_text(enum vb_world_drop_reason loss)
{
    switch (loss) {
    case VB_WORLD_DROP_DAMAGED:
        return "lost here: bit errors";
    case VB_WORLD_DROP_DOWN:
        return "lost here: the link was down";
    default:
        return NULL;
    }
}

static uint32_t header_length(const struct vb_world_packet *packet)
{
    if ((packet->header[0] & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP)
        return VB_BTH + VB_CNP_RESERVED;
    return vb_opcodes[packet->header[0]].header_length;
}

/* 239.0.0.1 for group 0, and so on, as an address of IPv4 (RFC 2365). */
static void write_group(uint8_t gid[16], uint32_t group)
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    vb_wire_put32(gid + 12, 239u << 24 | (group + 1));
}

/* The addresses are IPv4, as TCP's are, since a packet is charged as one over IPv4 (host.c). */
static void capture_fill(struct vb_frame *frame, const struct vb_world_packet *packet)
{
    uint32_t pad = vb_wire_bth_read(packet->header).pad;

    /* The level as a class selector (RFC 2474), then ECN. */
    frame->traffic_class = (uint8_t)((packet->level_marks >> 4 & 7) << 5 | 2);
    frame->source_port = (uint16_t)(FLOW_PORTS | vb_wire_get24(packet->header + 5) % (1 << 14));
    vb_sim_gid_ipv4(packet->source - 1, frame->sgid);
    if (packet->level_marks & VB_WORLD_TO_GROUP)
        write_group(frame->dgid, packet->target);
    else
        vb_sim_gid_ipv4(packet->target - 1, frame->dgid);
    frame->hop_limit = packet->hops;
    vb_wrap_frame_add(frame, packet->header, header_length(packet));
    vb_wrap_frame_add(frame, ZEROS, packet->payload + pad);
}

static void fill_wire_packet(struct vb_frame *frame, const struct vb_sim_wire_packet *wire)
{
    memcpy(frame->sgid, wire->sgid, sizeof(frame->sgid));
    memcpy(frame->dgid, wire->dgid, sizeof(frame->dgid));
    frame->flow_label = wire->flow_label;
    frame->traffic_class = wire->traffic_class;
    frame->hop_limit = wire->hop_limit;
    frame->source_port = (uint16_t)(FLOW_PORTS | vb_wire_get24(wire->bytes + 5) % (1 << 14));
    vb_wrap_frame_add(frame, wire->bytes, wire->length);
}

/* ---- InfiniBand ------------------------------------------------------------------------------ */

/* Writes a GRH (IBA 8.3), before `length` bytes up to the ICRC's end. */
static void capture_write_grh(uint8_t *grh, const struct vb_frame *frame, uint32_t length)
{
    vb_wire_put32(grh, 6u << 28 | (uint32_t)frame->traffic_class << 20 | frame->flow_label);
    vb_wire_put16(grh + 4, (uint16_t)length);
    grh[6] = GRH_NEXT_BTH;
    grh[7] = frame->hop_limit;
    memcpy(grh + 8, frame->sgid, 16);
    memcpy(grh + 24, frame->dgid, 16);
}

/* Writes the LRH (IBA 7.7) of a packet of `length` bytes from the LRH to the ICRC. */
static void capture_write_lrh(uint8_t *lrh, const struct vb_world_packet *packet, bool global,
                              uint32_t length)
{
    uint32_t lane = packet->level_marks & VB_WORLD_MANAGEMENT ? 15 : packet->lane;
    bool to_group = packet->level_marks & VB_WORLD_TO_GROUP;

    lrh[0] = (uint8_t)(lane << 4);
    lrh[1] = (uint8_t)((packet->level_marks & 0xf0) | (global ? 3 : 2)); /* LNH */
    vb_wire_put16(lrh + 2, (uint16_t)(packet->target + (to_group ? FIRST_MULTICAST_LID : 0)));
    vb_wire_put16(lrh + 4, (uint16_t)(length / 4));
    vb_wire_put16(lrh + 6, (uint16_t)packet->source);
}

/* The header of a record of ERF, with no time of its own, before `length` bytes of InfiniBand. */
static void capture_write_erf(uint8_t *erf, uint32_t length)
{
    memset(erf, 0, ERF);
    erf[8] = ERF_INFINIBAND;
    erf[9] = ERF_VARYING_LENGTH;
    vb_wire_put16(erf + 10, (uint16_t)(ERF + length));
    vb_wire_put16(erf + 14, (uint16_t)length);
}

/* A packet from its LRH to its VCRC. */
static void see_infiniband(struct vb_sim_capture *capture, uint64_t ns, uint32_t port,
                           const struct vb_world_packet *packet, struct vb_frame *frame,
                           bool global, enum vb_world_drop_reason loss)
{
    uint8_t bytes[VB_CAPTURE_BYTES_MOST], *lrh = bytes + ERF, *grh = lrh + VB_LRH;
    uint8_t *bth = grh + (global ? VB_GRH : 0), *at = bth;
    struct vb_capture_bytes seen = {.bytes = bytes};
    uint32_t crc;

    for (uint32_t i = 0; i < frame->piece_count; at += frame->piece[i++].length)
        memcpy(at, frame->piece[i].bytes, frame->piece[i].length);
    bth[4] = packet->header[4]; /* FECN, which switches set, and BECN */
    capture_write_lrh(lrh, packet, global, (uint32_t)(at + VB_ICRC - lrh));
    if (global)
        capture_write_grh(grh, frame, (uint32_t)(at + VB_ICRC - bth));
    crc = vb_wire_icrc_transport(vb_wire_icrc_start_lrh(lrh, global ? grh : NULL), bth,
                                 (uint32_t)(at - bth));
    vb_wire_icrc_write(at, crc ^ frame->icrc_flip);
    at += VB_ICRC;
    crc = vb_wire_vcrc(lrh, (size_t)(at - lrh));
    *at++ = (uint8_t)crc; /* the low byte first */
    *at++ = (uint8_t)(crc >> 8);
    capture_write_erf(bytes, (uint32_t)(at - lrh));
    seen.count = seen.length = (uint32_t)(at - bytes);
    vb_wrap_capture_bytes(capture->file, &seen, port == capture->out ? VB_WRAP_OUT : VB_WRAP_IN,
                          loss_text(loss), ns);
}

/* The GIDs of a flow's packet to a group, which has a GRH. */
static void capture_fill_gids(struct vb_frame *frame, const struct vb_sim *sim,
                              const struct vb_world_packet *packet)
{
    vb_sim_gid_link_local(vb_world_host_of(sim->world, packet->source), frame->sgid);
    vb_sim_write_group(frame->dgid, packet->target);
}

/* ---- TCP ------------------------------------------------------------------------------------- */

static void see_tcp(const struct vb_sim_capture *capture, uint64_t ns, uint32_t port,
                    const struct vb_world_packet *packet, enum vb_world_drop_reason loss)
{
    const struct vb_sim_flow *flow = &capture->sim->flow[vb_sim_tcp_flow(packet)];
    const struct vb_tcp_config *config = &capture->sim->config.tcp;
    struct vb_sim_tcp_stream stream = {
        .bytes = flow->bytes,
        .window = config->window,
        .mss = config->mss,
        .has_ecn = config->ecn || flow->opcode == VB_TCP_DCTCP,
        .damage = loss == VB_WORLD_DROP_DAMAGED,
    };
    uint8_t bytes[VB_SIM_TCP_FRONT + MTU_MAX] = {0};
    struct vb_capture_bytes frame = {.bytes = bytes};

    frame.length = vb_sim_tcp_write_front(bytes, &stream, packet) + packet->payload;
    if (frame.length < VB_SIM_TCP_LEAST)
        frame.length = VB_SIM_TCP_LEAST;
    frame.count = frame.length;
    vb_wrap_capture_bytes(capture->file, &frame, port == capture->out ? VB_WRAP_OUT : VB_WRAP_IN,
                          loss_text(loss), ns);
}

static void see(void *context, uint64_t now, uint32_t port, const struct vb_world_packet *packet,
                enum vb_world_drop_reason loss)
{
    struct vb_sim_capture *capture = context;
    const struct vb_sim *sim = capture->sim;
    const struct vb_sim_wire_packet *wire =
        packet->flags & VB_WORLD_HAS_BYTES ? sim->wire_packet[packet - sim->world->packets.packet]
                                           : NULL;
    struct vb_frame frame = {.icrc_flip = loss == VB_WORLD_DROP_DAMAGED};

    if (packet->flags & VB_WORLD_TCP) {
        if (vb_sim_socket_has_packet(packet))
            return; /* packets of sockets are not captured yet */
        see_tcp(capture, now / 1000, port, packet, loss);
        return;
    }
    if (wire)
        fill_wire_packet(&frame, wire);
    else
        capture_fill(&frame, packet);
    if (capture->infiniband) {
        if (!wire)
            capture_fill_gids(&frame, sim, packet);
        see_infiniband(capture, now / 1000, port, packet, &frame,
                       wire ? wire->global : packet->level_marks & VB_WORLD_TO_GROUP, loss);
        return;
    }
    if (packet->level_marks & VB_WORLD_CE)
        frame.traffic_class |= 3;
    vb_wrap_capture_frame(capture->file, &frame, port == capture->out ? VB_WRAP_OUT : VB_WRAP_IN,
                          loss_text(loss), now / 1000);
}

static int capture_open_file(const char *path, uint32_t bytes, bool infiniband,
                             struct vb_capture **file)
{
    const struct vb_capture_config config = {.path = path, .bytes = bytes};
    int error = vb_wrap_capture_file_renew(path, infiniband ? VB_PCAPNG_ERF : VB_PCAPNG_ETHERNET);

    return error ? error : vb_wrap_capture_open(&config, file);
}

int vb_sim_capture(struct vb_sim *sim, uint32_t node, uint32_t port, const char *path,
                   uint32_t bytes, bool infiniband)
{
    struct vb_sim_capture *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->sim = sim;
    made->tap = (struct vb_world_tap){see, made};
    made->infiniband = infiniband;
    error = capture_open_file(path, bytes, infiniband, &made->file);
    if (!error)
        error = vb_world_add_tap(sim->world, node, port, &made->tap);
    if (error) {
        vb_wrap_capture_close(made->file);
        free(made);
        return error;
    }
    made->out = sim->world->node[node].port[port];
    made->next = sim->captures;
    sim->captures = made;
    return 0;
}

uint64_t vb_sim_captures_lost(const struct vb_sim *sim)
{
    uint64_t lost = 0;

    for (const struct vb_sim_capture *at = sim->captures; at; at = at->next)
        lost += vb_wrap_capture_lost(at->file);
    return lost;
}

void vb_sim_captures_free(struct vb_sim *sim)
{
    while (sim->captures) {
        struct vb_sim_capture *first = sim->captures;

        sim->captures = first->next;
        vb_wrap_capture_close(first->file);
        free(first);
    }
}
