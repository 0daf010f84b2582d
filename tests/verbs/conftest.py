# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Python verbs: a device, a pair of connected ends, kinds of memory, processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from tests.carriers import carriers_of, value
from tests.sim.fabrics import star
from tests.verbs.side import DEVICE, Host, RemoteSide, Side
from verbena import verbs
from verbena.sim import Hosts, World


@dataclass
class Pair:
    """``near`` is in this process; ``far`` may be in another."""

    near: Side
    far: Side | RemoteSide

    def connect(self, **options: Any) -> None:
        near, far = self.near.info(), self.far.info()
        self.near.connect(far, **options)
        self.far.connect(near, **options)


MakePair = Callable[..., Pair]
PROCESSES = ("one process", "two processes")


def two_hosts() -> Hosts:
    """A simulated fabric: two hosts at a switch, which leads packets back to their sender too."""
    world = World(seed=1)
    star(world, 2)
    return Hosts(world, [DEVICE, "far"])


@dataclass
class Carrier:
    """What takes requests to the other end: ``direct``, RoCE packets of this host to itself
    (``roce``), or packets over a simulated fabric (``sim``)."""

    kind: str
    hosts: Hosts | None = None

    def far(self) -> AbstractContextManager[object]:
        """Within this context, devices are those of the far end's host."""
        return self.hosts["far"].here() if self.hosts else nullcontext()


@pytest.hookimpl(tryfirst=True)  # else the order of the values depends on how pytest was called
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with each carrier with which it has a meaning (tests/carriers.py). All hosts
    of a simulated fabric are in one process, so there ``processes`` has one value."""
    carriers = carriers_of(metafunc, "carrier")
    if carriers and "processes" in metafunc.fixturenames:
        metafunc.parametrize(
            "carrier, processes",
            [
                value(carrier, carrier, processes)
                for carrier in carriers
                for processes in PROCESSES[: 1 if carrier == "sim" else 2]
            ],
            indirect=True,
        )
    elif carriers:
        metafunc.parametrize("carrier", [value(one, one) for one in carriers], indirect=True)


@pytest.fixture
def carrier(request: pytest.FixtureRequest) -> Iterator[Carrier]:
    """What carries the requests; with ``sim`` the test itself runs on a simulated host."""
    if request.param != "sim":
        yield Carrier(request.param)
        return
    hosts = two_hosts()
    with hosts[DEVICE].here():
        yield Carrier("sim", hosts)
    assert hosts.world.check() is None


@pytest.fixture
def ctx(carrier: Carrier) -> Iterator[verbs.Context]:
    with verbs.open_device(DEVICE) as context:
        yield context


@pytest.fixture
def pd(ctx: verbs.Context) -> verbs.PD:
    return ctx.alloc_pd()


@pytest.fixture
def cq(ctx: verbs.Context) -> verbs.CQ:
    return ctx.create_cq(64)


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    child = Host()
    yield child
    child.stop()


@pytest.fixture(params=["alloc", "own"])
def kind(request: pytest.FixtureRequest) -> str:
    """Whose memory is registered: Verbena's or the program's own."""
    return str(request.param)


@pytest.fixture
def processes(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_pair(
    carrier: Carrier, kind: str, processes: str, request: pytest.FixtureRequest
) -> Iterator[MakePair]:
    """make_pair(**options of Side) are two ends that are not connected yet."""
    made: list[Side | RemoteSide] = []

    def make(*, connected: bool = True, options: dict[str, int] | None = None, **side: Any) -> Pair:
        near = Side(kind=kind, **side)
        made.append(near)
        if processes == "one process":
            with carrier.far():
                far: Side | RemoteSide = Side(kind=kind, **side)
        else:
            far = request.getfixturevalue("host").make(kind=kind, **side)
        made.append(far)
        pair = Pair(near, far)
        if connected:
            pair.connect(**(options or {}))
        return pair

    yield make
    for end in made:
        end.close()


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    """Two connected RC ends, over each kind of memory, in one process and in two."""
    return make_pair()


@pytest.fixture
def local_pair(carrier: Carrier) -> Iterator[Pair]:
    """Two connected RC ends in this process, with Verbena's memory."""
    near = Side()
    with carrier.far():
        far = Side()
    both = Pair(near, far)
    both.connect()
    yield both
    near.close()
    far.close()


@pytest.fixture
def near(local_pair: Pair) -> Side:
    return local_pair.near


@pytest.fixture
def far(local_pair: Pair) -> Side:
    assert isinstance(local_pair.far, Side)
    return local_pair.far
