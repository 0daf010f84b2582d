# SPDX-License-Identifier: Apache-2.0
"""A variable with an unknown word: the line on stderr says which words there are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import clean_environment


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


def test_wrong_ports_are_told_with_an_example_and_the_command_that_explains_them() -> None:
    program = "from verbena import verbs; verbs.open_device().close()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {"VERBENA_PORTS": "infiniband,lid=3,lmc=1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (line,) = done.stderr.splitlines()
    assert "it may be one port, or two as in ethernet,netdev=eth0;infiniband,lid=8," in line
    assert line.endswith("`verbena run --port`, once for each port, says what is wrong")
