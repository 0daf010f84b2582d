# SPDX-License-Identifier: Apache-2.0
"""What a simulated host lacks: sockets, pipes, threads, processes and signals.

``loop.Loop`` is a ``Lacking``, whose methods for these things raise NotSimulated. An audit hook
refuses what programs open without asking the loop, as far as the interpreter tells its hooks of it.
Code that runs on no simulated host may open all of them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .errors import NotSimulated
from .hosts import host_here

__all__ = ["Lacking", "no_threads", "refuse", "refuse_options", "running_loop"]


def refuse(what: str, lacking: str) -> NoReturn:
    raise NotSimulated(f"{what}: a simulated host has no {lacking}")


def _refusing(name: str, lacking: str) -> Callable[..., NoReturn]:
    def refuses(self: Lacking, *args: object, **options: object) -> NoReturn:
        refuse(name, lacking)

    refuses.__name__ = name
    return refuses


class Lacking(asyncio.AbstractEventLoop):
    """An event loop without the methods that need a machine."""

    def __init__(self) -> None:
        super().__init__()
        _refuse_from_now_on()

    add_writer = _refusing("add_writer", "sockets")  # type: ignore[assignment]
    remove_writer = _refusing("remove_writer", "sockets")
    sock_accept = _refusing("sock_accept", "sockets")
    sock_connect = _refusing("sock_connect", "sockets")
    sock_recv = _refusing("sock_recv", "sockets")
    sock_recv_into = _refusing("sock_recv_into", "sockets")
    sock_recvfrom = _refusing("sock_recvfrom", "sockets")
    sock_recvfrom_into = _refusing("sock_recvfrom_into", "sockets")
    sock_sendall = _refusing("sock_sendall", "sockets")
    sock_sendto = _refusing("sock_sendto", "sockets")
    sock_sendfile = _refusing("sock_sendfile", "sockets")
    sendfile = _refusing("sendfile", "sockets")
    start_tls = _refusing("start_tls", "sockets")
    connect_accepted_socket = _refusing("connect_accepted_socket", "sockets")
    create_unix_connection = _refusing("create_unix_connection", "sockets")
    create_unix_server = _refusing("create_unix_server", "sockets")
    getnameinfo = _refusing("getnameinfo", "sockets")
    connect_read_pipe = _refusing("connect_read_pipe", "pipes")
    connect_write_pipe = _refusing("connect_write_pipe", "pipes")
    subprocess_exec = _refusing("subprocess_exec", "processes")
    subprocess_shell = _refusing("subprocess_shell", "processes")
    add_signal_handler = _refusing("add_signal_handler", "signals")  # type: ignore[assignment]
    remove_signal_handler = _refusing("remove_signal_handler", "signals")
    run_in_executor = _refusing("run_in_executor", "threads")  # type: ignore[assignment]
    set_default_executor = _refusing("set_default_executor", "threads")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There are no threads to wait for."""


def refuse_options(call: str, options: dict[str, Any]) -> None:
    """Raise NotSimulated for ``sock``, ``ssl``, ``local_addr`` and the like, unless they are
    None."""
    harmless = {"family", "proto", "flags", "backlog", "reuse_address", "reuse_port"}
    harmless |= {"start_serving", "happy_eyeballs_delay", "interleave", "limit"}
    for name, value in options.items():
        if name not in harmless and value is not None:
            refuse(f"{call} with {name}", "such thing")


# ---- what programs open without asking the loop --------------------------------------------------

_AUDITED = {
    "socket.__new__": "sockets: asyncio.open_connection and start_server reach simulated hosts",
    "_thread.start_new_thread": "threads",
    "_thread.start_joinable_thread": "threads",
    "subprocess.Popen": "processes",
    "os.fork": "processes",
    "os.forkpty": "processes",
    "os.posix_spawn": "processes",
    "os.system": "processes",
}
_hooked = False


def _refuse_from_now_on() -> None:
    """Install the audit hook once. A hook cannot be removed, so it decides by the caller."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True


@contextmanager
def no_threads() -> Iterator[None]:
    """Audit ``Thread.start`` in Python 3.11, which has no audit event for it."""
    if sys.version_info >= (3, 12):
        yield
        return
    start = threading.Thread.start

    def audited(self: threading.Thread) -> None:
        _audit("_thread.start_new_thread", ())
        start(self)

    threading.Thread.start = audited  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def _audit(event: str, args: tuple[object, ...]) -> None:
    lacking = _AUDITED.get(event)
    host = None if lacking is None else host_here()
    if host is not None and isinstance(running_loop(), Lacking):
        raise NotSimulated(f"{event}: {host.name} is a simulated host, without {lacking}")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
