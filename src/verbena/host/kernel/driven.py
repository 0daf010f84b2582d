# SPDX-License-Identifier: Apache-2.0
"""What a kernel finds in its computer: the memory at 0, and the devices that it has drivers for.

``kernel.py`` asks before the boot; HostError says what is missing, or is more than it drives.
"""

from __future__ import annotations

from verbena.host.computer import Computer
from verbena.host.computer_records import Range
from verbena.host.consoles import Display, Timer
from verbena.host.devices import Device, Keyboard, Mouse, Ram
from verbena.host.disk import Disk
from verbena.host.errors import HostError
from verbena.host.io_apic import IoApic
from verbena.host.kernel.layout import FIRST_VECTOR, FRAMES, UNEXPECTED_VECTOR
from verbena.host.nic import EthernetAdapter

KERNEL_SPAN = 1 << 30  # of what is mapped for the kernel: memory and devices


def memory_size(computer: Computer) -> int:
    """The size of the memory that begins at address 0; HostError if the kernel cannot use it."""
    for one in computer.table:
        if one.base == 0 and isinstance(one.device, Ram):
            if FRAMES + (256 << 10) <= one.end <= KERNEL_SPAN // 4:
                return one.end
            raise HostError(
                f"the kernel takes 1.25 MiB to 256 MiB of memory at 0, not {one.end:,} bytes"
            )
    raise HostError("the kernel's memory begins at address 0: map Ram there")


def interrupt_controllers(computer: Computer) -> list[Range]:
    """The local APICs and the I/O APIC, or nothing. HostError if only the former are there."""
    if computer.apics is None:
        return []
    table = computer.table
    local = [one for one in table if one.device is computer.apics]
    io = [one for one in table if isinstance(one.device, IoApic)]
    if not local or not io:
        raise HostError(
            "the kernel drives the two parts of an InterruptController: one is unmapped"
        )
    return [local[0], io[0]]


def driven_devices(computer: Computer) -> list[Range]:
    """The devices that the kernel drives; HostError if they are not as it needs them."""
    kinds: tuple[type[Device], ...] = (
        Timer, Keyboard, Mouse, Display, Disk, EthernetAdapter,
    )  # fmt: skip
    found = [one for one in computer.table if isinstance(one.device, kinds)]
    for kind in kinds:
        if (count := sum(isinstance(one.device, kind) for one in found)) > 1:
            raise HostError(f"the kernel drives one {kind.__name__}, and there are {count}")
    if not any(isinstance(one.device, Timer) for one in found):
        raise HostError("the kernel needs a Timer: map one")
    vectors: list[int] = []
    for one in found:
        if one.end > KERNEL_SPAN:
            raise HostError(f"the kernel drives devices below 1 GiB, and {one.device!r} is above")
        if (vector := getattr(one.device, "vector", None)) is not None:
            if vector in vectors or not FIRST_VECTOR <= vector < UNEXPECTED_VECTOR:
                raise HostError(
                    f"{one.device!r} has vector {vector}: the kernel's devices have vectors of "
                    f"their own, {FIRST_VECTOR} to {UNEXPECTED_VECTOR - 1}"
                )
            vectors.append(vector)
        if isinstance(one.device, Keyboard) and one.device.size < 2:
            raise HostError("a keyboard of one byte cannot interrupt: the kernel needs Keyboard(2)")
        if isinstance(one.device, Disk) and one.device.block % 8:
            raise HostError("the kernel reads disks whose blocks are whole words of 8 bytes")
    return found
