# SPDX-License-Identifier: Apache-2.0
# Memory windows, device memory, thread and parent domains.

cdef enum:
    WINDOW_TYPE_1 = 1
    WINDOW_TYPE_2 = 2


def inc_rkey(rkey):
    """The key with the next low byte (``ibv_inc_rkey``), for a window's next binding."""
    cdef uint32_t key = _u32(rkey, "rkey")
    return (key & 0xffffff00) | ((key + 1) & 0xff)


@cython.no_gc_clear
cdef class MW(Resource):
    """A memory window: a key for a part of a region, to which ``QP.bind_mw`` binds it.

    ``close()`` also unbinds it.
    """

    cdef readonly PD pd
    cdef MR bound  # it cannot be closed before the window
    cdef ibv_mw *mw

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef bint _is_open(self):
        return self.mw is not NULL

    cdef bint _uses(self, Resource other):
        return other is self.pd

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.mw is not NULL:
            code = self.mw.context.ops.dealloc_mw(self.mw)
            code = _error_of(code)
            if code == 0:
                self.mw = NULL
                self.bound = None
        return code

    cdef void _forget(self) noexcept:
        self.mw = NULL

    cdef int _check(self) except -1:
        if self.mw is NULL:
            raise self._closed()
        return 0

    @property
    def rkey(self):
        """The key by which peers name it, as it was last bound."""
        self._check()
        return self.mw.rkey

    @property
    def type(self):
        """1 or 2, as a MWType."""
        self._check()
        return _enums.MWType(self.mw.type)

    @property
    def handle(self):
        """The provider's number for it."""
        self._check()
        return self.mw.handle

    def __repr__(self):
        if self.mw is NULL:
            return "<MW closed>"
        return f"<MW type {self.mw.type} rkey={self.mw.rkey:#x}>"


cdef MW _alloc_mw(PD pd, int mw_type):
    cdef MW self = MW.__new__(MW)
    self._adopt(pd.context)
    self.pd = pd
    pd._begin()
    if pd.context.context.ops.alloc_mw is NULL:
        pd._end()
        raise failed("alloc_mw", EOPNOTSUPP)
    with nogil:
        self.mw = pd.context.context.ops.alloc_mw(pd.pd, mw_type)
    pd._end()
    if self.mw is NULL:
        raise pd.context._failed("alloc_mw", errno)
    return self


@cython.no_gc_clear
cdef class DM(Resource):
    """Device memory: ``PD.reg_dm`` makes a region of it, whose addresses count from 0."""

    cdef ibv_dm *dm
    cdef size_t nbytes

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_CQ  # after its regions

    cdef bint _is_open(self):
        return self.dm is not NULL

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.dm is not NULL:
            code = vb_free_dm(self.dm)
            code = _error_of(code)
            if code == 0:
                self.dm = NULL
        return code

    cdef void _forget(self) noexcept:
        self.dm = NULL

    cdef int _check(self) except -1:
        if self.dm is NULL:
            raise self._closed()
        return 0

    @property
    def length(self):
        """Its length in bytes."""
        return self.nbytes

    @property
    def handle(self):
        """The provider's number for it."""
        self._check()
        return self.dm.handle

    def copy_to(self, offset, data):
        """Copy bytes into it, to ``offset``.

        Raises VerbsError(EINVAL) for a range that leaves it, and unless offset and length are
        multiples of 4 bytes.
        """
        cdef Py_buffer view
        cdef uint64_t start = _u64(offset, "offset")
        cdef int code
        PyObject_GetBuffer(data, &view, PyBUF_ANY_CONTIGUOUS)
        try:
            self._check()
            code = self.dm.memcpy_to_dm(self.dm, start, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        if code:
            raise failed("DM.copy_to", _error_of(code))

    def copy_from(self, offset, length):
        """The ``length`` bytes at ``offset``. Raises VerbsError(EINVAL) as copy_to does."""
        cdef int code
        cdef bytearray data
        cdef uint64_t start = _u64(offset, "offset")
        cdef size_t nbytes = _size(length, "length")
        self._check()
        if nbytes > self.nbytes:
            raise failed("DM.copy_from", EINVAL)
        data = bytearray(nbytes)
        self._check()
        code = self.dm.memcpy_from_dm(<char *>data, self.dm, start, nbytes)
        if code:
            raise failed("DM.copy_from", _error_of(code))
        return bytes(data)

    def __repr__(self):
        return f"<DM of {self.nbytes} bytes{'' if self._is_open() else ' closed'}>"


cdef DM _alloc_dm(Context context, size_t length, uint32_t log_align_req):
    cdef DM self = DM.__new__(DM)
    self._adopt(context)
    self.nbytes = length
    context._begin()
    with nogil:
        self.dm = vb_alloc_dm(context.context, length, log_align_req)
    context._end()
    if self.dm is NULL:
        raise failed("alloc_dm", errno)
    return self


@cython.no_gc_clear
cdef class TD(Resource):
    """A thread domain: objects of a parent domain with it are used by one thread at a time."""

    cdef ibv_td *td

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_PD

    cdef bint _is_open(self):
        return self.td is not NULL

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.td is not NULL:
            code = vb_dealloc_td(self.td)
            code = _error_of(code)
            if code == 0:
                self.td = NULL
        return code

    cdef void _forget(self) noexcept:
        self.td = NULL


cdef TD _alloc_td(Context context):
    cdef TD self = TD.__new__(TD)
    self._adopt(context)
    context._begin()
    with nogil:
        self.td = vb_alloc_td(context.context)
    context._end()
    if self.td is NULL:
        raise context._failed("alloc_td", errno)
    return self


@cython.no_gc_clear
cdef class ParentDomain(PD):
    """A protection domain over another one: keys and QPs of both work together."""

    cdef readonly PD parent
    cdef readonly TD td

    def __dealloc__(self):
        self._leave()
        self._destroy()  # here, because that of PD runs after `parent` and `td` are released

    cdef int _rank(self):
        return RANK_CHANNEL  # before its domains

    cdef bint _uses(self, Resource other):
        return other is self.parent or other is self.td


cdef ParentDomain _alloc_parent_domain(PD parent, TD td):
    cdef ParentDomain self = ParentDomain.__new__(ParentDomain)
    cdef ibv_td *domain = NULL
    parent._check()
    if td is not None:
        _of_context(parent.context, td)
    self._adopt(parent.context)
    self.parent = parent
    self.td = td
    _begin_all((parent, td))
    if td is not None:
        domain = td.td
    with nogil:
        self.pd = vb_alloc_parent_domain(parent.pd, domain)
    _end_all((parent, td))
    if self.pd is NULL:
        raise parent.context._failed("alloc_parent_domain", errno)
    return self
