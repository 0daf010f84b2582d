# SPDX-License-Identifier: Apache-2.0
# An open device: what it offers, what was made from it, and its asynchronous events.

cdef enum:
    EVENT_CQ = 0
    EVENT_QP = 1
    EVENT_SRQ = 2
    EVENT_PORT = 3
    EVENT_NONE = 4  # of the device, or of an object that this binding does not have


cdef int _event_member(int kind) noexcept nogil:
    """Return which member of ibv_async_event's union an event type fills."""
    if kind == 0:
        return EVENT_CQ
    if 1 <= kind <= 7 or kind == 16:
        return EVENT_QP
    if kind == 14 or kind == 15:
        return EVENT_SRQ
    return EVENT_NONE if kind == 8 or kind == 19 else EVENT_PORT


cdef int _take_async_event(Library library, ibv_context *context, ibv_async_event *event,
                           size_t *token, char *text, int size) noexcept nogil:
    """Takes and acknowledges an event; ``token`` becomes that of its object, ``text`` its cause.

    All without the GIL: who destroys the object has the GIL and waits for the acknowledgement.
    """
    cdef int code = library.call.get_async_event(context, event)
    cdef int member
    if code:
        return code
    member = _event_member(event.event_type)
    if member == EVENT_CQ:
        token[0] = <size_t>event.element.cq.cq_context
    elif member == EVENT_QP:
        token[0] = <size_t>event.element.qp.qp_context
    elif member == EVENT_SRQ:
        token[0] = <size_t>event.element.srq.srq_context
    text[0] = 0
    if library.call.event_text is not NULL:
        library.call.event_text(event, text, size)
    library.call.ack_async_event(event)
    return 0


@cython.no_gc_clear
cdef class Context:
    """An open device. Closing it closes everything that was made from it, in a safe order."""

    cdef object __weakref__
    cdef readonly Device device
    cdef Library library
    cdef ibv_context *context
    cdef dict _children    # token -> weak reference
    cdef size_t last_token
    cdef int busy          # calls without the GIL on the context itself
    cdef bint closing      # no call begins, and nothing is made any more
    cdef unsigned long closer  # the thread that closes it
    cdef bint simulated  # a host of a simulated fabric: _simulated.pxi
    cdef str why_closed
    cdef list watchers
    cdef Waits waits

    def __init__(self):
        raise TypeError("use open_device() or Device.open()")

    def __dealloc__(self):
        self._destroy()

    cdef size_t _next_token(self):
        self.last_token += 1
        return self.last_token

    cdef object _closed(self):
        return _closed_error("Context", self.why_closed or _CLOSED)

    cdef int _check(self) except -1:
        if self.context is NULL:
            raise self._closed()
        return 0

    cdef int _begin(self) except -1:
        """As Resource._begin."""
        if self.closing or self.context is NULL:
            raise self._closed()
        self.busy += 1
        return 0

    cdef inline void _end(self) noexcept:
        self.busy -= 1

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        cdef ibv_context *context = self.context
        if context is not NULL:
            if self.simulated:
                self.device.list.owner.remove_fd(context.async_fd)
            self.context = NULL  # before the GIL is released, so that other threads see it closed
            with nogil:
                code = self.library.call.close_device(context)
            code = _error_of(code)
            if code:
                self.context = context
        return code

    cdef object _child(self, size_t token):
        """Return the object with this token, or None."""
        ref = self._children.get(token)
        return None if ref is None else ref()

    cdef void _forget(self) noexcept:
        cdef Resource child
        for child in self._open_children():
            child._forget()
            child.busy = child.closing = 0
            child.waits = None
            child.why_closed = _FORKED
        self.context = NULL
        self.busy = 0
        self.closing = False
        self.waits = None
        self.why_closed = _FORKED

    cdef list _living_children(self):
        """Return a copy of the list, because other threads make and delete objects meanwhile."""
        return [child for ref in list(self._children.values()) if (child := ref()) is not None]

    def _open_children(self):
        """What was made from it and is open, in the order in which it can be closed."""
        cdef Resource child
        cdef list ranked = []
        for child in self._living_children():
            if child._is_open():
                ranked.append((child._rank(), child.token, child))
        return [child for _, _, child in sorted(ranked)]

    @property
    def closed(self):
        """True once the context is closed."""
        return self.context is NULL

    @property
    def name(self):
        """The device's name."""
        return self.device.name

    @property
    def num_comp_vectors(self):
        """How many completion vectors ``create_cq`` can choose from."""
        self._check()
        return self.context.num_comp_vectors

    @property
    def async_fd(self):
        """The file descriptor that is readable when an event is there; non-blocking."""
        self._check()
        return self.context.async_fd

    def __reduce_ex__(self, protocol):
        raise TypeError(_no_copy(self))

    def close(self):
        """Close every object made from the context, then the device. Closing twice has no effect.

        Waits of other threads end with VerbsError(ECANCELED). Other calls that are under way end
        first, and no call begins. Raises VerbsError(EBUSY), and closes nothing, if it is called
        within a wait of this thread, as from a signal handler.
        """
        while self.closing:
            if self.closer == PyThread_get_thread_ident():
                return
            _pause()
        if self.context is NULL:
            return
        self._refuse_inside()
        self.closer = PyThread_get_thread_ident()
        self.closing = True
        try:
            self._close_all()
        finally:
            self.closing = False

    cdef int _refuse_inside(self) except -1:
        if self.waits is not None and self.waits._has_this_thread():
            raise _inside("Context")
        return _refuse_inside(self._living_children())

    cdef int _close_all(self) except -1:
        cdef int code
        if self.busy and self.waits is not None:
            self.waits._end()
        _join_calls(self._living_children())
        while self.busy:
            _pause()
        _close_each(self._open_children())  # also objects that running calls have made
        _tell(self.watchers)
        code = self._destroy()
        if code:
            raise failed("Context.close", code)
        self.why_closed = _CLOSED
        _contexts.discard(self)
        return 0

    def call_when_closed(self, method):
        """Register a bound method to be called at closing. It is held by a weak reference."""
        self.watchers = _with_watcher(self.watchers, method)

    def __enter__(self):
        self._check()
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        return f"<Context {self.name!r}{' closed' if self.closed else ''}>"

    def query_device(self):
        """Return the device's capabilities, as DeviceAttr."""
        cdef ibv_device_attr attr
        self._check()
        cdef int code = self.library.call.query_device(self.context, &attr)
        if code:
            raise self._failed("query_device", code)
        return _device_attr(&attr)

    def query_port(self, port_num=1):
        """State and limits of a port (they count from 1), as PortAttr.

        Raises VerbsError(EINVAL).
        """
        cdef ibv_port_attr attr
        self._check()
        cdef int code = vb_query_port(
            &self.library.call, self.context, <uint8_t>_wanted(port_num, "port_num", 0xff), &attr
        )
        if code:
            raise self._failed("query_port", _error_of(code))
        return _port_attr(&attr)

    def query_gid(self, port_num, index):
        """Entry ``index`` of the port's GID table, as Gid; zero if empty.

        Raises VerbsError(EINVAL).
        """
        cdef ibv_gid gid
        cdef uint8_t port = _wanted(port_num, "port_num", 0xff)
        cdef int place = _int(index, "index")
        self._check()
        errno_before_call()
        if self.library.call.query_gid(self.context, port, place, &gid):
            raise self._failed("query_gid", errno or EINVAL)
        return _attributes.Gid(<bytes>(<char *>gid.raw)[:16])

    def query_gid_ex(self, port_num, index):
        """Entry ``index`` of the port's GID table with its type, as GidEntry. Raises VerbsError."""
        cdef ibv_gid_entry entry
        self._check()
        if self.library.call.query_gid_ex is NULL:
            raise failed("query_gid_ex", EOPNOTSUPP)
        memset(&entry, 0, sizeof(entry))
        cdef uint32_t port = _u32(port_num, "port_num")
        cdef int code = self.library.call.query_gid_ex(
            self.context, port, _u32(index, "index"), &entry, 0, sizeof(entry)
        )
        if code:
            raise self._failed("query_gid_ex", _error_of(code))
        return _gid_entry(&entry)

    def query_gid_table(self, max_entries=1024):
        """The GIDs of all ports that are in use, as a list of GidEntry. Raises VerbsError."""
        cdef Py_ssize_t count
        self._check()
        if self.library.call.query_gid_table is NULL:
            raise failed("query_gid_table", EOPNOTSUPP)
        cdef size_t size = sizeof(ibv_gid_entry)
        cdef size_t room = _u32(max_entries, "max_entries")
        cdef ibv_gid_entry *entries = <ibv_gid_entry *>malloc(room * size)
        if entries is NULL:
            raise MemoryError
        try:
            count = self.library.call.query_gid_table(
                self.context, entries, room, 0, size
            )
            if count < 0:  # not `_failed`: the library keeps no reason for it
                raise failed("query_gid_table", <int>count)
            return [_gid_entry(&entries[i]) for i in range(count)]
        finally:
            free(entries)

    def query_pkey(self, port_num, index):
        """Entry ``index`` of the port's partition key table. Raises VerbsError(EINVAL)."""
        cdef uint16_t pkey
        cdef uint8_t port = _wanted(port_num, "port_num", 0xff)
        cdef int place = _int(index, "index")
        self._check()
        errno_before_call()
        if self.library.call.query_pkey(self.context, port, place, &pkey):
            raise self._failed("query_pkey", errno or EINVAL)
        return ntohs(pkey)

    def query_memory(self):
        """Return the capabilities for device memory and on-demand regions, as MemoryAttr."""
        cdef ibv_device_attr_ex attr
        self._check()
        cdef int code = vb_query_memory(self.context, &attr)
        if code:
            raise self._failed("query_device_ex", code)
        return _attributes.MemoryAttr(
            max_dm_size=attr.max_dm_size,
            odp_general=_enums.OdpCaps(attr.odp_caps.general_caps),
            odp_rc=_enums.OdpTransportCaps(attr.odp_caps.per_transport_caps.rc_odp_caps),
            odp_uc=_enums.OdpTransportCaps(attr.odp_caps.per_transport_caps.uc_odp_caps),
            odp_ud=_enums.OdpTransportCaps(attr.odp_caps.per_transport_caps.ud_odp_caps),
            odp_xrc=_enums.OdpTransportCaps(attr.xrc_odp_caps),
        )

    def alloc_pd(self):
        """Make a protection domain."""
        return _alloc_pd(self)

    def open_xrcd(self, fd=None, int oflags=os.O_CREAT):
        """Open an XRC domain, shared with all that open one with the same file.

        ``fd`` is a file descriptor or an object with ``fileno()``; it may be closed afterwards.
        Without ``fd`` the domain is not shared. ``oflags``: O_CREAT makes a domain if none is open,
        O_EXCL requires that none is. Raises VerbsError: EAGAIN when none is open and O_CREAT is
        missing, EINVAL when one is and O_EXCL is given.
        """
        self._check()
        if fd is None:
            return _open_xrcd(self, -1, oflags)
        return _open_xrcd(self, fd.fileno() if hasattr(fd, "fileno") else fd, oflags)

    def alloc_dm(self, length, log_align_req=0):
        """Allocate device memory, zeroed, at a multiple of ``2**log_align_req`` bytes.

        Raises VerbsError: EINVAL (more than max_dm_size), ENOMEM, EOPNOTSUPP.
        """
        return _alloc_dm(self, _size(length, "length"), _u32(log_align_req, "log_align_req"))

    def alloc_td(self):
        """Make a thread domain. Raises VerbsError(EOPNOTSUPP) if the device does not support it."""
        return _alloc_td(self)

    def create_comp_channel(self):
        """Make a completion channel, by which a CQ signals completions."""
        return _create_comp_channel(self)

    def create_cq(self, cqe, CompChannel channel=None, comp_vector=0):
        """Make a completion queue with room for at least ``cqe`` completions.

        Raises VerbsError(EINVAL) when ``cqe`` is not within 1 to ``query_device().max_cqe``.
        """
        return _create_cq(self, _int(cqe, "cqe"), channel, _int(comp_vector, "comp_vector"))

    def get_async_event(self, timeout=None):
        """Wait up to ``timeout`` seconds (None: forever) for an event; AsyncEvent, or None.

        The event is acknowledged already. The GIL is released while waiting.
        """
        cdef uint64_t deadline
        self._check()
        deadline = _world_deadline(self, timeout) if self.simulated else _deadline(timeout)
        if self.waits is None:
            self.waits = Waits()
        cdef Waits waits = self.waits
        cdef uint64_t since
        self._begin()
        try:
            since = waits._enter()
        except BaseException:
            self._end()
            raise
        try:
            while True:
                event = self._next_event()
                if event is not None:
                    return event
                waits._check(since)
                if self.simulated:
                    if not _step(self, deadline):
                        return None
                elif (
                    not waits._sleep(since, self.context.async_fd, deadline, -1)
                    and vb_now_ns() >= deadline
                ):
                    return None
        finally:
            self._end()
            waits._leave()

    def cancel_wait(self):
        """End every ``get_async_event`` of other threads with VerbsError(ECANCELED)."""
        self._check()
        if self.waits is not None:
            self.waits._end()

    cdef object _next_event(self):
        """Return the next event, or None.

        Acknowledged here, so that destroying its object never waits for us.
        """
        cdef ibv_async_event event
        cdef size_t token = 0
        cdef int code
        cdef char text[1024]
        with nogil:
            code = _take_async_event(self.library, self.context, &event, &token, text, sizeof(text))
        if code:
            if errno == EAGAIN or errno == EINTR:
                return None
            raise failed("get_async_event", errno)
        port = event.element.port_num if _event_member(event.event_type) == EVENT_PORT else 0
        return _attributes.AsyncEvent(
            _enums.EventType(event.event_type), self._child(token), port,
            (<bytes>text).decode("utf-8", "replace"),
        )

    def explain(self, uint32_t vendor_err):
        """Return the evidence of an error completion as text, by its ``vendor_err``; '' if there is
        none."""
        cdef char text[1024]
        if self.context is NULL or self.library.call.explain is NULL:
            return ""
        cdef int size = <int>sizeof(text)
        cdef int length = self.library.call.explain(self.context, vendor_err, text, size)
        return (<bytes>text[:max(0, min(length, size - 1))]).decode("utf-8", "replace")

    cdef object _failed(self, str call, int code, Py_ssize_t posted=0):
        """Return the exception for this thread's call that has just failed, with the reason."""
        cdef int number = abs(code) or EIO
        why = "" if self.context is NULL else _why(self.library, self.context, number)
        return failed(call, number, posted, why)

    def describe(self):
        """Return the state of this process's device and its peers, as a dict.

        None with a library other than Verbena's.
        """
        self._check()
        if self.library.call.describe is NULL:
            return None
        return _ask_json(self, self.library.call.describe, "describe")

    def counters(self):
        """Return the counters since this process opened the device, as ``{part: {name: number}}``.

        The parts are ``direct`` (requests to peers on this host without packets), ``engine``
        (packets, retries, refusals: a name for each reason), ``udp`` and ``reuseport``; the last
        three are 0 if the device sends no packets. ``src/native/direct/counters.h`` and
        ``src/native/hca/counters.h`` explain the names. None with a library other than Verbena's.
        """
        self._check()
        if self.library.call.counters is NULL:
            return None
        return _ask_json(self, self.library.call.counters, "counters")

    def set_fault(self, str text):
        """Replace the fault rules by those of a text; '' for none. See verbena.fault.

        Raises ValueError for a wrong word, VerbsError(EOPNOTSUPP) when the device sends no packets
        or is not Verbena's; the text says why.
        """
        self._check()
        if self.library.call.set_fault is NULL:
            raise _no_packets(self, "set_fault")
        cdef char error[256]
        cdef bytes records = _fault_records(text).encode()
        error[0] = 0
        cdef int code = self.library.call.set_fault(self.context, records, error, sizeof(error))
        if code == -EINVAL:
            why = (<bytes>error).decode("utf-8", "replace")
            raise ValueError(f"the records of the rules {why}")
        if code == -EOPNOTSUPP:
            raise _no_packets(self, "set_fault")
        if code:
            raise failed("set_fault", code)

    def fault_counters(self):
        """Return how often each fault rule matched and acted: a line for each.

        Raises VerbsError(EOPNOTSUPP) as set_fault does.
        """
        self._check()
        if self.library.call.fault_counters is NULL:
            raise _no_packets(self, "fault_counters")
        try:
            return _ask_text(self, self.library.call.fault_counters, "fault_counters")
        except VerbsError as error:
            if error.errno == EOPNOTSUPP:
                raise _no_packets(self, "fault_counters") from None
            raise


cdef inline void errno_before_call() noexcept:
    """For calls that return -1 and may leave errno as it was."""
    global errno
    errno = 0


cdef str _why(Library library, ibv_context *context, int code):
    """Return the library's reason for this thread's failed call; ``context`` NULL: open_device."""
    cdef char text[1024]
    cdef int size = <int>sizeof(text)
    if library.call.why is NULL:
        return ""
    cdef int length = library.call.why(context, code, text, size)
    return (<bytes>text[:max(0, min(length, size - 1))]).decode("utf-8", "replace")


cdef Context _open_context(Device device):
    cdef char nothing[1]
    cdef int code
    cdef Context self = Context.__new__(Context)
    self.device = device
    self.library = device.list.library
    self._children = {}
    with nogil:
        self.context = self.library.call.open_device(device.device)
    if self.context is NULL:
        code = errno
        raise failed("open_device", code, why=_why(self.library, NULL, code))
    if self.library.call.explain is not NULL:
        # The library's line at the program's end, which says how to hear the reasons, is for
        # programs that do not ask for any: here each exception has its reason.
        self.library.call.explain(self.context, 0, nothing, sizeof(nothing))
    os.set_blocking(self.context.async_fd, False)
    self.simulated = device.list.owner is not None
    if self.simulated:
        device.list.owner.add_fd(self.context.async_fd)
    _contexts.add(self)
    return self


cdef object _device_attr(ibv_device_attr *attr):
    return _attributes.DeviceAttr(
        fw_ver=(<bytes>attr.fw_ver).decode("utf-8", "replace"),
        node_guid=be64toh(attr.node_guid),
        sys_image_guid=be64toh(attr.sys_image_guid),
        max_mr_size=attr.max_mr_size,
        page_size_cap=attr.page_size_cap,
        vendor_id=attr.vendor_id,
        vendor_part_id=attr.vendor_part_id,
        hw_ver=attr.hw_ver,
        max_qp=attr.max_qp,
        max_qp_wr=attr.max_qp_wr,
        device_cap_flags=attr.device_cap_flags,
        max_sge=attr.max_sge,
        max_sge_rd=attr.max_sge_rd,
        max_cq=attr.max_cq,
        max_cqe=attr.max_cqe,
        max_mr=attr.max_mr,
        max_pd=attr.max_pd,
        max_qp_rd_atom=attr.max_qp_rd_atom,
        max_res_rd_atom=attr.max_res_rd_atom,
        max_qp_init_rd_atom=attr.max_qp_init_rd_atom,
        atomic_cap=_enums.AtomicCap(attr.atomic_cap),
        max_mw=attr.max_mw,
        max_mcast_grp=attr.max_mcast_grp,
        max_mcast_qp_attach=attr.max_mcast_qp_attach,
        max_total_mcast_qp_attach=attr.max_total_mcast_qp_attach,
        max_ah=attr.max_ah,
        max_srq=attr.max_srq,
        max_srq_wr=attr.max_srq_wr,
        max_srq_sge=attr.max_srq_sge,
        max_pkeys=attr.max_pkeys,
        local_ca_ack_delay=attr.local_ca_ack_delay,
        phys_port_cnt=attr.phys_port_cnt,
    )


cdef object _port_attr(ibv_port_attr *attr):
    return _attributes.PortAttr(
        state=_enums.PortState(attr.state),
        max_mtu=_enums.MTU(attr.max_mtu),
        active_mtu=_enums.MTU(attr.active_mtu),
        gid_tbl_len=attr.gid_tbl_len,
        port_cap_flags=attr.port_cap_flags,
        max_msg_sz=attr.max_msg_sz,
        bad_pkey_cntr=attr.bad_pkey_cntr,
        qkey_viol_cntr=attr.qkey_viol_cntr,
        pkey_tbl_len=attr.pkey_tbl_len,
        lid=attr.lid,
        sm_lid=attr.sm_lid,
        lmc=attr.lmc,
        max_vl_num=attr.max_vl_num,
        sm_sl=attr.sm_sl,
        subnet_timeout=attr.subnet_timeout,
        init_type_reply=attr.init_type_reply,
        active_width=attr.active_width,
        active_speed=attr.active_speed,
        phys_state=attr.phys_state,
        link_layer=_enums.LinkLayer(attr.link_layer),
        flags=attr.flags,
        port_cap_flags2=attr.port_cap_flags2,
    )


cdef object _gid_entry(ibv_gid_entry *entry):
    return _attributes.GidEntry(
        gid=_attributes.Gid(<bytes>(<char *>entry.gid.raw)[:16]),
        gid_index=entry.gid_index,
        port_num=entry.port_num,
        gid_type=_enums.GidType(entry.gid_type),
        ndev_ifindex=entry.ndev_ifindex,
    )


ctypedef int (*_ask)(ibv_context *, char *, size_t) noexcept nogil


cdef object _ask_json(Context context, _ask ask, str name):
    """Return the JSON that one of Verbena's own calls gives, parsed."""
    import json

    return json.loads(_ask_text(context, ask, name))


cdef _no_packets(Context context, str call):
    """Return the exception for a call about packets of a device that sends none."""
    return without_packets(call, (context.describe() or {}).get("roce", {}).get("reason", ""))


cdef str _ask_text(Context context, _ask ask, str name):
    """Return the text that one of Verbena's own calls gives; the call returns its length."""
    cdef int length = 1 << 16
    cdef bytearray text = bytearray()
    while length >= <int>len(text):
        text = bytearray(length + 1)
        context._check()
        length = ask(context.context, <char *>text, len(text))
    if length < 0:
        raise failed(name, length)
    return bytes(text[:length]).decode("utf-8", "replace")
