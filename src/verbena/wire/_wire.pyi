# SPDX-License-Identifier: Apache-2.0

from typing import Any

def opcode_row(
    opcode: int,
) -> tuple[str, tuple[str, ...], tuple[str, ...], int] | None: ...
def dissect(
    data: bytes, layer: int
) -> tuple[int, dict[str, int], dict[str, dict[str, Any]], dict[str, bytes]]: ...
def assemble(
    stack: int,
    bth: dict[str, int],
    headers: dict[str, dict[str, Any]],
    rest: dict[str, bytes],
) -> bytes: ...
def icrc(data: bytes, layer: int) -> bytes: ...
def vcrc(data: bytes) -> bytes: ...
def crc32(data: bytes, register: int) -> int: ...
def unseen(
    source: bytes,
    target: bytes,
    source_port: int,
    transport: bytes,
    guess: tuple[int, bool],
) -> tuple[int, bool]: ...
