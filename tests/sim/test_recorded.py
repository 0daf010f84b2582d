# SPDX-License-Identifier: Apache-2.0
"""Whole runs of simulated fabrics, whose hosts have no inside, against recorded ones.

``test_same.py`` compares two runs of the same code. The digests here are those of the code from
before hosts could have an inside, so a host without one still behaves as it did, byte for byte. A
change of behaviour that is meant puts in what the test prints.
"""

from __future__ import annotations

import pytest

from tests.sim.same import WORLDS, digest

SEED = 3
RECORDED = {
    "lossy": "231fb1524c8526c3",
    "lanes": "04edb8ada6ab3436",
    "pauses": "31e29f984cdb1799",
    "spread": "8f8158df239c240a",
    "tcp": "68a4a0f29806c28c",
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_run_is_as_recorded(name: str) -> None:
    assert digest(WORLDS[name](SEED))[:16] == RECORDED[name]
