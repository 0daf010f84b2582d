// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors 0, 1 and 2 are the program's standard streams, also while it has them closed: what it
 * prints must not reach a file or socket of the library. Whoever opens or receives a descriptor
 * passes it through here before it uses it.
 */
#ifndef VB_MEMORY_DESCRIPTOR_H
#define VB_MEMORY_DESCRIPTOR_H

/* The same file under a number of 3 or more, closed on exec if it had to move. -1 stays -1; -1 and
 * errno where no number is left, and then `fd` is closed. */
int vb_memory_descriptor_raise(int fd);
/* A pipe's reading and writing end, closed on exec. 0, or -errno. */
int vb_memory_descriptor_pipe(int ends[2]);

#endif
