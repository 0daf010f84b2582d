# SPDX-License-Identifier: Apache-2.0
# XRC domains, with their SRQs and target QPs.

@cython.no_gc_clear
cdef class XRCD(Resource):
    """An XRC domain: its target QPs deliver each request to the SRQ that it names.

    ``Context.open_xrcd`` opens it. Initiators are QPs of type XRC_SEND, made as all others
    (``PD.create_qp``).
    """

    cdef ibv_xrcd *xrcd

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_PD

    cdef bint _is_open(self):
        return self.xrcd is not NULL

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.xrcd is not NULL:
            code = vb_xrc_close(self.xrcd)
            code = _error_of(code)
            if code == 0:
                self.xrcd = NULL
        return code

    cdef void _forget(self) noexcept:
        self.xrcd = NULL

    cdef int _check(self) except -1:
        if self.xrcd is NULL:
            raise self._closed()
        return 0

    def create_srq(self, PD pd, CQ cq, max_wr=128, max_sge=1, srq_limit=0):
        """Make an SRQ that requests name by its ``srq_num``; its receives complete on ``cq``.

        ``pd`` is the protection domain of its buffers, and of the rkeys of requests that name it.
        Raises VerbsError.
        """
        self._check()
        _of_context(self.context, pd)
        _of_context(self.context, cq)
        return _create_xrc_srq(
            self, pd, cq, _u32(max_wr, "max_wr"), _u32(max_sge, "max_sge"),
            _u32(srq_limit, "srq_limit")
        )

    def create_qp(self):
        """Make a target QP (XRC_RECV). It has no queues, and no ``pd``, ``send_cq``, ``recv_cq``.

        Raises VerbsError.
        """
        self._check()
        return _create_target(self, None)

    def open_qp(self, qp_num):
        """Return another handle of a target QP of this domain, which lives until its last handle.

        Raises VerbsError: EINVAL when the domain has none of this number, EOPNOTSUPP when it is
        another process's (over Verbena: its SRQs and target QPs belong to one process).
        """
        self._check()
        return _create_target(self, qp_num)

    def __repr__(self):
        return f"<XRCD {'open' if self._is_open() else 'closed'}>"


cdef XRCD _open_xrcd(Context context, int fd, int oflags):
    cdef XRCD self = XRCD.__new__(XRCD)
    self._adopt(context)
    context._begin()
    with nogil:
        self.xrcd = vb_xrc_open(context.context, fd, oflags)
    context._end()
    if self.xrcd is NULL:
        raise context._failed("open_xrcd", errno)
    return self


cdef SRQ _create_xrc_srq(XRCD xrcd, PD pd, CQ cq, uint32_t max_wr, uint32_t max_sge,
                         uint32_t srq_limit):
    cdef SRQ self = SRQ.__new__(SRQ)
    cdef ibv_srq_init_attr attr
    self.work = SharedWork()
    self._adopt(xrcd.context)
    self.pd = pd
    self.xrcd = xrcd
    self.cq = cq
    _fill_srq_attr(&attr, self.token, max_wr, max_sge, srq_limit)
    _begin_all((pd, xrcd, cq))
    with nogil:
        self.srq = vb_xrc_create_srq(pd.pd, xrcd.xrcd, cq.cq, &attr)
    _end_all((pd, xrcd, cq))
    if self.srq is NULL:
        raise xrcd.context._failed("create_srq_ex", errno)
    cq.xrc_queues.append(self.work)
    return self


cdef QP _create_target(XRCD xrcd, qp_num):
    """Make a target QP, or with ``qp_num`` return a handle of that one."""
    cdef QP self = QP.__new__(QP)
    cdef uint32_t number = 0 if qp_num is None else _u32(qp_num, "qp_num")
    cdef ibv_qp_cap cap
    self._adopt(xrcd.context)
    self.xrcd = xrcd
    self._type = XRC_RECV
    memset(&cap, 0, sizeof(cap))
    self.cap = _qp_cap(&cap)
    xrcd._check()
    if qp_num is None:
        self.qp = vb_xrc_create_qp(xrcd.xrcd, <void *>self.token)
    else:
        self.qp = vb_xrc_open_qp(xrcd.xrcd, number, <void *>self.token)
    if self.qp is NULL:
        raise xrcd.context._failed("create_qp_ex" if qp_num is None else "open_qp", errno)
    return self
