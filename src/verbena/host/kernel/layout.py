# SPDX-License-Identifier: Apache-2.0
"""Where the kernel's tables are in memory, and how their entries are laid out.

The kernel's memory is mapped at its physical addresses, for ring 0 alone, in every address space.
``equates`` gives all of this to the kernel's assembly, so that it is said here only.
"""

from __future__ import annotations

from verbena.host.kernel.numbers import CALLS, ERRORS

PAGE = 4096
KERNEL_CODE = 0x1000  # page 0 is not mapped: a null pointer faults
KERNEL_DATA = 0x8000
IDT = 0xB000
PROCESSES = 0xC000
SOCKETS = 0xE000
SEND_RING, RECEIVE_RING = 0xE400, 0xE600
STACKS = 0x10000  # a page for each process's work in the kernel, and below it one that is missing
POOL = 0x30000
FRAMES = 0x100000  # from here on Python gives memory to page tables and processes

PROCESS_COUNT, PROCESS_SIZE = 16, 512  # the first is the idle process
STACK_SPAN = 2 * PAGE
XMM_BYTES = 16 * 16  # of registers that a switch saves
SOCKET_COUNT, SOCKET_SIZE = 16, 64
RING_COUNT = 32  # descriptors of either ring
POOL_COUNT, BUFFER_SIZE = 88, 0x2400  # a buffer has room for the longest frame, 9,014 bytes
KEY_COUNT = 256
FIRST_VECTOR, LAST_VECTOR = 32, 63  # of interrupts; the last two are none of a device
UNEXPECTED_VECTOR, RESCHED_VECTOR = 62, 63
DATAGRAM_MOST = 1492  # bytes: a frame of 1,500 without the UDP header
HEADERS = 22  # of Ethernet and UDP

USER_BASE = 0x4000_0000  # of a process: program, data, and at the end the stack
USER_SPAN = 0x20_0000

FREE, READY, BLOCKED, EXITED, FAULTED = range(5)  # states of a process; the one that runs is ready
DISK_QUEUED, DISK_DATA_READY, DISK_DONE, DISK_FAILED = 1, 2, 3, 4  # as the disk's STATUS
DISK_READ_PIO, DISK_READ_DMA, DISK_WRITE_DMA = 1, 2, 3

_REGISTERS = "r15 r14 r13 r12 r11 r10 r9 r8 rbp rdi rsi rdx rcx rbx rax"
TRAP_FRAME = (*_REGISTERS.split(), "vector", "error", "rip", "cs", "flags", "rsp", "ss")
PROCESS_FIELDS = (
    "state", "pid", "rsp", "root", "stack_top", "user", "system", "channel", "exit", "wake_at",
    "switches", "fault_vector", "fault_error", "fault_address", "fault_rip", "disk_command",
    "disk_block", "disk_count", "disk_address", "disk_state", "disk_next", "dropped",
    "unknown_calls", "calls",
)  # fmt: skip
_SOCKET_FIELDS = ("owner", "port", "first", "last", "count")
_BUFFER_FIELDS = ("next", "length", "frame")


def _offsets(prefix: str, names: tuple[str, ...]) -> dict[str, int]:
    return {f"{prefix}_{name.upper()}": 8 * place for place, name in enumerate(names)}


def equates() -> str:
    """All constants as lines of assembly."""
    shared = (
        "KERNEL_DATA IDT PROCESSES SOCKETS SEND_RING RECEIVE_RING STACKS POOL PROCESS_COUNT "
        "PROCESS_SIZE STACK_SPAN XMM_BYTES SOCKET_COUNT SOCKET_SIZE RING_COUNT POOL_COUNT "
        "BUFFER_SIZE KEY_COUNT FIRST_VECTOR DATAGRAM_MOST HEADERS USER_BASE USER_SPAN FREE READY "
        "BLOCKED EXITED FAULTED DISK_QUEUED DISK_DATA_READY DISK_FAILED DISK_WRITE_DMA"
    )
    values = {name: globals()[name] for name in shared.split()}
    values |= _offsets("F", TRAP_FRAME) | _offsets("P", PROCESS_FIELDS)
    values |= _offsets("S", _SOCKET_FIELDS) | _offsets("B", _BUFFER_FIELDS)
    values |= {"CALL_COUNT": len(CALLS), "MAY_READ": 5, "MAY_WRITE": 7}
    values |= {name: -number for name, number in ERRORS.items()}
    return "\n".join(f"{name} equ {value}" for name, value in values.items())
