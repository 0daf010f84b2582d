// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of wrap.h for the case that faults or a capture are configured. Carriers call them
 * from any thread. `mutex` protects the rules and what they hold.
 */
#include "wrap/wrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrap/fault.h"
#include "wrap/held.h"

/*
 * Rules and the packets that they hold. Rules that were replaced stay until their last packet is
 * gone.
 */
struct vb_wrap_faults {
    struct vb_wrap_faults *next;
    struct vb_fault *fault;
    struct vb_held_pool *pool;
};

/* A packet to which the rules are applied, in either direction. */
struct subject {
    const struct vb_packet *packet;   /* set on the way out */
    const struct vb_arrival *arrival; /* set on the way in, with `frame` */
    const struct vb_wrap_frame *frame;
    uint32_t qp_num;
    uint64_t now;
};

void vb_wrap_init(struct vb_wrap *wrap)
{
    memset(wrap, 0, sizeof(*wrap));
    vb_lock_init(&wrap->mutex, VB_RANK_WRAP);
}

static void destroy_faults(struct vb_wrap_faults *faults)
{
    vb_wrap_fault_destroy(faults->fault);
    vb_wrap_held_destroy(faults->pool);
    free(faults);
}

void vb_wrap_fini(struct vb_wrap *wrap)
{
    struct vb_wrap_faults *next;

    for (struct vb_wrap_faults *faults = wrap->faults; faults; faults = next) {
        next = faults->next;
        destroy_faults(faults);
    }
    vb_wrap_capture_close(wrap->capture);
    vb_lock_destroy(&wrap->mutex);
}

static void update_active(struct vb_wrap *wrap)
{
    atomic_store_explicit(&wrap->active, wrap->capture || wrap->faults, memory_order_relaxed);
}

int vb_wrap_set_capture(struct vb_wrap *wrap, const struct vb_capture_config *config)
{
    int error = vb_wrap_capture_open(config, &wrap->capture);

    vb_lock_take(&wrap->mutex);
    update_active(wrap);
    vb_lock_release(&wrap->mutex);
    return error;
}

/* ---- rules ---- */

static int create_faults(const struct vb_fault_rules *rules, struct vb_wrap_faults **faults)
{
    struct vb_wrap_faults *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    if (vb_wrap_fault_create(rules, &made->fault) ||
        vb_wrap_held_create(rules->hold, &made->pool)) {
        destroy_faults(made);
        return -ENOMEM;
    }
    *faults = made;
    return 0;
}

/* Frees rules that have been replaced and hold nothing any more. */
static void sweep(struct vb_wrap *wrap)
{
    for (struct vb_wrap_faults **at = &wrap->faults; *at;) {
        struct vb_wrap_faults *faults = *at;

        if (faults == wrap->current || !vb_wrap_held_is_empty(faults->pool)) {
            at = &faults->next;
        } else {
            *at = faults->next;
            destroy_faults(faults);
        }
    }
    update_active(wrap);
}

int vb_wrap_set_fault(struct vb_wrap *wrap, const char *records, char *error, size_t size)
{
    struct vb_wrap_faults *made = NULL;
    struct vb_fault_rules rules;
    int result = vb_wrap_fault_read(records, &rules, error, size);

    if (!result && rules.count)
        result = create_faults(&rules, &made);
    if (result)
        return result;
    vb_lock_take(&wrap->mutex);
    if (wrap->current)
        vb_wrap_held_release(wrap->current->pool);
    wrap->current = made;
    if (made) {
        made->next = wrap->faults;
        wrap->faults = made;
    }
    sweep(wrap);
    vb_lock_release(&wrap->mutex);
    return 0;
}

int vb_wrap_fault_text(struct vb_wrap *wrap, char *text, size_t size)
{
    int length = 0;

    if (size)
        *text = '\0';
    vb_lock_take(&wrap->mutex);
    if (wrap->current)
        length = vb_wrap_rules_text(wrap->current->fault, text, size);
    vb_lock_release(&wrap->mutex);
    return length;
}

/* ---- what becomes of a packet ---- */

static void capture_subject(struct vb_wrap *wrap, const struct subject *subject, const char *note)
{
    struct vb_wrap_frame frame = {0};

    if (subject->arrival) {
        vb_wrap_capture_arrival(wrap->capture, subject->arrival, subject->frame, 0, note,
                                subject->now);
        return;
    }
    frame.source_port = subject->packet->path->source_port;
    vb_wrap_capture_packet(wrap->capture, subject->packet, &frame, 0, note, subject->now);
}

static struct vb_fault_view view_of(const struct subject *subject)
{
    const struct vb_packet *packet = subject->packet;

    if (packet)
        return (struct vb_fault_view){VB_WRAP_OUT, subject->qp_num, packet->header,
                                      packet->header_length};
    return (struct vb_fault_view){VB_WRAP_IN, subject->qp_num, subject->arrival->bytes,
                                  subject->arrival->length};
}

static bool copy_subject(const struct subject *subject, struct vb_held *held)
{
    if (subject->packet)
        return vb_wrap_held_copy_packet(held, subject->packet);
    held->source_port = subject->frame->source_port;
    held->ip_id = subject->frame->ip_id;
    held->may_fragment = subject->frame->may_fragment;
    return vb_wrap_held_copy_arrival(held, subject->arrival);
}

/* The offset of a random byte, but not of BTH byte 4, which the ICRC does not cover. */
static uint32_t any_offset(const struct vb_held *held, uint64_t random)
{
    uint32_t others = held->length > 4 ? held->length - 1 : held->length;
    uint32_t offset = others ? (uint32_t)(random % others) : 0;

    return offset < 4 ? offset : offset + 1;
}

static void change_bytes(struct vb_held *held, const struct vb_fault_effect *effect)
{
    uint32_t length = held->length + held->virtual_payload;

    if (effect->corrupt)
        vb_wrap_held_corrupt(
            held, effect->has_offset ? effect->offset : any_offset(held, effect->random >> 16),
            (unsigned)effect->random & 7, effect->corrupt_icrc_good);
    if (effect->truncate && length > VB_BTH)
        vb_wrap_held_truncate(held,
                              effect->has_length
                                  ? effect->length
                                  : VB_BTH + (uint32_t)((effect->random >> 8) % (length - VB_BTH)),
                              effect->truncate_icrc_good);
}

static struct vb_held *copy_and_change(struct vb_wrap_faults *faults, const struct subject *subject,
                                       const struct vb_fault_effect *effect)
{
    struct vb_held *held = vb_wrap_held_take(faults->pool);

    if (held && !copy_subject(subject, held)) {
        vb_wrap_held_give_back(held);
        held = NULL;
    }
    if (!held) {
        vb_wrap_fault_no_room(faults->fault);
        return NULL;
    }
    change_bytes(held, effect);
    vb_wrap_fault_note(faults->fault, effect->acted, held->note, sizeof(held->note));
    return held;
}

static void wrap_hold(struct vb_held *held, const struct vb_fault_effect *effect, uint64_t now)
{
    uint64_t due = now + effect->delay + (effect->by ? effect->within : 0);

    vb_wrap_held_push(held, due, effect->by);
}

static void push_copies(struct vb_wrap_faults *faults, const struct vb_held *from, uint32_t copies,
                        const struct vb_fault_effect *effect, uint64_t now)
{
    for (uint32_t i = 0; i < copies; ++i) {
        struct vb_held *copy = vb_wrap_held_take(faults->pool);

        if (!copy) {
            vb_wrap_fault_no_room(faults->fault);
            return;
        }
        vb_wrap_held_copy(copy, from);
        wrap_hold(copy, effect, now);
    }
}

enum verdict { PASS, PASS_HELD, GONE };

static struct vb_wrap_frame wrap_frame_of(const struct vb_held *held)
{
    return (struct vb_wrap_frame){held->source_port, held->ip_id, held->may_fragment, NULL};
}

/* A rule made the ICRC of an arrival wrong: it is dropped, as by an adapter. */
static enum verdict refuse_broken(struct vb_wrap *wrap, struct vb_held *held, uint64_t now)
{
    struct vb_wrap_frame frame = wrap_frame_of(held);

    if (wrap->capture)
        vb_wrap_capture_arrival(wrap->capture, vb_wrap_held_arrival(held), &frame, held->icrc_flip,
                                held->note, now);
    vb_wrap_held_give_back(held);
    return GONE;
}

static enum verdict apply_effect(struct vb_wrap *wrap, const struct subject *subject,
                                 const struct vb_fault_effect *effect, struct vb_held **held)
{
    struct vb_wrap_faults *faults = wrap->current;
    bool later = effect->delay || effect->by;
    bool changed = effect->corrupt || effect->truncate;

    *held = copy_and_change(faults, subject, effect);
    if (!*held)
        return PASS;
    if (!subject->packet && (*held)->icrc_flip)
        return refuse_broken(wrap, *held, subject->now);
    if (!later && !changed) { /* the packet itself passes, and `held` is its first copy */
        push_copies(faults, *held, effect->copies - 1, effect, subject->now);
        wrap_hold(*held, effect, subject->now);
        return PASS;
    }
    push_copies(faults, *held, effect->copies, effect, subject->now);
    if (!later)
        return PASS_HELD;
    wrap_hold(*held, effect, subject->now);
    return GONE;
}

static void note_drop(struct vb_wrap *wrap, const struct subject *subject,
                      const struct vb_fault_effect *effect)
{
    char note[VB_NOTE];

    if (!wrap->capture)
        return;
    vb_wrap_fault_note(wrap->current->fault, effect->acted, note, sizeof(note));
    capture_subject(wrap, subject, note);
}

static enum verdict apply_faults(struct vb_wrap *wrap, const struct subject *subject,
                                 struct vb_held **held)
{
    struct vb_fault_view view = view_of(subject);
    struct vb_fault_effect effect;

    if (!wrap->current)
        return PASS;
    vb_wrap_held_passed(wrap->current->pool, view.direction, view.qp_num);
    if (!vb_wrap_fault_apply(wrap->current->fault, &view, &effect))
        return PASS;
    if (!effect.drop)
        return apply_effect(wrap, subject, &effect, held);
    note_drop(wrap, subject, &effect);
    return GONE;
}

static enum verdict apply_faults_locked(struct vb_wrap *wrap, const struct subject *subject,
                                        struct vb_held **held)
{
    enum verdict verdict;

    *held = NULL;
    vb_lock_take(&wrap->mutex);
    verdict = apply_faults(wrap, subject, held);
    vb_lock_release(&wrap->mutex);
    return verdict;
}

static struct vb_held *pop(struct vb_wrap *wrap, enum vb_wrap_direction direction, uint64_t now)
{
    struct vb_held *held = NULL;

    vb_lock_take(&wrap->mutex);
    for (struct vb_wrap_faults *faults = wrap->faults; faults && !held; faults = faults->next)
        held = vb_wrap_held_pop(faults->pool, direction, now);
    vb_lock_release(&wrap->mutex);
    return held;
}

static void wrap_give_back(struct vb_wrap *wrap, struct vb_held *held)
{
    if (!held)
        return;
    vb_lock_take(&wrap->mutex);
    vb_wrap_held_give_back(held);
    sweep(wrap);
    vb_lock_release(&wrap->mutex);
}

uint64_t vb_wrap_deadline_active(struct vb_wrap *wrap)
{
    uint64_t deadline = UINT64_MAX;

    vb_lock_take(&wrap->mutex);
    for (struct vb_wrap_faults *faults = wrap->faults; faults; faults = faults->next) {
        uint64_t next = vb_wrap_held_deadline(faults->pool);

        deadline = next < deadline ? next : deadline;
    }
    vb_lock_release(&wrap->mutex);
    return deadline;
}

uint64_t vb_wrap_last_out_active(struct vb_wrap *wrap)
{
    uint64_t last = 0;

    vb_lock_take(&wrap->mutex);
    for (struct vb_wrap_faults *faults = wrap->faults; faults; faults = faults->next) {
        uint64_t of_these = vb_wrap_held_last(faults->pool, VB_WRAP_OUT);

        last = of_these > last ? of_these : last;
    }
    vb_lock_release(&wrap->mutex);
    return last;
}

void vb_wrap_release(struct vb_wrap *wrap)
{
    vb_lock_take(&wrap->mutex);
    for (struct vb_wrap_faults *faults = wrap->faults; faults; faults = faults->next)
        vb_wrap_held_release(faults->pool);
    vb_lock_release(&wrap->mutex);
}

/* ---- on the way out ---- */

static void fill_out(struct vb_held *held, struct vb_wrap_out *out)
{
    *out = (struct vb_wrap_out){vb_wrap_held_packet(held), held->icrc_flip, held};
}

bool vb_wrap_outgoing_active(struct vb_wrap *wrap, const struct vb_packet *packet, uint64_t now,
                             struct vb_wrap_out *out)
{
    struct subject subject = {.packet = packet, .qp_num = packet->qp_num, .now = now};
    struct vb_held *held;

    switch (apply_faults_locked(wrap, &subject, &held)) {
    case PASS:
        *out = (struct vb_wrap_out){.packet = packet};
        return true;
    case PASS_HELD:
        fill_out(held, out);
        return true;
    default:
        return false;
    }
}

bool vb_wrap_due_out_active(struct vb_wrap *wrap, uint64_t now, struct vb_wrap_out *out)
{
    struct vb_held *held = pop(wrap, VB_WRAP_OUT, now);

    if (held)
        fill_out(held, out);
    return held;
}

void vb_wrap_sent_active(struct vb_wrap *wrap, const struct vb_wrap_out *out, uint16_t source_port,
                         uint16_t ip_id, uint64_t now)
{
    struct vb_wrap_frame frame = {.source_port = source_port, .ip_id = ip_id};

    if (wrap->capture) {
        struct vb_packet packet = *out->packet;

        packet.header[VB_BTH_SEGMENT_AT] ^= ip_id & VB_BTH_SEGMENT; /* roce/ids.h */
        vb_wrap_capture_packet(wrap->capture, &packet, &frame, out->icrc_flip,
                               out->held ? out->held->note : NULL, now);
    }
    wrap_give_back(wrap, out->held);
}

/* ---- on the way in ---- */

static void fill_in(struct vb_held *held, struct vb_wrap_in *in)
{
    *in = (struct vb_wrap_in){vb_wrap_held_arrival(held), wrap_frame_of(held), held};
}

bool vb_wrap_incoming_active(struct vb_wrap *wrap, const struct vb_arrival *arrival,
                             const struct vb_wrap_frame *frame, uint64_t now, struct vb_wrap_in *in)
{
    struct subject subject = {.arrival = arrival, .frame = frame, .now = now};
    struct vb_held *held;

    if (arrival->length >= VB_BTH)
        subject.qp_num = vb_wire_bth_read(arrival->bytes).dest_qp;
    switch (apply_faults_locked(wrap, &subject, &held)) {
    case PASS:
        *in = (struct vb_wrap_in){arrival, *frame, NULL};
        return true;
    case PASS_HELD:
        fill_in(held, in);
        return true;
    default:
        return false;
    }
}

bool vb_wrap_due_in_active(struct vb_wrap *wrap, uint64_t now, struct vb_wrap_in *in)
{
    struct vb_held *held = pop(wrap, VB_WRAP_IN, now);

    if (held)
        fill_in(held, in);
    return held;
}

void vb_wrap_received_active(struct vb_wrap *wrap, const struct vb_wrap_in *in, const char *refused,
                             uint64_t now)
{
    char comment[2 * VB_NOTE];
    const char *note = in->held ? in->held->note : "";

    if (wrap->capture) {
        snprintf(comment, sizeof(comment), "%s%s%s", note, *note && refused ? "; " : "",
                 refused ? refused : "");
        vb_wrap_capture_arrival(wrap->capture, in->arrival, &in->frame, 0, comment, now);
    }
    wrap_give_back(wrap, in->held);
}

void vb_wrap_refused(struct vb_wrap *wrap, const struct vb_arrival *arrival,
                     const struct vb_wrap_frame *frame, const char *why, uint64_t now)
{
    if (vb_wrap_is_active(wrap) && wrap->capture)
        vb_wrap_capture_arrival(wrap->capture, arrival, frame, 0, why, now);
}
