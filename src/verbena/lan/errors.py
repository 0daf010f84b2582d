# SPDX-License-Identifier: Apache-2.0
"""What a LAN raises."""

from __future__ import annotations


class LanError(Exception):
    """A mistake in the description of a LAN, or a frame that Ethernet does not carry."""


class LanTypeError(LanError, TypeError):
    """An argument of a type that the parameter does not take, one too many, or one missing."""
