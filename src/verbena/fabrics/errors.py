# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a fabric, its routes or its traffic, and what is remarkable about them."""

from __future__ import annotations

__all__ = ["FabricError", "FabricWarning"]


class FabricError(ValueError):
    """The message names the node, port, file line or argument that is wrong."""


class FabricWarning(UserWarning):
    """``fabrics.route`` did something else than its caller may expect: the message says what."""
