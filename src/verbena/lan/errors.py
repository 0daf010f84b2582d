# SPDX-License-Identifier: Apache-2.0
"""What a LAN raises."""

from __future__ import annotations


class LanError(Exception):
    """A mistake in the description of a LAN, or a frame that Ethernet does not carry."""
