# SPDX-License-Identifier: Apache-2.0
"""A variable with an unknown word: the line on stderr says which words there are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support import ROOT, clean_environment, program_or_skip, verbena_command
from verbena import _variables, launch


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("VERBENA_CARRIER", "auto, direct or roce"),
        ("VERBENA_LOG", "errors, info, counters or debug"),
        ("VERBENA_LINK_LAYER", "ethernet or infiniband"),
        ("VERBENA_COPY", "any, shared, cma or bounce"),
        ("VERBENA_CAPTURE_DIRECT", "no or yes"),
    ],
)
def test_an_unknown_word_is_told_with_the_known_ones(name: str, words: str) -> None:
    program = "from verbena import verbs; verbs.open_device().close()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {name: "rocee"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"{name}=rocee is not understood and ignored; it may be {words}\n" in done.stderr


def opened(**variables: str) -> str:
    """What a Python program prints on stderr that opens the device with these variables."""
    program = "from verbena import verbs; verbs.open_device().close()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


def test_what_is_right_is_not_told() -> None:
    largest = {"VERBENA_SPIN_US": "1000000", "VERBENA_PART_ID": "4294967295"}
    words = {"VERBENA_CARRIER": "direct", "VERBENA_COPY": "cma", "VERBENA_COMMAND": "run"}
    assert not opened(VERBENA_NETDEV="lo", **largest, **words)
    assert not opened(VERBENA_SPIN_US="0", VERBENA_PART_ID="0", VERBENA_NETDEV="")


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("VERBENA_SPIN_US", "1000001", "microseconds from 0 to 1000000"),
        ("VERBENA_SPIN_US", "1us", "microseconds from 0 to 1000000"),
        ("VERBENA_PART_ID", "4294967296", "a part from 0 to 4294967295"),
        ("VERBENA_PART_ID", "-1", "a part from 0 to 4294967295"),
        ("VERBENA_CAPTURE_BYTES", "0", "bytes from "),
        ("VERBENA_CAPTURE_BYTES", "99999999", "bytes from "),
    ],
)
def test_a_number_out_of_bounds_is_told_with_the_bounds(name: str, value: str, what: str) -> None:
    assert f"{name}={value} is not a number of {what}" in opened(**{name: value})


def test_an_interface_of_a_port_that_does_not_exist_is_told() -> None:
    ports = ["ethernet,netdev=lo", "ethernet,netdev=no0"]
    said = opened(**launch.environment(clean_environment(), ports=ports))
    assert said.count("there is no such interface now") == 1
    assert "VERBENA_PORTS: netdev=no0: there is no such interface now" in said


@pytest.mark.parametrize(
    ("ports", "reason"),
    [
        ("infiniband,lid=3,lmc=1", "lid=3: with lmc=1 it is a multiple of 2"),
        ("ethernet,lid=3", "'lid': an ethernet port has netdev, pkeys"),
        ("infiniband,lid=2/infiniband,lid=2", "the LID 2 is of port 1 of verbena0 and of port 1"
         " of verbena1: give one of them another lid"),
    ],
)  # fmt: skip
def test_wrong_ports_are_told_with_the_reason(ports: str, reason: str) -> None:
    (line,) = opened(VERBENA_PORTS=ports).splitlines()
    assert line.partition("]: ")[2] == f"VERBENA_PORTS={ports} is ignored: {reason}"


NO_LONGER_FIT = (
    "the port settings of `verbena env` no longer fit VERBENA_PORTS, VERBENA_DEVICES, "
    "VERBENA_PKEYS and VERBENA_LINK_LAYER, so there is one device with the default port; "
    "run `verbena env` again, or start the program with `verbena run`"
)


@pytest.mark.parametrize(
    ("variable", "value", "option"),
    [
        ("VERBENA_PORTS", "infiniband", "--port"),
        ("VERBENA_DEVICES", "2", "--devices"),
        ("VERBENA_PKEYS", "0xffff,1", "--pkeys"),
    ],
)
def test_a_program_that_nothing_parsed_them_for_names_the_command(
    variable: str, value: str, option: str
) -> None:
    """It is started by LD_PRELOAD alone, and has the default port."""
    program = program_or_skip("ibv_devices")
    bare = launch.environment(clean_environment()) | {variable: value}
    done = subprocess.run([program], env=bare, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert f"{variable} is ignored: this program does not read its words itself" in line
    assert f"`verbena env {option}`" in line
    assert re.findall(r"verbena\d+", done.stdout) == ["verbena0"]
    parsed = launch.environment(bare)
    done = subprocess.run([program], env=parsed, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.parametrize("later", [{"VERBENA_PKEYS": "0xffff"}, {"VERBENA_DEVICES": ""},
                                   {"VERBENA_DEVICES": "3"}])  # fmt: skip
def test_a_variable_that_was_changed_after_the_command_is_told(later: dict[str, str]) -> None:
    """The port settings of `verbena env` were made of all variables, and hold for those alone."""
    program = program_or_skip("ibv_devices")
    changed = launch.environment(clean_environment(), devices=2) | later
    done = subprocess.run([program], env=changed, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert line.partition("]: ")[2] == NO_LONGER_FIT
    assert re.findall(r"verbena\d+", done.stdout) == ["verbena0"]
    command = verbena_command("run", program)
    done = subprocess.run(command, env=changed, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_device_keeps_its_interface_from_a_variable_that_was_set_later() -> None:
    program = program_or_skip("ibv_devices")
    later = launch.environment(clean_environment(), devices=2) | {"VERBENA_NETDEV": "nowhere0"}
    done = subprocess.run([program], env=later, capture_output=True, text=True, timeout=60)
    assert "VERBENA_NETDEV=nowhere0: there is no such interface now" in done.stderr
    assert re.findall(r"verbena\d+", done.stdout) == ["verbena0", "verbena1"]


@pytest.mark.parametrize(
    "records",
    ["", "1 ", "2 1 1 0 0 0 1 ffff ,", "1 9 ", "1 1 1 1 0 0 1 ffff ,", "1 1 1 0 0 0 1 0 ,",
     "1 1 1 0 0 0 21 ffff ,", "1 1 1 0 0 0 1 ffff interface-of-16b,", "1 1 1 0 0 0 1 ffff x"],
)  # fmt: skip
def test_damaged_records_are_refused(records: str) -> None:
    program = program_or_skip("ibv_devices")
    damaged = launch.environment(clean_environment(), devices=2)
    damaged["VERBENA_PORT_RECORDS"] = f"{records}||2||"
    done = subprocess.run([program], env=damaged, capture_output=True, text=True, timeout=60)
    assert NO_LONGER_FIT in done.stderr
    assert re.findall(r"verbena\d+", done.stdout) == ["verbena0"]


def test_an_address_by_lid_with_is_global_says_so() -> None:
    program = "from verbena import verbs; verbs.open_device().alloc_pd().create_ah(dlid=1)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {"VERBENA_LINK_LAYER": "infiniband"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "for an address by LID set is_global to 0 (in Python is_global=False)" in done.stderr


# ---- names that are none


def test_the_library_has_the_names_that_the_commands_and_the_page_have() -> None:
    source = (ROOT / "src/native/dropin/settings.c").read_text()
    text = source[source.index("known[] =") :].partition(";")[0]
    listed = {f"VERBENA_{word}" for word in re.findall("[A-Z][A-Z_]+", text)}
    assert listed == _variables.KNOWN
    page = (ROOT / "docs/running.md").read_text()
    described = set(re.findall(r"^\| `(VERBENA_[A-Z_]+)` \|", page, re.MULTILINE))
    assert described | {"VERBENA_RUN", "VERBENA_SANITIZE"} == listed


@pytest.mark.parametrize("command", [("run", "--", "true"), ("env",)])
def test_the_commands_name_the_nearest_variable(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        verbena_command(*command),
        env=clean_environment() | {"VERBENA_PROT": "ethernet", "VERBENA_OF_A_PROGRAM": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = f"verbena {command[0]}: VERBENA_PROT is not known; did you mean VERBENA_PORTS?\n"
    assert done.stderr == said


def test_the_log_tells_a_variable_that_is_not_known() -> None:
    assert opened(VERBENA_PROT="ethernet") == ""
    said = opened(VERBENA_PROT="ethernet", VERBENA_LOG="errors")
    assert "VERBENA_PROT is not known; `verbena run` names the nearest that is" in said
