// SPDX-License-Identifier: Apache-2.0
/* What a program's user is told once, on stderr, about what it looked for. */
#ifndef VB_PRELOAD_PATHS_ANNOUNCE_H
#define VB_PRELOAD_PATHS_ANNOUNCE_H

/* A file could not be opened, with this errno, which stays: is it one that programs need? */
void vb_preload_announce_missing(const char *path);

#endif
