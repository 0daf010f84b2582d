// SPDX-License-Identifier: Apache-2.0
/*
 * After a peer's death: the owner of a segment releases the locks in it that the dead process held,
 * and repairs what they protect. The service thread calls this once for each peer.
 */
#ifndef VB_DIRECT_RECOVER_H
#define VB_DIRECT_RECOVER_H

#include "direct/direct.h"

void vb_direct_recover_from(struct vb_direct *direct, struct vb_peer *peer);

/*
 * A connected QP whose peer died goes to ERR, with QP_FATAL, if the peer had not ended the
 * connection itself. False: its lock was busy, or it is not in RTR yet; try again.
 */
bool vb_direct_recover_qp(struct vb_direct *direct, struct vb_qp *qp);

#endif
