# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth of a TCP socket in Python over loopback, for comparison with Verbena.

verbena.measure.worker calls `tcp_latency` and `tcp_bandwidth` in both processes; the first one
returns the value.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from contextlib import suppress

from verbena.measure.case import MIB
from verbena.measure.side import Side

CHUNK = 32
WARM_UP = 20  # chunks
RECEIVE_BUFFER = MIB


def tcp_latency(side: Side, seconds: float, polling: bool, average: bool = False) -> float | None:
    """Half a round trip of 8 bytes over loopback TCP in µs; asleep while waiting, or polling."""
    with tcp_pair(side) as link:
        receive = poll_8 if polling else sleep_8
        first = fitting(link, side, receive, 1, seconds)
        wanted = fitting(link, side, receive, min(first, WARM_UP), seconds)
        times = tcp_chunks(link, side, receive, wanted)
        typical = statistics.fmean(times) if average else statistics.median(times)
        return typical / (2 * CHUNK) * 1e6 if side.first else None


def fitting(
    link: socket.socket,
    side: Side,
    receive: Callable[[socket.socket], None],
    chunks: int,
    seconds: float,
) -> int:
    """How many chunks fit into the time, after a trial; 3 at least. Both sides get one answer."""
    chunk = statistics.median(tcp_chunks(link, side, receive, chunks))
    return max(int(seconds / max(chunk, side.exchange(chunk))), 3)


def tcp_pair(side: Side) -> socket.socket:
    """A TCP connection between the two sides."""
    if side.first:
        link = socket.create_connection(("127.0.0.1", side.receive()))
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            side.send(server.getsockname()[1])
            link, _ = server.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def tcp_chunks(
    link: socket.socket, side: Side, receive: Callable[[socket.socket], None], chunks: int
) -> list[float]:
    side.meet()
    times = []
    for _ in range(chunks):
        start = time.perf_counter()
        for _ in range(CHUNK):
            if side.first:
                link.send(b"12345678")
            receive(link)
            if not side.first:
                link.send(b"12345678")
        times.append(time.perf_counter() - start)
    return times


def sleep_8(link: socket.socket) -> None:
    if len(link.recv(8, socket.MSG_WAITALL)) < 8:
        raise ConnectionError("the other process ended")


def poll_8(link: socket.socket) -> None:
    missing = 8
    while missing:
        with suppress(BlockingIOError):
            data = link.recv(missing, socket.MSG_DONTWAIT)
            if not data:
                raise ConnectionError("the other process ended")
            missing -= len(data)


def tcp_bandwidth(side: Side, seconds: float, size: int) -> float | None:
    """MiB/s of loopback TCP, sent in pieces of `size` bytes."""
    with tcp_pair(side) as link:
        if side.first:
            send_for(link, size, seconds)
            return float(side.receive())
        side.send(receive_all(link))
        return None


def send_for(link: socket.socket, size: int, seconds: float) -> None:
    piece = bytes(size)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        link.sendall(piece)
    link.shutdown(socket.SHUT_WR)


def receive_all(link: socket.socket) -> float:
    """MiB/s from the first byte to the last."""
    buffer = bytearray(RECEIVE_BUFFER)
    total = link.recv_into(buffer)
    start = time.perf_counter()
    while got := link.recv_into(buffer):
        total += got
    return total / (time.perf_counter() - start) / MIB
