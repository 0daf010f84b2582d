# SPDX-License-Identifier: Apache-2.0
"""Programs that connect by librdmacm, each as a server and a client at two hosts: their commands,
when the server is ready, and what proves that the data arrived. A test of two hosts runs them; they
are Debian's, unmodified. Nothing here starts a process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import debian_packages

Make = Callable[["Ends"], "Connecting"]
PORT = "20700"
GROUP = "239.88.1.1"


@dataclass(frozen=True)
class Ends:
    """The addresses of both hosts, and a folder for files."""

    server: str
    client: str
    folder: Path


@dataclass(frozen=True)
class Connecting:
    """A run of one program.

    The server is ready when it listens by librdmacm, listens at `tcp`, or has said the words of
    `ready`, which it says line by line. `said` is a regular expression in the client's output, and
    `served` one in the server's.
    """

    server: list[str]
    client: list[str]
    said: str = ""
    served: str = ""
    tcp: int | None = None
    ready: str = ""
    settles: float = 0.0  # seconds that the server then still needs
    ends: bool = True  # the server ends with its client; else it serves for ever
    many_packets: bool = False  # so many that one in a hundred is lost
    # What one percent of is lost. Not responses where the server still waits for the last
    # acknowledgement when its client, which has everything, destroys the queue pair and ends.
    lost: str = ""
    env: dict[str, str] = field(default_factory=dict)
    result: tuple[Path, Path] | None = None  # two files that are equal at the end


def both(command: str, server: str = "", client: str = "") -> tuple[list[str], list[str]]:
    """The words of both sides: what they share, and what each has of its own."""
    return [*command.split(), *server.split()], [*command.split(), *client.split()]


def rping(ends: Ends) -> Connecting:
    words = both(f"rping -p {PORT} -C 20 -v -a {ends.server}", "-s", "-c")
    return Connecting(*words, said="ping data: rdma-ping-19", served="ping data: rdma-ping-19")


def ucmatose(ends: Ends) -> Connecting:
    words = both(f"ucmatose -p {PORT} -c 5 -C 20 -S 5000", client=f"-s {ends.server}")
    return Connecting(*words, "data transfers complete", "return status 0", many_packets=True)


def udaddy(ends: Ends) -> Connecting:
    words = both("udaddy -c 3", client=f"-s {ends.server}")
    return Connecting(*words, "data transfers complete", "data transfers complete")


def mckey(ends: Ends) -> Connecting:
    words = both(f"mckey -m {GROUP} -C 10", f"-b {ends.server}", f"-b {ends.client} -s")
    return Connecting(*words, served="data transfers complete", ready="receiving data transfers")


def cmtime(ends: Ends) -> Connecting:
    words = both(f"cmtime -p {PORT}", client=f"-s {ends.server} -c 50")
    return Connecting(*words, r"(?m)^connect *: +[\d.]+", ends=False)


def rstream(ends: Ends) -> Connecting:
    words = both(f"rstream -p {PORT} -S 65536 -C 100", client=f"-s {ends.server}")
    return Connecting(*words, r"(?m)^custom +64k +100 +1 +12m ", many_packets=True)


def riostream(ends: Ends) -> Connecting:
    words = both(f"riostream -p {PORT} -S 65536 -C 100", client=f"-s {ends.server}")
    return Connecting(*words, r"(?m)^custom +64k +100 +1 +12m ", many_packets=True)


def rcopy(ends: Ends) -> Connecting:
    source, copy = ends.folder / "source", ends.folder / "copy"
    source.write_bytes(bytes(range(256)) * 4000)
    words = both("rcopy", client=f"{source} {ends.server}:{copy}")
    return Connecting(*words, ends=False, many_packets=True, result=(source, copy))


def rdma_client(ends: Ends) -> Connecting:
    server, client = f"rdma_server -p {PORT}", f"rdma_client -p {PORT} -s {ends.server}"
    return Connecting(server.split(), client.split(), r"end 0\n", r"end 0\n")


def rdma_xclient(ends: Ends) -> Connecting:
    """The same, with an SRQ or XRC in place of a receive queue; here with neither."""
    server, client = f"rdma_xserver -p {PORT}", f"rdma_xclient -p {PORT} -s {ends.server}"
    return Connecting(
        [*server.split(), "-c", "r"], [*client.split(), "-c", "r"], r"end 0\n", r"end 0\n"
    )


def perftest(ends: Ends) -> Connecting:
    """Its server closes its first listener and opens a second one."""
    words = both(f"ib_write_bw -F -R -n 100 -s 65536 -p {PORT}", client=ends.server)
    return Connecting(*words, r"(?m)^ 65536 +100 ", many_packets=True, settles=0.3)


def qperf(ends: Ends) -> Connecting:
    words = both("qperf", client=f"-cm 1 -t 1 {ends.server} rc_bw")
    return Connecting(*words, r"rc_bw:\n +bw +=", tcp=19765, ends=False, many_packets=True)


def fi_pingpong(provider: str, endpoint: str) -> Make:
    def make(ends: Ends) -> Connecting:
        words = both(f"fi_pingpong -p {provider} -e {endpoint} -I 10", client=ends.server)
        said, lost = r"(?m)^1m +10 +=10 ", "opcode=request"
        return Connecting(*words, said, tcp=47592, many_packets=True, lost=lost)

    return make


def io_demo(ends: Ends) -> Connecting:
    """UCX's demonstration of storage."""
    words = both("io_demo -q", client=f"-i 100 -o read,write {ends.server}")
    env = {"UCX_TLS": "rc,ud", "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm"}
    return Connecting(*words, "Client exit with status 'OK'", env=env, ends=False)


def iperf(ends: Ends) -> Connecting:
    """It knows TCP alone, and runs over librspreload."""
    client = f"-c {ends.server} -n 4M"
    server, caller = both(debian_packages.iperf(), f"-s -B {ends.server} -P 1", client)
    env = debian_packages.preloaded_rsocket()
    return Connecting(server, caller, served="4.[0-9]* MBytes", env=env, many_packets=True)


def fio(ends: Ends) -> Connecting:
    words = "--ioengine=rdma --bs=64k --size=16m --iodepth=16 --port=7400 --name=job --thread"
    command = [*debian_packages.fio(), *words.split()]
    writes = ["--verb=write", "--rw=write", f"--hostname={ends.server}"]
    said = r"WRITE: .*io=16\.0MiB"
    return Connecting([*command, "--rw=read"], [*command, *writes], said, many_packets=True)


def udapl(program: str, server: str, client: str, said: str, **how: Any) -> Make:
    """A test of uDAPL, over its provider of librdmacm; HOST in the client's words is the server."""

    def make(ends: Ends) -> Connecting:
        root = debian_packages.kept("dapl2-utils", "usr/bin/dtest")
        (library,) = (root / "usr/lib").glob("*/libdaplofa.so.2")
        registry = ends.folder / "dat.conf"
        registry.write_text(f'v u2.0 nonthreadsafe default {library} dapl.2.0 "eth0 0" ""\n')
        command = debian_packages.with_libraries(root, f"usr/bin/{program}")
        words = client.replace("HOST", ends.server).split()
        env = {"DAT_OVERRIDE": str(registry)}
        return Connecting([*command, *server.split()], [*command, *words], said, env=env, **how)

    return make


# The words of the transaction of dapltest: who, what, how many bytes, in how many segments.
TRANSACTION = "client RW 4096 2 server RR 4096 2 client SR 256 server SR 256"

PROGRAMS: dict[str, Make] = {
    **{made.__name__: made for made in (rping, ucmatose, udaddy, mckey, cmtime, rstream)},
    **{made.__name__: made for made in (riostream, rcopy, rdma_client, rdma_xclient)},
    **{made.__name__: made for made in (perftest, qperf, io_demo, iperf, fio)},
    "fi_pingpong-msg": fi_pingpong("verbs", "msg"),
    "fi_pingpong-rdm": fi_pingpong("verbs;ofi_rxm", "rdm"),
    "dtest": udapl(
        "dtest",
        "-P v -b 65536",
        "-P v -b 65536 -h HOST",
        "DAPL Test Complete. PASSED",
        tcp=15828,
        many_packets=True,
    ),
    "dtestsrq": udapl("dtestsrq", "-s -P v", "-P v -h HOST", "SRQ Test Complete"),
    "dapltest": udapl(
        "dapltest",
        "-T S -D v",
        f"-T T -D v -s HOST -t 1 -w 1 -i 100 {TRANSACTION}",
        "End of Work",
        ends=False,
        many_packets=True,
    ),
}
