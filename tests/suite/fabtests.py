# SPDX-License-Identifier: Apache-2.0
"""fabtests, libfabric's own suite, over its providers that connect by librdmacm: the cases, how one
is run as a server and a client, and which are known not to run and why.

scripts/fabtests.sh has built them. The list of cases is that of the suite's own runner.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.programs.pairs import Pair, finish
from tests.roce.networks import Host
from tests.suite.outcome import Outcome, passed
from tests.support import end_group

ADDRESS = "192.0.2.7"
PROVIDERS = ("verbs", "verbs;ofi_rxm")
LIMIT = 30.0  # seconds for a client
READY_WITHIN = 4.0
LISTENS_BY_CM = "import sys; from verbena.agent.client import describe_agent as a; " + (
    "sys.exit(int(sys.argv[1]) not in (a() or {}).get('listening_programs', ()))"
)


@dataclass(frozen=True)
class Built:
    """What scripts/fabtests.sh has left."""

    source: Path
    programs: Path
    version: str

    @staticmethod
    def within(folder: Path) -> Built:
        source, programs, version = (folder / "ready").read_text().splitlines()
        return Built(Path(source), Path(programs), version)


def listed(script: str, name: str) -> list[str]:
    """The strings of an array in the suite's runner."""
    found = re.search(rf"^{name}=\((.*?)^\)", script, re.MULTILINE | re.DOTALL)
    return re.findall(r'"([^"]*)"', found[1]) if found else []


def cases(built: Built) -> list[str]:
    script = (built.source / "scripts/runfabtests.sh").read_text()
    return [case for kind in ("functional", "short") for case in listed(script, f"{kind}_tests")]


# The cases that are known not to run: a regular expression, the provider ("": both), and why. None
# of these is a matter of the adapter. The first that fits counts.
DATAGRAMS = "datagrams of the provider have no socket addresses; the suite's own list has none"
RELIABLE = "it offers reliable datagrams alone"
PAIR = r"shared_ctx( --no\S+)?$|shared_ctx -e msg( --no-rx\S+)?$"
NO_EVENTS = "the provider has no events of remote writes (FI_RMA_EVENT)"
NEEDS = (
    ("scalable_ep", "", "the providers have no scalable endpoints (FI_NAMED_RX_CTX)"),
    ("rdm_shared_av", "", "one command has to be server and client: the client is a child of it"),
    ("rma_trigger", "", "the providers have no triggered operations (FI_TRIGGER)"),
    ("dgram", "verbs", DATAGRAMS),
    (PAIR, "verbs", "connections of the provider share their receive contexts alone"),
    ("multi_mr", "verbs", NO_EVENTS),
    ("unexpected_msg -e msg", "verbs", "connections of the provider have no tags (FI_TAGGED)"),
    ("multi_recv -e msg", "verbs", "buffers of the provider take one message (FI_MULTI_RECV)"),
    (r"dgram|-e msg|fi_cm_data|fi_msg\b|fi_msg_[^i]", "verbs;ofi_rxm", RELIABLE),
    ("shared_ctx", "verbs;ofi_rxm", "the provider shares no contexts (FI_SHARED_CONTEXT)"),
    ("rma_event|multi_mr", "verbs;ofi_rxm", NO_EVENTS),
)


def why_not(case: str, provider: str) -> str | None:
    """Why this case is known not to run."""
    for pattern, where, why in NEEDS:
        if where in ("", provider) and re.search(pattern, case):
            return why
    return None


NOT_RUN = (errno.ENODATA, errno.ENOSYS, 256 - errno.ENODATA)


def judged(case: str, provider: str, pair: Pair) -> Outcome:
    """As the suite's runner judges: a case was not run when both sides say that no provider offers
    what it needs. Here it has to be in the list, and the list has no other."""
    statuses = [side.status for side in pair.sides]
    known = why_not(case, provider)
    if statuses == [0, 0]:
        return Outcome("failed", "it runs now: drop its entry", str(pair)) if known else passed()
    if known and all(each in NOT_RUN for each in statuses):
        return Outcome("skipped", known)
    return Outcome("failed", f"exit status {statuses[0]} and {statuses[1]}", str(pair))


def run(built: Built, host: Host, address: str, case: str, provider: str) -> Outcome:
    """One case at a host, which has the address on an interface besides lo."""
    name, *options = case.split()
    words = [str(built.programs / name), *options, "-p", provider, "-s", address]
    server = host.start(*words)
    try:
        wait_until_it_listens(host, server)
        client = host.start(*words, address)
        try:
            ended = finish("client", client, LIMIT)
            pair = Pair(finish("server", server, LIMIT if ended.status == 0 else 5), ended)
        finally:
            end_group(client)
    finally:
        end_group(server)
    return judged(case, provider, pair)


def wait_until_it_listens(host: Host, server: subprocess.Popen[str]) -> None:
    """Some servers listen by a socket of TCP, and the client of some waits for them by itself."""
    deadline = time.monotonic() + READY_WITHIN
    while server.poll() is None and time.monotonic() < deadline:
        command = host.command(sys.executable, "-c", LISTENS_BY_CM, str(server.pid))
        if subprocess.run(command).returncode == 0:
            return


def outcomes(built: Built, address: str = ADDRESS) -> Iterator[tuple[str, str, Outcome]]:
    """Provider, case, and what became of it, at a host that is made for that."""
    host = Host(f"vb{os.getpid()}fabtests", "127.0.0.1", "::1")
    subprocess.run(["ip", "netns", "add", host.namespace], check=True)
    try:
        host.run("ip", "link", "set", "lo", "up")
        host.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        for each in ("v0", "v1"):
            host.run("ip", "link", "set", each, "up")
        host.run("ip", "addr", "add", f"{address}/24", "dev", "v0")
        for provider in PROVIDERS:
            for case in cases(built):
                if case == "fi_rdm_shared_av":
                    yield provider, case, Outcome("skipped", why_not(case, provider) or "")
                else:
                    yield provider, case, run(built, host, address, case, provider)
    finally:
        subprocess.run(["ip", "netns", "del", host.namespace], check=True)
