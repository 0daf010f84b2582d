// SPDX-License-Identifier: Apache-2.0
/*
 * Directory streams over the tree, behind the C library's type DIR. lists.c opens them for
 * scandir.
 */
#ifndef VB_PRELOAD_PATHS_DIRECTORY_H
#define VB_PRELOAD_PATHS_DIRECTORY_H

#include <dirent.h>

struct vb_place;

/*
 * Opens a stream over a claimed directory. Where the directory is shared, the stream has the host's
 * entries, too. Returns NULL, and sets errno, on failure.
 */
DIR *vb_preload_directory_open(const struct vb_place *place);

#endif
