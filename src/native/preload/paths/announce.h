// SPDX-License-Identifier: Apache-2.0
/*
 * Lines on stderr about what a program looked for and did not find. open.c calls this.
 */
#ifndef VB_PRELOAD_PATHS_ANNOUNCE_H
#define VB_PRELOAD_PATHS_ANNOUNCE_H

/* A file could not be opened. If programs need that file, a line says so at the program's end.
 * errno has the reason, and stays. */
void vb_preload_announce_missing(const char *path);

#endif
