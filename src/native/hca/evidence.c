// SPDX-License-Identifier: Apache-2.0
#include "hca/evidence.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "abi/verbs.h"
#include "wire/headers.h"

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

static const char *request_name(unsigned opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return "WRITE";
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
        return "SEND";
    case IBV_WR_RDMA_READ:
        return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return "compare-and-swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return "fetch-and-add";
    default:
        return "request";
    }
}

struct text {
    char *at;
    size_t left;
    int length;
};

static void __attribute__((format(printf, 2, 3))) say(struct text *text, const char *format, ...)
{
    va_list values;
    int wrote;

    va_start(values, format);
    wrote = vsnprintf(text->at, text->left, format, values);
    va_end(values);
    if (wrote < 0)
        return;
    text->length += wrote;
    if ((size_t)wrote >= text->left)
        wrote = text->left ? (int)text->left - 1 : 0;
    text->at += wrote;
    text->left -= (size_t)wrote;
}

static void say_access(struct text *text, uint32_t access)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                 {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                 {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                 {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"}};
    const char *between = "";

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i)
        if (access & names[i].bit) {
            say(text, "%s%s", between, names[i].name);
            between = "|";
        }
    if (!*between)
        say(text, "no write and no remote access");
}

static void say_range(struct text *text, uint64_t addr, uint64_t length)
{
    say(text, "[0x%" PRIx64 ", +%" PRIu64 ")", addr, length);
}

/* "rkey 0x1203 is MR [0x7f10.., +4096) with REMOTE_READ; the WRITE asked [0x7f10.., +8192)…" */
static void say_key(struct text *text, const struct vb_evidence *e, unsigned check)
{
    const char *whose = e->check & VB_CHECK_LOCAL  ? "lkey"
                        : e->check & VB_CHECK_RECV ? "the receive request's lkey"
                                                   : "rkey";

    if (check == VB_CHECK_KEY) {
        say(text, "%s 0x%x names no memory region; the %s asked ", whose, e->key,
            request_name(e->wr_opcode));
        say_range(text, e->addr, e->length);
        say(text, ". Is the region still registered, and is it the right side's key?");
        return;
    }
    say(text, "%s 0x%x is MR ", whose, e->key);
    say_range(text, e->mr_addr, e->mr_length);
    say(text, " with ");
    say_access(text, e->access);
    say(text, "; the %s asked ", request_name(e->wr_opcode));
    say_range(text, e->addr, e->length);
    if (check == VB_CHECK_PD)
        say(text, ", but the QP is in protection domain %u and the region in %u", e->pd, e->mr_pd);
    if (check == VB_CHECK_RANGE)
        say(text, ", which is not inside the region");
    if (check == VB_CHECK_ACCESS) {
        say(text, " and needs ");
        say_access(text, e->wanted);
    }
}

/* What the peer's NAK means, and where to look. */
static void say_refused(struct text *text, const struct vb_evidence *e)
{
    static const char *const meanings[] = {
        [VB_NAK_INVALID_REQUEST] =
            "invalid request: the QP's access flags do not allow it, it has too few READ "
            "resources, "
            "the message is longer than the receive request that it met, or the address of an "
            "atomic is not a multiple of 8",
        [VB_NAK_REMOTE_ACCESS] =
            "remote access error: the rkey names no region of that QP's protection domain that "
            "covers the range and grants the access",
        [VB_NAK_REMOTE_OPERATION] =
            "remote operational error: something of its own failed, as the lkey of its receive "
            "request or a full completion queue",
    };
    const char *meaning =
        e->count < sizeof(meanings) / sizeof(*meanings) ? meanings[e->count] : NULL;

    say(text, "QP 0x%x refused the %s ", e->peer_qp_num, request_name(e->wr_opcode));
    if (e->key) {
        say(text, "to ");
        say_range(text, e->addr, e->length);
        say(text, " by rkey 0x%x ", e->key);
    } else {
        say(text, "of %" PRIu64 " bytes ", e->length);
    }
    say(text, "at PSN %u: %s", e->psn, meaning ? meaning : "it gave no reason");
}

static void say_retries(struct text *text, const struct vb_evidence *e)
{
    say(text,
        "packets to QP 0x%x or its responses were lost again and again from PSN %u on, during "
        "%" PRIu64 " us: %u sequence errors and %u timeouts since the last answer (retry_cnt %u)",
        e->peer_qp_num, e->psn, e->microseconds, e->naks, e->timeouts, e->count);
}

/* Checks that only packets meet. */
static bool say_packet_check(struct text *text, const struct vb_evidence *e)
{
    const char *name = request_name(e->wr_opcode);

    switch (e->check) {
    case VB_CHECK_SEQUENCE_RETRIES:
        say_retries(text, e);
        return true;
    case VB_CHECK_REFUSED:
        say_refused(text, e);
        return true;
    case VB_CHECK_BAD_RESPONSE:
        say(text,
            "QP 0x%x answered the %s with a packet that does not fit it (opcode 0x%x, PSN %u)",
            e->peer_qp_num, name, e->count, e->psn);
        return true;
    case VB_CHECK_BAD_SEQUENCE:
        say(text,
            "QP 0x%x sent a packet that may not follow the one before it, or whose operation "
            "is not served (opcode 0x%x, PSN %u)",
            e->qp_num, e->count, e->psn);
        return true;
    case VB_CHECK_BAD_LENGTH:
        say(text,
            "QP 0x%x sent a %s packet whose payload does not agree with the announced length "
            "or the path MTU (%" PRIu64 " bytes, PSN %u)",
            e->qp_num, name, e->length, e->psn);
        return true;
    case VB_CHECK_TOO_MANY_READS:
        say(text,
            "QP 0x%x had more READs and atomics outstanding than max_dest_rd_atomic of QP 0x%x",
            e->qp_num, e->peer_qp_num);
        return true;
    case VB_CHECK_INVALIDATE:
        say(text, "the SEND asked to invalidate rkey 0x%x, which is no key that may be", e->key);
        return true;
    default:
        return false;
    }
}

static void say_check(struct text *text, const struct vb_evidence *e)
{
    const char *name = request_name(e->wr_opcode);

    if (say_packet_check(text, e))
        return;
    switch (e->check) {
    case VB_CHECK_QP_ACCESS:
        say(text, "QP 0x%x does not allow it: the %s needs ", e->peer_qp_num, name);
        say_access(text, e->wanted);
        say(text, " among the QP's qp_access_flags, which are ");
        say_access(text, e->access);
        break;
    case VB_CHECK_ALIGNMENT:
        say(text, "the %s asked address 0x%" PRIx64 ", which is not a multiple of 8", name,
            e->addr);
        break;
    case VB_CHECK_RECV_TOO_SHORT:
        say(text,
            "the message has %" PRIu64 " bytes and the receive request that it met has room for "
            "%" PRIu64,
            e->length, e->mr_length);
        break;
    case VB_CHECK_RNR:
        say(text,
            "QP 0x%x had no receive request during %" PRIu64 " us (rnr_retry %u). Post receives "
            "before the sender sends, or raise rnr_retry (7 waits for ever) or min_rnr_timer",
            e->peer_qp_num, e->microseconds, e->count);
        break;
    case VB_CHECK_NO_ANSWER:
        say(text,
            "QP 0x%x did not answer during %" PRIu64 " us (retry_cnt %u). It does not exist, is "
            "not in RTR or RTS, or is connected to another QP than 0x%x",
            e->peer_qp_num, e->microseconds, e->count, e->qp_num);
        if (e->timeouts)
            say(text, ". Unanswered since PSN %u, after %u timeouts", e->psn, e->timeouts);
        break;
    case VB_CHECK_PEER_DIED:
        say(text, "the process of QP 0x%x ended while the QP was connected", e->peer_qp_num);
        break;
    case VB_CHECK_MEMORY_GONE:
        say(text, "memory ");
        say_range(text, e->addr, e->length);
        say(text, " is registered but can no longer be reached: was it unmapped?");
        break;
    case VB_CHECK_LOCAL_MEMORY_GONE:
        say(text, "the %s's own buffer ", name);
        say_range(text, e->addr, e->length);
        say(text, " is registered but no longer there: was it unmapped or made read-only?");
        break;
    case VB_CHECK_RECV_MEMORY_GONE:
        say(text, "the receive request's buffer ");
        say_range(text, e->addr, e->length);
        say(text, " is registered but no longer there: was it unmapped or made read-only?");
        break;
    case VB_CHECK_NO_ROOM:
        say(text, "no memory is left for the %s's way through the peer's help", name);
        break;
    case VB_CHECK_CQ_OVERRUN:
        say(text,
            "the completion queue of QP 0x%x was full: make it as long as all that is posted "
            "before it is polled",
            e->peer_qp_num);
        break;
    case VB_CHECK_RD_ATOMIC:
        say(text, "%s needs max_rd_atomic here and max_dest_rd_atomic at the peer above 0", name);
        break;
    case VB_CHECK_TOO_LONG:
        say(text, "the message has %" PRIu64 " bytes; at most %" PRIu64 " are carried", e->length,
            e->mr_length);
        break;
    case VB_CHECK_ATOMIC_LENGTH:
        say(text, "the %s returns 8 bytes and the request's elements have room for %" PRIu64, name,
            e->length);
        break;
    default:
        say_key(text, e, e->check & ~(unsigned)(VB_CHECK_LOCAL | VB_CHECK_RECV));
    }
}

int vb_evidence_text(const struct vb_view *view, uint32_t id, char *out, size_t size)
{
    const struct vb_evidence *slot = &view->evidence[id % VB_EVIDENCE_RECORDS];
    struct text text = {.at = out, .left = size};

    if (id == 0 || atomic_load_explicit(&slot->id, memory_order_acquire) != id)
        return 0;
    say_check(&text, slot);
    return text.length;
}
