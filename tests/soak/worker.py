# SPDX-License-Identifier: Apache-2.0
"""A process of the soak: python -m tests.soak.worker DESCRIPTOR, started by the driver.

Messages over the descriptor are JSON. ``{"talk": …}`` comes with a socket to the partner and is
held in a thread of its own; ``{"traces": true}`` asks what the process holds.
"""

from __future__ import annotations

import array
import contextlib
import faulthandler
import json
import signal
import socket as sockets
import sys
import threading
import traceback
from typing import Any

from tests.soak.end import PATIENCE, End, PartnerGone
from tests.soak.plan import Talk
from tests.soak.talking import talk
from tests.soak.traces import open_files, own_traces
from verbena import verbs

MESSAGE = 1 << 16


def hold(plan: Talk, side: str, socket: sockets.socket, ctx: verbs.Context) -> dict[str, Any]:
    """One end of a talk from its beginning to its end; what became of it."""
    socket.settimeout(PATIENCE)
    end = End(plan, side, ctx)
    done, gone = 0, False
    try:
        end.connect(socket)
        done = talk(end).done
    except PartnerGone:
        gone = True
    finally:
        end.close()
        socket.close()
    return {"checked": done, "gone": gone, "statuses": dict(end.account.statuses)}


class Worker:
    def __init__(self, control: sockets.socket) -> None:
        self.control = control
        self.ctx: verbs.Context | None = None
        self.sending = threading.Lock()

    def answer(self, **values: Any) -> None:
        with self.sending:
            self.control.send(json.dumps(values).encode())

    def run(self) -> None:
        while message := self.receive():
            request, socket = message
            if "talk" in request and socket is not None:
                self.start_talk(request, socket)
            elif request.get("open"):
                self.ctx = verbs.open_device("verbena0")
                self.answer(opened=True)
            elif request.get("close") and self.ctx:
                self.ctx.close()
                self.ctx = None
                self.answer(closed=True)
            elif request.get("files"):
                self.answer(files=open_files())
            else:
                self.answer(traces=self.traces())

    def receive(self) -> tuple[dict[str, Any], sockets.socket | None] | None:
        data, rest, _, _ = self.control.recvmsg(MESSAGE, sockets.CMSG_SPACE(4))
        if not data:
            return None
        socket = None
        for _level, _kind, raw in rest:
            (number,) = array.array("i", raw[:4])
            socket = sockets.socket(fileno=number)
        return json.loads(data), socket

    def traces(self) -> dict[str, int]:
        described = self.ctx.describe() if self.ctx else None
        peers = len(described["peers"]) if described else 0
        return own_traces().as_dict() | {"peers": peers}

    def start_talk(self, request: dict[str, Any], socket: sockets.socket) -> None:
        plan = Talk(**request["talk"])
        arguments = (plan, request["side"], socket)
        threading.Thread(target=self.talk, args=arguments, daemon=True).start()

    def talk(self, plan: Talk, side: str, socket: sockets.socket) -> None:
        result: dict[str, Any] = {"number": plan.number, "side": side}
        try:
            assert self.ctx is not None
            result |= hold(plan, side, socket, self.ctx)
        except BaseException as error:
            result["error"] = f"{error!r}\n{traceback.format_exc()[-1500:]}"
        with contextlib.suppress(OSError):
            self.answer(**result)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    faulthandler.enable()
    verbs.get_device_list()
    Worker(sockets.socket(fileno=int(sys.argv[1]))).run()
