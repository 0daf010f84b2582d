// SPDX-License-Identifier: Apache-2.0
/*
 * Faults and a capture in front of a carrier by packets (roce, or a simulated adapter). The carrier
 * calls these, from any thread, also without the engine's lock (datagrams):
 *
 *   on the way out                             on the way in
 *
 *   while (vb_wrap_due_out(wrap, now, &out))   while (vb_wrap_due_in(wrap, now, &in))
 *       send it                                    hand it to the engine
 *   if (vb_engine_next(engine, &packet, now))  if (vb_wrap_incoming(wrap, &arrival, &frame, now,
 *       if (vb_wrap_outgoing(wrap, &packet,                         &in))
 *                            now, &out))           hand it to the engine
 *           send it
 *
 * To send means: out.packet, with out.icrc_flip; then vb_wrap_sent. To hand over means: in.arrival;
 * then vb_wrap_received. What `out` and `in` point to stays until those calls. If out.held is set,
 * the bytes must have left, or be copied, before vb_wrap_sent. If not, they are the engine's, and
 * vb_wrap_sent, which captures them, comes before the engine's next packet.
 *
 * A caller without the carrier's lock looks at vb_wrap_deadline afterwards, and wakes the carrier's
 * thread if it is not UINT64_MAX.
 *
 * Where nothing is configured each of them is one branch that is always taken.
 */
#ifndef VB_WRAP_WRAP_H
#define VB_WRAP_WRAP_H

#include <pthread.h>

#include "lock/mutex.h"
#include "wrap/capture.h"

struct vb_held;
struct vb_wrap_faults;

struct vb_wrap {
    _Atomic bool active; /* false: nothing is configured, and packets pass untouched */
    struct vb_capture *capture;
    struct vb_mutex mutex;          /* protects what follows */
    struct vb_wrap_faults *current; /* the rules in force, with what they hold; NULL: none */
    struct vb_wrap_faults
        *faults; /* a list: the rules in force, and earlier ones that still hold packets */
};

struct vb_wrap_out {
    const struct vb_packet *packet;
    uint32_t icrc_flip; /* XORed to the ICRC as a number; its lowest byte is sent first */
    struct vb_held *held;
};

struct vb_wrap_in {
    const struct vb_arrival *arrival;
    struct vb_wrap_frame frame;
    struct vb_held *held;
};

void vb_wrap_init(struct vb_wrap *wrap);
/* No other thread may be in a call. */
void vb_wrap_fini(struct vb_wrap *wrap);

/* Opens a capture, before the first packet. Errors as vb_wrap_capture_open. */
int vb_wrap_set_capture(struct vb_wrap *wrap, const struct vb_capture_config *config);
/*
 * Replaces the rules (vb_wrap_fault_read), at any time; NULL or "": no rules. Packets that are held
 * become due at once: the caller wakes the thread that waits for vb_wrap_deadline. -EINVAL: `error`
 * says what is wrong, and the present rules stay. -ENOMEM.
 */
int vb_wrap_set_fault(struct vb_wrap *wrap, const char *records, char *error, size_t size);
/* A line for each rule: its words, how often it matched and acted. Length as snprintf. */
int vb_wrap_fault_text(struct vb_wrap *wrap, char *text, size_t size);

bool vb_wrap_outgoing_active(struct vb_wrap *wrap, const struct vb_packet *packet, uint64_t now,
                             struct vb_wrap_out *out);
bool vb_wrap_due_out_active(struct vb_wrap *wrap, uint64_t now, struct vb_wrap_out *out);
void vb_wrap_sent_active(struct vb_wrap *wrap, const struct vb_wrap_out *out, uint16_t source_port,
                         uint16_t ip_id, uint64_t now);
bool vb_wrap_incoming_active(struct vb_wrap *wrap, const struct vb_arrival *arrival,
                             const struct vb_wrap_frame *frame, uint64_t now,
                             struct vb_wrap_in *in);
bool vb_wrap_due_in_active(struct vb_wrap *wrap, uint64_t now, struct vb_wrap_in *in);
void vb_wrap_received_active(struct vb_wrap *wrap, const struct vb_wrap_in *in, const char *refused,
                             uint64_t now);
uint64_t vb_wrap_deadline_active(struct vb_wrap *wrap);
uint64_t vb_wrap_last_out_active(struct vb_wrap *wrap);

static inline bool vb_wrap_is_active(const struct vb_wrap *wrap)
{
    return __builtin_expect(atomic_load_explicit(&wrap->active, memory_order_relaxed), 0);
}

/* The engine gave a packet. True: `out` is to be sent now; false: it is dropped or held. */
static inline bool vb_wrap_outgoing(struct vb_wrap *wrap, const struct vb_packet *packet,
                                    uint64_t now, struct vb_wrap_out *out)
{
    if (vb_wrap_is_active(wrap))
        return vb_wrap_outgoing_active(wrap, packet, now, out);
    *out = (struct vb_wrap_out){.packet = packet};
    return true;
}

/* True: `out` is a packet that was held, or a copy, and is to be sent now. */
static inline bool vb_wrap_due_out(struct vb_wrap *wrap, uint64_t now, struct vb_wrap_out *out)
{
    return vb_wrap_is_active(wrap) && vb_wrap_due_out_active(wrap, now, out);
}

/*
 * The packet has left, or its bytes are no longer needed. Source port and identification are those
 * it left with.
 */
static inline void vb_wrap_sent(struct vb_wrap *wrap, const struct vb_wrap_out *out,
                                uint16_t source_port, uint16_t ip_id, uint64_t now)
{
    if (vb_wrap_is_active(wrap))
        vb_wrap_sent_active(wrap, out, source_port, ip_id, now);
}

/*
 * A datagram came whose ICRC holds. True: `in` is to be handed to the engine now; false: it is
 * dropped or held.
 */
static inline bool vb_wrap_incoming(struct vb_wrap *wrap, const struct vb_arrival *arrival,
                                    const struct vb_wrap_frame *frame, uint64_t now,
                                    struct vb_wrap_in *in)
{
    if (vb_wrap_is_active(wrap))
        return vb_wrap_incoming_active(wrap, arrival, frame, now, in);
    *in = (struct vb_wrap_in){.arrival = arrival};
    return true;
}

static inline bool vb_wrap_due_in(struct vb_wrap *wrap, uint64_t now, struct vb_wrap_in *in)
{
    return vb_wrap_is_active(wrap) && vb_wrap_due_in_active(wrap, now, in);
}

/* `refused`: why the packet was dropped on this side ("dropped: unknown QP"), or NULL. */
static inline void vb_wrap_received(struct vb_wrap *wrap, const struct vb_wrap_in *in,
                                    const char *refused, uint64_t now)
{
    if (vb_wrap_is_active(wrap))
        vb_wrap_received_active(wrap, in, refused, now);
}

/* Captures a datagram that the carrier itself refused, as its ICRC is wrong. */
void vb_wrap_refused(struct vb_wrap *wrap, const struct vb_arrival *arrival,
                     const struct vb_wrap_frame *frame, const char *why, uint64_t now);

/* When a held packet is due, either way; UINT64_MAX: none is held. */
static inline uint64_t vb_wrap_deadline(struct vb_wrap *wrap)
{
    return vb_wrap_is_active(wrap) ? vb_wrap_deadline_active(wrap) : UINT64_MAX;
}

/* When the last of the packets that are held on their way out is due; 0: none is held. */
static inline uint64_t vb_wrap_last_out(struct vb_wrap *wrap)
{
    return vb_wrap_is_active(wrap) ? vb_wrap_last_out_active(wrap) : 0;
}

/* Packets that are held, either way, become due at once. */
void vb_wrap_release(struct vb_wrap *wrap);

#endif
