// SPDX-License-Identifier: Apache-2.0
/* Directory streams over the tree, behind the C library's type DIR. */
#ifndef VB_PRELOAD_PATHS_DIRECTORY_H
#define VB_PRELOAD_PATHS_DIRECTORY_H

#include <dirent.h>

struct vb_place;

/*
 * A stream over a claimed directory, with what the host has there too where the directory is
 * shared. NULL with errno.
 */
DIR *vb_preload_directory_open(const struct vb_place *place);

#endif
