# SPDX-License-Identifier: Apache-2.0
"""Finds out how two processes reach each other's memory, by connecting two QPs.

`verbena info` and `verbena doctor` call probe(), which starts

    python -m verbena.cli.probe DESCRIPTOR

twice; the descriptor is an end of a socket pair.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

TIMEOUT = 30.0  # seconds; it takes a fraction of one


@dataclass(frozen=True)
class Reach:
    """How a peer's memory is reached; `reason` says why the fastest way is not used, or is
    empty."""

    shared_memory: bool
    own_memory: str
    reason: str


class ProbeError(OSError):
    """The two processes could not connect."""


def probe() -> Reach:
    """Start two processes that connect, and return how one reaches the memory of the other.

    Raises ProbeError with the last line that they wrote on stderr.
    """
    ends = socket.socketpair()
    with ends[0], ends[1]:
        children = [start(end) for end in ends]
    outputs = [finish(child) for child in children]
    return reach_of_peer(json.loads(outputs[0]), children[1].pid)


def start(end: socket.socket) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "verbena.cli.probe", str(end.fileno())],
        env=os.environ | {"VERBENA_CARRIER": "direct"},  # over RoCE memory is not mapped
        pass_fds=[end.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child: subprocess.Popen[str]) -> str:
    try:
        output, said = child.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()
        output, said = child.communicate()
        said += f"no answer in {TIMEOUT:g} seconds"
    if child.returncode:
        lines = said.strip().splitlines() or [f"status {child.returncode}"]
        raise ProbeError(f"two processes could not be connected: {lines[-1]}")
    return output


def reach_of_peer(description: dict[str, Any], pid: int) -> Reach:
    """Return the entry of the peer `pid` in a result of Context.describe(). Raises ProbeError."""
    peers = description.get("peers", [])
    peer = next((peer for peer in peers if peer["pid"] == pid), None)
    if peer is None:
        raise ProbeError(f"the device knows no peer with pid {pid}, only {peers}")
    return Reach(peer["shared_memory"], peer["own_memory"], peer.get("reason", ""))


def be_one_of_two(end: socket.socket) -> dict[str, Any]:
    """Connect a QP with the process at the other end, and return the device's description."""
    from verbena import verbs

    with verbs.open_device() as context:
        queue = context.create_cq(2)
        qp = context.alloc_pd().create_qp(send_cq=queue)
        verbs.connect_rc(qp, end)
        description = context.describe()
        end.sendall(b".")  # neither ends before both have their description
        end.recv(1)
    return description or {}


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own_end:
        os.set_inheritable(own_end.fileno(), False)
        print(json.dumps(be_one_of_two(own_end)))
