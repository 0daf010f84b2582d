# SPDX-License-Identifier: Apache-2.0
"""Payloads that say which message they are, and whose every byte depends on that."""

from __future__ import annotations

import struct

import numpy as np

from tests.soak.plan import HEADER

_HEADER = struct.Struct("<QQ")
assert _HEADER.size == HEADER


class WrongData(Exception):
    """A payload is not what was sent."""


def payload(talk: int, message: int, length: int) -> bytes:
    """``length`` bytes, at least ``HEADER``: the two numbers, then bytes made from them."""
    body = np.arange(length - HEADER, dtype="u4") * (2 * message + 1) + talk * 7
    return _HEADER.pack(talk, message) + (body % 251).astype("u1").tobytes()


def message_of(talk: int, data: bytes) -> int:
    """The number of the message that ``data`` begins; WrongData if it is another talk's."""
    if len(data) < HEADER:
        raise WrongData(f"talk {talk}: {len(data)} bytes, less than a header")
    of_talk, message = _HEADER.unpack_from(data)
    if of_talk != talk:
        raise WrongData(f"talk {talk}: a message of talk {of_talk}")
    return int(message)


def check(talk: int, message: int, data: bytes) -> None:
    expected = payload(talk, message, len(data))
    if data != expected:
        at = next(i for i, (x, y) in enumerate(zip(data, expected, strict=True)) if x != y)
        raise WrongData(
            f"talk {talk}, message {message}: byte {at} of {len(data)} is {data[at]}, "
            f"not {expected[at]}"
        )
