# SPDX-License-Identifier: Apache-2.0
# Work requests, and the records of batches.

cdef enum:
    FEW_SGES = 4            # held inside the request; more are allocated
    RELEASE_GIL_FROM = 32768  # bytes that the poster copies; with fewer, releasing costs more

cdef enum:
    OP_WRITE = 0
    OP_WRITE_IMM = 1
    OP_SEND = 2
    OP_SEND_IMM = 3
    OP_READ = 4
    OP_COMPARE_SWAP = 5
    OP_FETCH_ADD = 6
    OP_LOCAL_INV = 7
    OP_BIND_MW = 8
    OP_SEND_INV = 9
    OP_ATOMIC_WRITE = 15

cdef enum:
    PLACED_GLOBALLY = 1  # IBV_FLUSH_GLOBAL

cdef enum:
    FLAG_SIGNALED = 2
    FLAG_INLINE = 8


@cython.freelist(64)
cdef class SGE:
    """A piece of local memory: ``SGE(mr, length, offset=0)`` or ``SGE(addr, length, lkey)``.

    With an MR, ``length`` None stands for all bytes after ``offset``. ``owner`` is the MR, or None.
    """

    cdef ibv_sge sge
    cdef readonly MR owner

    def __init__(self, target, length=None, lkey=0, offset=0):
        if isinstance(target, MR):
            self.owner = target
            _fill_sge(&self.sge, self.owner, _size(offset, "offset"), length)
            return
        if length is None:
            raise TypeError("an SGE by address needs its length")
        self.sge.addr = _u64(target, "addr") + _u64(offset, "offset")
        self.sge.length = _u32(length, "length")
        self.sge.lkey = _u32(lkey, "lkey")

    @property
    def addr(self):
        """Address of the first byte."""
        return self.sge.addr

    @property
    def length(self):
        """Length in bytes."""
        return self.sge.length

    @property
    def lkey(self):
        """Key of the MR."""
        return self.sge.lkey

    def __repr__(self):
        return f"SGE({self.sge.addr:#x}, {self.sge.length}, lkey={self.sge.lkey:#x})"


cdef int _fill_sge(ibv_sge *sge, MR mr, size_t offset, length) except -1:
    """Fill in a range of the MR. ValueError, which names the argument, when it leaves the MR."""
    mr._check()
    cdef size_t nbytes
    if length is not None:
        nbytes = vb_size(length, "length", _wanted)
        if offset > mr.nbytes or nbytes > mr.nbytes - offset:
            raise _beyond(mr, offset, nbytes)
    else:
        if offset > mr.nbytes:
            raise _beyond(mr, offset, 0)
        nbytes = mr.nbytes - offset
    if nbytes > 0xffffffff:
        raise failed("SGE", EMSGSIZE)
    sge.addr = mr.base + offset
    sge.length = <uint32_t>nbytes
    sge.lkey = mr.mr.lkey
    return 0


cdef object _beyond(MR mr, size_t offset, size_t nbytes):
    if offset > mr.nbytes:
        return ValueError(f"offset {offset} lies beyond the MR of {mr.nbytes} bytes")
    return ValueError(
        f"length {nbytes} from offset {offset} on leaves the MR of {mr.nbytes} bytes: at most"
        f" {mr.nbytes - offset}"
    )


cdef class ScatterGather:
    """The SGEs of a work request, in an array that C can read."""

    cdef ibv_sge few[FEW_SGES]
    cdef ibv_sge *sges
    cdef int count
    cdef size_t nbytes
    cdef list owners
    cdef object hold  # the reference of a request with it: the MR, a tuple of several, or None

    def __cinit__(self, *args, **kwargs):
        self.sges = self.few
        self.owners = []

    def __dealloc__(self):
        self._free()

    cdef void _free(self) noexcept:
        if self.sges is not self.few:
            free(self.sges)
            self.sges = self.few

    cdef int _set(self, sg_list) except -1:
        """Take the whole list, or raise TypeError and take nothing if an item is not an SGE."""
        cdef list entries = _sge_list(sg_list)
        cdef Py_ssize_t count = len(entries)
        cdef Py_ssize_t i
        cdef ibv_sge *sges = self.few
        if count > FEW_SGES:
            sges = <ibv_sge *>malloc(count * sizeof(ibv_sge))
            if sges is NULL:
                raise MemoryError
        self._free()
        self.sges = sges
        self.nbytes = 0
        for i in range(count):
            sges[i] = (<SGE>entries[i]).sge
            self.nbytes += sges[i].length
        self.count = <int>count
        self.owners = entries
        self.hold = _hold_of(entries)
        return 0


cdef list _sge_list(sg_list):
    """Return the SGEs of a request. Raises TypeError, which says what to give, for others."""
    if isinstance(sg_list, SGE):
        return [sg_list]
    if isinstance(sg_list, MR):
        raise TypeError("sg_list takes SGEs and not an MR: mr.sge(length, offset)")
    if sg_list is None or isinstance(sg_list, (int, str)) or PyObject_CheckBuffer(sg_list):
        raise _no_memory(sg_list)
    cdef list entries = list(sg_list)
    for entry in entries:
        if isinstance(entry, MR):
            raise TypeError("a list of local memory has SGEs and not MRs: mr.sge(length, offset)")
        if not isinstance(entry, SGE):
            raise _no_memory(entry)
    return entries


cdef object _no_memory(thing):
    cdef str advice = ""
    if PyObject_CheckBuffer(thing):
        advice = (
            "; pd.reg_mr() registers an array or a bytearray, and a few bytes go without that if"
            " they are sent with flags=SendFlags.INLINE | SendFlags.SIGNALED over a QP that was"
            " made with max_inline_data"
        )
    elif isinstance(thing, str):
        advice = "; encode text to bytes first"
    return TypeError(
        "a request takes registered memory, an MR or SGEs (of MRs: mr.sge(length, offset)), and not"
        f" {type(thing).__name__}{advice}"
    )


cdef object _hold_of(list entries):
    cdef SGE entry
    cdef list held = []
    for entry in entries:
        if entry.owner is not None and entry.owner not in held:
            held.append(entry.owner)
    return tuple(held) if len(held) > 1 else held[0] if held else None


cdef class SendWR(ScatterGather):
    """A send work request; make it once and post it often. See ``ibv_post_send(3)`` for the fields.

    ``imm_data`` is in host byte order. ``remote_addr`` and ``rkey`` serve RDMA and atomics,
    ``compare_add`` and ``swap`` atomics, ``ah``, ``remote_qpn`` and ``remote_qkey`` UD.
    ``remote_srqn`` is the number of the SRQ that a request on XRC_SEND is for.
    """

    cdef ibv_send_wr wr
    cdef AH _ah
    cdef uint64_t _remote_addr
    cdef uint32_t _rkey

    def __init__(self, wr_id=0, sg_list=(), opcode=OP_SEND, send_flags=FLAG_SIGNALED,
                 remote_addr=0, rkey=0, imm_data=0, compare_add=0, swap=0, AH ah=None,
                 remote_qpn=0, remote_qkey=0, remote_srqn=0):
        memset(&self.wr, 0, sizeof(self.wr))
        cdef uint64_t address = _u64(remote_addr, "remote_addr")
        cdef uint32_t key = _u32(rkey, "rkey")
        cdef uint64_t compared = _u64(compare_add, "compare_add")
        cdef uint64_t swapped = _u64(swap, "swap")
        cdef uint32_t qpn = _u32(remote_qpn, "remote_qpn")
        cdef uint32_t qkey = _u32(remote_qkey, "remote_qkey")
        self.wr.qp_type.xrc.remote_srqn = _u32(remote_srqn, "remote_srqn")
        self.wr.wr_id = _u64(wr_id, "wr_id")
        self.wr.opcode = _int(opcode, "opcode")
        self.wr.send_flags = _u32(send_flags, "send_flags")
        self.wr.imm_data = htonl(_u32(imm_data, "imm_data"))
        self.sg_list = sg_list
        if ah is not None:
            self._ah = ah
            self.wr.wr.ud.ah = ah.ah
            self.wr.wr.ud.remote_qpn = qpn
            self.wr.wr.ud.remote_qkey = qkey
        elif self._is_atomic():
            _fill_atomic(&self.wr, address, key, compared, swapped)
        else:
            self.wr.wr.rdma.remote_addr = address
            self.wr.wr.rdma.rkey = key

    cdef bint _is_atomic(self):
        return self.wr.opcode == OP_COMPARE_SWAP or self.wr.opcode == OP_FETCH_ADD

    @property
    def wr_id(self):
        """The caller's number, which comes back in the completion."""
        return self.wr.wr_id

    @wr_id.setter
    def wr_id(self, value):
        self.wr.wr_id = _u64(value, "wr_id")

    @property
    def opcode(self):
        """The WROpcode; fixed, because it decides which fields the request has."""
        return _enums.WROpcode(self.wr.opcode)

    @property
    def send_flags(self):
        """The SendFlags."""
        return _enums.SendFlags(self.wr.send_flags)

    @send_flags.setter
    def send_flags(self, value):
        self.wr.send_flags = _u32(value, "send_flags")

    @property
    def sg_list(self):
        """The SGEs; set it to one SGE or to a sequence of them."""
        return list(self.owners)

    @sg_list.setter
    def sg_list(self, value):
        self._set(value)
        self.wr.sg_list = self.sges
        self.wr.num_sge = self.count

    @property
    def imm_data(self):
        """Immediate data, in host byte order."""
        return ntohl(self.wr.imm_data)

    @imm_data.setter
    def imm_data(self, value):
        self.wr.imm_data = htonl(_u32(value, "imm_data"))

    @property
    def invalidate_rkey(self):
        """The key that SEND_WITH_INV or LOCAL_INV invalidates."""
        return self.wr.invalidate_rkey

    @invalidate_rkey.setter
    def invalidate_rkey(self, value):
        self.wr.invalidate_rkey = _u32(value, "invalidate_rkey")

    @property
    def remote_addr(self):
        """The peer's address, of RDMA and atomics."""
        return 0 if self._ah is not None else self.wr.wr.rdma.remote_addr

    @remote_addr.setter
    def remote_addr(self, value):
        self._check_not_ud()
        self.wr.wr.rdma.remote_addr = _u64(value, "remote_addr")

    @property
    def rkey(self):
        """The peer's key, of RDMA and atomics."""
        if self._ah is not None:
            return 0
        return self.wr.wr.atomic.rkey if self._is_atomic() else self.wr.wr.rdma.rkey

    @rkey.setter
    def rkey(self, value):
        self._check_not_ud()
        if self._is_atomic():
            self.wr.wr.atomic.rkey = _u32(value, "rkey")
        else:
            self.wr.wr.rdma.rkey = _u32(value, "rkey")

    @property
    def compare_add(self):
        """The value compared with, or the value added."""
        return self.wr.wr.atomic.compare_add if self._is_atomic() else 0

    @compare_add.setter
    def compare_add(self, value):
        self._check_atomic()
        self.wr.wr.atomic.compare_add = _u64(value, "compare_add")

    @property
    def swap(self):
        """The value that compare-and-swap stores."""
        return self.wr.wr.atomic.swap if self._is_atomic() else 0

    @swap.setter
    def swap(self, value):
        self._check_atomic()
        self.wr.wr.atomic.swap = _u64(value, "swap")

    @property
    def ah(self):
        """The address handle of a UD send, or None."""
        return self._ah

    @property
    def remote_qpn(self):
        """The peer's QP number, of UD."""
        return self.wr.wr.ud.remote_qpn if self._ah is not None else 0

    @property
    def remote_qkey(self):
        """The peer's Q_Key, of UD."""
        return self.wr.wr.ud.remote_qkey if self._ah is not None else 0

    @property
    def remote_srqn(self):
        """The number of the SRQ that the request is for, of XRC_SEND."""
        return self.wr.qp_type.xrc.remote_srqn

    @remote_srqn.setter
    def remote_srqn(self, value):
        self.wr.qp_type.xrc.remote_srqn = _u32(value, "remote_srqn")

    cdef int _check_not_ud(self) except -1:
        if self._ah is not None:
            raise AttributeError("a UD request has no remote_addr and no rkey")
        return 0

    cdef int _check_atomic(self) except -1:
        if not self._is_atomic():
            raise AttributeError("only an atomic request has compare_add and swap")
        return 0

    cdef object _held(self):
        """Return what the request holds until it completes; inline data is copied at posting."""
        hold = None if self.wr.send_flags & FLAG_INLINE else self.hold
        return hold if self._ah is None else (hold, self._ah)

    cdef int _check_ready(self) except -1:
        """Raise VerbsError if the AH was closed since, so that it is not dereferenced."""
        if self._ah is not None and self._ah.ah is NULL:
            raise self._ah._closed()
        return 0


cdef inline void _fill_atomic(ibv_send_wr *wr, uint64_t remote_addr, uint32_t rkey,
                              uint64_t compare_add, uint64_t swap) noexcept nogil:
    wr.wr.atomic.remote_addr = remote_addr
    wr.wr.atomic.rkey = rkey
    wr.wr.atomic.compare_add = compare_add
    wr.wr.atomic.swap = swap


cdef class RecvWR(ScatterGather):
    """A receive work request; make it once and post it often."""

    cdef ibv_recv_wr wr

    def __init__(self, wr_id=0, sg_list=()):
        memset(&self.wr, 0, sizeof(self.wr))
        self.wr.wr_id = _u64(wr_id, "wr_id")
        self.sg_list = sg_list

    @property
    def wr_id(self):
        """The caller's number, which comes back in the completion."""
        return self.wr.wr_id

    @wr_id.setter
    def wr_id(self, value):
        self.wr.wr_id = _u64(value, "wr_id")

    @property
    def sg_list(self):
        """The SGEs; set it to one SGE or to a sequence of them."""
        return list(self.owners)

    @sg_list.setter
    def sg_list(self, value):
        self._set(value)
        self.wr.sg_list = self.sges
        self.wr.num_sge = self.count


# Batches: records of NumPy arrays (verbena.verbs.records has their dtypes).

cdef enum:
    BATCH = 64

cdef packed struct SendRecord:
    uint64_t wr_id
    uint64_t addr
    uint32_t length
    uint32_t lkey
    uint32_t opcode
    uint32_t flags
    uint64_t remote_addr  # UD: remote_qpn, remote_qkey
    uint32_t rkey         # UD: index of the AH
    uint32_t imm_data
    uint64_t compare_add
    uint64_t swap

cdef packed struct RecvRecord:
    uint64_t wr_id
    uint64_t addr
    uint32_t length
    uint32_t lkey

cdef object _send_dtype = None
cdef object _recv_dtype = None
cdef object _wc_dtype = None


cdef int _load_dtypes() except -1:
    global _send_dtype, _recv_dtype, _wc_dtype
    if _send_dtype is None:
        from verbena.verbs import records

        _recv_dtype = records.recv_dtype
        _wc_dtype = records.wc_dtype
        _send_dtype = records.send_dtype
    return 0


cdef bint _is_dtype(array, dtype) except -1:
    found = getattr(array, "dtype", None)
    return found is dtype or (found is not None and found == dtype)


cdef bint _is_send_batch(records) except -1:
    """True for send_dtype, False for recv_dtype, TypeError for everything else."""
    _load_dtypes()
    if _is_dtype(records, _send_dtype):
        return True
    if _is_dtype(records, _recv_dtype):
        return False
    raise TypeError("post_many takes a NumPy array of verbs.send_dtype or verbs.recv_dtype")


cdef void _fill_send(ibv_send_wr *wr, ibv_sge *sge, const SendRecord *record,
                     ibv_ah **ahs) noexcept nogil:
    sge.addr = record.addr
    sge.length = record.length
    sge.lkey = record.lkey
    wr.wr_id = record.wr_id
    wr.next = wr + 1
    wr.sg_list = sge
    wr.num_sge = 1 if record.length else 0
    wr.opcode = record.opcode
    wr.send_flags = record.flags
    if record.opcode < OP_LOCAL_INV:
        wr.imm_data = htonl(record.imm_data)
    else:
        wr.invalidate_rkey = record.rkey
        wr.bind_mw.mw = NULL  # a record names no window: BIND_MW is refused
    if ahs is not NULL:
        wr.wr.ud.ah = ahs[record.rkey]
        wr.wr.ud.remote_qpn = <uint32_t>record.remote_addr
        wr.wr.ud.remote_qkey = <uint32_t>(record.remote_addr >> 32)
    elif record.opcode == OP_COMPARE_SWAP or record.opcode == OP_FETCH_ADD:
        _fill_atomic(wr, record.remote_addr, record.rkey, record.compare_add, record.swap)
    else:
        wr.wr.rdma.remote_addr = record.remote_addr
        wr.wr.rdma.rkey = record.rkey


cdef void _fill_recv(ibv_recv_wr *wr, ibv_sge *sge, const RecvRecord *record) noexcept nogil:
    sge.addr = record.addr
    sge.length = record.length
    sge.lkey = record.lkey
    wr.wr_id = record.wr_id
    wr.next = wr + 1
    wr.sg_list = sge
    wr.num_sge = 1 if record.length else 0


cdef int _post_send_records(ibv_qp *qp, const SendRecord *records, Py_ssize_t count,
                            ibv_ah **ahs, Py_ssize_t *posted) noexcept nogil:
    cdef ibv_send_wr wrs[BATCH]
    cdef ibv_sge sges[BATCH]
    cdef ibv_send_wr *bad
    cdef Py_ssize_t n, i
    cdef int code
    posted[0] = 0
    while posted[0] < count:
        n = min(<Py_ssize_t>BATCH, count - posted[0])
        for i in range(n):
            _fill_send(&wrs[i], &sges[i], &records[posted[0] + i], ahs)
        wrs[n - 1].next = NULL
        bad = wrs
        code = qp.context.ops.post_send(qp, wrs, &bad)
        if code:
            posted[0] += bad - wrs
            return code
        posted[0] += n
    return 0


cdef Py_ssize_t _signaled_records(const SendRecord *records, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    cdef Py_ssize_t signaled = 0
    for i in range(count):
        signaled += (records[i].flags & FLAG_SIGNALED) != 0
    return signaled


cdef int _post_recv_records(ibv_qp *qp, ibv_srq *srq, const RecvRecord *records,
                            Py_ssize_t count, Py_ssize_t *posted) noexcept nogil:
    """Post to the QP, or to the SRQ when ``qp`` is NULL."""
    cdef ibv_recv_wr wrs[BATCH]
    cdef ibv_sge sges[BATCH]
    cdef ibv_recv_wr *bad
    cdef Py_ssize_t n, i
    cdef int code
    posted[0] = 0
    while posted[0] < count:
        n = min(<Py_ssize_t>BATCH, count - posted[0])
        for i in range(n):
            _fill_recv(&wrs[i], &sges[i], &records[posted[0] + i])
        wrs[n - 1].next = NULL
        bad = wrs
        if qp is not NULL:
            code = qp.context.ops.post_recv(qp, wrs, &bad)
        else:
            code = srq.context.ops.post_srq_recv(srq, wrs, &bad)
        if code:
            posted[0] += bad - wrs
            return code
        posted[0] += n
    return 0


cdef ibv_recv_wr *_chain_recvs(list requests) except NULL:
    """Return copies of the requests, linked into a list (a request may occur twice).

    The caller frees it.
    """
    cdef Py_ssize_t count = len(requests)
    cdef Py_ssize_t i
    cdef ibv_recv_wr *wrs
    wrs = <ibv_recv_wr *>malloc(max(count, 1) * sizeof(ibv_recv_wr))
    if wrs is NULL:
        raise MemoryError
    for i in range(count):
        wrs[i] = (<RecvWR>requests[i]).wr
        wrs[i].next = &wrs[i + 1] if i + 1 < count else NULL
    return wrs
