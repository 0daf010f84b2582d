# SPDX-License-Identifier: Apache-2.0
"""The text of ``Deadlock``: which tasks of an event loop wait, and where in their programs.

``loop.Loop`` asks when nothing is left to happen. Tasks of ``sim.run`` itself are left out.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .arguments import MOST_SECONDS
from .callbacks import NEVER
from .hosts import Hosts

__all__ = ["deadlock_head", "deadlock_text", "endless_waits", "timer_beyond", "where_raised"]


def deadlock_text(loop: asyncio.AbstractEventLoop, hosts: Hosts, why: str) -> str:
    """Return why nothing happens any more, and a line for each task that waits."""
    lines = [deadlock_head(loop.time(), hosts, why)]
    waiting = [task for task in asyncio.all_tasks(loop) if not _is_own(task)]
    waiting.sort(key=asyncio.Task.get_name)
    lines += [f"  {task.get_name()}: {_where(task)}" for task in waiting]
    return "\n".join(lines)


def deadlock_head(now: float, hosts: Hosts, why: str) -> str:
    """Return why nothing happens any more at a time in seconds, and that tasks follow."""
    if why == "deadlock":
        ports = ", ".join(f"port {port} of node {node}" for node, port in hosts.world.blocked())
        return f"at {now:.9f} s packets wait for each other for ever ({ports}); tasks:"
    if why == "quiet":
        return f"at {now:.9f} s nothing has reached a program for an hour; tasks:"
    if why == "endless":
        return f"at {now:.9f} s no request has completed for a minute; tasks:"
    return f"nothing is left to happen at {now:.9f} s, and these tasks wait:"


def timer_beyond(seconds: float | None) -> str:
    """Return what to do about the next timer, if it is beyond the clock; or ""."""
    if seconds is None:
        return ""
    return (
        f"\n  the next timer is at {seconds:g} s, which never comes: a simulated clock ends at "
        f"{NEVER:.0f} s (2**63 ps), so let a program wait for at most {MOST_SECONDS} s in all"
    )


def endless_waits(hosts: Hosts) -> str:
    """Return what the requests wait for, if every request in flight is retried for ever; or ""."""
    if hosts.world.flows_left:
        return ""
    waits = [wait for one in hosts.contexts() for wait in (one.describe() or {}).get("waiting", ())]
    if not waits or not all(wait["endless"] for wait in waits):
        return ""
    return "".join(f"\n  {wait['why']}" for wait in waits)


def _is_own(task: asyncio.Task[Any]) -> bool:
    """Return whether a task is one of ``sim.run`` itself, which runs the programs and waits for
    them."""
    return task.done() or task.get_name().startswith("world/")


_LIBRARIES = (
    str(Path(asyncio.__file__).parent),
    str(Path(__file__).parent.parent),
    "verbena/",  # compiled modules
)


def _where(task: asyncio.Task[Any]) -> str:
    """Return where in the program a task waits: the innermost frame that is not a library's."""
    awaited: Any = task.get_coro()
    found: FrameType | None = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None and (found is None or not _is_library(frame.f_code)):
            found = frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if found is None:
        return "it has not begun"
    return _place(found.f_code, found.f_lineno)


def where_raised(error: BaseException) -> str:
    """Return where in the program the call is that has raised an error."""
    found, at = "an unknown place", error.__traceback__
    while at is not None:
        if not _is_library(at.tb_frame.f_code):
            found = _place(at.tb_frame.f_code, at.tb_lineno)
        at = at.tb_next
    return found


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line}, in {code.co_name}"


def _is_library(code: CodeType) -> bool:
    return code.co_filename.startswith(_LIBRARIES)
