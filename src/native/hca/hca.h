// SPDX-License-Identifier: Apache-2.0
/*
 * All objects of the adapter in one include, for the rooms above that create and use every kind.
 * Files of this room include what they need instead.
 */
#ifndef VB_HCA_HCA_H
#define VB_HCA_HCA_H

#include "hca/adapter.h"
#include "hca/ah.h"
#include "hca/channel.h"
#include "hca/cq.h"
#include "hca/dm.h"
#include "hca/event.h"
#include "hca/evidence.h"
#include "hca/host_calls.h"
#include "hca/mr.h"
#include "hca/multicast.h"
#include "hca/mw.h"
#include "hca/pd.h"
#include "hca/qp.h"
#include "hca/srq.h"
#include "hca/xrc.h"

#endif
