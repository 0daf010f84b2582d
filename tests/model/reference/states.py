# SPDX-License-Identifier: Apache-2.0
"""Queue pair states.

A queue pair is made in RESET. ``modify`` moves it, and takes for each transition some attributes
that it needs and some that it may have besides (ibv_modify_qp(3)). Anything else is EINVAL, and
nothing has changed then. To RESET it goes from everywhere, to ERR from everywhere but RESET, with
no other attribute.

| State | Receives are posted | arrive | Sends are posted | are carried out |
|-------|---------------------|--------|------------------|-----------------|
| RESET | EINVAL              | no     | EINVAL           | no              |
| INIT  | yes                 | no     | EINVAL           | no              |
| RTR   | yes                 | yes    | EINVAL           | no              |
| RTS   | yes                 | yes    | yes              | yes             |
| SQD   | yes                 | yes    | yes, and wait    | no              |
| SQE   | yes                 | yes    | yes, flushed     | no              |
| ERR   | yes, flushed        | no     | yes, flushed     | no              |

RTS to SQD stops the send queue, and SQD to RTS lets it go on with what was posted meanwhile. A UC
or UD queue pair whose own request failed is in SQE, and SQE to RTS lets it send again.

An XRC initiator has only a send queue, and an XRC target only answers. What an RC queue pair is
given for the other half may be given to them too, and is left out, as Linux does.
"""

from __future__ import annotations

LISTENS = ("RTR", "RTS", "SQD", "SQE")
SENDS = ("RTS", "SQD", "SQE", "ERR")

PATH = {"AV", "PATH_MTU", "DEST_QPN", "RQ_PSN"}
RESPONDER = {"MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"}
REQUESTER = {"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC"}

# (from, to): for each type (needed, optional), or None if the type has no such transition.
Rule = tuple[set[str], set[str]]

RC: dict[tuple[str, str], Rule] = {
    ("RESET", "INIT"): ({"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}, set()),
    ("INIT", "INIT"): (set(), {"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}),
    ("INIT", "RTR"): (PATH | RESPONDER, {"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX", "RATE_LIMIT"}),
    ("RTR", "RTS"): (
        {"SQ_PSN"} | REQUESTER,
        {"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "PATH_MIG_STATE", "MIN_RNR_TIMER", "RATE_LIMIT"},
    ),
    ("RTS", "RTS"): (
        set(),
        {"CUR_STATE", "ACCESS_FLAGS", "ALT_PATH", "PATH_MIG_STATE", "MIN_RNR_TIMER", "RATE_LIMIT"},
    ),
    ("RTS", "SQD"): (set(), {"EN_SQD_ASYNC_NOTIFY"}),
    ("SQD", "RTS"): (
        set(),
        {"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "PATH_MIG_STATE", "MIN_RNR_TIMER"},
    ),
    ("SQD", "SQD"): (
        set(),
        {"PORT", "AV", "ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX", "PATH_MIG_STATE"}
        | RESPONDER
        | REQUESTER,
    ),
}

UC: dict[tuple[str, str], Rule] = {
    ("RESET", "INIT"): ({"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}, set()),
    ("INIT", "INIT"): (set(), {"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}),
    ("INIT", "RTR"): (PATH, {"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX", "RATE_LIMIT"}),
    ("RTR", "RTS"): (
        {"SQ_PSN"},
        {"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "PATH_MIG_STATE", "RATE_LIMIT"},
    ),
    ("RTS", "RTS"): (
        set(),
        {"CUR_STATE", "ACCESS_FLAGS", "ALT_PATH", "PATH_MIG_STATE", "RATE_LIMIT"},
    ),
    ("RTS", "SQD"): (set(), {"EN_SQD_ASYNC_NOTIFY"}),
    ("SQD", "RTS"): (set(), {"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "PATH_MIG_STATE"}),
    ("SQD", "SQD"): (set(), {"AV", "ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX", "PATH_MIG_STATE"}),
    ("SQE", "RTS"): (set(), {"CUR_STATE", "ACCESS_FLAGS"}),
}

UD: dict[tuple[str, str], Rule] = {
    ("RESET", "INIT"): ({"PKEY_INDEX", "PORT", "QKEY"}, set()),
    ("INIT", "INIT"): (set(), {"PKEY_INDEX", "PORT", "QKEY"}),
    ("INIT", "RTR"): (set(), {"PKEY_INDEX", "QKEY"}),
    ("RTR", "RTS"): ({"SQ_PSN"}, {"CUR_STATE", "QKEY"}),
    ("RTS", "RTS"): (set(), {"CUR_STATE", "QKEY"}),
    ("RTS", "SQD"): (set(), {"EN_SQD_ASYNC_NOTIFY"}),
    ("SQD", "RTS"): (set(), {"CUR_STATE", "QKEY"}),
    ("SQD", "SQD"): (set(), {"PKEY_INDEX", "QKEY"}),
    ("SQE", "RTS"): (set(), {"CUR_STATE", "QKEY"}),
}

XRC_SEND: dict[tuple[str, str], Rule] = {
    move: (needed - RESPONDER, optional - RESPONDER) for move, (needed, optional) in RC.items()
}

# Of the requester's attributes the kernel asks a target for the timeout.
XRC_RECV: dict[tuple[str, str], Rule] = {
    move: (
        needed - REQUESTER | ({"TIMEOUT"} & needed),
        optional - REQUESTER - {"RATE_LIMIT"} | ({"TIMEOUT"} & optional),
    )
    for move, (needed, optional) in RC.items()
}

LEFT_OUT = {"XRC_SEND": RESPONDER, "XRC_RECV": REQUESTER - {"TIMEOUT"}}
RULES = {"RC": RC, "UC": UC, "UD": UD, "XRC_SEND": XRC_SEND, "XRC_RECV": XRC_RECV}


def transition_error(kind: str, now: str, to: str, given: set[str]) -> str | None:
    """Whether ``modify`` takes these attributes (besides STATE) for this transition."""
    given = given - LEFT_OUT.get(kind, set())
    if to in ("RESET", "ERR"):
        allowed = to == "RESET" or now != "RESET"
        return None if allowed and not given else "EINVAL"
    rule = RULES[kind].get((now, to))
    if rule is None:
        return "EINVAL"
    needed, optional = rule
    return None if needed <= given <= needed | optional else "EINVAL"
