# SPDX-License-Identifier: Apache-2.0
"""Conservation is asserted of every run of these tests."""

from __future__ import annotations

import pytest

from tests.sim.fabrics import CheckedWorld
from verbena import sim


@pytest.fixture(autouse=True)
def conservation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test module says World, it makes worlds that check themselves after each run."""
    if getattr(request.module, "World", None) is sim.World:
        monkeypatch.setattr(request.module, "World", CheckedWorld)
