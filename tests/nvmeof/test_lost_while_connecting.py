# SPDX-License-Identifier: Apache-2.0
"""A queue that is lost after it was connected, and before the controller is: at each step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nvmeof.conftest import MIB, connected, run, serving
from verbena import nvmeof
from verbena.nvmeof.host import HostController


@pytest.mark.parametrize("qid", [1, 2])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "again"])
def test_the_connection_is_made_again(
    qid: int, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it is an error; later it is one more attempt, and requests wait for it."""
    left = 0
    plain = HostController._find_disks

    async def find_disks(controller: HostController) -> None:
        nonlocal left
        await plain(controller)
        if left:
            left -= 1
            controller.queues[qid - 1].end("the test cuts it")

    monkeypatch.setattr(HostController, "_find_disks", find_disks)

    async def main() -> None:
        nonlocal left
        options: Any = {"queues": 2, "reconnect_delay": 0.01}
        async with serving(nvmeof.MemoryStore(MIB)) as (target, _):
            if is_first:
                left = 1
                with pytest.raises(nvmeof.ConnectionLost, match="the test cuts it"):
                    await connected(target, **options)
                return
            async with await connected(target, **options) as controller:
                left = 2
                controller.queues[0].end("the test cuts it")
                assert await controller.disks[1].read(0, 4096) == bytes(4096)
                assert not left
                assert controller.reconnects == 1
                assert [each.is_ended for each in controller.queues] == [False, False]

    run(main(), 20)
