// SPDX-License-Identifier: Apache-2.0
/*
 * The mark of functions that libibverbs.so.1 exports.
 */
#ifndef VB_DROPIN_EXPORT_H
#define VB_DROPIN_EXPORT_H

/* A symbol is exported only if libibverbs.map names it, too. */
#define VB_EXPORT __attribute__((visibility("default")))

#endif
