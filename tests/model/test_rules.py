# SPDX-License-Identifier: Apache-2.0
"""Programs that random ones come to seldom: each rule of windows, XRC and regions is met.

A step that the model and the core see differently raises; what a test asserts besides is that the
program gets where it is meant to get.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.compare import Program, forget_core
from tests.model.core import Setting
from tests.model.reference.words import Access, Bind, Place, Recv, Send, Sge
from tests.model.worker import SIZE

WHOLE = Access(31)
PEERS = Access(15)


@pytest.fixture(scope="module", params=["direct", "roce"])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    made = Setting(request.param, 2)
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


def connect(do: Program) -> None:
    fields = {"to": "RTS", "access": PEERS, "reads": 16, "answers": 16}
    do.connect(name="qp1", peer="qp2", **fields)
    do.connect(name="qp2", peer="qp1", **fields)


def reconnect(do: Program) -> None:
    for name in ("qp1", "qp2"):
        do.modify(name=name, to="RESET", given=set(), access=WHOLE, qkey=0)
    connect(do)


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


def test_memory_that_is_not_the_programs(do: Program) -> None:
    """Device memory, and a region of none."""
    connected(do)
    device = {"place": Place("dm", 128), "length": 64, "access": Access(15 | 32)}
    do.reg_mr(name="mr3", pd="pd2", **device)
    for n, change in ((5, {"length": 0}), (6, {"access": WHOLE | Access.ZERO_BASED})):
        do.reg_mr(name=f"mr{n}", pd="pd2", **device | change)
        assert f"mr{n}" not in do.world.owner
    assert write(do, 1, "mr3", Place("zero", 56)) == "RTS"
    do.alloc_null_mr(name="mr4", pd="pd1")
    sges = (Sge(Place("own", 77), 16, "mr4"),)
    for n, opcode in enumerate(("RDMA_READ", "RDMA_WRITE"), 2):
        request = Send(n, opcode, sges, place=Place("zero", 0), key="mr3")
        do.post_send(name="qp1", requests=(request,))
    assert do.world.qps["qp1"].state == "RTS"
