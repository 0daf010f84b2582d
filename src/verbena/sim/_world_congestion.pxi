# SPDX-License-Identifier: Apache-2.0
# What World(congestion=...) takes.

cdef double _real(str name, object value) except? -1:
    if isinstance(value, bool) or not isinstance(value, Real) or abs(value) > 1e300:
        raise ValueError(f"{name} is {value!r}, and no number")
    return value


cdef uint16_t _cct_entry(double gap):
    """The nearest that a shift of 2 bits and a multiplier of 14 can say."""
    cdef uint32_t shift, most = (1 << VB_CCT_MULTIPLIER_BITS) - 1
    for shift in (3, 2, 1):
        if round(gap * (1 << shift)) <= most:
            return shift << VB_CCT_MULTIPLIER_BITS | <uint32_t>round(gap * (1 << shift))
    return <uint32_t>round(gap)


cdef int _fill_cct(vb_cct_config *to, dict given) except -1:
    gaps = [_real("a gap", gap) for gap in given.pop("gaps", ())]
    most = (1 << VB_CCT_MULTIPLIER_BITS) - 1
    if not 1 <= len(gaps) <= VB_CCT_ENTRIES or not all(0 <= gap <= most for gap in gaps):
        raise ValueError(
            f"congestion: cct needs gaps, 1 to {VB_CCT_ENTRIES} numbers of packet times from 0 to "
            f"{most}"
        )
    for i, gap in enumerate(gaps):
        to.entry[i] = _cct_entry(gap)
    to.limit = _count("limit", given.pop("limit", len(gaps) - 1), 0, len(gaps) - 1)
    every = {name: given.pop(name) for name in CCT_LEVEL if name in given}
    levels = _settings("levels", given.pop("levels", {}))
    if unknown := [level for level in levels if level not in range(VB_CCT_LEVELS)]:
        raise ValueError(f"levels has {unknown[0]!r}, which is no level from 0 to 15")
    for i in range(VB_CCT_LEVELS):
        own = _settings(f"levels: {i}", levels.get(i, {}))
        _fill_cct_level(&to.level[i], every | own, to.limit)
    return 0


CCT_LEVEL = ("timer", "increase", "min", "trigger")


cdef int _fill_cct_level(vb_cct_level *to, dict given, uint32_t limit) except -1:
    to.timer = _count("timer", given.pop("timer", 150 * 1_024_000), 1, 2**63)
    to.increase = _count("increase", given.pop("increase", 1), 0, VB_CCT_ENTRIES)
    to.min = _count("min", given.pop("min", 0), 0, limit)
    to.trigger = _count("trigger", given.pop("trigger", 0), 0, limit)
    if given:
        raise ValueError(f"congestion: a level has unknown keys {', '.join(sorted(given))}")
    return 0


cdef int _fill_hpcc(vb_hpcc_config *to, dict given) except -1:
    to[0] = vb_sim_hpcc_paper()
    if "base_rtt" not in given:
        raise ValueError("congestion: hpcc needs the base_rtt, in ps: a round trip without queues")
    to.base_rtt = _count("base_rtt", given.pop("base_rtt"), 1, 10**12)
    to.target = _real("target", given.pop("target", to.target))
    to.add = _real("add", given.pop("add", to.add))
    to.stages = _count("stages", given.pop("stages", to.stages), 0, 2**31)
    if not (0 < to.target <= 1 and 0 <= to.add < 1e15):
        raise ValueError("congestion: target is to be above 0 and at most 1, add from 0")
    return 0
