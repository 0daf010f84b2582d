# SPDX-License-Identifier: Apache-2.0
"""Debian's programs that connect by librdmacm in ways that rdmacm-utils do not, on one host.

tests/programs/test_rdma_cm.py has those, and tests/suite runs rdma-core's own cases. libfabric
wants an interface that is no loopback.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import debian_packages
from tests.agent.conftest import Start, listening, wait_until
from tests.roce.networks import Host

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
ADDRESS = "192.0.2.7"
INFINIBAND = ("--link-layer", "infiniband")


@pytest.fixture
def start_with(host: Host) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """start_with(*program, options=()): over Verbena, where v0 has ADDRESS."""
    started: list[subprocess.Popen[str]] = []
    host.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    for each in ("v0", "v1"):
        host.run("ip", "link", "set", each, "up")
    host.run("ip", "addr", "add", f"{ADDRESS}/24", "dev", "v0")

    def run(
        *program: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        started.append(host.start(*program, options=options, env=env))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def finish(client: subprocess.Popen[str]) -> str:
    output, _ = client.communicate(timeout=40)
    assert client.returncode == 0, output
    return output


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("rping", ["-C", "5", "-v"]),
        ("ucmatose", ["-C", "10", "-S", "1000", "-c", "5"]),
        ("udaddy", ["-c", "3"]),
        ("rstream", ["-S", "65536", "-C", "100"]),
    ],
)
def test_infiniband_ports(
    host: Host, start_with: Start, debian_program: Find, program: str, more: list[str]
) -> None:
    path = debian_program(program)
    is_rping = program == "rping"
    server = start_with(path, *more, *(["-s"] if is_rping else []), options=INFINIBAND)
    listening(host)
    whom = ["-c", "-a", ADDRESS] if is_rping else ["-s", ADDRESS]
    finish(start_with(path, *more, *whom, options=INFINIBAND))
    output, _ = server.communicate(timeout=20)
    assert server.returncode == 0, output


def test_datagram_sockets_on_infiniband_ports(
    host: Host, start_with: Start, debian_program: Find
) -> None:
    """2040 bytes are the most: librdmacm 44 has room for 2048 with a header, and does not check.

    On RoCE it ends with an error as on Linux, because librdmacm addresses itself without a GID.
    """
    both = [debian_program("udpong"), "-S", "2040", "-C", "100"]
    start_with(*both, "-b", ADDRESS, options=INFINIBAND)
    wait_until(lambda: f"{ADDRESS}:7174" in host.run("ss", "-uln"))
    output = finish(start_with(*both, "-s", ADDRESS, options=INFINIBAND))
    assert re.search(r"^custom +1\.9k +100 ", output, re.MULTILINE), output


@pytest.mark.parametrize(("provider", "endpoint"), [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")])
def test_libfabric(
    start_with: Start, host: Host, debian_program: Find, provider: str, endpoint: str
) -> None:
    both = [debian_program("fi_pingpong"), "-p", provider, "-e", endpoint, "-I", "10"]
    server = start_with(*both)
    host.wait_listening(server, 47592)
    output = finish(start_with(*both, ADDRESS))
    assert re.search(r"^1m +10 +=10 ", output, re.MULTILINE), output


# All tests of qperf that take -cm 1: "This only works for the tests that use the RC transport"
# (qperf --help options). In two halves, which run beside each other.
QPERF_TESTS = (
    *("rc_bw", "rc_lat", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_compare_swap_mr"),
    *("rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_fetch_add_mr"),
    *("ver_rc_compare_swap", "ver_rc_fetch_add"),
)


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_qperf(start_with: Start, host: Host, debian_program: Find, carrier: str) -> None:
    """The server tells its client the port before it listens there. A client that comes too soon is
    refused, as by any connection manager, and is started again."""
    env = {"VERBENA_CARRIER": carrier}
    tests = QPERF_TESTS if carrier == "roce" else ("rc_bw", "rc_lat")

    def start_client(test: str, port: int) -> subprocess.Popen[str]:
        words = (ADDRESS, "-lp", str(port), "-cm", "1", "-t", "1", test)
        return start_with(debian_program("qperf"), *words, env=env)

    ports = (19765, 19766)
    for port in ports:
        server = start_with(debian_program("qperf"), "-lp", str(port), env=env)
        host.wait_listening(server, port)
    for both in zip(tests[0::2], tests[1::2], strict=True):
        clients = [start_client(test, port) for test, port in zip(both, ports, strict=True)]
        for test, port, client in zip(both, ports, clients, strict=True):
            for _ in range(5):
                output, _ = client.communicate(timeout=40)
                if "Event rejected" not in output:
                    break
                client = start_client(test, port)
            assert re.search(rf"{test}:\n +\w+ += +[\d.]+ ", output), output


@pytest.mark.parametrize("test", ["ud_lat", "uc_lat"])
def test_qperf_without_rc_names_no_gid(
    start_with: Start, host: Host, debian_program: Find, test: str
) -> None:
    """It does not use -cm 1 for them, and its addresses lack what RoCE needs, as Linux says too.

    A server that fails sends an urgent byte, and then what failed. A client that reads in between
    finds nothing (its socket does not block), says "server: " alone, and is started again."""
    env = {"VERBENA_LOG": "errors"}
    server = start_with(debian_program("qperf"), env=env)
    host.wait_listening(server, 19765)
    words = (ADDRESS, "-cm", "1", "-t", "1", test)
    for _ in range(5):
        client = start_with(debian_program("qperf"), *words, env=env)
        output, _ = client.communicate(timeout=40)
        if not re.search("^server: $", output, re.MULTILINE):
            break
    assert client.returncode == 1
    assert f"warning: -cm set but not used in test {test}" in output
    assert re.search("failed to (create address handle|modify QP to RTR): Invalid argument", output)
    host.run(debian_program("qperf"), ADDRESS, "quit")
    said, _ = server.communicate(timeout=20)
    says = output + said  # whichever side was first
    assert "the address has no GID (is_global is 0), and RoCE needs a GID" in says
    assert "`verbena run --link-layer infiniband` offers a port with LIDs" in says


def test_rcopy(start_with: Start, host: Host, debian_program: Find, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(bytes(range(256)) * 4000)
    start_with(debian_program("rcopy"))
    listening(host)
    finish(start_with(debian_program("rcopy"), str(source), f"{ADDRESS}:{copy}"))
    wait_until(lambda: copy.exists() and copy.read_bytes() == source.read_bytes())


@pytest.mark.parametrize("api", [[], ["-A"]], ids=["tags", "active messages"])
def test_ucx(start_with: Start, host: Host, debian_program: Find, api: list[str]) -> None:
    """UCX's demonstration of storage: its client knows the server by its socket address alone."""
    both = [debian_program("io_demo"), "-q", *api]
    env = {"UCX_TLS": "rc,ud", "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm", "UCX_LOG_LEVEL": "info"}
    start_with(*both, env=env)
    listening(host)
    output = finish(start_with(*both, "-i", "200", "-o", "read,write", ADDRESS, env=env))
    assert "Client exit with status 'OK'" in output
    assert re.search(r"ep_cfg\[\d+\]: \w+\(rc_verbs/verbena0:1\)", output), output


def test_ucx_has_the_connection_manager(start_with: Start, debian_program: Find) -> None:
    output = finish(start_with(debian_program("ucx_info"), "-d"))
    assert "# Connection manager: rdmacm" in output


def test_a_network_namespace_with_another_one_s_sysfs(debian_program: Find) -> None:
    """`unshare -n` leaves /sys as it was, so that nothing about interfaces may be read there."""
    rping = debian_program("rping")
    listens = (
        "import sys; from verbena.agent.client import describe_agent; "
        "sys.exit(not (describe_agent() or {}).get('listening'))"
    )
    script = (
        "ip link set lo up; ip link add v0 type veth peer name v1; ip link set v0 up; "
        f"ip link set v1 up; ip addr add {ADDRESS}/24 dev v0; "
        f"$0 -m verbena run -- {rping} -s -a {ADDRESS} -C 1 & "
        f'until $0 -c "{listens}" 2> /dev/null; do sleep 0.1; done; '
        f"timeout 20 $0 -m verbena run -- {rping} -c -a {ADDRESS} -C 1"
    )
    for _ in range(3):
        done = subprocess.run(
            ["unshare", "-n", "sh", "-c", script, sys.executable],
            capture_output=True,
            text=True,
            timeout=40,
        )
        # rping's own: it closes its channel while its other thread asks it for the next event.
        if "rdma_get_cm_event: Bad file descriptor" not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def preloaded() -> dict[str, Any]:
    """How a program of TCP starts over librspreload: it says at its end what it has sent."""
    return {"options": ("--log", "counters"), "env": debian_packages.preloaded_rsocket()}


def sent_directly(said: str) -> int:
    """The bytes that it has sent by RDMA."""
    sent = re.search(r"counted: direct.payload_sent (\d+)", said)
    assert sent is not None, said
    return int(sent[1])


def test_stream_sockets_of_a_program_that_knows_no_rdma(
    start_with: Start, host: Host, preloaded: dict[str, Any], tmp_path: Path
) -> None:
    program = str(tmp_path / "sockets")
    source = Path(__file__).with_name("stream_sockets.c")
    subprocess.run(["gcc", "-o", program, str(source)], check=True)
    server = start_with(program, "server", ADDRESS, "7300", **preloaded)
    listening(host)
    output = finish(start_with(program, "client", ADDRESS, "7300", str(1 << 20), **preloaded))
    said, _ = server.communicate(timeout=20)
    assert server.returncode == 0, said
    assert min(sent_directly(output), sent_directly(said)) >= 1 << 20


def test_iperf_2(start_with: Start, host: Host, preloaded: dict[str, Any]) -> None:
    """Its server waits in recv. librspreload 44 replaces neither accept4 nor epoll, and maps what
    select says of an accepted socket to another descriptor, so others wait forever (iperf3, socat).
    """
    iperf = debian_packages.iperf()
    server = start_with(iperf, "-s", "-B", ADDRESS, "-P", "1", **preloaded)
    listening(host)
    output = finish(start_with(iperf, "-c", ADDRESS, "-n", "16M", **preloaded))
    assert sent_directly(output) >= 16 << 20
    said, _ = server.communicate(timeout=20)
    assert re.search(r"16\.[0-9] MBytes", said), said


def test_fio(start_with: Start, host: Host) -> None:
    words = "--ioengine=rdma --bs=64k --size=16m --iodepth=16 --port=7400 --name=job"
    both = [*debian_packages.fio(), *words.split()]
    server = start_with(*both, "--rw=read")
    listening(host)
    output = finish(start_with(*both, f"--hostname={ADDRESS}", "--verb=write", "--rw=write"))
    assert re.search(r"WRITE: .*io=16\.0MiB", output), output
    said, _ = server.communicate(timeout=20)
    assert server.returncode == 0, said


def test_another_preload_behind_verbena_run(start_with: Start, debian_program: Find) -> None:
    rping = debian_program("rping")
    lost = start_with("env", "LD_PRELOAD=libm.so.6", rping, "-s", "-a", ADDRESS)
    output, _ = lost.communicate(timeout=20)
    assert lost.returncode != 0
    assert "LD_PRELOAD was replaced behind `verbena run`" in output
    kept = start_with(
        "sh", "-c", f'LD_PRELOAD="libm.so.6 $LD_PRELOAD" exec {rping} -c -a {ADDRESS} -C 1'
    )
    output, _ = kept.communicate(timeout=20)
    assert "RDMA_CM_EVENT_REJECTED" in output  # it has asked
    assert "LD_PRELOAD" not in output
