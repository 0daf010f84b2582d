# SPDX-License-Identifier: Apache-2.0
"""What `verbena info` says of the agent's listeners."""

from __future__ import annotations

from verbena.cli.info import agent_text

FOUND = {
    "pid": 7,
    "programs": [8],
    "listening": ["TCP 192.0.2.1:7174"],
    "groups": [],
    "connections": 0,
    "messages": {},
}


def test_a_backlog_that_was_full() -> None:
    text = agent_text(FOUND | {"full_backlogs": {"TCP 192.0.2.1:7174": 3}})
    assert "TCP 192.0.2.1:7174: 3 requests dropped" in text
    assert "backlog" not in agent_text(FOUND)
