// SPDX-License-Identifier: Apache-2.0
#include "port/sim/capture.h"

#include <errno.h>
#include <stdlib.h>

#include "event/tap.h"
#include "port/sim/state.h"
#include "port/wrap/capture.h"
#include "port/wrap/capture_file.h"
#include "wire/opcode.h"

enum { MTU_MAX = 4096, PAD_MAX = 3, FLOW_PORTS = 0xc000 };

struct vb_sim_capture {
    struct vb_sim_tap tap;
    struct vb_sim *sim;
    struct vb_capture *file;
    struct vb_sim_capture *next;
    uint32_t out; /* port */
};

static const uint8_t ZEROS[MTU_MAX + PAD_MAX];

static const char *fate_text(enum vb_sim_drop fate)
{
    switch (fate) {
    case VB_SIM_DROP_DAMAGED:
        return "lost here: bit errors";
    case VB_SIM_DROP_DOWN:
        return "lost here: the link was down";
    default:
        return NULL;
    }
}

static uint32_t header_length(const struct vb_sim_packet *packet)
{
    if ((packet->header[0] & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP)
        return VB_BTH + VB_CNP_RESERVED;
    return vb_opcodes[packet->header[0]].header_length;
}

/* `header`: room for the packet's as it is on a wire, for as long as the frame lasts. */
static void fill(struct vb_frame *frame, const struct vb_sim_packet *packet,
                 uint8_t header[VB_SIM_HEADER])
{
    uint32_t pad = vb_bth_read(packet->header).pad;

    memcpy(header, packet->header, VB_SIM_HEADER);
    header[VB_SIM_FLAGS_AT] &= (uint8_t)~(VB_SIM_PROMISED | VB_SIM_FLOODED | VB_SIM_AROUND);
    header[VB_SIM_HOPS_AT] &= (uint8_t)~VB_SIM_HOPS_MAX;

    /* The level as a class selector (RFC 2474), then ECN. */
    frame->traffic_class = (uint8_t)((packet->level_marks >> 4 & 7) << 5 | 2);
    frame->source_port = (uint16_t)(FLOW_PORTS | vb_get24(packet->header + 5) % (1 << 14));
    vb_sim_write_gid(frame->sgid, packet->source);
    if (packet->level_marks & VB_SIM_TO_GROUP)
        vb_sim_write_group(frame->dgid, packet->target);
    else
        vb_sim_write_gid(frame->dgid, packet->target);
    frame->hop_limit = packet->header[VB_SIM_HOPS_AT] & VB_SIM_HOPS_MAX;
    vb_frame_add(frame, header, header_length(packet));
    vb_frame_add(frame, ZEROS, packet->payload + pad);
}

/* A program's packet has all of its bytes. */
static void fill_letter(struct vb_frame *frame, const struct vb_letter *letter)
{
    memcpy(frame->sgid, letter->sgid, sizeof(frame->sgid));
    memcpy(frame->dgid, letter->dgid, sizeof(frame->dgid));
    frame->flow_label = letter->flow_label;
    frame->traffic_class = letter->traffic_class;
    frame->hop_limit = letter->hop_limit;
    frame->source_port = (uint16_t)(FLOW_PORTS | vb_get24(letter->bytes + 5) % (1 << 14));
    vb_frame_add(frame, letter->bytes, letter->length);
}

static void see(void *context, uint32_t port, const struct vb_sim_packet *packet,
                enum vb_sim_drop fate)
{
    struct vb_sim_capture *capture = context;
    const struct vb_sim *sim = capture->sim;
    struct vb_frame frame = {.icrc_flip = fate == VB_SIM_DROP_DAMAGED};
    uint8_t header[VB_SIM_HEADER];

    if (packet->header[VB_SIM_FLAGS_AT] & VB_SIM_TCP)
        return; /* a frame here is RoCE */
    if (packet->header[VB_SIM_FLAGS_AT] & VB_SIM_LETTER)
        fill_letter(&frame, sim->letter[packet - sim->world->pool.packet]);
    else
        fill(&frame, packet, header);
    if (packet->level_marks & VB_SIM_CE)
        frame.traffic_class |= 3;
    vb_capture_frame(capture->file, &frame, port == capture->out ? VB_WRAP_OUT : VB_WRAP_IN,
                     fate_text(fate), vb_sim_ns(sim));
}

static int open_file(const char *path, uint32_t bytes, struct vb_capture **file)
{
    const struct vb_capture_config config = {.path = path, .bytes = bytes};
    int error = vb_capture_file_renew(path);

    return error ? error : vb_capture_open(&config, file);
}

int vb_sim_capture(struct vb_sim *sim, uint32_t node, uint32_t port, const char *path,
                   uint32_t bytes)
{
    struct vb_sim_capture *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->sim = sim;
    made->tap = (struct vb_sim_tap){see, made};
    error = open_file(path, bytes, &made->file);
    if (!error)
        error = vb_world_tap(sim->world, node, port, &made->tap);
    if (error) {
        vb_capture_close(made->file);
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
        lost += vb_capture_lost(at->file);
    return lost;
}

void vb_sim_captures_free(struct vb_sim *sim)
{
    while (sim->captures) {
        struct vb_sim_capture *first = sim->captures;

        sim->captures = first->next;
        vb_capture_close(first->file);
        free(first);
    }
}
