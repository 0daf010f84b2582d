// SPDX-License-Identifier: Apache-2.0
/*
 * Regions whose memory the program has unmapped, or replaced, since it registered them. An adapter
 * would still have the old pages. Here the old addresses may be other memory's by now, which no
 * request may touch: a request that meets a page that went ends with VB_CHECK_MEMORY_GONE, and one
 * that does not is carried out.
 *
 * The port hears of the program's mappings (memory/watch.h) and passes it on. A region that lost
 * nothing costs its users nothing: VB_PD_GONE makes the comparison of domains in vb_mr_check fail,
 * and only then is the region's map of pages looked at, which is in the segment, since peers look
 * at it too. Regions on demand follow their addresses to whatever is mapped there (an adapter's do
 * as well), and memory of the shared heap stays reachable through its file: both are left out.
 */
#ifndef VB_HCA_GONE_H
#define VB_HCA_GONE_H

#include "hca/mr.h"
#include "memory/watch.h"

/* A region was entered, or is about to leave; both only where the process is watched. */
void vb_gone_enter(struct vb_mr *mr);
void vb_gone_leave(struct vb_mr *mr);
/* The region has a key no more and nobody still uses its map: frees that. */
void vb_gone_forget(struct vb_mr *mr);

/*
 * The program changes its mapping of [at, +n): see enum vb_mapping. True if a region is there. Of
 * what is about to happen (or may, VB_MAPPING_FREED) this returns when what has arrived for regions
 * there is in them, and of VB_MAPPING_GOES when no request touches the memory any more, or will.
 */
bool vb_gone_mapping(struct vb_adapter *adapter, uintptr_t at, size_t n, enum vb_mapping change);

/* Is all of [addr, +length), addresses of the owner's, still what the region was made of? Of an
 * entry with VB_PD_GONE, in any process's segment. */
enum vb_check vb_gone_check(const struct vb_view *view, const struct vb_mr_shared *mr,
                            uint64_t addr, uint64_t length);

#endif
