# SPDX-License-Identifier: Apache-2.0
"""Verbena and its peers, measured in one run on two pinned cores: `python -m benchmarks`.

This package is part of a checkout and of no wheel; it uses `verbena`, which never uses it. A
**case** (ucx, fabric, or `verbena.measure`'s perftest and scripts) measures one number once. A
**goal** is a row of the report: Verbena's case, a peer's, and the bound on their ratio. The
**runner** repeats all cases in turn, so that a noisy minute affects Verbena and the peer alike, and
takes medians.
"""
