# SPDX-License-Identifier: Apache-2.0
"""Operators of reductions: NumPy's ufuncs by name, or any associative and commutative ufunc.

``combine`` always gives the lower rank's operand first, so that all ranks get the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["OPERATORS", "Operator", "combine", "operator_of"]

Operator = str | np.ufunc
OPERATORS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def operator_of(op: Operator, dtype: np.dtype[Any]) -> np.ufunc:
    """Return the ufunc, which has to give the arrays' own dtype. Raises TypeError, ValueError."""
    if isinstance(op, str):
        if op not in OPERATORS:
            raise ValueError(f"op is one of {', '.join(OPERATORS)}, or a ufunc, and not {op!r}")
        op = OPERATORS[op]
    if not isinstance(op, np.ufunc) or op.nin != 2 or op.nout != 1:
        raise TypeError(f"op is a name or a ufunc of two operands, and not {op!r}")
    if dtype.kind in "SUT":  # NumPy adds texts, and cuts them to the length of the dtype
        raise TypeError(f"a reduction is of numbers, and not of texts ({dtype})")
    none = np.empty(0, dtype)
    try:
        op(none, none, out=none)
    except TypeError as error:
        raise TypeError(f"{op.__name__} does not take arrays of {dtype}: {error}") from None
    return op


def combine(op: np.ufunc, mine: NDArray[Any], other: NDArray[Any], other_first: bool) -> None:
    """Combine two parts, and leave the result in ``mine``."""
    if other_first:
        op(other, mine, out=mine)
    else:
        op(mine, other, out=mine)
