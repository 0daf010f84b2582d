# SPDX-License-Identifier: Apache-2.0
# The types of the compiled binding. Its docstrings come from the .pxi files: make generated.

import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import (
    Any,
    Literal,
    Protocol,
    Self,
    SupportsIndex,
    SupportsInt,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer

from .attributes import (
    AHAttr,
    AsyncEvent,
    DeviceAttr,
    Gid,
    GidEntry,
    MemoryAttr,
    PortAttr,
    QPAttr,
    QPCap,
    QPInitAttr,
    SRQAttr,
)
from .enums import (
    MWType,
    NodeType,
    PlacementType,
    QPState,
    QPType,
    SendFlags,
    TransportType,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)

class HasFileno(Protocol):
    """An open file, or another object with a descriptor."""

    def fileno(self) -> int:
        """The file descriptor."""

Local: TypeAlias = MR | SGE | Sequence[SGE]
"""Local memory of a request: a whole region, a piece, or several pieces."""

_Scalar = TypeVar("_Scalar", bound=np.generic)
"""The type of an array's items."""

Number: TypeAlias = SupportsIndex
"""An integer: an int, or one of NumPy's, such as an address or a key from an array."""

Bytes: TypeAlias = Buffer | NDArray[Any]
"""An object with the buffer protocol; NumPy's types declare it only from Python 3.12 on."""

def library_in_front() -> str | None:
    """The path of the Verbena that ``verbena run`` put in front of every libibverbs, or None."""

def devices_of(library: Library) -> list[Device]:
    """Return the devices that ``library`` finds, as a list of Device."""

def attach(library: Library, attachment: int, name: str, owner: object) -> Device:
    """Return a Device called ``name`` that is the adapter of a host of a simulated fabric.

    ``attachment`` is the address of the host's struct vb_sim_attachment; ``owner`` keeps that
    alive, and its ``add_fd`` and ``remove_fd`` are called for descriptors that programs may wait
    for (``add_fd`` gets the CompChannel, too, if the descriptor is one's). Raises VerbsError:
    EOPNOTSUPP when the library is not Verbena's, EPROTO when it is of another version.
    """

@final
class Library:
    """A loaded libibverbs: ``Library.open(path)``."""

    @property
    def path(self) -> str:
        """The path that it was opened by."""
    @staticmethod
    def open(path: str) -> Library:
        """Load the library at ``path``.

        Raises VerbsError(ENOENT) when it is none or lacks a symbol.
        """
    @property
    def is_verbena(self) -> bool:
        """True when it is Verbena's libibverbs and not the system's."""

class Device:
    """A device that libibverbs found. ``open()`` gives a Context."""

    @property
    def library(self) -> Library:
        """The libibverbs that found it."""
    @property
    def name(self) -> str:
        """The device's name, for example ``verbena0`` or ``mlx5_0``."""
    @property
    def dev_name(self) -> str:
        """The name of its device file, for example ``uverbs0``."""
    @property
    def guid(self) -> int:
        """The node GUID, in host byte order."""
    @property
    def node_type(self) -> NodeType:
        """The kind of node, as NodeType."""
    @property
    def transport_type(self) -> TransportType:
        """The transport, as TransportType."""
    def open(self) -> Context:
        """Open the device. Raises VerbsError."""

class Context:
    """An open device. Closing it closes everything that was made from it, in a safe order."""

    @property
    def device(self) -> Device:
        """The device that was opened."""
    @property
    def closed(self) -> bool:
        """True once the context is closed."""
    @property
    def name(self) -> str:
        """The device's name."""
    @property
    def num_comp_vectors(self) -> int:
        """How many completion vectors ``create_cq`` can choose from."""
    @property
    def async_fd(self) -> int:
        """The file descriptor that is readable when an event is there; non-blocking."""
    def close(self) -> None:
        """Close every object made from the context, then the device. Closing twice has no effect.

        Waits of other threads end with VerbsError(ECANCELED). Other calls that are under way end
        first, and no call begins. Raises VerbsError(EBUSY), and closes nothing, if it is called
        within a wait of this thread, as from a signal handler.
        """
    def call_when_closed(self, method: Callable[[], None]) -> None:
        """Register a bound method to be called at closing. It is held by a weak reference."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def query_device(self) -> DeviceAttr:
        """Return the device's capabilities, as DeviceAttr."""
    def query_port(self, port_num: int = 1) -> PortAttr:
        """State and limits of a port (they count from 1), as PortAttr.

        Raises VerbsError(EINVAL).
        """
    def query_gid(self, port_num: int, index: int) -> Gid:
        """Entry ``index`` of the port's GID table, as Gid; zero if empty.

        Raises VerbsError(EINVAL).
        """
    def query_gid_ex(self, port_num: int, index: int) -> GidEntry:
        """Entry ``index`` of the port's GID table with its type, as GidEntry. Raises VerbsError."""
    def query_gid_table(self, max_entries: int = 1024) -> list[GidEntry]:
        """The GIDs of all ports that are in use, as a list of GidEntry. Raises VerbsError."""
    def query_pkey(self, port_num: int, index: int) -> int:
        """Entry ``index`` of the port's partition key table. Raises VerbsError(EINVAL)."""
    def query_memory(self) -> MemoryAttr:
        """Return the capabilities for device memory and on-demand regions, as MemoryAttr."""
    def alloc_pd(self) -> PD:
        """Make a protection domain."""
    def open_xrcd(self, fd: int | HasFileno | None = None, oflags: int = os.O_CREAT) -> XRCD:
        """Open an XRC domain, shared with all that open one with the same file.

        ``fd`` is a file descriptor or an object with ``fileno()``; it may be closed afterwards.
        Without ``fd`` the domain is not shared. ``oflags``: O_CREAT makes a domain if none is open,
        O_EXCL requires that none is. Raises VerbsError: EAGAIN when none is open and O_CREAT is
        missing, EINVAL when one is and O_EXCL is given.
        """
    def alloc_dm(self, length: int, log_align_req: int = 0) -> DM:
        """Allocate device memory, zeroed, at a multiple of ``2**log_align_req`` bytes.

        Raises VerbsError: EINVAL (more than max_dm_size), ENOMEM, EOPNOTSUPP.
        """
    def alloc_td(self) -> TD:
        """Make a thread domain. Raises VerbsError(EOPNOTSUPP) if the device does not support it."""
    def create_comp_channel(self) -> CompChannel:
        """Make a completion channel, by which a CQ signals completions."""
    def create_cq(self, cqe: int, channel: CompChannel | None = None, comp_vector: int = 0) -> CQ:
        """Make a completion queue with room for at least ``cqe`` completions.

        Raises VerbsError(EINVAL) when ``cqe`` is not within 1 to ``query_device().max_cqe``.
        """
    def get_async_event(self, timeout: float | None = None) -> AsyncEvent | None:
        """Wait up to ``timeout`` seconds (None: forever) for an event; AsyncEvent, or None.

        The event is acknowledged already. The GIL is released while waiting.
        """
    def explain(self, vendor_err: int) -> str:
        """Return the evidence of an error completion as text, by its ``vendor_err``; '' if there is
        none."""
    def describe(self) -> dict[str, Any] | None:
        """Return the state of this process's device and its peers, as a dict.

        None with a library other than Verbena's.
        """
    def counters(self) -> dict[str, dict[str, int]] | None:
        """Return the counters since this process opened the device, as ``{part: {name: number}}``.

        The parts are ``direct`` (requests to peers on this host without packets), ``engine``
        (packets, retries, refusals: a name for each reason), ``udp`` and ``reuseport``; the last
        three are 0 if the device sends no packets. ``src/native/direct/counters.h`` and
        ``src/native/hca/counters.h`` explain the names. None with a library other than Verbena's.
        """
    def cancel_wait(self) -> None:
        """End every ``get_async_event`` of other threads with VerbsError(ECANCELED)."""
    def set_fault(self, text: str) -> None:
        """Replace the fault rules by those of a text; '' for none. See verbena.fault.

        Raises ValueError for a wrong word, VerbsError(EOPNOTSUPP) when the device sends no packets
        or is not Verbena's; the text says why.
        """
    def fault_counters(self) -> str:
        """Return how often each fault rule matched and acted: a line for each.

        Raises VerbsError(EOPNOTSUPP) as set_fault does.
        """

class Resource:
    """An object of a device: a context manager that closes itself and its users."""

    @property
    def context(self) -> Context:
        """The context that it was made from."""
    @property
    def token(self) -> int:
        """A number that no other object of the context has."""
    @property
    def closed(self) -> bool:
        """True once the object is closed."""
    def close(self) -> None:
        """Release the object. Closing it twice has no effect.

        Raises VerbsError(EBUSY) while another object uses it.
        """
    def call_before_closing(self, method: Callable[[], None]) -> None:
        """Register a bound method to be called before closing, while the object still works.

        It is held by a weak reference, and is called again if closing fails (EBUSY) and is
        repeated.
        """
    def call_when_closed(self, method: Callable[[], None]) -> None:
        """Register a bound method to be called after closing. It is held by a weak reference."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class PD(Resource):
    """A protection domain: MRs, QPs, SRQs and AHs work together only within one."""

    @overload
    def reg_mr(self, target: int, length: int, access: int = 1) -> MR:
        """Register memory: ``reg_mr(obj, access)`` or ``reg_mr(addr, length, access)``.

        ``obj`` is any object with the buffer protocol whose bytes are contiguous; the region holds
        a reference to it. By address, the caller keeps the memory alive. ``access`` defaults to
        LOCAL_WRITE. Raises VerbsError, and BufferError when the memory is read-only but ``access``
        writes.
        """
    @overload
    def reg_mr(self, target: Bytes, access: int = 1) -> MR:
        """Register memory: ``reg_mr(obj, access)`` or ``reg_mr(addr, length, access)``.

        ``obj`` is any object with the buffer protocol whose bytes are contiguous; the region holds
        a reference to it. By address, the caller keeps the memory alive. ``access`` defaults to
        LOCAL_WRITE. Raises VerbsError, and BufferError when the memory is read-only but ``access``
        writes.
        """
    def alloc(self, nbytes: int, access: int = 1) -> MR:
        """Allocate ``nbytes`` zeroed bytes (aligned to a page) and register them.

        With Verbena's library peer processes map the memory, so that a WRITE into it is one copy;
        with another library it is an anonymous mapping. Raises VerbsError(ENOMEM).
        """
    def alloc_null_mr(self) -> MR:
        """Make a null region: at any address reads give zeros and writes have no effect.

        Raises VerbsError(EOPNOTSUPP) if the device does not support it, or VerbsError(ENOMEM).
        """
    def reg_dm(self, dm: DM, length: int, offset: int = 0, access: int = 1) -> MR:
        """Register ``length`` bytes of a DM from ``offset`` on; addresses count from 0.

        ``access`` has ZERO_BASED added. Raises VerbsError.
        """
    def advise_mr(self, advice: int, sg_list: SGE | Iterable[SGE], flush: bool = True) -> None:
        """Prefetch parts of on-demand regions: a MRAdvice and one SGE or several.

        With ``flush`` the pages are present when it returns. Raises VerbsError: EINVAL, ENOENT (no
        such lkey), EPERM, EFAULT (a page is not there), EOPNOTSUPP.
        """
    def alloc_mw(self, mw_type: int = 2) -> MW:
        """Make a memory window of type 1 or 2. Raises VerbsError(EINVAL) for another type."""
    def alloc_parent_domain(self, td: TD | None = None) -> ParentDomain:
        """Make a parent domain over this one, with a thread domain if there is one."""
    @overload
    def create_qp(self, init_attr: QPInitAttr) -> QP:
        """Make a queue pair from a QPInitAttr, or from its fields as keywords.

        Raises VerbsError.
        """
    @overload
    def create_qp(
        self,
        init_attr: None = None,
        *,
        send_cq: CQ,
        recv_cq: CQ | None = None,
        qp_type: QPType = QPType.RC,
        max_send_wr: int = 128,
        max_recv_wr: int = 128,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
        srq: SRQ | None = None,
        sq_sig_all: bool = False,
    ) -> QP:
        """Make a queue pair from a QPInitAttr, or from its fields as keywords.

        Raises VerbsError.
        """
    def create_srq(self, max_wr: int = 128, max_sge: int = 1, srq_limit: int = 0) -> SRQ:
        """Make a shared receive queue for ``max_wr`` requests of ``max_sge`` SGEs.

        Raises VerbsError.
        """
    @overload
    def create_ah(self, attr: AHAttr) -> AH:
        """Make an address handle from an AHAttr, or from its fields as keywords.

        Raises VerbsError.
        """
    @overload
    def create_ah(
        self,
        attr: None = None,
        *,
        dgid: bytes | Gid = bytes(16),
        sgid_index: int = 0,
        dlid: int = 0,
        is_global: bool = True,
        port_num: int = 1,
        hop_limit: int = 64,
        traffic_class: int = 0,
        sl: int = 0,
        flow_label: int = 0,
        src_path_bits: int = 0,
        static_rate: int = 0,
    ) -> AH:
        """Make an address handle from an AHAttr, or from its fields as keywords.

        Raises VerbsError.
        """
    def create_ah_from_wc(self, wc: WC, grh: Bytes | None = None, port_num: int = 1) -> AH:
        """Make an address handle back to the sender of a UD message.

        ``grh`` is a buffer with the first 40 bytes of the receive buffer, which are the GRH; on
        RoCE it is always there.
        """

@final
class MR(Resource):
    """A registered memory region; its bytes are available through the buffer protocol.

    ``close()`` ends the registration at once. The memory itself (that of ``PD.alloc``, or the
    object given to ``PD.reg_mr``) lives until its last view is gone, so a view never dangles.
    """

    @property
    def pd(self) -> PD:
        """The protection domain in which it is registered."""
    @property
    def addr(self) -> int:
        """The address of its first byte, from which a peer computes ``remote_addr``."""
    @property
    def length(self) -> int:
        """Its length in bytes."""
    @property
    def lkey(self) -> int:
        """The key by which this process's work requests name it."""
    @property
    def rkey(self) -> int:
        """The key by which peers name it."""
    @property
    def handle(self) -> int:
        """The provider's number for it."""
    def change_access(self, access: int) -> None:
        """Register it again with other AccessFlags; its keys stay.

        Raises VerbsError, and does not change the region: EINVAL, or EBUSY while a window is bound.
        """
    def reregister(
        self,
        *,
        pd: PD | None = None,
        addr: int | None = None,
        length: int | None = None,
        access: int | None = None,
    ) -> None:
        """Register it again (``ibv_rereg_mr``); arguments that are not given stay unchanged.

        ``addr`` and ``length`` (bytes) name other memory, which the caller keeps alive; the region
        then gets other keys. That is possible only for a region that was registered by address, and
        raises ValueError otherwise. Raises VerbsError, and does not change the region: EINVAL,
        EFAULT, or EBUSY while a window is bound.
        """
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @overload
    def array(
        self,
        dtype: Literal["u1"] = "u1",
        shape: int | tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> NDArray[np.uint8]:
        """Return a NumPy array over the region's memory, without a copy.

        ``shape`` defaults to all items from ``offset`` (bytes) on. Raises ValueError when it does
        not fit, or when without a ``shape`` the bytes are not whole items; BufferError when the MR
        is closed or was registered by address.
        """
    @overload
    def array(
        self,
        dtype: type[_Scalar] | np.dtype[_Scalar],
        shape: int | tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> NDArray[_Scalar]:
        """Return a NumPy array over the region's memory, without a copy.

        ``shape`` defaults to all items from ``offset`` (bytes) on. Raises ValueError when it does
        not fit, or when without a ``shape`` the bytes are not whole items; BufferError when the MR
        is closed or was registered by address.
        """
    @overload
    def array(
        self,
        dtype: DTypeLike,
        shape: int | tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> NDArray[Any]:
        """Return a NumPy array over the region's memory, without a copy.

        ``shape`` defaults to all items from ``offset`` (bytes) on. Raises ValueError when it does
        not fit, or when without a ``shape`` the bytes are not whole items; BufferError when the MR
        is closed or was registered by address.
        """
    def sge(self, length: int | None = None, offset: int = 0) -> SGE:
        """Return an SGE for ``length`` bytes (default: all that follow) from ``offset`` on."""
    def load_u64(self, offset: int) -> int:
        """Read the 64-bit word at ``offset`` bytes atomically (acquire), in host byte order."""
    def store_u64(self, offset: int, value: int) -> None:
        """Set the 64-bit word at ``offset`` bytes atomically (release), in host byte order."""
    def wait_u64(self, offset: int, value: int, timeout: float | None = None) -> bool:
        """Spin until the 64-bit word at ``offset`` equals ``value``; True if it does in time.

        ``timeout`` is in seconds (None: forever). The call keeps a core busy, so it suits peers
        that answer fast; the GIL is released after a microsecond.
        """

    def cancel_wait(self) -> None:
        """End every ``wait_u64`` of other threads with VerbsError(ECANCELED)."""

class MW(Resource):
    """A memory window: a key for a part of a region, to which ``QP.bind_mw`` binds it.

    ``close()`` also unbinds it.
    """

    @property
    def pd(self) -> PD:
        """The protection domain that it was made in."""
    @property
    def rkey(self) -> int:
        """The key by which peers name it, as it was last bound."""
    @property
    def type(self) -> MWType:
        """1 or 2, as a MWType."""
    @property
    def handle(self) -> int:
        """The provider's number for it."""

class DM(Resource):
    """Device memory: ``PD.reg_dm`` makes a region of it, whose addresses count from 0."""

    @property
    def length(self) -> int:
        """Its length in bytes."""
    @property
    def handle(self) -> int:
        """The provider's number for it."""
    def copy_to(self, offset: int, data: Bytes) -> None:
        """Copy bytes into it, to ``offset``.

        Raises VerbsError(EINVAL) for a range that leaves it, and unless offset and length are
        multiples of 4 bytes.
        """
    def copy_from(self, offset: int, length: int) -> bytes:
        """The ``length`` bytes at ``offset``. Raises VerbsError(EINVAL) as copy_to does."""

class TD(Resource):
    """A thread domain: objects of a parent domain with it are used by one thread at a time."""

class ParentDomain(PD):
    """A protection domain over another one: keys and QPs of both work together."""

    @property
    def parent(self) -> PD:
        """The protection domain for which it stands."""
    @property
    def td(self) -> TD | None:
        """Its thread domain, or None."""

def attached(owners: Iterable[object]) -> list[Context]:
    """Return the open contexts of devices that ``attach`` made for one of ``owners``."""

def inc_rkey(rkey: int) -> int:
    """The key with the next low byte (``ibv_inc_rkey``), for a window's next binding."""

class SGE:
    """A piece of local memory: ``SGE(mr, length, offset=0)`` or ``SGE(addr, length, lkey)``.

    With an MR, ``length`` None stands for all bytes after ``offset``. ``owner`` is the MR, or None.
    """

    def __init__(
        self, target: MR | int, length: int | None = None, lkey: int = 0, offset: int = 0
    ) -> None: ...
    @property
    def owner(self) -> MR | None:
        """The MR of the piece; None if it was given by address."""
    @property
    def addr(self) -> int:
        """Address of the first byte."""
    @property
    def length(self) -> int:
        """Length in bytes."""
    @property
    def lkey(self) -> int:
        """Key of the MR."""

class SendWR:
    """A send work request; make it once and post it often. See ``ibv_post_send(3)`` for the fields.

    ``imm_data`` is in host byte order. ``remote_addr`` and ``rkey`` serve RDMA and atomics,
    ``compare_add`` and ``swap`` atomics, ``ah``, ``remote_qpn`` and ``remote_qkey`` UD.
    ``remote_srqn`` is the number of the SRQ that a request on XRC_SEND is for.
    """

    wr_id: int
    """The caller's number, which comes back in the completion."""
    imm_data: int
    """Immediate data, in host byte order."""
    invalidate_rkey: int
    """The key that SEND_WITH_INV or LOCAL_INV invalidates."""
    remote_addr: int
    """The peer's address, of RDMA and atomics."""
    rkey: int
    """The peer's key, of RDMA and atomics."""
    compare_add: int
    """The value compared with, or the value added."""
    swap: int
    """The value that compare-and-swap stores."""
    remote_srqn: int
    """The number of the SRQ that the request is for, of XRC_SEND."""
    def __init__(
        self,
        wr_id: int = 0,
        sg_list: SGE | Iterable[SGE] = (),
        opcode: int = WROpcode.SEND,
        send_flags: int = SendFlags.SIGNALED,
        remote_addr: Number = 0,
        rkey: Number = 0,
        imm_data: int = 0,
        compare_add: int = 0,
        swap: int = 0,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        remote_srqn: int = 0,
    ) -> None: ...
    @property
    def sg_list(self) -> list[SGE]:
        """The SGEs; set it to one SGE or to a sequence of them."""
    @sg_list.setter
    def sg_list(self, value: SGE | Iterable[SGE]) -> None: ...
    @property
    def send_flags(self) -> SendFlags:
        """The SendFlags."""
    @send_flags.setter
    def send_flags(self, value: int) -> None: ...
    @property
    def opcode(self) -> WROpcode:
        """The WROpcode; fixed, because it decides which fields the request has."""
    @property
    def ah(self) -> AH | None:
        """The address handle of a UD send, or None."""
    @property
    def remote_qpn(self) -> int:
        """The peer's QP number, of UD."""
    @property
    def remote_qkey(self) -> int:
        """The peer's Q_Key, of UD."""

class RecvWR:
    """A receive work request; make it once and post it often."""

    wr_id: int
    """The caller's number, which comes back in the completion."""
    def __init__(self, wr_id: int = 0, sg_list: SGE | Iterable[SGE] = ()) -> None: ...
    @property
    def sg_list(self) -> list[SGE]:
        """The SGEs; set it to one SGE or to a sequence of them."""
    @sg_list.setter
    def sg_list(self, value: SGE | Iterable[SGE]) -> None: ...

@final
class WC:
    """A work completion.

    Except for ``wr_id``, ``status``, ``qp_num`` and ``vendor_err``, the fields are defined only in
    a successful one.
    """

    @property
    def wr_id(self) -> int:
        """The number that the request was posted with."""
    @property
    def status(self) -> WCStatus:
        """The WCStatus."""
    @property
    def is_success(self) -> bool:
        """True unless it failed."""
    @property
    def opcode(self) -> WCOpcode:
        """The WCOpcode: what completed."""
    @property
    def vendor_err(self) -> int:
        """The device's own error number."""
    @property
    def byte_len(self) -> int:
        """Bytes received, read or swapped; on UD, with the 40 bytes of the GRH."""
    @property
    def imm_data(self) -> int:
        """Immediate data in host byte order, if ``wc_flags`` has WITH_IMM."""
    @property
    def invalidated_rkey(self) -> int:
        """The rkey that the sender invalidated, if ``wc_flags`` has WITH_INV."""
    @property
    def qp_num(self) -> int:
        """The local QP's number."""
    @property
    def src_qp(self) -> int:
        """The sender's QP number, on UD."""
    @property
    def wc_flags(self) -> WCFlags:
        """Which fields are set, as WCFlags."""
    @property
    def pkey_index(self) -> int:
        """Index of the P_Key, of GSI."""
    @property
    def slid(self) -> int:
        """The sender's LID, on UD over InfiniBand."""
    @property
    def dlid_path_bits(self) -> int:
        """UD: the path bits of the LID that it came to, of a port with an LMC; 0 on RoCE."""
    @property
    def sl(self) -> int:
        """Service level, on UD."""
    @property
    def status_str(self) -> str:
        """The status by name, in lower case."""
    def raise_for_status(self) -> None:
        """Raise CompletionError, which says the cause, if it failed."""

class CompChannel(Resource):
    """A completion channel: a descriptor that becomes readable when an armed CQ has a completion.

    The descriptor is non-blocking; ``get_cq_event`` and ``CQ.wait`` sleep in poll(2).
    """

    @property
    def fd(self) -> int:
        """The file descriptor, for select, poll, epoll and event loops."""
    @property
    def is_shared(self) -> bool:
        """True when several CQs notify it: a wait for one may take another one's event."""
    def get_cq_event(self, timeout: float | None = None) -> CQ | None:
        """Wait up to ``timeout`` seconds (None: forever) for an event; its CQ, or None.

        The event is acknowledged already; arm the CQ again and poll it. The GIL is released while
        waiting.
        """
    def cancel_wait(self) -> None:
        """End every ``get_cq_event`` that another thread is in: VerbsError(ECANCELED) there."""
    def drain(self, most: int | None = None) -> int:
        """Take and acknowledge events that are there, without waiting; returns their number.

        That is all of them, or ``most``. To find that there are no more costs a system call.
        """
    def keep_events(self, keep: bool) -> None:
        """Keep events of a simulated host from passing through the descriptor, or let them again.

        For the world's own loop, which gets them otherwise. Raises VerbsError: ENOMEM.
        """
    @property
    def has_kept(self) -> bool:
        """Return whether there are events that ``keep_events`` kept."""
    def note_interrupt(self) -> None:
        """Note that an interrupt of a simulated host has come for the events that are there."""
    @property
    def has_raised(self) -> bool:
        """Return whether there are kept events for which an interrupt has come."""

class CQ(Resource):
    """A completion queue."""

    @property
    def channel(self) -> CompChannel | None:
        """The completion channel that it notifies, or None."""
    @property
    def cqe(self) -> int:
        """The number of completions for which it has room."""
    def resize(self, cqe: int) -> None:
        """Make room for at least ``cqe`` completions. Raises VerbsError."""
    def req_notify(self, solicited_only: bool = False) -> None:
        """Arm the CQ: its next completion (or the next solicited or failed one) makes one event."""
    @overload
    def poll(self, max_entries: int = 16, *, out: None = None) -> list[WC]:
        """Take completions that are there, without waiting.

        Returns a list of up to ``max_entries`` WC. With ``out``, a NumPy array of
        ``verbs.wc_dtype``, fills it from the start and returns their number. Raises
        VerbsError when the CQ is in error.
        """
    @overload
    def poll(self, max_entries: int = 16, *, out: NDArray[np.void]) -> int:
        """Take completions that are there, without waiting.

        Returns a list of up to ``max_entries`` WC. With ``out``, a NumPy array of
        ``verbs.wc_dtype``, fills it from the start and returns their number. Raises
        VerbsError when the CQ is in error.
        """
    @overload
    def wait(
        self,
        n: int = 1,
        timeout: float | None = None,
        *,
        spin: float | None = None,
        out: None = None,
    ) -> list[WC]:
        """Wait for ``n`` completions and take them; fewer when ``timeout`` seconds are over.

        Returns a list of WC, or with ``out`` (an array of ``verbs.wc_dtype`` with room for ``n``)
        their number. Spins for ``spin`` seconds (default: 50 µs) after each completion, then
        sleeps; ``float("inf")`` only spins. The GIL is released meanwhile. Raises VerbsError:
        ECANCELED when another thread ends the wait (``cancel_wait``), EIO when the CQ is in error.
        If some had come before, it returns those, and the next call raises EIO.
        """
    @overload
    def wait(
        self,
        n: int = 1,
        timeout: float | None = None,
        *,
        spin: float | None = None,
        out: NDArray[np.void],
    ) -> int:
        """Wait for ``n`` completions and take them; fewer when ``timeout`` seconds are over.

        Returns a list of WC, or with ``out`` (an array of ``verbs.wc_dtype`` with room for ``n``)
        their number. Spins for ``spin`` seconds (default: 50 µs) after each completion, then
        sleeps; ``float("inf")`` only spins. The GIL is released meanwhile. Raises VerbsError:
        ECANCELED when another thread ends the wait (``cancel_wait``), EIO when the CQ is in error.
        If some had come before, it returns those, and the next call raises EIO.
        """

    def wait_one(self, timeout: float | None = None, *, spin: float | None = None) -> WC:
        """Wait for one completion and return its WC, which may have an error.

        Raises TimeoutError when there is none after ``timeout`` seconds (None: waits for ever), and
        the errors of ``wait``; ``spin`` is as there.
        """
    def cancel_wait(self) -> None:
        """End every ``wait`` and ``wait_one`` that another thread is in, which raises
        VerbsError(ECANCELED) there. Waits that begin later are not affected."""

class AH(Resource):
    """An address handle: where a UD request goes."""

    @property
    def pd(self) -> PD:
        """The protection domain that it was made in."""

class XRCD(Resource):
    """An XRC domain: its target QPs deliver each request to the SRQ that it names.

    ``Context.open_xrcd`` opens it. Initiators are QPs of type XRC_SEND, made as all others
    (``PD.create_qp``).
    """

    def create_srq(
        self, pd: PD, cq: CQ, max_wr: int = 128, max_sge: int = 1, srq_limit: int = 0
    ) -> SRQ:
        """Make an SRQ that requests name by its ``srq_num``; its receives complete on ``cq``.

        ``pd`` is the protection domain of its buffers, and of the rkeys of requests that name it.
        Raises VerbsError.
        """
    def create_qp(self) -> QP:
        """Make a target QP (XRC_RECV). It has no queues, and no ``pd``, ``send_cq``, ``recv_cq``.

        Raises VerbsError.
        """
    def open_qp(self, qp_num: int) -> QP:
        """Return another handle of a target QP of this domain, which lives until its last handle.

        Raises VerbsError: EINVAL when the domain has none of this number, EOPNOTSUPP when it is
        another process's (over Verbena: its SRQs and target QPs belong to one process).
        """

class SRQ(Resource):
    """A shared receive queue, from which several QPs take their receives.

    An SRQ of ``XRCD.create_srq`` also has an ``xrcd``, a ``cq`` and a number.
    """

    @property
    def pd(self) -> PD:
        """The protection domain of its receives."""
    @property
    def xrcd(self) -> XRCD | None:
        """The XRC domain that it was made in, or None."""
    @property
    def cq(self) -> CQ | None:
        """The CQ of its receives, for an SRQ of an XRC domain; otherwise None."""
    @property
    def srq_num(self) -> int:
        """The number by which XRC requests name it. Raises VerbsError(EINVAL) for another kind."""
    def post_recv(self, wr: RecvWR | Iterable[RecvWR]) -> None:
        """Post a RecvWR or a sequence of them.

        Raises VerbsError; its ``posted`` counts the requests before the failed one.
        """
    def recv(
        self, local: Local, offset: int = 0, length: int | None = None, wr_id: int = 0
    ) -> None:
        """Post one receive into an MR (``length`` bytes from ``offset``) or into a sequence of
        SGEs."""
    def post_many(self, records: NDArray[np.void]) -> int:
        """Post every record of a NumPy array of ``verbs.recv_dtype``; returns their number.

        One call, without the GIL. Raises VerbsError; its ``posted`` counts the records before the
        failure.
        """
    def query(self) -> SRQAttr:
        """Its present attributes, as SRQAttr."""
    def modify(self, max_wr: int | None = None, srq_limit: int | None = None) -> None:
        """Change its size, or arm the limit event: SRQ_LIMIT_REACHED comes once when fewer receives
        than ``srq_limit`` are left."""

@final
class QP(Resource):
    """A queue pair. ``verbena.connect_rc`` connects it over a socket.

    An XRC target QP (XRC_RECV, from ``XRCD.create_qp``) has an ``xrcd``, and None for ``pd`` and
    both CQs.
    """

    @property
    def pd(self) -> PD:
        """Its protection domain; None for an XRC target."""
    @property
    def send_cq(self) -> CQ:
        """The CQ of its send requests; None for an XRC target."""
    @property
    def recv_cq(self) -> CQ:
        """The CQ of its receives; None for an XRC target."""
    @property
    def srq(self) -> SRQ | None:
        """The SRQ that it uses in place of a receive queue, or None."""
    @property
    def xrcd(self) -> XRCD | None:
        """The domain of an XRC target; None for other types."""
    @property
    def cap(self) -> QPCap:
        """The capacity of its queues, as QPCap."""
    @property
    def qp_num(self) -> int:
        """Its number, 24 bits."""
    @property
    def qp_type(self) -> QPType:
        """Its QPType."""
    @property
    def state(self) -> QPState:
        """Its present QPState, queried from the device."""
    def modify(
        self,
        attr_mask: SupportsInt | None = None,
        /,
        *,
        qp_state: int = ...,
        cur_qp_state: int = ...,
        en_sqd_async_notify: int = ...,
        qp_access_flags: int = ...,
        pkey_index: int = ...,
        port_num: int = ...,
        qkey: int = ...,
        ah_attr: AHAttr = ...,
        path_mtu: int = ...,
        timeout: int = ...,
        retry_cnt: int = ...,
        rnr_retry: int = ...,
        rq_psn: int = ...,
        max_rd_atomic: int = ...,
        alt_ah_attr: AHAttr = ...,
        alt_pkey_index: int = ...,
        alt_port_num: int = ...,
        alt_timeout: int = ...,
        min_rnr_timer: int = ...,
        sq_psn: int = ...,
        max_dest_rd_atomic: int = ...,
        path_mig_state: int = ...,
        cap: QPCap = ...,
        dest_qp_num: int = ...,
        rate_limit: int = ...,
    ) -> None:
        """Change attributes (named as in ``ibv_qp_attr``), and with ``qp_state`` the state.

        ``attr_mask`` defaults to exactly the keywords given; the attributes that each transition
        needs are in ibv_modify_qp(3). Raises VerbsError(EINVAL), and changes nothing then; and
        TypeError for a QPState in place of the mask.
        """
    def query(self) -> QPAttr:
        """All its attributes, as QPAttr."""
    def to_init(
        self, port: int = 1, access: int = 0, pkey_index: int = 0, qkey: int = 0x11111111
    ) -> None:
        """RESET to INIT.

        ``access`` are the operations that peers may do (RC, UC); ``qkey`` is the Q_Key (UD).
        """
    def to_rtr(
        self,
        *,
        dest_qp_num: int = 0,
        rq_psn: int = 0,
        ah_attr: AHAttr | None = None,
        path_mtu: int = 5,
        max_dest_rd_atomic: int = 16,
        min_rnr_timer: int = 12,
    ) -> None:
        """INIT to RTR, ready to receive.

        UD has none of the arguments, UC and XRC_SEND lack the last two. Raises TypeError without
        ``ah_attr``, the peer's address as AHAttr, and VerbsError.
        """
    def to_rts(
        self,
        *,
        sq_psn: int = 0,
        timeout: int = 14,
        retry_cnt: int = 7,
        rnr_retry: int = 7,
        max_rd_atomic: int = 16,
    ) -> None:
        """RTR to RTS, ready to send.

        UC and UD have only ``sq_psn``, XRC_RECV also ``timeout``.
        """
    def attach_mcast(self, gid: bytes | Gid, lid: int = 0) -> None:
        """Attach a UD QP to the multicast group ``gid``, so that it receives the group's datagrams.

        ``gid`` is 16 bytes: an IPv6 multicast address, or an IPv4 one as ``::ffff:a.b.c.d``. RoCE
        ignores ``lid``. Senders address the group by an AH with that ``dgid`` and by
        ``remote_qpn=verbs.MULTICAST_QPN``. A QP that is closed leaves its groups. Raises
        VerbsError: EINVAL (not UD, or no multicast GID), ENOMEM (``max_mcast_grp``,
        ``max_mcast_qp_attach``, or a limit of the system); ValueError when ``gid`` is no 16 bytes.
        """
    def detach_mcast(self, gid: bytes | Gid, lid: int = 0) -> None:
        """Leave the group. Raises VerbsError(EINVAL) when the QP is not attached to it."""
    def post_send(self, wr: SendWR | Iterable[SendWR]) -> None:
        """Post a SendWR or a sequence of them.

        Raises VerbsError; its ``posted`` counts the requests that were accepted before the failure.
        """
    def post_recv(self, wr: RecvWR | Iterable[RecvWR]) -> None:
        """Post a RecvWR or a sequence of them.

        Raises VerbsError; its ``posted`` counts those before.
        """
    def post_many(self, records: NDArray[np.void], ahs: Sequence[AH] | None = None) -> int:
        """Post every record of a NumPy array of ``verbs.send_dtype`` or ``verbs.recv_dtype``.

        One call, without the GIL; returns the number of records. On UD, ``ahs`` is the sequence of
        AH that the records' ``ah`` fields index. Raises VerbsError; its ``posted`` counts the
        records that were accepted before the failure.
        """
    def send(
        self,
        local: Local | Bytes,
        offset: int = 0,
        length: int | None = None,
        *,
        imm_data: int | None = None,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        remote_srqn: int = 0,
    ) -> None:
        """Post a SEND of ``length`` bytes of an MR from ``offset`` on (default: all), or of SGEs.

        With INLINE in ``flags``, ``local`` may be any bytes-like object. With ``imm_data`` it is a
        SEND with immediate data. ``ah``, ``remote_qpn`` and ``remote_qkey`` address a UD peer;
        ``remote_srqn`` is, on XRC_SEND, the number of the SRQ that the request is for, as with all
        the following.
        """
    def send_with_invalidate(
        self,
        local: Local | Bytes,
        rkey: Number,
        offset: int = 0,
        length: int | None = None,
        *,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
    ) -> None:
        """Post a SEND that invalidates the peer's window of this rkey; otherwise as ``send``."""
    def local_invalidate(
        self, rkey: Number, *, wr_id: int = 0, flags: int = SendFlags.SIGNALED
    ) -> None:
        """Post a LOCAL_INV for the rkey of a window of type 2 that is bound through this QP."""
    def bind_mw(
        self,
        mw: MW,
        mr: MR | None = None,
        offset: int = 0,
        length: int | None = None,
        access: int = 2,
        *,
        rkey: Number | None = None,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
    ) -> int:
        """Bind a window to ``length`` bytes of an MR from ``offset`` on (default: all).

        Returns the window's new key, which is ``mw.rkey`` from now on. For type 2 its low byte is
        that of ``rkey`` (default: the next one). A window of type 1 without an MR is unbound.
        ``access`` defaults to REMOTE_WRITE. Raises VerbsError. The device refuses a range that
        leaves the MR (MW_BIND_ERR).
        """
    def recv(
        self, local: Local, offset: int = 0, length: int | None = None, *, wr_id: int = 0
    ) -> None:
        """Post a receive into ``length`` bytes of an MR from ``offset`` on (default: all), or into
        SGEs."""
    def write(
        self,
        local: Local | Bytes,
        remote_addr: Number,
        rkey: Number,
        offset: int = 0,
        length: int | None = None,
        *,
        imm_data: int | None = None,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        remote_srqn: int = 0,
    ) -> None:
        """Post an RDMA WRITE to ``remote_addr``; the other arguments are those of ``send``."""
    def read(
        self,
        local: Local,
        remote_addr: Number,
        rkey: Number,
        offset: int = 0,
        length: int | None = None,
        *,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        remote_srqn: int = 0,
    ) -> None:
        """Post an RDMA READ from ``remote_addr`` into ``length`` bytes of an MR, or into SGEs."""
    def compare_swap(
        self,
        local: Local,
        remote_addr: Number,
        rkey: Number,
        compare: Number,
        swap: Number,
        offset: int = 0,
        *,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        remote_srqn: int = 0,
    ) -> None:
        """Post a compare-and-swap of the 64-bit word at ``remote_addr`` (a multiple of 8).

        The word's old value is written to the 8 bytes at ``offset`` of the MR, in host byte order.
        """
    def fetch_add(
        self,
        local: Local,
        remote_addr: Number,
        rkey: Number,
        add: Number,
        offset: int = 0,
        *,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        remote_srqn: int = 0,
    ) -> None:
        """Post a fetch-and-add to the 64-bit word at ``remote_addr``; see ``compare_swap``."""
    def atomic_write(
        self,
        local: Local,
        remote_addr: Number,
        rkey: Number,
        offset: int = 0,
        *,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        remote_srqn: int = 0,
    ) -> None:
        """Post an atomic write of the 8 bytes at ``offset`` of the MR to ``remote_addr``.

        ``remote_addr`` is a multiple of 8, and a reader sees all of the eight bytes or none (IBA
        1.5, annex A19). The request counts among the ``max_rd_atomic`` and needs ``REMOTE_WRITE``.
        """
    def flush(
        self,
        remote_addr: Number,
        rkey: Number,
        length: int | None = None,
        *,
        placement: int = PlacementType.GLOBAL,
        wr_id: int = 0,
        flags: int = SendFlags.SIGNALED,
        remote_srqn: int = 0,
    ) -> None:
        """Post a FLUSH of ``length`` bytes from ``remote_addr`` on (IBA 1.5, annex A19).

        When it completes, this QP's earlier writes there are visible to the peer's whole host.
        ``length`` None stands for the whole region, and ``remote_addr`` is ignored then.
        ``placement`` is a PlacementType; the peer's QP and region need FLUSH_GLOBAL,
        FLUSH_PERSISTENT or both. It counts among the ``max_rd_atomic``. Raises VerbsError:
        EOPNOTSUPP with a libibverbs other than Verbena's, EINVAL for an unknown placement.
        """
