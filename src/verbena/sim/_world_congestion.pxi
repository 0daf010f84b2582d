# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: passes the settings of adapters to the core, congestion control among them.
# world_settings.py has checked them.

cdef uint16_t _cct_entry(double gap):
    """Return the nearest value that a shift of 2 bits and a multiplier of 14 bits express."""
    cdef uint32_t shift, most = (1 << VB_CCT_MULTIPLIER_BITS) - 1
    for shift in (3, 2, 1):
        if round(gap * (1 << shift)) <= most:
            return shift << VB_CCT_MULTIPLIER_BITS | <uint32_t>round(gap * (1 << shift))
    return <uint32_t>round(gap)


cdef int _fill_nic(vb_nic_config *to, object given) except -1:
    memset(to, 0, sizeof(to[0]))
    to.notice_level = VB_NIC_OWN_LEVEL if given.notice_level is None else given.notice_level
    to.doorbell = given.doorbell
    to.bus_rate = given.bus_rate
    to.receive_latency = given.receive_latency
    if given.congestion is not None:
        _fill_congestion(&to.congestion, given.congestion)
    return 0


cdef int _check_hpcc(object common, object own) except -1:
    """Raise ValueError if one of the two is HPCC and the other is not."""
    kinds = [type(given).__name__.lower() for given in (common, own)]
    if kinds[0] != kinds[1] and "hpcc" in kinds:
        raise ValueError("congestion: hpcc is for all hosts of a world or for none, since each "
                         "packet carries telemetry")
    return 0


cdef int _fill_congestion(vb_congestion *to, object given) except -1:
    kind = type(given).__name__
    to.notice_interval = given.notice_interval
    if kind == "Dcqcn":
        to.kind = VB_CONGESTION_DCQCN
        to.dcqcn = {name: _first(getattr(given, name), value)
                    for name, value in DCQCN_SETS[given.set].items()}
    elif kind == "Cct":
        to.kind = VB_CONGESTION_CCT
        _fill_cct(&to.cct, given)
    else:
        to.kind = VB_CONGESTION_HPCC
        to.hpcc = vb_hpcc_config(given.base_rtt, given.target, given.add, given.stages)
    return 0


# The paper's values, and the defaults of ConnectX adapters (DCE_TCP_G is 1019 of 1024). Times are
# in ps, rates in bits/s.
DCQCN_SETS = {
    "paper": {
        "gain": 1.0 / 256, "alpha_interval": 55_000_000, "raise_interval": 55_000_000,
        "raise_bytes": 10_000_000, "fast_steps": 5, "add_rate": 40e6, "fast_add_rate": 200e6,
        "least_rate": 40e6, "least_factor": 0.5, "cut_interval": 0, "target_clamped": True,
    },
    "adapter": {
        "gain": 5.0 / 1024, "alpha_interval": 1_000_000, "raise_interval": 300_000_000,
        "raise_bytes": 32767 * 64, "fast_steps": 1, "add_rate": 5e6, "fast_add_rate": 50e6,
        "least_rate": 1e6, "least_factor": 0.5, "cut_interval": 4_000_000, "target_clamped": False,
    },
}


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


cdef object _congestion_log(World world, object host):
    cdef uint64_t i
    _number("host", host, world._world.hosts)
    cdef const vb_sim_cct_log *log = vb_sim_host_cct_log(world._sim, host)
    if log is NULL:
        return np.zeros(0, EVENT)
    first = log.events - min(log.events, VB_CCT_LOG)
    places = [i % VB_CCT_LOG for i in range(first, log.events)]
    return np.array([(log.event[i].at, log.event[i].flow) for i in places], EVENT)
