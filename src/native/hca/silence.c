// SPDX-License-Identifier: Apache-2.0
#include "hca/silence.h"

#include <inttypes.h>

#include "hca/adapter_port.h"
#include "hca/names.h"

enum { SMALLEST_MTU = 256 }; /* every path carries it */

/* ---- by packets ---- */

/*
 * Did it still answer while the request was tried, when `microseconds` passed? An acknowledgement
 * of what was before may come once more at their beginning, to tell credits: that is no sign.
 */
static bool is_heard_since(const struct vb_evidence *e)
{
    return e->naks || e->not_ready || e->beyond ||
           (e->silence != VB_HEARD_NOTHING && e->heard_us < e->microseconds / 2);
}

/* Did the peer, from the first request on, expect another PSN than those that came? */
static bool is_other_psn(const struct vb_evidence *e)
{
    return e->silence == VB_HEARD_ACK_UNSENT || e->silence == VB_HEARD_SEQUENCE_NAK_UNSENT;
}

static uint32_t attempts(const struct vb_evidence *e)
{
    return e->timeouts + e->naks + e->not_ready;
}

static void say_attempts(struct vb_text *text, const struct vb_evidence *e)
{
    const struct {
        uint32_t count;
        const char *of;
    } parts[] = {
        {e->timeouts, "timeouts"},
        {e->naks, "sequence errors"},
        {e->beyond, "responses behind the missing one"},
        {e->not_ready, "RNR NAKs"},
    };
    const char *before = ": ";

    vb_text_add(text, " during %" PRIu64 " us and was given up after %u attempts (retry_cnt %u)",
                e->microseconds, attempts(e), e->retry_cnt);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); ++i)
        if (parts[i].count) {
            vb_text_add(text, "%s%u %s", before, parts[i].count, parts[i].of);
            before = ", ";
        }
}

static void say_last_heard(struct vb_text *text, const struct vb_evidence *e)
{
    static const char *const what[] = {
        [VB_HEARD_ACK] = "an acknowledgement up to",
        [VB_HEARD_SEQUENCE_NAK] = "a sequence NAK, which asks for",
        [VB_HEARD_RNR_NAK] = "an RNR NAK of",
        [VB_HEARD_RESPONSE] = "a response with",
        [VB_HEARD_ACK_UNSENT] = "an acknowledgement up to",
        [VB_HEARD_SEQUENCE_NAK_UNSENT] = "a sequence NAK, which asks for",
    };

    if (e->silence == VB_HEARD_NOTHING || e->silence > VB_HEARD_SEQUENCE_NAK_UNSENT)
        vb_text_add(text, "; nothing was ever heard from it");
    else
        vb_text_add(text, "; last heard from it, %u us before the end: %s PSN %u", e->heard_us,
                    what[e->silence], e->heard_psn);
    if (is_other_psn(e))
        vb_text_add(text, ", which this QP never sent");
}

static void say_packets(struct vb_text *text, const struct vb_evidence *e)
{
    if (is_heard_since(e) || is_other_psn(e))
        vb_text_add(text, "QP 0x%x answered, but PSN %u did not get through", e->peer_qp_num,
                    e->psn);
    else
        vb_text_add(text, "QP 0x%x did not answer PSN %u", e->peer_qp_num, e->psn);
    say_attempts(text, e);
    say_last_heard(text, e);
}

static const char *advise_packets(const struct vb_evidence *e)
{
    if (e->silence == VB_HEARD_NOTHING)
        return "It does not exist (or no more), is not in RTR or RTS, is connected to another QP, "
               "its process is stopped, or the network does not lead there: compare QP numbers, "
               "GIDs and states on both sides.";
    if (is_other_psn(e) && e->peer_qp_num == e->qp_num)
        return "Its dest_qp_num is its own number, so it is connected to itself, and its packets "
               "meet its own rq_psn, which is not its sq_psn: give it the peer's QP number (or, "
               "where the peer on another host has the same one, compare sq_psn with the peer's "
               "rq_psn).";
    if (is_other_psn(e))
        return "The two sides disagree about this QP's first PSN: compare its sq_psn with the "
               "peer's rq_psn.";
    if (!is_heard_since(e))
        return "It answered before: it has ended, was reset, is in ERR or is stopped, or the "
               "packets "
               "to it or its answers are lost now.";
    if (e->beyond)
        return "Packets from it are lost on the way back, while others arrive: look for a "
               "bottleneck there and in this host's receive buffers (`VERBENA_CAPTURE`), or raise "
               "retry_cnt or timeout.";
    return "Packets to it are lost, while its answers arrive: look for a bottleneck or a rule that "
           "drops them (`VERBENA_CAPTURE`), or raise retry_cnt or timeout.";
}

/* Long packets may vanish where short ones pass (RFC 2923): of a response the last at most. */
static bool may_be_too_long(const struct vb_evidence *e)
{
    return e->has_psns && !is_other_psn(e) && e->length > SMALLEST_MTU && e->beyond <= attempts(e);
}

/* ---- directly ---- */

struct silence {
    const char *fact, *advice;
};

static const struct silence silences[] = {
    [VB_SILENCE_UNKNOWN] = {"", "Compare QP numbers, GIDs and states on both sides."},
    [VB_SILENCE_NOT_HERE] =
        {": its GID is no address of this host, and no packets are sent",
         "Compare the GIDs, or let the device send packets: VERBENA_CARRIER=auto, "
         "and UDP port 4791 free (`verbena info` says why it sends none)."},
    [VB_SILENCE_NO_PROCESS] =
        {": no process of this host has that number",
         "Has the peer ended, is it in another network namespace (GID index 1 "
         "never leaves the host: use 0, or another of `verbena devices`), or "
         "is the number or the GID another one's?"},
    [VB_SILENCE_NO_HANDSHAKE] = {": its process ended the handshake",
                                 "It may be an older build of Verbena, or have no file descriptor "
                                 "or address space left: install one build for both, or raise its "
                                 "limits."},
    [VB_SILENCE_STOPPED] = {": its process does not answer the handshake",
                            "It may be stopped (SIGSTOP, a debugger)."},
    [VB_SILENCE_NO_HELP] = {": its process did not do its part of the copy in time",
                            "It may be stopped (SIGSTOP, a debugger), or short of processor time: "
                            "raise timeout or retry_cnt."},
    [VB_SILENCE_OTHER_USER] = {": its process is another user's",
                               "Run both as one user, or each in a network namespace of its own; "
                               "packets on both sides (VERBENA_CARRIER=roce) do not help, since "
                               "UDP port 4791 is one user's."},
    [VB_SILENCE_NO_QP] =
        {": its process has that QP in RESET, or destroyed it",
         "Connect it before this side sends; if it was reset meanwhile, reset "
         "this QP too. There may be no QP of that number at all: compare it with the "
         "peer's qp_num."},
    [VB_SILENCE_INIT] = {": it is in INIT", "Bring it to RTR before this side sends."},
    [VB_SILENCE_ERR] = {": it is in ERR", "Its first failed completion, or an event, says why."},
    [VB_SILENCE_OTHER_QP] = {": it is connected to QP ",
                             "Compare QP numbers on both sides: each QP has one other end."},
    [VB_SILENCE_TYPE] = {": its type is ", "Make both ends of types that go together."},
    [VB_SILENCE_OTHER_LIFE] = {": it was reset and connected again since this QP's first request",
                               "Reset this QP too, and connect both again."},
    [VB_SILENCE_PORT] = {": it uses another port than the one that the address leads to",
                         "Compare ah_attr (dlid) with the LID and the link layer of the port that "
                         "the peer's program gave its QP in INIT (port_num)."},
    [VB_SILENCE_PKEY] = {": it drops this QP's packets for their P_Key, ",
                         "Give both QPs a pkey_index of one partition (the low 15 bits are equal) "
                         "in INIT, and one of them full membership (0x8000)."},
};

static const struct silence *silence_of(unsigned silence)
{
    return &silences[silence <= VB_SILENCE_PKEY ? silence : VB_SILENCE_UNKNOWN];
}

void vb_silence_say_fact(struct vb_text *text, enum vb_silence silence, uint32_t value)
{
    vb_text_add(text, "%s", silence_of(silence)->fact);
    if (silence == VB_SILENCE_TYPE)
        vb_text_add(text, "%s", vb_type_name(value));
    if (silence == VB_SILENCE_OTHER_QP)
        vb_text_add(text, "0x%x", value);
    if (silence == VB_SILENCE_PKEY)
        vb_text_add(text, "0x%04x, as its own is 0x%04x: %s", value >> 16, value & 0xffff,
                    vb_pkeys_differ((uint16_t)(value >> 16), (uint16_t)value));
}

static void say_direct(struct vb_text *text, const struct vb_evidence *e)
{
    vb_text_add(text, "QP 0x%x did not answer", e->peer_qp_num);
    if (e->microseconds)
        vb_text_add(text, " during %" PRIu64 " us (retry_cnt %u)", e->microseconds, e->retry_cnt);
    vb_silence_say_fact(text, e->silence, e->count);
}

static void say_build(struct vb_text *text, const struct vb_evidence *e)
{
    vb_text_add(text, "QP 0x%x belongs to a process of this host with another build of Verbena: ",
                e->peer_qp_num);
    vb_say_version(text, e->addr);
    vb_text_add(text,
                " with memory layout %u, while this process has version " VERBENA_VERSION
                " with layout %u",
                e->count, VB_LAYOUT_VERSION);
}

void vb_silence_say(struct vb_text *text, const struct vb_evidence *e)
{
    if (e->check == VB_CHECK_OTHER_BUILD)
        say_build(text, e);
    else if (e->has_psns)
        say_packets(text, e);
    else
        say_direct(text, e);
}

void vb_silence_advise(struct vb_text *text, const struct vb_evidence *e)
{
    if (e->check == VB_CHECK_OTHER_BUILD) {
        vb_text_add(text, ". Install one build for both, or let both send packets "
                          "(VERBENA_CARRIER=roce).");
        return;
    }
    vb_text_add(text, ". %s", e->has_psns ? advise_packets(e) : silence_of(e->silence)->advice);
    if (may_be_too_long(e))
        vb_text_add(text, " Packets as long as the path MTU may be what is lost: a smaller "
                          "path_mtu shows it.");
}
