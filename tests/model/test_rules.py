# SPDX-License-Identifier: Apache-2.0
"""Programs that random ones come to seldom: each rule of windows, XRC, regions and FLUSH is met.

A step that the model and the core see differently raises; what a test asserts besides is that the
program gets where it is meant to get.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.model.compare import Program, forget_core
from tests.model.core import Setting
from tests.model.reference.words import Access, Bind, Place, Recv, Send, Sge
from tests.model.worker import SIZE

WHOLE = Access(31)
PEERS = Access(15)
FLUSHED = PEERS | Access.FLUSH_GLOBAL


@pytest.fixture(scope="module", params=["direct", "roce", "sim"])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    made = Setting(request.param, 1 if request.param == "sim" else 2)
    yield made
    forget_core(made)


@pytest.fixture
def do(setting: Setting) -> Program:
    return Program(setting)


def connected(do: Program, kinds: tuple[str, str] = ("RC", "RC")) -> None:
    """qp1 of A and qp2 of B, with a region each for all of their memory."""
    for process, n in (("A", 1), ("B", 2)):
        do.alloc_pd(process=process, name=f"pd{n}")
        do.create_cq(process=process, name=f"cq{n}")
        do.reg_mr(name=f"mr{n}", pd=f"pd{n}", place=Place("own", 0), length=SIZE, access=WHOLE)
        common = {"pd": f"pd{n}", "send_cq": f"cq{n}", "recv_cq": f"cq{n}", "srq": None}
        if kinds[n - 1] != "XRC_RECV":
            cap = (8, 8, 2, 2, 64) if kinds[n - 1] == "RC" else (8, 0, 2, 0, 64)
            do.create_qp(name=f"qp{n}", kind=kinds[n - 1], cap=cap, sig_all=True, **common)
    if kinds[1] == "XRC_RECV":
        do.open_xrcd(process="B", name="xrcd1")
        do.create_target(name="qp2", xrcd="xrcd1")
    connect(do)


def connect(do: Program, **other: Any) -> None:
    fields = {"to": "RTS", "access": PEERS, "reads": 16, "answers": 16} | other
    do.connect(name="qp1", peer="qp2", **fields)
    do.connect(name="qp2", peer="qp1", **fields)


def reconnect(do: Program, **other: Any) -> None:
    for name in ("qp1", "qp2"):
        do.modify(name=name, to="RESET", given=set(), access=WHOLE, qkey=0)
    connect(do, **other)


def write(do: Program, number: int, key: str, place: Place, srq: str = "") -> str:
    """From qp1 to the peer; the state of qp1 afterwards."""
    sges = (Sge(Place("own", 0), 8, "mr1"),)
    request = Send(number, "RDMA_WRITE", sges, place=place, key=key, srq=srq or "nothing")
    do.post_send(name="qp1", requests=(request,))
    return str(do.world.qps["qp1"].state)


def send(do: Program, number: int, opcode: str, key: str, srq: str = "nothing") -> str:
    sges = (Sge(Place("own", 64), 8, "mr1"),)
    do.post_send(name="qp1", requests=(Send(number, opcode, sges, key=key, srq=srq),))
    return str(do.world.qps["qp1"].state)


def receive(number: int) -> tuple[Recv, ...]:
    return (Recv(number, (Sge(Place("own", 1024), 64, "mr2"),)),)


def bind(
    do: Program,
    number: int,
    window: str,
    low: int,
    *,
    length: int = 64,
    access: Access = PEERS,
    through: str = "qp2",
) -> None:
    """B's window, to the region from 512 on."""
    key = f"{window}:{low}"
    request = Bind(number, window, key, "mr2", Place("own", 512), length, access)
    do.bind_mw(name=through, request=request)


def test_what_a_window_is_not_bound_to(do: Program) -> None:
    """Each of these bindings is refused, and what was bound before stays bound."""
    connected(do)
    do.alloc_pd(process="B", name="pd3")
    for n, pd in ((1, "pd2"), (2, "pd2"), (3, "pd3")):
        do.alloc_mw(name=f"mw{n}", pd=pd, kind=2)
    bind(do, 1, "mw1", 1)
    regions = (("pd2", 15), ("pd2", 16), ("pd2", 31 | 32), ("pd3", 31))
    for n, (pd, access) in enumerate(regions, 3):
        region = {"place": Place("own", 512), "length": 64, "access": Access(access)}
        do.reg_mr(name=f"mr{n}", pd=pd, **region)
    places = ((512, 64), (500, 64), (512, 65))
    asked = [("mw2", f"mr{n}", 512, 64) for n in range(3, 7)]
    asked += [("mw2", "mr2", SIZE - 8, 9), ("mw2", "mr2", 512, 0), ("mw2", "", 512, 0)]
    asked += [("mw3", "mr2", *place) for place in places] + [("mw1", "mr2", 512, 64)]
    for n, (window, region, offset, length) in enumerate(asked, 10):
        start = 0 if region == "mr5" else offset
        place = Place("zero" if region == "mr5" else "own", start)
        request = Bind(n, window, f"{window}:2", region, place, length, PEERS)
        do.bind_mw(name="qp2", request=request)
        assert do.world.qps["qp2"].state == "ERR"
        reconnect(do)
        bind(do, n + 100, "mw1", 1)


def test_a_window_opens_what_it_says(do: Program) -> None:
    """Its access, addresses and range, and not the region's."""
    connected(do)
    do.alloc_mw(name="mw1", pd="pd2", kind=2)
    cases = (
        (Access(4), Place("own", 512), "ERR"),
        (Access(2 | 32), Place("zero", 56), "RTS"),
        (Access(2 | 32), Place("own", 512), "ERR"),
        (Access(2), Place("own", 568), "RTS"),
        (Access(2), Place("own", 569), "ERR"),
    )
    for n, (access, place, state) in enumerate(cases, 1):
        bind(do, n, "mw1", n, access=access)
        assert write(do, 10 + n, f"mw1:{n}", place) == state
        reconnect(do)


def third(do: Program) -> None:
    """qp3, beside qp2. Its peer does not know it."""
    cqs = {"send_cq": "cq2", "recv_cq": "cq2", "srq": None, "cap": (8, 8, 2, 2, 64)}
    do.create_qp(name="qp3", pd="pd2", kind="RC", sig_all=True, **cqs)
    to = {"to": "RTS", "access": PEERS, "reads": 16, "answers": 16}
    do.connect(name="qp3", peer="qp1", **to)


def test_to_whom_a_window_opens(do: Program) -> None:
    """Type 2: the queue pair that it was bound through. Type 1: all of its domain."""
    connected(do)
    third(do)
    for n, kind in ((1, 1), (2, 2)):
        do.alloc_mw(name=f"mw{n}", pd="pd2", kind=kind)
        bind(do, n, f"mw{n}", n, through="qp3")
    assert write(do, 3, "mw1:1", Place("own", 512)) == "RTS"
    assert write(do, 4, "mw2:2", Place("own", 512)) == "ERR"


def test_a_window_that_is_gone(do: Program) -> None:
    connected(do)
    do.alloc_mw(name="mw1", pd="pd2", kind=2)
    bind(do, 1, "mw1", 1)
    do.close(name="mw1")
    assert write(do, 2, "mw1:1", Place("own", 512)) == "ERR"


def test_a_binding_that_comes_too_late(do: Program) -> None:
    """The program has bound the window again meanwhile, and that counts. Type 1 counts from its
    region's addresses."""
    connected(do)
    third(do)
    do.alloc_mw(name="mw1", pd="pd2", kind=1)
    bind(do, 1, "mw1", 1, access=Access(2 | 32))
    do.modify(name="qp3", to="SQD", given=set(), access=WHOLE, qkey=0)
    bind(do, 2, "mw1", 2, through="qp3")
    bind(do, 3, "mw1", 3)
    do.modify(name="qp3", to="RTS", given=set(), access=WHOLE, qkey=0)
    assert write(do, 4, "mw1:3", Place("own", 512)) == "RTS"
    assert write(do, 5, "mw1:2", Place("own", 512)) == "ERR"


def test_a_window_that_the_peer_invalidates(do: Program) -> None:
    connected(do)
    do.alloc_mw(name="mw1", pd="pd2", kind=2)
    bind(do, 1, "mw1", 7)
    assert write(do, 2, "mw1:7", Place("own", 568)) == "RTS"
    do.close(name="mr2")  # not while it is bound
    assert do.world.owner["mr2"] == "B"
    do.post_recv(name="qp2", requests=receive(3))
    assert send(do, 4, "SEND_WITH_INV", "mw1:7") == "RTS"
    bind(do, 5, "mw1", 8)
    assert write(do, 6, "mw1:8", Place("own", 512)) == "RTS"
    assert write(do, 7, "mw1:7", Place("own", 512)) == "ERR"


def test_a_key_that_cannot_be_invalidated(do: Program) -> None:
    """Another queue pair's, after a reset; a region's; a window's of type 1."""
    connected(do)
    for n, kind in ((1, 2), (2, 1)):
        do.alloc_mw(name=f"mw{n}", pd="pd2", kind=kind)
        bind(do, n, f"mw{n}", n)
    reconnect(do)  # which ends the binding of type 2, and leaves the other
    assert write(do, 3, "mw2:2", Place("own", 512)) == "RTS"
    for n, key in enumerate(("mw1:1", "mw2:2", "mr2")):
        do.post_recv(name="qp2", requests=receive(10 + n))
        assert send(do, 20 + n, "SEND_WITH_INV", key) == "ERR"
        reconnect(do)
    assert write(do, 4, "mw1:1", Place("own", 512)) == "ERR"


def test_windows_that_their_owner_takes_back(do: Program) -> None:
    connected(do)
    for n, kind in ((1, 2), (2, 1)):
        do.alloc_mw(name=f"mw{n}", pd="pd2", kind=kind)
        bind(do, n, f"mw{n}", n)
    do.post_send(name="qp2", requests=(Send(3, "LOCAL_INV", key="mw1:1"),))
    bind(do, 4, "mw2", 4)  # ends the binding that there was
    bind(do, 5, "mw2", 5, length=0)
    do.close(name="mr2")
    assert "mr2" not in do.world.owner


def test_requests_for_two_xrc_queues(do: Program) -> None:
    connected(do, ("XRC_SEND", "XRC_RECV"))
    do.alloc_pd(process="B", name="pd3")
    do.create_cq(process="B", name="cq3")
    do.open_xrcd(process="B", name="xrcd2")
    for n, pd, cq, xrcd in ((1, "pd2", "cq2", 1), (2, "pd3", "cq3", 1), (3, "pd2", "cq2", 2)):
        shared = {"pd": pd, "cq": cq, "xrcd": f"xrcd{xrcd}"}
        do.create_srq(name=f"srq{n}", max_wr=8, max_sge=2, **shared)
    do.reg_mr(name="mr3", pd="pd3", place=Place("own", 0), length=SIZE, access=WHOLE)
    do.post_srq_recv(name="srq1", requests=receive(1))
    do.post_srq_recv(name="srq2", requests=(Recv(2, (Sge(Place("own", 1024), 64, "mr3"),)),))
    assert send(do, 3, "SEND", "", "srq2") == "RTS"
    assert send(do, 4, "SEND", "", "srq1") == "RTS"
    assert write(do, 5, "mr3", Place("own", 600), "srq2") == "RTS"
    assert write(do, 6, "mr3", Place("own", 600), "srq1") == "ERR"
    reconnect(do)
    assert write(do, 7, "mr2", Place("own", 600), "srq3") == "ERR"
    reconnect(do)
    do.close(name="srq1")
    assert send(do, 8, "SEND", "", "srq1") == "ERR"
    do.close(name="xrcd1")
    assert "xrcd1" in do.world.owner


def test_what_is_not_posted(do: Program) -> None:
    """An XRC target has no queues; UC is answered by nobody."""
    connected(do, ("XRC_SEND", "XRC_RECV"))
    do.alloc_mw(name="mw1", pd="pd2", kind=2)
    cqs = {"send_cq": "cq2", "recv_cq": "cq2", "srq": None, "cap": (8, 8, 2, 2, 64)}
    do.create_qp(name="qp3", pd="pd2", kind="UC", sig_all=True, **cqs)
    do.connect(name="qp3", to="RTS", peer="qp1", access=PEERS, reads=16, answers=16)
    bind(do, 1, "mw1", 1)
    do.post_recv(name="qp2", requests=receive(2))
    do.post_recv(name="qp1", requests=(Recv(3),))
    for n, opcode in enumerate(("SEND", "LOCAL_INV", "SEND_WITH_INV", "ATOMIC_WRITE"), 10):
        request = Send(n, opcode, key="mw1:1", place=Place("own", 512))
        for name in ("qp2", "qp3"):
            do.post_send(name=name, requests=(request,))


def test_a_region_that_is_another_one_now(do: Program) -> None:
    connected(do)
    again = {"name": "mr2", "pd": None, "place": None, "length": 0, "access": None}
    do.rereg_mr(**again | {"key": "mr2:1", "place": Place("heap", 256), "length": 64})
    assert write(do, 1, "mr2:1", Place("heap", 312)) == "RTS"
    do.rereg_mr(**again | {"key": "", "access": WHOLE | Access.ZERO_BASED})
    assert write(do, 2, "mr2:1", Place("zero", 56)) == "RTS"
    do.rereg_mr(**again | {"key": "", "access": Access(2)})  # refused: it stays as it is
    assert write(do, 3, "mr2:1", Place("zero", 56)) == "RTS"
    assert write(do, 4, "mr2", Place("zero", 56)) == "ERR"
    reconnect(do)
    do.alloc_pd(process="B", name="pd3")
    do.rereg_mr(**again | {"key": "", "pd": "pd3"})
    assert write(do, 5, "mr2:1", Place("zero", 56)) == "ERR"
    reconnect(do)
    do.rereg_mr(**again | {"key": "", "pd": "pd2", "access": Access(16)})
    assert write(do, 6, "mr2:1", Place("heap", 256)) == "ERR"


def test_an_atomic_write(do: Program) -> None:
    connected(do)
    readable = {"place": Place("own", 0), "length": 64, "access": Access(4)}
    do.reg_mr(name="mr3", pd="pd2", **readable)
    between = {"place": Place("own", 516), "length": 64, "access": PEERS | Access.ZERO_BASED}
    do.reg_mr(name="mr4", pd="pd2", **between)
    wanted = [(8, Place("own", 512), "mr2"), (16, Place("own", 512), "mr2")]
    wanted += [(8, Place("own", 516), "mr2"), (4, Place("own", 512), "mr2")]
    wanted += [(8, Place("own", 8), "mr3"), (8, Place("zero", 8), "mr4")]
    for n, (length, place, key) in enumerate(wanted, 1):
        sges = (Sge(Place("own", 8), length, "mr1"),)
        request = Send(n, "ATOMIC_WRITE", sges, place=place, key=key)
        do.post_send(name="qp1", requests=(request,))
        assert do.world.qps["qp1"].state == ("RTS" if n == 1 else "ERR")
        reconnect(do)


def flush(do: Program, number: int, key: str, place: Place, extent: int | None, **more: Any) -> str:
    """From qp1, alone; the state of qp1 afterwards."""
    request = Send(number, "FLUSH", place=place, key=key, extent=extent, **more)
    do.post_send(name="qp1", requests=(request,))
    return str(do.world.qps["qp1"].state)


def flushing(do: Program, kinds: tuple[str, str] = ("RC", "RC")) -> None:
    """As `connected`; mr3 is B's too, and can be flushed."""
    connected(do, kinds)
    region = {"place": Place("own", 512), "length": 64, "access": FLUSHED}
    do.reg_mr(name="mr3", pd="pd2", **region)
    reconnect(do, access=FLUSHED)


def test_where_a_flush_may_be(do: Program) -> None:
    """Its key is looked at for no byte too; of the whole region only its key."""
    flushing(do)
    do.alloc_pd(process="B", name="pd3")
    others = {"place": Place("own", 512), "length": 64}
    do.reg_mr(name="mr4", pd="pd3", access=FLUSHED, **others)
    do.reg_mr(name="mr5", pd="pd2", access=FLUSHED | Access.ZERO_BASED, **others)
    do.reg_mr(name="mr6", pd="pd2", access=Access.FLUSH_GLOBAL, **others)
    right = [("mr3", 512, 64), ("mr3", 512, 0), ("mr3", 576, 0), ("mr3", 0, None)]
    right += [("mr5", 0, None), ("mr6", 512, 64)]
    wrong = [("mr3", 512, 65), ("mr3", 511, 1), ("mr3", 577, 0), ("mr3", 511, 0)]
    wrong += [("mr2", 512, 8), ("mr2", 512, 0), ("mr2", 512, None), ("mr5", 512, 8)]
    for key in ("mr4", "nothing"):
        wrong += [(key, 512, 8), (key, 512, 0), (key, 512, None)]
    wrong += [("mr3", 512, 2**31 - 1), ("mr3", 512, 2**31)]
    for n, (key, offset, extent) in enumerate(right, 10):
        assert flush(do, n, key, Place("own", offset), extent) == "RTS"
    assert flush(do, 30, "mr5", Place("zero", 64), 0) == "RTS"
    for n, (key, offset, extent) in enumerate(wrong, 40):
        assert flush(do, n, key, Place("own", offset), extent) == "ERR"
        reconnect(do, access=FLUSHED)


def test_what_a_flush_needs(do: Program) -> None:
    """The queue pair's flag, and places among its READs; a region's FLUSH_PERSISTENT is not to be
    had."""
    flushing(do)
    for n, access in ((4, FLUSHED | Access.FLUSH_PERSISTENT), (5, Access.FLUSH_PERSISTENT)):
        do.reg_mr(name=f"mr{n}", pd="pd2", place=Place("own", 0), length=64, access=access)
        assert f"mr{n}" not in do.world.owner
    both = FLUSHED | Access.FLUSH_PERSISTENT
    changed = {"key": "", "pd": None, "place": None, "length": 0, "access": both}
    do.rereg_mr(name="mr3", **changed)
    where = {"key": "mr3", "place": Place("own", 512), "extent": 8}
    assert flush(do, 1, **where, placement=()) == "RTS"
    assert flush(do, 2, **where, flags=("INLINE", "SIGNALED")) == "RTS"
    for n, access in enumerate((PEERS, FLUSHED, both), 10):
        for placement in (("GLOBAL",), ("PERSISTENT",), ("GLOBAL", "PERSISTENT")):
            reconnect(do, access=access)
            granted = access & Access.FLUSH_GLOBAL and placement == ("GLOBAL",)
            state = flush(do, n, **where, placement=placement)
            assert state == ("RTS" if granted else "ERR")
    for depth in ({"reads": 0}, {"answers": 0}):
        reconnect(do, access=FLUSHED, **depth)
        assert flush(do, 20, **where) == "ERR"
    reconnect(do, access=FLUSHED, reads=1, answers=1)
    requests = tuple(Send(n, "FLUSH", **where) for n in range(30, 36))
    do.post_send(name="qp1", requests=requests)
    assert do.world.qps["qp1"].state == "RTS"


def test_a_flush_of_a_window(do: Program) -> None:
    """The window's own flags count; type 2 opens to one queue pair."""
    flushing(do)
    third(do)
    flags = (FLUSHED, PEERS, FLUSHED)
    for n, (access, through) in enumerate(zip(flags, ("qp2", "qp2", "qp3"), strict=True), 1):
        do.alloc_mw(name=f"mw{n}", pd="pd2", kind=2)
        bind(do, n, f"mw{n}", n, access=access, through=through)
    do.alloc_mw(name="mw4", pd="pd2", kind=1)
    bind(do, 4, "mw4", 4, access=FLUSHED)
    for n, key in enumerate(("mw1:1", "mw4:4"), 10):
        assert flush(do, n, key, Place("own", 560), 16) == "RTS"
        assert flush(do, n, key, Place("own", 0), None) == "RTS"
    for n, (key, length) in enumerate((("mw4:4", 65), ("mw2:2", None), ("mw3:3", 8)), 20):
        assert flush(do, n, key, Place("own", 512), length) == "ERR"
        reconnect(do, access=FLUSHED)
    assert flush(do, 30, "mw1:1", Place("own", 512), None) == "ERR"  # unbound with its queue pair
    reconnect(do, access=FLUSHED)
    do.alloc_mw(name="mw5", pd="pd2", kind=2)
    bind(do, 31, "mw5", 5, access=FLUSHED | Access.FLUSH_PERSISTENT)
    assert do.world.qps["qp2"].state == "ERR"


def test_what_a_flush_promises(do: Program) -> None:
    """That what was written and sent before it is there; the comparison looks before B polls."""
    flushing(do)
    do.reg_mr(name="mr4", pd="pd2", place=Place("own", 0), length=SIZE, access=FLUSHED)
    do.post_recv(name="qp2", requests=receive(1))
    sges = (Sge(Place("own", 64), 8, "mr1"),)
    sent = Send(2, "SEND", sges)
    written = Send(3, "RDMA_WRITE", sges, place=Place("own", 600), key="mr4")
    for n, extent in ((4, None), (5, 64)):
        asked = Send(n, "FLUSH", place=Place("own", 1024), key="mr4", extent=extent)
        do.post_send(name="qp1", requests=(sent, written, asked))
        do.post_recv(name="qp2", requests=receive(n + 10))


def test_a_flush_in_its_turn(do: Program) -> None:
    """Completed in order, with FENCE and without, and flushed with the others in ERR."""
    flushing(do)
    own = (Sge(Place("own", 64), 8, "mr1"),)
    there = {"place": Place("own", 512), "key": "mr3"}
    fence = ("FENCE", "SIGNALED")
    asked = [Send(1, "RDMA_READ", own, **there), Send(2, "FLUSH", **there, flags=fence)]
    asked += [Send(3, "RDMA_WRITE", own, **there, flags=fence)]
    do.post_send(name="qp1", requests=tuple(asked))
    do.modify(name="qp1", to="SQD", given=set(), access=WHOLE, qkey=0)
    assert flush(do, 4, **there, extent=8) == "SQD"
    do.modify(name="qp1", to="RTS", given=set(), access=WHOLE, qkey=0)
    asked = [Send(5, "FLUSH", **there), Send(6, "FLUSH", **there | {"key": "mr2"})]
    asked += [Send(7, "FLUSH", **there), Send(8, "RDMA_WRITE", own, **there)]
    do.post_send(name="qp1", requests=tuple(asked))
    assert do.world.qps["qp1"].state == "ERR"
    assert flush(do, 9, **there, extent=8) == "ERR"


def test_who_can_flush(do: Program) -> None:
    """XRC can, by the domain of the SRQ; of the others only RC."""
    flushing(do, ("XRC_SEND", "XRC_RECV"))
    do.create_srq(name="srq1", max_wr=8, max_sge=2, pd="pd2", cq="cq2", xrcd="xrcd1")
    do.alloc_pd(process="B", name="pd3")
    do.create_srq(name="srq2", max_wr=8, max_sge=2, pd="pd3", cq="cq2", xrcd="xrcd1")
    where = {"key": "mr3", "place": Place("own", 512)}
    assert flush(do, 1, **where, extent=None, srq="srq1") == "RTS"
    assert flush(do, 2, **where, extent=64, srq="srq1") == "RTS"
    for n, srq in enumerate(("srq2", "nothing"), 3):
        assert flush(do, n, **where, extent=0, srq=srq) == "ERR"
        reconnect(do, access=FLUSHED)
    cqs = {"send_cq": "cq2", "recv_cq": "cq2", "srq": None, "cap": (8, 8, 2, 2, 64)}
    do.create_qp(name="qp3", pd="pd2", kind="UC", sig_all=True, **cqs)
    do.connect(name="qp3", to="RTS", peer="qp1", access=FLUSHED, reads=16, answers=16)
    do.create_qp(name="qp4", pd="pd2", kind="UD", sig_all=True, **cqs)
    for to, given in (
        ("INIT", {"PKEY_INDEX", "PORT", "QKEY"}),
        ("RTR", set()),
        ("RTS", {"SQ_PSN"}),
    ):
        do.modify(name="qp4", to=to, given=given, access=PEERS, qkey=1)
    for n, name in enumerate(("qp2", "qp3", "qp4"), 10):
        request = Send(n, "FLUSH", place=Place("own", 512), key="mr1", to=name)
        result = do.post_send(name=name, requests=(request,))
        assert result == ("EINVAL", 0)


def test_memory_that_is_not_the_programs(do: Program) -> None:
    """Device memory, and a region of none."""
    connected(do)
    device = {"place": Place("dm", 128), "length": 64, "access": Access(15 | 32)}
    do.reg_mr(name="mr3", pd="pd2", **device)
    do.reg_mr(name="mr5", pd="pd2", **device | {"length": 0})
    do.reg_mr(name="mr6", pd="pd2", **device | {"access": WHOLE | Access.ZERO_BASED})
    assert "mr5" in do.world.owner
    assert "mr6" not in do.world.owner
    assert write(do, 1, "mr3", Place("zero", 56)) == "RTS"
    do.alloc_null_mr(name="mr4", pd="pd1")
    sges = (Sge(Place("own", 77), 16, "mr4"),)
    for n, opcode in enumerate(("RDMA_READ", "RDMA_WRITE"), 2):
        request = Send(n, opcode, sges, place=Place("zero", 0), key="mr3")
        do.post_send(name="qp1", requests=(request,))
    assert do.world.qps["qp1"].state == "RTS"
