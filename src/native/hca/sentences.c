// SPDX-License-Identifier: Apache-2.0
/*
 * Sentences about records of evidence, from the table that sentences.py makes of sentences.toml.
 * They are made only when somebody reads them: by a program's call, for a line of the log, or from
 * Python.
 */
#include "hca/sentences.h"

#include <string.h>

#include "abi/verbs.h"
#include "hca/adapter_port.h"
#include "hca/causes.h"
#include "hca/delays.h"
#include "hca/names.h"
#include "wire/headers.h"
#include "wire/opcode.h"

struct vb_sentence_field {
    const char *name;
    uint16_t at, size;
};

/* Said if all facts of `yes` hold and none of `no`. */
struct vb_sentence_piece {
    uint16_t of;
    uint32_t yes, no;
    const char *text;
};

#define VB_SENTENCE_FIELD(field)                                                                   \
    {#field, offsetof(struct vb_evidence, field), sizeof(((struct vb_evidence *)0)->field)}
#define VB_SENTENCE_COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Payloads that are cut at another path MTU: of SENDs and WRITEs there, of READ responses here. */
static bool vb_sentence_may_be_the_mtu(const struct vb_evidence *e)
{
    if (e->check == VB_CHECK_BAD_RESPONSE)
        return e->wr_opcode == IBV_WR_RDMA_READ &&
               (e->count & VB_OP_MASK) != VB_OP_ATOMIC_ACKNOWLEDGE;
    return e->check == VB_CHECK_BAD_LENGTH &&
           (e->wr_opcode == IBV_WR_SEND || e->wr_opcode == IBV_WR_RDMA_WRITE);
}

/* Memory that is gone: was it to be read? Then it being read-only is no reason. */
static bool vb_sentence_is_read_from(const struct vb_evidence *e)
{
    bool source = e->wr_opcode == IBV_WR_RDMA_WRITE || e->wr_opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                  e->wr_opcode == IBV_WR_SEND || e->wr_opcode == IBV_WR_SEND_WITH_IMM ||
                  e->wr_opcode == IBV_WR_SEND_WITH_INV || e->wr_opcode == IBV_WR_ATOMIC_WRITE;

    return e->check == VB_CHECK_LOCAL_MEMORY_GONE
               ? source
               : e->check == VB_CHECK_MEMORY_GONE && e->wr_opcode == IBV_WR_RDMA_READ;
}

enum { VB_SENTENCE_SMALLEST_MTU = 256 }; /* every path carries it */

/* By packets: how often the request was tried. */
static uint32_t vb_sentence_tries(const struct vb_evidence *e)
{
    return e->timeouts + e->naks + e->not_ready;
}

/*
 * Did the peer still answer while the request was tried, when `microseconds` passed? An
 * acknowledgement of earlier requests may come once more at their beginning, to announce credits:
 * that is no sign of it.
 */
static bool vb_sentence_is_heard_since(const struct vb_evidence *e)
{
    return e->naks || e->not_ready || e->beyond ||
           (e->silence != VB_HEARD_NOTHING && e->heard_us < e->microseconds / 2);
}

/* Did the peer, from the first request on, expect another PSN than those that came? */
static bool vb_sentence_is_other_psn(const struct vb_evidence *e)
{
    return e->silence == VB_HEARD_ACK_UNSENT || e->silence == VB_HEARD_SEQUENCE_NAK_UNSENT;
}

/* Long packets may vanish where short ones pass (RFC 2923): of a response the last at most. */
static bool vb_sentence_may_be_too_long(const struct vb_evidence *e)
{
    return e->has_psns && !vb_sentence_is_other_psn(e) && e->length > VB_SENTENCE_SMALLEST_MTU &&
           e->beyond <= vb_sentence_tries(e);
}

#include "hca/sentences_table.h"

/* A field of 1, 2, 4 or 8 bytes, on any byte order; 0 for a name that is none. */
static uint64_t vb_sentence_number(const struct vb_evidence *e, const char *name, size_t length)
{
    for (size_t i = 0; i < VB_SENTENCE_COUNT(vb_sentence_fields); ++i) {
        const struct vb_sentence_field *field = &vb_sentence_fields[i];
        const char *at = (const char *)e + field->at;

        if (strlen(field->name) != length || memcmp(field->name, name, length) != 0)
            continue;
        return field->size == 1   ? *(const uint8_t *)at
               : field->size == 2 ? *(const uint16_t *)at
               : field->size == 4 ? *(const uint32_t *)at
                                  : *(const uint64_t *)at;
    }
    return 0;
}

/* The sentences of a number whose letter means an enum; 0: the letter means none. */
static unsigned vb_sentence_of_letter(char as)
{
    switch (as) {
    case 'b':
        return VB_SENTENCE_BIND;
    case 'h':
        return VB_SENTENCE_HEARD;
    case 'q':
        return VB_SENTENCE_SILENCE;
    case 'Q':
        return VB_SENTENCE_SILENCE | VB_SENTENCE_ADVICE;
    case 'l':
        return VB_SENTENCE_LOST;
    case 'L':
        return VB_SENTENCE_LOST | VB_SENTENCE_ADVICE;
    default:
        return 0;
    }
}

static void vb_sentence_value(struct vb_text *text, const char *name, size_t length, char as,
                              const void *of)
{
    const struct vb_evidence *e = of;
    uint64_t number = vb_sentence_number(e, name, length);
    unsigned table = vb_sentence_of_letter(as);

    if (table)
        vb_sentence_say(text, table + (unsigned)number, e);
    else if (as == 'p' || as == 'P')
        vb_text_add(text, "0x%04x", (unsigned)(as == 'P' ? number >> 16 : number & 0xffff));
    else if (as == 'd')
        vb_text_add(text, "%s", vb_pkeys_differ((uint16_t)(number >> 16), (uint16_t)number));
    else if (as == 'y')
        vb_say_number(text, 0, vb_sentence_tries(e));
    else if (as == 'z')
        vb_text_add(text, "version " VERBENA_VERSION " with layout %u", VB_LAYOUT_VERSION);
    else if (as == 'r')
        vb_text_add(text, "%s", vb_request_name(number));
    else if (as == 'w' && !number)
        vb_text_add(text, "no write and no remote access");
    else if (as == 'g')
        vb_say_number(text, 0, number - (e->type == IBV_QPT_UD ? VB_GRH : 0));
    else if (as == 'u')
        vb_say_number(text, 0, number ? vb_ack_timeout((unsigned)number) / 1000 : 0);
    else if (as == 'c')
        vb_causes_say(text, e);
    else
        vb_say_number(text, as == 'w' ? 'a' : as, number);
}

void vb_sentence_say(struct vb_text *text, unsigned of, const struct vb_evidence *e)
{
    unsigned check = of & ~(unsigned)VB_SENTENCE_ADVICE;
    uint32_t facts = vb_sentence_facts(e);

    if (check < VB_CHECK_QP_ACCESS) /* whose key it is, is a fact */
        of &= ~(unsigned)(VB_CHECK_LOCAL | VB_CHECK_RECV);
    for (size_t i = 0; i < VB_SENTENCE_COUNT(vb_sentence_pieces); ++i) {
        const struct vb_sentence_piece *piece = &vb_sentence_pieces[i];

        if (piece->of == of && (facts & piece->yes) == piece->yes && !(facts & piece->no))
            vb_text_fill(text, piece->text, vb_sentence_value, e);
    }
}

/* ---- all that is said of a record ---- */

/* What usually is behind it, and what to try. */
static void say_advice(struct vb_text *text, const struct vb_evidence *e)
{
    vb_sentence_say(text, e->check | VB_SENTENCE_ADVICE, e);
}

static void say_flushed(struct vb_text *text, const struct vb_view *view,
                        const struct vb_evidence *e)
{
    struct vb_evidence first;

    vb_sentence_say(text, e->check, e);
    if (e->count == VB_FLUSH_FAILED && vb_evidence_get(view, e->key, &first)) {
        vb_text_add(text, "; what failed first: ");
        vb_sentence_say(text, first.check, &first);
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

int vb_evidence_say(const struct vb_view *view, const struct vb_evidence *evidence,
                    const struct vb_evidence *responder, char *out, size_t size)
{
    struct vb_text text = {.at = out, .left = size};
    const struct vb_evidence *about = responder ? responder : evidence;

    if (evidence->check == VB_CHECK_FLUSHED)
        say_flushed(&text, view, evidence);
    else
        vb_sentence_say(&text, evidence->check, evidence);
    if (responder) {
        vb_text_add(&text, ". What that side saw: ");
        vb_sentence_say(&text, responder->check, responder);
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
