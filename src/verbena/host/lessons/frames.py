# SPDX-License-Identifier: Apache-2.0
"""The steps of a lesson, each with a sentence: instructions, interrupts, transactions, packets.

``verbena step`` shows them. The same lesson always has the same frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host.clock import NEVER
from verbena.host.computer_records import Step
from verbena.host.disk import Disk
from verbena.host.errors import HostTypeError
from verbena.host.hca.packets import Packet
from verbena.host.lessons.scene import Scene
from verbena.host.pcie import Tlp


@dataclass(frozen=True)
class Frame:
    """One step: its time in ps, what ran or crossed a link, and what it means."""

    at: int
    what: str
    says: str

    def __str__(self) -> str:
        return f"{self.at / 1e6:10.3f} us  {self.what}\n               {self.says}"


@checked_arguments(HostTypeError)
def frames_of(scene: Scene) -> Iterator[Frame]:
    """Runs a scene. ProcessorError if its program has a fault that nobody handles."""
    for step in scene.computer.steps():
        yield from _others(scene, before=step.at)
        if step.interrupt is not None:
            yield Frame(
                step.at,
                f"interrupt {step.interrupt}",
                "The core stops its program, saves where it was, and goes on at the handler, "
                f"{step.address:#x}.",
            )
        core = scene.computer.cores[0]
        ends = core.waits and scene.computer.clock.next_at == NEVER
        yield _instruction(step, ends=ends, stops=core.state.halted and not core.waits)
        yield from _others(scene)
    yield from _others(scene)


def _others(scene: Scene, before: int | None = None) -> Iterator[Frame]:
    """What was seen, up to a time if one is given."""
    scene.seen.sort(key=lambda one: one[0])
    while scene.seen and (before is None or scene.seen[0][0] < before):
        at, where, what = scene.seen.pop(0)
        if isinstance(what, Packet):
            yield _packet(at, what)
        else:
            yield _transaction(at, where, what, _failure(scene, what) if not where else "")


def _failure(scene: Scene, tlp: Tlp) -> str:
    """Why the command has failed whose end an interrupt tells; empty if it has not."""
    for device in scene.computer.devices:
        if tlp.kind == "MSI" and type(device).__name__ == tlp.who and isinstance(device, Disk):
            return "" if device.failure is None else f" The command has failed: {device.failure}."
    return ""


def _instruction(step: Step, *, ends: bool, stops: bool) -> Frame:
    """``ends``: the core waits for an interrupt, and no event is left. ``stops``: it has halted
    with interrupts off."""
    text, _, comment = step.text.partition(";")
    says = [comment.strip()[:1].upper() + comment.strip()[1:] + "."] if comment.strip() else []
    changed = {name: value for name, value in step.changed.items() if name != "flags"}
    if changed:
        says.append(", ".join(f"{name} is {value:#x}" for name, value in changed.items()) + ".")
    for one in step.bus:
        who = type(one.device).__name__
        if one.write:
            says.append(f"The store of {one.value:#x} goes to the {who}, at {one.address:#x}.")
        else:
            says.append(f"The {who} answers the load at {one.address:#x} with {one.value:#x}.")
    name = text.split()[0].lower() if text.split() else ""
    if name == "hlt" and stops:
        says.append("The core halts for good: interrupts are off, so that none wakes it.")
    elif name == "hlt":
        ending = ", and nothing is left that could raise one" if ends else ""
        says.append(f"The core is idle until an interrupt{ending}.")
    return Frame(step.at, text.strip(), " ".join(says) or "Only flags or memory change.")


def _transaction(at: int, where: str, tlp: Tlp, failure: str) -> Frame:
    place = f" of the {where} computer" if where else ""
    who, count = f"{tlp.who}{place}", f"{tlp.data} bytes"
    says = {
        ("MWr", True): f"DMA: the {who} writes {count} to memory at {tlp.address:#x}.",
        ("MWr", False): f"The processor's store is on its way to the {who}: {count}, posted, so "
        "that the processor goes on.",
        ("MRd", True): f"DMA: the {who} asks for {count} of memory at {tlp.address:#x}.",
        ("MRd", False): f"The processor asks the {who} for {count}, and waits.",
        ("CplD", True): f"The {who} answers with {count}.",
        ("CplD", False): f"The memory answers the {who} with {count}.",
        ("Cpl", False): f"There is no memory at {tlp.address:#x}: the {who} gets no bytes.",
        ("MSI", True): f"The {who} sends its interrupt, which is a write of 4 bytes.{failure}",
    }[tlp.kind, tlp.up]
    towards = "to memory" if tlp.up else "to the device"
    return Frame(at, f"PCIe {towards}: {tlp.kind}, {tlp.bytes} bytes with headers", says)


def _packet(at: int, packet: Packet) -> Frame:
    kind = packet.opcode.name.replace("_", " ") if packet.reply is None else packet.reply.value
    return Frame(
        at,
        f"wire: {kind}, {packet.wire_bytes} bytes",
        f"A frame of RoCE v2 with {len(packet.data)} bytes of data is on the wire.",
    )
