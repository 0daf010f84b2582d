# SPDX-License-Identifier: Apache-2.0
"""What a computer asks of the bus between it and one device, whatever kind of bus it is.

The end of a PCIe link (``Slot``, pcie.py) and a device's place on a PCI bus (``PciSlot``,
pci_slot.py) have these members. ``Accesses`` calls them for loads and stores of cores, and ``Dma``
for devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from verbena.host.clock import Event
from verbena.host.errors import HostError
from verbena.host.posted import PostedStore


class DeviceFault(Enum):
    """Why a device does not answer: ``SILENT`` takes accesses and never completes them, and to
    ``GONE`` nobody is at its addresses."""

    SILENT = "is there and never answers"
    GONE = "is gone"


Schedule = Callable[[int, Callable[[], None]], Event]
"""Calls at a time in ps: ``Computer.at``."""


class DeviceBus(Protocol):
    """The bus of one device. Times are in ps; ``at`` is not before that of earlier calls."""

    @property
    def posts_at(self) -> int:
        """From when on the bus takes another posted store of the processor."""

    @property
    def posted(self) -> deque[PostedStore]:
        """Stores that have not arrived yet, in the order in which they do: a load does not pass
        them (PCI Local Bus 2.2, appendix E; PCI Express Base 3.0, 2.4.1)."""

    @property
    def unanswered_stops(self) -> bool:
        """Whether an access without an answer stops the core; otherwise it reads all ones."""

    def load(self, at: int, size: int, address: int = 0) -> int:
        """A load of the processor: when its value is there."""

    def store(self, at: int, size: int, address: int = 0) -> int:
        """A posted store: when it is at the device."""

    def load_unanswered(self, at: int, size: int, address: int, fault: DeviceFault) -> int:
        """A load that the device does not answer: when the bus gives up."""

    def store_unanswered(self, at: int, size: int, address: int, fault: DeviceFault) -> None:
        """A posted store that nobody takes."""

    def give_up_text(self, fault: DeviceFault) -> str:
        """How the bus gives up a load."""

    def carry_to_memory(
        self, at: int, size: int, address: int, schedule: Schedule, landed: Callable[[], None],
        dropped: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """DMA from the device: calls ``landed`` when the bytes are in memory. A bus that knows
        earlier that the device has ended calls ``dropped`` instead, with the bytes until then."""

    def carry_to_device(
        self, at: int, size: int, address: int, schedule: Schedule, landed: Callable[[], None]
    ) -> None:
        """DMA to the device: calls ``landed`` when the bytes are there."""

    def refuse_read(
        self, at: int, size: int, address: int, schedule: Schedule, refused: Callable[[], None]
    ) -> None:
        """DMA to the device from where no memory is: calls ``refused`` when the device knows."""


def checked_unanswered(text: str) -> bool:
    """Whether ``unanswered`` is "stop". HostError if it is neither that nor "ones"."""
    if text not in ("ones", "stop"):
        raise HostError(f'unanswered is "ones" or "stop", not {text!r}')
    return text == "stop"
