# SPDX-License-Identifier: Apache-2.0
"""The error and the warning of verbena.fabrics."""

from __future__ import annotations

__all__ = ["FabricError", "FabricWarning"]


class FabricError(ValueError):
    """A wrong fabric, route or workload; the message names the node, port, file line or
    argument."""


class FabricWarning(UserWarning):
    """``fabrics.route`` did something that its caller may not expect; the message says what."""
