// SPDX-License-Identifier: Apache-2.0
/*
 * P_Key tables as VERBENA_PKEYS writes them: "0xffff,0x8001,0x0002". The libibverbs and the
 * preloaded sysfs files both read them here, so that they agree.
 */
#ifndef VB_PORT_PKEYS_H
#define VB_PORT_PKEYS_H

#include "hca/adapter_port.h"

#define VB_PKEYS_WANTED                                                                            \
    "it may be up to 32 numbers from 0x0001 to 0xffff with commas between, as 0xffff,0x8001: "     \
    "0x8000 added makes a full member of the partition, and 0x8000 alone is none"

/* Fills all entries, those without a number with 0. -EINVAL: VB_PKEYS_WANTED, and nothing has
 * changed. NULL and "" stand for the default partition alone. */
int vb_pkeys_parse(const char *text, uint16_t pkeys[VB_MAX_PKEYS]);

#endif
