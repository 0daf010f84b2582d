// SPDX-License-Identifier: Apache-2.0
/*
 * Which of a program's paths and descriptors lead to files of Verbena's. Every interposed call
 * asks here first.
 */
#ifndef VB_PRELOAD_PATHS_CLAIM_H
#define VB_PRELOAD_PATHS_CLAIM_H

#include <stdbool.h>
#include <sys/stat.h>

#include "preload/paths/tree.h"

/*
 * Does a path, relative to `dirfd` as in openat(2), lead to a node of the tree, or nowhere within
 * the tree? If not, the caller passes `place->outside` to the kernel: a link of the tree may have
 * led there.
 */
bool vb_preload_claim(int dirfd, const char *path, bool follow, struct vb_place *place);

/* As vb_preload_claim(), for calls that follow links and have no directory descriptor. */
bool vb_preload_claim_path(const char *path, struct vb_place *place);

/* Returns the node that a descriptor was opened on, or -1. */
int vb_preload_descriptor_node(int fd);

/* The same from what the kernel says about the descriptor. */
int vb_preload_stamped_node(const struct stat *stat);

/* Writes a node's number where vb_preload_stamped_node() finds it. False if the file does not take
 * it. */
bool vb_preload_stamp(int fd, int node);
/* The same for a socket that stands for a node. */
bool vb_preload_stamp_socket(int fd, int node);

/* Returns the node that is the process's working directory, or -1 if it is not in the tree. */
int vb_preload_working_node(void);
void vb_preload_claim_working_node(int node);

/* Opens a descriptor on a node. Returns it, or -1 with errno. */
int vb_preload_open_node(const struct vb_place *place, int flags);

/* Calls the fstatat(2) that this library stands in front of. */
int vb_preload_next_fstatat(int dirfd, const char *path, struct stat *stat, int flags);

/* Fills what stat(2) says about a node. */
void vb_preload_stat_node(int node, struct stat *stat);

#endif
