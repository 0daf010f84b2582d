# SPDX-License-Identifier: Apache-2.0
"""/dev/infiniband/umadN and issmN, as Linux' user_mad.c has them, for programs at hosts.

A descriptor of umadN is a connection of role UMAD. The program's side passes each ioctl(2) as a
connection of role CALL, and each write(2) as a message, or as a CALL if its errno is not known
beforehand; a message that comes is what read(2) returns. MADs longer than one packet are in a memfd
that goes with the CALL or the message.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING

from verbena.manage.agents import MadPacket
from verbena.manage.errors import MadError
from verbena.manage.mad import MAD_BYTES, PERMISSIVE_LID

from ._directed_smps import DirectedSmps
from .live_subnet import with_rmpp
from .mad_port import DIRECTED, MadAgent, MadPort, Pending, RegistrationRefused, check_registration
from .messages import Welcome

if TYPE_CHECKING:
    from .live_subnet import LiveSubnet
    from .server import FabricConnection

__all__ = ["IssmDevices", "Refused", "UmadDevice", "UmadDevices"]

REGISTER_AGENT, UNREGISTER_AGENT = 0xC01C1B01, 0x40041B02
ENABLE_PKEY, REGISTER_AGENT2 = 0x1B03, 0xC0281B04
WRITE = 0  # in place of an ioctl's number
_REGISTER = struct.Struct("=I16sBBB3sBx")
_REGISTER2 = struct.Struct("=IIBB2xI16sIB3x")
_NUMBER = struct.Struct("=I")
# id, status, timeout, retries, length, QPN, Q_Key, LID, SL, path bits, GRH: present, GID index, hop
# limit, traffic class, GID, flow label; P_Key index
_HEADER = struct.Struct("=5I4s4s2s6B16s4sH6x")
# The beginning of it, as far as it matters when it is written.
_WRITTEN = struct.Struct("=I4xII4x4s4s2sBB")
SHORT_HEADER, LONG_HEADER = 56, 64
MAD_HEADER, RMPP_HEADER, RMPP_FLAGS = 24, 36, 26
AGENTS, USER_RMPP = 32, 1
LONGEST_WRITTEN = 64 << 20
LONGEST_INLINE = LONG_HEADER + MAD_BYTES
LONG_FOLLOWS = b"\0"  # before a message with a memfd: the program looks at its length first
MOST_QUEUED = 200_000
MOST_AT_ONCE = 32  # messages of one program, before others have their turn
NO_BYTES = bytes(16)
PERMISSIVE = b"\xff\xff"


class Refused(Exception):
    """A call fails with ``errno``; ``data`` are for the program all the same."""

    def __init__(self, error: int, data: bytes = b"") -> None:
        super().__init__(error)
        self.errno, self.data = error, data


class UmadDevice:
    """An open descriptor of umadN.

    ``smps`` reads what the program has written and answers the usual SMPs; without it, and where it
    gives a message back, ``write`` sends a packet.
    """

    def __init__(
        self, connection: FabricConnection, port: MadPort, smps: DirectedSmps | None = None
    ) -> None:
        self.port = port
        self._smps = smps
        self._live = port.live
        self.pid = connection.pid
        self._connection, self._sock = connection, connection.sock
        self._agents: dict[int, MadAgent] = {}
        self._queue: deque[bytes] = deque()
        self._header_bytes = SHORT_HEADER
        self._is_used = False
        self._directed: dict[int, bytes] = {}
        """The headers of directed-route SMPs, which differ by agent alone."""

    def close(self) -> None:
        """The last descriptor was closed."""
        for agent in self._agents.values():
            agent.close()
        self._agents.clear()

    # ---- ioctl ---------------------------------------------------------------------------------

    def call(self, data: bytes, fds: list[int]) -> Welcome:
        """Carry out an ioctl, or a write whose errno matters; return the bytes for the program."""
        if len(data) < _NUMBER.size:
            return Welcome(errno.EPROTO)
        (request,) = _NUMBER.unpack_from(data)
        argument = data[_NUMBER.size :]
        try:
            if request == WRITE:
                self.write(_whole(argument, fds))
                return Welcome()
            return Welcome(0, self._ioctl(request, argument))
        except Refused as refused:
            return Welcome(refused.errno, refused.data)
        except RegistrationRefused as refused:
            return Welcome(refused.errno)

    def _ioctl(self, request: int, argument: bytes) -> bytes:
        if request == REGISTER_AGENT and len(argument) == _REGISTER.size:
            return self._register(argument)
        if request == REGISTER_AGENT2 and len(argument) == _REGISTER2.size:
            return self._register2(argument)
        if request == UNREGISTER_AGENT and len(argument) == _NUMBER.size:
            agent = self._agents.pop(_NUMBER.unpack(argument)[0], None)
            if agent is None:
                raise Refused(errno.EINVAL)
            agent.close()
            return b""
        if request == ENABLE_PKEY:
            if self._is_used:
                raise Refused(errno.EINVAL)
            self._header_bytes = LONG_HEADER
            return b""
        raise Refused(errno.ENOTTY)

    def _register(self, argument: bytes) -> bytes:
        _, mask, qp, mgmt_class, version, oui, rmpp = _REGISTER.unpack(argument)
        # Four words of 32 bits, and not a number of 128: the same in this byte order.
        methods = sum(word << 32 * n for n, word in enumerate(struct.unpack("=4I", mask)))
        number = self._add(qp, mgmt_class, version, methods, oui, rmpp, user_rmpp=False)
        return _NUMBER.pack(number) + argument[_NUMBER.size :]

    def _register2(self, argument: bytes) -> bytes:
        _, qp, mgmt_class, version, flags, mask, oui, rmpp = _REGISTER2.unpack(argument)
        if flags & ~USER_RMPP:
            told = argument[:12] + _NUMBER.pack(USER_RMPP) + argument[16:]
            raise Refused(errno.EINVAL, told)
        if oui >> 24:
            raise Refused(errno.EINVAL)
        low, high = struct.unpack("=2Q", mask)
        if not self._is_used:
            self._header_bytes = LONG_HEADER
        number = self._add(
            qp,
            mgmt_class,
            version,
            high << 64 | low,
            oui.to_bytes(3, "big"),
            rmpp,
            user_rmpp=bool(flags & USER_RMPP),
        )
        return _NUMBER.pack(number) + argument[_NUMBER.size :]

    def _add(
        self,
        qp: int,
        mgmt_class: int,
        version: int,
        methods: int,
        oui: bytes,
        rmpp: int,
        *,
        user_rmpp: bool,
    ) -> int:
        if qp not in (0, 1):
            raise Refused(errno.EINVAL)
        number = next((n for n in range(AGENTS) if n not in self._agents), None)
        if number is None:
            raise Refused(errno.ENOMEM)
        check_registration(qp, mgmt_class, version, oui, rmpp)

        def deliver(message: bytes, packet: MadPacket) -> None:
            self._deliver(number, message, packet)

        agent = MadAgent(
            self.port,
            qp,
            deliver,
            mgmt_class=mgmt_class,
            version=version,
            methods=methods if mgmt_class else 0,
            oui=oui,
            whole=rmpp == 1 and not user_rmpp,
        )
        self.port.register(agent)
        self._agents[number] = agent
        self._is_used = True
        return number

    # ---- write ---------------------------------------------------------------------------------

    def readable(self) -> None:
        """Take the messages that the program has written."""
        self._live.catch_up()
        self.take()

    def take(self) -> bool:
        """Take some of the messages. False: there are no more."""
        for _ in range(MOST_AT_ONCE):
            raw = self._next()
            if isinstance(raw, bool):
                return raw
            if not raw:
                self._connection.close()
                return False
            try:
                self.write(raw)
            except Refused:
                continue  # the agent was registered a moment ago: the program has raced itself
        return True

    def _next(self) -> bytes | bool:
        """Return the next message that is no usual SMP, or whether there may be more later.

        The message is empty if the program has closed the socket.
        """
        if self._smps is not None and not self._queue:
            return self._smps.serve(
                self._sock.fileno(), self._agents, self._directed, self._put, MOST_AT_ONCE
            )
        try:
            return self._sock.recv(LONGEST_INLINE)
        except BlockingIOError:
            return False
        except OSError:
            return b""

    def write(self, raw: bytes) -> None:
        """Send the MAD of a write(2). Raises Refused with its errno."""
        at = self._header_bytes
        if len(raw) < at + RMPP_HEADER:
            raise Refused(errno.EINVAL)
        number, timeout, retries, qpn, q_key, lid, sl, path_bits = _WRITTEN.unpack_from(raw)
        agent = self._agents.get(number)
        if agent is None:
            raise Refused(errno.EIO if number < AGENTS else errno.EINVAL)
        mad = raw[at:]
        port = self.port.port
        message = None
        if agent.whole and mad[RMPP_FLAGS] & 1:
            message = with_rmpp(agent.transaction(mad))
            mad = message[:MAD_BYTES]
        elif len(mad) > MAD_BYTES:
            raise Refused(errno.EINVAL)
        else:
            mad = agent.transaction(mad)
        if len(mad) < MAD_BYTES:
            mad = mad.ljust(MAD_BYTES, b"\0")
        if mad[1] == DIRECTED and lid == PERMISSIVE:
            packet = MadPacket(mad, port.number)
        else:
            packet = MadPacket(
                mad,
                port.number,
                int.from_bytes(lid, "big"),
                port.lid | path_bits,
                int.from_bytes(qpn, "big"),
                agent.qp,
                sl,
                self._p_key(raw),
                int.from_bytes(q_key, "big"),
            )
        if mad[3] & 0x80:
            self._live.send(self.port, packet, message)
            return
        key = mad[1], mad[8:16]
        if key in agent.pending:
            raise Refused(errno.EINVAL)
        if not timeout:
            self._live.send(self.port, packet, message)
            return
        agent.pending[key] = None
        self._live.send(self.port, packet, message)
        if key in agent.pending:  # most requests have been answered by now
            self._await(raw[:at], agent, packet, timeout, retries, message)

    def _await(
        self,
        header: bytes,
        agent: MadAgent,
        packet: MadPacket,
        timeout: int,
        retries: int,
        message: bytes | None = None,
    ) -> None:
        """A request has no response yet."""

        def give_back() -> None:
            self._give_back(header, packet.mad)

        self._live.await_response(
            Pending(agent, packet, message, timeout / 1000, retries, give_back)
        )

    def _p_key(self, raw: bytes) -> int:
        index = 0
        if self._header_bytes == LONG_HEADER:
            index = int.from_bytes(raw[SHORT_HEADER : SHORT_HEADER + 2], sys.byteorder)
        keys = self.port.port.p_keys
        if 2 * index >= len(keys):
            return 0
        return keys[2 * index] << 8 | keys[2 * index + 1]

    # ---- read ----------------------------------------------------------------------------------

    def _give_back(self, header: bytes, mad: bytes) -> None:
        """A request has had no response: its headers come back."""
        status = _NUMBER.pack(errno.ETIMEDOUT)
        length = _NUMBER.pack(MAD_HEADER)
        told = header[:4] + status + header[8:16] + length + header[20:]
        self._put(told + mad[:MAD_HEADER])

    def _deliver(self, number: int, message: bytes, packet: MadPacket) -> None:
        if packet.qp or packet.dlid != PERMISSIVE_LID:
            header = self._header(number, len(message), packet)
        else:
            header = self._directed_header(number)
        self._put(header + message)

    def _directed_header(self, number: int) -> bytes:
        made = self._directed.get(number)
        if made is None:
            made = self._directed[number] = self._header(number, MAD_BYTES, MadPacket(b""))
        return made

    def _header(self, number: int, length: int, packet: MadPacket) -> bytes:
        port = self.port.port
        header = _HEADER.pack(
            number,
            0,
            0,
            0,
            self._header_bytes + length,
            packet.source_qp.to_bytes(4, "big"),
            b"\0\0\0\0",
            packet.slid.to_bytes(2, "big"),
            packet.sl,
            packet.dlid - port.lid & 0x7F if packet.dlid in port.lids else 0,
            0,
            0,
            0,
            0,
            NO_BYTES,
            b"\0\0\0\0",
            (port.find_p_key(packet.p_key) or 0) if packet.qp else 0,
        )
        return header[: self._header_bytes]

    def _put(self, message: bytes) -> None:
        """Send a message for read(2) at once, or queue it while the socket is full.

        A program that waits for one answer before it asks again loses more by a delay than it gains
        if two of them wake it once.
        """
        queue = self._queue
        if len(queue) >= MOST_QUEUED:
            return
        parts = (message,) if len(message) <= LONGEST_INLINE else (LONG_FOLLOWS, message)
        for part in parts:
            if queue or not self._send(part):
                queue.append(part)
                if len(queue) == 1:
                    self._connection.server.watch(self._sock, self._ready, writes=True)

    def _flush(self) -> None:
        queue = self._queue
        while queue and self._send(queue[0]):
            queue.popleft()
        if not queue:
            self._connection.server.watch(self._sock, self.readable)

    def _send(self, message: bytes) -> bool:
        """False: the socket is full."""
        try:
            if len(message) <= LONGEST_INLINE:
                self._sock.send(message, socket.MSG_NOSIGNAL)
            else:
                _send_long(self._sock, message, self._header_bytes)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the program has closed it, and the loop will hear so
        return True

    def _ready(self) -> None:
        """The socket takes messages again, or there is something to read."""
        self._flush()
        self.readable()


def _send_long(sock: socket.socket, message: bytes, header: int) -> None:
    """Send a message beyond one MAD: its beginning, and a memfd with all of it."""
    fd = os.memfd_create("verbena-mad", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(message)
        beginning = message[: header + MAD_BYTES]
        socket.send_fds(sock, [beginning], [fd], socket.MSG_NOSIGNAL)
    finally:
        os.close(fd)


def _whole(raw: bytes, fds: list[int]) -> bytes:
    """Return what was written: the message itself, or all of the memfd that came with it."""
    if not fds:
        return raw
    try:
        size = os.fstat(fds[0]).st_size
        if size > LONGEST_WRITTEN:
            raise Refused(errno.ENOMEM)
        return os.pread(fds[0], size, 0)
    except OSError:  # it is no memfd
        raise Refused(errno.EINVAL) from None


class UmadDevices:
    """All open descriptors of umadN, by the inodes of the programs' sockets."""

    def __init__(self, live: LiveSubnet) -> None:
        self.live = live
        self.by_inode: dict[int, UmadDevice] = {}

    def open(self, connection: FabricConnection) -> Welcome:
        """Serve role UMAD."""
        hello = connection.hello
        try:
            port = self.live.mad_port(self.live.host(hello.host), hello.number)
        except MadError as error:
            return Welcome.refused(errno.ENODEV, str(error))
        smps = None
        if self.live.is_instant:
            smps = DirectedSmps(self.live.subnet, port.node, port.port.number)
        return self.serve(connection, UmadDevice(connection, port, smps))

    def serve(self, connection: FabricConnection, device: UmadDevice) -> Welcome:
        """Let a connection be a descriptor."""
        hello = connection.hello
        if hello.inode in self.by_inode:
            return Welcome(errno.EEXIST)  # calls of another device would come to this one
        self.by_inode[hello.inode] = device

        def closed() -> None:
            del self.by_inode[hello.inode]
            device.close()

        connection.on_readable = device.readable
        connection.on_close = closed
        return Welcome()

    def programs(self) -> dict[str, list[int]]:
        """Return the processes that have a descriptor open, by host."""
        found: dict[str, set[int]] = {}
        for device in self.by_inode.values():
            found.setdefault(device.port.node.name, set()).add(device.pid)
        return {host: sorted(pids) for host, pids in found.items()}

    def call(self, connection: FabricConnection) -> Welcome:
        """Serve role CALL."""
        device = self.by_inode.get(connection.hello.inode)
        if device is None:
            return Welcome(errno.EIO)
        self.live.catch_up()
        while device.take():
            pass  # what was written before
        return device.call(connection.hello.data, connection.fds)


class IssmDevices:
    """The descriptors of issmN: IsSM is set while one is open, and others wait for it."""

    NONBLOCK = b"n"

    def __init__(self, live: LiveSubnet) -> None:
        self.live = live
        self._open: dict[MadPort, FabricConnection] = {}
        self._waiting: dict[MadPort, deque[FabricConnection]] = {}

    def open(self, connection: FabricConnection) -> Welcome | None:
        """Serve role ISSM. The data of the hello are ``NONBLOCK`` for open(2) with O_NONBLOCK."""
        hello = connection.hello
        try:
            port = self.live.mad_port(self.live.host(hello.host), hello.number)
        except MadError as error:
            return Welcome.refused(errno.ENODEV, str(error))
        connection.on_close = lambda: self._closed(port, connection)
        if port not in self._open:
            self._take(port, connection)
            return None
        if hello.data == self.NONBLOCK:
            connection.on_close = None
            return Welcome(errno.EAGAIN)
        self._waiting.setdefault(port, deque()).append(connection)
        return None

    def _take(self, port: MadPort, connection: FabricConnection) -> None:
        self._open[port] = connection
        self.live.catch_up()
        port.node.set_is_sm(port.port.number, None, is_sm=True)
        connection.welcome(Welcome())

    def _closed(self, port: MadPort, connection: FabricConnection) -> None:
        waiting = self._waiting.get(port, deque())
        if connection in waiting:
            waiting.remove(connection)
        if self._open.get(port) is not connection:
            return
        del self._open[port]
        self.live.catch_up()
        if waiting:
            self._take(port, waiting.popleft())
        else:
            port.node.set_is_sm(port.port.number, None)
