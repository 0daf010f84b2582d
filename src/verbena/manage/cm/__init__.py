# SPDX-License-Identifier: Apache-2.0
"""The connection manager: InfiniBand's (IBA 12), and Linux's rdma_cm on it (IBA annex A11)."""

from __future__ import annotations
