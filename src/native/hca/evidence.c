// SPDX-License-Identifier: Apache-2.0
#include "hca/evidence.h"

#include <string.h>

#include "hca/sentences.h"
#include "hca/silence.h"

uint32_t vb_evidence_put(const struct vb_view *view, const struct vb_evidence *evidence)
{
    uint32_t id = atomic_fetch_add(&view->header->evidence_next, 1) + 1;
    struct vb_evidence *slot;

    if (id == 0) /* 0 means none: the counter wrapped */
        id = atomic_fetch_add(&view->header->evidence_next, 1) + 1;
    slot = &view->evidence[id % VB_EVIDENCE_RECORDS];
    atomic_store(&slot->id, 0);
    memcpy((char *)slot + sizeof(slot->id), (const char *)evidence + sizeof(slot->id),
           sizeof(*slot) - sizeof(slot->id));
    atomic_store_explicit(&slot->id, id, memory_order_release);
    return id;
}

static bool is_told_by_silence(const struct vb_evidence *e)
{
    return e->check == VB_CHECK_NO_ANSWER || e->check == VB_CHECK_SEQUENCE_RETRIES ||
           e->check == VB_CHECK_OTHER_BUILD;
}

static void say_check(struct vb_text *text, const struct vb_evidence *e)
{
    if (is_told_by_silence(e))
        vb_silence_say(text, e);
    else
        vb_sentence_say(text, e->check, e);
}

/* What usually is behind it, and what to try. */
static void say_advice(struct vb_text *text, const struct vb_evidence *e)
{
    if (is_told_by_silence(e))
        vb_silence_advise(text, e);
    else
        vb_sentence_say(text, e->check | VB_SENTENCE_ADVICE, e);
}

static void say_flushed(struct vb_text *text, const struct vb_view *view,
                        const struct vb_evidence *e)
{
    struct vb_evidence first;

    say_check(text, e);
    if (e->count == VB_FLUSH_FAILED && vb_evidence_get(view, e->key, &first)) {
        vb_text_add(text, "; what failed first: ");
        say_check(text, &first);
        say_advice(text, &first);
    } else if (e->count != VB_FLUSH_PROGRAM) {
        vb_text_add(text, ": the first completion with another status, or an asynchronous event, "
                          "says why");
    }
}

static void say_numbers(struct vb_text *text, const struct vb_evidence *e)
{
    if (e->check == VB_CHECK_FLUSHED)
        vb_sentence_say(text, VB_SENTENCE_NUMBERS_FLUSHED, e);
    else if (e->next_state)
        vb_sentence_say(text, VB_SENTENCE_NUMBERS, e);
}

bool vb_evidence_get(const struct vb_view *view, uint32_t id, struct vb_evidence *evidence)
{
    const struct vb_evidence *slot = &view->evidence[id % VB_EVIDENCE_RECORDS];

    if (id == 0 || atomic_load_explicit(&slot->id, memory_order_acquire) != id)
        return false;
    memcpy(evidence, slot, sizeof(*evidence));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&slot->id, memory_order_relaxed) == id;
}

bool vb_evidence_of_refusal(const struct vb_view *responder, const struct vb_evidence *refused,
                            struct vb_evidence *evidence)
{
    uint32_t newest = atomic_load(&responder->header->evidence_next);

    for (uint32_t i = 0; i < VB_EVIDENCE_RECORDS; ++i)
        if (vb_evidence_get(responder, newest - i, evidence) &&
            evidence->side == VB_SIDE_RESPONDER && evidence->qp_num == refused->qp_num &&
            evidence->peer_qp_num == refused->peer_qp_num && evidence->psn == refused->psn)
            return true;
    return false;
}

int vb_evidence_say(const struct vb_view *view, const struct vb_evidence *evidence,
                    const struct vb_evidence *responder, char *out, size_t size)
{
    struct vb_text text = {.at = out, .left = size};
    const struct vb_evidence *about = responder ? responder : evidence;

    if (evidence->check == VB_CHECK_FLUSHED)
        say_flushed(&text, view, evidence);
    else
        say_check(&text, evidence);
    if (responder) {
        vb_text_add(&text, ". What that side saw: ");
        say_check(&text, responder);
    }
    say_advice(&text, about);
    say_numbers(&text, evidence);
    return text.length;
}

int vb_evidence_text(const struct vb_view *view, uint32_t id, char *out, size_t size)
{
    struct vb_evidence evidence;

    return vb_evidence_get(view, id, &evidence) ? vb_evidence_say(view, &evidence, NULL, out, size)
                                                : 0;
}
