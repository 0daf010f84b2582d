# SPDX-License-Identifier: Apache-2.0
"""Brings queue pairs to RTS: over a socket between two processes, or within one.

Programs and verbena.aio call this. The exchange over the socket is the same on both sides:

1. each sends one ``QPInfo`` message and reads the peer's; 2. each brings its QP to RTS, then sends
a verdict: READY, or FAILED with a text; 3. each reads the peer's verdict, so that neither returns
before both can receive.

A side that cannot begin (its QP is closed, connected, or a UD QP) sends a refusal with a text in
place of the first message, so that the peer fails at once.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypedDict, Unpack

from ._verbs import QP, Context
from .attributes import AHAttr, GidEntry, PortAttr
from .enums import MTU, AccessFlags, GidType, LinkLayer, QPState, QPType
from .errors import ConnectError, VerbsError, no_option
from .here import place
from .local_carrier import check_local_carriers, sends_local_packets

__all__ = [
    "ConnectOptions",
    "QPInfo",
    "address_of",
    "bring_up",
    "bring_up_ud",
    "connect_pair",
    "connect_rc",
    "local_qp_info",
]

ALL_ACCESS = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)
FLUSH_ACCESS = AccessFlags.FLUSH_GLOBAL | AccessFlags.FLUSH_PERSISTENT
DEFAULT_QKEY = 0x11111111

# In network byte order. A later version may append to the body; readers skip unknown fields.
_MAGIC = b"VRBQ"
_REFUSAL = b"VRBF"  # in place of the magic; the body is the text that says why
_VERSION = 1
_HEAD = struct.Struct("!4sHH")  # magic, version, bytes that follow
# Type, MTU, initiator depth, responder resources, QP number, PSN, LID, GID.
_BODY = struct.Struct("!BBBBIIH16s")
_CARRIER = struct.Struct("!B")  # follows the body: one of _CARRIERS; earlier versions end before it
_CARRIERS: dict[bool | None, int] = {None: 0, False: 1, True: 2}
_VERDICT = struct.Struct("!BH")  # READY or FAILED, bytes of text that follow
_READY, _FAILED = 1, 2
_READS = 16  # outstanding at a time: what adapters usually offer
HEAD_SIZE = _HEAD.size
VERDICT_SIZE = _VERDICT.size


class ConnectOptions(TypedDict, total=False):
    """Keywords of ``connect_rc``, ``connect_pair`` and ``bring_up``.

    ``port`` and ``pkey_index`` are by default those that ``QP.to_init`` has set, else 1 and 0.
    ``access`` are the operations that the peer may do (default: all). ``path_mtu`` is the smaller
    one of both ports' unless both sides name another. The last four are codes of ibv_modify_qp(3):
    ``timeout`` is 4.096 µs times 2**timeout (14), ``retry_cnt`` (7), ``rnr_retry`` (7: for ever),
    ``min_rnr_timer`` (12: 0.64 ms).
    """

    port: int
    path_mtu: MTU | None
    access: int
    pkey_index: int
    sl: int
    traffic_class: int
    timeout: int
    retry_cnt: int
    rnr_retry: int
    min_rnr_timer: int


_DEFAULTS: ConnectOptions = {
    "port": 1,
    "path_mtu": None,
    "access": ALL_ACCESS,
    "pkey_index": 0,
    "sl": 0,
    "traffic_class": 0,
    "timeout": 14,
    "retry_cnt": 7,
    "rnr_retry": 7,
    "min_rnr_timer": 12,
}


@dataclass(frozen=True, slots=True)
class QPInfo:
    """What a peer needs to know to connect to a QP.

    ``dataclasses.replace(info, psn=7)`` makes a copy with other fields.
    ``max_rd_atomic`` is how many READs and atomics the QP has outstanding at most,
    ``max_dest_rd_atomic`` how many of the peer's it accepts. ``local_packets`` is whether its
    device sends packets to peers of its own host (VERBENA_CARRIER=roce), which both ends must do
    alike; None: it does not say.
    """

    qp_type: QPType
    qp_num: int
    psn: int
    lid: int
    gid: bytes
    mtu: MTU
    max_rd_atomic: int = 16
    max_dest_rd_atomic: int = 16
    local_packets: bool | None = None

    def to_bytes(self) -> bytes:
        """Return the message of the exchange."""
        body = _BODY.pack(
            self.qp_type,
            self.mtu,
            self.max_rd_atomic,
            self.max_dest_rd_atomic,
            self.qp_num,
            self.psn,
            self.lid,
            self.gid,
        )
        body += _CARRIER.pack(_CARRIERS[self.local_packets])
        return _HEAD.pack(_MAGIC, _VERSION, len(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> QPInfo:
        """Parse a whole message.

        Raises ConnectError: EPROTO when it is not such a message, ECONNREFUSED when it is a
        refusal.
        """
        length = body_length(data[:HEAD_SIZE])
        body = data[HEAD_SIZE : HEAD_SIZE + length]
        if len(body) < length:
            raise ConnectError(
                errno.EPROTO, f"the message ends after {len(body)} of {length} bytes"
            )
        if data.startswith(_REFUSAL):
            raise _refused(body)
        kind, mtu, depth, resources, qp_num, psn, lid, gid = _BODY.unpack_from(body)
        carrier = _carrier_of(body)
        try:
            return cls(QPType(kind), qp_num, psn, lid, gid, MTU(mtu), depth, resources, carrier)
        except ValueError as error:
            raise ConnectError(errno.EPROTO, f"the peer's message is malformed: {error}") from error


def _carrier_of(body: bytes) -> bool | None:
    if len(body) < _BODY.size + _CARRIER.size:
        return None
    (said,) = _CARRIER.unpack_from(body, _BODY.size)
    return next((each for each, number in _CARRIERS.items() if number == said), None)


def body_length(head: bytes) -> int:
    """Return how many bytes follow a message's head. Raises ConnectError for another head."""
    if len(head) < HEAD_SIZE or not head.startswith((_MAGIC, _REFUSAL)):
        raise ConnectError(
            errno.EPROTO,
            f"the peer speaks something else (it sent {head!r}): both sides must call connect_rc",
        )
    magic, version, length = _HEAD.unpack(head)
    if magic == _REFUSAL:
        return int(length)
    if version < _VERSION or length < _BODY.size:
        raise ConnectError(errno.EPROTO, f"version {version} of the exchange is not supported")
    return int(length)


def local_qp_info(
    qp: QP, *, port: int = 1, gid_index: int | None = None, psn: int | None = None
) -> tuple[QPInfo, int]:
    """Return the QPInfo of ``qp``, and the index of the GID by which it is reached.

    ``gid_index`` defaults to a RoCE v2 GID, IPv4 before IPv6; ``psn`` (24 bits) to a random one.
    """
    context = qp.context
    port_attr = context.query_port(port)
    device = context.query_device()
    if gid_index is None:
        gid_index = best_gid_index(context, port, port_attr)
    info = QPInfo(
        qp_type=qp.qp_type,
        qp_num=qp.qp_num,
        psn=_random_psn() if psn is None else psn,
        lid=port_attr.lid,
        gid=context.query_gid(port, gid_index).raw,
        mtu=port_attr.active_mtu,
        max_rd_atomic=min(device.max_qp_init_rd_atom, _READS),
        max_dest_rd_atomic=min(device.max_qp_rd_atom, _READS),
        local_packets=sends_local_packets(context),
    )
    return info, gid_index


def _random_psn() -> int:
    """Return 24 random bits, so that others cannot guess the PSN and inject packets."""
    here = place.get()
    return int.from_bytes(here.random_bytes(3) if here else os.urandom(3), "big")


def best_gid_index(context: Context, port: int, port_attr: PortAttr) -> int:
    """Return on Ethernet the RoCE v2 GID with the widest scope; on InfiniBand the first GID."""
    if port_attr.link_layer != LinkLayer.ETHERNET:
        return 0
    try:
        entries = [entry for entry in context.query_gid_table() if entry.port_num == port]
    except VerbsError:
        return 0
    return max(entries, key=_reach).gid_index if entries else 0


def _reach(entry: GidEntry) -> tuple[bool, int, int]:
    link_local = entry.gid.raw[:2] == b"\xfe\x80"
    scope = 2 if entry.gid.is_ipv4_mapped else 0 if link_local else 1
    return entry.gid_type == GidType.ROCE_V2, scope, -entry.gid_index


_CONNECTED = (QPType.RC, QPType.UC, QPType.XRC_SEND, QPType.XRC_RECV)
_PEER_TYPES = {QPType.XRC_SEND: QPType.XRC_RECV, QPType.XRC_RECV: QPType.XRC_SEND}


def bring_up(
    qp: QP, local: QPInfo, remote: QPInfo, gid_index: int, **options: Unpack[ConnectOptions]
) -> None:
    """Bring an RC, UC or XRC QP from RESET to RTS towards ``remote``.

    Raises ConnectError(EPROTOTYPE) when the types do not match (XRC_SEND with XRC_RECV, others with
    the same type), EPROTONOSUPPORT (both are on this host, and only one sends packets within it:
    VERBENA_CARRIER), EISCONN (``qp`` is connected already), VerbsError when a transition fails, and
    TypeError for an unknown option.
    """
    check_options(options)
    _check_qp(qp)
    check_local_carriers(qp.context, remote.gid, remote.local_packets)
    if remote.qp_type != _PEER_TYPES.get(local.qp_type, local.qp_type):
        raise ConnectError(
            errno.EPROTOTYPE,
            f"this QP is {local.qp_type.name}, the peer's {remote.qp_type.name}: make them alike",
        )
    chosen: ConnectOptions = {**_DEFAULTS, **_with_those_of_init(qp, options)}
    if "access" not in options and qp.context.device.library.is_verbena:
        chosen["access"] |= FLUSH_ACCESS  # another device may refuse the flags
    qp.to_init(chosen["port"], chosen["access"], chosen["pkey_index"])
    qp.to_rtr(
        dest_qp_num=remote.qp_num,
        rq_psn=remote.psn,
        ah_attr=_address_of(remote, gid_index, chosen),
        path_mtu=chosen["path_mtu"] or min(local.mtu, remote.mtu),
        max_dest_rd_atomic=min(local.max_dest_rd_atomic, remote.max_rd_atomic),
        min_rnr_timer=chosen["min_rnr_timer"],
    )
    qp.to_rts(
        sq_psn=local.psn,
        timeout=chosen["timeout"],
        retry_cnt=chosen["retry_cnt"],
        rnr_retry=chosen["rnr_retry"],
        max_rd_atomic=min(local.max_rd_atomic, remote.max_dest_rd_atomic),
    )


def _with_those_of_init(qp: QP, options: ConnectOptions) -> ConnectOptions:
    """Return the options, with the port and P_Key that ``to_init`` has set where they have none."""
    if qp.state != QPState.INIT:
        return options
    attr = qp.query()
    return {"port": attr.port_num, "pkey_index": attr.pkey_index, **options}


def check_options(options: Iterable[str]) -> None:
    """Raise TypeError, with the most similar name, for a keyword that ConnectOptions lacks."""
    for name in options:
        if name not in _DEFAULTS:
            raise no_option("connecting a QP", name, _DEFAULTS)


def _check_qp(qp: QP) -> None:
    """Raise TypeError, VerbsError or ConnectError for a QP that cannot be connected now."""
    if not isinstance(qp, QP):
        raise TypeError(f"connecting takes a verbs.QP, and not {type(qp).__name__}")
    if qp.qp_type not in _CONNECTED:
        raise ConnectError(
            errno.EPROTOTYPE,
            f"this QP is {qp.qp_type.name}, which has no peer of its own: connect RC and UC QPs,"
            " and bring a UD QP up by verbs.bring_up_ud, with an address for each message",
        )
    _check_state(qp)


def _check_state(qp: QP) -> None:
    state = qp.state
    if state in (QPState.RTR, QPState.RTS, QPState.SQD):
        raise ConnectError(
            errno.EISCONN,
            f"QP {qp.qp_num:#x} is already connected (it is in {state.name}): make another QP, or"
            " qp.modify(qp_state=QPState.RESET) first",
        )


def _address_of(remote: QPInfo, gid_index: int, options: ConnectOptions) -> AHAttr:
    """Return the peer's address: by GID if it has no LID (RoCE), by LID in an InfiniBand subnet."""
    return AHAttr(
        dgid=remote.gid,
        sgid_index=gid_index,
        dlid=remote.lid,
        is_global=remote.lid == 0,
        port_num=options["port"],
        sl=options["sl"],
        traffic_class=options["traffic_class"],
    )


def connect_rc(
    qp: QP,
    socket: sockets.socket,
    *,
    gid_index: int | None = None,
    psn: int | None = None,
    deadline: float = 30.0,
    **options: Unpack[ConnectOptions],
) -> QPInfo:
    """Connect an RC or UC QP in RESET or INIT to the peer at a connected stream socket's other end.

    Both sides call it; on return both QPs are in RTS and can receive. The peer's first SEND can
    come before this side's call returns, so post the receive for it before the call, after
    ``qp.to_init()``. Without a receive a SEND waits over RC (``rnr_retry`` 7) and is lost over UC.
    The socket stays open, at the byte after the exchange. ``gid_index`` and ``psn`` are those of
    ``local_qp_info``. ``deadline`` is how many seconds each message may take, independently of the
    socket's own timeout (``settimeout``), which is restored on return. The other keywords are
    ConnectOptions.

    Returns the peer's QPInfo. Raises ConnectError: EPROTO (the peer sent something else),
    ECONNRESET (the peer closed the socket), ENOTCONN or EBADF (the socket is not connected),
    EPROTOTYPE (the socket is not a stream, or the QPs' types do not match), EPROTONOSUPPORT (the
    peer is on this host and has another VERBENA_CARRIER), ETIMEDOUT, ECONNREFUSED (the peer's side
    failed; the text says why), EISCONN (this side's QP is connected already).
    Raises VerbsError when this side's QP cannot be brought up; the peer is notified then, and fails
    too. Raises TypeError for another object than a QP or a socket, and for an unknown option.
    """
    check_options(options)
    _check_socket(socket)
    before = socket.gettimeout()
    socket.settimeout(deadline)
    try:
        with telling(socket.sendall):
            local, gid_index = prepare(qp, options, gid_index, psn)
        return _exchange(qp, socket, local, gid_index, options)
    except TimeoutError as error:
        raise peer_is_silent(deadline) from error
    except ConnectionError as error:
        raise peer_closed() from error
    finally:
        socket.settimeout(before)


def prepare(
    qp: QP, options: ConnectOptions, gid_index: int | None, psn: int | None
) -> tuple[QPInfo, int]:
    """Check a QP, and return its ``local_qp_info``, whose message can be sent."""
    _check_qp(qp)
    port = _with_those_of_init(qp, options).get("port", 1)
    local, gid_index = local_qp_info(qp, port=port, gid_index=gid_index, psn=psn)
    local.to_bytes()
    return local, gid_index


@contextmanager
def telling(send: Callable[[bytes], object]) -> Iterator[None]:
    """Send a refusal if the block raises, since the peer waits for this side's message."""
    try:
        yield
    except Exception as error:
        with suppress(OSError):  # a peer that is gone must not hide why this side failed
            send(refusal(error))
        raise


def _check_socket(socket: sockets.socket) -> None:
    """Raise TypeError or ConnectError unless this is a connected stream socket."""
    if not hasattr(socket, "getpeername"):
        raise TypeError(
            "connect_rc takes a connected socket.socket (over asyncio's streams:"
            f" verbena.aio.connect_rc), and not {type(socket).__name__}"
        )
    if socket.type != sockets.SOCK_STREAM:
        kind = getattr(socket.type, "name", socket.type)
        raise ConnectError(
            errno.EPROTOTYPE, f"the socket is {kind}: the exchange needs a stream, SOCK_STREAM"
        )
    try:
        socket.getpeername()
    except OSError as error:
        state = "closed" if error.errno == errno.EBADF else "not connected, or not any more"
        raise ConnectError(
            error.errno,
            f"the socket is {state}: give the one that connect() connected, or that accept()"
            " returned",
        ) from error


def _exchange(
    qp: QP, socket: sockets.socket, local: QPInfo, gid_index: int, options: ConnectOptions
) -> QPInfo:
    socket.sendall(local.to_bytes())
    head = _receive(socket, HEAD_SIZE)
    remote = QPInfo.from_bytes(head + _receive(socket, body_length(head)))
    try:
        bring_up(qp, local, remote, gid_index, **options)
    except Exception as error:
        with suppress(OSError):  # a peer that is gone must not hide why this side failed
            socket.sendall(verdict(error))
        raise
    socket.sendall(verdict(None))
    check_verdict(*_receive_verdict(socket))
    return remote


def _receive(socket: sockets.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = socket.recv(size - len(data))
        if not piece:
            raise peer_closed()
        data += piece
    return bytes(data)


def _receive_verdict(socket: sockets.socket) -> tuple[int, bytes]:
    code, length = parse_verdict(_receive(socket, VERDICT_SIZE))
    return code, _receive(socket, length)


def verdict(error: Exception | None) -> bytes:
    """Return the message that says whether this side's QP is in RTS."""
    text = str(error).encode()[:0xFFFF] if error else b""
    return _VERDICT.pack(_FAILED if error else _READY, len(text)) + text


def refusal(error: Exception) -> bytes:
    """Return the message of a side that cannot begin."""
    text = str(error).encode()[:0xFFFF]
    return _HEAD.pack(_REFUSAL, _VERSION, len(text)) + text


def _refused(text: bytes) -> ConnectError:
    why = text.decode("utf-8", "replace")
    return ConnectError(errno.ECONNREFUSED, f"the peer could not bring its QP up: {why}")


def parse_verdict(data: bytes) -> tuple[int, int]:
    """Return the verdict's code, and how many bytes of text follow."""
    code, length = _VERDICT.unpack(data)
    return code, length


def check_verdict(code: int, text: bytes) -> None:
    """Raise ConnectError unless the peer's QP is in RTS."""
    if code == _FAILED:
        raise _refused(text)
    if code != _READY:
        raise ConnectError(errno.EPROTO, f"the peer sent {code} where READY or FAILED belongs")


def peer_closed() -> ConnectError:
    return ConnectError(
        errno.ECONNRESET, "the peer closed the socket before the QPs were connected: see its error"
    )


def peer_is_silent(deadline: float) -> ConnectError:
    return ConnectError(
        errno.ETIMEDOUT, f"the peer sent nothing for {deadline} s: does it call connect_rc too?"
    )


def connect_pair(
    a: QP, b: QP, *, gid_index: int | None = None, **options: Unpack[ConnectOptions]
) -> None:
    """Bring two QPs of this process to RTS: UD by ``bring_up_ud``, the others to each other.

    Raises VerbsError, and changes nothing then: EINVAL when both are the same QP, EISCONN when one
    is connected already. Raises TypeError for an unknown option.
    """
    check_options(options)
    _check_two(a, b)
    if a.qp_type == QPType.UD:
        for qp in (a, b):
            bring_up_ud(qp, port=options.get("port"), pkey_index=options.get("pkey_index"))
        return
    port_a, port_b = (_with_those_of_init(qp, options).get("port", 1) for qp in (a, b))
    info_a, index_a = local_qp_info(a, port=port_a, gid_index=gid_index)
    info_b, index_b = local_qp_info(b, port=port_b, gid_index=gid_index)
    bring_up(a, info_a, info_b, index_a, **options)
    bring_up(b, info_b, info_a, index_b, **options)


def _check_two(a: QP, b: QP) -> None:
    """Raise TypeError or ConnectError if the two cannot be connected, before anything changes."""
    if not isinstance(a, QP) or not isinstance(b, QP):
        raise TypeError(
            f"connect_pair takes two QPs, and not {type(a).__name__} and {type(b).__name__}"
        )
    if a is b:
        raise ConnectError(
            errno.EINVAL,
            f"both ends are the same QP, {a.qp_num:#x}: make a second one by pd.create_qp",
        )
    for qp in (a, b):
        if qp.qp_type != QPType.UD:
            _check_state(qp)


def bring_up_ud(
    qp: QP,
    *,
    port: int | None = None,
    qkey: int | None = None,
    psn: int | None = None,
    pkey_index: int | None = None,
) -> None:
    """Bring a UD QP from RESET or INIT to RTS; ``psn`` defaults to a random one.

    ``port``, ``qkey`` and ``pkey_index`` (an entry of the port's P_Key table) are by default those
    that ``QP.to_init`` has set, else 1, 0x11111111 and 0. Raises VerbsError.
    """
    if qp.state == QPState.INIT:
        attr = qp.query()
        before = attr.port_num, attr.pkey_index, attr.qkey
    else:
        before = 1, 0, DEFAULT_QKEY
    chosen = (port, pkey_index, qkey)
    port, pkey_index, qkey = (
        old if new is None else new for old, new in zip(before, chosen, strict=True)
    )
    qp.to_init(port, pkey_index=pkey_index, qkey=qkey)
    qp.to_rtr()
    qp.to_rts(sq_psn=_random_psn() if psn is None else psn)


def address_of(info: QPInfo, gid_index: int, **options: Unpack[ConnectOptions]) -> AHAttr:
    """Return the address of a UD peer, for ``PD.create_ah``."""
    return _address_of(info, gid_index, {**_DEFAULTS, **options})
