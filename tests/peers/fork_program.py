# SPDX-License-Identifier: Apache-2.0
"""A program of verbena.peers that forks: ``fork_program.py VIA WHAT``.

It talks with an echo server in another process, before and after a child has had its copy of
everything and has done WHAT with it. It prints what the child met, and "goes on". With "serve" for
WHAT it is that server, and prints its port; with "outlived" and an address it is a client there.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import verbena
from verbena import cm
from verbena.cm import sync as cm_sync
from verbena.peers import sync

VIA = sys.argv[1]


def say(*words: object) -> None:
    print(*words, flush=True)


def exchange(conn: sync.SyncPeerConnection) -> None:
    """Echo messages; the loop sleeps before each, so that a descriptor has to wake it."""
    for number in range(5):
        conn.send(b"%d" % number)
        assert conn.recv(timeout=10) == b"%d" % number
        time.sleep(0.02)


def try_each(*calls: Callable[[], Any]) -> None:
    for call in calls:
        try:
            say(call())
        except OSError as error:
            say(type(error).__name__, error)


def end_of(child: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def calls(address: str) -> None:
    """The child tries each call; none of them says anything to the peer."""
    with sync.connect(address, via=VIA) as conn:
        exchange(conn)
        child = os.fork()
        if not child:
            try_each(
                lambda: conn.send(b"of the child"),
                lambda: conn.recv(timeout=1),
                lambda: conn.array(4),
                lambda: conn.wait_closed(timeout=1),
                conn.close,
            )
            os._exit(0)
        end_of(child)
        exchange(conn)


def leaves(address: str) -> None:
    """The child leaves the blocks, as a program does that ends, and collects what is left."""
    conn: sync.SyncPeerConnection | None
    with sync.listen("127.0.0.1:0", via=VIA) as listener, sync.connect(address, via=VIA) as conn:
        exchange(conn)
        child = os.fork()
        if not child:
            try_each(lambda: listener.accept(timeout=1))
            sys.exit(0)
        end_of(child)
        exchange(conn)
        with ThreadPoolExecutor() as threads:
            accepting = threads.submit(listener.accept, timeout=10)
            with sync.connect(f"127.0.0.1:{listener.port}", via=VIA) as own:
                own.send(b"to the parent")
                with accepting.result() as other:
                    assert other.recv(timeout=10) == b"to the parent"
        child = os.fork()
        if not child:
            conn = None
            gc.collect()
            os._exit(0)
        end_of(child)
        exchange(conn)


def connects(address: str) -> None:
    """The child has a connection of its own, beside the parent's."""
    with sync.connect(address, via=VIA) as conn:
        exchange(conn)
        child = os.fork()
        if not child:
            with sync.connect(address, via=VIA) as own:
                exchange(own)
            sys.exit(0)
        exchange(conn)
        end_of(child)
        exchange(conn)


def in_a_coroutine(address: str) -> None:
    """The child leaves the blocks of a program of asyncio by the exception that ends it."""

    async def go_on(conn: verbena.PeerConnection) -> None:
        for number in range(5):
            await conn.send(b"%d" % number)
            assert await conn.recv() == b"%d" % number
            await asyncio.sleep(0.02)

    async def program() -> None:
        async with asyncio.timeout(30), verbena.connect(address, via=VIA) as conn:
            await go_on(conn)
            async with verbena.listen("127.0.0.1:0", via=VIA):
                child = os.fork()
                if not child:
                    sys.exit(0)
                end_of(child)
                await go_on(conn)

    asyncio.run(program())


def outlived(address: str) -> None:
    """A child lives on when this process is killed. It prints the child and a listener's port."""
    with sync.connect(address, via=VIA) as conn, sync.listen("127.0.0.1:0", via=VIA) as listener:
        exchange(conn)
        child = os.fork()
        if child:
            say(child, listener.port)
        time.sleep(60)


def connection_manager(address: str) -> None:
    """Connections and listeners of verbena.cm.sync, without verbena.peers."""
    del address
    with cm_sync.listen(0, host="127.0.0.1") as listener:
        port = listener.address.port

        async def other_side() -> cm.Closed:
            async with await cm.connect("127.0.0.1", port) as conn:
                return await conn.wait_closed()

        with ThreadPoolExecutor() as threads:
            other = threads.submit(asyncio.run, other_side())
            with listener.get_request(timeout=10).accept() as conn:
                child = os.fork()
                if not child:
                    say(conn.closed)
                    try_each(lambda: listener.get_request(timeout=1), lambda: conn.disconnect(1))
                    sys.exit(0)
                end_of(child)
                time.sleep(0.2)
                assert conn.closed is None
                assert not other.done()
                assert conn.disconnect(timeout=10) is cm.Closed.HERE
                assert other.result(timeout=10) is cm.Closed.PEER


async def serve() -> None:
    """Echo messages of any number of connections, until it is killed."""

    async def echo(conn: verbena.PeerConnection) -> None:
        async with conn:
            async for message in conn:
                await conn.send(message)

    async with verbena.listen("127.0.0.1:0", via=VIA) as listener, asyncio.TaskGroup() as group:
        say(listener.port)
        async for conn in listener:
            group.create_task(echo(conn))


WHAT = {
    "calls": calls,
    "leaves": leaves,
    "connects": connects,
    "in a coroutine": in_a_coroutine,
    "connection manager": connection_manager,
}

if __name__ == "__main__":
    if sys.argv[2] == "serve":
        asyncio.run(serve())
    elif sys.argv[2] == "outlived":
        outlived(sys.argv[3])
    parent = os.getpid()
    words = [sys.executable, __file__, VIA, "serve"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            WHAT[sys.argv[2]](f"127.0.0.1:{int(server.stdout.readline())}")
        finally:
            if os.getpid() == parent:
                server.kill()
        say("goes on")
