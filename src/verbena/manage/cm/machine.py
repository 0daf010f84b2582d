# SPDX-License-Identifier: Apache-2.0
"""What the state machines of the connection manager share: states, inputs, rules and the timer.

A machine's table has a rule for each pair of state and input that means something; ``feed`` looks
the pair up, runs the action and takes the next state. A pair without a rule changes nothing: a call
raises CmError, a message is counted. Machines reach the connection manager through ``CmKeeper``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto, unique
from typing import Any, ClassVar, Protocol

from ..cm_messages import CmMra, CmRej
from ..codes import quick_members
from ..record import Record
from .refusals import CmError, CmRefusal
from .retransmission import Retransmission
from .routes import CmDatagram, CmDevice, MadAddress
from .settings import CmSettings

__all__ = [
    "CmEvent",
    "CmEventKind",
    "CmInput",
    "CmKeeper",
    "CmMachine",
    "CmRule",
    "CmState",
    "cm_rules",
]


@quick_members
@unique
class CmState(Enum):
    """States of a connection and of a service ID resolution (IBA 12.9.5 and 12.11)."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for each rule looked up

    IDLE = "Nothing is under way."
    REQ_SENT = "A REQ is out, and the REP is awaited."
    MRA_REQ_RECEIVED = "The peer has the REQ and needs more time."
    REQ_RECEIVED = "A REQ came, and the program has to accept or reject it."
    MRA_REQ_SENT = "As REQ_RECEIVED, and the peer knows that it takes longer."
    REP_SENT = "A REP is out, and the RTU is awaited."
    MRA_REP_RECEIVED = "The peer has the REP and needs more time."
    REP_RECEIVED = "A REP came, and the program has to bring its QP up."
    MRA_REP_SENT = "As REP_RECEIVED, and the peer knows that it takes longer."
    ESTABLISHED = "Both sides can send."
    DREQ_SENT = "A DREQ is out, and the DREP is awaited."
    DREQ_RECEIVED = "The peer wants to end, and the program has to disconnect, too."
    TIMEWAIT = "The connection has ended; old packets may still arrive."
    SIDR_REQ_SENT = "A SIDR_REQ is out, and the SIDR_REP is awaited."
    SIDR_REQ_RECEIVED = "A SIDR_REQ came, and the program has to answer it."


@quick_members
@unique
class CmInput(Enum):
    """What drives a machine: a message, the end of a wait, or a call."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for each rule looked up

    REQ = "REQ received"
    MRA_OF_REQ = "MRA of the REQ received"
    MRA_OF_REP = "MRA of the REP received"
    REJ = "REJ received"
    REJ_STALE = "REJ received, reason stale connection"
    REP = "REP received"
    RTU = "RTU received"
    DREQ = "DREQ received"
    DREP = "DREP received"
    LAP = "LAP received"
    SIDR_REQ = "SIDR_REQ received"
    SIDR_REP = "SIDR_REP received"
    RESEND = "no answer yet"
    EXHAUSTED = "no answer, patience over"
    THINKING = "program still thinks"
    TIMEWAIT_OVER = "timewait over"
    STALE = "peer's QP is in a new request"
    CONNECT = "call: connect"
    ACCEPT = "call: accept"
    ESTABLISH = "call: establish"
    REJECT = "call: reject"
    DELAY = "call: delay"
    DISCONNECT = "call: disconnect"
    NOTIFY = "call: notify COMM_EST"
    RESOLVE = "call: resolve"
    ANSWER = "call: answer"
    DROP = "call: drop"
    CLOSE = "call: close"


CALLS = frozenset(what for what in CmInput if what.value.startswith("call: "))


@quick_members
class CmEventKind(Enum):
    """What the connection manager reports to its owner."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for each rule looked up

    REQ_RECEIVED = auto()
    REP_RECEIVED = auto()
    RTU_RECEIVED = auto()
    COMM_ESTABLISHED = auto()
    REJ_RECEIVED = auto()
    REQ_ERROR = auto()
    REP_ERROR = auto()
    DREQ_RECEIVED = auto()
    DREP_RECEIVED = auto()
    DREQ_ERROR = auto()
    TIMEWAIT_EXIT = auto()
    SIDR_REQ_RECEIVED = auto()
    SIDR_REP_RECEIVED = auto()
    SIDR_REQ_ERROR = auto()


@dataclass(slots=True, unsafe_hash=True)
class CmEvent:
    """Something that happened to ``subject``, a connection or a resolution.

    ``message`` is the record that came, and ``modifier`` the AttributeModifier of its MAD.
    """

    kind: CmEventKind
    subject: Any
    message: Any = None
    modifier: int = 0


@dataclass(slots=True, unsafe_hash=True)
class CmRule:
    """A row of a table: ``action`` is a method's name; ``next`` is None where the state stays."""

    state: CmState
    input: CmInput
    action: str
    next: CmState | None


def cm_rules(
    rows: Iterable[tuple[CmState | tuple[CmState, ...], CmInput, str, CmState | None]],
) -> Mapping[tuple[CmState, CmInput], CmRule]:
    """Return a table of rules by state and input. Raises ValueError if two rows contradict."""
    found: dict[tuple[CmState, CmInput], CmRule] = {}
    for states, what, action, after in rows:
        for state in states if isinstance(states, tuple) else (states,):
            if (state, what) in found:
                raise ValueError(f"{state.name} has two rules for {what.name}")
            found[state, what] = CmRule(state, what, action, after)
    return found


class CmKeeper(Protocol):
    """What a machine needs of the connection manager that keeps it."""

    settings: CmSettings
    device: CmDevice
    now: float

    def send(self, datagram: CmDatagram, is_retry: bool = False) -> None:
        """Send a datagram, and count it."""

    def report(self, event: CmEvent) -> None:
        """Tell the owner."""

    def duplicate(self, record: type[Record]) -> None:
        """Count a message that came again."""

    def entered(self, machine: CmMachine) -> None:
        """The machine has another state; tables may need a change."""

    def draw(self) -> float:
        """Return a random number from 0 on and below 1."""
        return 0.0

    def armed(self, machine: CmMachine) -> None:
        """The machine has another deadline."""

    def remember(self, machine: CmMachine, answer: CmDatagram) -> None:
        """Repeat an answer to a repeated request after the machine has gone."""


class CmMachine:
    """A connection or a resolution. ``local_id`` is its communication ID or request ID.

    ``is_orphan``: its owner closed it, so it reports nothing; it goes when it is idle.
    """

    RULES: ClassVar[Mapping[tuple[CmState, CmInput], CmRule]] = {}
    queued_for = math.inf
    """The keeper's: when it will look at ``deadline``."""
    armed_as = 0
    """The keeper's: of two machines with one deadline, the one that was armed first is first."""

    def __init__(self, keeper: CmKeeper, local_id: int) -> None:
        self.keeper = keeper
        self.local_id = local_id
        self.state = CmState.IDLE
        self.is_orphan = False
        self.deadline: float | None = None
        self.context: Any = None  # the owner's
        self.transaction_id = keeper.settings.transaction_high << 32 | local_id
        self._waiting: Retransmission | None = None
        self._sent: CmDatagram | None = None  # what is sent again
        self._is_armed = False
        self._modifier = 0  # of the MAD that is being handled

    def feed(self, what: CmInput, argument: Any = None, modifier: int = 0) -> bool:
        """Apply the rule of an input and return True; return False if there is none.

        Raises CmError for a call without a rule, or that its action refuses; the state then stays.
        """
        state = self.state
        rule = self.RULES.get((state, what))
        if rule is None:
            if what in CALLS:
                raise CmError(CmRefusal.WRONG_STATE, f"{what.value} in state {state.name}")
            return False
        self._is_armed = False
        self._modifier = modifier
        getattr(self, rule.action)(argument)
        after = rule.next
        if after is not None and after is not state:
            self.state = after
            if not self._is_armed:
                self.deadline = self._waiting = self._sent = None
            if after is CmState.TIMEWAIT:
                self.enter_timewait()
            self.keeper.entered(self)
        return True

    def expire(self) -> None:
        """The deadline has come: send again, give up, or end a wait."""
        self.deadline = None
        if self.state is CmState.TIMEWAIT:
            self.feed(CmInput.TIMEWAIT_OVER)
        elif self._waiting is None:
            self.feed(CmInput.THINKING)
        elif self._waiting.is_exhausted(self.keeper.now):
            self.feed(CmInput.EXHAUSTED)
        else:
            self.feed(CmInput.RESEND)

    def close(self) -> None:
        """The owner needs it no more; it ends by itself and reports nothing."""
        self.is_orphan = True
        self.feed(CmInput.CLOSE)
        self.keeper.entered(self)

    def enter_timewait(self) -> None:
        """Arm the end of the timewait."""

    # What actions are made of.

    def tell(self, kind: CmEventKind, message: Any = None) -> None:
        if not self.is_orphan:
            self.keeper.report(CmEvent(kind, self, message, self._modifier))

    def arm(self, deadline: float) -> None:
        self.deadline = deadline
        self._is_armed = True
        self.keeper.armed(self)

    def built(self, record: Record, to: MadAddress, tid: int, modifier: int = 0) -> CmDatagram:
        """Return the datagram of a message."""
        return CmDatagram(record, to, tid, modifier)

    def send_awaiting(self, datagram: CmDatagram, timeout: float, retries: int) -> None:
        """Send a message and wait for its answer."""
        keeper = self.keeper
        keeper.send(datagram)
        self._sent = datagram
        self._waiting = Retransmission(keeper.now, timeout, retries, keeper.settings, keeper.draw)
        self.arm(self._waiting.next_at)

    def resend(self, _: Any = None) -> None:
        """Send the message again."""
        assert self._sent is not None
        assert self._waiting is not None
        self.keeper.send(self._sent, is_retry=True)
        self._waiting.repeated(self.keeper.now)
        self.arm(self._waiting.next_at)

    def ignore(self, _: Any = None) -> None:
        """Do nothing."""

    def count_duplicate(self, argument: Any) -> None:
        """Count a duplicate."""
        message = argument[0] if isinstance(argument, tuple) else argument
        self.keeper.duplicate(type(message))

    def end(self, _: Any = None) -> None:
        """Do nothing."""


def rejection_input(rej: CmRej) -> CmInput:
    """Return the input that a REJ is."""
    return CmInput.REJ_STALE if rej.reason == 10 else CmInput.REJ


def delay_input(mra: CmMra) -> CmInput | None:
    """Return the input that an MRA is; None for a message that nobody sent."""
    return {0: CmInput.MRA_OF_REQ, 1: CmInput.MRA_OF_REP}.get(int(mra.message))
