# SPDX-License-Identifier: Apache-2.0
"""Devices of a computer: the base class that a device of one's own has, memory, keyboard and mouse.

A device has a range of the physical address space, for which the processor calls ``read`` and
``write``; ``peek`` is for debuggers and must change nothing. It reaches memory by DMA, the
processor by an interrupt, and its own future by ``at``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, ClassVar

from verbena._arguments import checked_class, is_buffer, is_whole
from verbena.host.errors import DeviceError, HostError, HostTypeError

if TYPE_CHECKING:
    from verbena.host.clock import Event
    from verbena.host.computer import Computer
    from verbena.host.device_bus import DeviceBus, DeviceFault
    from verbena.host.errors import AccessError
    from verbena.host.io_apic import WiredLine
    from verbena.host.iommu import Iommu
    from verbena.host.pci_slot import PciSlot
    from verbena.host.pcie import Slot


@checked_class(HostTypeError)
class Ram:
    """Memory of ``size`` bytes."""

    def __init__(self, size: int) -> None:
        if size <= 0:
            raise HostError(f"memory has at least one byte, not {size}")
        self.size = size
        try:  # pages that nobody touches cost neither time nor memory
            self.bytes = mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)
        except (OSError, OverflowError):
            raise HostError(f"this machine has no {size:,} bytes free: take less memory") from None

    def __repr__(self) -> str:
        return f"Ram({self.size:_})"


@checked_class(
    HostTypeError,
    but=(
        "at",
        "combines",
        "dma_failed",
        "dma_read",
        "dma_write",
        "interrupt",
        "peek",
        "read",
        "write",
    ),
)
class Device:
    """A device with ``size`` bytes of registers. Subclasses say what reads and writes do."""

    # Whether it calls end_interrupt() when the cause of its interrupt is gone.
    holds_line: ClassVar[bool] = False

    def __init__(self, size: int) -> None:
        if size <= 0:
            raise HostError(f"a device has at least one byte of registers, not {size}")
        self.size = size
        self.computer: Computer | None = None  # since it was mapped
        self.base: int | None = None  # its address there
        self.slot: Slot | None = None  # the end of its PCIe link
        self.pci: PciSlot | None = None  # or its place on a PCI bus
        self.bus: DeviceBus | None = None  # which of them it has; None: it costs no time to reach
        self.bus_fault: DeviceFault | None = None  # what ``fail`` was given
        self.was_unmapped = False  # and not mapped since
        self.dma_drops = 0  # how often its DMA under way has ended, by ``fail`` or by ``unmap``
        self.iommu: Iommu | None = None  # which translates its DMA; None: addresses are physical
        self.wired: WiredLine | None = None  # to an I/O APIC; None: interrupts are messages

    def __repr__(self) -> str:
        base = getattr(self, "base", None)  # a class of one's own may have forgotten __init__
        if base is None:
            return f"{type(self).__name__} (not mapped)"
        return f"{type(self).__name__} at {base:#x} to {base + self.size - 1:#x}"

    def read(self, offset: int, size: int) -> int:
        """A load of ``size`` bytes, 1 to 16, at ``offset``; the value."""
        raise HostError(f"{self!r} has nothing to read at offset {offset:#x}")

    def write(self, offset: int, size: int, value: int) -> None:
        """A store of ``size`` bytes."""
        raise HostError(f"{self!r} has nothing to write at offset {offset:#x}")

    def peek(self, offset: int, size: int) -> int | None:
        """What a read would give, without its side effects; None: not known."""
        return None

    def combines(self, offset: int) -> bool:
        """Whether stores at ``offset`` are combined to lines of 64 bytes (``combining.py``)."""
        return False

    def fail(self, fault: DeviceFault | None) -> None:
        """Lets it answer nothing from now on, and do nothing by itself; None: it works again. Its
        DMA under way ends: what has arrived stays in memory, and what it gave as ``then`` is not
        called. HostError without a bus, which could give up waiting.
        """
        if self.computer is not None:
            check_fault(self, fault)
        self.bus_fault = fault
        if fault is not None:
            self.end_interrupt()
            self.drop_dma()

    # ---- what a device does by itself ----

    def drop_dma(self) -> None:
        """Ends its DMA under way, as a device that has failed or is unmapped."""
        self.dma_drops += 1
        if self.pci is not None and self.computer is not None:
            self.pci.drop(self.computer.now)

    @property
    def is_dead(self) -> bool:
        """Whether it does nothing by itself: it has failed, or was unmapped."""
        return self.bus_fault is not None or self.was_unmapped

    def _home(self) -> Computer:
        if self.was_unmapped:
            raise HostError(f"{type(self).__name__} was unmapped: map it again first")
        if self.computer is None:
            raise HostError(f"{type(self).__name__} is in no computer yet: map it first")
        return self.computer

    @property
    def now(self) -> int:
        """The computer's time, in ps."""
        return self._home().now

    def at(self, time: int, call: Callable[[], None]) -> Event:
        """Calls at a time, in ps; the event can be cancelled. ``self.now + 5_000`` is in 5 ns."""
        computer = self._home()
        if not is_whole(time) or time < computer.now:
            raise HostError(
                f"{self!r} asked to be called at {time!r} ps, and now it is {computer.now}: a "
                "time is a whole number from self.now on"
            )
        event = computer.at(time, call)
        event.call = _WhileMapped(self, call)
        return event

    def interrupt(self, vector: int, core: int = 0) -> None:
        """Sends an interrupt: by a message over the link if the device has one, and on a PCI bus by
        its wire, which it holds until ``end_interrupt``.

        A device that is wired to an I/O APIC raises its line instead, and the vector and the core
        are those of the I/O APIC's table.
        """
        if not is_whole(vector) or not is_whole(core):
            raise HostTypeError(
                f"{self!r}.interrupt: vector is {vector!r} and core is {core!r}: both are whole "
                "numbers"
            )
        if self.is_dead:
            return
        if self.wired is not None:
            self.wired.interrupt()
        elif self.pci is not None:
            self.pci.pull(checked_vector(vector), core)
        else:
            self._home().interrupt_from(self, checked_vector(vector), core)

    def end_interrupt(self) -> None:
        """The cause of its interrupt is gone: lowers its line, or lets its wire of a PCI bus go, if
        it has one."""
        if self.wired is not None:
            self.wired.lower()
        elif self.pci is not None:
            self.pci.let_go()

    def dma_write(self, address: int, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Writes to memory, without the processor, and calls ``then`` when the bytes are there."""
        if not is_whole(address) or not is_buffer(data):
            raise HostTypeError(
                f"{self!r}.dma_write: address is {address!r} and data is {data!r}: an address is a "
                "whole number, and data are bytes"
            )
        _check_dma(self, "write", address, memoryview(data).nbytes)
        if not self.is_dead:
            self._home().dma_write(self, address, data, then)

    def dma_read(self, address: int, size: int, then: Callable[[bytes], None]) -> None:
        """Reads memory, and calls ``then`` with the bytes when the device has them."""
        if not is_whole(address) or not is_whole(size) or not callable(then):
            raise HostTypeError(
                f"{self!r}.dma_read: address is {address!r}, size is {size!r}, then is {then!r}: "
                "address and size are whole numbers, and then is a function of the bytes"
            )
        _check_dma(self, "read", address, size)
        if not self.is_dead:
            self._home().dma_read(self, address, size, then)

    def dma_failed(self, error: AccessError) -> None:
        """Its DMA went to where no memory is, and the bus has told it so. The run raises ``error``,
        after which another run goes on; a device may note it first, or do something else."""
        raise error


class _WhileMapped:
    """The call of a device's event, which is made unless the device was unmapped."""

    __slots__ = ("__wrapped__", "_device")

    def __init__(self, device: Device, call: Callable[[], None]) -> None:
        self._device, self.__wrapped__ = device, call

    def __call__(self) -> None:
        if not self._device.was_unmapped:
            self.__wrapped__()


def _check_dma(device: Device, verb: str, address: int, size: int) -> None:
    if not 0 <= address < 1 << 64 or not 0 <= size < 1 << 64:
        raise HostError(
            f"{device!r}.dma_{verb}: {size} bytes at {address:#x} are none: an address is 0 to "
            "2^64 - 1, and a size 0 or more"
        )


def device_error(device: Device, call: str, error: Exception) -> DeviceError:
    """For an exception that a ``call`` of a device's own code has raised: its cause."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return DeviceError(f"{device!r}: its {call} raised {what}")


def read_from(device: Device, offset: int, size: int) -> int:
    """What a device's ``read`` answers. DeviceError if it raises anything but a HostError."""
    try:
        return device.read(offset, size)
    except HostError:
        raise
    except Exception as error:
        raise device_error(device, f"read({offset:#x}, {size})", error) from error


def write_to(device: Device, offset: int, size: int, value: int) -> None:
    """Calls a device's ``write``. DeviceError if it raises anything but a HostError."""
    try:
        device.write(offset, size, value)
    except HostError:
        raise
    except Exception as error:
        call = f"write({offset:#x}, {size}, {value:#x})"
        raise device_error(device, call, error) from error


def check_fault(device: Device, fault: DeviceFault | None) -> None:
    """HostError for a device that has failed and is on no bus."""
    if fault is not None and device.bus is None:
        raise HostError(
            f"{device!r} {fault.value}, and is on no bus, which would give up waiting for it: map "
            "it with pcie= or pci="
        )


def checked_vector(vector: int) -> int:
    """The vector of a device's interrupts. Raises HostError for those of exceptions, which the
    processor keeps for itself (SDM volume 3, 6.2), and for what is none."""
    if not 32 <= vector <= 255:
        raise HostError(
            f"the vector of a device's interrupt is 32 to 255, since 0 to 31 are the processor's "
            f"exceptions: not {vector}"
        )
    return vector


@checked_class(HostTypeError, but=("peek", "read", "write"))
class Keyboard(Device):
    """Keys wait in a queue. A read takes the next, 0 if there is none; a write of 1 to the second
    byte lets each key raise ``vector``. A line is held until the queue is empty."""

    holds_line = True

    def __init__(self, size: int = 2, vector: int = 33) -> None:
        super().__init__(size)
        self.vector = checked_vector(vector)
        self.keys: deque[int] = deque()
        self.raises = False

    def press(self, keys: str) -> None:
        """Types keys, one after the other, now. HostError for a key that is not in ASCII."""
        if not keys.isascii():
            key = next(one for one in keys if not one.isascii())
            raise HostError(
                f"this keyboard gives each key as a byte of ASCII, and has no key {key!r} of "
                f"{keys!r}"
            )
        self.keys.extend(keys.encode())
        if self.raises and keys:
            self.interrupt(self.vector)

    def read(self, offset: int, size: int) -> int:
        if not self.keys:
            return 0
        key = self.keys.popleft()
        if not self.keys:
            self.end_interrupt()
        return key

    def peek(self, offset: int, size: int) -> int | None:
        return self.keys[0] if self.keys else 0

    def write(self, offset: int, size: int, value: int) -> None:
        self.raises = bool(value & 1)
        if not self.raises:
            self.end_interrupt()


@checked_class(HostTypeError, but=("peek", "read", "write"))
class Mouse(Device):
    """Position and buttons: 2 bytes of x, 2 of y, 1 of buttons, from offset 0."""

    def __init__(self, size: int = 5) -> None:
        super().__init__(size)
        self.x = self.y = self.buttons = 0

    def move(self, x: int, y: int, buttons: int = 0) -> None:
        """Sets what the processor reads, each coordinate 0 to 65535."""
        if not (0 <= x <= 0xFFFF and 0 <= y <= 0xFFFF and 0 <= buttons <= 0xFF):
            raise HostError("coordinates are 0 to 65535, buttons 0 to 255")
        self.x, self.y, self.buttons = x, y, buttons

    def read(self, offset: int, size: int) -> int:
        state = self.x | self.y << 16 | self.buttons << 32
        return state >> (8 * offset) & ((1 << (8 * size)) - 1)

    def peek(self, offset: int, size: int) -> int | None:
        return self.read(offset, size)
