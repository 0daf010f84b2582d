# SPDX-License-Identifier: Apache-2.0
# Protection domains and memory regions.

cdef enum:
    MEMORY_NONE = 0      # registered by address: the caller's memory
    MEMORY_BUFFER = 1    # an object with the buffer protocol, held in MR.buffer
    MEMORY_HEAP = 2      # Verbena's shared heap
    MEMORY_MAPPED = 3    # an anonymous mapping, over a library without such a heap

cdef enum:
    REREG_TRANSLATION = 1
    REREG_PD = 2
    REREG_ACCESS = 4

cdef enum:
    WRITING_ACCESS = 1 | 2 | 8             # LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC
    ZERO_BASED_ACCESS = 32
    ON_DEMAND_ACCESS = 1 << 6              # IBV_ACCESS_ON_DEMAND
    OPTIONAL_ACCESS = 0x3ff00000           # IBV_ACCESS_OPTIONAL_RANGE: ignored, never refused
    PAGE = 4096


cdef bint _is_address(target) except -1:
    """Return whether ``target`` is a number, and not memory that can be registered: a scalar of
    NumPy is both, and its bytes cannot be written."""
    if isinstance(target, int):
        return True
    if not hasattr(target, "__index__"):
        return False
    try:
        view = memoryview(target)
    except TypeError:
        return True
    return view.ndim == 0 and view.readonly


@cython.no_gc_clear
cdef class PD(Resource):
    """A protection domain: MRs, QPs, SRQs and AHs work together only within one."""

    cdef ibv_pd *pd

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef int _rank(self):
        return RANK_PD

    cdef bint _is_open(self):
        return self.pd is not NULL

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.pd is not NULL:
            code = self.context.library.call.dealloc_pd(self.pd)
            code = _error_of(code)
            if code == 0:
                self.pd = NULL
        return code

    cdef void _forget(self) noexcept:
        self.pd = NULL

    cdef int _check(self) except -1:
        if self.pd is NULL:
            raise self._closed()
        return 0

    def reg_mr(self, target, *args, **kwargs):
        """Register memory: ``reg_mr(obj, access)`` or ``reg_mr(addr, length, access)``.

        ``obj`` is any object with the buffer protocol whose bytes are contiguous; the region holds
        a reference to it. By address, the caller keeps the memory alive. ``access`` defaults to
        LOCAL_WRITE. Raises VerbsError, and BufferError when the memory is read-only but ``access``
        writes.
        """
        self._check()
        if _is_address(target):
            if not args and "length" not in kwargs:
                raise TypeError("an address has no length of its own: reg_mr(addr, length, access)")
            return self._reg_address(target, *args, **kwargs)
        if len(args) + len(kwargs) > 1:
            raise TypeError("an object has its own length: reg_mr(obj, access)")
        return self._reg_buffer(target, *args, **kwargs)

    def _reg_address(self, addr, length, access=1):
        cdef size_t start = _size(addr, "addr")
        cdef MR mr = _new_mr(self, <void *>start, _size(length, "length"))
        return _register(self, mr, access, "reg_mr")

    def _reg_buffer(self, target, access=1):
        cdef MR mr = _new_mr(self, NULL, 0)
        cdef int flags = PyBUF_ANY_CONTIGUOUS
        if _access_flags(access) & WRITING_ACCESS:
            flags |= PyBUF_WRITABLE
        if not PyObject_CheckBuffer(target):
            raise _no_buffer(target)
        if getattr(getattr(target, "dtype", None), "hasobject", False):
            raise TypeError(
                "cannot register an array of Python objects: its memory holds addresses, which mean"
                " nothing to a peer; convert it to an array of numbers or bytes first"
            )
        try:
            PyObject_GetBuffer(target, &mr.buffer, flags)
        except (BufferError, ValueError) as error:
            raise BufferError(
                f"cannot register this {type(target).__name__}: {str(error).rstrip('.')}; it must"
                " be contiguous, and writable unless access is 0 or REMOTE_READ"
            ) from error
        mr.kind = MEMORY_BUFFER
        mr._keep_viewed()
        mr.start = mr.buffer.buf
        mr.nbytes = mr.buffer.len
        mr.readonly = mr.buffer.readonly
        return _register(self, mr, access, "reg_mr")

    def alloc(self, nbytes, access=1):
        """Allocate ``nbytes`` zeroed bytes (aligned to a page) and register them.

        With Verbena's library peer processes map the memory, so that a WRITE into it is one copy;
        with another library it is an anonymous mapping. Raises VerbsError(ENOMEM).
        """
        cdef MR mr
        cdef size_t room = _size(nbytes, "nbytes")
        self._check()
        _access_flags(access)
        if room == 0:
            raise failed("alloc", EINVAL)
        mr = _new_mr(self, NULL, room)
        _allocate(mr)
        return _register(self, mr, access, "reg_mr")

    def alloc_null_mr(self):
        """Make a null region: at any address reads give zeros and writes have no effect.

        Raises VerbsError(EOPNOTSUPP) if the device does not support it, or VerbsError(ENOMEM).
        """
        self._check()
        cdef MR mr = _new_mr(self, NULL, SIZE_MAX)
        self._begin()
        with nogil:
            mr.mr = vb_alloc_null_mr(self.pd)
        self._end()
        if mr.mr is NULL:
            raise self.context._failed("alloc_null_mr", errno)
        return mr

    def reg_dm(self, DM dm not None, length, offset=0, access=1):
        """Register ``length`` bytes of a DM from ``offset`` on; addresses count from 0.

        ``access`` has ZERO_BASED added. Raises VerbsError.
        """
        self._check()
        _of_context(self.context, dm)
        cdef MR mr = _new_mr(self, NULL, _size(length, "length"))
        cdef uint64_t start = _u64(offset, "offset")
        cdef unsigned int flags = _access_flags(access) | ZERO_BASED_ACCESS
        mr.dm = dm
        _begin_all((self, dm))
        with nogil:
            mr.mr = vb_reg_dm_mr(self.pd, dm.dm, start, mr.nbytes, flags)
        _end_all((self, dm))
        if mr.mr is NULL:
            raise self.context._failed("reg_dm_mr", errno)
        return mr

    def advise_mr(self, advice, sg_list, bint flush=True):
        """Prefetch parts of on-demand regions: a MRAdvice and one SGE or several.

        With ``flush`` the pages are present when it returns. Raises VerbsError: EINVAL, ENOENT (no
        such lkey), EPERM, EFAULT (a page is not there), EOPNOTSUPP.
        """
        cdef ScatterGather list_ = ScatterGather()
        cdef int wanted = _int(advice, "advice")
        cdef int code
        self._check()
        list_._set(sg_list)
        self._begin()
        with nogil:
            code = vb_advise_mr(self.pd, wanted, flush, list_.sges, list_.count)
        self._end()
        if code:
            raise failed("advise_mr", _error_of(code))

    def alloc_mw(self, mw_type=WINDOW_TYPE_2):
        """Make a memory window of type 1 or 2. Raises VerbsError(EINVAL) for another type."""
        self._check()
        return _alloc_mw(self, _int(mw_type, "mw_type"))

    def alloc_parent_domain(self, TD td=None):
        """Make a parent domain over this one, with a thread domain if there is one."""
        return _alloc_parent_domain(self, td)

    def create_qp(self, init_attr=None, **fields):
        """Make a queue pair from a QPInitAttr, or from its fields as keywords.

        Raises VerbsError.
        """
        self._check()
        return _create_qp(self, _whole(init_attr, _attributes.QPInitAttr, fields))

    def create_srq(self, max_wr=128, max_sge=1, srq_limit=0):
        """Make a shared receive queue for ``max_wr`` requests of ``max_sge`` SGEs.

        Raises VerbsError.
        """
        self._check()
        return _create_srq(
            self, _u32(max_wr, "max_wr"), _u32(max_sge, "max_sge"), _u32(srq_limit, "srq_limit")
        )

    def create_ah(self, attr=None, **fields):
        """Make an address handle from an AHAttr, or from its fields as keywords.

        Raises VerbsError.
        """
        self._check()
        return _create_ah(self, _whole(attr, _attributes.AHAttr, fields))

    def create_ah_from_wc(self, WC wc, grh=None, port_num=1):
        """Make an address handle back to the sender of a UD message.

        ``grh`` is a buffer with the first 40 bytes of the receive buffer, which are the GRH; on
        RoCE it is always there.
        """
        self._check()
        return _create_ah_from_wc(self, wc, grh, <uint8_t>_wanted(port_num, "port_num", 0xff))

    def __repr__(self):
        return f"<PD of {self.context.name!r}{' closed' if self.closed else ''}>"


cdef object _no_buffer(target):
    cdef str advice = "an address needs its length: reg_mr(addr, length, access)"
    if isinstance(target, str):
        advice = "text becomes memory by bytearray(text, 'utf-8')"
    elif isinstance(target, (list, tuple)):
        advice = "numbers become memory by numpy.array(numbers) or array.array('q', numbers)"
    elif isinstance(target, MR):
        advice = "this memory is registered already"
    return TypeError(
        f"reg_mr takes memory (a bytearray, a NumPy array, an mmap, whatever has the buffer"
        f" protocol) and not {type(target).__name__}: {advice}; pd.alloc(nbytes) makes memory"
    )


cdef unsigned int _access_flags(access) except? 0xffffffff:
    if not hasattr(access, "__index__"):
        raise TypeError(
            "access is AccessFlags, for example AccessFlags.LOCAL_WRITE |"
            f" AccessFlags.REMOTE_WRITE, and not {type(access).__name__}"
        )
    return _u32(access, "access")


cdef object _whole(attr, kind, dict fields):
    """Return attributes that were given as one object, or as its fields."""
    if attr is None:
        return kind(**fields)
    if fields:
        raise TypeError(f"give a {kind.__name__} or its fields, not both: {', '.join(fields)}")
    return _must_be(kind, attr)


cdef object _must_be(kind, thing):
    if isinstance(thing, kind):
        return thing
    raise TypeError(
        f"expected {kind.__name__}, or its fields by name ({', '.join(kind.__dataclass_fields__)}),"
        f" and not {type(thing).__name__}"
    )


cdef PD _alloc_pd(Context context):
    cdef PD self = PD.__new__(PD)
    self._adopt(context)
    context._begin()
    with nogil:
        self.pd = context.library.call.alloc_pd(context.context)
    context._end()
    if self.pd is NULL:
        raise context._failed("alloc_pd", errno)
    return self


@cython.final
@cython.no_gc_clear
cdef class MR(Resource):
    """A registered memory region; its bytes are available through the buffer protocol.

    ``close()`` ends the registration at once. The memory itself (that of ``PD.alloc``, or the
    object given to ``PD.reg_mr``) lives until its last view is gone, so a view never dangles.
    """

    cdef readonly PD pd
    cdef ibv_mr *mr
    cdef void *start
    cdef size_t nbytes
    cdef uint64_t base   # the address of `start` in requests
    cdef DM dm
    cdef Py_buffer buffer
    cdef PyObject *viewed   # the memoryview that `buffer` is of; NULL: it is of something else
    cdef int kind
    cdef bint readonly
    cdef bint zero_based
    cdef int views
    cdef uint64_t seen_until  # of a simulated host: what wait_u64 has seen is in memory by then, ps

    def __dealloc__(self):
        self._leave()
        self._destroy()
        self._release_memory()

    cdef int _rank(self):
        return RANK_SHARED

    cdef bint _is_open(self):
        return self.mr is not NULL

    cdef bint _uses(self, Resource other):
        return other is self.pd or other is self.dm

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.mr is not NULL:
            code = self.context.library.call.dereg_mr(self.mr)
            code = _error_of(code)
            if code == 0:
                self.mr = NULL
                self._release_memory()
        return code

    cdef void _forget(self) noexcept:
        self.mr = NULL
        if self.kind == MEMORY_HEAP:  # the heap is the parent's: the child must not give pages back
            self.kind = MEMORY_NONE

    cdef void _keep_viewed(self) noexcept:
        # The collector clears a memoryview in a cycle although others hold buffers of it, and
        # CPython crashes when these are released. It does not see this reference, and so leaves
        # the memoryview alone.
        if PyMemoryView_Check(<object>self.buffer.obj):
            self.viewed = <PyObject *>self.buffer.obj
            Py_INCREF(<object>self.viewed)

    cdef void _release_memory(self) noexcept:
        if self.mr is not NULL or self.views:
            return
        if self.kind == MEMORY_BUFFER:
            PyBuffer_Release(&self.buffer)
            Py_XDECREF(self.viewed)
            self.viewed = NULL
        elif self.kind == MEMORY_HEAP:
            self.context.library.call.heap_free(self.start)
        elif self.kind == MEMORY_MAPPED:
            munmap(self.start, self.nbytes)
        self.kind = MEMORY_NONE

    cdef int _check(self) except -1:
        if self.mr is NULL:
            raise self._closed()
        return 0

    @property
    def addr(self):
        """The address of its first byte, from which a peer computes ``remote_addr``."""
        return self.base

    @property
    def length(self):
        """Its length in bytes."""
        return self.nbytes

    @property
    def lkey(self):
        """The key by which this process's work requests name it."""
        self._check()
        return self.mr.lkey

    @property
    def rkey(self):
        """The key by which peers name it."""
        self._check()
        return self.mr.rkey

    @property
    def handle(self):
        """The provider's number for it."""
        self._check()
        return self.mr.handle

    def change_access(self, access):
        """Register it again with other AccessFlags; its keys stay.

        Raises VerbsError, and does not change the region: EINVAL, or EBUSY while a window is bound.
        """
        self.reregister(access=access)

    def reregister(self, *, PD pd=None, addr=None, length=None, access=None):
        """Register it again (``ibv_rereg_mr``); arguments that are not given stay unchanged.

        ``addr`` and ``length`` (bytes) name other memory, which the caller keeps alive; the region
        then gets other keys. That is possible only for a region that was registered by address, and
        raises ValueError otherwise. Raises VerbsError, and does not change the region: EINVAL,
        EFAULT, or EBUSY while a window is bound.
        """
        cdef unsigned int wanted = 0 if access is None else _access_flags(access)
        cdef int flags = REREG_ACCESS if access is not None else 0
        cdef void *start = self.start
        cdef size_t nbytes = self.nbytes
        self._check()
        if (addr is None) != (length is None):
            raise TypeError("addr and length go together")
        if addr is not None:
            if self.kind != MEMORY_NONE or self.dm is not None:
                raise ValueError("this MR holds its memory: register the other memory by address")
            start, nbytes = <void *>_size(addr, "addr"), _size(length, "length")
            flags |= REREG_TRANSLATION
        if pd is not None:
            _of_context(self.context, pd)
            flags |= REREG_PD
        if self.readonly and wanted & WRITING_ACCESS:
            raise BufferError("this MR's memory is read-only")
        self._rereg(flags, pd, start, nbytes, wanted)
        self.start, self.nbytes = start, nbytes
        if access is not None:
            self.zero_based = wanted & ZERO_BASED_ACCESS
        self.base = 0 if self.zero_based else <uintptr_t>start
        if pd is not None:
            self.pd = pd

    cdef int _rereg(self, int flags, PD pd, void *start, size_t nbytes,
                    unsigned int wanted) except -1:
        cdef ibv_pd *domain
        cdef int code
        _begin_all((self, pd))
        domain = NULL if pd is None else pd.pd
        with nogil:
            code = self.context.library.call.rereg_mr(
                self.mr, flags, domain, start, nbytes, wanted
            )
        _end_all((self, pd))
        if code:
            raise self.context._failed("rereg_mr", errno)
        if flags & REREG_TRANSLATION:
            _tell_place(self.context, nbytes, wanted)
        return 0

    def __len__(self):
        return self.nbytes

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.mr is NULL:
            raise BufferError(f"this MR {self.why_closed or _CLOSED}")
        if self.kind == MEMORY_NONE:
            raise BufferError(
                "this MR was registered by address: take the view from what owns the memory"
            )
        PyBuffer_FillInfo(view, self, self.start, self.nbytes, self.readonly, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.views -= 1
        self._release_memory()

    def array(self, dtype="u1", shape=None, offset=0):
        """Return a NumPy array over the region's memory, without a copy.

        ``shape`` defaults to all items from ``offset`` (bytes) on. Raises ValueError when it does
        not fit, or when without a ``shape`` the bytes are not whole items; BufferError when the MR
        is closed or was registered by address.
        """
        import numpy

        dtype = numpy.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(
                f"the bytes of an MR cannot be read as Python objects ({dtype}): name a dtype of"
                " numbers or bytes"
            )
        cdef size_t start = _size(offset, "offset")
        if start > self.nbytes:
            raise ValueError(f"offset {offset} lies beyond the MR of {self.nbytes} bytes")
        if shape is None:
            shape = (_whole_items(self.nbytes - start, dtype),)
        else:
            _check_shape(self.nbytes - start, dtype, shape)
        # ndarray lets go of its buffer at once and keeps the object behind a memoryview, not the
        # memoryview; the array that asarray makes holds it, and so the memory.
        held = numpy.asarray(memoryview(self))
        return numpy.ndarray(shape, dtype, held, start)

    def sge(self, length=None, offset=0):
        """Return an SGE for ``length`` bytes (default: all that follow) from ``offset`` on."""
        return SGE(self, length, offset=offset)

    cdef uint64_t *_word(self, place) except NULL:
        cdef size_t offset = _size(place, "offset")
        self._check()
        if self.start is NULL:
            raise BufferError("this MR's memory has no address here")
        if offset > self.nbytes or self.nbytes - offset < 8:
            raise ValueError(f"offset {offset}: 8 bytes leave the MR of {self.nbytes} bytes")
        if (<uintptr_t>self.start + offset) % 8:
            raise ValueError(f"offset {offset}: the address is not a multiple of 8")
        return <uint64_t *>(<char *>self.start + offset)

    def load_u64(self, offset):
        """Read the 64-bit word at ``offset`` bytes atomically (acquire), in host byte order."""
        return vb_load_u64(self._word(offset))

    def store_u64(self, offset, value):
        """Set the 64-bit word at ``offset`` bytes atomically (release), in host byte order."""
        cdef uint64_t wanted = _u64(value, "value")
        cdef uint64_t *word = self._word(offset)
        if self.readonly:
            raise BufferError("this MR's memory is read-only")
        vb_store_u64(word, wanted)

    def wait_u64(self, offset, value, timeout=None):
        """Spin until the 64-bit word at ``offset`` equals ``value``; True if it does in time.

        ``timeout`` is in seconds (None: forever). The call keeps a core busy, so it suits peers
        that answer fast; the GIL is released after a microsecond.
        """
        cdef uint64_t wanted = _u64(value, "value")
        cdef uint64_t deadline = (_world_deadline(self.context, timeout) if self.context.simulated
                                  else _deadline(timeout))
        cdef uint64_t *word = self._word(offset)
        if self.context.simulated:
            return self._wait_simulated(word, wanted, deadline)
        if vb_glance_u64(word, wanted):
            return True
        return self._spin(word, wanted, deadline)

    cdef bint _wait_simulated(self, uint64_t *word, uint64_t value, uint64_t deadline) except -1:
        cdef bint waited = False
        while vb_load_u64(word) != value:
            if not _step(self.context, deadline):
                return False
            waited = True
        if waited:
            self.seen_until = self.context.library.call.written_time(self.context.context)
        return _wait_until(self.context, self.seen_until, deadline)

    cdef bint _spin(self, uint64_t *word, uint64_t value, uint64_t deadline) except -1:
        cdef uint64_t until
        cdef bint equal = False
        cdef Waits waits
        cdef uint64_t since = self._begin_wait()
        waits = self.waits
        try:
            while not equal:
                with nogil:
                    until = vb_now_ns() + SIGNAL_CHECK_NS
                    equal = vb_spin_u64(word, value, until if until < deadline else deadline)
                if not equal:
                    PyErr_CheckSignals()
                    waits._check(since)
                    if vb_now_ns() >= deadline:
                        return False
            return True
        finally:
            self._end_wait(waits)

    def cancel_wait(self):
        """End every ``wait_u64`` of other threads with VerbsError(ECANCELED)."""
        self._cancel_wait()

    def __repr__(self):
        if self.mr is NULL:
            return f"<MR closed [{<uintptr_t>self.start:#x}, +{self.nbytes})>"
        keys = f"lkey={self.mr.lkey:#x} rkey={self.mr.rkey:#x}"
        return f"<MR [{<uintptr_t>self.start:#x}, +{self.nbytes}) {keys}>"


cdef object _whole_items(size_t nbytes, dtype):
    """Return how many items these bytes are. Raises ValueError unless they are whole ones."""
    cdef size_t size = dtype.itemsize
    if size == 0 or nbytes % size:
        raise ValueError(
            f"{nbytes} bytes are no whole number of items of {dtype}, which have {size}: a shape"
            " says how many are meant"
        )
    return nbytes // size


cdef int _check_shape(size_t nbytes, dtype, shape) except -1:
    """Raise ValueError when an array of this shape needs more bytes. NumPy checks the rest."""
    counts = shape if isinstance(shape, (tuple, list)) else (shape,)
    needed = dtype.itemsize
    for count in counts:
        needed *= index(count)
    if needed > nbytes:
        raise ValueError(
            f"shape {shape} of {dtype} takes {needed} bytes, and the MR has {nbytes} from there on"
        )
    return 0


cdef uint64_t SIGNAL_CHECK_NS = 20000000


cdef MR _new_mr(PD pd, void *start, size_t nbytes):
    cdef MR self = MR.__new__(MR)
    self._adopt(pd.context)
    self.pd = pd
    self.start = start
    self.base = <uintptr_t>start
    self.nbytes = nbytes
    return self


cdef int _allocate(MR mr) except -1:
    cdef Library library = mr.context.library
    if library.call.heap_alloc is not NULL:
        with nogil:
            mr.start = library.call.heap_alloc(mr.nbytes, PAGE)
        if mr.start is NULL:
            raise failed("alloc", errno)
        mr.kind = MEMORY_HEAP
        return 0
    mr.start = mmap(NULL, mr.nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if mr.start == MAP_FAILED:
        raise failed("alloc", errno)
    mr.kind = MEMORY_MAPPED
    return 0


cdef int _tell_place(Context context, size_t nbytes, unsigned int flags) except -1:
    """A simulated host's processor pays for what its programs register."""
    here = _place.get() if context.simulated else None
    if here is not None:
        here.registered(nbytes, not flags & ON_DEMAND_ACCESS)
    return 0


cdef MR _register(PD pd, MR mr, access, str call):
    cdef unsigned int flags = _access_flags(access)
    cdef Library library = pd.context.library
    cdef bint optional = flags & OPTIONAL_ACCESS and library.call.reg_mr_iova2 is not NULL
    pd._begin()
    with nogil:
        if optional:
            mr.mr = library.call.reg_mr_iova2(
                pd.pd, mr.start, mr.nbytes, <uintptr_t>mr.start, flags
            )
        else:
            mr.mr = library.call.reg_mr(pd.pd, mr.start, mr.nbytes, flags)
    pd._end()
    if mr.mr is NULL:
        raise pd.context._failed(call, errno)
    _tell_place(pd.context, mr.nbytes, flags)
    mr.zero_based = flags & ZERO_BASED_ACCESS
    mr.base = 0 if mr.zero_based else <uintptr_t>mr.start
    return mr
