# SPDX-License-Identifier: Apache-2.0
"""`verbena compare`, and what each of its ways costs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import verbena_command
from verbena.cli import compare
from verbena.host import HostError, Pcie
from verbena.host.comparison import WAYS, Row, Setup, compare_ways
from verbena.host.comparison.tables import row_data, time_cell

SIZE = 8192


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = verbena_command("compare", *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.way: row for row in compare_ways(SIZE)}


def test_programmed_io_waits_for_each_word(rows: dict[str, Row]) -> None:
    """1,024 round trips of 900 ns are 921.6 us, and each has a request and a completion."""
    row = rows["pio"]
    crossing = 1024 * (24 + 28) * 8e-3 / Pcie().usable_gbps
    loop = 1024 * 6 / 3000
    entry = 1500 / 3000
    assert row.here.cycles / 3000 == pytest.approx(921.6 + crossing + loop + entry, rel=1e-3)
    assert row.here.copied == SIZE
    assert row.limit[0] == "the processor here"
    assert row.latency_ps / 1e6 == pytest.approx(row.here.cycles / 3000 + 0.45 + 10 + 0.45, abs=0.1)


def test_dma_takes_a_doorbell_and_an_interrupt(rows: dict[str, Row]) -> None:
    """0.45 us of a store, 10 of the medium, 1.24 of 8,960 bytes, two halves of a round trip, 0.5 of
    the interrupt's entry."""
    row = rows["dma"]
    assert row.latency_ps / 1e6 == pytest.approx(0.45 + 10 + 1.24 + 0.9 + 0.5, abs=0.1)
    assert row.here.to_memory.bytes == 8960 + 28
    assert (row.here.copied, row.here.interrupts) == (0, 1)
    assert compare_ways(16 * SIZE, ["dma"])[0].here.cycles == row.here.cycles


def test_a_write_crosses_the_buses_as_the_formulas_say() -> None:
    """Doorbell 32, WQE 84 and payload 4,416 bytes down; reads of both and the CQE up."""
    (row,) = compare_ways(4096, ["write"])
    assert (row.here.to_device.bytes, row.here.to_memory.bytes) == (4532, 304)
    assert row.there is not None
    assert (row.there.to_device.bytes, row.there.to_memory.bytes) == (0, 4480)
    assert row.there.cycles == row.there.interrupts == 0


def test_a_send_takes_a_receive_and_a_completion_more() -> None:
    (send, write) = compare_ways(4096, ["send", "write"])
    assert send.there is not None
    assert write.there is not None
    assert send.there.to_device.bytes == 36
    assert send.there.to_memory.bytes == write.there.to_memory.bytes + 24 + 88
    assert send.there.cycles > 0


def test_a_remote_disk_is_the_local_one_and_the_network(rows: dict[str, Row]) -> None:
    remote, local = rows["remote-disk"], rows["dma"]
    assert remote.there is not None
    assert remote.here.copied == remote.there.copied == 0
    assert remote.latency_ps > local.latency_ps + 2 * 1_000_000
    assert remote.latency_ps < local.latency_ps + rows["write"].latency_ps + 8_000_000
    assert remote.there.to_memory.bytes > 8960


def test_tcp_costs_both_processors_what_rdma_costs_neither(rows: dict[str, Row]) -> None:
    tcp, write = rows["tcp"], rows["write"]
    assert tcp.there is not None
    for side in tcp.sides.values():
        assert (side.copied, side.system_calls, side.interrupts) == (SIZE, 1, 1)
        assert side.cycles > 10 * write.here.cycles
    assert tcp.limit[0].startswith("the processor")
    large = {row.way: row for row in compare_ways(1 << 20, ["tcp", "write"])}
    ratio = large["tcp"].limit[1] / large["write"].limit[1]
    assert 0.3 < ratio < 0.9  # of the same 400G adapter, two thirds were measured


@pytest.mark.parametrize("way", WAYS)
def test_every_way_moves_few_and_many_bytes(way: str) -> None:
    small, large = (compare_ways(size, [way])[0] for size in (8, 65536 + 512))
    assert small.latency_ps < large.latency_ps
    assert small.limit[1] < large.limit[1] or way in ("pio",)


@pytest.mark.parametrize("size", [0, 7, 12, 1 << 30])
def test_a_size_that_no_load_divides_is_refused(size: int) -> None:
    with pytest.raises(HostError, match="multiples of 8"):
        compare_ways(size, ["dma"])


def test_a_setup_is_checked_and_counts() -> None:
    with pytest.raises(HostError, match="latency"):
        Setup(disk_us=-1)
    for ghz in (1e-9, 1e9):
        with pytest.raises(HostError, match=r"clock is 0\.001 to 1000 GHz, not 1e"):
            Setup(ghz=ghz)


def test_the_help_names_the_sizes_that_can_be_moved() -> None:
    assert "a multiple of 8 bytes up to 64MiB" in " ".join(run("--help").stdout.split())
    with pytest.raises(HostError, match="no way 'fax'"):
        compare_ways(64, ["fax"])
    slow = compare_ways(SIZE, ["dma"], Setup(disk_us=100))[0]
    assert slow.latency_ps - compare_ways(SIZE, ["dma"])[0].latency_ps == 90_000_000


def test_the_command_prints_tables_and_sources() -> None:
    done = run("--size", "4KiB", "--write", "--tcp")
    assert done.returncode == 0, done.stderr
    assert "memory, WRITE" in done.stdout
    assert "disk, PIO" not in done.stdout
    assert "4,532 B in" in done.stdout
    assert "wake-up of a process" in done.stdout


def test_the_command_prints_json_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    words = ("--sizes", "64B..256B", "--dma", "--write", "--json", "--plot", str(picture))
    done = run(*words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(one["size"], one["way"]) for one in found] == [
        (size, way) for size in (64, 128, 256) for way in ("dma", "write")
    ]
    drawn = ElementTree.parse(picture).getroot()
    assert drawn.tag.endswith("svg")
    assert {"disk, DMA", "memory, WRITE", "Latency (both axes logarithmic)"} <= {*words_of(drawn)}
    lines = [one for one in drawn.iter() if one.get("class") == "lines" and one.get("d", "L")]
    points = [len(re.findall("[ML] ", one.get("d", ""))) for one in lines]
    assert points == [3, 3, 3, 3, 1, 1]  # two panels of two ways and three sizes, and the legend


def words_of(drawn: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in drawn.iter() if one.tag.endswith("text")]


def test_json_has_every_number_of_every_row(rows: dict[str, Row]) -> None:
    found = json.loads(run("--size", str(SIZE), "--json").stdout)
    assert [one["way"] for one in found] == [*WAYS]
    for one in found:
        row = rows[one["way"]]
        assert one == row_data(row)
        assert {*one} == {
            "way", "size", "latency_ps", "bits_per_second", "most_bits_per_second", "limit",
            "occupied_ps", "sides",
        }  # fmt: skip
        assert (one["size"], one["latency_ps"]) == (row.size, row.latency_ps)
        assert one["bits_per_second"] == pytest.approx(row.size * 8 / (row.latency_ps * 1e-12))
        assert one["occupied_ps"] == row.occupied
        assert one["limit"] == max(row.occupied, key=lambda each: row.occupied[each])
        assert one["most_bits_per_second"] == pytest.approx(
            row.size * 8 / (max(row.occupied.values()) * 1e-12)
        )
        for name, side in row.sides.items():
            crossings = {
                each: {"transactions": of.transactions, "bytes": of.bytes}
                for each, of in (("to_device", side.to_device), ("to_memory", side.to_memory))
            }
            assert one["sides"].pop(name) == crossings | {
                "cycles": side.cycles, "instructions": side.instructions,
                "charged_cycles": side.charged, "copied_bytes": side.copied,
                "interrupts": side.interrupts, "system_calls": side.system_calls,
            }  # fmt: skip
        assert one["sides"] == {}


def test_a_picture_of_one_size_has_a_bar_and_a_number_of_each_way(
    rows: dict[str, Row], tmp_path: Path
) -> None:
    picture = tmp_path / "bars.svg"
    assert run("--size", str(SIZE), "--plot", str(picture)).returncode == 0
    drawn = ElementTree.parse(picture).getroot()
    words = words_of(drawn)
    for row in rows.values():
        assert words.count(WAYS[row.way].title) == 3  # latency, cycles, copied bytes
        cycles = sum(side.cycles for side in row.sides.values())
        copied = sum(side.copied for side in row.sides.values())
        assert {time_cell(row.latency_ps), f"{cycles:,}", f"{copied:,} B"} <= {*words}
    bars = [one for one in drawn.iter() if one.tag.endswith("rect") and one.get("fill")]
    assert len(bars) == 7 + 7 + 2  # two ways copy


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--size", "7"), 1, "multiples of 8"),
        (("--size", "much"), 2, "is not a size"),
        (("--sizes", "64B"), 2, "no range of sizes"),
        (("--plot", "a.png"), 2, "ends in .svg"),
        (("--pcie", "9x8"), 1, "there are 1 to 5"),
    ],
)
def test_wrong_words_are_named(words: tuple[str, ...], status: int, says: str) -> None:
    done = run("--dma", *words)
    assert done.returncode == status
    assert says in done.stderr


@pytest.mark.parametrize("option", ["--plot", "--timeline"])
def test_a_folder_of_results_is_made(option: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / "too" / "x.svg"
    done = run("--write", option, str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("option", ["--plot", "--timeline"])
def test_a_folder_that_cannot_be_made_is_found_before_the_run(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("--dma", option, str(tmp_path / "file" / "x.svg"))
    assert done.returncode == 1
    assert done.stderr == (
        f"verbena compare: {tmp_path}/file: the folder cannot be made: File exists\n"
    )
    assert done.stdout == ""


def test_a_way_named_twice_has_one_row() -> None:
    done = run("--write", "--dma", "--write", "--json")
    assert [one["way"] for one in json.loads(done.stdout)] == ["write", "dma"]


def test_a_long_measurement_is_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "LONG", 0.01)
    assert compare.main(["--size", "256KiB", "--write"]) == 0
    said = "verbena compare: measuring memory, WRITE with 256 KiB ...\n"
    assert capsys.readouterr().err == said
    monkeypatch.setattr(compare, "LONG", 60.0)
    assert compare.main(["--size", "64B", "--write"]) == 0
    assert capsys.readouterr().err == ""
