# SPDX-License-Identifier: Apache-2.0
"""The core does what the model of verbs says, in random programs, over every carrier.

A failing program is shrunk and printed as one that can be run by itself. ``make model`` runs many
more of them, with a seed that it prints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.compare import Difference, Program, forget_core
from tests.model.core import Setting
from tests.model.machine import Machine
from tests.model.reference.words import Access, Place, Recv, Send, Sge
from tests.model.worker import SIZE

EXAMPLES = int(os.environ.get("VERBENA_MODEL_EXAMPLES", "0"))
"""Programs for each setting; 0 stands for the few, always the same, of the test suite."""

UD_ATTRIBUTES = {"PKEY_INDEX", "PORT", "QKEY"}
SETTINGS = [Setting("direct", 1), Setting("direct", 2), Setting("roce", 1), Setting("roce", 2)]
SETTINGS += [Setting("sim", 1)]


def profile(examples: int, steps: int) -> settings:
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,  # the program says it better
    )


def search(machine: type[Machine], chosen: settings) -> None:
    difference = ""
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Difference as found:
        difference = str(found)
    if difference:
        pytest.fail(difference, pytrace=False)


@pytest.fixture(params=SETTINGS, ids=lambda s: f"{s.carrier}, {s.processes} processes")
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    yield request.param
    forget_core(request.param)


def datagram_ends(do: Program, srq: bool) -> None:
    """A UD queue pair on each side, in RTS, in a group, with a receive; B's of an SRQ perhaps."""
    for process, n in (("A", 1), ("B", 2)):
        do.alloc_pd(process=process, name=f"pd{n}")
        do.create_cq(process=process, name=f"cq{n}")
        place = Place("own", 0)
        do.reg_mr(name=f"mr{n}", pd=f"pd{n}", place=place, length=SIZE, access=Access(15))
        shared = f"srq{n}" if srq and n == 2 else None
        if shared:
            do.create_srq(name=shared, pd=f"pd{n}", max_wr=8, max_sge=2)
        cqs = {"send_cq": f"cq{n}", "recv_cq": f"cq{n}"}
        caps = {"cap": (8, 8, 2, 2, 64), "sig_all": False}
        do.create_qp(name=f"qp{n}", pd=f"pd{n}", kind="UD", srq=shared, **cqs, **caps)
        for to, given in (("INIT", UD_ATTRIBUTES), ("RTR", set()), ("RTS", {"SQ_PSN"})):
            do.modify(name=f"qp{n}", to=to, given=given, access=Access(15), qkey=1)
        do.attach(name=f"qp{n}", group="group1")
        receive = Recv(10 + n, (Sge(Place("own", 1000), 600, f"mr{n}"),))
        if shared:
            do.post_srq_recv(name=shared, requests=(receive,))
        else:
            do.post_recv(name=f"qp{n}", requests=(receive,))


def send_to_group(do: Program) -> None:
    sges = (Sge(Place("own", 0), 64, "mr1"),)
    do.post_send(name="qp1", requests=(Send(1, "SEND", sges, to="group1", qkey=1),))


@pytest.mark.parametrize("setting", SETTINGS[:2], indirect=True)
def test_a_datagram_to_a_group(setting: Setting) -> None:
    """Random programs meet it seldom."""
    with Program(setting) as do:
        datagram_ends(do, srq=False)
        send_to_group(do)
        assert not any(qp.receives for qp in do.world.qps.values())


@pytest.mark.parametrize("setting", SETTINGS[:2], indirect=True)
def test_a_limit_that_is_reached(setting: Setting) -> None:
    with Program(setting) as do:
        datagram_ends(do, srq=True)
        do.modify_srq(name="srq2", max_wr=16, limit=1)
        assert do.world.srqs["srq2"].limit == 1
        send_to_group(do)
        assert do.world.srqs["srq2"].limit == 0


@pytest.mark.timeout(0 if EXAMPLES else 600)  # shrinking takes its time
def test_random_programs(setting: Setting) -> None:
    machine = type("RandomProgram", (Machine,), {"setting": setting})
    search(machine, profile(6 if setting.carrier == "roce" else 12, 30))


@pytest.mark.timeout(0 if EXAMPLES else 600)  # shrinking takes its time
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.processes == 2], indirect=True)
def test_random_programs_whose_processes_end(setting: Setting) -> None:
    machine = type("EndingProgram", (Machine,), {"setting": setting, "ends": True})
    search(machine, profile(3, 30))
