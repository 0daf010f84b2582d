# SPDX-License-Identifier: Apache-2.0
"""Asks the agent what it does, for `verbena info` and for tests. Nobody's agent is started."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from verbena.agent.messages import Role, hello, welcomed
from verbena.agent.server import agent_address

__all__ = ["describe_agent"]

_PATIENCE = 2.0  # seconds
_ANSWER_BYTES = 1 << 16


def describe_agent(fabric: str = "") -> dict[str, Any] | None:
    """Return the description of the agent, or of that of a live fabric; None if there is none.

    Raises TimeoutError if it does not answer, and PermissionError or OSError if it refuses.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(_PATIENCE)
        try:
            sock.connect(agent_address(os.geteuid(), fabric))
            sock.send(hello(Role.DESCRIPTION))
            error = welcomed(sock.recv(_ANSWER_BYTES))
            if error:
                raise OSError(error, os.strerror(error))
            found = sock.recv(_ANSWER_BYTES)
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            return None
    return dict(json.loads(found)) if found else None
