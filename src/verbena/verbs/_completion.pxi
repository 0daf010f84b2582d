# SPDX-License-Identifier: Apache-2.0
# Completion queues, their channels, and the completions themselves.

cdef enum:
    FEW_WCS = 16
    SHARED_CHANNEL_SLICE_MS = 10  # another CQ's thread may take this CQ's event: look again
    NAP_MS = 1                    # between polls if no descriptor is left to sleep on
    DEFAULT_SPIN_NS = 50000


@cython.freelist(256)
@cython.no_gc
@cython.final
cdef class WC:
    """A work completion.

    Except for ``wr_id``, ``status``, ``qp_num`` and ``vendor_err``, the fields are defined only in
    a successful one.
    """

    cdef ibv_wc wc
    cdef Context context

    def __init__(self):
        raise TypeError("completions come from CQ.poll()")

    @property
    def wr_id(self):
        """The number that the request was posted with."""
        return self.wc.wr_id

    @property
    def status(self):
        """The WCStatus."""
        return _enums.WCStatus(self.wc.status)

    @property
    def is_success(self):
        """True unless it failed."""
        return self.wc.status == 0

    @property
    def opcode(self):
        """The WCOpcode: what completed."""
        return _enums.WCOpcode(self.wc.opcode)

    @property
    def vendor_err(self):
        """The device's own error number."""
        return self.wc.vendor_err

    @property
    def byte_len(self):
        """Bytes received, read or swapped; on UD, with the 40 bytes of the GRH."""
        return self.wc.byte_len

    @property
    def imm_data(self):
        """Immediate data in host byte order, if ``wc_flags`` has WITH_IMM."""
        return ntohl(self.wc.imm_data)

    @property
    def invalidated_rkey(self):
        """The rkey that the sender invalidated, if ``wc_flags`` has WITH_INV."""
        return self.wc.imm_data

    @property
    def qp_num(self):
        """The local QP's number."""
        return self.wc.qp_num

    @property
    def src_qp(self):
        """The sender's QP number, on UD."""
        return self.wc.src_qp

    @property
    def wc_flags(self):
        """Which fields are set, as WCFlags."""
        return _enums.WCFlags(self.wc.wc_flags)

    @property
    def pkey_index(self):
        """Index of the P_Key, of GSI."""
        return self.wc.pkey_index

    @property
    def slid(self):
        """The sender's LID, on UD over InfiniBand."""
        return self.wc.slid

    @property
    def dlid_path_bits(self):
        """UD: the path bits of the LID that it came to, of a port with an LMC; 0 on RoCE."""
        return self.wc.dlid_path_bits

    @property
    def sl(self):
        """Service level, on UD."""
        return self.wc.sl

    @property
    def status_str(self):
        """The status by name, in lower case."""
        return self.status.name.lower()

    def raise_for_status(self):
        """Raise CompletionError, which says the cause, if it failed."""
        if self.wc.status:
            raise completion_failed(self, self.context.explain(self.wc.vendor_err))

    def __repr__(self):
        kind = self.opcode.name if self.is_success else self.status.name
        return (
            f"<WC {kind} wr_id={self.wc.wr_id:#x} qp={self.wc.qp_num:#x}"
            f" byte_len={self.wc.byte_len}>"
        )


cdef inline WC _new_wc(const ibv_wc *wc, Context context):
    cdef WC self = WC.__new__(WC)
    self.wc = wc[0]
    self.context = context
    return self


@cython.no_gc_clear
cdef class CompChannel(Resource):
    """A completion channel: a descriptor that becomes readable when an armed CQ has a completion.

    The descriptor is non-blocking; ``get_cq_event`` and ``CQ.wait`` sleep in poll(2).
    """

    cdef ibv_comp_channel *channel
    cdef object pending  # tokens of CQs whose events were taken while waiting for another CQ
    cdef int cqs  # how many CQs notify it

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_CHANNEL

    cdef bint _is_open(self):
        return self.channel is not NULL

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.channel is not NULL:
            if self.context.simulated and self.cqs == 0:  # else it stays
                self.context.device.list.owner.remove_fd(self.channel.fd)
            code = self.context.library.call.destroy_comp_channel(self.channel)
            code = _error_of(code)
            if code == 0:
                self.channel = NULL
        return code

    cdef void _forget(self) noexcept:
        self.channel = NULL

    cdef int _check(self) except -1:
        if self.channel is NULL:
            raise self._closed()
        return 0

    @property
    def fd(self):
        """The file descriptor, for select, poll, epoll and event loops."""
        self._check()
        return self.channel.fd

    @property
    def is_shared(self):
        """True when several CQs notify it: a wait for one may take another one's event."""
        return self.cqs > 1

    def get_cq_event(self, timeout=None):
        """Wait up to ``timeout`` seconds (None: forever) for an event; its CQ, or None.

        The event is acknowledged already; arm the CQ again and poll it. The GIL is released while
        waiting.
        """
        cdef uint64_t deadline
        self._check()
        deadline = (_world_deadline(self.context, timeout) if self.context.simulated
                    else _deadline(timeout))
        cdef Waits waits
        cdef uint64_t since = self._begin_wait()
        cdef bint stepped = False
        waits = self.waits
        try:
            while True:
                self._take_events()
                cq = self._oldest_pending()
                if cq is not None:
                    if stepped:  # the interrupt comes behind the completion
                        _wait_until(
                            self.context,
                            self.context.library.call.written_time(self.context.context),
                            deadline,
                        )
                    return cq
                waits._check(since)
                if self.context.simulated:
                    if not _step(self.context, deadline):
                        return None
                    stepped = True
                elif (
                    not waits._sleep(since, self.channel.fd, deadline, self._longest_sleep())
                    and vb_now_ns() >= deadline
                ):
                    return None
        finally:
            self._end_wait(waits)

    def cancel_wait(self):
        """End every ``get_cq_event`` that another thread is in: VerbsError(ECANCELED) there."""
        self._cancel_wait()

    def drain(self, most=None):
        """Take and acknowledge events that are there, without waiting; returns their number.

        That is all of them, or ``most``. To find that there are no more costs a system call.
        """
        cdef Py_ssize_t count
        cdef int limit = -1
        if most is not None:
            limit = <int>vb_number_to(most, "most", INT_LIMIT, _wanted_room)
        self._check()
        self._take_events(limit)
        count = len(self.pending)
        self.pending.clear()
        return count

    def keep_events(self, bint keep):
        """Keep events of a simulated host from passing through the descriptor, or let them again.

        For the world's own loop, which gets them otherwise. Raises VerbsError: ENOMEM.
        """
        self._check()
        cdef int code = self.context.library.call.keep_events(self.channel, keep)
        if code:
            raise failed("keep_events", -code)

    @property
    def has_kept(self):
        """Return whether there are events that ``keep_events`` kept."""
        return (
            self.channel is not NULL
            and self.context.library.call.kept_events(self.channel) > 0
        )

    def note_interrupt(self):
        """Note that an interrupt of a simulated host has come for the events that are there."""
        if self.channel is not NULL:
            self.context.library.call.raised_events(self.channel, 1)

    @property
    def has_raised(self):
        """Return whether there are kept events for which an interrupt has come."""
        return (
            self.has_kept
            and self.context.library.call.raised_events(self.channel, 0) > 0
        )

    cdef int _longest_sleep(self) noexcept:
        """In milliseconds; -1 for no limit."""
        return SHARED_CHANNEL_SLICE_MS if self.cqs > 1 else -1

    cdef object _oldest_pending(self):
        while self.pending:
            cq = self.context._child(self.pending.popleft())
            if cq is not None and (<CQ>cq)._is_open():
                return cq
        return None

    cdef int _take_events(self, int most=-1) except -1:
        """Move events that are there from the descriptor to ``pending``: every one, or ``most``."""
        cdef ibv_cq *cq
        cdef void *token
        cdef int code
        while most:
            most -= 1
            self._check()
            if self.context.simulated:  # which has one thread
                code = self._take_event(&cq, &token)
            else:
                self.busy += 1  # no `_begin`: a wait that is being ended drains its channel, too
                with nogil:
                    code = self._take_event(&cq, &token)
                self.busy -= 1
            if code:
                if errno == EAGAIN or errno == EINTR:
                    return 0
                raise failed("get_cq_event", errno)
            self.pending.append(<size_t>token)
        return 0

    cdef int _take_event(self, ibv_cq **cq, void **token) noexcept nogil:
        cdef int code = self.context.library.call.get_cq_event(self.channel, cq, token)
        if code == 0:
            self.context.library.call.ack_cq_events(cq[0], 1)
        return code

    def __repr__(self):
        return f"<CompChannel fd={self.channel.fd}>" if self._is_open() else "<CompChannel closed>"


cdef CompChannel _create_comp_channel(Context context):
    cdef CompChannel self = CompChannel.__new__(CompChannel)
    self._adopt(context)
    self.pending = collections.deque()
    context._begin()
    with nogil:
        self.channel = context.library.call.create_comp_channel(context.context)
    context._end()
    if self.channel is NULL:
        raise context._failed("create_comp_channel", errno)
    os.set_blocking(self.channel.fd, False)
    if context.simulated:
        context.device.list.owner.add_fd(self.channel.fd, self)
    return self


@cython.no_gc_clear
cdef class CQ(Resource):
    """A completion queue."""

    cdef readonly CompChannel channel
    cdef CompChannel sleeper  # the channel, or another one to sleep on, or None
    cdef ibv_cq *cq
    cdef dict senders     # qp_num -> Outstanding, of the QPs whose requests complete here
    cdef dict receivers
    cdef list xrc_queues  # SharedWork, of the XRC domains' SRQs that complete here
    cdef Outstanding last_queue  # the queue of the latest completion,
    cdef uint32_t last_qp        # its QP,
    cdef unsigned int last_side  # and whether it was a receive
    cdef unsigned int vain       # of a simulated host: polls that found nothing
    cdef uint64_t vain_at        # since this time of the world

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_CQ

    cdef bint _is_open(self):
        return self.cq is not NULL

    cdef bint _uses(self, Resource other):
        return other is self.channel

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.cq is not NULL:
            code = self.context.library.call.destroy_cq(self.cq)
            code = _error_of(code)
            if code == 0:
                self.cq = NULL
                if self.sleeper is not None:
                    self.sleeper.cqs -= 1
                    if self.channel is None:
                        self.sleeper._destroy()
        return code

    cdef void _forget(self) noexcept:
        self.cq = NULL

    cdef int _check(self) except -1:
        if self.cq is NULL:
            raise self._closed()
        return 0

    @property
    def cqe(self):
        """The number of completions for which it has room."""
        self._check()
        return self.cq.cqe

    def resize(self, cqe):
        """Make room for at least ``cqe`` completions. Raises VerbsError."""
        cdef int code
        cdef int room = _int(cqe, "cqe")
        self._check()
        self._begin()
        with nogil:
            code = self.context.library.call.resize_cq(self.cq, room)
        self._end()
        if code:
            raise self.context._failed("resize_cq", _error_of(code))

    def req_notify(self, bint solicited_only=False):
        """Arm the CQ: its next completion (or the next solicited or failed one) makes one event."""
        self._check()
        cdef int code = self.cq.context.ops.req_notify_cq(self.cq, solicited_only)
        if code:
            raise failed("req_notify_cq", _error_of(code))

    def poll(self, max_entries=FEW_WCS, *, out=None):
        """Take completions that are there, without waiting.

        Returns a list of up to ``max_entries`` WC. With ``out``, a NumPy array of
        ``verbs.wc_dtype``, fills it from the start and returns their number. Raises
        VerbsError when the CQ is in error.
        """
        cdef ibv_wc few[FEW_WCS]
        cdef int count
        cdef int i
        cdef list found
        if out is not None:
            return self._poll_into(out)
        count = <int>vb_number_to(max_entries, "max_entries", INT_LIMIT, _wanted_room)
        if self.cq is NULL:
            raise self._closed()
        if count > FEW_WCS:
            return self._poll_many(count)
        count = self.cq.context.ops.poll_cq(self.cq, count, few)
        if count == 0:
            if self.context.simulated:
                _poll_in_vain(self)
            return []
        if count < 0:
            raise self.context._failed("poll_cq", _poll_error(count))
        _complete_all(self, few, count)
        found = []
        for i in range(count):
            found.append(_new_wc(&few[i], self.context))
        return found

    cdef list _poll_many(self, int max_entries):
        cdef int count
        cdef ibv_wc *wcs = <ibv_wc *>malloc(max_entries * sizeof(ibv_wc))
        if wcs is NULL:
            raise MemoryError
        try:
            count = self.cq.context.ops.poll_cq(self.cq, max_entries, wcs)
            if count < 0:
                raise self.context._failed("poll_cq", _poll_error(count))
            if count == 0 and self.context.simulated:
                _poll_in_vain(self)
            _complete_all(self, wcs, count)
            return [_new_wc(&wcs[i], self.context) for i in range(count)]
        finally:
            free(wcs)

    cdef Py_ssize_t _poll_into(self, out) except -1:
        cdef Py_buffer view
        cdef int count
        cdef int room
        _get_wc_buffer(out, &view)
        try:
            self._check()
            room = <int>min(view.len // <Py_ssize_t>sizeof(ibv_wc), <Py_ssize_t>0x7fffffff)
            count = self.cq.context.ops.poll_cq(self.cq, room, <ibv_wc *>view.buf)
            if count < 0:
                raise self.context._failed("poll_cq", _poll_error(count))
            if count == 0 and self.context.simulated:
                _poll_in_vain(self)
            _complete_all(self, <ibv_wc *>view.buf, count)
        finally:
            PyBuffer_Release(&view)
        return count

    def wait(self, n=1, timeout=None, *, spin=None, out=None):
        """Wait for ``n`` completions and take them; fewer when ``timeout`` seconds are over.

        Returns a list of WC, or with ``out`` (an array of ``verbs.wc_dtype`` with room for ``n``)
        their number. Spins for ``spin`` seconds (default: 50 µs) after each completion, then
        sleeps; ``float("inf")`` only spins. The GIL is released meanwhile. Raises VerbsError:
        ECANCELED when another thread ends the wait (``cancel_wait``), EIO when the CQ is in error.
        If some had come before, it returns those, and the next call raises EIO.
        """
        cdef Py_buffer view
        cdef int count = <int>vb_number_to(n, "n", INT_LIMIT, _wanted_room)
        cdef uint64_t deadline = (_world_deadline(self.context, timeout) if self.context.simulated
                                  else _deadline(timeout))
        cdef uint64_t spin_ns = DEFAULT_SPIN_NS if spin is None else _nanoseconds(spin, "spin")
        if out is None:
            return self._wait_list(count, deadline, spin_ns)
        _get_wc_buffer(out, &view)
        try:
            if count * <Py_ssize_t>sizeof(ibv_wc) > view.len:
                raise ValueError(f"out has no room for {count} completions")
            return self._wait(count, <ibv_wc *>view.buf, deadline, spin_ns)
        finally:
            PyBuffer_Release(&view)

    def wait_one(self, timeout=None, *, spin=None):
        """Wait for one completion and return its WC, which may have an error.

        Raises TimeoutError when there is none after ``timeout`` seconds (None: waits for ever), and
        the errors of ``wait``; ``spin`` is as there.
        """
        cdef list found = self.wait(1, timeout, spin=spin)
        if not found:
            raise TimeoutError(
                ETIMEDOUT, f"nothing completed within {timeout} s on this CQ of {len(self.senders)}"
                f" QP{'' if len(self.senders) == 1 else 's'}{self._why_nothing()}"
            )
        return found[0]

    def _why_nothing(self):
        """What is known of requests whose completions belong here, and that have long waited, or
        wait for a receive of the peer."""
        said = self.context.describe() or {}
        waiting = [*said.get("waiting", ()), *said.get("unready", ())]
        return "".join(f"; {one['why']}" for one in waiting if one["qp_num"] in self.senders)

    def cancel_wait(self):
        """End every ``wait`` and ``wait_one`` that another thread is in, which raises
        VerbsError(ECANCELED) there. Waits that begin later are not affected."""
        self._cancel_wait()

    cdef list _wait_list(self, int n, uint64_t deadline, uint64_t spin_ns):
        cdef ibv_wc few[FEW_WCS]
        cdef ibv_wc *wcs = few
        cdef int count
        if n > FEW_WCS:
            wcs = <ibv_wc *>malloc(n * sizeof(ibv_wc))
            if wcs is NULL:
                raise MemoryError
        try:
            count = self._wait(n, wcs, deadline, spin_ns)
            return [_new_wc(&wcs[i], self.context) for i in range(count)]
        finally:
            if wcs is not few:
                free(wcs)

    cdef int _wait(self, int n, ibv_wc *wcs, uint64_t deadline, uint64_t spin_ns) except -1:
        cdef Waits waits
        cdef uint64_t since
        cdef int count = self._poll_now(n, wcs)
        if count >= n:
            return count
        since = self._begin_wait()
        waits = self.waits
        try:
            if self.context.simulated:
                return _wait_simulated(self, n, count, wcs, deadline)
            return self._wait_really(n, count, wcs, deadline, spin_ns, waits, since)
        finally:
            self._end_wait(waits)

    cdef int _wait_really(self, int n, int count, ibv_wc *wcs, uint64_t deadline,
                          uint64_t spin_ns, Waits waits, uint64_t since) except -1:
        cdef int found
        try:
            while True:
                found = self._spin_poll(n - count, wcs + count, deadline, spin_ns, waits, since)
                if found == 0 and vb_now_ns() < deadline:
                    found = self._sleep(n - count, wcs + count, deadline, waits, since)
                elif found == 0:
                    return count
                if found > 0:
                    _complete_all(self, wcs + count, found)
                count += found
                if count >= n or (count and waits.endings != since):
                    return count
                waits._check(since)
                self._check()  # a signal's handler may have forked
        except VerbsError:
            if count == 0:
                raise
            return count  # what was taken is not lost: the next call raises the error

    cdef int _poll_now(self, int n, ibv_wc *wcs) except -1:
        cdef int found
        if self.cq is NULL:
            raise self._closed()
        found = self.cq.context.ops.poll_cq(self.cq, n, wcs)
        if found < 0:
            raise self.context._failed("poll_cq", _poll_error(found))
        if found > 0:
            _complete_all(self, wcs, found)
        return found

    cdef int _spin_poll(self, int room, ibv_wc *wcs, uint64_t deadline, uint64_t spin_ns,
                        Waits waits, uint64_t since) except -1:
        """Poll until a completion is there, or the spin or the time is over."""
        cdef int found
        cdef uint64_t now = vb_now_ns()
        cdef uint64_t end = deadline if spin_ns > UINT64_MAX - now else min(deadline, now + spin_ns)
        while True:
            with nogil:
                found = vb_spin_cq(self.cq, room, wcs, min(end, now + SIGNAL_CHECK_NS))
            if found < 0:
                raise self.context._failed("poll_cq", _poll_error(found))
            if found:
                return found
            PyErr_CheckSignals()
            now = vb_now_ns()
            if now >= end or waits.endings != since:
                return 0

    cdef int _sleep(self, int room, ibv_wc *wcs, uint64_t deadline, Waits waits,
                    uint64_t since) except -1:
        """Arm, poll once more (a completion may have come in between), and only then sleep."""
        cdef int found
        if self.sleeper is None:
            waits._sleep(since, -1, deadline, NAP_MS)
            return 0
        self.req_notify()
        found = self.cq.context.ops.poll_cq(self.cq, room, wcs)
        if found < 0:
            raise self.context._failed("poll_cq", _poll_error(found))
        if found == 0:
            waits._sleep(
                since, self.sleeper.channel.fd, deadline, self.sleeper._longest_sleep()
            )
            self._check()
            self._drain_own_events()
        return found

    cdef int _drain_own_events(self) except -1:
        self.sleeper._take_events()
        while self.token in self.sleeper.pending:
            self.sleeper.pending.remove(self.token)
        return 0

    def __repr__(self):
        return f"<CQ cqe={self.cq.cqe}>" if self._is_open() else "<CQ closed>"


cdef uint64_t _wanted_room(value, name, uint64_t limit) except? 0xfffffffffffffff7:
    """Return how many completions a caller wants, or raise an error that names the argument."""
    hint = "; a time in seconds is timeout=" if name == "n" else ""
    number = _whole_number(name, value, hint)
    if number < 0:
        raise ValueError(f"{name} is {number}: nobody can take so few completions")
    if number > limit:
        raise OverflowError(f"{name} takes at most {limit} completions, and not {number}")
    return number


cdef int _poll_error(int code) noexcept:
    """Providers return -1 or a negative errno for a CQ in error; -1 is not EPERM."""
    return EIO if code == -1 else -code


cdef int _get_wc_buffer(out, Py_buffer *view) except -1:
    _load_dtypes()
    if not _is_dtype(out, _wc_dtype):
        raise TypeError("out must be a NumPy array of verbs.wc_dtype")
    PyObject_GetBuffer(out, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    return 0


cdef CQ _create_cq(Context context, int cqe, CompChannel channel, int comp_vector):
    cdef CQ self = CQ.__new__(CQ)
    cdef ibv_comp_channel *notify = NULL
    if channel is not None:
        _of_context(context, channel)
    self._adopt(context)
    self.senders, self.receivers, self.xrc_queues = {}, {}, []
    self.last_qp = NO_QP
    self.channel = channel
    self.sleeper = channel if channel is not None else _sleeper(context)
    if self.sleeper is not None:
        self.sleeper._begin()
        notify = self.sleeper.channel
    context._begin()  # cannot raise when the channel's did not
    with nogil:
        self.cq = context.library.call.create_cq(
            context.context, cqe, <void *>self.token, notify, comp_vector
        )
    context._end()
    if self.sleeper is not None:
        self.sleeper._end()
    if self.cq is NULL:
        raise context._failed("create_cq", errno)
    if self.sleeper is not None:
        self.sleeper.cqs += 1
    return self


cdef CompChannel _sleeper(Context context):
    """Return a channel on which `wait` sleeps if the CQ has none; None if none can be made.

    On a simulated host nobody sleeps.
    """
    if context.simulated:
        return None
    try:
        return _create_comp_channel(context)
    except VerbsError as error:
        if error.errno in (EMFILE, ENFILE):
            return None
        raise
