# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: fixtures with a device, a pair of queue pairs, and a simulated fabric.

pytest loads it by the entry point ``pytest11`` wherever Verbena is installed, so it imports the
rest of Verbena only in fixtures. ``@pytest.mark.verbena_faults("drop 1%; seed 7")`` injects faults
into the packets of a test's devices; packets need ``pytest --verbena-carrier roce``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verbena.sim.run import Result
    from verbena.verbs import CQ, MR, PD, QP, Context

__all__ = ["VerbenaPair"]

_CARRIER = "VERBENA_CARRIER"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the carrier."""
    parser.getgroup("verbena").addoption(
        "--verbena-carrier",
        choices=("auto", "direct", "roce"),
        help="how the devices of Verbena reach their peers: roce sends packets, also in a process",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and set the carrier, which a process chooses once."""
    config.addinivalue_line(
        "markers", "verbena_faults(*rules, seed=None): faults in the packets of the test's devices"
    )
    carrier = config.getoption("--verbena-carrier")
    if carrier is not None:
        os.environ[_CARRIER] = carrier


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose faults no device would have."""
    fixtures = getattr(item, "fixturenames", ())
    for marker in item.iter_markers("verbena_faults"):
        if not marker.args:
            pytest.fail(
                'verbena_faults names no fault: @pytest.mark.verbena_faults("drop 1%")',
                pytrace=False,
            )
    if item.get_closest_marker("verbena_faults") and "verbena_device" not in fixtures:
        pytest.fail(
            "verbena_faults has an effect on the devices of verbena_device and verbena_pair alone:"
            " the test has to use one of these fixtures",
            pytrace=False,
        )


@dataclass(frozen=True)
class VerbenaPair:
    """Two connected RC queue pairs of one device, with a protection domain and a CQ."""

    device: Context
    pd: PD
    cq: CQ
    here: QP
    there: QP

    def memory(self, nbytes: int = 4096) -> MR:
        """Return new memory with all kinds of access. Raises TypeError and ValueError."""
        if isinstance(nbytes, bool) or not isinstance(nbytes, int):
            raise TypeError(f"nbytes is a whole number, and not {nbytes!r}")
        if nbytes < 1:
            raise ValueError(f"nbytes is 1 or more, and not {nbytes}")
        from verbena.verbs import AccessFlags

        return self.pd.alloc(
            nbytes,
            AccessFlags.LOCAL_WRITE
            | AccessFlags.REMOTE_WRITE
            | AccessFlags.REMOTE_READ
            | AccessFlags.REMOTE_ATOMIC,
        )


@pytest.fixture
def verbena_device(request: pytest.FixtureRequest) -> Iterator[Context]:
    """An open device with the faults of the test's markers; it is closed after the test."""
    from verbena import fault, verbs

    rules = list(request.node.iter_markers("verbena_faults"))
    if rules and os.environ.get(_CARRIER) != "roce":
        pytest.fail(
            "faults are in packets, and requests within a host need none: run pytest"
            " --verbena-carrier roce",
            pytrace=False,
        )
    with verbs.open_device() as device:
        for marker in rules[:1]:
            fault.set_rules(device, *marker.args, **marker.kwargs)
        yield device


@pytest.fixture
def verbena_pair(verbena_device: Context) -> VerbenaPair:
    """Two connected queue pairs of ``verbena_device``: a VerbenaPair."""
    from verbena import verbs

    pd = verbena_device.alloc_pd()
    cq = verbena_device.create_cq(256)
    here, there = (pd.create_qp(send_cq=cq) for _ in range(2))
    verbs.connect_pair(here, there)
    return VerbenaPair(verbena_device, pd, cq, here, there)


@pytest.fixture
def verbena_fabric() -> Callable[..., Result]:
    """A function that runs programs on simulated hosts.

    ``verbena_fabric({"h0": server, "h1": client})`` returns what ``verbena.sim.run`` returns. The
    hosts are on a ring of as many switches, or on ``fabric``; other keywords are those of
    ``verbena.sim.run``.
    """

    def run(programs: dict[str, Any], fabric: Any = None, **options: Any) -> Result:
        from verbena import fabrics, sim

        if fabric is None:
            fabric = fabrics.ring(max(3, len(programs)), rate="100GbE", length_m=5)
        return sim.run(programs, fabric, **options)

    return run
