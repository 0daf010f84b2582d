# SPDX-License-Identifier: Apache-2.0
"""Numbers of system calls and of their errors, which programs and the kernel share.

The place of a call in ``CALLS`` is its number, and asm/calls.asm has a routine ``call_NAME`` for
each. Errors are those of Linux (asm-generic/errno.h), and a call returns minus the number.
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host.errors import HostTypeError


@dataclass(frozen=True)
class Call:
    """A system call: its arguments in RDI, RSI, RDX, R10 and R8, and what it returns in RAX."""

    name: str
    arguments: str
    result: str


CALLS: tuple[Call, ...] = (
    Call("exit", "status", "does not return"),
    Call("write", "pointer, size", "bytes shown on the display, at most 4096"),
    Call("read", "pointer, size", "keys taken; waits for the first"),
    Call("yield", "", "0, when the process runs again"),
    Call("getpid", "", "the process's number"),
    Call("time", "", "microseconds since the boot"),
    Call("sleep", "microseconds", "0, at the first tick after that time; EINVAL from 2^32 on"),
    Call("disk_read", "block, pointer, blocks", "blocks; waits for the disk"),
    Call("disk_write", "block, pointer, blocks", "blocks; waits for the disk"),
    Call("bind", "port, or 0", "a socket"),
    Call("send_to", "socket, pointer, size, host, port", "bytes; waits for room in the ring"),
    Call("receive_from", "socket, pointer, size, sender or 0, 1: do not wait",
         "bytes; waits for a datagram"),
    Call("close", "socket", "0"),
    Call("mouse", "", "the mouse's x, y from bit 16 on, and buttons from bit 32 on"),
)  # fmt: skip

ERRORS = {
    "EIO": 5, "EBADF": 9, "EAGAIN": 11, "EFAULT": 14, "ENODEV": 19, "EINVAL": 22, "ENOSYS": 38,
    "EMSGSIZE": 90, "EADDRINUSE": 98, "ENETUNREACH": 101, "ENOBUFS": 105,
}  # fmt: skip


@checked_arguments(HostTypeError)
def error_name(result: int) -> str | None:
    """The error that a call's result stands for (-14 or 2^64 - 14: EFAULT); None if for none."""
    signed = result - (1 << 64) if result >= 1 << 63 else result
    return next((name for name, number in ERRORS.items() if -number == signed), None)


def program_equates() -> str:
    """Lines of assembly that name the calls (``SYS_WRITE``) and errors for programs."""
    calls = [f"SYS_{one.name.upper()} equ {number}" for number, one in enumerate(CALLS)]
    return "\n".join(calls + [f"{name} equ -{number}" for name, number in ERRORS.items()])
