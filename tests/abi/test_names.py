# SPDX-License-Identifier: Apache-2.0
"""Names, rates and conversions of structs are those of the system's libibverbs."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.abi.elf import environment_over_verbena
from tests.support import plain_environment

# Prints the results of pure functions of the library of argv[1], one a line.
CALLS = """
import ctypes, sys
verbs = ctypes.CDLL(sys.argv[1])
for name in ("node_type", "port_state", "event_type", "wc_status"):
    function = getattr(verbs, f"ibv_{name}_str")
    function.restype = ctypes.c_char_p
    for value in range(-2, 40):
        print(name, value, function(value).decode(), sep=":")
for value in range(-2, 40):
    print("mult", value, verbs.ibv_rate_to_mult(value), sep=":")
    print("mbps", value, verbs.ibv_rate_to_mbps(value), sep=":")
    print("of mult", value, verbs.mult_to_ibv_rate(value), sep=":")
for value in sorted({verbs.ibv_rate_to_mbps(rate) for rate in range(40)} | {-1, 0, 1}):
    print("of mbps", value, verbs.mbps_to_ibv_rate(value), sep=":")
"""
# Converts a pattern of bytes with each function that copies a kernel struct; prints the results.
CONVERSIONS = """
import ctypes, sys
verbs = ctypes.CDLL(sys.argv[1])
pattern = bytes((7 * i + 1) % 251 for i in range(512))
for name in ("ah_attr_from", "qp_attr_from", "path_rec_from", "path_rec_to"):
    to = ctypes.create_string_buffer(b"\\xee" * 512, 512)
    source = ctypes.create_string_buffer(pattern, 512)
    getattr(verbs, f"ibv_copy_{name}_kern")(to, source)
    print(name, to.raw.hex())
"""


def system_library() -> str:
    folders = [*Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib")]
    for folder in folders:
        if (folder / "libibverbs.so.1").exists():
            return str(folder / "libibverbs.so.1")
    pytest.skip("this system has no libibverbs of its own; apt-get install libibverbs1 brings one")


def run(program: str, library: str, environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", program, library]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def unknown(line: str) -> bool:
    """What an older library has no name or number for."""
    return line.endswith((":unknown", ":-1", ":0"))


@pytest.mark.debian
def test_names_and_rates() -> None:
    theirs = run(CALLS, system_library(), plain_environment())
    ours = set(run(CALLS, "libibverbs.so.1", environment_over_verbena()))
    known = [line for line in theirs if not unknown(line)]
    assert len(known) > 100
    assert [line for line in known if line not in ours] == []


def test_values_without_a_name() -> None:
    ours = set(run(CALLS, "libibverbs.so.1", environment_over_verbena()))
    assert {"node_type:39:unknown", "event_type:-1:unknown"} <= ours
    assert {"mult:1:-1", "of mbps:1:0"} <= ours


@pytest.mark.debian
def test_conversions_of_kernel_structs() -> None:
    theirs = run(CONVERSIONS, system_library(), plain_environment())
    assert len(theirs) == 4
    assert run(CONVERSIONS, "libibverbs.so.1", environment_over_verbena()) == theirs


@pytest.mark.parametrize(
    ("content", "size", "expected"),
    [
        (b"4\n", 8, (1, b"4")),
        (b"no newline", 16, (10, b"no newline")),
        (b"", 8, (0, b"")),
        (b"12345678\n", 8, (-1, None)),
        (b"1234567\n", 8, (7, b"1234567")),
    ],
)
def test_reading_a_sysfs_file(
    tmp_path: Path, content: bytes, size: int, expected: tuple[int, bytes | None]
) -> None:
    from verbena._native import library

    verbs = ctypes.CDLL(str(library("libibverbs.so.1")))
    (tmp_path / "value").write_bytes(content)
    text = ctypes.create_string_buffer(size)
    length = verbs.ibv_read_sysfs_file(os.fsencode(tmp_path), b"value", text, ctypes.c_size_t(size))
    assert length == expected[0]
    if expected[1] is not None:
        assert text.value == expected[1]


def test_sysfs_path_follows_the_environment() -> None:
    program = (
        "import ctypes, sys; verbs = ctypes.CDLL(sys.argv[1]);"
        "verbs.ibv_get_sysfs_path.restype = ctypes.c_char_p;"
        "print(verbs.ibv_get_sysfs_path().decode())"
    )
    environment = environment_over_verbena()
    assert run(program, "libibverbs.so.1", environment) == ["/sys"]
    environment["SYSFS_PATH"] = "/elsewhere//"
    assert run(program, "libibverbs.so.1", environment) == ["/elsewhere"]
