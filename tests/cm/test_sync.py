# SPDX-License-Identifier: Apache-2.0
"""verbena.cm.sync: the same connections with calls that block, each end in a thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cm.conftest import HOST, identifiers, messages
from verbena import cm, verbs
from verbena.cm import sync

pytestmark = pytest.mark.over_roce


class Server(threading.Thread):
    """A thread that serves each request in a thread of its own."""

    def __init__(self, serve: Callable[[sync.SyncRequest], None]) -> None:
        super().__init__()
        self.listener = sync.listen(0)
        self.failures: list[BaseException] = []
        self._serve = serve
        self._workers: list[threading.Thread] = []
        self._ends = False
        self.start()

    def run(self) -> None:
        while not self._ends:
            try:
                request = self.listener.get_request(0.1)
            except cm.ConnectTimeout:
                continue
            worker = threading.Thread(target=self._work, args=(request,))
            worker.start()
            self._workers.append(worker)

    def _work(self, request: sync.SyncRequest) -> None:
        try:
            self._serve(request)
        except BaseException as error:
            self.failures.append(error)

    def stop(self) -> None:
        self._ends = True
        self.join()
        self.listener.close()
        for each in self._workers:
            each.join()
        assert not self.failures


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[sync.SyncRequest], None]], int]]:
    """serve(function) is the port of a server that calls it for each request."""
    servers: list[Server] = []

    def begin(function: Callable[[sync.SyncRequest], None]) -> int:
        servers.append(Server(function))
        return servers[-1].listener.port

    yield begin
    for each in servers:
        each.stop()


def test_both_ends(alone: None, serve: Any) -> None:
    def echo(request: sync.SyncRequest) -> None:
        buffers: list[verbs.MR] = []

        def receive(qp: verbs.QP) -> None:
            buffers.append(qp.pd.alloc(64))
            qp.recv(buffers[0])

        with request.accept(private_data=request.private_data[:5], prepare=receive) as conn:
            received = conn.cq.wait_one(10)
            conn.qp.send(buffers[0], length=received.byte_len)
            assert conn.cq.wait_one(10).is_success
            assert conn.wait_closed(10) is cm.Closed.PEER

    port = serve(echo)
    for _ in range(3):
        with sync.connect(HOST, port, private_data=b"hello", timeout=10) as conn:
            assert conn.private_data.rstrip(b"\0") == b"hello"
            mr = conn.pd.alloc(64)
            mr.array()[:4] = 9
            conn.qp.recv(mr, offset=32)
            conn.qp.send(mr, length=4)
            assert len(conn.cq.wait(2, timeout=10)) == 2
            assert mr.array()[32:36].tolist() == [9] * 4
            assert conn.closed is None
            assert conn.disconnect(10) is cm.Closed.HERE
    deadline = time.monotonic() + 10
    while identifiers() > 1:  # the listener
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_refusals(serve: Any) -> None:
    port = serve(lambda request: request.reject(b"why"))
    with pytest.raises(cm.Rejected) as caught:
        sync.connect(HOST, port)
    assert caught.value.private_data.rstrip(b"\0") == b"why"
    with pytest.raises(cm.NoListener, match="Nothing listens"):
        sync.connect(HOST, 1)


def test_time(alone: None) -> None:
    with sync.listen(0) as listener:
        refusals = messages("cm_tx_msgs/rej")
        with pytest.raises(cm.ConnectTimeout):
            listener.get_request(0.05)
        begun = time.monotonic()
        with pytest.raises(cm.ConnectTimeout):
            sync.connect(HOST, listener.port, timeout=0.2)
        assert 0.2 <= time.monotonic() - begun < 5
        assert messages("cm_tx_msgs/rej") == refusals + 1
    assert identifiers() == 0


def test_the_closed_peer_is_seen_without_waiting(serve: Any) -> None:
    def hang_up(request: sync.SyncRequest) -> None:
        request.accept().close()

    with sync.connect(HOST, serve(hang_up)) as conn:
        deadline = time.monotonic() + 10
        while conn.closed is None:
            assert time.monotonic() < deadline
        assert conn.closed is cm.Closed.PEER
        assert conn.qp.state == verbs.QPState.ERR


def test_datagrams() -> None:
    with sync.listen(0, datagram=True) as listener:
        results: list[Any] = []

        def serve() -> None:
            request = listener.get_request(10)
            buffers: list[verbs.MR] = []

            def receive(qp: verbs.QP) -> None:
                buffers.append(qp.pd.alloc(128))
                qp.recv(buffers[0])

            with request.accept_datagrams(private_data=b"here", prepare=receive) as peer:
                received = peer.cq.wait_one(10)
                results.append((peer.qp.qp_num, bytes(memoryview(buffers[0])[40:45])))
                results.append(received.src_qp)

        thread = threading.Thread(target=serve)
        thread.start()
        with sync.resolve_datagram(HOST, listener.port, private_data=b"you") as peer:
            assert peer.private_data.rstrip(b"\0") == b"here"
            mr = peer.pd.alloc(8)
            mr.array()[:5] = list(b"hello")
            peer.qp.send(mr, length=5, **peer.to)
            assert peer.cq.wait_one(10).is_success
            thread.join()
            assert results == [(peer.qpn, b"hello"), peer.qp.qp_num]
            assert peer.qkey == 0x01234567


def test_a_group() -> None:
    with (
        sync.join("239.88.1.2", source=HOST) as member,
        sync.join("239.88.1.2", source=HOST, send_only=True) as sender,
    ):
        buffer, mr = member.pd.alloc(128), sender.pd.alloc(8)
        member.qp.recv(buffer)
        sender.qp.send(mr, length=6, **sender.to)
        assert sender.cq.wait_one(10).is_success
        assert member.cq.wait_one(10).byte_len == 46
        assert member.qpn == verbs.MULTICAST_QPN
        assert not sender.cq.poll()


def test_a_listener_that_another_thread_closes() -> None:
    """Whatever a thread is about, and however many wait: each of them ends."""
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        listener = sync.listen(0, host=HOST)
        with ThreadPoolExecutor(3) as threads:
            serving = [threads.submit(list, listener) for _ in range(1 + number % 3)]
            time.sleep(number % 8 * 0.0005)
            listener.close()
            assert [each.result(timeout=10) for each in serving] == [[]] * len(serving)
    assert len(os.listdir("/proc/self/fd")) <= before + 4  # devices that stay open


def test_a_connection_that_another_thread_closes(serve: Any) -> None:
    def attend(request: sync.SyncRequest) -> None:
        with request.accept() as conn:
            assert conn.wait_closed(timeout=10) is cm.Closed.PEER

    port = serve(attend)
    with ThreadPoolExecutor(1) as threads:
        for number in range(10):
            conn = sync.connect(HOST, port)
            waiting = threads.submit(conn.wait_closed)
            time.sleep(number % 4 * 0.001)
            conn.close()
            assert waiting.result(timeout=10) is cm.Closed.HERE


@pytest.mark.parametrize("waiters", [1, 3])
def test_a_connection_that_one_thread_disconnects(serve: Any, waiters: int) -> None:
    """Whichever thread takes the event, all see what it says."""

    def attend(request: sync.SyncRequest) -> None:
        with request.accept() as conn:
            assert conn.wait_closed(timeout=10) is cm.Closed.PEER

    port = serve(attend)
    with ThreadPoolExecutor(waiters) as threads:
        for number in range(60):
            with sync.connect(HOST, port) as conn:
                waiting = [threads.submit(conn.wait_closed) for _ in range(waiters)]
                time.sleep(number % 6 * 0.0005)
                assert conn.disconnect(timeout=10) is cm.Closed.HERE
                for each in waiting:
                    assert each.result(timeout=10) is cm.Closed.HERE
