// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that have waited for a second, which is long for a peer that lives: a SEND without a
 * receive request there, a peer that does not answer. They may go on waiting, for ever with
 * rnr_retry 7 or timeout 0; what is kept here is for whoever wonders: a line in the log, and
 * `waiting` in verbena_describe.
 */
#ifndef VB_HCA_OVERDUE_H
#define VB_HCA_OVERDUE_H

#include <pthread.h>
#include <stdint.h>

#include "hca/qp.h"
#include "hca/text.h"

enum { VB_OVERDUE_NS = 1000000000 };

/*
 * Under sq_lock, each time that the first request is tried in vain: it has waited from `since` to
 * `now`, for a receive request or an answer. Tells once what waits for VB_OVERDUE_NS.
 */
void vb_overdue_note(struct vb_qp *qp, enum vb_wait_reason reason, int pid, uint64_t since,
                     uint64_t now);

/* A datagram found no receive request, and is dropped: the first one of a process is told. */
void vb_overdue_datagram(struct vb_adapter *adapter, uint32_t from, uint32_t to)
    __attribute__((cold, noinline));

/* Under the mutex: waits until `cond` is signalled, or VB_OVERDUE_NS. True: that long. For
 * condition variables of CLOCK_REALTIME. */
bool vb_overdue_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
/* A destroying call waits for so many events of this object (a name) to be acknowledged by `call`.
 */
void vb_overdue_acks(struct vb_adapter *adapter, const char *what, unsigned count,
                     const char *call);

/* Reads queues without their locks: what it tells may have ended just now.
 * Two members of a JSON object, with a sentence for each QP whose request waits, and whether it
 * does so for ever: `"waiting":[...]` those that have waited for VB_OVERDUE_NS, `"unready":[...]`
 * those that have waited for less, for a receive request of the peer. */
void vb_overdue_describe(struct vb_adapter *adapter, struct vb_text *text);

#endif
