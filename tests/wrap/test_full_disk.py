# SPDX-License-Identifier: Apache-2.0
"""A capture that finds no room: the program goes on, and stderr says once what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.test_tshark import frames
from tests.support import verbena_command
from tests.wrap.test_unheard import PAIR
from verbena import capture

MISSING = "packets are missing in the capture"
MANY = """
    for _ in range(100):
        far.recv(mr)
        near.send(mr)
        cq.wait(2, 10)
"""


def run(*prefix: str, file: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = ["run", "--capture", str(file), "--capture-direct", "--"]
    return subprocess.run(
        [*prefix, *verbena_command(*words, sys.executable, "-c", PAIR + MANY, "RC")],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def check(done: subprocess.CompletedProcess[str], why: str) -> None:
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if MISSING in line]
    assert "out.pcapng" in line
    assert why in line


@pytest.mark.skipif(
    os.geteuid() != 0, reason="this user may not mount a small disk; run the tests as root"
)
@pytest.mark.parametrize("carrier", ["direct", "roce"])
def test_a_full_disk_is_told_once(tmp_path: Path, carrier: str) -> None:
    kept, script = tmp_path / "kept.pcapng", 'mount -t tmpfs -o size=300k none "$1" && shift &&'
    script += ' ip link set lo up && "$@"; status=$?; cp "$0" "$KEPT"; exit $status'
    file = tmp_path / "disk" / "out.pcapng"
    file.parent.mkdir()
    prefix = ["unshare", "--mount", "--net", "sh", "-c", script, str(file), str(file.parent)]
    done = run(*prefix, file=file, VERBENA_CARRIER=carrier, KEPT=str(kept))
    check(done, "No space left on device")
    assert len(list(frames(kept))) > 30


def test_a_limit_on_files_is_told_once(tmp_path: Path) -> None:
    """A limit that the device can live with, and that the file, which is sparse, has reached."""
    file, limit = tmp_path / "out.pcapng", 64 << 20
    prefix = ["sh", "-c", 'ulimit -f "$0" && exec "$@"', str(limit // 512)]
    capture.begin(file)
    page = file.read_bytes()
    with file.open("r+b") as opened:  # it ends with the filler that a writer looks for
        opened.seek(limit - len(page))
        opened.write(page)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PAIR + MANY, "RC"],
        env=os.environ | environment(file),
        capture_output=True,
        text=True,
        timeout=60,
    )
    check(done, "File too large")


def environment(file: Path) -> dict[str, str]:
    """Without `verbena run --capture`, which would empty the file."""
    return {
        "VERBENA_CAPTURE": str(file),
        "VERBENA_CAPTURE_DIRECT": "yes",
        "VERBENA_CARRIER": "direct",
    }
