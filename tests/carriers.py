# SPDX-License-Identifier: Apache-2.0
"""The carriers with which tests run: for the conftest.py of tests/verbs and tests/aio, and others.

A carrier takes the requests of a queue pair to the other end: directly, in RoCE packets, or over a
simulated fabric. Each test of these folders runs with all three. Two markers exclude carriers with
which a test has no meaning, and give the reason: `not_simulated` and `direct_only`. Modules of
other folders that call `live_carriers` have their tests run directly and in RoCE packets.
"""

from __future__ import annotations

from typing import Any

import pytest

CARRIERS = ("direct", "roce", "sim")
FEWER = {"not_simulated": ("direct", "roce"), "direct_only": ("direct",)}
OVER_ROCE = (pytest.mark.over_roce,)


def carriers_of(metafunc: pytest.Metafunc, fixture: str) -> tuple[str, ...]:
    """Return the carriers that `fixture` stands for in this test.

    There are none if the test does not take the fixture, or gives it a value of its own. Raises
    UsageError for a marker without a reason, or without the fixture."""
    found = {name: metafunc.definition.get_closest_marker(name) for name in FEWER}
    for name, marker in found.items():
        if marker is not None and not marker.args:
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: {name} needs a reason")
    if fixture not in metafunc.fixturenames or is_given(metafunc, fixture):
        if any(found.values()):
            raise pytest.UsageError(
                f"{metafunc.definition.nodeid} does not use the fixture {fixture!r}, so its marker"
                f" {next(name for name in found if found[name])} says nothing: remove it"
            )
        return ()
    kept = [FEWER[name] for name, marker in found.items() if marker]
    return tuple(one for one in CARRIERS if all(one in carriers for carriers in kept))


def is_given(metafunc: pytest.Metafunc, fixture: str) -> bool:
    """Whether the test's own `parametrize` has a value for it."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        if fixture in (names.replace(",", " ").split() if isinstance(names, str) else names):
            return True
    return False


def live_carriers(metafunc: pytest.Metafunc) -> None:
    """The hook ``pytest_generate_tests`` of a module whose tests run directly and over RoCE.

    Those that are marked `over_roce`, since they take seconds, run over RoCE alone.
    """
    if metafunc.definition.get_closest_marker("over_roce") is None:
        metafunc.fixturenames.append("carrier")
        metafunc.parametrize("carrier", [value(each, each) for each in ("direct", "roce")])


def value(carrier: str, *values: Any, id: str | None = None) -> Any:
    """Return a value of parametrize that belongs to this carrier."""
    return pytest.param(*values, id=id, marks=OVER_ROCE if carrier == "roce" else ())
