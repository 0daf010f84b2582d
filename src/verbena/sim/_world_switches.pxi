# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: passes the settings of World.add_switch, which world_settings.py has checked,
# to the core; and pause storms.

cdef vb_world_marking _marking(object mark) except *:
    cdef vb_world_marking made
    made.low, made.high, made.most = mark.low, mark.high, mark.most
    return made


cdef int _fill_lane(vb_world_class_config *to, object lane) except -1:
    to.flow.flow_control, to.flow.room = GATES[lane.flow], lane.room
    to.stop, to.go = lane.stop, lane.stop if lane.go is None else lane.go
    to.spare, to.alpha = lane.spare, lane.alpha
    if lane.mark is not None:
        to.mark = _marking(lane.mark)
    return 0


cdef int _fill_table(vb_world_arbiter_entry *entry, list table) except -1:
    for i, (lane, weight) in enumerate(table):
        entry[i].lane, entry[i].weight = lane, weight
    return len(table)


cdef int _fill_switch(vb_world_switch_config *to, object given) except -1:
    cdef uint32_t i
    memset(to, 0, sizeof(to[0]))
    to.ports, to.lanes, to.buffer = given.ports, len(given.lanes), given.buffer
    if given.mark is not None:
        to.mark = _marking(given.mark)
    for i in range(to.lanes):
        _fill_lane(&to.lane[i], given.lanes[i])
    to.tables.high_count = _fill_table(to.tables.high, given.high)
    to.tables.low_count = _fill_table(to.tables.low, given.low_table)
    to.tables.high_limit, to.tables.remembers = given.high_limit, given.remembers
    to.balance, to.turns, to.floods = BALANCES[given.balance], TURNS[given.turns], given.floods
    if (dog := given.watchdog) is not None:
        to.watchdog.detect = dog.detect
        to.watchdog.restore = dog.detect if dog.restore is None else dog.restore
        to.watchdog.forward = dog.action == "forward"
    to.cut_through, to.lifetime, to.management = given.cut_through, given.lifetime, given.management
    to.fecn, to.fecn_at, to.fecn_rate = given.fecn, FECN_AT[given.fecn_at], given.fecn_rate
    to.fecn_to_hosts = given.fecn_victims == "hosts"
    return 0


cdef object _storm(vb_world *world, object host, object start, object end, object lane):
    cdef uint64_t first, last
    first = _time("start", world.now if start is None else start, world.now, 2**62)
    last = VB_WORLD_NEVER if end is None else _count("end", end, 0, 2**62)
    if last <= first:
        raise ValueError(f"end is {end} ps, which is not after the start, {first} ps")
    number = _count("lane", lane, 0, VB_WORLD_LANES - 1)
    _number("node", host, world.nodes)
    if world.node[<uint32_t>host].kind != VB_WORLD_HOST:
        raise ValueError(f"node {host} is no host")
    error = vb_world_add_storm(world, host, number, first, last)
    if error == -EINVAL:
        raise ValueError(f"lane {lane} of node {host} has no pauses")
    _check(error, "a storm")


cdef int _set_lanes(World world, object switch, object lanes, object by) except -1:
    cdef vb_world_switch *sw = world._switch_of(switch)
    table = np.asarray(lanes)
    cdef const uint8_t[:, :, ::1] cells
    wanted = (sw.config.ports, sw.config.ports, 16)
    if table.shape != wanted:
        raise ValueError(f"lanes of switch {switch} are to have the shape {wanted}, "
                         f"and have {table.shape}")
    if table.dtype.kind not in "iu" or table.min() < 0 or table.max() > 255:
        raise ValueError(f"lanes of switch {switch} are to be whole numbers from 0")
    cells = np.ascontiguousarray(table, dtype=np.uint8)
    by_lane = _choice(LANES_BY, "by", by)
    if vb_world_switch_set_lanes(sw, &cells[0, 0, 0], by_lane) == -EINVAL:
        raise ValueError(f"switch {switch} has {sw.config.lanes} lanes, "
                         f"and no lane {table.max()}")
    return 0
