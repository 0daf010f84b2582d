# SPDX-License-Identifier: Apache-2.0
"""What the command line asks of a running fabric: its state, and links that fail and return.

A request is JSON, ``{"do": NAME, …}``, and so is the answer (role CONTROL, ``client.py``).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from verbena.manage.codes import PortPhysicalState, PortState
from verbena.manage.errors import MadError

from .link_limits import link_limits
from .messages import Welcome

if TYPE_CHECKING:
    from verbena.manage.agents import NodePort

    from .ip_plan import IpPlan
    from .live_subnet import LiveSubnet
    from .server import FabricConnection, FabricServer

__all__ = ["FabricControl", "FabricTraffic"]

Request = dict[str, Any]


class FabricTraffic(Protocol):
    """The traffic and the time of a simulated fabric."""

    def attach(self, live: LiveSubnet) -> None:
        """Called once the programs' packets can be sent and received."""

    def manager(self) -> str | None:
        """Return what its subnet manager is doing, or None if it has none."""

    def describe(self) -> list[str]:
        """Return sentences about the time and the traffic."""

    def report(self) -> list[str]:
        """Return the lines of the report at the end."""


class FabricControl:
    """Serves role CONTROL. ``programs`` tells which processes are attached, by host.

    ``traffic`` is that of a simulated fabric.
    """

    def __init__(
        self,
        server: FabricServer,
        live: LiveSubnet,
        plan: IpPlan,
        manager: Callable[[], str],
        programs: Callable[[], dict[str, list[int]]],
        traffic: FabricTraffic | None = None,
    ) -> None:
        self._traffic = traffic
        self._server, self._live, self._plan = server, live, plan
        self._manager, self._programs = manager, programs
        self._requests: dict[str, Callable[[Request], Request]] = {
            "status": self._status,
            "host": self._host,
            "stop": self._stop,
            "cut": lambda request: self._change(request["link"], cut=True),
            "loss": self._lose,
            "rate": self._slow,
            "restore": lambda request: self._change(request["link"], cut=False),
        }

    def __call__(self, connection: FabricConnection) -> Welcome:
        """Answer a request."""
        try:
            request = json.loads(connection.hello.data)
            answer = self._requests[request["do"]](request)
        except MadError as error:
            return Welcome.refused(errno.EINVAL, str(error))
        except (ValueError, KeyError, TypeError, RecursionError):
            self._server.refused += 1
            return Welcome.refused(errno.EINVAL, "this fabric does not know the request")
        return Welcome(0, json.dumps(answer).encode())

    # ---- requests ------------------------------------------------------------------------------

    def _status(self, request: Request) -> Request:
        self._live.catch_up()
        nodes = self._live.subnet.nodes.values()
        states: dict[str, int] = {}
        for node in nodes:
            for port in node.ports.values():
                if port.peer is not None:
                    name = PortState(port.state).name
                    states[name] = states.get(name, 0) + 1
        return {
            "name": self._server.name,
            "pid": os.getpid(),
            "topology": self._live.fabric.name,
            "hosts": sum(not node.is_switch for node in nodes),
            "switches": sum(node.is_switch for node in nodes),
            "ports": states,
            "cut": [_place(one) for one in self._links() if one.is_cut],
            "loss": self._losses(),
            "slow": self._slowed(),
            "manager": self._manager(),
            "addresses": self._plan.first_and_last(),
            "programs": self._programs(),
            "failures": self._server.failures,
            "refused": self._server.refused,
            "traffic": [] if self._traffic is None else self._traffic.describe(),
        }

    def _host(self, request: Request) -> Request:
        node = self._live.host(str(request["host"]))
        return {
            "host": node.name,
            "ports": node.num_ports,
            "addresses": self._plan.texts(node),
        }

    def _stop(self, request: Request) -> Request:
        self._live.catch_up()
        self._server.stop()
        report = [] if self._traffic is None else self._traffic.report()
        return {"pid": os.getpid(), "report": report}

    def _change(self, link: str, *, cut: bool) -> Request:
        self._live.catch_up()
        port = self.find_link(str(link))
        peer = port.peer
        assert peer is not None
        ends = f"{_place(port)} and {_place(peer)}"
        if port.is_cut == cut:
            state = "cut already" if cut else "whole already" + self._disabled(port, peer)
            raise MadError(f"the link between {ends} is {state}")
        act = self._live.subnet.cut if cut else self._live.subnet.restore
        act(port.node.name, port.number)
        return {"ends": ends}

    def _lose(self, request: Request) -> Request:
        return {"ends": self.lose(str(request["link"]), float(request["chance"]))}

    def lose(self, link: str, chance: float) -> str:
        """Let a link, or with the name "all" each, lose packets with a chance from 0 to 1.

        Returns which it is. Raises MadError, which says what to do.
        """
        subnet = self._live.subnet
        links, ends = self._named(link)
        for port in links:
            subnet.set_loss(port.node.name, port.number, chance)
        return ends

    def _slow(self, request: Request) -> Request:
        return {"ends": self.slow(str(request["link"]), str(request["rate"]))}

    def slow(self, link: str, text: str) -> str:
        """Give a link, or with the name "all" each, another rate for data.

        "1xSDR": it trains to that at most; "10Gb/s": its ends take no more; "full": neither.
        Returns which it is. Raises MadError, which says what to do.
        """
        throttle, cable_rate = link_limits(text)
        subnet = self._live.subnet
        links, ends = self._named(link)
        for port in links:
            subnet.set_throttle(port.node.name, port.number, throttle)
            subnet.set_cable_rate(port.node.name, port.number, cable_rate)
        return ends

    def _named(self, link: str) -> tuple[list[NodePort], str]:
        """Return a port of each link that a name means, and what they are in words."""
        self._live.catch_up()
        if link == "all":
            links = list(self._links())
            return links, f"each of the {len(links)} links"
        port = self.find_link(link)
        assert port.peer is not None
        return [port], f"the link between {_place(port)} and {_place(port.peer)}"

    def _slowed(self) -> dict[str, str]:
        """The rates of links that were given another one, each by one end."""
        found = {}
        for port in self._links():
            if port.cable_rate is not None:
                found[_place(port)] = str(port.cable_rate)
            elif port.throttle:
                found[_place(port)] = f"{port.throttle / 1e9:.6g}Gb/s"
        return found

    def _losses(self) -> dict[str, float]:
        """The chances of links that lose packets, each by one end; "all" if they are the same."""
        found = {_place(port): port.loss for port in self._links()}
        chances = set(found.values())
        if len(chances) == 1 and len(found) > 1 and any(chances):
            return {"all": chances.pop()}
        return {name: chance for name, chance in found.items() if chance}

    def _disabled(self, *ports: NodePort) -> str:
        """Return what to do about ports that a management program has disabled."""
        for port in ports:
            if port.physical_state == PortPhysicalState.DISABLED:
                node, at = port.node, f"port {port.number}"
                if node.is_switch:
                    host = next(iter(self._live.fabric.hosts))
                    asks = f"--host {host} -- ibportstate {node.ports[0].lid} {port.number}"
                else:
                    asks = f"--host {node.name} -- ibportstate -C verbena0 -P {port.number} -D 0"
                    asks += f" {port.number}"
                return (
                    f", and {at} of {node.name} is disabled by management: `verbena run --fabric"
                    f" {self._server.name} {asks} enable` enables it"
                )
        return ""

    # ---- links ---------------------------------------------------------------------------------

    def _links(self) -> Iterator[NodePort]:
        """One port of each link."""
        for node in self._live.subnet.nodes.values():
            for port in node.ports.values():
                peer = port.peer
                if peer is not None and (node.name, port.number) < (peer.node.name, peer.number):
                    yield port

    def find_link(self, text: str) -> NodePort:
        """Return one port of the link "A-B" or "A:PORT". Raises MadError, which says what to do."""
        nodes = self._live.subnet.nodes
        name, colon, number = text.rpartition(":")
        if colon and name in nodes and number.isdecimal():
            port = nodes[name].ports.get(int(number))
            if port is None or port.peer is None:
                raise MadError(f"{name} has no cable at port {number}")
            return port
        for at in (place for place, letter in enumerate(text) if letter == "-"):
            a, b = text[:at], text[at + 1 :]
            if a in nodes and b in nodes:
                return self._between(a, b)
        if text in nodes:
            raise MadError(f"{text} is a node: name one of its links, {self._links_of(text)}")
        raise MadError(
            f"{text!r} is no link: write the names of its two nodes, A-B, or a node and its port,"
            " A:1"
        )

    def _links_of(self, name: str) -> str:
        """The links of a node, as they are written."""
        peers = (port.peer for port in self._live.subnet.nodes[name].ports.values())
        names = dict.fromkeys(f"{name}-{peer.node.name}" for peer in peers if peer is not None)
        return ", ".join(names) or "of which it has none"

    def _between(self, a: str, b: str) -> NodePort:
        ports = self._live.subnet.nodes[a].ports.values()
        found = [port for port in ports if port.peer is not None and port.peer.node.name == b]
        if not found:
            raise MadError(f"no cable joins {a} and {b}; {a} has {self._links_of(a)}")
        if len(found) > 1:
            each = ", ".join(f"{a}:{port.number}" for port in found)
            raise MadError(f"{len(found)} cables join {a} and {b}: say which one, of {each}")
        return found[0]


def _place(port: NodePort) -> str:
    return f"{port.node.name}:{port.number}"
