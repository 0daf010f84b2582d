# SPDX-License-Identifier: Apache-2.0
"""The tables of the connection manager: complete, and without dead ends."""

from __future__ import annotations

import errno
import inspect
from pathlib import Path

import pytest

from verbena.manage.cm import CmError, CmRefusal, CmState, IdState, RdmaEventKind
from verbena.manage.cm.connection import CONNECTION_RULES, CmConnection
from verbena.manage.cm.identifier import ID_RULES, IdInput
from verbena.manage.cm.machine import CmInput, CmMachine, cm_rules
from verbena.manage.cm.resolution import RESOLUTION_RULES, CmResolution

MACHINES = [(CmConnection, CONNECTION_RULES), (CmResolution, RESOLUTION_RULES)]
OWN_STATES = {
    CmConnection: set(CmState) - {CmState.SIDR_REQ_SENT, CmState.SIDR_REQ_RECEIVED},
    CmResolution: {CmState.IDLE, CmState.SIDR_REQ_SENT, CmState.SIDR_REQ_RECEIVED},
}
of_each = pytest.mark.parametrize("machine", [kind for kind, _ in MACHINES])


@of_each
class TestMachines:
    def test_every_state_is_reached_and_left(self, machine: type[CmMachine]) -> None:
        reached, left = [CmState.IDLE], {rule.state for rule in machine.RULES.values()}
        for state in reached:
            for rule in machine.RULES.values():
                if rule.state is state and rule.next is not None and rule.next not in reached:
                    reached.append(rule.next)
        assert set(reached) == left == OWN_STATES[machine]

    def test_every_state_leads_to_idle_and_can_be_closed(self, machine: type[CmMachine]) -> None:
        for state in OWN_STATES[machine]:
            assert (state, CmInput.CLOSE) in machine.RULES
            seen = [state]
            for each in seen:
                for rule in machine.RULES.values():
                    if rule.state is each and rule.next is not None and rule.next not in seen:
                        seen.append(rule.next)
            assert CmState.IDLE in seen

    def test_every_wait_ends(self, machine: type[CmMachine]) -> None:
        """A state in which a message is repeated also gives up."""
        for state, what in machine.RULES:
            if what is CmInput.RESEND:
                assert (state, CmInput.EXHAUSTED) in machine.RULES
            if what is CmInput.EXHAUSTED:
                assert (state, CmInput.RESEND) in machine.RULES

    def test_every_action_is_a_method_with_one_argument(self, machine: type[CmMachine]) -> None:
        for rule in machine.RULES.values():
            assert callable(getattr(machine, rule.action)), rule


def test_two_rules_for_one_thing() -> None:
    row = (CmState.IDLE, CmInput.REQ, "end", CmState.IDLE)
    with pytest.raises(ValueError, match="IDLE has two rules for REQ"):
        cm_rules([row, row])


def test_every_input_is_used() -> None:
    used = {what for _, rules in MACHINES for _, what in rules}
    assert used == set(CmInput)
    assert {what for _, what in ID_RULES} == set(IdInput)


def test_every_refusal_is_used() -> None:
    folder = Path(inspect.getfile(CmConnection)).parent
    text = "\n".join(path.read_text() for path in folder.glob("*.py"))
    unused = [each.name for each in CmRefusal if f"CmRefusal.{each.name}" not in text]
    assert unused == []


def test_every_state_has_a_sentence() -> None:
    for state in (*CmState, *IdState):
        assert state.value.endswith("."), state
    for kind in RdmaEventKind:
        assert kind.meaning.endswith("."), kind


@pytest.mark.parametrize("refusal", CmRefusal, ids=lambda refusal: refusal.name)
def test_every_refusal_says_what_to_do(refusal: CmRefusal) -> None:
    assert refusal.sentence.endswith(".")
    assert ";" in refusal.sentence or "," in refusal.sentence or refusal.code == 0
    error = CmError(refusal, "identifier 3")
    assert error.errno == refusal.code
    assert refusal.sentence in str(error)
    assert refusal.code == 0 or refusal.code == 524 or refusal.code in errno.errorcode
