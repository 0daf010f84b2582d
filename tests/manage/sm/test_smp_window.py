# SPDX-License-Identifier: Apache-2.0
"""Requests on the wire: their number, timeouts, retries, and which response belongs to which."""

from __future__ import annotations

import pytest

from verbena.manage.attribute_ids import SmpAttribute
from verbena.manage.errors import MadError
from verbena.manage.mad import DirectedSmp
from verbena.manage.sm.smp_window import SmpRequest, SmpRoute, SmpWindow

NODE_INFO = SmpAttribute.NODE_INFO


class Asking:
    """A window with what became of its requests."""

    def __init__(self, most: int = 2, retries: int = 2) -> None:
        self.done: list[object] = []
        self.failed: list[tuple[object, str]] = []
        self.window = SmpWindow(most, 0.5, retries, 0x77, self._failed)

    def _failed(self, request: SmpRequest, reason: str) -> None:
        self.failed.append((request.subject, reason))

    def _done(self, request: SmpRequest, mad: bytes) -> None:
        self.done.append(request.subject)

    def ask(self, *subjects: str) -> None:
        for subject in subjects:
            self.window.get(SmpRoute((1, 5)), NODE_INFO, 3, self._done, subject)


def response(mad: bytes, status: int = 0) -> bytes:
    return DirectedSmp.unpack(mad).response(status=status).pack()


def test_the_packet_of_a_request() -> None:
    asking = Asking()
    asking.ask("a")
    (raw,) = asking.window.pump(0.0)
    mad = DirectedSmp.unpack(raw)
    assert mad == DirectedSmp(
        transaction_id=1, attribute_id=NODE_INFO, attribute_modifier=3, m_key=0x77
    ).along((1, 5))
    assert repr(asking.window._on_wire[1]) == "Get 0x0011/0x3 along 0,1,5"
    with pytest.raises(MadError, match="at most 63 hops"):
        SmpRoute((1,) * 64)


def test_so_many_are_on_the_wire() -> None:
    asking = Asking()
    asking.ask("a", "b", "c")
    first = asking.window.pump(0.0)
    assert len(first) == 2
    assert asking.window.pump(0.1) == []
    assert asking.window.receive(response(first[1]))
    assert len(asking.window.pump(0.1)) == 1
    assert asking.done == ["b"]
    assert not asking.window.is_idle


def test_a_request_is_repeated_and_then_given_up() -> None:
    asking = Asking()
    asking.ask("a")
    (first,) = asking.window.pump(0.0)
    assert asking.window.next_deadline() == 0.5
    asking.window.tick(0.4)
    assert asking.window.pump(0.4) == []
    for now in (0.5, 1.0):
        asking.window.tick(now)
        assert asking.window.pump(now) == [first]
    asking.window.tick(1.5)
    assert asking.window.is_idle
    assert asking.failed == [("a", "no response")]
    assert (asking.window.sent, asking.window.retried, asking.window.timed_out) == (3, 2, 1)


def test_other_responses_are_not_taken() -> None:
    asking = Asking()
    asking.ask("a")
    (mad,) = asking.window.pump(0.0)
    right = response(mad)
    for place in (1, 3, 15, 17, 23):
        wrong = bytearray(right)
        wrong[place] ^= 1
        assert not asking.window.receive(bytes(wrong))
    assert not asking.window.receive(right[:-1])
    other_agent = right[:8] + b"\1\2\3\4" + right[12:]  # umad writes its number there
    assert asking.window.receive(other_agent)
    assert not asking.window.receive(right)  # a duplicate


def test_a_busy_node_is_asked_again_and_an_error_is_final() -> None:
    asking = Asking()
    asking.ask("a", "b")
    one, other = asking.window.pump(0.0)
    assert asking.window.receive(response(one, status=1))
    assert asking.window.pump(0.0) == [one]
    assert asking.window.receive(response(other, status=0x1C))
    assert asking.failed == [("b", "status 0x001c")]


def test_requests_are_dropped_by_subject() -> None:
    asking = Asking(most=1)
    asking.ask("a", "b", "a")
    (mad,) = asking.window.pump(0.0)
    asking.window.drop("a")
    assert not asking.window.receive(response(mad))
    assert len(asking.window.pump(0.0)) == 1
    asking.window.clear()
    assert asking.window.is_idle
    assert (asking.done, asking.failed) == ([], [])
