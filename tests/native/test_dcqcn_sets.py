# SPDX-License-Identifier: Apache-2.0
"""dcqcn_sets.h has the values of the sets of DCQCN again, for C tests: those that worlds have."""

from __future__ import annotations

import re
from pathlib import Path

from verbena.sim import _world

FUNCTION = re.compile(r"dcqcn_(\w+)\(void\)\n\{(.*?)\n\}", re.DOTALL)
FIELD = re.compile(r"\.(\w+) = ([^,]+),")


def number(text: str) -> float:
    """The value of a C expression: a product, a quotient or a truth value."""
    if text in ("true", "false"):
        return text == "true"
    first, operation, second = (*text.split(), "*", "1")[:3]
    assert operation in ("*", "/")
    return float(first) * float(second) if operation == "*" else float(first) / float(second)


def test_c_tests_have_the_sets_of_worlds() -> None:
    text = Path(__file__).with_name("dcqcn_sets.h").read_text()
    sets = {
        name: {field: number(value) for field, value in FIELD.findall(body)}
        for name, body in FUNCTION.findall(text)
    }
    assert sets == _world.DCQCN_SETS
