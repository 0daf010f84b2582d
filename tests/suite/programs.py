# SPDX-License-Identifier: Apache-2.0
"""Programs that others ship and that use libibverbs, perftest and rdma-core's tests aside: a table
of runs, and each run once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.programs.pairs import (
    HOST,
    Pair,
    Side,
    complaints,
    exchange_with_many,
    finish,
    free_port,
    start_pair,
    wait_listening,
)
from tests.suite.outcome import Outcome, of_pair, passed
from tests.suite.processes import start
from tests.support import end_group, verbena_command

LIMIT = 60.0  # seconds for a run


@dataclass(frozen=True)
class Program:
    """One run: `name` as the page calls it, the program that must be installed, and the run."""

    group: str
    name: str
    needs: str
    run: Callable[[], Outcome]


def outcome(program: Program) -> Outcome:
    """What became of it. A program that is not installed is skipped."""
    if shutil.which(program.needs) is None:
        return Outcome("skipped", f"{program.needs} is not installed")
    return program.run()


# ---- programs that run alone -------------------------------------------------------------------


def alone(command: str, wanted: str) -> Callable[[], Outcome]:
    """Ends well and says the wanted words, a regular expression."""

    def run() -> Outcome:
        done = subprocess.run(
            verbena_command("run", "--", *command.split()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        if done.returncode:
            return Outcome("failed", f"exit status {done.returncode}", done.stdout)
        if not re.search(wanted, done.stdout):
            return Outcome("failed", f"does not say {wanted!r}", done.stdout)
        return passed()

    return run


LISTINGS = (
    ("ibv_devices", r"verbena0\s+[0-9a-f]{16}"),
    ("ibv_devinfo -v", r"hca_id:\s+verbena0[\s\S]*PORT_ACTIVE"),
    ("ucx_info -d", r"Transport: rc_verbs\n#\s+Device: verbena0:1"),
    ("fi_info -p verbs", r"domain: verbena0-dgram[\s\S]*FI_EP_DGRAM"),
)


# ---- pairs of a server and a client ------------------------------------------------------------


def pair(
    *command: str, client_only: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Pair:
    running = start_pair(start, *command, client_only=client_only, env=env)
    try:
        return running.finish(LIMIT)
    finally:
        end_group(running.client)
        end_group(running.server)


def pingpong(program: str, arguments: str) -> Callable[[], Outcome]:
    wanted = "success" if program == "ibv_xsrq_pingpong" else "100 iters in"

    def run() -> Outcome:
        ran = pair(program, "-g", "1", "-n", "100", *arguments.split())
        said = re.search(rf"\b{wanted}\b", ran.client.output)
        return of_pair(ran, "" if said else f"it did not say {wanted!r}")

    return run


RC_OPTIONS = ("", "-e", "-c", "-t", "-t -c", "-N", "-N -c", "-s 100000 -m 4096", "-r 16 -l 3")
RC_OPTIONS += ("-o", "-o -P", "-j", "-j -N")
PINGPONGS = (
    *(("ibv_rc_pingpong", options) for options in RC_OPTIONS),
    *(("ibv_uc_pingpong", options) for options in ("", "-e", "-c", "-s 100000 -m 4096")),
    *(("ibv_ud_pingpong", options) for options in ("", "-e", "-c", "-s 256")),
    *(("ibv_srq_pingpong", options) for options in ("", "-e", "-c", "-q 4", "-s 100000 -m 4096")),
    *(("ibv_xsrq_pingpong", options) for options in ("", "-e", "-s 100000 -m 4096")),
)

CLIENTS = (2, 5)


def xrc_clients(count: int) -> Callable[[], Outcome]:
    """An XRC domain of all clients: the server reaches each through the target QPs of all."""

    def run() -> Outcome:
        sides = exchange_with_many(start, count, "ibv_xsrq_pingpong", "-g", "1", "-n", "100")
        text = "\n".join(map(str, sides))
        if any(side.status or not side.output.endswith("success\n") for side in sides):
            return Outcome("failed", "not all say success", text)
        return passed()

    return run


UCX_TESTS = (
    *("tag_lat", "tag_bw", "tag_sync_lat", "ucp_am_lat", "ucp_am_bw", "stream_lat", "stream_bw"),
    *("ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"),
)


UCX_TRANSPORTS = ("rc_verbs,ud_verbs:aux", "ud_verbs")


def ucx(transports: str, test: str) -> Callable[[], Outcome]:
    env = {"UCX_TLS": transports, "UCX_NET_DEVICES": "verbena0:1"}

    def run() -> Outcome:
        client = ("-t", test, "-s", "8", "-n", "200", "-w", "5")
        ran = pair("ucx_perftest", client_only=client, env=env)
        final = re.search(r"^Final: +200 ", ran.client.output, re.MULTILINE)
        return of_pair(ran, "" if final else "it did not count 200 iterations")

    return run


# ---- MPICH, which goes over UCX ----------------------------------------------------------------

RANKS = "3"
RING = Path(__file__).with_name("mpi_ring.c")


def mpich(transports: str) -> Callable[[], Outcome]:
    """A ring of processes, compiled with MPICH, which may use these transports alone."""
    env = {"UCX_TLS": transports, "UCX_NET_DEVICES": "verbena0:1"}

    def run() -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/ring"
            subprocess.run(["mpicc.mpich", "-o", program, str(RING)], check=True)
            done = subprocess.run(
                verbena_command("run", "--", "mpiexec.mpich", "-n", RANKS, program),
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT,
            )
        said = f"{RANKS} processes have sent, written and added\n"
        if done.returncode or done.stdout != said:
            return Outcome("failed", f"exit status {done.returncode}", done.stdout)
        return passed()

    return run


# ---- libfabric: datagrams made reliable by its own provider, without a connection manager ------


def fabric_pingpong() -> Outcome:
    port = str(free_port())
    command = ("fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-I", "100", "-S", "4096")
    server = start(*command, "-B", port)
    try:
        wait_listening(server, int(port))
        client = start(*command, "-P", port, HOST)
        try:
            ran = Pair(finish("server", server, LIMIT), finish("client", client, LIMIT))
        finally:
            end_group(client)
    finally:
        end_group(server)
    largest = re.search(r"^\S+ +100 +=100 ", ran.client.output, re.MULTILINE)
    return of_pair(ran, "" if largest else "it did not exchange 100 messages")


# ---- qperf: one server, a client for each test -------------------------------------------------

QPERF_TESTS = (
    *(f"{kind}_{what}" for kind in ("rc", "uc", "ud") for what in ("bw", "lat", "bi_bw")),
    *(f"rc_rdma_read_{what}" for what in ("bw", "lat")),
    *(f"{kind}_rdma_write_{what}" for kind in ("rc", "uc") for what in ("bw", "lat", "poll_lat")),
    *("rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add"),
    *("xrc_bw", "xrc_lat", "xrc_bi_bw"),
)
# Without --use_cm it sets up addresses that have no GRH. RoCE wants one (IBTA annex A16), and for
# every RoCE device, soft-RoCE too, Linux refuses the same before it asks the driver
# (rdma_check_ah_attr in drivers/infiniband/core/verbs.c). So it runs on an InfiniBand port.
INFINIBAND = ("--link-layer", "infiniband")
QPERF_REFUSALS = ((r"bad test; try", "Debian's qperf is built without it"),)


def qperf_client(test: str) -> Side:
    port = free_port()
    server = start("qperf", "-lp", str(port), options=INFINIBAND)
    try:
        wait_listening(server, port)
        client = start("qperf", HOST, "-lp", str(port), "-t", "1", test, options=INFINIBAND)
        try:
            return finish("client", client, LIMIT)
        finally:
            end_group(client)
    finally:
        end_group(server)


def qperf(test: str) -> Callable[[], Outcome]:
    def run() -> Outcome:
        side = qperf_client(test)
        for _ in range(3):
            if not side.status or not side.output.endswith(f"server: \n{test}:\n"):
                break
            side = qperf_client(test)  # both sides failed at once, and its message was lost
        for words, reason in QPERF_REFUSALS:
            if re.search(words, side.output):
                return Outcome("skipped", reason, str(side))
        if side.status or complaints(side.output) or not re.search(r"\d", side.output):
            return Outcome("failed", f"exit status {side.status}", str(side))
        return passed()

    return run


def programs() -> list[Program]:
    """All runs."""
    made = [Program("Listings", text, text.split()[0], alone(text, say)) for text, say in LISTINGS]
    made += [
        Program("ibverbs-utils", f"{name} {options}".strip(), name, pingpong(name, options))
        for name, options in PINGPONGS
    ]
    made += [
        Program("ibverbs-utils", f"ibv_xsrq_pingpong -c {n}", "ibv_xsrq_pingpong", xrc_clients(n))
        for n in CLIENTS
    ]
    words = "fi_pingpong -p 'verbs;ofi_rxd' -e rdm"
    made.append(Program("libfabric", words, "fi_pingpong", fabric_pingpong))
    made += [
        Program("UCX", f"ucx_perftest -t {test}, {tls}", "ucx_perftest", ucx(tls, test))
        for tls in UCX_TRANSPORTS
        for test in UCX_TESTS
    ]
    made += [
        Program(
            "MPICH, over UCX",
            f"mpiexec.mpich -n {RANKS} {RING.stem}, {tls}",
            "mpiexec.mpich",
            mpich(f"{tls},self"),
        )
        for tls in UCX_TRANSPORTS
    ]
    made += [
        Program("qperf, on an InfiniBand port", f"qperf {test}", "qperf", qperf(test))
        for test in QPERF_TESTS
    ]
    return made
