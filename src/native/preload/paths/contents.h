// SPDX-License-Identifier: Apache-2.0
/* What the tree holds: the sysfs files and device files of one RoCE device. */
#ifndef VB_PRELOAD_PATHS_CONTENTS_H
#define VB_PRELOAD_PATHS_CONTENTS_H

#include <stdbool.h>

struct vb_tree;

/* False when out of memory. */
bool vb_preload_contents_add(struct vb_tree *tree);

#endif
