# SPDX-License-Identifier: Apache-2.0
# References that posted requests hold: the memory (and the AH) of a request lives until its
# completion was polled.
#
# A queue of a QP completes in order, so counting is enough: `posted` counts the requests that will
# complete, `completed` the completions that were polled, and a request's references are released
# when `completed` reaches the number of the first completion that implies its end. An SRQ's
# requests complete in any order, and are identified by their wr_id. Requests whose memory is given
# by numbers (records, SGEs by address) hold nothing. All of this happens with the GIL.
# No reference is released too early; it may be too late: a request without SIGNALED holds its
# references until the next signaled one completes, and after an error possibly until the QP is
# reset or closed.

cdef enum:
    WC_RECV = 128
    NO_QP = 0xffffffff  # no number has more than 24 bits


cdef class Outstanding:
    """The requests of a queue that were posted and whose completions were not polled."""

    cdef int _complete(self, const ibv_wc *wc) except -1:
        """Account for a completion of this queue that was polled."""
        return 0

    cdef int _clear(self) except -1:
        """Release everything: the QP was reset or closed."""
        return 0


@cython.final
cdef class OrderedWork(Outstanding):
    """Those of a QP's send queue, or of its receive queue."""

    cdef list holds       # a ring of references, oldest first,
    cdef uint64_t *until  # and the `completed` at which each is released
    cdef size_t room      # of the ring, a power of two or 0
    cdef size_t head
    cdef size_t tail
    cdef uint64_t posted
    cdef uint64_t completed
    cdef uint64_t silent  # as `until`, of the last request without SIGNALED
    cdef uint64_t inside  # requests that other threads are posting without the GIL just now

    def __dealloc__(self):
        free(self.until)

    cdef inline int _note(self, hold, bint signaled) except -1:
        """Account for a posted request that holds ``hold``, which may be None."""
        cdef uint64_t until
        self.posted += signaled
        # Requests that other threads are posting may have come before this one.
        until = self.posted + self.inside + (not signaled)
        if not signaled:
            self.silent = until
        if hold is not None and until > self.completed:
            self._keep(hold, until)
        return 0

    cdef int _note_many(self, uint64_t signaled, bint silent) except -1:
        """Account for posted records, of which ``signaled`` are SIGNALED; they hold nothing."""
        self.posted += signaled
        if silent:
            self.silent = self.posted + self.inside + 1
        return 0

    cdef int _keep(self, hold, uint64_t until) except -1:
        cdef size_t last = (self.tail - 1) & (self.room - 1)
        if self.tail != self.head and self.holds[last] is hold:  # the same region again
            self.until[last] = until
            return 0
        while self.tail - self.head == self.room:
            self._grow()
        self.holds[self.tail & (self.room - 1)] = hold
        self.until[self.tail & (self.room - 1)] = until
        self.tail += 1
        return 0

    cdef int _grow(self) except -1:
        cdef size_t room = 2 * self.room or 16
        cdef list holds = [None] * room
        cdef size_t i
        cdef uint64_t *until = <uint64_t *>malloc(room * sizeof(uint64_t))
        if until is NULL:
            raise MemoryError
        if self.room >= room:  # allocating may run finalizers, which let other threads run
            free(until)
            return 0
        for i in range(self.tail - self.head):
            holds[i] = self.holds[(self.head + i) & (self.room - 1)]
            until[i] = self.until[(self.head + i) & (self.room - 1)]
        free(self.until)
        self.head, self.tail = 0, self.tail - self.head
        self.holds, self.until, self.room = holds, until, room
        return 0

    cdef int _complete(self, const ibv_wc *wc) except -1:
        # A failed request may be one without SIGNALED, and then this completion is not counted.
        if wc.status == 0 or self.silent <= self.completed:
            self.completed += 1
            self._let_go()
        return 0

    cdef inline int _let_go(self) except -1:
        cdef size_t oldest
        while self.head != self.tail:
            oldest = self.head & (self.room - 1)
            if self.until[oldest] > self.completed:
                break
            hold = self.holds[oldest]
            self.holds[oldest] = None
            self.head += 1
            hold = None  # its finalizer may let other threads run: the state is consistent before
        return 0

    cdef int _clear(self) except -1:
        cdef list holds = self.holds
        self.holds = None
        self.room = self.head = self.tail = 0
        self.posted = self.completed = self.silent = 0
        if holds is not None:
            holds.clear()
        return 0


@cython.final
cdef class SharedWork(Outstanding):
    """Those of an SRQ.

    Where several with one wr_id hold different memory, all of it is held until all of them have
    completed: a program that gives no numbers cannot tell them apart either.
    """

    cdef dict groups  # wr_id -> {reference: how many requests hold it}
    cdef dict done    # wr_id -> how many of a group of several have completed

    def __cinit__(self):
        self.groups = {}
        self.done = {}

    cdef int _note(self, uint64_t wr_id, hold) except -1:
        cdef dict group = self.groups.setdefault(wr_id, {})
        group[hold] = group.get(hold, 0) + 1
        return 0

    cdef int _complete(self, const ibv_wc *wc) except -1:
        cdef dict group = self.groups.get(wc.wr_id)
        if group is None:
            return 0
        done = self.done.get(wc.wr_id, 0) + 1
        if done == sum(group.values()):
            self.done.pop(wc.wr_id, None)
            del self.groups[wc.wr_id]
        elif len(group) > 1:
            self.done[wc.wr_id] = done
        else:
            for hold in group:
                group[hold] -= 1
                break
        return 0

    cdef int _clear(self) except -1:
        self.groups = {}
        self.done = {}
        return 0


cdef int _complete_all(CQ cq, const ibv_wc *wcs, int count) except -1:
    """Account for completions that were polled from ``cq``."""
    cdef Outstanding queue
    cdef int i
    for i in range(count):
        if wcs[i].status == 0 and wcs[i].qp_num == cq.last_qp and (
            (wcs[i].opcode & WC_RECV) == cq.last_side
        ):
            queue = cq.last_queue
        else:
            queue = _queue_of(cq, &wcs[i])
        if queue is not None:
            queue._complete(&wcs[i])
    return 0


cdef Outstanding _queue_of(CQ cq, const ibv_wc *wc):
    """Return the queue of a completion's request; None if that is not known."""
    cdef Outstanding queue
    cdef bint receives = wc.opcode & WC_RECV
    if wc.status != 0 and not cq.context.library.call.explain:
        # Other libraries leave the opcode of a failed request undefined.
        if wc.qp_num in cq.senders and wc.qp_num in cq.receivers:
            return None
        receives = wc.qp_num in cq.receivers
    queue = (cq.receivers if receives else cq.senders).get(wc.qp_num)
    if queue is None and receives:
        queue = _xrc_queue(cq, wc.wr_id)
    elif wc.status == 0:
        cq.last_qp, cq.last_side, cq.last_queue = wc.qp_num, wc.opcode & WC_RECV, queue
    return queue


cdef SharedWork _xrc_queue(CQ cq, uint64_t wr_id):
    """Return the queue of an XRC SRQ that completes here; of several, that with this wr_id."""
    cdef SharedWork queue
    cdef list found = [queue for queue in cq.xrc_queues if wr_id in queue.groups]
    return found[0] if len(found) == 1 else None


cdef int _enlist(QP qp) except -1:
    """Register a new QP, so that its queues account for its completions."""
    cdef uint32_t number = qp.qp.qp_num
    _forget_last(qp)
    qp.sends = OrderedWork()
    qp.send_cq.senders[number] = qp.sends
    if qp.srq is None:
        qp.receives = OrderedWork()
        qp.recv_cq.receivers[number] = qp.receives
    else:
        qp.recv_cq.receivers[number] = qp.srq.work
    return 0


cdef void _delist(QP qp, uint32_t number) noexcept:
    if qp.sends is None:  # creating it failed, or it is an XRC target
        return
    _forget_last(qp)
    qp.send_cq.senders.pop(number, None)
    qp.recv_cq.receivers.pop(number, None)
    _reset(qp)


cdef void _forget_last(QP qp) noexcept:
    cdef CQ cq
    for cq in (qp.send_cq, qp.recv_cq):
        cq.last_queue = None
        cq.last_qp = NO_QP


cdef void _reset(QP qp) noexcept:
    if qp.sends is not None:
        qp.sends._clear()
    if qp.receives is not None:
        qp.receives._clear()
