# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: passes World(congestion=...) to the core. world_settings.py has checked it.

cdef uint16_t _cct_entry(double gap):
    """Return the nearest value that a shift of 2 bits and a multiplier of 14 bits express."""
    cdef uint32_t shift, most = (1 << VB_CCT_MULTIPLIER_BITS) - 1
    for shift in (3, 2, 1):
        if round(gap * (1 << shift)) <= most:
            return shift << VB_CCT_MULTIPLIER_BITS | <uint32_t>round(gap * (1 << shift))
    return <uint32_t>round(gap)


cdef int _fill_congestion(vb_congestion *to, object given) except -1:
    kind = type(given).__name__
    to.notice_interval = given.notice_interval
    if kind == "Dcqcn":
        to.kind = VB_CONGESTION_DCQCN
        to.dcqcn = vb_sim_dcqcn_paper() if given.set == "paper" else vb_sim_dcqcn_adapter()
        to.dcqcn = _changed(to.dcqcn, given)
    elif kind == "Cct":
        to.kind = VB_CONGESTION_CCT
        _fill_cct(&to.cct, given)
    else:
        to.kind = VB_CONGESTION_HPCC
        to.hpcc = vb_hpcc_config(given.base_rtt, given.target, given.add, given.stages)
    return 0


cdef dict _changed(dict config, object given):
    """The fields of a C structure, with those that were given."""
    return {name: value if (own := getattr(given, name, None)) is None else own
            for name, value in config.items()}


cdef int _fill_cct(vb_cct_config *to, object given) except -1:
    for i, gap in enumerate(given.gaps):
        to.entry[i] = _cct_entry(gap)
    to.limit = len(given.gaps) - 1 if given.limit is None else given.limit
    for i in range(VB_CCT_LEVELS):
        own = given.levels.get(i)
        to.level[i] = {name: _first(getattr(own, name, None), getattr(given, name), default)
                       for name, default in CCT_LEVEL.items()}
    return 0


CCT_LEVEL = {"timer": 150 * 1_024_000, "increase": 1, "min": 0, "trigger": 0}


def _first(*values):
    """That is not None."""
    return next(value for value in values if value is not None)
