// SPDX-License-Identifier: Apache-2.0
/*
 * Regions whose memory the program has unmapped or replaced since it registered them. A hardware
 * adapter would have pinned the old pages. Here other memory may be at the old addresses, which no
 * request may touch: a request that needs an unmapped page of its region ends with
 * VB_CHECK_MEMORY_GONE, and one that needs none is carried out.
 *
 * The host hears of changes to the program's mappings (memory/watch.h) and calls vb_gone_mapping,
 * in the thread that makes the change. Other regions pay nothing for this: VB_PD_GONE makes the
 * comparison of domains in vb_mr_check fail, and only then is the region's map of pages looked at.
 * It lies in the segment, since peers look at it too. Two kinds are left out: regions on demand,
 * which follow their addresses to whatever is mapped there as with a hardware adapter, and memory
 * of the shared heap, which can be reached through its file.
 */
#ifndef VB_HCA_GONE_H
#define VB_HCA_GONE_H

#include "hca/mr.h"
#include "memory/watch.h"

/* A region was registered, or is about to be deregistered. Both do nothing unless the process is
 * watched. */
void vb_gone_enter(struct vb_mr *mr);
void vb_gone_leave(struct vb_mr *mr);
/* Frees the map of a region that has no key any more and that no request uses. */
void vb_gone_forget(struct vb_mr *mr);

/*
 * The program changes its mapping of [at, +n), as enum vb_mapping says. Returns true if a region is
 * there. Before a change (and for VB_MAPPING_FREED, before a possible one) it returns when payloads
 * that have arrived for regions there are in their buffers; for VB_MAPPING_GOES, when besides no
 * request uses the memory or will use it.
 */
bool vb_gone_mapping(struct vb_adapter *adapter, uintptr_t at, size_t n, enum vb_mapping change);

/* The check that all of [addr, +length), in the owner's addresses, is still mapped as it was when
 * the region was registered. For an entry with VB_PD_GONE, in the segment of any process. */
enum vb_check vb_gone_check(const struct vb_view *view, const struct vb_mr_shared *mr,
                            uint64_t addr, uint64_t length);

#endif
