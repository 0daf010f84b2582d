# SPDX-License-Identifier: Apache-2.0
"""Two builds of Verbena with different memory layouts on one host, in Python and under programs.

tests/native/test_other_build.c has the handshake itself; here stands what a user sees of it.
"""

from __future__ import annotations

import errno
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import verbena
from tests.programs.pairs import free_port, wait_listening
from tests.support import ROOT, clean_environment, native_build
from verbena import launch
from verbena.verbs import library

LAYOUT = ROOT / "src" / "native" / "hca" / "layout.h"
OTHER = "version 0.0.9 with layout 8"

# Connects over an inherited socket, writes to the peer, and stays until that has done the same.
CONNECTS = """\
import socket, sys
from verbena import verbs

end = socket.socket(fileno=int(sys.argv[1]))
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
qp, mr = pd.create_qp(send_cq=cq), pd.alloc(64, 7)
try:
    verbs.connect_rc(qp, end, timeout=18)
except verbs.VerbsError as error:
    sys.exit(f"{type(error).__name__} {error.errno}: {error}")
end.sendall(mr.addr.to_bytes(8, "big") + mr.rkey.to_bytes(4, "big"))
theirs = end.recv(12, socket.MSG_WAITALL)
qp.write(mr, int.from_bytes(theirs[:8], "big"), int.from_bytes(theirs[8:], "big"), length=64)
cq.wait(1, 30)[0].raise_for_status()
end.sendall(b"x")
end.recv(1)
"""


@cache
def other_library() -> Path:
    """libibverbs.so.1 of a build that calls itself 0.0.9 and has memory layout 8."""
    return native_build("other_ibverbs") / "tests" / "other" / "libibverbs.so.1"


def connected(**settings: str) -> list[str]:
    """What processes of this build and of the other one say that connect to each other."""
    ends = socket.socketpair()
    libraries = [library.packaged_path(), str(other_library())]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CONNECTS, str(end.fileno())],
            env=clean_environment() | settings | {"VERBENA_LIBRARY": path},
            pass_fds=[end.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        for end, path in zip(ends, libraries, strict=True)
    ]
    for end in ends:
        end.close()
    return [process.communicate(timeout=60)[1] for process in processes]


def this_build() -> str:
    """Its layout is written in one place."""
    line = re.search(r"VB_LAYOUT_VERSION (\d+)u", LAYOUT.read_text())
    assert line
    return f"version {verbena.__version__} with layout {line[1]}"


@pytest.mark.timeout(600)  # the first one builds the core too
def test_connect_rc_names_both_builds() -> None:
    ours, theirs = connected()
    advice = "Install one build for both, or let both send packets (VERBENA_CARRIER=roce)"
    for said in (ours, theirs):
        assert f"VerbsError {errno.EPROTONOSUPPORT}" in said
        assert advice in said
    assert OTHER.replace(" with", " with memory") in ours
    assert this_build() in ours
    assert this_build().replace(" with", " with memory") in theirs
    assert OTHER in theirs


@pytest.mark.timeout(600)
def test_by_packets_both_work_together() -> None:
    assert connected(VERBENA_CARRIER="roce") == ["", ""]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server_is_other", [False, True])
def test_programs_are_told_on_stderr(
    debian_program: Callable[[str], str], server_is_other: bool
) -> None:
    """What a program prints is its own; the reason is one line, with VERBENA_LOG=errors."""
    environments = [launch.environment(clean_environment(), log="errors"), with_other_library()]
    if server_is_other:
        environments.reverse()
    port = str(free_port())
    command = [debian_program("ibv_rc_pingpong"), "-g", "1", "-p", port]
    server = start(command, environments[0])
    wait_listening(server, int(port))
    client = start([*command, "127.0.0.1"], environments[1])
    said = server.communicate(timeout=60)[0]  # its QP goes to RTR first: it hangs up, then
    client.communicate(timeout=60)
    assert "Failed to modify QP to RTR" in said
    assert "ibv_modify_qp failed: Protocol not supported; QP 0x" in said
    assert "version 0.0.9" in said
    assert f"version {verbena.__version__}" in said


def with_other_library() -> dict[str, str]:
    """As `verbena run` would make it if the other build were installed."""
    environment = launch.environment(clean_environment(), log="errors")
    other = other_library()
    preload = environment["LD_PRELOAD"]
    assert library.packaged_path() in preload
    environment["LD_PRELOAD"] = preload.replace(library.packaged_path(), str(other))
    environment["LD_LIBRARY_PATH"] = f"{other.parent}:{environment['LD_LIBRARY_PATH']}"
    return environment


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
