# SPDX-License-Identifier: Apache-2.0
"""Fault rules from Python: the text that they become, and what the core says of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import clean_environment
from verbena import fault, verbs


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (fault.Drop(), "drop"),
        (fault.Drop(chance=0.01), "drop 1%"),
        (fault.Drop(chance=1e-6, direction="in", qp=0x12), "drop 0.0001% dir=in qp=18"),
        (fault.Drop(psn=7, nth=3), "drop psn=7 nth=3"),
        (fault.Drop(psn=(7, 9), opcode=["ack", 0x0C]), "drop psn=7-9 opcode=ack,12"),
        (fault.Duplicate(2, every=5, limit=4), "duplicate copies=2 every=5 limit=4"),
        (fault.Reorder(3, within=0.001), "reorder by=3 within=1000000ns"),
        (fault.Delay(2e-3, opcode="read-response"), "delay 2000000ns opcode=read-response"),
        (fault.Delay(1e-3, 5e-3), "delay 1000000ns-5000000ns"),
        (fault.Corrupt(), "corrupt"),
        (fault.Corrupt(at=12, good_icrc=True, nth=10), "corrupt at=12 icrc=good nth=10"),
        (fault.Truncate(20), "truncate to=20"),
    ],
)
def test_a_rule_as_text(rule: fault.Rule, expected: str) -> None:
    assert str(rule) == expected
    assert fault.text(rule) == expected


def test_several_rules_and_settings() -> None:
    made = fault.text(fault.Drop(chance=0.5), "delay 1ms", seed=7, hold=64)
    assert made == "seed 7; hold 64; drop 50%; delay 1ms"


def test_no_rules() -> None:
    assert fault.text() == ""


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (fault.Drop(chance=2), "200%"),
        (fault.Drop(opcode="snd"), "opcode=snd"),
        (fault.Drop(qp=1 << 24), "qp=16777216"),
        (fault.Drop(nth=0), "nth=0"),
        (fault.Drop(direction="up"), "dir=up"),
        (fault.Delay(-1), "-1000000000ns"),
        (fault.Delay(3600), "3600000000000ns"),
        (fault.Truncate(4), "to=4"),
        ("drop 1%; dorp", "dorp"),
        ("drop\0", "zero byte"),
    ],
)
def test_a_wrong_rule_is_named(rule: fault.Rule | str, word: str) -> None:
    with pytest.raises(ValueError, match="fault rules: ") as caught:
        fault.text(rule)
    assert word in str(caught.value)


def refusal(rules: str) -> str | None:
    """Why the core takes no such rules, or None if it does."""
    try:
        fault.check(rules)
    except ValueError as error:
        return str(error)
    return None


WORDS = "drop delay reorder corrupt seed hold 1% 2ms 1ms-2ms opcode=ack nth=3 by=2 to=20 ; ; 7"


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert (refusal(text) or "fault rules: ").startswith("fault rules: ")


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    assert (refusal(" ".join(words)) or "fault rules: ").startswith("fault rules: ")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: fault.Drop(chance="1%"),  # type: ignore[arg-type]
            r"chance is a number.*0\.01 for 1%.*'drop 1%'",
        ),
        (
            lambda: fault.Delay("2ms"),  # type: ignore[arg-type]
            r"seconds is a number.*0\.002 for 2 ms.*'2ms'",
        ),
        (lambda: fault.Delay(0, "2ms"), "most is a number"),  # type: ignore[arg-type]
        (lambda: fault.Reorder(within="2ms"), "within is a number"),  # type: ignore[arg-type]
        (lambda: fault.set_rules(None), r"open device.*NoneType"),  # type: ignore[arg-type]
        (lambda: fault.counters(None), r"open device.*NoneType"),  # type: ignore[arg-type]
    ],
)
def test_something_else_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


class Device:
    """An open device that only remembers."""

    def __init__(self) -> None:
        self.text: str | None = None

    def set_fault(self, text: str) -> None:
        self.text = text

    def fault_counters(self) -> str:
        return (
            "drop nth=2: matched 3, acted 1\n"
            "delay 1ms opcode=read: matched 0, acted 0\n"
            "no room to hold, passed unharmed: 1\n"
        )


def test_rules_of_an_open_device() -> None:
    device = Device()
    fault.set_rules(device, fault.Drop(nth=2), seed=5)
    assert device.text == "seed 5; drop nth=2"
    fault.set_rules(device)
    assert device.text == ""


def test_counters() -> None:
    assert fault.counters(Device()) == [
        fault.Counter("drop nth=2", 3, 1),
        fault.Counter("delay 1ms opcode=read", 0, 0),
    ]


def test_rules_of_a_device_with_packets() -> None:
    with verbs.open_device() as context:
        fault.set_rules(context, fault.Drop(nth=2))
        assert fault.counters(context) == [fault.Counter("drop nth=2", 0, 0)]
        fault.set_rules(context)
        assert fault.counters(context) == []


WITHOUT_PACKETS = """
import errno
from verbena import fault, verbs

with verbs.open_device() as context:
    for call in (lambda: fault.set_rules(context, fault.Drop()), lambda: fault.counters(context)):
        try:
            call()
        except verbs.VerbsError as error:
            assert error.errno == errno.EOPNOTSUPP, error
            print(error)
"""


def test_a_device_without_packets_says_why_and_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKETS],
        env=clean_environment() | {"VERBENA_CARRIER": "direct"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2, "it was taken"
    for call, line in zip(("set_fault", "fault_counters"), lines, strict=True):
        assert f"{call}: Operation not supported" in line
        assert "VERBENA_CARRIER=direct asks for it" in line
        assert "VERBENA_CARRIER=roce" in line
