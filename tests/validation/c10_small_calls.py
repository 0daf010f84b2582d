# SPDX-License-Identifier: Apache-2.0
"""C10: small calls between two programs that poll."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, equal, near
from verbena.host import Pcie
from verbena.host.clock import NEVER
from verbena.host.hca import Node, Wire, connected
from verbena.host.tcp_path import TcpPath

GHZ, GBPS, DELAY_NS = 3.0, 100.0, 500.0
BYTES = 32


def wait(node: Node) -> None:
    """Runs event by event until a completion is there, and polls it."""
    while not (found := node.cq.poll()):
        assert node.machines.clock.next_at < NEVER
        node.run(node.machines.clock.next_at)
    assert not found[0].is_error


def calls(count: int, link: Pcie) -> tuple[float, float]:
    """Calls with a request and an answer by SEND: the cycles that one core is charged for its end
    of a call, without empty polls, and the us of a call."""
    left, right = connected(ghz=GHZ, pcie=link, wire=Wire(GBPS, DELAY_NS))
    inside = {node.computer.name: node.register(0x1000, 4096) for node in (left, right)}
    for node in (left, right):
        node.qp.receive(inside[node.computer.name])

    def call() -> None:
        for sender, receiver in ((left, right), (right, left)):
            sender.qp.send(bytes(BYTES), signalled=False, blueflame=True)
            wait(receiver)
            receiver.qp.receive(inside[receiver.computer.name])

    call()
    before, start = dict(left.driver.spent), left.machines.clock.now
    for _ in range(count):
        call()
    empty = "cq_poll_empty"
    spent = {name: cycles - before.get(name, 0) for name, cycles in left.driver.spent.items()}
    cycles = sum(value for name, value in spent.items() if name != empty)
    return cycles / count, (left.machines.clock.now - start) / count / 1e6


def law(link: Pcie) -> float:
    """The us of a call: each way a request by BlueFlame, the wire, the receive request fetched, and
    the completion behind the data."""
    crossing = 24 + 64, 24, 20 + 16, 24 + BYTES, 24 + 64
    bus = 2 * link.round_trip_ns / 1000 + sum(map(link.time_ps, crossing)) / 1e6
    frame = 14 + 20 + 8 + 12 + BYTES + 4 + 4 + 20
    return 2 * (bus + DELAY_NS / 1000 + frame * 8e-3 / GBPS)


def measure(scope: Scope) -> Iterator[Figure]:
    count = scope.pick(5, 200)
    for round_trip in (900, 400):
        link = Pcie(3, 8, round_trip_ns=round_trip)
        cycles, us = calls(count, link)
        yield near(f"{round_trip} ns on the bus: a call", us, law(link), 0.005, "us")
    yield near("two calls, one after the other", 2 * us, 5.5, 0.1, "us")
    # two posts, a store of one line, a poll with an entry
    yield equal("cycles of one end of a call", cycles, 80 + 80 + 100 + 60)
    rate = GHZ * 1000 / cycles
    yield between("calls of one core, 3 GHz", rate, 10 / 1.5, 10 * 1.5, "M a second")
    sockets = TcpPath(ghz=GHZ).receiver(BYTES).total + TcpPath(ghz=GHZ).sender(BYTES).total
    yield at_least("cycles of one end by TCP sockets, over that", sockets / cycles, 10)


ROW = Row(
    number="C10",
    title="Small calls by software (eRPC, NSDI 2019)",
    setup="Request and answer of 32 bytes by SEND with inline data and BlueFlame; both ends poll "
    "and post their receive again, over 100 Gb/s with 500 ns one way. Cycles are those of the "
    "driver's named costs.",
    expected="one core makes 10 million calls a second, which is 300 cycles at 3 GHz, and a "
    "replicated write, two calls one after the other, takes 5.5 us (abstract): of the rate a "
    "factor of 1.5 is allowed, for the time a bus of 400 ns there and back is assumed, and 10 %.",
    fails="a post, a doorbell or a poll costs another order of magnitude than they do in practice.",
    meaning="With the adapter in the program's hands a call costs some hundred cycles; through "
    "system calls and interrupts it costs more than ten times as many.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    missing="75 Gb/s of large messages by one core: the adapter copies nothing by the processor.",
)
