# SPDX-License-Identifier: Apache-2.0
"""Programs at hosts of a live fabric that also meet by TCP or UDP at their hosts' addresses: this
machine has them by a route of its loopback, as docs/live-fabric.md says.

The server of qperf tells its client the port before it listens there, for each of its tests. A
client that comes too soon is refused, as by any connection manager, and is started again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import clean_environment, own_network_or_skip, verbena_command

pytestmark = pytest.mark.debian

SCRIPT = """
ip link set lo up
ip route add local 10.0.0.0/16 dev lo
ip route add local 10.0.0.2 dev lo src 10.0.0.7
verbena() { {verbena} "$@"; }
verbena fabric clos2:4 --name sockets --detach
trap 'verbena fabric --stop --name sockets' EXIT
at() { timeout --foreground 60 {verbena} run --fabric sockets --host "$@"; }
set -m
at h1 {server} &
server=$!
for i in $(seq 100); do
    sleep 0.1
    grep -q ':{port} ' /proc/net/{table} && break
done
for i in $(seq 5); do
    at h6 {client} >said 2>errors
    status=$?
    cat said errors | grep -q 'Event rejected' || break
done
cat said
cat errors >&2
kill -- -$server
exit $status
"""


@pytest.mark.parametrize(
    ("program", "server", "client", "table", "port"),
    [
        ("udpong", "-b 10.0.0.2 -C 100 -S 1024", "-s 10.0.0.2 -C 100 -S 1024", "udp", 7174),
        ("qperf", "", "10.0.0.2 -cm1 -t 1 rc_lat rc_bw ud_lat", "tcp", 19765),
        ("ib_send_bw", "-F -n 100", "-F -n 100 10.0.0.2", "tcp", 18515),
    ],
)
def test_a_host_has_its_address(
    debian_program: Callable[[str], str],
    fast_clock: dict[str, str],
    tmp_path: Path,
    program: str,
    server: str,
    client: str,
    table: str,
    port: int,
) -> None:
    path = debian_program(program)
    script = SCRIPT.replace("{verbena}", " ".join(verbena_command()))
    script = script.replace("{server}", f"{path} {server}").replace("{client}", f"{path} {client}")
    script = script.replace("{table}", f"{table}*" if table == "tcp" else table)
    done = subprocess.run(
        [*own_network_or_skip(), "bash", "-c", script.replace("{port}", f"{port:04X}")],
        env=clean_environment() | (fast_clock if program.startswith("ib_") else {}),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "h6" not in done.stderr
    shows = {"udpong": "100k", "qperf": "latency", "ib_send_bw": "BW average"}
    assert shows[program] in done.stdout, done.stdout + done.stderr
