// SPDX-License-Identifier: Apache-2.0
/*
 * The binary interface of libibverbs.so.1 on 64-bit Linux, written anew: the types and functions of
 * rdma-core's <infiniband/verbs.h>, with the fields of its newest release at the ends that grow.
 * All rooms include this one and never rdma-core's header beside it. tests/abi compares the two.
 */
#ifndef VB_ABI_VERBS_H
#define VB_ABI_VERBS_H

#include "abi/address.h"
#include "abi/calls.h"
#include "abi/completion.h"
#include "abi/context.h"
#include "abi/device.h"
#include "abi/flow.h"
#include "abi/memory.h"
#include "abi/queue.h"
#include "abi/request.h"
#include "abi/sizes.h"

#endif
