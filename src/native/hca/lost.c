// SPDX-License-Identifier: Apache-2.0
/*
 * Datagrams that are lost by a mistake of a program: each is counted by its cause, and a line of
 * the log names each cause once for each queue pair. Whoever drops a datagram calls this, in its
 * own thread.
 */
#include "hca/lost.h"

#include "hca/counters.h"
#include "hca/qp.h"
#include "hca/sentences.h"
#include "hca/text.h"

#define AT(name) (offsetof(struct vb_counters, name) / sizeof(uint64_t))

enum { UNCOUNTED = VB_COUNTER_COUNT }; /* of a cause for which nothing is sent */

/* Of struct vb_counters, where the carriers' counts are shown together. */
static const uint32_t counters[VB_LOST_CAUSES] = {
    [VB_LOST_QKEY] = AT(drop_qkey),
    [VB_LOST_PKEY] = AT(drop_pkey),
    [VB_LOST_NO_PROCESS] = AT(drop_no_qp),
    [VB_LOST_UNREACHED] = AT(drop_no_qp),
    [VB_LOST_NO_QP] = AT(drop_no_qp),
    [VB_LOST_TYPE] = AT(drop_transport),
    [VB_LOST_STATE] = AT(drop_state),
    [VB_LOST_ADDRESS] = UNCOUNTED,
    [VB_LOST_SOURCE] = UNCOUNTED,
    [VB_LOST_PORT] = AT(drop_no_qp),
    [VB_LOST_NO_RECEIVE] = AT(drop_no_receive),
    [VB_LOST_ROUTE] = UNCOUNTED,
};

/* As sentences.toml reads it. */
static struct vb_evidence lost_record(const struct vb_lost *lost)
{
    bool two_pkeys = lost->cause == VB_LOST_PKEY;

    return (struct vb_evidence){
        .silence = (uint8_t)lost->cause,
        .qp_num = lost->from,
        .peer_qp_num = lost->to,
        .count = two_pkeys ? lost->value << 16 | lost->wanted : lost->value,
        .key = lost->wanted,
    };
}

/* True once for each cause and QP. */
static bool lost_is_news(struct vb_qp *qp, enum vb_lost_cause cause)
{
    uint16_t bit = (uint16_t)(1u << cause);

    return !(atomic_fetch_or(&qp->verbs->logged_lost, bit) & bit);
}

void vb_lost_log(struct vb_qp *qp, const struct vb_lost *lost)
{
    struct vb_adapter *adapter = qp->context->adapter;
    char line[640];
    struct vb_text text = {line, sizeof(line), 0};
    struct vb_evidence record = lost_record(lost);

    if (!adapter->tell || lost->cause == VB_LOST_NO_RECEIVE || !lost_is_news(qp, lost->cause))
        return;
    vb_sentence_say(&text, VB_SENTENCE_LOST_LINE, &record);
    adapter->tell(line);
}

void vb_lost_direct(struct vb_qp *qp, const struct vb_lost *lost)
{
    atomic_fetch_add(&qp->context->adapter->lost[lost->cause], 1);
    vb_lost_log(qp, lost);
}

uint64_t vb_lost_counted(const struct vb_adapter *adapter, uint32_t counter)
{
    uint64_t sum = counter == AT(completions_lost) ? atomic_load(&adapter->completions_lost) : 0;

    for (int cause = 0; cause < VB_LOST_CAUSES; ++cause)
        if (counters[cause] == counter)
            sum += atomic_load(&adapter->lost[cause]);
    return sum;
}
