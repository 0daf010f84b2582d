// SPDX-License-Identifier: Apache-2.0
/*
 * The possible causes of a NAK, by its code and by the operation that it refused. sentences.c asks
 * for them. A cause is named only where the operation can have it, which tests/native/test_causes.c
 * shows for each row.
 */
#include "hca/causes.h"

#include "abi/verbs.h"
#include "wire/headers.h"

enum { SMALLEST_MTU = 256 };

#define OPERATION(name) (1u << IBV_WR_##name)

enum {
    SENDS = OPERATION(SEND) | OPERATION(SEND_WITH_IMM) | OPERATION(SEND_WITH_INV),
    WRITES = OPERATION(RDMA_WRITE) | OPERATION(RDMA_WRITE_WITH_IMM),
    FETCHES = OPERATION(ATOMIC_CMP_AND_SWP) | OPERATION(ATOMIC_FETCH_AND_ADD),
    EIGHT_BYTES = FETCHES | OPERATION(ATOMIC_WRITE),
    ANSWERED_EACH = OPERATION(RDMA_READ) | EIGHT_BYTES | OPERATION(FLUSH),
    COMPLETED_THERE = SENDS | OPERATION(RDMA_WRITE_WITH_IMM),
    BY_RKEY = WRITES | ANSWERED_EACH,
    LATE_COMERS = OPERATION(ATOMIC_WRITE) | OPERATION(FLUSH), /* InfiniBand has them since 2021 */
};

/* tests/native/test_causes.c makes each of them happen, but for those of other adapters. */
static const struct cause {
    uint8_t code;
    bool xrc;       /* between XRC QPs only */
    uint16_t above; /* of messages longer than this */
    uint32_t operations;
    const char *text;
} causes[] = {
    {VB_NAK_INVALID_REQUEST, false, 0, BY_RKEY, "its qp_access_flags do not allow it"},
    {VB_NAK_INVALID_REQUEST, false, 0, ANSWERED_EACH,
     "more READs and atomics are under way than its max_dest_rd_atomic"},
    {VB_NAK_INVALID_REQUEST, false, 0, SENDS,
     "the message is longer than the receive request that it met"},
    {VB_NAK_INVALID_REQUEST, false, SMALLEST_MTU, SENDS | WRITES,
     "the two QPs differ in their path MTU"},
    {VB_NAK_INVALID_REQUEST, false, 0, EIGHT_BYTES,
     "the address, or that of the memory behind it, is not a multiple of 8"},
    {VB_NAK_INVALID_REQUEST, false, 0, LATE_COMERS, "its adapter does not serve this operation"},
    {VB_NAK_INVALID_REQUEST, true, 0, SENDS | BY_RKEY,
     "the request names no SRQ of that QP's XRC domain"},
    {VB_NAK_REMOTE_ACCESS, false, 0, BY_RKEY,
     "the rkey names no region of that QP's protection domain that covers the range and grants the "
     "access, or a memory window that another QP has bound"},
    {VB_NAK_REMOTE_ACCESS, false, 0, OPERATION(SEND_WITH_INV),
     "the rkey to invalidate is not that of a memory window of type 2 that is bound for that QP"},
    {VB_NAK_REMOTE_OPERATION, false, 0, SENDS,
     "the lkey of its receive request is wrong, or the memory behind that is gone"},
    {VB_NAK_REMOTE_OPERATION, false, 0, SENDS,
     "the message is longer than its receive request, where Linux soft-RoCE answers"},
    {VB_NAK_REMOTE_OPERATION, false, 0, COMPLETED_THERE, "its completion queue is full"},
    {VB_NAK_REMOTE_OPERATION, false, 0, BY_RKEY & ~OPERATION(FLUSH),
     "the memory behind the rkey was unmapped, or protected against the access"},
};

enum { CAUSES = sizeof(causes) / sizeof(*causes) };

static const char *class_name(uint32_t code)
{
    switch (code) {
    case VB_NAK_INVALID_REQUEST:
        return "invalid request";
    case VB_NAK_REMOTE_ACCESS:
        return "remote access error";
    case VB_NAK_REMOTE_OPERATION:
        return "remote operational error";
    default:
        return "it gave no reason";
    }
}

static bool causes_is_possible(const struct cause *cause, const struct vb_evidence *refused)
{
    if ((cause->xrc && refused->type != IBV_QPT_XRC_SEND) ||
        (cause->above && refused->length <= cause->above))
        return false;
    return cause->code == refused->count && refused->wr_opcode < 32 &&
           cause->operations >> refused->wr_opcode & 1;
}

void vb_causes_say(struct vb_text *text, const struct vb_evidence *refused)
{
    const char *before = ": ";

    vb_text_add(text, "%s", class_name(refused->count));
    for (int i = 0; i < CAUSES; ++i) {
        if (!causes_is_possible(&causes[i], refused))
            continue;
        vb_text_add(text, "%s%s", before, causes[i].text);
        before = "; or ";
    }
}
