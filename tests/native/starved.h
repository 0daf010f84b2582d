// SPDX-License-Identifier: Apache-2.0
/*
 * Allocations that fail when a test says so. The linker puts the functions of starved.c before the
 * C library's in the programs that tests/native/CMakeLists.txt names for it. They are those of the
 * thread that says so.
 */
#ifndef VB_TESTS_STARVED_H
#define VB_TESTS_STARVED_H

#include <stdbool.h>

/* After so many more allocations one fails, and then none. */
void starved_after(int allocations);
/* No allocation fails from now on. Returns whether the one that was to fail has been asked for. */
bool starved_end(void);
/* Allocations that were not freed. */
long starved_blocks(void);

#endif
