// SPDX-License-Identifier: Apache-2.0
#include "hca/sentences.h"

#include <string.h>

#include "abi/verbs.h"
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

static void vb_sentence_value(struct vb_text *text, const char *name, size_t length, char as,
                              const void *of)
{
    const struct vb_evidence *e = of;
    uint64_t number = vb_sentence_number(e, name, length);

    if (as == 'r')
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
