// SPDX-License-Identifier: Apache-2.0
/*
 * Processes of this host that use another build of Verbena, whose segments have another layout.
 * They cannot be reached directly; what they said of themselves in the handshake is kept, so that a
 * QP that is connected to one fails at once and names both builds, and the log says what UD and UC
 * lose.
 */
#ifndef VB_DIRECT_OTHER_BUILD_H
#define VB_DIRECT_OTHER_BUILD_H

#include "direct/message.h"
#include "hca/qp.h"
#include "hca/text.h"

struct vb_direct;

enum { VB_OTHER_BUILDS = 16 }; /* the last so many */

struct vb_other_build {
    uint32_t slots[VB_MAX_SLOTS]; /* all 0: the entry is free */
    uint32_t layout;
    uint64_t package; /* as vb_message.package; 0: a build that did not say */
    bool logged;      /* a line said that what UD and UC send there is lost */
};

/* Takes direct->peers_mutex, as the others. */
void vb_direct_other_build_note(struct vb_direct *direct, const struct vb_message *hello);
/* The slot's process is another one, or none. */
void vb_direct_other_build_forget(struct vb_direct *direct, uint32_t slot);
bool vb_direct_other_build_find(struct vb_direct *direct, uint32_t qp_num,
                                struct vb_other_build *found);

/* -EPROTONOSUPPORT with the reason, for modify_qp; 0 if the peer is none that is known. */
int vb_direct_other_build_check(struct vb_qp *qp);
/* A request to such a peer ends with it; false: the peer is none. */
bool vb_direct_other_build_refuse(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                  struct vb_outcome *outcome);

/* UD or UC sends to `dest` and reaches no process: if one of another build has it, that is logged,
 * in one line for each such process. */
void vb_direct_other_build_log(const struct vb_qp *qp, uint32_t dest)
    __attribute__((cold, noinline));
/* A member `"other_builds":[...]` of a JSON object, with those that are known. */
void vb_direct_other_build_describe(struct vb_direct *direct, struct vb_text *text);

#endif
