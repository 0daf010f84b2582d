# SPDX-License-Identifier: Apache-2.0
"""The fixtures of verbena.pytest_plugin, in test suites of their own."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

import pytest

from tests.support import own_network_or_skip

pytest_plugins = ["pytester"]

SUITE = """
import asyncio
import pytest
import verbena
from verbena import fault, verbs

def test_a_device(verbena_device):
    assert verbena_device.query_port().state

def test_a_pair(verbena_pair):
    for wrong, error in ((-1, ValueError), (0, ValueError), ("x", TypeError)):
        with pytest.raises(error, match="nbytes is"):
            verbena_pair.memory(wrong)
    near, far = verbena_pair.memory(), verbena_pair.memory()
    near.array()[:5] = memoryview(b"hello")
    verbena_pair.here.write(near, far.addr, far.rkey)
    verbena_pair.cq.wait()[0].raise_for_status()
    assert bytes(far.array()[:5]) == b"hello"

def test_a_fabric(verbena_fabric):
    async def server():
        async with verbena.listen(":7174") as listener, await listener.accept() as conn:
            return await conn.recv()
    async def client():
        async with verbena.connect("h0:7174") as conn:
            await conn.send(b"hello")
    result = verbena_fabric({"h0": server, "h1": client})
    assert result.returned["h0"] == b"hello"
    assert result.now < 1
"""
FAULTS = """
import pytest
from verbena import fault

@pytest.mark.verbena_faults("drop opcode=ack nth=1")
def test_a_lost_acknowledgement(verbena_device, verbena_pair):
    near, far = verbena_pair.memory(), verbena_pair.memory()
    verbena_pair.here.write(near, far.addr, far.rkey)
    verbena_pair.cq.wait()[0].raise_for_status()
    assert [each.acted for each in fault.counters(verbena_device)] == [1]
"""


@pytest.fixture(autouse=True)
def plain(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERBENA_CARRIER", raising=False)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider --strict-markers")


def test_the_entry_point() -> None:
    (found,) = entry_points(group="pytest11", name="verbena")
    assert found.value == "verbena.pytest_plugin"


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_faults_need_packets(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAULTS)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*--verbena-carrier roce*")


def test_faults_need_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.verbena_faults('drop 1%')\n"
        "def test_of_something_else(verbena_fabric): ...\n"
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*verbena_device and verbena_pair alone*")


def test_a_marker_without_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n@pytest.mark.verbena_faults()\ndef test_of_nothing(verbena_device): ...\n"
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*verbena_faults names no fault*")


def test_faults(pytester: pytest.Pytester) -> None:
    """In a network of its own, where the UDP port is free."""
    pytester.makepyfile(FAULTS)
    command = [*own_network_or_skip(), sys.executable, "-m", "pytest", "--verbena-carrier", "roce"]
    result = pytester.run(*command)
    result.assert_outcomes(passed=1)


def test_the_plugin_imports_nothing_that_a_suite_does_not_use(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_nothing():\n"
        "    assert 'verbena.pytest_plugin' in sys.modules\n"
        "    assert not {'numpy', 'verbena.verbs', 'verbena.sim'} & {*sys.modules}\n"
    )
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)
    assert os.environ.get("VERBENA_CARRIER") is None
