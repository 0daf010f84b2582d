# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a scenario, it is taken, or refused with the key and the line."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from verbena.sim import Scenario, ScenarioError
from verbena.sim.document import Document

# One key to a line, each with a value that is good.
WHOLE = """\
name = "x"
teaches = "t"
see = "s"
expect = "done"
seed = 1
duration = "1 ms"
memory = "1 GiB"
allow = ["loss"]
[fabric]
topology = "dumbbell"
left = 2
right = 2
rate = "100GbE"
delay = "1 us"
bit_error_rate = 0.0
switch_rate = "100GbE"
switch_length_m = 3.0
[[link]]
between = "s0-s1"
length_m = 300
bit_error_rate = 1e-12
rate = "40GbE"
[[group]]
name = "news"
members = ["h2", "h3"]
root = "s1"
[[event]]
link = "h0-s0"
at = "500 us"
up = false
[[storm]]
host = "h3"
at = "1 ms"
until = "2 ms"
class = "first"
[routing]
engine = "minhop"
balance = "flow"
[switch]
buffer = "4 MiB"
cut_through = 0
lifetime = 0
fecn = 0
turns = "input"
fecn_at = "root"
[switch.watchdog]
detect = "200 us"
restore = "200 us"
action = "drop"
[[switch.class]]
name = "first"
flow = "pauses"
stop = "64 KiB"
go = "48 KiB"
spare = "96 KiB"
alpha = 0.0
weight = 64
strict = false
[switch.class.mark]
low = "5 KiB"
high = "200 KiB"
most = 0.01
[[switch.own]]
of = "s1"
buffer = "2 MiB"
[adapter]
framing = "ethernet"
mtu = 4096
timeout = 10
retry_count = 7
rd_atomic = 4
window = 65536
ack_bytes = 4096
burst = 1
notice_level = 0
hop_limit = 10
recovery = "go-back-n"
[congestion]
kind = "dcqcn"
set = "paper"
gain = 0.004
raise_bytes = 1000000
fast_steps = 5
least_factor = 0.5
target_clamped = true
notice_interval = "50 us"
add_rate = "0.04 Gb/s"
[tcp]
mss = 1460
initial_window = 10
window = "1 MiB"
least_rto = "1 ms"
retries = 15
dctcp_gain = 0.0625
ecn = false
[samples]
every = "5 us"
links = ["s0-s1"]
[[traffic]]
pattern = "flows"
name = "n"
start = "1 us"
transport = "rc"
operation = "write"
message = 4096
class = 0
depth = 2
seed = 4
reserve = "1 Gb/s"
from = ["h0", "h1"]
to = ["h2", "h3"]
size = "1 MiB"
repeat = 2
every = "1 us"
[[traffic]]
pattern = "poisson"
load = 0.2
sizes = "websearch"
lasts = "1 ms"
link = "100GbE"
[[traffic]]
pattern = "trace"
file = "trace.csv"
"""
ODD = (
    "-1", "nan", "inf", "1e308", "99999999999999999999999", "9223372036854775808", "[]", "[[1]]",
    "{}", "true", "1979-05-27", "07:32:00", '"1e999999999 s"', '"\\u0000"', '"."', '""',
)  # fmt: skip


def texts() -> Iterator[tuple[str, str]]:
    lines = WHOLE.splitlines()
    for number, line in enumerate(lines):
        key, equals, _ = line.partition(" = ")
        for value in ODD if equals else ():
            changed = [*lines[:number], f"{key} = {value}", *lines[number + 1 :]]
            yield f"line {number + 1}: {changed[number]}", "\n".join(changed)


def test_each_key_takes_or_refuses_each_odd_value(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("source,destination,bytes,start_ps\nh0,h1,100,0\n")
    Scenario.parse(WHOLE, folder=tmp_path)
    refused, wrong = 0, []
    for what, text in texts():
        try:
            Scenario.parse(text, folder=tmp_path)
        except ScenarioError as error:
            refused += 1
            if not (error.line and error.key):
                wrong.append(f"{what}: {error}")
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
    assert wrong == []
    assert refused > 1200


@pytest.mark.parametrize("value", ["timeout = true", "burst = inf", "retry_count = nan"])
def test_an_adapter_s_numbers_are_whole(value: str) -> None:
    key = value.split()[0]
    lines = [value if line.startswith(f"{key} = ") else line for line in WHOLE.splitlines()]
    with pytest.raises(
        ScenarioError, match=f"adapter.{key} = .*: it is to be a whole number from "
    ):
        Scenario.parse("\n".join(lines[: lines.index("[[traffic]]") + 10]))


@pytest.mark.parametrize("value", [2**63, 99999999999999999999999])
def test_who_is_beyond_the_largest_number_is_told_it(value: int) -> None:
    """Others are not: nobody wants to read it who gave a text or a number below 0."""
    says = f"seed = {value}: it is to be a whole number from 0 to {2**63 - 1}$"
    with pytest.raises(ScenarioError, match=says):
        Scenario.parse(WHOLE.replace("seed = 1\n", f"seed = {value}\n"))
    with pytest.raises(ScenarioError, match=r"a whole number from 0$"):
        Scenario.parse(WHOLE.replace("seed = 1\n", "seed = -1\n"))


@pytest.mark.parametrize("gaps", ["[nan]", "[inf]", "[-1.0]"])
def test_gaps_of_a_congestion_control_table_are_numbers(gaps: str) -> None:
    text = WHOLE[: WHOLE.index("[congestion]")] + f'[congestion]\nkind = "cct"\ngaps = {gaps}\n'
    with pytest.raises(ScenarioError, match="gap"):
        Scenario.parse(text + WHOLE[WHOLE.index("[[traffic]]") :])


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_bytes(b'name = "a"\nteaches = "\xff"\n')
    with pytest.raises(ScenarioError, match=r"net\.toml, line 2: byte 0xff is not UTF-8"):
        Scenario.load(path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b'[fabric]\r\ntopology = "pair"\r\n'
                     b'[[traffic]]\r\npattern = "incast"\r\nsize = 1\r\n')  # fmt: skip
    assert len(Scenario.load(path).traffic) == 1


@pytest.mark.parametrize("text", [f"a = {'[' * 5000}{']' * 5000}", f"a = {'9' * 5000}"])
def test_what_tomllib_cannot_take_is_a_scenario_s_error(text: str) -> None:
    with pytest.raises(ScenarioError, match="net"):
        Document.parse(text, "net")


def test_a_capture_that_does_not_fit_says_so(tmp_path: Path) -> None:
    text = (
        '[fabric]\ntopology = "pair"\n[[traffic]]\npattern = "flows"\nfrom = 0\nto = 1\n'
        'size = "4 MiB"\n'
    )
    scenario = Scenario.parse(text)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, before[1]))
    try:
        result = scenario.run(captures={"h0-h1": tmp_path / "out.pcapng"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.captures_lost > 0
    assert f"{result.captures_lost} packets could not be written" in result.summary()
