# SPDX-License-Identifier: Apache-2.0
"""Arguments of a type that a parameter of verbena.host does not take."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.wrong_arguments import Parameter, parameters_of, refusal
from verbena.host import (
    Agenda,
    Computer,
    Device,
    Disk,
    HostError,
    Keyboard,
    Machines,
    Pcie,
    Program,
    Ram,
    Timeline,
)
from verbena.host.kernel import System

MODULES = [
    "verbena.host",
    "verbena.host.comparison",
    "verbena.host.hca",
    "verbena.host.kernel",
    "verbena.host.kernel.measured",
    "verbena.host.lessons",
    "verbena.host.receive_path",
    "verbena.host.tcp_path",
]
RECORDS = {
    "Call", "Completion", "CompletionEntry", "CompletionEntry.packed", "Crossing", "CycleTotals",
    "DisassembledLine", "Frame", "Lesson", "MeasuredCost", "Packet", "PciTransaction",
    "ProcessCycles", "Range", "Received", "Refusal", "Region", "Region.page_gone", "Row",
    "SendRequest", "Side", "Step", "Tlp", "Transaction", "Way",
}  # fmt: skip
"""Made by the package, for its users to read."""
DEVICES = ("Device", "Disk", "Display", "EthernetAdapter", "Hca", "IoApic", "Keyboard",
           "LocalApics", "Mouse", "Msix", "Timer")  # fmt: skip
CALLED_BY_COMPUTERS = {
    *(f"{device}.{name}" for device in DEVICES for name in ("peek", "read", "write")
      if (device, name) != ("Mouse", "write")),
    "Agenda.run_due", "Cable.drop", "Cable.send", "Caches.dma_write", "Computer.dma_is_under_way",
    "Computer.dma_read", "Computer.dma_write", "Computer.idle_until", "Computer.interrupt_from",
    "Computer.hold_core", "Computer.run_cores", "Computer.show_memory", "Computer.stop_for",
    "Computer.time_at", "Computer.time_of", "Core.checked", "Core.locate", "Core.run", "Core.show",
    "DemandPages.bring", "DemandPages.physical", "DemandPages.pin",
    "DemandPages.unpin", "Device.combines", "Device.dma_failed", "Disk.dma_failed",
    "EthernetAdapter.arrive", "Hca.arrive", "Hca.combines",
    "Hca.complete", "Hca.dma_failed", "Hca.end", "Hca.flush_receives", "Hca.gather", "Hca.note",
    "Hca.page_in", "Hca.transmit", "HcaDriver.charge", "HcaDriver.page_address",
    "HcaDriver.posted_id", "HcaDriver.remember", "HcaDriver.store", "Iommu.translate",
    "Pcie.read_bytes", "Pcie.time_ps", "Pcie.write_bytes", "PciBus.connect",
    *(f"{bus}.{name}" for bus in ("PciSlot", "Slot") for name in (
        "carry_to_device", "carry_to_memory", "give_up_text", "load_unanswered", "refuse_read",
        "store_unanswered")),
    "PciSlot.drop", "PciSlot.tally", "PciSlot.load", "PciSlot.pull", "PciSlot.store",
    "LocalApics.deliver", "LocalApics.targets", "Msix.covers", "ResidentPages.bring",
    "ResidentPages.physical", "ResidentPages.pin", "ResidentPages.unpin", "Slot.answer", "Slot.ask",
    "Slot.load", "Slot.message", "Slot.read_from_memory", "Slot.requests", "Slot.store",
    "Slot.write_to_memory", "Timeline.hop", "Wire.send",
}  # fmt: skip
BY_THEMSELVES = {
    "Agenda.add", "Computer.at", "Computer.read", "Computer.write", "Device.at", "Device.dma_read",
    "Device.dma_write", "Device.interrupt",
}  # fmt: skip
"""They run for each event, and check what they are given in their own way: tested below."""


@pytest.mark.parametrize(
    "one", parameters_of(MODULES, RECORDS | CALLED_BY_COMPUTERS | BY_THEMSELVES), ids=str
)
def test_an_argument_without_sense_is_named(one: Parameter) -> None:
    text = refusal(one, HostError)
    assert f"{one.name} is nonsense, and not " in text


class Plain(Device):
    def read(self, offset: int, size: int) -> int:
        return 0


def plain() -> Plain:
    computer, device = Computer(), Plain(8)
    computer.map(Ram(4096), 0)
    computer.map(device, 0x10000)
    return device


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Agenda().add("soon", print), "a whole number.* its time is 'soon'"),
        (lambda: Agenda().add(5, None), "a function without arguments.* its call is None"),
        (lambda: Computer().at(1.5, print), "a whole number.* its time is 1.5"),
        (lambda: Computer().at(5, None), "its call is None"),
        (lambda: plain().at(1.5, print), "at 1.5 ps.*a whole number"),
        (lambda: plain().at(5, None), "its call is None"),
        (lambda: plain().dma_write("0x0", b"x"), "address is '0x0'.*a whole number"),
        (lambda: plain().dma_write(0, "x"), "data is 'x'.*data are bytes"),
        (lambda: plain().dma_read(0, None, print), "size is None"),
        (lambda: plain().dma_read(0, 8, None), "then is None.*a function"),
        (lambda: plain().interrupt("33"), "vector is '33'.*whole"),
        (lambda: plain().interrupt(33, 0.5), "core is 0.5.*whole"),
        (lambda: Computer().read("0x0", 8), "address is '0x0'.*whole number from 0"),
        (lambda: Computer().read(-8, 8), "address is -8.*whole number from 0"),
        (lambda: Computer().read(0, -8), "size is -8.*from 0 on"),
        (lambda: Computer().write(0, "text"), "data is 'text'.*bytes"),
        (lambda: Computer().write(None, b"x"), "address is None"),
    ],
)
def test_what_runs_for_each_event_names_it_too(call: object, says: str) -> None:
    with pytest.raises(HostError, match=f"(?s){says}"):
        call()


def test_a_keyword_that_is_unknown_shows_those_that_are_known() -> None:
    with pytest.raises(
        HostError, match="Computer: there is no parameter ram: there are ghz, cores"
    ):
        Computer(ram="x")


def test_a_keyword_handed_on_is_the_computers() -> None:
    with pytest.raises(HostError, match="Computer: there is no parameter hz"):
        Machines().computer("left", hz=3)


def test_what_is_missing_or_too_much_is_said() -> None:
    with pytest.raises(HostError, match=r"Computer\.map: base is missing"):
        Computer().map(Ram(16))
    with pytest.raises(HostError, match=r"Computer\.map: device and base are missing"):
        Computer().map()
    with pytest.raises(HostError, match="Ram: 2 arguments by position, and it takes 1 so"):
        Ram(16, 17)


def test_it_is_a_type_error_also() -> None:
    with pytest.raises(TypeError):
        Ram("16")


def test_nan_and_infinity_are_refused() -> None:
    with pytest.raises(HostError, match="ghz is nan, and not a finite number"):
        Computer(ghz=math.nan)
    Pcie(round_trip_ns=900.0)
    with pytest.raises(HostError, match="round_trip_ns is inf, and not a finite number"):
        Pcie(round_trip_ns=math.inf)  # also after a call with the same types


def test_a_list_is_looked_into_each_time() -> None:
    Timeline([Computer()])
    with pytest.raises(HostError, match=r"not a list \(each: a Computer\)"):
        Timeline([3])


def test_numbers_and_flags_of_other_types_are_taken() -> None:
    assert Computer(ghz=Fraction(7, 2), cores=np.int64(2)).cycle_ps == Fraction(2000, 7)
    assert System(adapter=1).adapter is not None
    assert Program(bytearray(b"\xf4")).origin == 0
    with pytest.raises(HostError, match="adapter is 2, and not True or False"):
        System(adapter=2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Computer(ghz=math.inf), "ghz is inf, and not a finite number"),
        (lambda: Computer(ghz=1e-9), "a clock of 0.001 to 1000 GHz"),
        (lambda: Ram(1 << 60), "take less memory"),
        (lambda: plain().computer.load(Program.assemble("hlt"), 1), "no core 1: there are 0 to 0"),
        (lambda: next(plain().computer.steps(-1)), "no core -1: there are 0 to 0"),
        (lambda: plain().computer.run(until=-1), "at least 0 instructions and 0 ps"),
        (lambda: plain().computer.run(instructions=-1), "at least 0 instructions"),
        (lambda: Machines().run(until=-1), "at least 0 instructions and 0 ps"),
        (lambda: plain().computer.cores[0].break_at(-1), "an address is 0 to 2.64 - 1"),
        (lambda: Keyboard(2, vector=300), "interrupt is 32 to 255.*not 300"),
        (lambda: Disk(b"", latency_us=-1.0), "a disk's latency is at least 0 us, not -1"),
        (lambda: System(tick_us=1e9), "a tick has 1 us to 1 s"),
        (lambda: System().advance(-1), "time goes on: -1 us are below 0"),
    ],
)
def test_a_value_without_meaning_is_refused(call: object, says: str) -> None:
    with pytest.raises(HostError, match=f"(?s){says}"):
        call()


def test_a_device_may_use_numbers_and_arrays_of_numpy() -> None:
    device, seen = plain(), []
    device.dma_write(np.int64(8), np.arange(4, dtype=np.uint8))
    device.at(np.int64(5), lambda: device.dma_read(np.uint32(8), np.int8(4), seen.append))
    assert device.computer is not None
    device.computer.run()
    assert seen == [bytes(range(4))]
