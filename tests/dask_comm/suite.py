# SPDX-License-Identifier: Apache-2.0
"""Where distributed's own comm tests are, and the command that runs them over Verbena.

PyPI's files of distributed have no tests. Debian's package has them beside the sources of its
release, and a checkout of the repository has those of the newest. ``python -m
tests.dask_comm.suite`` fetches the package, for tests that run where the network does not reach
Debian.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debian_packages import fetched
from tests.support import ROOT, own_network

MODULES = "usr/lib/python3/dist-packages"
TESTS = "distributed/comm/tests/test_comms.py"
INI = "[pytest]\nmarkers=\n  slow: x\n  flaky: x\n  gpu: x\n"

# The tests ask for the machine's address towards the Internet, of each IP version.
LINK = """
ip link add eth0 type veth peer name eth1 && ip link set eth1 up &&
ip link set eth0 addrgenmode none && ip link set eth0 up &&
ip addr add 10.88.0.1/24 dev eth0 && ip route add default dev eth0 &&
ip addr add fd00:88::1/64 dev eth0 nodad && ip -6 route add default dev eth0 &&
exec "$0" "$@"
"""


def of_debian() -> list[Path]:
    """The folders of Debian's distributed, and of the dask that it needs, as far as they exist.

    What else both import is that of this Python: Debian's is compiled for another one.
    """
    return [fetched(name, alone=True) / MODULES for name in ("python3-distributed", "python3-dask")]


def sources() -> list[Path]:
    """What goes in front of sys.path; the first folder has the tests. Skips where there is none."""
    given = os.environ.get("DISTRIBUTED_CHECKOUT")
    if given:
        return [Path(given)]
    found = of_debian()
    if not all(folder.exists() for folder in found):
        pytest.skip(
            "distributed's comm tests are missing; on Debian 12 apt-get fetches python3-distributed"
            " and python3-dask, elsewhere DISTRIBUTED_CHECKOUT=FOLDER names a checkout"
        )
    return found


def environment(found: list[Path]) -> dict[str, str]:
    path = os.pathsep.join(map(str, [*found, ROOT]))
    return os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def skip_if_too_old(found: list[Path]) -> None:
    """Skip where this Python is too new for Debian's release: to be called after a failure."""
    if os.environ.get("DISTRIBUTED_CHECKOUT"):
        return
    wanted = f"import {TESTS.removesuffix('.py').replace('/', '.')}"
    tried = subprocess.run(
        [sys.executable, "-c", wanted], env=environment(found), capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(
            f"Debian's distributed does not run with this Python ({_last(tried.stderr)});"
            " DISTRIBUTED_CHECKOUT=FOLDER names a checkout of another release"
        )


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def run(found: list[Path], work: Path, carrier: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a network of their own, where this user may make one."""
    (work / "pytest.ini").write_text(INI)
    words = ["-q", "-p", "tests.dask_comm.as_tcp", "-p", "no:cacheprovider", "--timeout", "30"]
    own = own_network()
    return subprocess.run(
        [
            *([*own, "sh", "-c", LINK] if own else []),
            *(sys.executable, "-m", "pytest", *words, "-c", work / "pytest.ini"),
            *("--rootdir", work, found[0] / TESTS),
        ],
        cwd=work,
        env=environment(found) | {"VERBENA_CARRIER": carrier},
        capture_output=True,
        text=True,
        timeout=110,
    )


if __name__ == "__main__":
    print(*of_debian())
