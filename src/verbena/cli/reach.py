# SPDX-License-Identifier: Apache-2.0
"""Tests with two processes whether this system lets one copy the other's memory.

`verbena doctor` calls this. It is the cross-process copy of the direct carrier (process_vm_readv).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

SECRET = b"verbena"
PR_SET_PTRACER, ANY_PROCESS = 0x59616D61, ctypes.c_ulong(-1)  # prctl(2); Yama's "Yama"
ANSWER = struct.Struct("i")
YAMA_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


class Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def copy_error() -> int:
    """Return 0 when a process of this user may read a sibling's memory, otherwise the errno.

    The two are siblings, because Linux' Yama allows a parent more than siblings.
    """
    buffer = ctypes.create_string_buffer(len(SECRET))
    ready, hold = os.pipe(), os.pipe()
    holder = os.fork()
    if holder == 0:
        hold_secret(buffer, ready, hold)
    try:
        os.close(ready[1])
        os.read(ready[0], 1)
        return ask_sibling(holder, buffer)
    finally:
        for descriptor in (ready[0], *hold):
            os.close(descriptor)
        os.waitpid(holder, 0)


def hold_secret(
    buffer: ctypes.Array[ctypes.c_char], ready: tuple[int, int], hold: tuple[int, int]
) -> None:
    """Be the process that is read: permit it as Verbena's library does, and wait."""
    buffer.raw = SECRET
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANY_PROCESS, 0, 0, 0)
    os.close(hold[1])
    os.write(ready[1], b".")
    os.read(hold[0], 1)
    os._exit(0)


def ask_sibling(holder: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    answer = os.pipe()
    reader = os.fork()
    if reader == 0:
        os.write(answer[1], ANSWER.pack(read_error(holder, buffer)))
        os._exit(0)
    os.close(answer[1])
    try:
        data = os.read(answer[0], ANSWER.size)
    finally:
        os.close(answer[0])
        os.waitpid(reader, 0)
    # A system call filter may have killed the reader: then there is no answer.
    return int(ANSWER.unpack(data)[0]) if len(data) == ANSWER.size else errno.EPERM


def read_error(holder: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Return the errno of reading the buffer at the same address in the process `holder`, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    local, remote = (Iovec(ctypes.addressof(buffer), len(SECRET)) for _ in range(2))
    one = ctypes.c_ulong(1)
    done = libc.process_vm_readv(
        holder, ctypes.byref(local), one, ctypes.byref(remote), one, ctypes.c_ulong(0)
    )
    if done < 0:
        return ctypes.get_errno()
    return 0 if buffer.raw == SECRET else errno.EIO


def yama_scope() -> int | None:
    """Linux' ptrace_scope, 0 (any process of the user) to 3 (none), or None without Yama."""
    try:
        return int(YAMA_SCOPE.read_text())
    except (OSError, ValueError):
        return None


def seccomp_filtered() -> bool:
    """Return whether a system call filter, such as a container's, applies to this process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.split() == ["Seccomp:", "2"] for line in lines)


def explain(error: int) -> tuple[str, str]:
    """Return why copying failed with this errno, and what would allow it."""
    scope = yama_scope()
    if scope is not None and scope >= 2:
        return (
            f"Yama forbids it (kernel.yama.ptrace_scope is {scope})",
            "sudo sysctl kernel.yama.ptrace_scope=1"
            if scope == 2
            else "ptrace_scope=3 stays until the next boot: set 1 in /etc/sysctl.d and reboot.",
        )
    if error == errno.ENOSYS or seccomp_filtered():
        return (
            f"a system call filter forbids it ({os.strerror(error)})",
            "In a container: docker run --cap-add=SYS_PTRACE, or a seccomp profile that allows "
            "process_vm_readv and process_vm_writev.",
        )
    return (
        f"the kernel refuses it ({os.strerror(error)})",
        "Run both processes as the same user, in the same user namespace, and not from "
        "set-user-ID or unreadable files.",
    )
