# SPDX-License-Identifier: Apache-2.0
"""The words of fault rules: what they mean, which word an error names, and how a program is told.

tests/native/test_fault_rules.c has the other side: what the library takes from these records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import Run
from tests.native import rules as native_rules
from tests.support import clean_environment
from verbena import _fault_rules, launch
from verbena._fault_opcodes import ACK, NAK, RNR, Chosen
from verbena._fault_rules import parse

ALWAYS = 1 << 32
READS = """
from verbena import fault, verbs
with verbs.open_device() as ctx:
    print([one.rule for one in fault.counters(ctx)])
"""


# ---- what words mean ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ; ;; ", "seed 7"])
def test_no_rules(text: str) -> None:
    assert parse(text).rules == []


def test_a_rule_and_what_is_left_out() -> None:
    found = parse("drop")
    assert (found.seed, found.hold) == (1, 1024)
    (rule,) = found.rules
    assert _fault_rules.VERBS[rule.action] == "drop"
    assert (rule.directions, rule.chance) == (1, ALWAYS)
    assert (rule.qp, rule.psn, rule.opcodes, rule.at, rule.to) == (None,) * 5
    assert (rule.nth, rule.every, rule.limit) == (0, 0, 0)
    assert (rule.by, rule.within, rule.copies) == (1, 10_000_000, 1)


def test_all_that_can_be_said() -> None:
    found = parse(
        "seed 0x2a; hold 64;drop 0.5% dir=in qp=0x12 psn=10-20 nth=3 every=4 limit=5;"
        "delay 1.5ms-2ms dir=both;reorder by=3 within=20us; duplicate copies=2;"
        "corrupt at=12 icrc=good; truncate to=28"
    )
    drop, delay, reorder, duplicate, corrupt, truncate = found.rules
    assert (found.seed, found.hold) == (42, 64)
    assert (drop.chance, drop.directions, drop.qp, drop.psn) == (ALWAYS // 200, 2, 18, (10, 20))
    assert (drop.nth, drop.every, drop.limit) == (3, 4, 5)
    assert (delay.delay, delay.directions) == ((1_500_000, 2_000_000), 3)
    assert (reorder.by, reorder.within) == (3, 20_000)
    assert duplicate.copies == 2
    assert (corrupt.at, corrupt.good_icrc) == (12, True)
    assert (truncate.to, truncate.good_icrc) == (28, False)


def test_a_rule_knows_where_its_words_are() -> None:
    text = "drop 1% ;  delay 2ms  opcode=read "
    words = [text[rule.begin : rule.end] for rule in parse(text).rules]
    assert words == ["drop 1%", "delay 2ms  opcode=read"]


@pytest.mark.parametrize(
    ("word", "ns"),
    [("1ns", 1), ("1.5us", 1500), ("0x10ms", 16_000_000), ("60s", 60 * 10**9), ("2.9ns", 2)],
)
def test_times(word: str, ns: int) -> None:
    assert parse(f"delay {word}").rules[0].delay == (ns, ns)


@pytest.mark.parametrize(
    ("word", "chance"),
    [
        ("0%", 0),
        ("100%", ALWAYS),
        ("0.000000001%", 0),
        ("0.1%", ALWAYS // 1000),
        ("0x32%", 1 << 31),
    ],
)
def test_chances(word: str, chance: int) -> None:
    assert parse(f"drop {word}").rules[0].chance == chance


# ---- opcodes -----------------------------------------------------------------------------------


def chosen(names: str) -> Chosen:
    found = parse(f"drop opcode={names}").rules[0].opcodes
    assert found
    return found


def has(names: str, opcode: int) -> bool:
    return bool(chosen(names).opcodes >> opcode & 1)


RC, UD, CNP, XRC = 0x00, 0x60, 0x80, 0xA0
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12


@pytest.mark.parametrize(
    ("name", "within", "without"),
    [
        ("send", [RC | 0x17, UD | 0x04], [RC | 0x0A]),
        ("write", [XRC | 0x09], [RC | 0x04]),
        ("read", [RC | 0x0C], [RC | 0x10]),
        ("atomic", [RC | 0x14, RC | 0x13], [RC | ATOMIC_ACKNOWLEDGE]),
        ("request", [RC | 0x0C, RC | 0x04], [RC | ACKNOWLEDGE, CNP | 1]),
        ("read-response", [RC | 0x0E], [RC | ACKNOWLEDGE]),
        ("atomic-response", [RC | ATOMIC_ACKNOWLEDGE], [RC | 0x0E]),
        ("response", [RC | 0x0E, RC | ACKNOWLEDGE], [RC | 0x04, CNP | 1]),
        ("ack", [RC | ACKNOWLEDGE, XRC | ACKNOWLEDGE], [RC | ATOMIC_ACKNOWLEDGE]),
        ("cnp", [CNP, CNP | 1], [RC]),
        ("rc-send-only-with-immediate", [RC | 0x05], [XRC | 0x05, RC | 0x04]),
        ("rc-flush,0x0c,17", [RC | 0x1C, RC | 0x0C, RC | 17], [RC | 0x0D]),
    ],
)
def test_names_of_opcodes(name: str, within: list[int], without: list[int]) -> None:
    assert [has(name, opcode) for opcode in within] == [True] * len(within)
    assert [has(name, opcode) for opcode in without] == [False] * len(without)


def test_kinds_of_acknowledge() -> None:
    assert chosen("ack").answers == ACK
    assert chosen("nak").answers == NAK
    assert chosen("rnr").answers == RNR
    assert chosen("ack,nak").answers == ACK | NAK
    for name in ("17", "0x11", "rc-acknowledge", "response"):
        assert chosen(name).answers == ACK | NAK | RNR


# ---- which word is wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word", "advice"),
    [
        ("drp 1%", "drp", "a rule begins with drop"),
        ("drop 1%; drop 101%", "101%", "from 0% to 100%"),
        ("drop 1 %", "1", "neither a chance (1%)"),
        ("drop %", "%", "chance"),
        ("drop 0.1234567891%", "0.1234567891%", "chance"),
        ("drop opcod=ack", "opcod=ack", "drop takes dir, qp, psn, opcode"),
        ("drop opcode=ack,sned", "opcode=ack,sned", '"sned" is no opcode'),
        ("drop opcode=", "opcode=", "is no opcode"),
        ("drop opcode=256", "opcode=256", "is no opcode"),
        ("drop by=3", "by=3", "drop takes"),
        ("reorder by=0", "by=0", "from 1 to"),
        ("reorder within=10", "within=10", "as in within=10ms"),
        ("duplicate copies=17", "copies=17", "from 1 to 16"),
        ("drop qp=0x1000000", "qp=0x1000000", "24 bits"),
        ("drop psn=5-", "psn=5-", "24 bits"),
        ("drop psn=-5", "psn=-5", "24 bits"),
        ("drop dir=up", "dir=up", "out, in or both"),
        ("drop nth=\u0663", "nth=\u0663", "a number from 1 to 4294967295"),
        ("delay", "delay", "how long?"),
        ("delay 2", "2", "as in 2ms"),
        ("delay 61s", "61s", "up to 60s"),
        ("delay 5ms-1ms", "5ms-1ms", "range"),
        ("delay 2ms 3ms", "3ms", "neither"),
        ("delay 0ms", "0ms", "a delay is"),
        ("corrupt at=4163", "at=4163", "the place of a byte"),
        ("truncate to=11", "to=11", "12 or more"),
        ("corrupt icrc=bad", "icrc=bad", "icrc=good"),
        ("seed", "seed", "a number is missing"),
        ("seed x", "x", "seed is a number"),
        ("seed 99999999999999999999", "99999999999999999999", "seed is a number"),
        ("seed 1 drop 1%", "drop", '";"'),
        ("hold 0", "0", "from 1 to 65536"),
        ("drop;" * 32 + "drop", "drop", "more than 32 rules"),
        (" " * 2048, " " * 20, "more than 2047 characters"),
    ],
)
def test_an_error_names_the_word(text: str, word: str, advice: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value).startswith(f'"{word}": ')
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("dorp 1%", "drop"),
        ("hodl 3", "hold"),
        ("drop opcod=ack", "opcode"),
        ("drop opcode=sned", "send"),
        ("drop opcode=rc-send-onyl", "rc-send-only"),
        ("drop dir=bot", "both"),
    ],
)
def test_a_misspelt_word_is_given_back_right(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf'\(is "{meant}" meant\?\)$'):
        parse(text)


def test_what_resembles_nothing_gets_no_proposal() -> None:
    with pytest.raises(ValueError) as caught:
        parse("xyz")
    assert "meant" not in str(caught.value)


def test_as_many_rules_and_characters_as_there_may_be() -> None:
    assert len(parse("drop;" * 32).rules) == 32
    assert parse(" " * 2047).rules == []


# ---- how a program is told ---------------------------------------------------------------------


def test_the_records_of_the_tests_in_c_are_those_of_today() -> None:
    assert native_rules.written(native_rules.words()) == native_rules.FILE.read_text()


def records_beside(**base: str) -> str | None:
    return launch.environment({"PATH": os.environ["PATH"], **base}).get("VERBENA_FAULT_RECORDS")


def test_what_starts_a_program_reads_the_words_for_it() -> None:
    records = _fault_rules.records("drop 1%")
    assert records.endswith(" |drop 1%")
    assert records_beside(VERBENA_FAULT="drop 1%") == records
    assert records_beside(VERBENA_FAULT="drop 1%", VERBENA_FAULT_RECORDS="old") == records
    assert records_beside(VERBENA_FAULT_RECORDS="old") is None
    assert records_beside(VERBENA_FAULT="", VERBENA_FAULT_RECORDS="old") is None


def test_wrong_words_are_told_by_the_program() -> None:
    assert str(records_beside(VERBENA_FAULT="dorp")).startswith('!"dorp": a rule begins with')


def python(**environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", READS],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_python_program_reads_the_words_itself() -> None:
    done = python(VERBENA_FAULT="drop 1% opcode=ack; delay 1ms; seed 7")
    assert done.stdout == "['drop 1% opcode=ack', 'delay 1ms']\n"
    assert done.stderr == ""


def test_a_python_program_is_told_of_wrong_words() -> None:
    done = python(VERBENA_FAULT="drop 1%; dorp")
    assert done.stdout == "[]\n"
    assert 'VERBENA_FAULT is ignored: "dorp": a rule begins' in done.stderr


@pytest.mark.debian
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.pop("VERBENA_FAULT_RECORDS"), "start it with `verbena run`"),
        (lambda found: found.update(VERBENA_FAULT="drop 2%"), "start it with `verbena run`"),
        (
            lambda found: found.update(VERBENA_FAULT_RECORDS="9 1 400 0 |drop 1%"),
            "VERBENA_FAULT_RECORDS are of another version of Verbena",
        ),
        (
            lambda found: found.update(VERBENA_FAULT_RECORDS="1 1 400 1 |drop 1%"),
            "VERBENA_FAULT_RECORDS are damaged at character 10 of 18",
        ),
        (lambda found: None, None),
        (lambda found: found.update(VERBENA_FAULT=""), None),
        (lambda found: found.pop("VERBENA_FAULT"), None),
    ],
    ids=["no records", "other words", "version", "damage", "right", "empty", "unset"],
)
def test_a_program_without_python_says_why_its_rules_are_ignored(
    debian_program: Callable[[str], str],
    change: Callable[[dict[str, str]], object],
    words: str | None,
) -> None:
    environment = launch.environment(clean_environment(), faults="drop 1%")
    change(environment)
    done = subprocess.run(
        [debian_program("ibv_devinfo")], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    ignored = [line for line in done.stderr.splitlines() if "VERBENA_FAULT is ignored: " in line]
    if words is None:
        assert done.stderr == ""
    else:
        assert len(ignored) == 1
        assert words in ignored[0]


@pytest.mark.parametrize("way", ["option", "variable"])
def test_verbena_run_reads_rules_of_an_option_and_of_the_environment(
    verbena_run: Run, way: str
) -> None:
    rules = "drop nth=2; seed 5"
    options = ("--fault", rules) if way == "option" else ()
    env = {"VERBENA_FAULT": "delay 1ms" if way == "option" else rules}
    done = verbena_run(sys.executable, "-c", READS, options=options, env=env)
    assert "['drop nth=2']" in done.stdout
