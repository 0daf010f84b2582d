# SPDX-License-Identifier: Apache-2.0
"""Against Linux' own soft-RoCE driver: Debian's programs there, the same over Verbena here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.programs.pairs import Pair, Side, finish
from tests.programs.results import assert_exchanged, assert_measured
from tests.roce import linux_guest
from tests.roce.linux_guest import Guest, Lab
from tests.roce.networks import Host

pytestmark = [pytest.mark.debian, pytest.mark.timeout(300)]

PORT = 20_600
# GID 2 of rxe0: 0 is link-local, 1 is IPv4.
GUEST_GID = {False: 1, True: 2}
VERSIONS = pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
ROLES = pytest.mark.parametrize("serve", [True, False], ids=["as-server", "as-client"])
PINGPONGS = ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong")
SIZE = dict.fromkeys(PINGPONGS, 4096) | {"ibv_ud_pingpong": 1024}
PERFTEST = [
    *[(f"ib_{verb}_{kind}", "RC") for verb in ("send", "write", "read") for kind in ("bw", "lat")],
    *[(f"ib_{verb}_bw", "UC") for verb in ("send", "write")],
    ("ib_send_bw", "UD"),
]


class Bench:
    """Verbena here, the guest there."""

    def __init__(self, lab: Lab, guest: Guest) -> None:
        self.guest = guest
        self.host = Host(lab.namespace, lab.ipv4, lab.ipv6)

    def pair(
        self,
        program: tuple[str, ...],
        *,
        serve: bool,
        gid: str,
        ipv6: bool = False,
        env: dict[str, str] | None = None,
        timeout: float = 100,
    ) -> Pair:
        """The program on both sides; `serve`: Verbena's is the server."""
        words = (*program, "-p", str(PORT))
        host = self.host
        mine = (*words, gid, str(host.gid_index(host.ipv6 if ipv6 else host.ipv4)))
        theirs = (*words, gid, str(GUEST_GID[ipv6]))
        if serve:
            server = host.start(*mine, env=env)
            host.wait_listening(server, PORT)
            client = self.guest.start(" ".join((*theirs, host.ipv4)))
        else:
            server = self.guest.start(" ".join(theirs))
            self.wait_listening()
            client = host.start(*mine, self.guest.ipv4, env=env)
        pair = self.finish(server, client, serve, timeout)
        if any(side.status for side in pair.sides):  # what goes on sending disturbs all that follow
            self.guest.run(f"killall -9 {program[0]}; true")
        return pair

    def wait_listening(self) -> None:
        listens = f"netstat -ltn | grep -q ':{PORT} '"
        self.guest.run(f"for i in $(seq 100); do {listens} && exit 0; sleep 0.05; done; exit 1")

    def finish(
        self,
        server: subprocess.Popen[str],
        client: subprocess.Popen[str],
        serve: bool,
        timeout: float,
    ) -> Pair:
        ended = finish("client", client, timeout)
        other = finish("server", server, timeout if ended.status == 0 else 5)
        return Pair(other, self.unwrap(ended)) if serve else Pair(self.unwrap(other), ended)

    @staticmethod
    def unwrap(side: Side) -> Side:
        status, text = Guest.status_and_text(side.output)
        return Side(f"{side.name} (Linux)", status, text)


def make_bench(mtu: int) -> Iterator[Bench]:
    reason = linux_guest.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Lab(mtu) as lab:
        yield Bench(lab, lab.boot())


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    yield from make_bench(1500)


@pytest.fixture(scope="session")
def jumbo_bench() -> Iterator[Bench]:
    yield from make_bench(9000)


# ---- pingpongs ---------------------------------------------------------------------------------


@VERSIONS
@ROLES
@pytest.mark.parametrize("name", PINGPONGS)
def test_pingpong(bench: Bench, name: str, serve: bool, ipv6: bool) -> None:
    pair = bench.pair((name, "-c", "-n", "100"), serve=serve, gid="-g", ipv6=ipv6)
    assert_exchanged(pair, SIZE[name], 100)


@ROLES
@pytest.mark.parametrize("size", [1, 3, 1023, 1025, 65_537, 1 << 20])
def test_pingpong_sizes(bench: Bench, size: int, serve: bool) -> None:
    count = 10 if size < 1 << 20 else 3  # its emulated processor compares each byte
    program = ("ibv_rc_pingpong", "-c", "-s", str(size), "-n", str(count))
    assert_exchanged(bench.pair(program, serve=serve, gid="-g"), size, count)


@ROLES
@pytest.mark.parametrize("mtu", [256, 512, 1024])
def test_path_mtu(bench: Bench, mtu: int, serve: bool) -> None:
    program = ("ibv_rc_pingpong", "-c", "-m", str(mtu), "-s", "10000", "-n", "20")
    assert_exchanged(bench.pair(program, serve=serve, gid="-g"), 10_000, 20)


@ROLES
@pytest.mark.parametrize("mtu", [2048, 4096])
def test_path_mtu_of_a_jumbo_link(jumbo_bench: Bench, mtu: int, serve: bool) -> None:
    program = ("ibv_rc_pingpong", "-c", "-m", str(mtu), "-s", "10000", "-n", "20")
    assert_exchanged(jumbo_bench.pair(program, serve=serve, gid="-g"), 10_000, 20)


# ---- perftest ----------------------------------------------------------------------------------


@ROLES
@pytest.mark.parametrize(("name", "transport"), PERFTEST)
def test_perftest(bench: Bench, name: str, transport: str, serve: bool) -> None:
    reliable = transport == "RC"
    size = 8 if name.endswith("lat") else 65_536 if reliable else 1024
    program = (name, "-F", "-n", "50", "-c", transport, "-s", str(size))
    if not reliable:
        program += ("-t", "1")  # no burst: what an emulated machine drops nobody sends again
    assert_measured(bench.pair(program, serve=serve, gid="-x"), [size], 50)


@VERSIONS
@ROLES
@pytest.mark.parametrize(
    ("name", "kind"), [("ib_atomic_bw", "FETCH_AND_ADD"), ("ib_atomic_lat", "CMP_AND_SWAP")]
)
def test_atomics(bench: Bench, name: str, kind: str, serve: bool, ipv6: bool) -> None:
    program = (name, "-F", "-n", "50", "-A", kind)
    assert_measured(bench.pair(program, serve=serve, gid="-x", ipv6=ipv6), [8], 50)


@ROLES
@pytest.mark.parametrize("verb", ["send", "write", "read"])
def test_perftest_over_ipv6(bench: Bench, verb: str, serve: bool) -> None:
    program = (f"ib_{verb}_bw", "-F", "-n", "20", "-s", "65536")
    assert_measured(bench.pair(program, serve=serve, gid="-x", ipv6=True), [65_536], 20)


@ROLES
@pytest.mark.parametrize("size", [1, 1025, 1 << 20])
@pytest.mark.parametrize("verb", ["send", "write", "read"])
def test_perftest_sizes(bench: Bench, verb: str, size: int, serve: bool) -> None:
    # By default, 67 ms, a side gives up after half a second, in which the guest may get no time.
    timeout = ("-u", "16")  # 268 ms
    program = (f"ib_{verb}_bw", "-F", "-n", "5", "-s", str(size), *timeout)
    assert_measured(bench.pair(program, serve=serve, gid="-x"), [size], 5)


# ---- loss --------------------------------------------------------------------------------------


@ROLES
@pytest.mark.parametrize("loss", [1, 10])
@pytest.mark.parametrize("verb", ["send", "write", "read", "atomic"])
def test_loss_on_this_side(bench: Bench, verb: str, loss: int, serve: bool) -> None:
    size = 8 if verb == "atomic" else 16_384
    program = (f"ib_{verb}_bw", "-F", "-n", "50", "-t", "16")
    if verb != "atomic":
        program += ("-s", str(size))
    env = {"VERBENA_FAULT": f"seed 5; drop {loss}%"}
    assert_measured(bench.pair(program, serve=serve, gid="-x", env=env), [size], 50)


# ---- a short queue -----------------------------------------------------------------------------


@pytest.mark.parametrize("qps", [8, 32])
def test_many_send_into_a_short_queue(bench: Bench, qps: int) -> None:
    """The guest takes in far less at once than 1 MiB for each queue pair."""
    program = ("ib_write_bw", "-F", "-q", str(qps), "-n", "10", "-s", "65536")
    assert_measured(bench.pair(program, serve=False, gid="-x"), [65_536], 10 * qps)


@ROLES
def test_many_send_both_ways(bench: Bench, serve: bool) -> None:
    """The driver's queue pairs overtake each other, and it sends again what was acknowledged."""
    program = ("ib_write_bw", "-F", "-b", "-q", "8", "-n", "10", "-s", "65536")
    assert_measured(bench.pair(program, serve=serve, gid="-x"), [65_536], 80)
