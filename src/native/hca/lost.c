// SPDX-License-Identifier: Apache-2.0
#include "hca/lost.h"

#include "hca/counters.h"
#include "hca/names.h"
#include "hca/qp.h"
#include "hca/text.h"

#define AT(name) (offsetof(struct vb_counters, name) / sizeof(uint64_t))

enum { UNCOUNTED = VB_COUNTER_COUNT }; /* it has not been under way */

static const struct {
    uint32_t counter;
    const char *advice;
} causes[VB_LOST_CAUSES] = {
    [VB_LOST_QKEY] = {AT(drop_qkey),
                      "Send with the qkey that the receiver's program gave its QP in INIT "
                      "(wr.ud.remote_qkey; one with its highest bit set stands for this QP's own)"},
    [VB_LOST_PKEY] = {AT(drop_pkey),
                      "Give both QPs a pkey_index of one partition (their low 15 bits are equal) "
                      "in INIT, and one of them full membership (0x8000)"},
    [VB_LOST_NO_PROCESS] = {AT(drop_no_qp),
                            "Has the peer ended, is it in another network namespace (GID index 1 "
                            "never leaves the host: use 0, or another of `verbena devices`), or is "
                            "the number (wr.ud.remote_qpn) or the GID another one's?"},
    [VB_LOST_UNREACHED] = {AT(drop_no_qp),
                           "It may be stopped, another user's, or have no file descriptor left; "
                           "two users' processes meet only in network namespaces of their own, "
                           "or from two hosts"},
    [VB_LOST_NO_QP] = {AT(drop_no_qp), "Compare wr.ud.remote_qpn with the number that the peer "
                                       "told, and has it destroyed the QP?"},
    [VB_LOST_TYPE] = {AT(drop_transport), "Datagrams go to QPs of type UD"},
    [VB_LOST_STATE] = {AT(drop_state), "A UD QP receives from RTR on"},
    [VB_LOST_ADDRESS] = {UNCOUNTED, "Compare grh.dgid with the peer's GID, or let the device send "
                                    "packets (VERBENA_CARRIER)"},
    [VB_LOST_SOURCE] = {UNCOUNTED, "Create the address handle with sgid_index 0 or another of "
                                   "`verbena devices`, but not 1, which never leaves the host"},
    [VB_LOST_PORT] = {AT(drop_no_qp),
                      "Compare the address handle (dlid) with the LID and the link layer of the "
                      "port that the receiver's program gave its QP in INIT (port_num)"},
    [VB_LOST_NO_RECEIVE] = {AT(drop_no_receive), ""},
};

static void say_cause(struct vb_text *text, const struct vb_lost *lost)
{
    switch (lost->cause) {
    case VB_LOST_QKEY:
        vb_text_add(text, "it has the Q_Key 0x%x, and the QP's is 0x%x", lost->value, lost->wanted);
        break;
    case VB_LOST_PKEY:
        vb_text_add(text, "it has the P_Key 0x%04x, and the QP's is 0x%04x: %s", lost->value,
                    lost->wanted, vb_pkeys_differ((uint16_t)lost->value, (uint16_t)lost->wanted));
        break;
    case VB_LOST_NO_PROCESS:
        vb_text_add(text, "no process of this host has that number");
        break;
    case VB_LOST_UNREACHED:
        vb_text_add(text, "its process cannot be met");
        break;
    case VB_LOST_NO_QP:
        vb_text_add(text, "its process has no such QP, or has it in RESET");
        break;
    case VB_LOST_TYPE:
        vb_text_add(text, "that is of type %s", vb_type_name(lost->value));
        break;
    case VB_LOST_STATE:
        vb_text_add(text, "that is in %s", vb_state_name(lost->value));
        break;
    case VB_LOST_PORT:
        vb_text_add(text, "that uses another port than the address leads to");
        break;
    case VB_LOST_ADDRESS:
        vb_text_add(text, "its address is none of this host's, and no packets are sent");
        break;
    default:
        vb_text_add(text, "no packet can come from GID index %u", lost->value);
    }
}

/* True once for each cause and QP. */
static bool lost_is_news(struct vb_qp *qp, enum vb_lost_cause cause)
{
    uint16_t bit = (uint16_t)(1u << cause);

    return !(atomic_fetch_or(&qp->verbs->told_lost, bit) & bit);
}

void vb_lost_tell(struct vb_qp *qp, const struct vb_lost *lost)
{
    struct vb_adapter *adapter = qp->context->adapter;
    char line[640];
    struct vb_text text = {line, sizeof(line), 0};

    if (!adapter->tell || lost->cause == VB_LOST_NO_RECEIVE || !lost_is_news(qp, lost->cause))
        return;
    vb_text_add(&text, "a datagram of QP 0x%x to QP 0x%x is lost: ", lost->from, lost->to);
    say_cause(&text, lost);
    vb_text_add(&text, "; more of them are lost without a line. %s", causes[lost->cause].advice);
    adapter->tell(line);
}

void vb_lost_direct(struct vb_qp *qp, const struct vb_lost *lost)
{
    atomic_fetch_add(&qp->context->adapter->lost[lost->cause], 1);
    vb_lost_tell(qp, lost);
}

uint64_t vb_lost_counted(const struct vb_adapter *adapter, uint32_t counter)
{
    uint64_t sum = 0;

    for (int cause = 0; cause < VB_LOST_CAUSES; ++cause)
        if (causes[cause].counter == counter)
            sum += atomic_load(&adapter->lost[cause]);
    return sum;
}
