// SPDX-License-Identifier: Apache-2.0
/*
 * An XRC request whose target QP is one process's and whose SRQ is another's (hca/xrc.h). The
 * requester's thread reaches both: it looks at the target QP in the first, and carries the request
 * out in the second, through the SRQ's proxy: a hidden target QP that always names this SRQ.
 */
#ifndef VB_DIRECT_XRC_PROXY_H
#define VB_DIRECT_XRC_PROXY_H

#include "direct/connection.h"

/*
 * Under the QP's sq_lock, with its peer there. VB_CHECK_OK: `proxy` is the connection for this
 * request, with the proxy as its other end; what fails the other end fails `to`'s. What the request
 * has taken of the SRQ when it has to wait serves the next one that uses the proxy.
 */
enum vb_check vb_direct_xrc_proxy_enter(struct vb_connection *to, uint32_t srq_num,
                                        struct vb_connection *proxy);
void vb_direct_xrc_proxy_leave(struct vb_connection *proxy);

#endif
