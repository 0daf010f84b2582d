# SPDX-License-Identifier: Apache-2.0
"""Every input in every state of a connection, against a second table that was written separately.

A row says what is sent at once, and the state behind it; ``again`` means that nothing is sent and a
repeated message is counted. A pair that is missing here changes
nothing: a message is dropped, and a call is refused. Before a REP the peer's ID is not known, so
its DREQ and LAP are a stranger's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.manage.cm.dialogue import ARRIVAL, CLIENT_GUID, SERVER_GID, message, request, sent_as
from tests.manage.cm.test_connection import PEER, Client
from verbena.manage.cm import CmAccept, CmConnection, CmDevice, CmError, CmPort, InfinibandCm
from verbena.manage.cm_messages import CmDrep, CmDreq, CmLap, CmMra, CmRej, CmRep, CmRtu

TABLE = """
REQ_SENT: dreq DREP REQ_SENT; lap APR REQ_SENT; resend REQ REQ_SENT; patience REJ IDLE; mra_req -
    MRA_REQ_RECEIVED; rep - REP_RECEIVED; rej_req - IDLE; stale_req - TIMEWAIT; reject REJ IDLE;
    close REJ IDLE; rej_timeout - IDLE
MRA_REQ_RECEIVED: dreq DREP MRA_REQ_RECEIVED; lap APR MRA_REQ_RECEIVED; resend REQ MRA_REQ_RECEIVED;
    patience REJ IDLE; mra_req again MRA_REQ_RECEIVED; rep - REP_RECEIVED; rej_req - IDLE; stale_req
    - TIMEWAIT; reject REJ IDLE; close REJ IDLE; rej_timeout - IDLE
REP_RECEIVED: resend MRA MRA_REP_SENT; patience MRA MRA_REP_SENT; rep MRA MRA_REP_SENT; delay MRA
    MRA_REP_SENT; establish RTU ESTABLISHED; rej - TIMEWAIT; stale - TIMEWAIT; reject REJ IDLE;
    close REJ IDLE; rej_timeout - TIMEWAIT
MRA_REP_SENT: rep MRA MRA_REP_SENT; delay MRA MRA_REP_SENT; establish RTU ESTABLISHED; rej -
    TIMEWAIT; stale - TIMEWAIT; reject REJ IDLE; close REJ IDLE; rej_timeout - TIMEWAIT
REQ_RECEIVED: resend MRA MRA_REQ_SENT; patience MRA MRA_REQ_SENT; req MRA MRA_REQ_SENT; delay MRA
    MRA_REQ_SENT; accept REP REP_SENT; rej - IDLE; stale - TIMEWAIT; reject REJ IDLE; drop - IDLE;
    close REJ IDLE; rej_timeout - IDLE
MRA_REQ_SENT: req MRA MRA_REQ_SENT; delay MRA MRA_REQ_SENT; accept REP REP_SENT; rej - IDLE; stale -
    TIMEWAIT; reject REJ IDLE; drop - IDLE; close REJ IDLE; rej_timeout - IDLE
REP_SENT: req again REP_SENT; resend REP REP_SENT; patience REJ IDLE; mra_rep - MRA_REP_RECEIVED;
    rtu - ESTABLISHED; notify - ESTABLISHED; rej - IDLE; stale - TIMEWAIT; reject REJ TIMEWAIT;
    close REJ TIMEWAIT; dreq - DREQ_RECEIVED; rej_timeout - IDLE
MRA_REP_RECEIVED: req again MRA_REP_RECEIVED; resend REP MRA_REP_RECEIVED; patience REJ IDLE;
    mra_rep again MRA_REP_RECEIVED; rtu - ESTABLISHED; notify - ESTABLISHED; rej - IDLE; stale -
    TIMEWAIT; reject REJ TIMEWAIT; close REJ TIMEWAIT; dreq - DREQ_RECEIVED; rej_timeout - IDLE
ESTABLISHED: req again ESTABLISHED; rep RTU ESTABLISHED; rtu again ESTABLISHED; lap APR ESTABLISHED;
    rej - TIMEWAIT; stale - TIMEWAIT; dreq - DREQ_RECEIVED; disconnect DREQ DREQ_SENT; close DREQ
    DREQ_SENT; rej_timeout - TIMEWAIT; other_req REJ+DREQ DREQ_SENT
DREQ_SENT: req again DREQ_SENT; rep again DREQ_SENT; rtu again DREQ_SENT; resend DREQ DREQ_SENT;
    patience - TIMEWAIT; drep - TIMEWAIT; dreq DREP TIMEWAIT; rej - TIMEWAIT; stale - TIMEWAIT;
    close - DREQ_SENT; rej_timeout - TIMEWAIT
DREQ_RECEIVED: req again DREQ_RECEIVED; rep again DREQ_RECEIVED; rtu again DREQ_RECEIVED; dreq again
    DREQ_RECEIVED; drep - TIMEWAIT; disconnect DREP TIMEWAIT; close DREP TIMEWAIT
TIMEWAIT: req REJ TIMEWAIT; rep again TIMEWAIT; dreq DREP TIMEWAIT; drep - TIMEWAIT; rtu again
    TIMEWAIT; resend - IDLE; close - TIMEWAIT
IDLE: rep again IDLE; dreq DREP IDLE; close - IDLE
"""
REPEATED = {  # what is sent answers a repeated message
    *(("REP_RECEIVED", "rep"), ("MRA_REP_SENT", "rep"), ("ESTABLISHED", "rep")),
    *(("REQ_RECEIVED", "req"), ("MRA_REQ_SENT", "req"), ("TIMEWAIT", "req")),
    *(("TIMEWAIT", "dreq"), ("IDLE", "dreq"), ("REQ_SENT", "dreq"), ("MRA_REQ_RECEIVED", "dreq")),
}
PASSIVE_ALONE = {"REQ_RECEIVED", "MRA_REQ_SENT", "REP_SENT", "MRA_REP_RECEIVED"}
ACTIVE_ALONE = {"REQ_SENT", "MRA_REQ_RECEIVED", "REP_RECEIVED", "MRA_REP_SENT"}


class Side:
    """A connection in some state, and everything that can happen to it."""

    def __init__(self, cm: InfinibandCm, connection: CmConnection, is_passive: bool) -> None:
        self.cm, self.connection, self.is_passive = cm, connection, is_passive
        self.peer = 0x5001 if is_passive else PEER
        self.guid = CLIENT_GUID if is_passive else 2
        self.qpn = 0x22 if is_passive else 0x11

    def hear(self, record: Any) -> None:
        self.cm.receive(sent_as(record), ARRIVAL, self.cm.now)

    def message(self, kind: type[Any], **more: Any) -> None:
        ids = {"local_comm_id": self.peer, "remote_comm_id": self.connection.local_id}
        self.hear(kind(**ids, **more))

    def req(self) -> None:
        self.hear(request(service_id=1))

    def other_req(self) -> None:
        qpn = 0x11 if self.is_passive else 0x22
        self.hear(request(local_comm_id=0x99, local_ca_guid=self.guid, local_qpn=qpn))

    def rep(self) -> None:
        self.message(CmRep, local_qpn=0x22, local_ca_guid=2, target_ack_delay=15)

    def rej_timeout(self) -> None:
        ari = self.guid.to_bytes(8, "big")
        self.message(CmRej, reason=4, message=2, ari=ari, ari_length=8)

    def mra_req(self) -> None:
        self.message(CmMra, message=0, service_timeout=20)

    def mra_rep(self) -> None:
        self.message(CmMra, message=1, service_timeout=20)

    def rej_req(self) -> None:
        self.message(CmRej, reason=3, message=0)

    def stale_req(self) -> None:
        self.message(CmRej, reason=10, message=0)

    def rej(self) -> None:
        self.message(CmRej, reason=3, message=2)

    def stale(self) -> None:
        self.message(CmRej, reason=10, message=2)

    def rtu(self) -> None:
        self.message(CmRtu)

    def dreq(self) -> None:
        self.message(CmDreq, remote_qpn=self.qpn)

    def drep(self) -> None:
        self.message(CmDrep)

    def lap(self) -> None:
        self.message(CmLap)

    def resend(self) -> None:
        when = self.cm.next_deadline()
        if when is not None:
            self.cm.tick(when)

    def patience(self) -> None:
        if self.connection.state.name in ("DREQ_SENT", *ACTIVE_ALONE, *PASSIVE_ALONE):
            self.cm.tick(self.cm.now + 500)

    def accept(self) -> None:
        self.connection.accept(CmAccept(0x22, 1))

    def establish(self) -> None:
        self.connection.establish()

    def reject(self) -> None:
        self.connection.reject()

    def delay(self) -> None:
        self.connection.delay()

    def disconnect(self) -> None:
        self.connection.disconnect()

    def notify(self) -> None:
        self.connection.notify_established()

    def drop(self) -> None:
        self.connection.drop()

    def close(self) -> None:
        self.connection.close()


INPUTS = [name for name in vars(Side) if name not in ("hear", "message") and name[0] != "_"]
MESSAGES = INPUTS[: INPUTS.index("resend")]


def passive() -> Side:
    cm = InfinibandCm(CmDevice(2, (CmPort((SERVER_GID,)),)), random.Random(4).getrandbits)
    cm.listen(1)
    cm.receive(sent_as(request(service_id=1)), ARRIVAL, 0.0)
    (made,) = cm.machines()
    assert isinstance(made, CmConnection)
    return Side(cm, made, True)


def active() -> Side:
    client = Client()
    return Side(client.cm, client.connection, False)


WAYS: dict[str, list[str]] = {  # to a state, from REQ_RECEIVED
    "REQ_RECEIVED": [],
    "MRA_REQ_SENT": ["delay"],
    "REP_SENT": ["accept"],
    "MRA_REP_RECEIVED": ["accept", "mra_rep"],
}
ENDS: dict[str, list[str]] = {  # from ESTABLISHED
    "ESTABLISHED": [],
    "DREQ_SENT": ["disconnect"],
    "DREQ_RECEIVED": ["dreq"],
    "TIMEWAIT": ["dreq", "disconnect"],
    "IDLE": ["dreq", "disconnect", "resend"],
}
ACTIVE_WAYS = {
    "REQ_SENT": [],
    "MRA_REQ_RECEIVED": ["mra_req"],
    "REP_RECEIVED": ["rep"],
    "MRA_REP_SENT": ["rep", "delay"],
}


def brought(state: str, is_passive: bool) -> Side:
    """A connection in a state, with nothing left to send."""
    side = passive() if is_passive else active()
    if state in ENDS:
        steps = (["accept", "rtu"] if is_passive else ["rep", "establish"]) + ENDS[state]
    else:
        steps = (WAYS if is_passive else ACTIVE_WAYS)[state]
    for step in steps:
        getattr(side, step)()
    assert side.connection.state.name == state
    side.cm.take_datagrams()
    return side


def expected() -> dict[tuple[str, str], tuple[str, str]]:
    found = {}
    for row in TABLE.strip().replace("\n    ", " ").split("\n"):
        state, _, cells = row.partition(": ")
        for cell in cells.split("; "):
            what, sent, after = cell.split()
            found[state, what] = (sent, after)
    return found


EXPECTED = expected()
STATES = list(dict.fromkeys(state for state, _ in EXPECTED))
SIDES = [
    (state, is_passive)
    for state in STATES
    for is_passive in (False, True)
    if state not in (ACTIVE_ALONE if is_passive else PASSIVE_ALONE)
]


@pytest.mark.parametrize("what", INPUTS)
@pytest.mark.parametrize(
    ("state", "is_passive"), SIDES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_input(state: str, is_passive: bool, what: str) -> None:
    side = brought(state, is_passive)
    sent, after = EXPECTED.get((state, what), ("", state))
    if not is_passive and what == "req":
        sent, after = "REJ", state  # a request to this side, where nothing listens
    elif is_passive and (state, what) == ("IDLE", "req"):
        sent = "-"  # a new one: the connection is over, and nothing was rejected
    elif what == "other_req" and state != "ESTABLISHED":
        return  # of a stranger; test_connection.py has it
    elif is_passive and (state, what) == ("ESTABLISHED", "rep"):
        sent = "again"  # it never sent an RTU
    act: Callable[[], None] = getattr(side, what)
    before = side.cm.counters.duplicates.total()
    repeats = REPEATED & {(state, what)} and (is_passive or what != "req")
    if not sent and what not in MESSAGES and what not in ("resend", "patience"):
        with pytest.raises(CmError):
            act()
    else:
        act()
    kinds = [type(message(each)).__name__[2:].upper() for each in side.cm.take_datagrams()]
    assert "+".join(kinds) == ("" if sent in ("-", "again") else sent)
    assert (side.cm.counters.duplicates.total() - before > 0) is (sent == "again" or bool(repeats))
    assert bool(side.cm.counters.refused) is (not sent and what in MESSAGES)
    assert side.connection.state.name == after


def test_every_state_is_here() -> None:
    names = {state.name for state, _ in CmConnection.RULES}
    assert set(STATES) == names
    assert {what for _, what in EXPECTED} <= set(INPUTS)
