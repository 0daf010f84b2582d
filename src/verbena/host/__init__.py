# SPDX-License-Identifier: Apache-2.0
"""The inside of a computer: a processor that runs machine code, memory, devices and a bus."""

from verbena.host.assembler import Program
from verbena.host.caches import CacheCosts, Caches
from verbena.host.clock import Agenda
from verbena.host.computer import Computer
from verbena.host.computer_records import Range, Step, Transaction
from verbena.host.consoles import Display, Timer
from verbena.host.core import Core, Stop
from verbena.host.costs import Costs, Ledger
from verbena.host.device_bus import DeviceFault
from verbena.host.devices import Device, Keyboard, Mouse, Ram
from verbena.host.disassembler import DisassembledLine, disassemble
from verbena.host.disk import Disk
from verbena.host.errors import (
    AccessError,
    AssemblyError,
    DeviceError,
    HostError,
    ProcessorError,
    UnansweredError,
)
from verbena.host.interrupt_controller import InterruptController
from verbena.host.interrupt_message import message_address
from verbena.host.io_apic import IoApic
from verbena.host.iommu import Iommu, IommuFault
from verbena.host.local_apics import LocalApics
from verbena.host.machines import Machines
from verbena.host.msix import Msix
from verbena.host.nic import Cable, EthernetAdapter
from verbena.host.pci import EmptySlot, PciBus
from verbena.host.pci_arbiter import PciEnd, PciTransaction
from verbena.host.pci_slot import PciSlot
from verbena.host.pcie import Pcie, Slot, Tlp
from verbena.host.timeline import Timeline

__all__ = [
    "AccessError",
    "Agenda",
    "AssemblyError",
    "Cable",
    "CacheCosts",
    "Caches",
    "Computer",
    "Core",
    "Costs",
    "Device",
    "DeviceError",
    "DeviceFault",
    "DisassembledLine",
    "Disk",
    "Display",
    "EmptySlot",
    "EthernetAdapter",
    "HostError",
    "InterruptController",
    "IoApic",
    "Iommu",
    "IommuFault",
    "Keyboard",
    "Ledger",
    "LocalApics",
    "Machines",
    "Mouse",
    "PciBus",
    "PciEnd",
    "PciSlot",
    "PciTransaction",
    "Msix",
    "Pcie",
    "ProcessorError",
    "Program",
    "Ram",
    "Range",
    "Slot",
    "Step",
    "Stop",
    "Timeline",
    "Timer",
    "Tlp",
    "Transaction",
    "UnansweredError",
    "disassemble",
    "message_address",
]
