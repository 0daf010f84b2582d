# SPDX-License-Identifier: Apache-2.0
"""Whether this system lets one process copy another's memory, tried with two processes."""

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
    """0 when a process of this user may read a sibling's memory, otherwise the errno.

    Siblings, because Linux' Yama lets a parent do more than they may to each other.
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
    """The process that is read: it permits it as Verbena's library does, and waits."""
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
    # A filter that kills leaves no answer.
    return int(ANSWER.unpack(data)[0]) if len(data) == ANSWER.size else errno.EPERM


def read_error(holder: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    """The errno of reading the buffer at the same address in the process `holder`."""
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
    """Whether a system call filter, such as a container's, stands around this process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.split() == ["Seccomp:", "2"] for line in lines)


def explain(error: int) -> tuple[str, str]:
    """Why copying failed with this errno, and what would allow it."""
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
