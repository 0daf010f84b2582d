# SPDX-License-Identifier: Apache-2.0
# Shared receive queues.

@cython.no_gc_clear
cdef class SRQ(Resource):
    """A shared receive queue, from which several QPs take their receives.

    An SRQ of ``XRCD.create_srq`` also has an ``xrcd``, a ``cq`` and a number.
    """

    cdef readonly PD pd
    cdef readonly XRCD xrcd
    cdef readonly CQ cq
    cdef ibv_srq *srq
    cdef SharedWork work

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_SHARED

    cdef bint _is_open(self):
        return self.srq is not NULL

    cdef bint _uses(self, Resource other):
        return other in (self.pd, self.xrcd, self.cq)

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.srq is not NULL:
            code = self.context.library.call.destroy_srq(self.srq)
            code = _error_of(code)
            if code == 0:
                self.srq = NULL
                self.work._clear()
                if self.cq is not None and self.work in self.cq.xrc_queues:
                    self.cq.xrc_queues.remove(self.work)
        return code

    cdef void _forget(self) noexcept:
        self.srq = NULL

    cdef int _check(self) except -1:
        if self.srq is NULL:
            raise self._closed()
        return 0

    @property
    def srq_num(self):
        """The number by which XRC requests name it. Raises VerbsError(EINVAL) for another kind."""
        self._check()
        cdef int64_t number = vb_xrc_srq_num(self.srq)
        if number < 0:
            raise self.context._failed("get_srq_num", errno)
        return number

    def post_recv(self, wr):
        """Post a RecvWR or a sequence of them.

        Raises VerbsError; its ``posted`` counts the requests before the failed one.
        """
        cdef ibv_recv_wr *bad = NULL
        cdef int code
        if type(wr) is not RecvWR:
            return self._post_list(_requests(wr, RecvWR))
        self._check()
        code = self.srq.context.ops.post_srq_recv(self.srq, &(<RecvWR>wr).wr, &bad)
        if code:
            raise self.context._failed("post_srq_recv", _error_of(code))
        self.work._note((<RecvWR>wr).wr.wr_id, (<RecvWR>wr).hold)

    cdef object _post_list(self, list requests):
        cdef ibv_recv_wr *bad = NULL
        cdef int code
        cdef Py_ssize_t i
        self._check()
        cdef ibv_recv_wr *wrs = _chain_recvs(requests)
        try:
            code = self.srq.context.ops.post_srq_recv(self.srq, wrs, &bad) if requests else 0
            for i in range(bad - wrs if code else len(requests)):
                self.work._note(wrs[i].wr_id, (<RecvWR>requests[i]).hold)
            if code:
                raise self.context._failed("post_srq_recv", _error_of(code), bad - wrs)
        finally:
            free(wrs)

    def recv(self, local, offset=0, length=None, wr_id=0):
        """Post one receive into an MR (``length`` bytes from ``offset``) or into a sequence of
        SGEs."""
        self.post_recv(_recv_request(local, offset, length, wr_id))

    def post_many(self, records):
        """Post every record of a NumPy array of ``verbs.recv_dtype``; returns their number.

        One call, without the GIL. Raises VerbsError; its ``posted`` counts the records before the
        failure.
        """
        cdef Py_ssize_t posted
        if _is_send_batch(records):
            raise TypeError("an SRQ takes verbs.recv_dtype")
        return _post_recv_array(self, NULL, &self.srq, records, "post_srq_recv", &posted)

    def query(self):
        """Its present attributes, as SRQAttr."""
        cdef ibv_srq_attr attr
        self._check()
        cdef int code = self.context.library.call.query_srq(self.srq, &attr)
        if code:
            raise self.context._failed("query_srq", _error_of(code))
        return _attributes.SRQAttr(attr.max_wr, attr.max_sge, attr.srq_limit)

    def modify(self, max_wr=None, srq_limit=None):
        """Change its size, or arm the limit event: SRQ_LIMIT_REACHED comes once when fewer receives
        than ``srq_limit`` are left."""
        cdef ibv_srq_attr attr
        cdef int mask = (1 if max_wr is not None else 0) | (2 if srq_limit is not None else 0)
        memset(&attr, 0, sizeof(attr))
        attr.max_wr = 0 if max_wr is None else _u32(max_wr, "max_wr")
        attr.srq_limit = 0 if srq_limit is None else _u32(srq_limit, "srq_limit")
        self._check()
        cdef int code = self.context.library.call.modify_srq(self.srq, &attr, mask)
        if code:
            raise self.context._failed("modify_srq", _error_of(code))

    def __repr__(self):
        return f"<SRQ {'open' if self._is_open() else 'closed'}>"


cdef SRQ _create_srq(PD pd, uint32_t max_wr, uint32_t max_sge, uint32_t srq_limit):
    cdef SRQ self = SRQ.__new__(SRQ)
    cdef ibv_srq_init_attr attr
    self.work = SharedWork()
    self._adopt(pd.context)
    self.pd = pd
    _fill_srq_attr(&attr, self.token, max_wr, max_sge, srq_limit)
    pd._begin()
    with nogil:
        self.srq = pd.context.library.call.create_srq(pd.pd, &attr)
    pd._end()
    if self.srq is NULL:
        raise pd.context._failed("create_srq", errno)
    return self


cdef void _fill_srq_attr(ibv_srq_init_attr *attr, size_t token, uint32_t max_wr, uint32_t max_sge,
                         uint32_t srq_limit) noexcept:
    memset(attr, 0, sizeof(attr[0]))
    attr.srq_context = <void *>token
    attr.attr.max_wr = max_wr
    attr.attr.max_sge = max_sge
    attr.attr.srq_limit = srq_limit


cdef RecvWR _recv_request(local, offset, length, wr_id):
    return RecvWR(wr_id, SGE(local, length, 0, offset) if isinstance(local, MR) else local)


cdef Py_ssize_t _post_recv_array(Resource owner, ibv_qp **qp, ibv_srq **srq, records,
                                 str call, Py_ssize_t *posted) except -1:
    """Post records; ``posted`` is set to the number of accepted ones, also if this raises.

    ``owner`` is the QP or SRQ, and ``qp`` or ``srq`` where it keeps its C object; the other is
    NULL.
    """
    cdef Py_buffer view
    cdef int code
    cdef Py_ssize_t count
    PyObject_GetBuffer(records, &view, PyBUF_C_CONTIGUOUS)
    try:
        count = view.len // <Py_ssize_t>sizeof(RecvRecord)
        posted[0] = 0
        owner._begin()
        with nogil:
            code = _post_recv_records(
                qp[0] if qp is not NULL else NULL, srq[0] if srq is not NULL else NULL,
                <const RecvRecord *>view.buf, count, posted
            )
        owner._end()
        if code:
            raise owner.context._failed(call, _error_of(code), posted[0])
        return posted[0]
    finally:
        PyBuffer_Release(&view)
