# SPDX-License-Identifier: Apache-2.0
"""The drivers of the comparison's disk, as assembly: one moves the words, the other lets the disk.

disk_ways.py assembles them. Both run in ring 0 of a machine whose disk's registers are at ``DISK``
(verbena.host.disk lists them), and leave the bytes at ``TARGET``.
"""

from __future__ import annotations

DISK = 0x4000_0000  # the registers' address
TARGET = 0x10_0000  # where the bytes go
STACK = 0x8000
ORIGIN = 0x1000
MOST_BY_WORDS = 65536  # bytes of a command by programmed I/O: the disk's buffer

_HEAD = f"""
    mov  rsp, {STACK:#x}
    lidt [table]
    mov  rbx, {DISK:#x}
    mov  rdi, {TARGET:#x}
    mov  qword ptr [rbx+0x28], 1        ; the disk shall interrupt
    xor  r8d, r8d                       ; the first block
"""

_TAIL = """
    align 16
idt:
    times 46 dq 0, 0
    dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table:
    dw 47 * 16 - 1
    dq idt
"""


def words_driver(blocks: int, block: int) -> str:
    """A driver that copies ``blocks`` blocks of ``block`` bytes out of the disk's buffer."""
    most = MOST_BY_WORDS // block
    return (
        _HEAD
        + f"""
command:
    mov  r9, {blocks}
    sub  r9, r8                         ; blocks that are left
    cmp  r9, {most}
    jbe  fits
    mov  r9, {most}
fits:
    mov  [rbx+0x08], r8
    mov  [rbx+0x10], r9
    mov  qword ptr [rbx], 1             ; read into the disk's buffer
    sti
    hlt                                 ; until it is there
    cli
    add  r8, r9
    cmp  r8, {blocks}
    jb   command
    hlt
handler:
    lea  rsi, [rbx+0x1000]
    imul rcx, r9, {block // 8}
next:
    mov  rax, [rsi]                     ; a round trip over the link
    mov  [rdi], rax
    add  rsi, 8
    add  rdi, 8
    dec  rcx
    jnz  next
    iretq
"""
        + _TAIL
    )


def dma_driver(blocks: int) -> str:
    """A driver that lets the disk write ``blocks`` blocks to memory."""
    return (
        _HEAD
        + f"""
    mov  [rbx+0x08], r8
    mov  qword ptr [rbx+0x10], {blocks}
    mov  [rbx+0x18], rdi
    mov  qword ptr [rbx], 2             ; read, to memory
    sti
    hlt                                 ; until it is there
    cli
    hlt
handler:
    iretq
"""
        + _TAIL
    )
