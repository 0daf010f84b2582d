# SPDX-License-Identifier: Apache-2.0
"""The inside of a computer: a processor that runs machine code, memory, devices and a bus."""

from verbena.host.assembler import Program
from verbena.host.computer import Computer, Range, Step, Transaction
from verbena.host.core import Core, Stop
from verbena.host.devices import Device, Keyboard, Mouse, Ram
from verbena.host.disk import Disk
from verbena.host.errors import AccessError, AssemblyError, HostError, ProcessorError
from verbena.host.pcie import Pcie

__all__ = [
    "AccessError",
    "AssemblyError",
    "Computer",
    "Core",
    "Device",
    "Disk",
    "HostError",
    "Keyboard",
    "Mouse",
    "Pcie",
    "ProcessorError",
    "Program",
    "Ram",
    "Range",
    "Step",
    "Stop",
    "Transaction",
]
