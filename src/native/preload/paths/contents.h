// SPDX-License-Identifier: Apache-2.0
/*
 * The contents of the tree: the sysfs files and device files of Verbena's devices. tree.c calls
 * this once.
 */
#ifndef VB_PRELOAD_PATHS_CONTENTS_H
#define VB_PRELOAD_PATHS_CONTENTS_H

#include <stdbool.h>

struct vb_tree;

/* Adds them. Returns false when there is no memory. */
bool vb_preload_contents_add(struct vb_tree *tree);

#endif
