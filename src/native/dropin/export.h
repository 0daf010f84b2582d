// SPDX-License-Identifier: Apache-2.0
#ifndef VB_DROPIN_EXPORT_H
#define VB_DROPIN_EXPORT_H

/* In libibverbs.map too, or it stays hidden all the same. */
#define VB_EXPORT __attribute__((visibility("default")))

#endif
