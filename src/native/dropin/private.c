// SPDX-License-Identifier: Apache-2.0
/*
 * Symbols that provider libraries (libmlx5, libefa, …) need from libibverbs besides the public
 * calls. Programs link the providers, and the dynamic linker binds every symbol when it loads
 * them. None is called, because the providers find that a device of Verbena's is not theirs.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "abi/calls.h"
#include "dropin/export.h"
#include "dropin/query.h"
#include "dropin/strings.h"

VB_EXPORT bool vb_stub_data;

VB_EXPORT int vb_dropin_stub_error(void)
{
    return EOPNOTSUPP;
}

VB_EXPORT int vb_dropin_stub_minus1(void)
{
    errno = EOPNOTSUPP;
    return -1;
}

VB_EXPORT void *vb_dropin_stub_null(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

VB_EXPORT void vb_dropin_stub_void(void)
{
}

VB_EXPORT int vb_dropin_private_ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
                                                   unsigned int index, unsigned int *type)
{
    return vb_dropin_query_gid_type(context, port_num, index, type);
}

VB_EXPORT const char *vb_dropin_private_ibv_wr_opcode_str(enum ibv_wr_opcode opcode)
{
    return vb_dropin_wr_opcode_str(opcode);
}

/* A symbol gets its versions in the file that defines it. */
#define VB_VERSION(target, name, version) __asm__(".symver " #target ", " #name version);

#include "dropin/private_symbols.h"
