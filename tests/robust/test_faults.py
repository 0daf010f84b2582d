# SPDX-License-Identifier: Apache-2.0
"""Memory goes under a region of a Python program that handles faults, or blocks signals, itself.

Programs in C are tests/native/dropin/test_faults.c.
"""

from __future__ import annotations

import pytest

from tests.robust.conftest import StartChild, connect
from tests.support import own_network


@pytest.mark.parametrize("carrier", ["direct", "roce"])
@pytest.mark.parametrize("conditions", [(), ("watched",)], ids=["alone", "verbena run"])
def test_the_request_fails_and_the_process_lives(
    start_child: StartChild,
    monkeypatch: pytest.MonkeyPatch,
    carrier: str,
    conditions: tuple[str, ...],
) -> None:
    monkeypatch.setenv("VERBENA_CARRIER", carrier)
    child = start_child(*conditions, prefix=own_network() if carrier == "roce" else ())
    for how in ["nothing", "faulthandler", "handler", "blocked"]:
        near, far = child.make(), child.make()
        connect(near, far)
        near.map_buffer(8192, "own")
        near.handle_faults(how)
        near.change_buffer("unmap")
        near.write_from_buffer(*far.region(), 8)
        assert [one.status for one in near.wait()] == ["LOC_PROT_ERR"], how
        near.close()
        far.close()
