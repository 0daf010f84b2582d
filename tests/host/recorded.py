# SPDX-License-Identifier: Apache-2.0
"""What a real processor made of random programs, in a file: the oracle where there is none.

``python -m tests.host.recorded`` on an x86-64 machine runs the programs and writes ``FILE``;
``compared.py`` and the tests read it on every machine. It has hashes: of each program, so that
another program of the same seed is noticed; of the state behind it (registers, flags that are
defined, XMM registers, memory); and a byte of the hash behind each piece, which tells where a
difference begins.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tests.host.random_programs import Maker
from tests.host.real_processor import RealProcessor, State, processor_name

FILE = Path(__file__).with_name("recorded_programs.bin")
PROGRAMS = 4000
LENGTH = 25  # pieces of a program
FLAGS = 0x8C5  # CF, PF, ZF, SF, OF; AF is undefined after many instructions
_HASHES = struct.Struct(f"<4s8s{LENGTH}s")


class StaleRecordingError(Exception):
    """The programs are not those that were recorded."""


def made(seed: int) -> tuple[State, list[bytes]]:
    """The state before the program of a seed, and its pieces."""
    maker = Maker(seed)
    return maker.state(), maker.program(LENGTH)


def hash_of(state: State) -> bytes:
    """Eight bytes that stand for all that a program leaves."""
    found = blake2b(digest_size=8)
    found.update(struct.pack("<16QQ", *state.registers, state.flags & FLAGS))
    for value in state.wide:
        found.update(value.to_bytes(16, "little"))
    found.update(state.data)
    return found.digest()


def _program_hash(before: State, program: list[bytes]) -> bytes:
    return blake2b(hash_of(before) + b"".join(program), digest_size=4).digest()


@dataclass(frozen=True)
class Recorded:
    """One program: the hash of its end, and a byte for the state behind each piece."""

    program: bytes
    end: bytes
    pieces: bytes

    def packed(self) -> bytes:
        """As it is in the file."""
        return _HASHES.pack(self.program, self.end, self.pieces)


def record(real: RealProcessor, seed: int) -> Recorded:
    """Runs a program on the processor, whole and up to each piece."""
    before, program = made(seed)
    ends = [
        hash_of(real.run(b"".join(program[:length]), before)) for length in range(1, LENGTH + 1)
    ]
    return Recorded(_program_hash(before, program), ends[-1], bytes(end[0] for end in ends))


class Recording:
    """The file; ``processor`` says who ran the programs, whose seeds begin with 0."""

    def __init__(self, file: Path = FILE) -> None:
        head, _, self._rows = file.read_bytes().partition(b"\n")
        about = json.loads(head)
        self.processor: str = about["processor"]
        if (about["pieces"], about["flags"]) != (LENGTH, FLAGS):
            raise StaleRecordingError(_advice("programs of another length, or other flags"))

    def __len__(self) -> int:
        return len(self._rows) // _HASHES.size

    def program(self, seed: int, before: State, program: list[bytes]) -> Recorded:
        """What was recorded of a seed. Raises StaleRecordingError if its program was another."""
        if not 0 <= seed < len(self):
            raise StaleRecordingError(f"seeds 0 to {len(self) - 1} are recorded, and {seed} is not")
        found = Recorded(*_HASHES.unpack_from(self._rows, seed * _HASHES.size))
        if found.program != _program_hash(before, program):
            raise StaleRecordingError(_advice(f"another program of seed {seed}"))
        return found


def _advice(what: str) -> str:
    return (
        f"{FILE.name} has {what}: after a change of random_programs.py run "
        "`python -m tests.host.recorded` on an x86-64 machine"
    )


def written(processor: str, rows: Iterator[Recorded]) -> bytes:
    """The file's bytes."""
    about = {"processor": processor, "pieces": LENGTH, "flags": FLAGS}
    return json.dumps(about).encode() + b"\n" + b"".join(one.packed() for one in rows)


def main() -> int:
    """Records all programs."""
    real, name = RealProcessor(), processor_name()
    FILE.write_bytes(written(name, (record(real, seed) for seed in range(PROGRAMS))))
    print(f"{FILE}: {PROGRAMS} programs by {name}, {FILE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
