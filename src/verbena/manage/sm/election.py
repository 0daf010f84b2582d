# SPDX-License-Identifier: Apache-2.0
"""Which of several subnet managers is the master (IBA 14.4): the decisions, without any packet.

``SubnetManager`` asks ``decide`` when it knows the other managers' SMInfo, and looks into
``CONTROLS`` when it got a Set of SMInfo. The higher priority wins, then the lower GUID.

    own state     the others                                   decision
    ------------  -------------------------------------------  ----------------------------------
    DISCOVERING   one is MASTER                                FOLLOW it: it will hand over if
                                                               this one ranks higher
    DISCOVERING   none is MASTER; one that is not NOT_ACTIVE   FOLLOW the highest of these
                  ranks higher
    DISCOVERING   all rank lower                               LEAD
    MASTER        a MASTER or STANDBY ranks higher             HAND_OVER to the highest of these
    MASTER        all others                                   LEAD

    own state     Set of SMInfo    becomes
    ------------  ---------------  -----------
    STANDBY       HANDOVER         MASTER, and answers ACKNOWLEDGE
    STANDBY       DISABLE          NOT_ACTIVE
    STANDBY       DISCOVER         DISCOVERING
    STANDBY       ACKNOWLEDGE      STANDBY: it had handed over
    NOT_ACTIVE    STANDBY          STANDBY
    MASTER        ACKNOWLEDGE      STANDBY, if it has handed over
    MASTER        HANDOVER         MASTER, and answers ACKNOWLEDGE: another master gives up
    any other                      refused
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import NamedTuple

from ..codes import SmState
from ..smp_attributes import SmInfo

__all__ = ["CONTROLS", "Decision", "SmControl", "Verdict", "decide", "sm_rank"]


class SmControl(IntEnum):
    """The modifier of a Set of SMInfo."""

    HANDOVER = 1
    ACKNOWLEDGE = 2
    DISABLE = 3
    STANDBY = 4
    DISCOVER = 5


class Verdict(Enum):
    """What a manager does about the others."""

    LEAD = "be or become the master"
    FOLLOW = "stand by, and watch another one"
    HAND_OVER = "hand the subnet over to another one"


class Decision(NamedTuple):
    """A verdict, and the SMInfo of the manager that it is about."""

    verdict: Verdict
    about: SmInfo | None = None


# The states in which a Set of SMInfo is carried out, and the state after it.
CONTROLS: dict[tuple[SmState, SmControl], SmState] = {
    (SmState.STANDBY, SmControl.HANDOVER): SmState.MASTER,
    (SmState.STANDBY, SmControl.DISABLE): SmState.NOT_ACTIVE,
    (SmState.STANDBY, SmControl.DISCOVER): SmState.DISCOVERING,
    (SmState.STANDBY, SmControl.ACKNOWLEDGE): SmState.STANDBY,
    (SmState.NOT_ACTIVE, SmControl.STANDBY): SmState.STANDBY,
    (SmState.MASTER, SmControl.ACKNOWLEDGE): SmState.STANDBY,
    (SmState.MASTER, SmControl.HANDOVER): SmState.MASTER,
}


def sm_rank(info: SmInfo) -> tuple[int, int]:
    """Return the order of managers: the greatest is to be the master."""
    return info.priority, -info.guid


def decide(own: SmInfo, others: Iterable[SmInfo]) -> Decision:
    """Return what a manager in the state ``own.sm_state`` does, by the first table above."""
    active = [each for each in others if each.sm_state != SmState.NOT_ACTIVE]
    masters = [each for each in active if each.sm_state == SmState.MASTER]
    if own.sm_state == SmState.MASTER:
        ready = [*masters, *(each for each in active if each.sm_state == SmState.STANDBY)]
        higher = [each for each in ready if sm_rank(each) > sm_rank(own)]
        if higher:
            return Decision(Verdict.HAND_OVER, max(higher, key=sm_rank))
        return Decision(Verdict.LEAD)
    if masters:
        return Decision(Verdict.FOLLOW, max(masters, key=sm_rank))
    higher = [each for each in active if sm_rank(each) > sm_rank(own)]
    if higher:
        return Decision(Verdict.FOLLOW, max(higher, key=sm_rank))
    return Decision(Verdict.LEAD)
