// SPDX-License-Identifier: Apache-2.0
/* The table of processes with another layout of the segment (other_build.h), under peers_mutex. */
#include "direct/other_build.h"

#include <errno.h>

#include "direct/direct.h"
#include "hca/decline.h"
#include "hca/names.h"
#include "hca/refusal.h"
#include "hca/sentences.h"

static struct vb_other_build *at_slot(struct vb_direct *direct, uint32_t slot)
{
    for (uint32_t i = 0; i < VB_OTHER_BUILDS && slot; ++i)
        for (uint32_t k = 0; k < VB_MAX_SLOTS; ++k)
            if (direct->other_builds[i].slots[k] == slot)
                return &direct->other_builds[i];
    return NULL;
}

/* A slot number is of VB_SLOTS in every layout so far; others are numbers that nobody asks for. */
void vb_direct_other_build_note(struct vb_direct *direct, const struct vb_message *hello)
{
    struct vb_other_build *entry;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, hello->hello.slots[0]);
    if (!entry) {
        entry = &direct->other_builds[direct->other_build_next++ % VB_OTHER_BUILDS];
        entry->logged = false;
    }
    memcpy(entry->slots, hello->hello.slots, sizeof(entry->slots));
    entry->layout = hello->hello.version;
    memcpy(&entry->package, hello->package, sizeof(entry->package));
    vb_lock_release(&direct->peers_mutex);
}

void vb_direct_other_build_forget(struct vb_direct *direct, uint32_t slot)
{
    struct vb_other_build *entry;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, slot);
    if (entry)
        memset(entry, 0, sizeof(*entry));
    vb_lock_release(&direct->peers_mutex);
}

bool vb_direct_other_build_find(struct vb_direct *direct, uint32_t qp_num,
                                struct vb_other_build *found)
{
    const struct vb_other_build *entry;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, qp_num / VB_QPS_PER_SLOT % VB_SLOTS);
    if (entry)
        *found = *entry;
    vb_lock_release(&direct->peers_mutex);
    return entry != NULL;
}

static bool find_peer(const struct vb_qp *qp, struct vb_other_build *found)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);

    return vb_direct_is_local(direct, &qp->verbs->attr.ah_attr) &&
           vb_direct_other_build_find(direct, vb_qp_dest(qp->shared), found);
}

int vb_direct_other_build_check(struct vb_qp *qp)
{
    struct vb_other_build other;

    if (!find_peer(qp, &other))
        return 0;
    return vb_decline(qp->context, -EPROTONOSUPPORT,
                      "QP {0x} belongs to a process of this host with another build of Verbena: "
                      "{1v} with memory layout {2}, while this process has version " VERBENA_VERSION
                      " with layout {3}. Install one build for both, or let both send packets "
                      "(VERBENA_CARRIER=roce)",
                      vb_qp_dest(qp->shared), other.package, other.layout, VB_LAYOUT_VERSION);
}

VB_COLD bool vb_direct_other_build_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                          struct vb_outcome *outcome)
{
    struct vb_other_build other;
    struct vb_evidence evidence = {.check = VB_CHECK_OTHER_BUILD};

    if (!find_peer(qp, &other))
        return false;
    evidence.addr = other.package;
    evidence.count = other.layout;
    vb_refuse(qp, wr, IBV_WC_RETRY_EXC_ERR, &evidence, outcome);
    return true;
}

/* True once for each process of another build. */
static bool other_build_is_news(struct vb_direct *direct, uint32_t qp_num,
                                struct vb_other_build *found)
{
    struct vb_other_build *entry;
    bool news;

    vb_lock_take(&direct->peers_mutex);
    entry = at_slot(direct, qp_num / VB_QPS_PER_SLOT % VB_SLOTS);
    news = entry && !entry->logged;
    if (news) {
        entry->logged = true;
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

void vb_direct_other_build_log(const struct vb_qp *qp, uint32_t dest)
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_direct *direct = vb_direct_of(adapter);
    struct vb_evidence evidence = {.check = VB_CHECK_OTHER_BUILD, .peer_qp_num = dest};
    struct vb_other_build other;
    char line[512];
    struct vb_text text = {line, sizeof(line), 0};

    if (!adapter->tell || !is_of_this_host(direct, qp) ||
        !other_build_is_news(direct, dest, &other))
        return;
    evidence.addr = other.package;
    evidence.count = other.layout;
    vb_text_add(&text, "what QP 0x%x sends is lost: ", qp->number);
    vb_sentence_say(&text, VB_CHECK_OTHER_BUILD, &evidence);
    vb_sentence_say(&text, (unsigned)VB_CHECK_OTHER_BUILD | VB_SENTENCE_ADVICE, &evidence);
    adapter->tell(line);
}

void vb_direct_other_build_describe(struct vb_direct *direct, struct vb_text *text)
{
    const char *between = "";

    vb_text_add(text, "\"other_builds\":[");
    vb_lock_take(&direct->peers_mutex);
    for (uint32_t i = 0; i < VB_OTHER_BUILDS; ++i) {
        const struct vb_other_build *entry = &direct->other_builds[i];

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
