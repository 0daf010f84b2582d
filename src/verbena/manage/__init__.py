# SPDX-License-Identifier: Apache-2.0
"""Management of InfiniBand and RoCE without input and output: packets, messages and protocols.

Nothing here has a socket, a clock or a thread: bytes and times are parameters and results.
``mad`` has the common header and each class's layout, and ``record`` is how formats are declared.
Formats are in ``smp_attributes``, ``cm_messages`` and ``ip_cm``; ``codes`` and ``attribute_ids``
have their enumerations. Bytes and values that no format allows raise ``MadError``.
"""

from __future__ import annotations

from .errors import MadError

__all__ = ["MadError"]
