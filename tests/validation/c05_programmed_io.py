# SPDX-License-Identifier: Apache-2.0
"""C5: copying from and to a device by loads and stores."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, equal, near
from verbena.host import Computer, Device, Pcie, Program, Ram

WINDOW = 0x10_0000
REGISTERS = {1: "al", 2: "ax", 4: "eax", 8: "rax", 16: "xmm0"}
ROUND_TRIP = 900.0  # ns


class Window(Device):
    """Memory of a device; ``combining`` lets the processor write it by lines of 64 bytes."""

    def __init__(self, combining: bool = False) -> None:
        super().__init__(1 << 16)
        self.combining = combining

    def read(self, offset: int, size: int) -> int:
        return 0

    def write(self, offset: int, size: int, value: int) -> None:
        """Takes it."""

    def combines(self, offset: int) -> bool:
        return self.combining


def run(size: int, of: int, *, store: bool, combining: bool = False) -> tuple[float, int]:
    """The processor's time in us, and the bytes to the device; loads or stores of ``of`` bytes."""
    computer, window = Computer(ghz=3.0), Window(combining)
    computer.map(Ram(1 << 16), 0)
    computer.map(window, WINDOW, pcie=Pcie(3, 8, round_trip_ns=ROUND_TRIP))
    move, register = "movdqu" if of == 16 else "mov", REGISTERS[of]
    access = f"[rsi], {register}" if store else f"{register}, [rsi]"
    text = f"mov rsi, {WINDOW}\n mov rcx, {size // of}\nnext: {move} {access}\n add rsi, {of}\n"
    computer.load(Program.assemble(text + " dec rcx\n jnz next\n hlt"))
    computer.run()
    assert window.slot is not None
    busy = computer.cores[0].state.cycles / 3000 - computer.counters.idle_ps / 1e6
    return busy, window.slot.down.bytes


def measure(scope: Scope) -> Iterator[Figure]:
    link = Pcie(3, 8)
    size = scope.pick(1024, 8192)
    for of in scope.pick((1, 8), (1, 2, 4, 8, 16)):
        each = ROUND_TRIP + (24 + 20 + of) * 8 / link.usable_gbps
        got, _ = run(size, of, store=False)
        law = size / of * each / 1000
        yield near(f"{size} B by loads of {of}", got, law, 0.005, "us")
        if (size, of) == (8192, 8):
            yield near("which is round trips alone", got, 921.6, 0.02, "us")
    for of in (4, 8):
        _, down = run(size, of, store=True)
        yield equal(f"stores of {of}: on the link for each byte", down / size, (24 + of) / of)
    busy, down = run(size, 8, store=True)
    yield near("stores of 8: the processor goes on after", busy, size / 8 * 4 / 3000, 0.02, "us")
    _, down = run(size, 8, store=True, combining=True)
    yield equal("by combined lines of 64: on the link for each byte", down / size, 88 / 64)


ROW = Row(
    number="C5",
    title="Programmed I/O",
    setup="Machine code at 3 GHz moves 8 KiB from or to a device at a gen3 x8 link with a round "
    "trip of 900 ns.",
    expected="n bytes by loads of b: n / b round trips, and n / b requests of 24 and answers of "
    "20 + b bytes. Stores are posted: no time but the instructions', and (24 + b) / b bytes on the "
    "link for each byte; 88 / 64 where stores combine to lines of 64 bytes.",
    fails="a load does not wait for its round trip, or a store waits.",
    meaning="8 KiB by loads of 8 bytes take 0.93 ms, in which the processor does nothing else: 9 "
    "MB/s. Stores are a hundred times faster, and a line of 64 bytes uses the link well.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
    missing="loads of 64 B, by which 8 KiB would take 115.2 µs: the processor's longest load has "
    "16 B, by which they take 0.46 ms. It has no instruction with a register of 64 B.",
)
