# SPDX-License-Identifier: Apache-2.0
# What World(congestion=...) takes.

cdef int _fill_cct(vb_cct_config *to, dict given) except -1:
    gaps = [_real("a gap", gap) for gap in given.pop("gaps", ())]
    if not 1 <= len(gaps) <= VB_CCT_ENTRIES or not all(0 <= gap < 1e9 for gap in gaps):
        raise ValueError(
            f"congestion: cct needs gaps, 1 to {VB_CCT_ENTRIES} numbers of packet times from 0"
        )
    for i, gap in enumerate(gaps):
        to.gap[i] = gap
    to.limit = _count("limit", given.pop("limit", len(gaps) - 1), 0, len(gaps) - 1)
    to.increase = _count("increase", given.pop("increase", 1), 1, VB_CCT_ENTRIES)
    to.timer = _count("timer", given.pop("timer", 150 * 1_024_000), 1, 2**63)
    return 0


cdef int _fill_hpcc(vb_hpcc_config *to, dict given) except -1:
    to[0] = vb_hpcc_paper()
    if "base_rtt" not in given:
        raise ValueError("congestion: hpcc needs the base_rtt, in ps: a round trip without queues")
    to.base_rtt = _count("base_rtt", given.pop("base_rtt"), 1, 10**12)
    to.target = _real("target", given.pop("target", to.target))
    to.add = _real("add", given.pop("add", to.add))
    to.stages = _count("stages", given.pop("stages", to.stages), 0, 2**31)
    if not (0 < to.target <= 1 and 0 <= to.add < 1e15):
        raise ValueError("congestion: target is to be above 0 and at most 1, add from 0")
    return 0
