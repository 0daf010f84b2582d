# SPDX-License-Identifier: Apache-2.0
"""How `make fabtests` reads the list of the suite and judges a case; the suite is too long here."""

from __future__ import annotations

import pytest

from tests.programs.pairs import Pair, Side
from tests.suite import fabtests

SCRIPT = """
unit_tests=(
	"fi_getinfo_test"
)
functional_tests=(
	"fi_cm_data"
	"fi_msg_inject -A inject -v"
)
short_tests=()
"""


def ended(server: int, client: int) -> Pair:
    return Pair(Side("server", server, ""), Side("client", client, ""))


def test_the_list_of_the_suite_s_runner() -> None:
    assert fabtests.listed(SCRIPT, "functional_tests") == [
        "fi_cm_data",
        "fi_msg_inject -A inject -v",
    ]
    assert fabtests.listed(SCRIPT, "short_tests") == []


@pytest.mark.parametrize(
    ("case", "provider", "statuses", "status"),
    [
        ("fi_cm_data", "verbs", (0, 0), "passed"),
        ("fi_cm_data", "verbs", (61, 61), "failed"),  # no reason is known
        ("fi_cm_data", "verbs;ofi_rxm", (61, 61), "skipped"),
        ("fi_cm_data", "verbs;ofi_rxm", (0, 0), "failed"),  # its entry is stale
        ("fi_cm_data", "verbs;ofi_rxm", (61, 139), "failed"),
        ("fi_rdm", "verbs;ofi_rxm", (0, -9), "failed"),
        ("fi_msg_inject -A inject -v", "verbs;ofi_rxm", (0, 0), "passed"),
    ],
)
def test_judged(case: str, provider: str, statuses: tuple[int, int], status: str) -> None:
    assert fabtests.judged(case, provider, ended(*statuses)).status == status
