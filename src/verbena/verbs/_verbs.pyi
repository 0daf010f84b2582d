# SPDX-License-Identifier: Apache-2.0
# The types of the compiled binding; its docstrings are in the .pxi files.

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, SupportsInt, TypeAlias, final, overload

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
    def fileno(self) -> int: ...

Local: TypeAlias = MR | SGE | Sequence[SGE]
"""Local memory of a request."""

def library_in_front() -> str | None: ...
def devices_of(library: Library) -> list[Device]: ...
def plug(library: Library, jack: int, name: str, owner: object) -> Device: ...

@final
class Library:
    @property
    def path(self) -> str: ...
    @staticmethod
    def open(path: str) -> Library: ...
    @property
    def is_verbena(self) -> bool: ...

class Device:
    @property
    def library(self) -> Library: ...
    @property
    def name(self) -> str: ...
    @property
    def dev_name(self) -> str: ...
    @property
    def guid(self) -> int: ...
    @property
    def node_type(self) -> NodeType: ...
    @property
    def transport_type(self) -> TransportType: ...
    def open(self) -> Context: ...

class Context:
    @property
    def device(self) -> Device: ...
    @property
    def closed(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def num_comp_vectors(self) -> int: ...
    @property
    def async_fd(self) -> int: ...
    def close(self) -> None: ...
    def call_when_closed(self, method: Callable[[], None]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def query_device(self) -> DeviceAttr: ...
    def query_port(self, port_num: int = 1) -> PortAttr: ...
    def query_gid(self, port_num: int, index: int) -> Gid: ...
    def query_gid_ex(self, port_num: int, index: int) -> GidEntry: ...
    def query_gid_table(self, max_entries: int = 1024) -> list[GidEntry]: ...
    def query_pkey(self, port_num: int, index: int) -> int: ...
    def query_memory(self) -> MemoryAttr: ...
    def alloc_pd(self) -> PD: ...
    def open_xrcd(self, fd: int | HasFileno | None = None, oflags: int = ...) -> XRCD: ...
    def alloc_dm(self, length: int, log_align_req: int = 0) -> DM: ...
    def alloc_td(self) -> TD: ...
    def create_comp_channel(self) -> CompChannel: ...
    def create_cq(
        self, cqe: int, channel: CompChannel | None = None, comp_vector: int = 0
    ) -> CQ: ...
    def get_async_event(self, timeout: float | None = None) -> AsyncEvent | None: ...
    def explain(self, vendor_err: int) -> str: ...
    def describe(self) -> dict[str, Any] | None: ...
    def counters(self) -> dict[str, dict[str, int]] | None: ...
    def set_fault(self, text: str) -> None: ...
    def fault_counters(self) -> str: ...

class Resource:
    @property
    def context(self) -> Context: ...
    @property
    def token(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def call_when_closed(self, method: Callable[[], None]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class PD(Resource):
    @overload
    def reg_mr(self, target: int, length: int, access: int = 1) -> MR: ...
    @overload
    def reg_mr(self, target: Buffer, access: int = 1) -> MR: ...
    def alloc(self, nbytes: int, access: int = 1) -> MR: ...
    def alloc_null_mr(self) -> MR: ...
    def reg_dm(self, dm: DM, length: int, offset: int = 0, access: int = 1) -> MR: ...
    def advise_mr(self, advice: int, sg_list: SGE | Iterable[SGE], flush: bool = True) -> None: ...
    def alloc_mw(self, mw_type: int = 2) -> MW: ...
    def alloc_parent_domain(self, td: TD | None = None) -> ParentDomain: ...
    @overload
    def create_qp(self, init_attr: QPInitAttr) -> QP: ...
    @overload
    def create_qp(
        self,
        *,
        send_cq: CQ,
        recv_cq: CQ | None = None,
        qp_type: QPType = ...,
        max_send_wr: int = 128,
        max_recv_wr: int = 128,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
        srq: SRQ | None = None,
        sq_sig_all: bool = False,
    ) -> QP: ...
    def create_srq(self, max_wr: int = 128, max_sge: int = 1, srq_limit: int = 0) -> SRQ: ...
    @overload
    def create_ah(self, attr: AHAttr) -> AH: ...
    @overload
    def create_ah(
        self,
        *,
        dgid: bytes | Gid = ...,
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
    ) -> AH: ...
    def create_ah_from_wc(self, wc: WC, grh: Buffer | None = None, port_num: int = 1) -> AH: ...

class MR(Resource):
    @property
    def pd(self) -> PD: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def lkey(self) -> int: ...
    @property
    def rkey(self) -> int: ...
    @property
    def handle(self) -> int: ...
    def change_access(self, access: int) -> None: ...
    def reregister(
        self,
        *,
        pd: PD | None = None,
        addr: int | None = None,
        length: int | None = None,
        access: int | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def array(
        self,
        dtype: DTypeLike = "u1",
        shape: int | tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> NDArray[Any]: ...
    def sge(self, length: int | None = None, offset: int = 0) -> SGE: ...
    def load_u64(self, offset: int) -> int: ...
    def store_u64(self, offset: int, value: int) -> None: ...
    def wait_u64(self, offset: int, value: int, timeout: float | None = None) -> bool: ...

class MW(Resource):
    @property
    def pd(self) -> PD: ...
    @property
    def rkey(self) -> int: ...
    @property
    def type(self) -> MWType: ...
    @property
    def handle(self) -> int: ...

class DM(Resource):
    @property
    def length(self) -> int: ...
    @property
    def handle(self) -> int: ...
    def copy_to(self, offset: int, data: Buffer) -> None: ...
    def copy_from(self, offset: int, length: int) -> bytes: ...

class TD(Resource): ...

class ParentDomain(PD):
    @property
    def parent(self) -> PD: ...
    @property
    def td(self) -> TD | None: ...

def inc_rkey(rkey: int) -> int: ...

class SGE:
    def __init__(
        self, target: MR | int, length: int | None = None, lkey: int = 0, offset: int = 0
    ) -> None: ...
    @property
    def owner(self) -> MR | None: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def lkey(self) -> int: ...

class SendWR:
    wr_id: int
    imm_data: int
    invalidate_rkey: int
    remote_addr: int
    rkey: int
    compare_add: int
    swap: int
    remote_srqn: int
    def __init__(
        self,
        wr_id: int = 0,
        sg_list: SGE | Iterable[SGE] = (),
        opcode: int = ...,
        send_flags: int = ...,
        remote_addr: int = 0,
        rkey: int = 0,
        imm_data: int = 0,
        compare_add: int = 0,
        swap: int = 0,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        remote_srqn: int = 0,
    ) -> None: ...
    @property
    def sg_list(self) -> list[SGE]: ...
    @sg_list.setter
    def sg_list(self, value: SGE | Iterable[SGE]) -> None: ...
    @property
    def send_flags(self) -> SendFlags: ...
    @send_flags.setter
    def send_flags(self, value: int) -> None: ...
    @property
    def opcode(self) -> WROpcode: ...
    @property
    def ah(self) -> AH | None: ...
    @property
    def remote_qpn(self) -> int: ...
    @property
    def remote_qkey(self) -> int: ...

class RecvWR:
    wr_id: int
    def __init__(self, wr_id: int = 0, sg_list: SGE | Iterable[SGE] = ()) -> None: ...
    @property
    def sg_list(self) -> list[SGE]: ...
    @sg_list.setter
    def sg_list(self, value: SGE | Iterable[SGE]) -> None: ...

@final
class WC:
    @property
    def wr_id(self) -> int: ...
    @property
    def status(self) -> WCStatus: ...
    @property
    def is_success(self) -> bool: ...
    @property
    def opcode(self) -> WCOpcode: ...
    @property
    def vendor_err(self) -> int: ...
    @property
    def byte_len(self) -> int: ...
    @property
    def imm_data(self) -> int: ...
    @property
    def invalidated_rkey(self) -> int: ...
    @property
    def qp_num(self) -> int: ...
    @property
    def src_qp(self) -> int: ...
    @property
    def wc_flags(self) -> WCFlags: ...
    @property
    def pkey_index(self) -> int: ...
    @property
    def slid(self) -> int: ...
    @property
    def sl(self) -> int: ...
    @property
    def status_str(self) -> str: ...
    def raise_for_status(self) -> None: ...

class CompChannel(Resource):
    @property
    def fd(self) -> int: ...
    @property
    def is_shared(self) -> bool: ...
    def get_cq_event(self, timeout: float | None = None) -> CQ | None: ...
    def drain(self) -> int: ...

class CQ(Resource):
    @property
    def channel(self) -> CompChannel | None: ...
    @property
    def cqe(self) -> int: ...
    def resize(self, cqe: int) -> None: ...
    def req_notify(self, solicited_only: bool = False) -> None: ...
    @overload
    def poll(self, max_entries: int = 16, *, out: None = None) -> list[WC]: ...
    @overload
    def poll(self, max_entries: int = 16, *, out: NDArray[np.void]) -> int: ...
    @overload
    def wait(
        self,
        n: int = 1,
        timeout: float | None = None,
        *,
        spin: float | None = None,
        out: None = None,
    ) -> list[WC]: ...
    @overload
    def wait(
        self,
        n: int = 1,
        timeout: float | None = None,
        *,
        spin: float | None = None,
        out: NDArray[np.void],
    ) -> int: ...

class AH(Resource):
    @property
    def pd(self) -> PD: ...

class XRCD(Resource):
    def create_srq(
        self, pd: PD, cq: CQ, max_wr: int = 128, max_sge: int = 1, srq_limit: int = 0
    ) -> SRQ: ...
    def create_qp(self) -> QP: ...
    def open_qp(self, qp_num: int) -> QP: ...

class SRQ(Resource):
    @property
    def pd(self) -> PD: ...
    @property
    def xrcd(self) -> XRCD | None: ...
    @property
    def cq(self) -> CQ | None: ...
    @property
    def srq_num(self) -> int: ...
    def post_recv(self, wr: RecvWR | Iterable[RecvWR]) -> None: ...
    def recv(
        self, local: Local, offset: int = 0, length: int | None = None, wr_id: int = 0
    ) -> None: ...
    def post_many(self, records: NDArray[np.void]) -> int: ...
    def query(self) -> SRQAttr: ...
    def modify(self, max_wr: int | None = None, srq_limit: int | None = None) -> None: ...

class QP(Resource):
    @property
    def pd(self) -> PD: ...
    @property
    def send_cq(self) -> CQ: ...
    @property
    def recv_cq(self) -> CQ: ...
    @property
    def srq(self) -> SRQ | None: ...
    @property
    def xrcd(self) -> XRCD | None: ...
    @property
    def cap(self) -> QPCap: ...
    @property
    def qp_num(self) -> int: ...
    @property
    def qp_type(self) -> QPType: ...
    @property
    def state(self) -> QPState: ...
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
    ) -> None: ...
    def query(self) -> QPAttr: ...
    def to_init(
        self, port: int = 1, access: int = 0, pkey_index: int = 0, qkey: int = 0x11111111
    ) -> None: ...
    def to_rtr(
        self,
        *,
        dest_qp_num: int = 0,
        rq_psn: int = 0,
        ah_attr: AHAttr | None = None,
        path_mtu: int = 5,
        max_dest_rd_atomic: int = 16,
        min_rnr_timer: int = 12,
    ) -> None: ...
    def to_rts(
        self,
        *,
        sq_psn: int = 0,
        timeout: int = 14,
        retry_cnt: int = 7,
        rnr_retry: int = 7,
        max_rd_atomic: int = 16,
    ) -> None: ...
    def attach_mcast(self, gid: bytes | Gid, lid: int = 0) -> None: ...
    def detach_mcast(self, gid: bytes | Gid, lid: int = 0) -> None: ...
    def post_send(self, wr: SendWR | Iterable[SendWR]) -> None: ...
    def post_recv(self, wr: RecvWR | Iterable[RecvWR]) -> None: ...
    def post_many(self, records: NDArray[np.void], ahs: Sequence[AH] | None = None) -> int: ...
    def send(
        self,
        local: Local | Buffer,
        offset: int = 0,
        length: int | None = None,
        *,
        imm_data: int | None = None,
        wr_id: int = 0,
        flags: int = ...,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        remote_srqn: int = 0,
    ) -> None: ...
    def send_with_invalidate(
        self,
        local: Local | Buffer,
        rkey: int,
        offset: int = 0,
        length: int | None = None,
        *,
        wr_id: int = 0,
        flags: int = ...,
    ) -> None: ...
    def local_invalidate(self, rkey: int, *, wr_id: int = 0, flags: int = ...) -> None: ...
    def bind_mw(
        self,
        mw: MW,
        mr: MR | None = None,
        offset: int = 0,
        length: int | None = None,
        access: int = 2,
        *,
        rkey: int | None = None,
        wr_id: int = 0,
        flags: int = ...,
    ) -> int: ...
    def recv(
        self, local: Local, offset: int = 0, length: int | None = None, *, wr_id: int = 0
    ) -> None: ...
    def write(
        self,
        local: Local | Buffer,
        remote_addr: int,
        rkey: int,
        offset: int = 0,
        length: int | None = None,
        *,
        imm_data: int | None = None,
        wr_id: int = 0,
        flags: int = ...,
        remote_srqn: int = 0,
    ) -> None: ...
    def read(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        offset: int = 0,
        length: int | None = None,
        *,
        wr_id: int = 0,
        flags: int = ...,
        remote_srqn: int = 0,
    ) -> None: ...
    def compare_swap(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        compare: int,
        swap: int,
        offset: int = 0,
        *,
        wr_id: int = 0,
        flags: int = ...,
        remote_srqn: int = 0,
    ) -> None: ...
    def fetch_add(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        add: int,
        offset: int = 0,
        *,
        wr_id: int = 0,
        flags: int = ...,
        remote_srqn: int = 0,
    ) -> None: ...
    def atomic_write(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        offset: int = 0,
        *,
        wr_id: int = 0,
        flags: int = ...,
        remote_srqn: int = 0,
    ) -> None: ...
    def flush(
        self,
        remote_addr: int,
        rkey: int,
        length: int | None = None,
        *,
        placement: int = ...,
        wr_id: int = 0,
        flags: int = ...,
        remote_srqn: int = 0,
    ) -> None: ...
