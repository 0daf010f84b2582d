# SPDX-License-Identifier: Apache-2.0
"""What the device counts, by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.support import clean_environment
from verbena import verbs


@pytest.mark.not_simulated("it has no UDP port and no socket selection")
def test_every_counter_has_its_name(ctx: verbs.Context) -> None:
    counters = ctx.counters()
    assert counters is not None
    assert set(counters) == {"direct", "engine", "udp", "reuseport"}
    assert {"drop_source", "drop_pkey", "refused_key", "timeouts"} <= set(counters["engine"])
    assert {"received", "receive_bad_icrc"} <= set(counters["udp"])
    assert all(isinstance(value, int) for part in counters.values() for value in part.values())


@pytest.mark.not_simulated("it has no UDP port and no socket selection")
@pytest.mark.parametrize(
    "variable", ["VERBENA_CARRIER=direct", "VERBENA_CARRIER=roce", "VERBENA_LINK_LAYER=infiniband"]
)
def test_counters_have_the_same_names_whether_packets_are_sent_or_not(
    ctx: verbs.Context, variable: str
) -> None:
    program = """
import json
from verbena import verbs
with verbs.open_device("verbena0") as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    mr = pd.alloc(64, 7)
    near.write(mr, mr.addr, mr.rkey)
    cq.wait()[0].raise_for_status()
    print(json.dumps(ctx.counters()))
"""
    name, _, value = variable.partition("=")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {name: value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert {part: set(names) for part, names in counted.items()} == {
        part: set(names) for part, names in (ctx.counters() or {}).items()
    }
    assert any(counted["engine"].values()) == (value == "roce")
    assert counted["direct"]["writes"] == (value != "roce")


@pytest.mark.direct_only("all else goes by packets")
def test_what_goes_direct_is_counted_by_what_was_asked_for(ctx: verbs.Context) -> None:
    def counted() -> dict[str, int]:
        now = (ctx.counters() or {})["direct"]
        return {name: now[name] - before[name] for name in now if now[name] != before[name]}

    before = (ctx.counters() or {})["direct"]
    with ctx.alloc_pd() as pd, ctx.create_cq(64) as cq, pd.alloc(4096, 15) as mr:
        near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
        verbs.connect_pair(near, far)
        near.write(mr, mr.addr, mr.rkey, 0, 1000)
        near.read(mr, mr.addr, mr.rkey, 0, 300)
        near.fetch_add(mr, mr.addr, mr.rkey, 1)
        near.send(mr, 0, 50)  # waits
        far.recv(mr, 100, 100)
        for wc in cq.wait(5):
            wc.raise_for_status()
        expected = {"writes": 1, "payload_sent": 1050, "reads": 1, "payload_read": 300}
        expected |= {"atomics": 1, "sends": 1, "waits_for_receive": 1}
        assert counted() == expected
        near.close()  # what it has counted stays
        assert counted() == expected


def test_a_datagram_without_a_receive_request_is_counted_and_told_in_the_log() -> None:
    program = """
import time
from verbena import verbs
with verbs.open_device("verbena0") as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
    here, there = (pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD) for _ in range(2))
    verbs.connect_pair(here, there)
    ah = pd.create_ah(dgid=ctx.query_gid(1, 0), sgid_index=0)
    here.send(pd.alloc(64), 0, 8, ah=ah, remote_qpn=there.qp_num, remote_qkey=0x11111111)
    cq.wait()[0].raise_for_status()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not ctx.counters()["engine"]["drop_no_receive"]:
        time.sleep(0.01)
    print(ctx.counters()["engine"]["drop_no_receive"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {"VERBENA_CARRIER": "roce", "VERBENA_LOG": "counters"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert re.search(
        r"^verbena: [^\n]+\[\d+\]: counted: engine\.drop_no_receive 1$", done.stderr, re.MULTILINE
    )


def test_after_it_is_closed_nothing_is_counted(ctx: verbs.Context) -> None:
    ctx.close()
    with pytest.raises(verbs.VerbsError, match="closed"):
        ctx.counters()
