# SPDX-License-Identifier: Apache-2.0
"""What the device counts, by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import clean_environment
from verbena import verbs


@pytest.mark.not_simulated("it has no UDP port and no steering")
def test_every_counter_has_its_name(ctx: verbs.Context) -> None:
    counters = ctx.counters()
    assert counters is not None
    assert set(counters) == {"engine", "udp", "steer"}
    assert {"drop_source", "drop_pkey", "refused_key", "timeouts"} <= set(counters["engine"])
    assert {"received", "receive_bad_icrc"} <= set(counters["udp"])
    assert all(isinstance(value, int) for part in counters.values() for value in part.values())


@pytest.mark.parametrize(
    ("port", "parts"), [("direct", set()), ("roce", {"engine", "udp", "steer"})]
)
def test_where_no_packets_are_sent_none_are_counted(port: str, parts: set[str]) -> None:
    program = "from verbena import verbs; print(*verbs.open_device('verbena0').counters())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {"VERBENA_PORT": port},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, set(done.stdout.split())) == (0, parts), done.stderr


def test_after_it_is_closed_nothing_is_counted(ctx: verbs.Context) -> None:
    ctx.close()
    with pytest.raises(verbs.VerbsError, match="closed"):
        ctx.counters()
