# SPDX-License-Identifier: Apache-2.0
"""Asks the process of a fabric, for the command line and for tests.

A fabric that is not there raises ``FabricMissing``, whose text says what to do; one that refuses
raises OSError with the refusal's sentence.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from .messages import LONGEST_WELCOME, Hello, Role, Welcome, fabric_address

__all__ = ["FabricMissing", "ask_fabric", "control_fabric", "running_fabrics", "the_fabric"]

PATIENCE = 10.0  # seconds
_NAMES = "/proc/net/unix"


class FabricMissing(OSError):
    """There is no such fabric; the text says what to do."""


def running_fabrics() -> list[str]:
    """Return the names of this user's fabrics in this network namespace."""
    prefix = "@" + fabric_address(os.geteuid(), "")[1:]
    found = set[str]()
    for line in Path(_NAMES).read_text(errors="replace").splitlines():
        words = line.split(maxsplit=7)
        if len(words) == 8 and words[7].startswith(prefix):
            found.add(words[7].removeprefix(prefix).rstrip("@"))
    return sorted(found - {""})  # the agent answers for umadN of RoCE ports at the empty name


def the_fabric(name: str | None) -> str:
    """Return the name, or that of the only fabric. Raises FabricMissing."""
    found = running_fabrics()
    if name is not None and name not in found:
        others = f"; there are: {', '.join(found)}" if found else ""
        raise FabricMissing(
            f"no fabric {name!r} runs{others} (`verbena fabric TOPOLOGY --name {name}` starts it)"
        )
    if name is None and not found:
        raise FabricMissing("no fabric runs: start one with `verbena fabric TOPOLOGY`")
    if name is None and len(found) > 1:
        raise FabricMissing(f"several fabrics run: say which one, of {', '.join(found)}")
    return name or found[0]


def ask_fabric(name: str, hello: Hello) -> bytes:
    """Send a hello and return the answer to it. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(PATIENCE)
        try:
            sock.connect(fabric_address(os.geteuid(), name))
            sock.send(hello.pack())
            welcome = Welcome.parse(sock.recv(LONGEST_WELCOME))
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            raise FabricMissing(
                f"the fabric {name!r} has ended: start it again with `verbena fabric`"
            ) from None
        except TimeoutError:
            raise TimeoutError(
                f"the fabric {name!r} did not answer within {PATIENCE:g} seconds: it may be stopped"
            ) from None
    if welcome is None:
        raise OSError(f"the fabric {name!r} is of another version of Verbena: start it again")
    if welcome.error:
        raise OSError(welcome.data.decode(errors="replace") or os.strerror(welcome.error))
    return welcome.data


def control_fabric(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request of the command line and return the answer. Raises OSError."""
    answer = ask_fabric(name, Hello(Role.CONTROL, data=json.dumps(request).encode()))
    return dict(json.loads(answer))
