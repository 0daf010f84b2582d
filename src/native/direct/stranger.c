// SPDX-License-Identifier: Apache-2.0
#include "direct/stranger.h"

#include <errno.h>

#include "direct/direct.h"
#include "hca/decline.h"
#include "hca/names.h"
#include "hca/refusal.h"
#include "hca/sentences.h"

static struct vb_stranger *at_slot(struct vb_direct *direct, uint32_t slot)
{
    for (uint32_t i = 0; i < VB_STRANGERS && slot; ++i)
        for (uint32_t k = 0; k < VB_MAX_SLOTS; ++k)
            if (direct->strangers[i].slots[k] == slot)
                return &direct->strangers[i];
    return NULL;
}

/* A slot number is of VB_SLOTS in every layout so far; others are numbers that nobody asks for. */
void vb_direct_stranger_note(struct vb_direct *direct, const struct vb_message *hello)
{
    struct vb_stranger *entry;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, hello->hello.slots[0]);
    if (!entry) {
        entry = &direct->strangers[direct->stranger_next++ % VB_STRANGERS];
        entry->told = false;
    }
    memcpy(entry->slots, hello->hello.slots, sizeof(entry->slots));
    entry->layout = hello->hello.version;
    memcpy(&entry->package, hello->package, sizeof(entry->package));
    vb_lock_release(&direct->peers_mutex);
}

void vb_direct_stranger_forget(struct vb_direct *direct, uint32_t slot)
{
    struct vb_stranger *entry;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, slot);
    if (entry)
        memset(entry, 0, sizeof(*entry));
    vb_lock_release(&direct->peers_mutex);
}

bool vb_direct_stranger_find(struct vb_direct *direct, uint32_t qp_num, struct vb_stranger *found)
{
    const struct vb_stranger *entry;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, qp_num / VB_QPS_PER_SLOT % VB_SLOTS);
    if (entry)
        *found = *entry;
    vb_lock_release(&direct->peers_mutex);
    return entry != NULL;
}

static bool find_peer(const struct vb_qp *qp, struct vb_stranger *found)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);

    return vb_direct_is_local(direct, &qp->verbs->attr.ah_attr) &&
           vb_direct_stranger_find(direct, vb_qp_dest(qp->shared), found);
}

int vb_direct_stranger_check(struct vb_qp *qp)
{
    struct vb_stranger stranger;

    if (!find_peer(qp, &stranger))
        return 0;
    return vb_decline(qp->context, -EPROTONOSUPPORT,
                      "QP {0x} belongs to a process of this host with another build of Verbena: "
                      "{1v} with memory layout {2}, while this process has version " VERBENA_VERSION
                      " with layout {3}. Install one build for both, or let both send packets "
                      "(VERBENA_CARRIER=roce)",
                      vb_qp_dest(qp->shared), stranger.package, stranger.layout, VB_LAYOUT_VERSION);
}

VB_COLD bool vb_direct_stranger_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                       struct vb_outcome *outcome)
{
    struct vb_stranger stranger;
    struct vb_evidence evidence = {.check = VB_CHECK_OTHER_BUILD};

    if (!find_peer(qp, &stranger))
        return false;
    evidence.addr = stranger.package;
    evidence.count = stranger.layout;
    vb_refuse(qp, wr, IBV_WC_RETRY_EXC_ERR, &evidence, outcome);
    return true;
}

/* True once for each process of another build. */
static bool stranger_is_news(struct vb_direct *direct, uint32_t qp_num, struct vb_stranger *found)
{
    struct vb_stranger *entry;
    bool news;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, qp_num / VB_QPS_PER_SLOT % VB_SLOTS);
    news = entry && !entry->told;
    if (news) {
        entry->told = true;
        *found = *entry;
    }
    vb_lock_release(&direct->peers_mutex);
    return news;
}

/* UD's addresses were looked at before. */
static bool is_of_this_host(struct vb_direct *direct, const struct vb_qp *qp)
{
    return qp->type == IBV_QPT_UD || vb_direct_is_local(direct, &qp->verbs->attr.ah_attr);
}

void vb_direct_stranger_tell(const struct vb_qp *qp, uint32_t dest)
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_direct *direct = vb_direct_of(adapter);
    struct vb_evidence evidence = {.check = VB_CHECK_OTHER_BUILD, .peer_qp_num = dest};
    struct vb_stranger stranger;
    char line[512];
    struct vb_text text = {line, sizeof(line), 0};

    if (!adapter->tell || !is_of_this_host(direct, qp) ||
        !stranger_is_news(direct, dest, &stranger))
        return;
    evidence.addr = stranger.package;
    evidence.count = stranger.layout;
    vb_text_add(&text, "what QP 0x%x sends is lost: ", qp->number);
    vb_sentence_say(&text, VB_CHECK_OTHER_BUILD, &evidence);
    vb_sentence_say(&text, (unsigned)VB_CHECK_OTHER_BUILD | VB_SENTENCE_ADVICE, &evidence);
    adapter->tell(line);
}

void vb_direct_stranger_describe(struct vb_direct *direct, struct vb_text *text)
{
    const char *between = "";

    vb_text_add(text, "\"other_builds\":[");
    vb_lock_take(&direct->peers_mutex);
    for (uint32_t i = 0; i < VB_STRANGERS; ++i) {
        const struct vb_stranger *entry = &direct->strangers[i];

        if (!entry->slots[0])
            continue;
        vb_text_add(text, "%s{\"slot\":%u,\"build\":\"", between, entry->slots[0]);
        vb_say_version(text, entry->package);
        vb_text_add(text, " with memory layout %u\"}", entry->layout);
        between = ",";
    }
    vb_lock_release(&direct->peers_mutex);
    vb_text_add(text, "]");
}
