# SPDX-License-Identifier: Apache-2.0
"""NumPy dtypes of the batch calls (``post_many``, ``CQ.poll(out=…)``).

verbena.verbs imports this at the first use of a dtype, so that NumPy is loaded only then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["recv_dtype", "send_dtype", "wc_dtype"]

_SEND_FIELDS: list[tuple[str, str, int]] = [
    ("wr_id", "u8", 0),
    ("addr", "u8", 8),
    ("length", "u4", 16),
    ("lkey", "u4", 20),
    ("opcode", "u4", 24),
    ("flags", "u4", 28),
    ("remote_addr", "u8", 32),
    ("rkey", "u4", 40),
    ("imm_data", "u4", 44),
    ("compare_add", "u8", 48),
    ("swap", "u8", 56),
    ("remote_qpn", "u4", 32),
    ("remote_qkey", "u4", 36),
    ("ah", "u4", 40),
]

_WC_FIELDS: list[tuple[str, str, int]] = [
    ("wr_id", "u8", 0),
    ("status", "u4", 8),
    ("opcode", "u4", 12),
    ("vendor_err", "u4", 16),
    ("byte_len", "u4", 20),
    ("imm_data", ">u4", 24),
    ("invalidated_rkey", "u4", 24),
    ("qp_num", "u4", 28),
    ("src_qp", "u4", 32),
    ("wc_flags", "u4", 36),
    ("pkey_index", "u2", 40),
    ("slid", "u2", 42),
    ("sl", "u1", 44),
    ("dlid_path_bits", "u1", 45),
]


def _dtype(fields: list[tuple[str, str, int]], itemsize: int) -> np.dtype[Any]:
    names, formats, offsets = zip(*fields, strict=True)
    layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize}
    made: np.dtype[Any] = np.dtype(layout)
    return made


send_dtype: np.dtype[Any] = _dtype(_SEND_FIELDS, 64)
"""One send request of ``QP.post_many``, with one SGE (``length`` 0: none), 64 bytes.

``imm_data`` is in host byte order. The UD fields ``remote_qpn``, ``remote_qkey`` and ``ah`` share
their bytes with ``remote_addr`` and ``rkey``; ``ah`` is an index into the ``ahs`` argument.
"""

recv_dtype: np.dtype[Any] = np.dtype(
    [("wr_id", "u8"), ("addr", "u8"), ("length", "u4"), ("lkey", "u4")]
)
"""One receive request of ``QP.post_many`` or ``SRQ.post_many``, with one SGE, 24 bytes."""

wc_dtype: np.dtype[Any] = _dtype(_WC_FIELDS, 48)
"""One completion of ``CQ.poll(out=…)``: the layout of ``struct ibv_wc``, 48 bytes.

``invalidated_rkey``, the key that a SEND with Invalidate has named where ``wc_flags`` has WITH_INV,
shares its bytes with ``imm_data``.
"""
