# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a fabric, its routes or its traffic."""

from __future__ import annotations

__all__ = ["FabricError"]


class FabricError(ValueError):
    """The message names the node, port, file line or argument that is wrong."""
