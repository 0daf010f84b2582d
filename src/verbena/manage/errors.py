# SPDX-License-Identifier: Apache-2.0
"""The error of verbena.manage. Every parser and every constructor raises it, and no other."""

from __future__ import annotations

__all__ = ["MadError"]


class MadError(ValueError):
    """Bytes that are no MAD, attribute or message, or a value that does not fit its field.

    The message names the record, the field and what is allowed.
    """
