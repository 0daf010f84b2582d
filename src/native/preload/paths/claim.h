// SPDX-License-Identifier: Apache-2.0
/* Which of a program's paths and descriptors are ours. */
#ifndef VB_PRELOAD_PATHS_CLAIM_H
#define VB_PRELOAD_PATHS_CLAIM_H

#include <stdbool.h>
#include <sys/stat.h>

#include "preload/paths/tree.h"

/*
 * Whether a path, relative to `dirfd` as in openat(2), leads to a node of ours or an error of ours.
 * If not, hand `place->outside` on to the kernel: a link of ours may have led there.
 */
bool vb_preload_claim(int dirfd, const char *path, bool follow, struct vb_place *place);

/* As vb_preload_claim(), for calls that follow links and have no directory descriptor. */
bool vb_preload_claim_path(const char *path, struct vb_place *place);

/* The node that a descriptor was opened on, or -1. */
int vb_preload_descriptor_node(int fd);

/* The same from what the kernel says about it. */
int vb_preload_stamped_node(const struct stat *stat);

/* Writes a node's number where vb_preload_stamped_node() finds it. False if the file does not take
 * it. */
bool vb_preload_stamp(int fd, int node);

/* The node that is the process's working directory; -1: it is none of ours. */
int vb_preload_working_node(void);
void vb_preload_claim_working_node(int node);

/* Opens a descriptor on a node. Returns it, or -1 with errno. */
int vb_preload_open_node(const struct vb_place *place, int flags);

/* fstatat(2) without us. */
int vb_preload_next_fstatat(int dirfd, const char *path, struct stat *stat, int flags);

/* What stat(2) says about a node. */
void vb_preload_stat_node(int node, struct stat *stat);

#endif
