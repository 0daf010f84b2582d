# SPDX-License-Identifier: Apache-2.0
# Queue pairs.

cdef enum:
    QUERY_ALL = 0x1fffff  # every attribute that ibv_query_qp knows
    MASK_STATE = 1
    MASK_AV = 1 << 7
    MASK_ALT_PATH = 1 << 14
    MASK_CAP = 1 << 19
    UC = 3
    UD = 4
    XRC_SEND = 9
    XRC_RECV = 10
    STATE_RESET = 0
    STATE_RTR = 2


cdef int _warn_of_loss(uint32_t number) except -1:
    text = (
        f"QP {number:#x} was still connected, and is closed since nothing refers to it any more:"
        " its peer's requests fail with RETRY_EXC_ERR. Keep the QP, or close it"
    )
    PyErr_WarnEx(ResourceWarning, text.encode(), 1)
    return 0


@cython.final
@cython.no_gc_clear
cdef class QP(Resource):
    """A queue pair. ``verbena.connect_rc`` connects it over a socket.

    An XRC target QP (XRC_RECV, from ``XRCD.create_qp``) has an ``xrcd``, and None for ``pd`` and
    both CQs.
    """

    cdef readonly PD pd
    cdef readonly CQ send_cq
    cdef readonly CQ recv_cq
    cdef readonly SRQ srq
    cdef readonly XRCD xrcd
    cdef readonly object cap
    cdef ibv_qp *qp
    cdef int _type
    cdef bint _all_signaled
    cdef bint _connected       # RC, UC or XRC, from RTR on
    cdef set _groups
    cdef OrderedWork sends     # None if the QP has no such queue
    cdef OrderedWork receives

    def __dealloc__(self):
        cdef uint32_t number = 0
        self._leave()
        if self.qp is not NULL and self._connected:
            number = self.qp.qp_num
        self._destroy()
        if number:  # at the end, because a warning may let other threads run
            _warn_of_loss(number)

    cdef bint _is_open(self):
        return self.qp is not NULL

    cdef bint _uses(self, Resource other):
        return other in (self.pd, self.send_cq, self.recv_cq, self.srq, self.xrcd)

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        cdef uint32_t number
        if self.qp is not NULL:
            number = self.qp.qp_num
            self._leave_groups()
            code = self.context.library.call.destroy_qp(self.qp)
            code = _error_of(code)
            if code == 0:
                self.qp = NULL
                _delist(self, number)
        return code

    cdef void _forget(self) noexcept:
        self.qp = NULL

    cdef int _check(self) except -1:
        if self.qp is NULL:
            raise self._closed()
        return 0

    @property
    def qp_num(self):
        """Its number, 24 bits."""
        self._check()
        return self.qp.qp_num

    @property
    def qp_type(self):
        """Its QPType."""
        return _enums.QPType(self._type)

    @property
    def state(self):
        """Its present QPState, queried from the device."""
        return self.query().qp_state

    # ---- state ----

    def modify(self, attr_mask=None, /, **fields):
        """Change attributes (named as in ``ibv_qp_attr``), and with ``qp_state`` the state.

        ``attr_mask`` defaults to exactly the keywords given; the attributes that each transition
        needs are in ibv_modify_qp(3). Raises VerbsError(EINVAL), and changes nothing then; and
        TypeError for a QPState in place of the mask.
        """
        cdef ibv_qp_attr attr
        cdef int mask = 0
        cdef int code
        self._check()
        if isinstance(attr_mask, _enums.QPState):
            raise TypeError(
                f"modify takes a mask of attributes first, and not a state: modify(qp_state="
                f"QPState.{attr_mask.name})"
            )
        memset(&attr, 0, sizeof(attr))
        for name, value in fields.items():
            mask |= _set_attr(&attr, name, value)
        if attr_mask is not None:
            mask = _int(attr_mask, "attr_mask")
        self._begin()
        with nogil:
            code = self.context.library.call.modify_qp(self.qp, &attr, mask)
        self._end()
        if code:
            raise self.context._failed("modify_qp", _error_of(code))
        if mask & MASK_STATE:
            self._connected = self._type != UD and attr.qp_state >= STATE_RTR
            if attr.qp_state == STATE_RESET:
                _reset(self)

    def query(self):
        """All its attributes, as QPAttr."""
        cdef ibv_qp_attr attr
        cdef ibv_qp_init_attr init
        cdef int code
        self._check()
        memset(&attr, 0, sizeof(attr))
        memset(&init, 0, sizeof(init))
        self._begin()
        with nogil:
            code = self.context.library.call.query_qp(self.qp, &attr, QUERY_ALL, &init)
        self._end()
        if code:
            raise self.context._failed("query_qp", _error_of(code))
        return _qp_attr(&attr)

    def to_init(self, port=1, access=0, pkey_index=0, qkey=0x11111111, **others):
        """RESET to INIT.

        ``access`` are the operations that peers may do (RC, UC); ``qkey`` is the Q_Key (UD).
        """
        for name in others:
            raise no_option("to_init", name, ("port", "access", "pkey_index", "qkey"))
        if self._type == UD:
            self.modify(qp_state=1, pkey_index=pkey_index, port_num=port, qkey=qkey)
        else:
            self.modify(qp_state=1, pkey_index=pkey_index, port_num=port, qp_access_flags=access)

    def to_rtr(self, *, dest_qp_num=0, rq_psn=0, ah_attr=None, path_mtu=5, max_dest_rd_atomic=16,
               min_rnr_timer=12):
        """INIT to RTR, ready to receive.

        UD has none of the arguments, UC and XRC_SEND lack the last two. Raises TypeError without
        ``ah_attr``, the peer's address as AHAttr, and VerbsError.
        """
        if self._type == UD:
            self.modify(qp_state=2)
            return
        if ah_attr is None:
            raise TypeError(
                f"to_rtr of a QP of type {self.qp_type.name} needs the peer's address and number:"
                " ah_attr=AHAttr(dgid=…, sgid_index=…) and dest_qp_num=…; verbs.connect_rc, over a"
                " socket, and verbs.connect_pair, within a process, do all of it"
            )
        fields = dict(
            qp_state=2, ah_attr=ah_attr, path_mtu=path_mtu, dest_qp_num=dest_qp_num, rq_psn=rq_psn
        )
        if self._type != UC and self._type != XRC_SEND:
            fields.update(max_dest_rd_atomic=max_dest_rd_atomic, min_rnr_timer=min_rnr_timer)
        self.modify(**fields)

    def to_rts(self, *, sq_psn=0, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=16):
        """RTR to RTS, ready to send.

        UC and UD have only ``sq_psn``, XRC_RECV also ``timeout``.
        """
        fields = dict(qp_state=3, sq_psn=sq_psn)
        if self._type != UC and self._type != UD:
            fields.update(timeout=timeout)
        if self._type not in (UC, UD, XRC_RECV):
            fields.update(
                retry_cnt=retry_cnt,
                rnr_retry=rnr_retry,
                max_rd_atomic=max_rd_atomic,
            )
        self.modify(**fields)

    # ---- multicast ----

    def attach_mcast(self, gid, lid=0):
        """Attach a UD QP to the multicast group ``gid``, so that it receives the group's datagrams.

        ``gid`` is 16 bytes: an IPv6 multicast address, or an IPv4 one as ``::ffff:a.b.c.d``. RoCE
        ignores ``lid``. Senders address the group by an AH with that ``dgid`` and by
        ``remote_qpn=verbs.MULTICAST_QPN``. A QP that is closed leaves its groups. Raises
        VerbsError: EINVAL (not UD, or no multicast GID), ENOMEM (``max_mcast_grp``,
        ``max_mcast_qp_attach``, or a limit of the system); ValueError when ``gid`` is no 16 bytes.
        """
        cdef uint16_t local = <uint16_t>_wanted(lid, "lid", 0xffff)
        self._change_groups("attach_mcast", gid, local, True)
        self._groups.add((bytes(gid), local))

    def detach_mcast(self, gid, lid=0):
        """Leave the group. Raises VerbsError(EINVAL) when the QP is not attached to it."""
        cdef uint16_t local = <uint16_t>_wanted(lid, "lid", 0xffff)
        self._change_groups("detach_mcast", gid, local, False)
        self._groups.discard((bytes(gid), local))

    cdef void _leave_groups(self) noexcept:
        cdef ibv_gid group
        cdef bytes raw
        for raw, lid in self._groups or ():
            memcpy(group.raw, <const char *>raw, 16)
            self.context.library.call.detach_mcast(self.qp, &group, <uint16_t>lid)
        self._groups = None

    cdef int _change_groups(self, str name, gid, uint16_t lid, bint attach) except -1:
        cdef ibv_gid group
        cdef int code
        cdef bytes raw = bytes(gid)
        self._check()
        if len(raw) != 16:
            raise ValueError(f"a GID has 16 bytes, not {len(raw)}")
        memcpy(group.raw, <const char *>raw, 16)
        self._begin()
        with nogil:
            if attach:
                code = self.context.library.call.attach_mcast(self.qp, &group, lid)
            else:
                code = self.context.library.call.detach_mcast(self.qp, &group, lid)
        self._end()
        if code:
            raise self.context._failed(name, _error_of(code))
        return 0

    # ---- posting ----

    cdef object _refused(self, str call, int code, Py_ssize_t posted=0):
        """As ``_failed``; if the QP's state is the reason, the error names the next step."""
        error = self.context._failed(call, code, posted)
        if error.errno != EINVAL:
            return error
        try:
            return unready(error, call, self.state, self.qp_type)
        except VerbsError:  # another thread is closing the QP
            return error

    def post_send(self, wr):
        """Post a SendWR or a sequence of them.

        Raises VerbsError; its ``posted`` counts the requests that were accepted before the failure.
        """
        if type(wr) is SendWR:
            (<SendWR>wr)._check_ready()
            self._post(&(<SendWR>wr).wr, (<SendWR>wr).nbytes, (<SendWR>wr)._held())
        else:
            self._post_list(_requests(wr, SendWR))

    cdef int _post(self, ibv_send_wr *wr, size_t nbytes, hold) except -1:
        """Post one request; ``hold`` is referenced until it has completed, and may be None."""
        cdef ibv_send_wr *bad = NULL
        cdef int code
        if self.qp is NULL:
            raise self._closed()
        if nbytes < RELEASE_GIL_FROM or self.sends is None:
            code = self.qp.context.ops.post_send(self.qp, wr, &bad)
        else:
            self._begin()
            self.sends.inside += 1
            with nogil:
                code = self.qp.context.ops.post_send(self.qp, wr, &bad)
            self.sends.inside -= 1
            self._end()
        if code:
            raise self._refused("post_send", _error_of(code))
        self._sent(wr.send_flags, hold)
        return 0

    cdef inline int _sent(self, unsigned int flags, hold) except -1:
        if self.sends is not None:
            self.sends._note(hold, self._all_signaled or flags & FLAG_SIGNALED != 0)
        return 0

    cdef int _post_list(self, list requests) except -1:
        cdef ibv_send_wr *bad = NULL
        cdef Py_ssize_t count = len(requests)
        cdef Py_ssize_t i
        cdef int code
        self._check()
        for item in requests:
            (<SendWR>item)._check_ready()
        if count == 0:
            return 0
        cdef ibv_send_wr *wrs = <ibv_send_wr *>malloc(count * sizeof(ibv_send_wr))
        if wrs is NULL:
            raise MemoryError
        for i in range(count):  # copies, because one request may occur twice
            wrs[i] = (<SendWR>requests[i]).wr
            wrs[i].next = &wrs[i + 1] if i + 1 < count else NULL
        try:
            code = self._post_without_gil(wrs, &bad, [(<SendWR>one)._ah for one in requests])
            for i in range(bad - wrs if code else count):
                self._sent(wrs[i].send_flags, (<SendWR>requests[i])._held())
            if code:
                raise self._refused("post_send", _error_of(code), bad - wrs)
        finally:
            free(wrs)
        return 0

    cdef int _post_without_gil(self, ibv_send_wr *wrs, ibv_send_wr **bad, list ahs) except -1:
        """Post a list of as many requests as ``ahs`` has entries; returns ibv_post_send's code."""
        cdef int code
        cdef Py_ssize_t count = len(ahs)
        _begin_all([self, *ahs])
        if self.sends is not None:
            self.sends.inside += count
        with nogil:
            code = self.qp.context.ops.post_send(self.qp, wrs, bad)
        if self.sends is not None:
            self.sends.inside -= count
        _end_all([self, *ahs])
        return code

    def post_recv(self, wr):
        """Post a RecvWR or a sequence of them.

        Raises VerbsError; its ``posted`` counts those before.
        """
        if type(wr) is RecvWR:
            self._post_recv(&(<RecvWR>wr).wr, (<RecvWR>wr).hold)
        else:
            self._post_recv_list(_requests(wr, RecvWR))

    cdef int _post_recv(self, ibv_recv_wr *wr, hold) except -1:
        cdef ibv_recv_wr *bad = NULL
        cdef int code
        if self.qp is NULL:
            raise self._closed()
        code = self.qp.context.ops.post_recv(self.qp, wr, &bad)
        if code:
            raise self._refused("post_recv", _error_of(code))
        if self.receives is not None:
            self.receives._note(hold, True)
        return 0

    cdef int _post_recv_list(self, list requests) except -1:
        cdef ibv_recv_wr *bad = NULL
        cdef int code
        cdef Py_ssize_t i
        self._check()
        cdef ibv_recv_wr *wrs = _chain_recvs(requests)
        try:
            code = self.qp.context.ops.post_recv(self.qp, wrs, &bad) if requests else 0
            if self.receives is not None:
                for i in range(bad - wrs if code else len(requests)):
                    self.receives._note((<RecvWR>requests[i]).hold, True)
            if code:
                raise self._refused("post_recv", _error_of(code), bad - wrs)
        finally:
            free(wrs)
        return 0

    def post_many(self, records, ahs=None):
        """Post every record of a NumPy array of ``verbs.send_dtype`` or ``verbs.recv_dtype``.

        One call, without the GIL; returns the number of records. On UD, ``ahs`` is the sequence of
        AH that the records' ``ah`` fields index. Raises VerbsError; its ``posted`` counts the
        records that were accepted before the failure.
        """
        cdef bint sends = _is_send_batch(records)
        if self.qp is NULL:
            raise self._closed()
        if self._type == XRC_SEND or self._type == XRC_RECV:
            raise TypeError("records name no SRQ: post SendWRs on an XRC QP")
        if not sends:
            return self._post_recv_records(records)
        return self._post_send_array(records, ahs)

    cdef Py_ssize_t _post_recv_records(self, records) except -1:
        cdef Py_ssize_t posted = 0
        try:
            return _post_recv_array(self, &self.qp, NULL, records, "post_recv", &posted)
        finally:
            if self.receives is not None:
                self.receives._note_many(posted, False)

    cdef Py_ssize_t _post_send_array(self, records, ahs) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t count
        cdef Py_ssize_t posted = 0
        cdef Py_ssize_t signaled
        cdef int code
        cdef const SendRecord *first
        cdef ibv_ah **table = NULL
        cdef list handles = [self]
        cdef bint begun = False
        PyObject_GetBuffer(records, &view, PyBUF_C_CONTIGUOUS)
        try:
            first = <const SendRecord *>view.buf
            count = view.len // <Py_ssize_t>sizeof(SendRecord)
            if self._type == UD:
                handles.extend(_open_ahs(ahs))
            _begin_all(handles)
            begun = True
            if self._type == UD:
                table = _ah_table(handles, first, count)
            self.sends.inside += count
            with nogil:
                code = _post_send_records(self.qp, first, count, table, &posted)
                signaled = posted if self._all_signaled else _signaled_records(first, posted)
            self.sends.inside -= count
            _end_all(handles)
            begun = False
            self.sends._note_many(signaled, signaled < posted)
            if code:
                raise self._refused("post_send", _error_of(code), posted)
            return posted
        finally:
            if begun:
                _end_all(handles)
            free(table)
            PyBuffer_Release(&view)

    # ---- one request per call ----

    def send(self, local, offset=0, length=None, *, imm_data=None, wr_id=0, flags=FLAG_SIGNALED,
             AH ah=None, remote_qpn=0, remote_qkey=0, remote_srqn=0):
        """Post a SEND of ``length`` bytes of an MR from ``offset`` on (default: all), or of SGEs.

        With INLINE in ``flags``, ``local`` may be any bytes-like object. With ``imm_data`` it is a
        SEND with immediate data. ``ah``, ``remote_qpn`` and ``remote_qkey`` address a UD peer;
        ``remote_srqn`` is, on XRC_SEND, the number of the SRQ that the request is for, as with all
        the following.
        """
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.qp_type.xrc.remote_srqn = vb_u32(remote_srqn, "remote_srqn", _wanted)
        if ah is not None:
            _of_context(self.context, ah)
            wr.wr.ud.ah = ah.ah
            wr.wr.ud.remote_qpn = vb_u32(remote_qpn, "remote_qpn", _wanted)
            wr.wr.ud.remote_qkey = vb_u32(remote_qkey, "remote_qkey", _wanted)
        wr.opcode = OP_SEND if imm_data is None else OP_SEND_IMM
        self._post_local(&wr, local, offset, length, imm_data, wr_id, flags, ah)

    def send_with_invalidate(self, local, rkey, offset=0, length=None, *, wr_id=0,
                             flags=FLAG_SIGNALED):
        """Post a SEND that invalidates the peer's window of this rkey; otherwise as ``send``."""
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.opcode = <int>OP_SEND_INV
        wr.invalidate_rkey = _u32(rkey, "rkey")
        self._post_local(&wr, local, offset, length, None, wr_id, flags)

    def local_invalidate(self, rkey, *, wr_id=0, flags=FLAG_SIGNALED):
        """Post a LOCAL_INV for the rkey of a window of type 2 that is bound through this QP."""
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.wr_id = _u64(wr_id, "wr_id")
        wr.send_flags = _u32(flags, "flags")
        wr.opcode = <int>OP_LOCAL_INV
        wr.invalidate_rkey = _u32(rkey, "rkey")
        self._post(&wr, 0, None)

    def bind_mw(self, MW mw not None, MR mr=None, offset=0, length=None, access=2, *,
                rkey=None, wr_id=0, flags=FLAG_SIGNALED):
        """Bind a window to ``length`` bytes of an MR from ``offset`` on (default: all).

        Returns the window's new key, which is ``mw.rkey`` from now on. For type 2 its low byte is
        that of ``rkey`` (default: the next one). A window of type 1 without an MR is unbound.
        ``access`` defaults to REMOTE_WRITE. Raises VerbsError. The device refuses a range that
        leaves the MR (MW_BIND_ERR).
        """
        cdef size_t start = _size(offset, "offset"), nbytes
        cdef ibv_mw_bind bind
        cdef ibv_send_wr wr
        cdef ibv_sge sge
        _of_context(self.context, mw)
        memset(&bind, 0, sizeof(bind))
        if mr is not None:
            _of_context(self.context, mr)
            if length is None:
                _fill_sge(&sge, mr, start, None)
                nbytes = sge.length
            else:
                nbytes = _size(length, "length")
            bind.bind_info.mr = mr.mr
            bind.bind_info.addr = mr.base + start
            bind.bind_info.length = nbytes
            bind.bind_info.mw_access_flags = _access_flags(access)
        bind.wr_id = _u64(wr_id, "wr_id")
        bind.send_flags = _u32(flags, "flags")
        if mw.mw.type == WINDOW_TYPE_1:
            self._bind_type_1(mw, mr, &bind)
            mw.bound = mr
            return mw.mw.rkey
        memset(&wr, 0, sizeof(wr))
        wr.wr_id = _u64(wr_id, "wr_id")
        wr.send_flags = _u32(flags, "flags")
        wr.opcode = <int>OP_BIND_MW
        wr.bind_mw.mw = mw.mw
        wr.bind_mw.rkey = inc_rkey(mw.mw.rkey) if rkey is None else _u32(rkey, "rkey")
        wr.bind_mw.bind_info = bind.bind_info
        self._post(&wr, 0, mw)
        mw.mw.rkey = wr.bind_mw.rkey
        mw.bound = mr
        return mw.mw.rkey

    cdef int _bind_type_1(self, MW mw, MR mr, ibv_mw_bind *bind) except -1:
        cdef int code
        _begin_all((self, mw, mr))
        with nogil:
            code = self.qp.context.ops.bind_mw(self.qp, mw.mw, bind)
        _end_all((self, mw, mr))
        if code:
            raise failed("bind_mw", _error_of(code))
        self._sent(bind.send_flags, mw)
        return 0

    def recv(self, local, offset=0, length=None, *, wr_id=0):
        """Post a receive into ``length`` bytes of an MR from ``offset`` on (default: all), or into
        SGEs."""
        cdef ibv_recv_wr wr
        cdef ibv_sge sge
        if type(local) is not MR:
            self.post_recv(_recv_request(local, offset, length, wr_id))
            return
        self._check()
        _fill_sge(&sge, local, vb_size(offset, "offset", _wanted), length)
        wr.wr_id = vb_u64(wr_id, "wr_id", _wanted)
        wr.next = NULL
        wr.sg_list = &sge
        wr.num_sge = 1
        self._post_recv(&wr, local)

    def write(self, local, remote_addr, rkey, offset=0, length=None, *, imm_data=None, wr_id=0,
              flags=FLAG_SIGNALED, remote_srqn=0):
        """Post an RDMA WRITE to ``remote_addr``; the other arguments are those of ``send``."""
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.qp_type.xrc.remote_srqn = vb_u32(remote_srqn, "remote_srqn", _wanted)
        wr.wr.rdma.remote_addr = vb_u64(remote_addr, "remote_addr", _wanted)
        wr.wr.rdma.rkey = vb_u32(rkey, "rkey", _wanted)
        wr.opcode = OP_WRITE if imm_data is None else OP_WRITE_IMM
        self._post_local(&wr, local, offset, length, imm_data, wr_id, flags)

    def read(self, local, remote_addr, rkey, offset=0, length=None, *, wr_id=0,
             flags=FLAG_SIGNALED, remote_srqn=0):
        """Post an RDMA READ from ``remote_addr`` into ``length`` bytes of an MR, or into SGEs."""
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.qp_type.xrc.remote_srqn = vb_u32(remote_srqn, "remote_srqn", _wanted)
        wr.wr.rdma.remote_addr = vb_u64(remote_addr, "remote_addr", _wanted)
        wr.wr.rdma.rkey = vb_u32(rkey, "rkey", _wanted)
        wr.opcode = <int>OP_READ
        self._post_local(&wr, local, offset, length, None, wr_id, flags)

    def compare_swap(self, local, remote_addr, rkey, compare, swap, offset=0, *, wr_id=0,
                     flags=FLAG_SIGNALED, remote_srqn=0):
        """Post a compare-and-swap of the 64-bit word at ``remote_addr`` (a multiple of 8).

        The word's old value is written to the 8 bytes at ``offset`` of the MR, in host byte order.
        """
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.qp_type.xrc.remote_srqn = _u32(remote_srqn, "remote_srqn")
        _fill_atomic(
            &wr, _u64(remote_addr, "remote_addr"), _u32(rkey, "rkey"), _u64(compare, "compare"),
            _u64(swap, "swap")
        )
        wr.opcode = <int>OP_COMPARE_SWAP
        length = 8 if isinstance(local, MR) else None
        self._post_local(&wr, local, offset, length, None, wr_id, flags)

    def fetch_add(self, local, remote_addr, rkey, add, offset=0, *, wr_id=0, flags=FLAG_SIGNALED,
                  remote_srqn=0):
        """Post a fetch-and-add to the 64-bit word at ``remote_addr``; see ``compare_swap``."""
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.qp_type.xrc.remote_srqn = _u32(remote_srqn, "remote_srqn")
        _fill_atomic(
            &wr, _u64(remote_addr, "remote_addr"), _u32(rkey, "rkey"), _u64(add, "add"), 0
        )
        wr.opcode = <int>OP_FETCH_ADD
        length = 8 if isinstance(local, MR) else None
        self._post_local(&wr, local, offset, length, None, wr_id, flags)

    def atomic_write(self, local, remote_addr, rkey, offset=0, *, wr_id=0, flags=FLAG_SIGNALED,
                     remote_srqn=0):
        """Post an atomic write of the 8 bytes at ``offset`` of the MR to ``remote_addr``.

        ``remote_addr`` is a multiple of 8, and a reader sees all of the eight bytes or none (IBA
        1.5, annex A19). The request counts among the ``max_rd_atomic`` and needs ``REMOTE_WRITE``.
        """
        cdef ibv_send_wr wr
        memset(&wr, 0, sizeof(wr))
        wr.qp_type.xrc.remote_srqn = _u32(remote_srqn, "remote_srqn")
        wr.wr.rdma.remote_addr = _u64(remote_addr, "remote_addr")
        wr.wr.rdma.rkey = _u32(rkey, "rkey")
        wr.opcode = <int>OP_ATOMIC_WRITE
        length = 8 if isinstance(local, MR) else None
        self._post_local(&wr, local, offset, length, None, wr_id, flags)

    def flush(self, remote_addr, rkey, length=None, *, placement=PLACED_GLOBALLY,
              wr_id=0, flags=FLAG_SIGNALED, remote_srqn=0):
        """Post a FLUSH of ``length`` bytes from ``remote_addr`` on (IBA 1.5, annex A19).

        When it completes, this QP's earlier writes there are visible to the peer's whole host.
        ``length`` None stands for the whole region, and ``remote_addr`` is ignored then.
        ``placement`` is a PlacementType; the peer's QP and region need FLUSH_GLOBAL,
        FLUSH_PERSISTENT or both. It counts among the ``max_rd_atomic``. Raises VerbsError:
        EOPNOTSUPP with a libibverbs other than Verbena's, EINVAL for an unknown placement.
        """
        cdef ibv_send_wr wr
        cdef size_t nbytes = 0 if length is None else _size(length, "length")
        cdef uint8_t type = <uint8_t>_wanted(placement, "placement", 0xff)
        cdef int code
        self._check()
        if self.context.library.call.post_flush is NULL:
            raise failed("flush", EOPNOTSUPP)
        memset(&wr, 0, sizeof(wr))
        wr.wr_id = _u64(wr_id, "wr_id")
        wr.send_flags = _u32(flags, "flags")
        wr.qp_type.xrc.remote_srqn = _u32(remote_srqn, "remote_srqn")
        wr.wr.rdma.remote_addr = _u64(remote_addr, "remote_addr")
        wr.wr.rdma.rkey = _u32(rkey, "rkey")
        self._check()
        code = self.context.library.call.post_flush(self.qp, &wr, nbytes, type, length is None)
        if code:
            raise self.context._failed("flush", _error_of(code))
        self._sent(wr.send_flags, None)

    cdef int _post_local(self, ibv_send_wr *wr, local, offset, length, imm_data, wr_id, flags,
                         AH ah=None) except -1:
        cdef ibv_sge sge
        cdef ScatterGather gather
        cdef size_t start = vb_size(offset, "offset", _wanted)
        cdef bint copied
        wr.wr_id = vb_u64(wr_id, "wr_id", _wanted)
        wr.send_flags = vb_u32(flags, "flags", _wanted)
        copied = wr.send_flags & FLAG_INLINE != 0
        if imm_data is not None:
            wr.imm_data = htonl(vb_u32(imm_data, "imm_data", _wanted))
        if type(local) is MR:
            _fill_sge(&sge, local, start, length)
            wr.sg_list = &sge
            wr.num_sge = 1
            return self._post(wr, sge.length, _with_ah(None if copied else local, ah))
        if copied and PyObject_CheckBuffer(local):
            return self._post_bytes(wr, local, start, length, ah)
        gather = ScatterGather()
        gather._set(local)
        wr.sg_list = gather.sges
        wr.num_sge = gather.count
        return self._post(wr, gather.nbytes, _with_ah(None if copied else gather.hold, ah))

    cdef int _post_bytes(self, ibv_send_wr *wr, local, size_t start, length, AH ah) except -1:
        """Post inline data, which is copied before the call returns, so it needs no MR."""
        cdef Py_buffer view
        cdef ibv_sge sge
        cdef size_t nbytes = 0
        if length is not None:
            nbytes = _size(length, "length")
        PyObject_GetBuffer(local, &view, PyBUF_ANY_CONTIGUOUS)
        try:
            if length is None and start < <size_t>view.len:
                nbytes = <size_t>view.len - start
            if start > <size_t>view.len or nbytes > <size_t>view.len - start:
                raise ValueError(f"{nbytes} bytes from {start} on leave the {view.len} bytes")
            sge.addr = <uintptr_t>view.buf + start
            sge.length = <uint32_t>nbytes
            sge.lkey = 0
            wr.sg_list = &sge
            wr.num_sge = 1
            return self._post(wr, sge.length, ah)
        finally:
            PyBuffer_Release(&view)

    def __repr__(self):
        if self.qp is NULL:
            return "<QP closed>"
        return f"<QP {self.qp_type.name} {self.qp.qp_num:#x}>"


cdef inline object _with_ah(hold, AH ah):
    return hold if ah is None else (hold, ah)


cdef list _requests(wr, kind):
    """Return the requests of a list. Raises TypeError when they are not of this class."""
    if isinstance(wr, (SGE, MR)) or not hasattr(wr, "__iter__"):
        wr = (wr,)
    cdef list requests = list(wr)
    for item in requests:
        if not isinstance(item, kind):
            raise TypeError(
                f"expected a {kind.__name__} or a sequence of them, not {type(item).__name__}"
            )
    return requests


cdef list _open_ahs(ahs):
    cdef list found = list(ahs or ())
    cdef AH ah
    for ah in found:
        if ah is None or ah.ah is NULL:
            raise ValueError("ahs holds an AH that is closed")
    return found


cdef ibv_ah **_ah_table(list things, const SendRecord *records, Py_ssize_t count) except NULL:
    """Return the C handles of the AHs in ``things``, whose first item is the QP.

    Checks that the index of every record is valid. The caller frees the result.
    """
    cdef Py_ssize_t room = len(things) - 1
    cdef Py_ssize_t i
    for i in range(count):
        if records[i].rkey >= <size_t>room:
            raise ValueError(
                f"record {i}: ah index {records[i].rkey} is outside ahs, which has {room}"
            )
    cdef ibv_ah **table = <ibv_ah **>malloc((room + 1) * sizeof(ibv_ah *))
    if table is NULL:
        raise MemoryError
    for i in range(room):
        table[i] = (<AH>things[i + 1]).ah
    return table


cdef QP _create_qp(PD pd, init):
    cdef QP self = QP.__new__(QP)
    cdef ibv_qp_init_attr attr
    self._adopt(pd.context)
    self.pd = pd
    self.send_cq = init.send_cq
    self.recv_cq = init.recv_cq if init.recv_cq is not None else init.send_cq
    if init.qp_type == XRC_RECV:
        raise TypeError("an XRC target QP is made by its domain: XRCD.create_qp()")
    self.srq = init.srq
    self._type = _int(init.qp_type, "qp_type")
    self._all_signaled = bool(init.sq_sig_all)
    self._groups = set()
    memset(&attr, 0, sizeof(attr))
    attr.qp_context = <void *>self.token
    attr.qp_type = self._type
    attr.sq_sig_all = self._all_signaled
    _fill_cap(&attr.cap, init)
    _fill_queues(&attr, self)
    parts = (self.pd, self.send_cq, self.recv_cq, self.srq)
    _begin_all(parts)
    with nogil:
        self.qp = pd.context.library.call.create_qp(pd.pd, &attr)
    _end_all(parts)
    if self.qp is NULL:
        raise pd.context._failed("create_qp", errno)
    _enlist(self)
    # Last, since it runs Python code, in which another thread may close the QP.
    self.cap = _qp_cap(&attr.cap)
    return self


cdef int _fill_queues(ibv_qp_init_attr *attr, QP qp) except -1:
    if qp.send_cq is None:
        raise TypeError("a QP needs send_cq")
    _of_context(qp.context, qp.send_cq)
    _of_context(qp.context, qp.recv_cq)
    attr.send_cq = qp.send_cq.cq
    attr.recv_cq = qp.recv_cq.cq
    if qp.srq is not None:
        _of_context(qp.context, qp.srq)
        attr.srq = qp.srq.srq
    return 0


cdef int _fill_cap(ibv_qp_cap *cap, source) except -1:
    cap.max_send_wr = _u32(source.max_send_wr, "max_send_wr")
    cap.max_recv_wr = _u32(source.max_recv_wr, "max_recv_wr")
    cap.max_send_sge = _u32(source.max_send_sge, "max_send_sge")
    cap.max_recv_sge = _u32(source.max_recv_sge, "max_recv_sge")
    cap.max_inline_data = _u32(source.max_inline_data, "max_inline_data")
    return 0


cdef object _qp_cap(ibv_qp_cap *cap):
    return _attributes.QPCap(
        cap.max_send_wr,
        cap.max_recv_wr,
        cap.max_send_sge,
        cap.max_recv_sge,
        cap.max_inline_data,
    )


cdef int _set_attr(ibv_qp_attr *attr, str name, value) except -1:
    """Set one attribute of ``QP.modify``; returns its bit of the mask."""
    if name == "ah_attr":
        _fill_ah_attr(&attr.ah_attr, value)
        return MASK_AV
    if name == "alt_ah_attr":
        _fill_ah_attr(&attr.alt_ah_attr, value)
        return MASK_ALT_PATH
    if name == "cap":
        _fill_cap(&attr.cap, value)
        return MASK_CAP
    number = _whole_number(name, value)
    cdef int bit = -ERANGE
    if 0 <= number <= UINT64_MAX:
        bit = vb_set_qp_field(attr, name.encode(), number)
    if bit == -ERANGE:
        raise OverflowError(f"{name}={number} does not fit its field of struct ibv_qp_attr")
    if bit < 0:
        raise TypeError(f"QP.modify has no attribute {name!r}")
    return bit


cdef object _qp_attr(ibv_qp_attr *attr):
    return _attributes.QPAttr(
        qp_state=_enums.QPState(attr.qp_state),
        cur_qp_state=_enums.QPState(attr.cur_qp_state),
        path_mtu=attr.path_mtu,
        path_mig_state=attr.path_mig_state,
        qkey=attr.qkey,
        rq_psn=attr.rq_psn,
        sq_psn=attr.sq_psn,
        dest_qp_num=attr.dest_qp_num,
        qp_access_flags=_enums.AccessFlags(attr.qp_access_flags),
        cap=_qp_cap(&attr.cap),
        ah_attr=_ah_attr(&attr.ah_attr),
        pkey_index=attr.pkey_index,
        sq_draining=bool(attr.sq_draining),
        max_rd_atomic=attr.max_rd_atomic,
        max_dest_rd_atomic=attr.max_dest_rd_atomic,
        min_rnr_timer=attr.min_rnr_timer,
        port_num=attr.port_num,
        timeout=attr.timeout,
        retry_cnt=attr.retry_cnt,
        rnr_retry=attr.rnr_retry,
    )
