# SPDX-License-Identifier: Apache-2.0
"""An agent with few file descriptors, and programs that use them up.

``agent SOFT HARD PATIENCE`` limits its descriptors, runs the agent, prints what it reports, and the
processor time that it took when it has ended. ``connect COUNT`` has so many connections to it until
its stdin is closed. ``open`` opens the device of verbena.cm, or prints why it cannot.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from contextlib import ExitStack

from verbena.agent.running import prepare_environment, run_agent
from verbena.agent.server import agent_address
from verbena.cm.agent_device import open_agent_device
from verbena.cm.errors import ManagerAbsent


def run(soft: str, hard: str, patience: str) -> None:
    prepare_environment(os.environ)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
    run_agent(float(patience), report=lambda line: print(line, flush=True))
    print("processor", time.process_time(), flush=True)


def connect(count: str) -> None:
    with ExitStack() as stack:
        for _ in range(int(count)):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            sock.connect(agent_address(os.geteuid()))
        print("connected", flush=True)
        sys.stdin.read()


def open_device() -> None:
    try:
        asyncio.run(open_agent_device(asyncio.sleep, [], 1)).close()
    except ManagerAbsent as absent:
        print(absent)
    else:
        print("opened")


{"agent": run, "connect": connect, "open": open_device}[sys.argv[1]](*sys.argv[2:])
