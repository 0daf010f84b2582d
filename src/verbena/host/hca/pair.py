# SPDX-License-Identifier: Apache-2.0
"""Two computers with adapters and a cable between them, connected, in one call.

left, right = connected()
source, target = left.register(0x100000, 4096), right.register(0x100000, 4096)
left.qp.write(source, target)
left.run()
left.cq.poll()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verbena._arguments import checked_arguments, checked_class
from verbena.host.computer import Computer
from verbena.host.core import Stop
from verbena.host.devices import Ram
from verbena.host.errors import HostTypeError
from verbena.host.hca.device import Hca
from verbena.host.hca.driver import CompletionQueue, HcaCosts, HcaDriver
from verbena.host.hca.posting import QueuePair
from verbena.host.hca.regions import Region
from verbena.host.hca.wire import Wire
from verbena.host.iommu import Iommu
from verbena.host.machines import Machines
from verbena.host.pcie import Pcie, Slot, Tlp

RAM = 16 << 20
REGISTERS = 1 << 32


@checked_class(HostTypeError)
@dataclass
class Node:
    """A computer with an adapter, a completion queue and a connected queue pair."""

    machines: Machines
    computer: Computer
    hca: Hca
    driver: HcaDriver
    cq: CompletionQueue
    qp: QueuePair

    @property
    def slot(self) -> Slot:
        """The adapter's link."""
        assert self.hca.slot is not None
        return self.hca.slot

    def register(self, address: int, length: int, **settings: Any) -> Region:
        """Registers memory (``HcaDriver.register``)."""
        return self.driver.register(address, length, **settings)

    def run(self, until: int | None = None) -> Stop:
        """Runs both computers until nothing is left to do, or up to a time in ps."""
        return self.machines.run() if until is None else self.machines.run(until=until)

    def watch(self) -> list[Tlp]:
        """A list that gets every transaction of the adapter's link from now on."""
        seen: list[Tlp] = []
        self.slot.observers.append(seen.append)
        return seen


@checked_arguments(HostTypeError)
def add_node(
    machines: Machines,
    name: str,
    *,
    ghz: float = 3.0,
    cores: int = 1,
    pcie: Pcie | None = None,
    iommu: Iommu | None = None,
    costs: HcaCosts | None = None,
    vector: int | None = None,
    ram: int = RAM,
    hca: dict[str, int] | None = None,
    queue_pair: dict[str, Any] | None = None,
    driver: dict[str, int] | None = None,
    charged: bool = False,
    msix: bool = False,
    **computer: Any,
) -> Node:
    """Adds a computer with ``ram`` bytes from 0 on, of which the driver has the upper half.

    ``hca`` are settings of ``Hca``, ``driver`` of ``HcaDriver``, ``queue_pair`` of its
    ``queue_pair``; ``vector`` is that of its completion queue's interrupts. ``charged``: what the
    driver does takes its first core the time of the costs, where it is free otherwise. ``msix``:
    the driver uses the MSI-X table.
    """
    one = machines.computer(name, ghz=ghz, cores=cores, **computer)
    one.map(Ram(ram), 0)
    device = Hca(**(hca or {}))
    one.map(device, REGISTERS, pcie=Pcie() if pcie is None else pcie, iommu=iommu)
    core = one.cores[0]

    def charge(name: str, cycles: int) -> None:
        core.charge(name, cycles)

    made = HcaDriver(
        device,
        (ram // 2, ram // 2),
        costs=costs,
        charge=charge if charged else None,
        msix=msix,
        **(driver or {}),
    )
    cq = made.completion_queue(1024, vector=vector)
    qp = made.queue_pair(cq, **(queue_pair or {}))
    return Node(machines, one, device, made, cq, qp)


@checked_arguments(HostTypeError)
def connected(
    *, wire: Wire | None = None, iommu: bool | dict[str, Any] = False, **settings: Any
) -> tuple[Node, Node]:
    """Two nodes, "left" and "right", with the same settings (``add_node``) and connected QPs.

    ``iommu`` True or settings of ``Iommu``: each has one.
    """
    cable = Wire() if wire is None else wire
    machines = Machines(lookahead_ns=cable.delay_ps / 1000)
    arguments = iommu if isinstance(iommu, dict) else {}
    left, right = (
        add_node(
            machines,
            name,
            iommu=Iommu(**arguments) if iommu is not False else None,
            **settings,
        )
        for name in ("left", "right")
    )
    cable.connect(left.hca, right.hca)
    left.qp.connect(right.qp)
    return left, right
