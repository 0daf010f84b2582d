// SPDX-License-Identifier: Apache-2.0
/*
 * What `verbena run` keeps of the programs that it starts: a byte for each thing that one of them
 * has done, in a memory file that they inherit, so that the first of them can say at its end that
 * none used the device. libibverbs.so.1 and the preload library set bytes.
 *
 * VERBENA_RUN names the file: the first process, its descriptor, the file's inode. Who has closed
 * the descriptor finds it in the first process; who finds it nowhere sets nothing.
 */
#ifndef VB_PORT_RUN_NOTE_H
#define VB_PORT_RUN_NOTE_H

#include <stdbool.h>

enum vb_run_note { VB_NOTE_DEVICE, VB_NOTE_NETWORK, VB_NOTES };

/* Once in a process is enough. errno stays. */
void vb_port_run_note_set(enum vb_run_note note);
/* Is this the first process, and was `note` set by any? False also where the file is gone. */
bool vb_port_run_note_is_set(enum vb_run_note note);
/* Is this the process that `verbena run` has become, with its file? */
bool vb_port_run_note_is_first(void);

#endif
