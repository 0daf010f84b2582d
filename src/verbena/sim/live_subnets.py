# SPDX-License-Identifier: Apache-2.0
"""A live fabric whose subnet is a simulated one, of which virtual time follows the clock.

`verbena fabric --simulated` gives a ``SimulatedSubnet`` to ``subnet_process.running`` in place of a
``Subnet`` in memory, and a ``SimulatedTraffic`` that says what is going on in it.
Packets of programs cross the simulated links, and what a subnet manager sets holds for the flows of
the scenario. Data of verbs programs do not cross them: they go by the same tables, through memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from verbena.manage.agents import MadPacket, Subnet
from verbena.manage.codes import SmState
from verbena.manage.errors import MadError

if TYPE_CHECKING:
    from verbena.manage.agents import MadReceiver, NodeAgent
    from verbena.manage.agents.link_speeds import LinkRate
    from verbena.manage.mad import MadHeader
    from verbena.sim.paced import PacedScenario
    from verbena.subnet_process.live_subnet import LiveSubnet

__all__ = ["SimulatedSubnet", "SimulatedTraffic"]

STEP = 0.001  # seconds of the clock between two looks at a world in which something goes on
SCENARIO_RATES = (
    "--rate is for a subnet in memory: a scenario has the rates of its links in [fabric]"
)
AWAKE = 0.005  # seconds after a packet during which the world is run without a pause


class SimulatedSubnet(Subnet):
    """The subnet of a ``PacedScenario``. ``now`` are seconds of the fabric's clock."""

    def __init__(self, paced: PacedScenario, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.paced, self.nodes = paced, paced.managed.agents
        self._clock, self._awake_until = clock, 0.0
        paced.managed.on_port_event.append(self.port_event)
        paced.managed.on_routes_changed.append(self.routing_changed)
        paced.managed.on_read_counters.append(self.read_counters)

    def attach(self, name: str | NodeAgent, receiver: MadReceiver | None, port: int = 1) -> None:
        """See ``Subnet``."""
        assert receiver is not None

        def take(packet: MadPacket) -> bool:
            self._stay_awake()
            return bool(receiver(packet))

        self.paced.managed.attach(self.node(name).end_port(port), take, first=True)

    def inject(
        self,
        name: str | NodeAgent,
        mad: MadPacket | MadHeader | bytes,
        **headers: int,
    ) -> None:
        """Send a packet of a program at a host, which arrives later."""
        assert isinstance(mad, MadPacket)
        end = self.node(name).end_port(mad.port)
        with suppress(ValueError):  # no wire carries it, such as one to LID 0: it is lost
            self.paced.managed.send(end, [mad])
        self.paced.is_idle = False
        self._stay_awake()

    def _stay_awake(self) -> None:
        self._awake_until = self._clock() + AWAKE

    def cut(self, name: str, port: int) -> None:
        """Take a simulated link down; its ends notice later."""
        self.paced.set_link(name, port, up=False)

    def restore(self, name: str, port: int) -> None:
        """Bring a simulated link back."""
        self.paced.set_link(name, port, up=True)

    def set_loss(self, name: str, port: int, chance: float) -> None:
        """Faults of simulated links are those of the scenario. Raises MadError."""
        raise MadError(
            "--loss is for a subnet in memory: a link of a scenario has its bit_error_rate"
        )

    def set_throttle(self, name: str, port: int, bits_per_second: float) -> None:
        """Rates of simulated links are those of the scenario. Raises MadError."""
        raise MadError(SCENARIO_RATES)

    def set_cable_rate(self, name: str, port: int, rate: LinkRate | None) -> None:
        """See ``set_throttle``."""
        raise MadError(SCENARIO_RATES)

    def advance(self, now: float) -> None:
        """Let virtual time go on."""
        self.now = now
        self.paced.advance()

    @property
    def next_due(self) -> float | None:
        """When virtual time has to go on, in seconds; None: nothing is left to happen."""
        if self.paced.is_idle:
            return None
        return self.now + (0 if self._clock() < self._awake_until else STEP)


class SimulatedTraffic:
    """What a fabric's process says of a ``PacedScenario`` (``FabricTraffic``)."""

    def __init__(self, paced: PacedScenario) -> None:
        self._paced = paced

    def attach(self, live: LiveSubnet) -> None:
        """Let programs ask the subnet administration in virtual time, if there is one."""
        simulated = self._paced.run.manager
        if simulated is None:
            return
        port = live.mad_port(simulated.port.node, simulated.port.number)

        def query(packet: MadPacket) -> None:
            message = live.carried.pop(packet.mad, packet.mad)
            answer = simulated.administration.answer(message, packet, simulated.managed.now)
            if answer is not None:
                live.send_answer(port, packet, answer)

        simulated.on_query = query

    def manager(self) -> str | None:
        """Return what the subnet manager in virtual time is doing, in a sentence."""
        simulated = self._paced.run.manager
        if simulated is None:
            return None
        manager, port = simulated.manager, simulated.port
        problems = f", problems: {'; '.join(manager.problems)}" if manager.problems else ""
        where = f"{SmState(manager.state).name} at {port.node.name}, LID {port.lid}"
        return f"simulated, {where}, {manager.sweeps} sweeps{problems}"

    def describe(self) -> list[str]:
        """Return sentences about the time and the traffic."""
        return self._paced.describe()

    def report(self) -> list[str]:
        """Return the lines of the report at the end."""
        return self._paced.report()
