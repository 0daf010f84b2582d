// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that have waited for a second, which is long: for a receive request of the peer, or for
 * its answer. With rnr_retry 7 or timeout 0 they may wait for ever, and then the program stands
 * still without an error. So each gets a line in the log, and is listed under `waiting` by
 * verbena_describe. The carriers note each wait, under the QP's sq_lock.
 */
#ifndef VB_HCA_OVERDUE_H
#define VB_HCA_OVERDUE_H

#include <pthread.h>
#include <stdint.h>

#include "hca/qp.h"
#include "hca/text.h"

enum { VB_OVERDUE_NS = 1000000000 };

/*
 * Notes that the first request of the queue was tried in vain: it has waited from `since` to `now`,
 * for a receive request or for an answer. Writes a line once it has waited for VB_OVERDUE_NS. Under
 * the QP's sq_lock.
 */
void vb_overdue_note(struct vb_qp *qp, enum vb_wait_reason reason, int pid, uint64_t since,
                     uint64_t now);

/* A datagram was dropped because there was no receive request: the first of an adapter gets a line.
 */
void vb_overdue_datagram(struct vb_adapter *adapter, uint32_t from, uint32_t to)
    __attribute__((cold, noinline));

/* Waits until `cond` is signalled, for VB_OVERDUE_NS at most. True: that time is over. Under the
 * mutex, whose condition goes by CLOCK_REALTIME. */
bool vb_overdue_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
/* Writes a line about a destroying call that waits for the acknowledgement of so many events, by
 * `call`; `what` names the kind of object. */
void vb_overdue_acks(struct vb_adapter *adapter, const char *what, unsigned count,
                     const char *call);

/*
 * Adds two members of a JSON object, lists with a sentence for each QP whose first request waits,
 * and whether it waits for ever. `"waiting"` has those that have waited for VB_OVERDUE_NS,
 * `"unready"` those that have waited less long for a receive request. Queues are read without their
 * locks, so a wait may have ended meanwhile.
 */
void vb_overdue_describe(struct vb_adapter *adapter, struct vb_text *text);

#endif
