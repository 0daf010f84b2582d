// SPDX-License-Identifier: Apache-2.0
#include "hca/evidence.h"

#include <inttypes.h>
#include <string.h>

#include "abi/verbs.h"
#include "hca/causes.h"
#include "hca/delays.h"
#include "hca/names.h"
#include "hca/silence.h"
#include "wire/headers.h"
#include "wire/opcode.h"

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
    case IBV_WR_ATOMIC_WRITE:
        return "atomic write";
    case IBV_WR_FLUSH:
        return "FLUSH";
    case IBV_WR_LOCAL_INV:
        return "LOCAL_INV";
    case IBV_WR_BIND_MW:
        return "BIND_MW";
    default:
        return "request";
    }
}

static void say_access(struct vb_text *text, uint32_t access)
{
    if (access)
        vb_say_access(text, access);
    else
        vb_text_add(text, "no write and no remote access");
}

static void say_range(struct vb_text *text, uint64_t addr, uint64_t length)
{
    vb_text_add(text, "[0x%" PRIx64 ", +%" PRIu64 ")", addr, length);
}

/* "rkey 0x1203 is MR [0x7f10.., +4096) with REMOTE_READ; the WRITE asked [0x7f10.., +8192)…" */
static void say_key(struct vb_text *text, const struct vb_evidence *e, unsigned check)
{
    const char *whose = e->check & VB_CHECK_LOCAL  ? "lkey"
                        : e->check & VB_CHECK_RECV ? "the receive request's lkey"
                                                   : "rkey";

    if (check == VB_CHECK_KEY) {
        vb_text_add(text, "%s 0x%x names no memory region; the %s asked ", whose, e->key,
                    request_name(e->wr_opcode));
        say_range(text, e->addr, e->length);
        return;
    }
    vb_text_add(text, "%s 0x%x is MR ", whose, e->key);
    say_range(text, e->mr_addr, e->mr_length);
    vb_text_add(text, " with ");
    say_access(text, e->access);
    vb_text_add(text, "; the %s asked ", request_name(e->wr_opcode));
    say_range(text, e->addr, e->length);
    if (check == VB_CHECK_PD)
        vb_text_add(text, ", but the QP is in protection domain %u and the region in %u", e->pd,
                    e->mr_pd);
    if (check == VB_CHECK_RANGE)
        vb_text_add(text, ", which is not inside the region");
    if (check == VB_CHECK_ACCESS) {
        vb_text_add(text, " and needs ");
        say_access(text, e->wanted);
    }
}

/* The peer's NAK. Of what it could mean, only what the operation can have is named. */
static void say_refused(struct vb_text *text, const struct vb_evidence *e)
{
    vb_text_add(text, "QP 0x%x refused the %s ", e->peer_qp_num, request_name(e->wr_opcode));
    if (e->wr_opcode == IBV_WR_SEND_WITH_INV) {
        vb_text_add(text, "of %" PRIu64 " bytes that invalidates rkey 0x%x ", e->length, e->key);
    } else if (e->key) {
        vb_text_add(text, "to ");
        say_range(text, e->addr, e->length);
        vb_text_add(text, " by rkey 0x%x ", e->key);
    } else {
        vb_text_add(text, "of %" PRIu64 " bytes ", e->length);
    }
    vb_text_add(text, "at PSN %u: ", e->psn);
    vb_causes_say(text, e);
}

static void say_bind(struct vb_text *text, const struct vb_evidence *e)
{
    static const char *const problems[] = {
        [VB_BIND_NO_WINDOW] = "the window was deallocated or is in another protection domain",
        [VB_BIND_NOT_FREE] = "a window of type 2 is bound until it is invalidated",
        [VB_BIND_EMPTY] = "a window of type 2 is bound to at least one byte",
        [VB_BIND_NO_REGION] = "the lkey names no region of the QP's protection domain",
        [VB_BIND_REGION_FORBIDS] =
            "the region was registered without IBV_ACCESS_MW_BIND, or is zero-based",
        [VB_BIND_ACCESS] = "the window asks for an access that is no window's, or to write where "
                           "the region has no LOCAL_WRITE",
        [VB_BIND_RANGE] = "the range is not inside the region",
    };

    vb_text_add(text, "a memory window could not be bound to ");
    say_range(text, e->addr, e->length);
    vb_text_add(text, " of lkey 0x%x: %s", e->key,
                e->count < sizeof(problems) / sizeof(*problems) ? problems[e->count] : "");
}

static bool say_window_check(struct vb_text *text, const struct vb_evidence *e)
{
    if (e->check == VB_CHECK_BIND) {
        say_bind(text, e);
        return true;
    }
    if (e->check != VB_CHECK_WINDOW_QP)
        return false;
    vb_text_add(text,
                "rkey 0x%x is a memory window of type 2, which opens only to the QP that it was "
                "bound through, until that is reset; the %s went to another one",
                e->key, request_name(e->wr_opcode));
    return true;
}

/* Checks that only packets meet. */
static bool say_packet_check(struct vb_text *text, const struct vb_evidence *e)
{
    const char *name = request_name(e->wr_opcode);

    switch (e->check) {
    case VB_CHECK_SEQUENCE_RETRIES:
        vb_silence_say(text, e);
        return true;
    case VB_CHECK_REFUSED:
        say_refused(text, e);
        return true;
    case VB_CHECK_BAD_RESPONSE:
        vb_text_add(
            text,
            "QP 0x%x answered the %s with a packet that does not fit it (opcode 0x%x, PSN %u)",
            e->peer_qp_num, name, e->count, e->psn);
        return true;
    case VB_CHECK_BAD_SEQUENCE:
        vb_text_add(
            text,
            "QP 0x%x sent a packet that may not follow the one before it, or whose operation "
            "is not served (opcode 0x%x, PSN %u)",
            e->qp_num, e->count, e->psn);
        return true;
    case VB_CHECK_BAD_LENGTH:
        vb_text_add(
            text,
            "QP 0x%x sent a %s packet whose payload does not agree with the announced length "
            "or the path MTU (%" PRIu64 " bytes, PSN %u)",
            e->qp_num, name, e->length, e->psn);
        return true;
    case VB_CHECK_TOO_MANY_READS:
        vb_text_add(
            text,
            "QP 0x%x had more READs and atomics outstanding than max_dest_rd_atomic of QP 0x%x",
            e->qp_num, e->peer_qp_num);
        return true;
    case VB_CHECK_INVALIDATE:
        vb_text_add(text,
                    "the %s asked to invalidate rkey 0x%x, which is not that of a memory window of "
                    "type 2 that is bound",
                    name, e->key);
        return true;
    case VB_CHECK_PLACEMENT:
        vb_text_add(text,
                    "QP 0x%x sent a FLUSH for no placement type, or a reserved one or selectivity "
                    "(FETH 0x%x, PSN %u)",
                    e->qp_num, e->count, e->psn);
        return true;
    default:
        return false;
    }
}

static bool say_xrc_check(struct vb_text *text, const struct vb_evidence *e)
{
    const char *name = request_name(e->wr_opcode);

    switch (e->check) {
    case VB_CHECK_XRC_SRQ:
        vb_text_add(
            text,
            "the %s named XRC SRQ 0x%x, which the process of target QP 0x%x does not have, "
            "nor another one of this host in a domain that is shared by file (by packets it "
            "must be that process's)",
            name, e->count, e->peer_qp_num);
        return true;
    case VB_CHECK_XRC_DOMAIN:
        vb_text_add(text, "the %s named XRC SRQ 0x%x, which is of another XRC domain than QP 0x%x",
                    name, e->count, e->peer_qp_num);
        return true;
    case VB_CHECK_XRC_BUSY:
        vb_text_add(text,
                    "the %s named XRC SRQ 0x%x, but target QP 0x%x holds a receive request of "
                    "another one for a message that did not end",
                    name, e->count, e->peer_qp_num);
        return true;
    default:
        return false;
    }
}

/* A datagram's length is that behind the 40 bytes for its GRH, as its sender knows it. */
static void say_too_short(struct vb_text *text, const struct vb_evidence *e)
{
    bool datagram = e->type == IBV_QPT_UD;

    vb_text_add(text,
                "the message has %s%" PRIu64 " bytes%s and the receive request that it met "
                "has room for %" PRIu64,
                e->count ? "at least " : "", e->length - (datagram ? VB_GRH : 0),
                datagram ? ", behind 40 of the GRH," : "", e->mr_length);
}

static const char was_unmapped[] =
    " was unmapped after it was registered; what is mapped there now "
    "is not the region's";

static void say_check(struct vb_text *text, const struct vb_evidence *e)
{
    const char *name = request_name(e->wr_opcode);

    if (say_packet_check(text, e) || say_xrc_check(text, e) || say_window_check(text, e))
        return;
    switch (e->check) {
    case VB_CHECK_QP_ACCESS:
        vb_text_add(text, "QP 0x%x does not allow it: the %s needs ", e->peer_qp_num, name);
        say_access(text, e->wanted);
        vb_text_add(text, " among the QP's qp_access_flags, which are ");
        say_access(text, e->access);
        break;
    case VB_CHECK_ALIGNMENT:
        vb_text_add(text, "the %s asked address 0x%" PRIx64 ", which is not a multiple of 8", name,
                    e->addr);
        break;
    case VB_CHECK_RECV_TOO_SHORT:
        say_too_short(text, e);
        break;
    case VB_CHECK_RNR:
        vb_text_add(text, "QP 0x%x had no receive request during %" PRIu64 " us (rnr_retry %u)",
                    e->peer_qp_num, e->microseconds, e->count);
        break;
    case VB_CHECK_NO_ANSWER:
    case VB_CHECK_OTHER_BUILD:
        vb_silence_say(text, e);
        break;
    case VB_CHECK_PEER_DIED:
        vb_text_add(
            text,
            "the process of QP 0x%x ended, or closed its device, while this QP was connected to it",
            e->peer_qp_num);
        break;
    case VB_CHECK_MEMORY_GONE:
        vb_text_add(text, "memory ");
        say_range(text, e->addr, e->length);
        vb_text_add(text, "%s",
                    e->count ? was_unmapped : " is registered but can no longer be reached");
        break;
    case VB_CHECK_LOCAL_MEMORY_GONE:
        vb_text_add(text, "the %s's own buffer ", name);
        say_range(text, e->addr, e->length);
        vb_text_add(text, "%s", e->count ? was_unmapped : " is registered but no longer there");
        break;
    case VB_CHECK_RECV_MEMORY_GONE:
        vb_text_add(text, "the receive request's buffer ");
        say_range(text, e->addr, e->length);
        vb_text_add(text, " is registered but no longer there");
        break;
    case VB_CHECK_NO_ROOM:
        vb_text_add(text, "no memory is left for the %s's way through the peer's help", name);
        break;
    case VB_CHECK_CQ_OVERRUN:
        vb_text_add(text, "the completion queue of QP 0x%x was full", e->peer_qp_num);
        break;
    case VB_CHECK_RD_ATOMIC:
        vb_text_add(text, "the %s needs %s of QP 0x%x above 0, and it is 0", name,
                    e->status == IBV_WC_LOC_QP_OP_ERR ? "max_rd_atomic" : "max_dest_rd_atomic",
                    e->status == IBV_WC_LOC_QP_OP_ERR ? e->qp_num : e->peer_qp_num);
        break;
    case VB_CHECK_TOO_LONG:
        vb_text_add(text, "the message has %" PRIu64 " bytes; at most %" PRIu64 " are carried",
                    e->length, e->mr_length);
        break;
    case VB_CHECK_ATOMIC_LENGTH:
        vb_text_add(text, "the %s %s %" PRIu64, name,
                    e->wr_opcode == IBV_WR_ATOMIC_WRITE
                        ? "writes 8 bytes and the request's elements have"
                        : "returns 8 bytes and the request's elements have room for",
                    e->length);
        break;
    default:
        say_key(text, e, e->check & ~(unsigned)(VB_CHECK_LOCAL | VB_CHECK_RECV));
    }
}

/* Payloads that are cut at another path MTU: of SENDs and WRITEs there, of READ responses here. */
static bool may_be_the_mtu(const struct vb_evidence *e)
{
    if (e->check == VB_CHECK_BAD_RESPONSE)
        return e->wr_opcode == IBV_WR_RDMA_READ &&
               (e->count & VB_OP_MASK) != VB_OP_ATOMIC_ACKNOWLEDGE;
    return e->check == VB_CHECK_BAD_LENGTH &&
           (e->wr_opcode == IBV_WR_SEND || e->wr_opcode == IBV_WR_RDMA_WRITE);
}

/* Memory that is gone: was it to be read? Then it being read-only is no reason. */
static bool is_read_from(const struct vb_evidence *e)
{
    bool source = e->wr_opcode == IBV_WR_RDMA_WRITE || e->wr_opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                  e->wr_opcode == IBV_WR_SEND || e->wr_opcode == IBV_WR_SEND_WITH_IMM ||
                  e->wr_opcode == IBV_WR_SEND_WITH_INV || e->wr_opcode == IBV_WR_ATOMIC_WRITE;

    return e->check == VB_CHECK_LOCAL_MEMORY_GONE
               ? source
               : e->check == VB_CHECK_MEMORY_GONE && e->wr_opcode == IBV_WR_RDMA_READ;
}

/* What usually is behind it, and what to try. */
static const char *advice(const struct vb_evidence *e)
{
    switch (e->check & ~(unsigned)(VB_CHECK_LOCAL | VB_CHECK_RECV)) {
    case VB_CHECK_KEY:
        return e->check & (VB_CHECK_LOCAL | VB_CHECK_RECV)
                   ? "Use the lkey of a region that is still registered, and not its rkey"
                   : "Is the region still registered, and is it the right side's key?";
    case VB_CHECK_PD:
        return "Register the region in the QP's protection domain";
    case VB_CHECK_RANGE:
        return "Compare address and length with what was registered";
    case VB_CHECK_ACCESS:
        return "Register the region with that access";
    default:
        break;
    }
    switch (e->check) {
    case VB_CHECK_QP_ACCESS:
        return "Set it when that QP goes to INIT";
    case VB_CHECK_ALIGNMENT:
        return "Atomics work on 8 bytes at a multiple of 8";
    case VB_CHECK_RECV_TOO_SHORT:
        return e->type == IBV_QPT_UD ? "Post receives that are 40 bytes longer than the message"
                                     : "Post longer receives, or send less";
    case VB_CHECK_RNR:
        return "Post receives before the sender sends, or raise rnr_retry (7 waits for ever) or "
               "min_rnr_timer";
    case VB_CHECK_PEER_DIED:
        return "Look at why it ended; a new connection needs a new QP, or this one reset";
    case VB_CHECK_MEMORY_GONE:
    case VB_CHECK_LOCAL_MEMORY_GONE:
    case VB_CHECK_RECV_MEMORY_GONE:
        return e->count
                   ? "Deregister a region before its memory goes, and register what took its place"
               : is_read_from(e)
                   ? "Was it unmapped or protected (PROT_NONE)? Deregister a region before its "
                     "memory goes"
                   : "Was it unmapped or made read-only? Deregister a region before its memory "
                     "goes";
    case VB_CHECK_RD_ATOMIC:
        return e->status == IBV_WC_LOC_QP_OP_ERR ? "Set it when this QP goes to RTS"
                                                 : "Set it when that QP goes to RTR";
    case VB_CHECK_TOO_LONG:
        return "Split it";
    case VB_CHECK_ATOMIC_LENGTH:
        return "Give it an element of 8 bytes";
    case VB_CHECK_CQ_OVERRUN:
        return "Make it as long as all that completes before it is polled";
    case VB_CHECK_NO_ROOM:
        return "Free memory, or lift `ulimit -v`";
    case VB_CHECK_REFUSED:
        return "Its completions and events say more";
    case VB_CHECK_BAD_RESPONSE:
    case VB_CHECK_BAD_SEQUENCE:
    case VB_CHECK_BAD_LENGTH:
        return may_be_the_mtu(e)
                   ? "Do both sides have one path MTU? A capture (`VERBENA_CAPTURE`) shows the "
                     "packets"
                   : "That breaks the protocol: a capture (`VERBENA_CAPTURE`) shows the packets";
    case VB_CHECK_TOO_MANY_READS:
        return "max_rd_atomic of the requester may not be more than that";
    default:
        return NULL;
    }
}

static void say_advice(struct vb_text *text, const struct vb_evidence *e)
{
    const char *sentence = advice(e);

    if (e->check == VB_CHECK_NO_ANSWER || e->check == VB_CHECK_SEQUENCE_RETRIES ||
        e->check == VB_CHECK_OTHER_BUILD)
        vb_silence_advise(text, e);
    else if (sentence)
        vb_text_add(text, ". %s%s", sentence, sentence[strlen(sentence) - 1] == '?' ? "" : ".");
}

static void say_flushed(struct vb_text *text, const struct vb_view *view,
                        const struct vb_evidence *e)
{
    struct vb_evidence first;

    vb_text_add(text, "QP 0x%x was in %s before this request's turn came", e->qp_num,
                vb_state_name(e->next_state));
    if (e->count == VB_FLUSH_PROGRAM) {
        vb_text_add(text, ": the program moved it there (modify_qp)");
    } else if (e->count == VB_FLUSH_FAILED && vb_evidence_get(view, e->key, &first)) {
        vb_text_add(text, "; what failed first: ");
        say_check(text, &first);
        say_advice(text, &first);
    } else {
        vb_text_add(text, ": the first completion with another status, or an asynchronous event, "
                          "says why");
    }
}

/* Queues and timers of the QP when the check failed, and where it went. */
static void say_numbers(struct vb_text *text, const struct vb_evidence *e)
{
    bool responder = e->side == VB_SIDE_RESPONDER;

    if (e->check == VB_CHECK_FLUSHED && e->to_itself)
        vb_text_add(text, " [QP 0x%x, connected to itself]", e->qp_num);
    if (!e->next_state || e->check == VB_CHECK_FLUSHED)
        return;
    vb_text_add(text, " [QP 0x%x to %s", responder ? e->peer_qp_num : e->qp_num,
                vb_state_name(e->next_state));
    if (e->to_itself)
        vb_text_add(text, ", connected to itself");
    if (e->sq_room && !responder)
        vb_text_add(text, "; send queue %u of %u", e->sq_used, e->sq_room);
    if (e->rq_room)
        vb_text_add(text, "; %s receive queue %u of %u", responder ? "its" : "the peer's",
                    e->rq_used, e->rq_room);
    if (e->rq_room && e->type == IBV_QPT_RC && !responder)
        vb_text_add(text, ", min_rnr_timer %u", e->min_rnr_timer);
    if (e->type == IBV_QPT_RC && !responder)
        vb_text_add(text, "; timeout %u (%" PRIu64 " us), retry_cnt %u, rnr_retry %u", e->timeout,
                    e->timeout ? vb_ack_timeout(e->timeout) / 1000 : 0, e->retry_cnt, e->rnr_retry);
    if (e->has_psns && !responder)
        vb_text_add(text, "; retries left %u, for RNR %u; PSN %u unanswered, %u next",
                    e->retry_left, e->rnr_left, e->psn, e->sent_psn);
    else if (e->has_psns)
        vb_text_add(text, "; PSN %u", e->psn);
    vb_text_add(text, "]");
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
