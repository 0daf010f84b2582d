# SPDX-License-Identifier: Apache-2.0
"""Two processes on two pinned cores, and what they reach: Debian's perftest, or a pair of Pythons.

`verbena demo` uses this room, and so do the benchmarks of a checkout, which no wheel has. A case
(`case.Case`) measures one number once, in processes that are ended whatever happens.
"""
