# SPDX-License-Identifier: Apache-2.0
"""Where there is no connection manager, peers exchange what they need over a socket."""

from __future__ import annotations

from tests.support import child

PROGRAM = """
import asyncio, errno, sys
import verbena
from verbena import cm

async def main():
    async with verbena.listen("127.0.0.1:0") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        address = f"127.0.0.1:{listener.port}"
        async with verbena.connect(address) as here, await accepting as there:
            await here.send(b"by a socket")
            print((await there.recv()).decode())
    for call in (verbena.listen("127.0.0.1:0", via="cm"), verbena.connect(address, via="cm")):
        try:
            async with call:
                print("opened")
        except cm.ManagerAbsent as error:
            print(error)

asyncio.run(main())
"""


def test_a_socket_serves_where_there_is_no_manager() -> None:
    done = child(PROGRAM, VERBENA_AGENT="off")
    assert done.returncode == 0, done.stderr
    arrived, *refused = done.stdout.splitlines()
    assert arrived == "by a socket"
    assert len(refused) == 2
    for each in refused:
        assert "there is no agent, and VERBENA_AGENT is off: start `verbena agent`" in each
