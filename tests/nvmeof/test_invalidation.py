# SPDX-License-Identifier: Apache-2.0
"""Remote invalidation: a host that asks for it finds its key gone with the completion.

The host names a memory window of its own by a descriptor of subtype 0xF, as Linux does with the
memory that it registers for a request.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.nvmeof.conftest import MIB, image, pair, run
from verbena import nvmeof
from verbena.nvmeof.commands import SGL_KEYED, SGL_KEYED_INVALIDATE, Command, IoOpcode, Sgl
from verbena.nvmeof.host_queue import LOST, HostQueue
from verbena.nvmeof.status import Status, status_of_wire
from verbena.verbs import MR, MW, AccessFlags, WCFlags

pytestmark = pytest.mark.over_roce
BLOCK = 4096
ACCESS = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.MW_BIND
)
COMMANDS = {
    "read": (IoOpcode.READ, 1, Status.SUCCESS),
    "write": (IoOpcode.WRITE, 1, Status.SUCCESS),
    "compare": (IoOpcode.COMPARE, 2, Status.COMPARE_FAILURE),
    "beyond the end": (IoOpcode.READ, 1 << 20, Status.LBA_RANGE),
}


class Host:
    """A controller whose commands name a window; ``answers`` has what came with completions."""

    def __init__(self, controller: nvmeof.HostController, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue = controller.queues[0]
        self.memory: MR = controller.pd.alloc(BLOCK, ACCESS)
        self.window: MW = controller.pd.alloc_mw(2)
        self.answers: list[tuple[bool, int]] = []
        qp = self.queue.sends.qp
        assert qp is not None
        qp.bind_mw(self.window, self.memory, access=int(ACCESS & ~AccessFlags.MW_BIND), flags=0)
        plain = HostQueue.take_batch

        def take_batch(queue: HostQueue, completions: Any) -> None:
            found = list(completions)
            if queue is self.queue:
                for each in queue._wcs[: len(found)]:
                    if not int(each["wr_id"]) >> 60:
                        flags = int(each["wc_flags"])
                        self.answers.append(
                            (bool(flags & WCFlags.WITH_INV), int(each["invalidated_rkey"]))
                        )
            plain(queue, iter(found))

        monkeypatch.setattr(HostQueue, "take_batch", take_batch)

    async def ask(self, opcode: int, block: int, kind: int) -> int:
        """Send a command for one block; return its status, or LOST."""
        answered = asyncio.get_running_loop().create_future()
        sgl = Sgl(kind, self.memory.addr, BLOCK, self.window.rkey)
        command = Command(opcode, 0, 0, 1, sgl, block, 0, 0)
        self.queue.submit(command, lambda _, status: answered.set_result(status))
        status: int = await answered
        return status if status == LOST else status_of_wire(status)[0]


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_key_is_gone_if_the_host_asked_for_that(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opcode, block, expected = COMMANDS[name]
    store = nvmeof.MemoryStore(MIB) if kind == "memory" else nvmeof.FileStore(image(tmp_path))

    async def main() -> None:
        async with pair(store, loss_timeout=0) as (controller, _, _):
            host = Host(controller, monkeypatch)
            memory = host.memory.array()
            await controller.disks[1].write(0, b"d" * BLOCK)
            host.answers.clear()
            memory[:] = ord("m")
            for _ in range(2):  # the key holds until the host invalidates it itself
                assert await host.ask(opcode, block, SGL_KEYED) == expected
            key = host.window.rkey
            assert await host.ask(opcode, block, SGL_KEYED_INVALIDATE) == expected
            assert [each for each, _ in host.answers] == [False, False, True]
            assert host.answers[-1][1] == key
            memory[:] = ord("m")
            assert await host.ask(IoOpcode.READ, 0, SGL_KEYED) == LOST
            assert set(memory.tolist()) == {ord("m")}

    run(main())
    store.close()
