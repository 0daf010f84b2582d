// SPDX-License-Identifier: Apache-2.0
/*
 * What private.c exports of the queries under another name.
 */
#ifndef VB_DROPIN_QUERY_H
#define VB_DROPIN_QUERY_H

#include "abi/context.h"

/* libibverbs' private ibv_query_gid_type. `type` is as in sysfs: 0 for RoCE v1, 1 for v2. */
int vb_dropin_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                             unsigned int *type);

#endif
