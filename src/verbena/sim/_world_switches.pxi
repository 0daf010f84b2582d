# SPDX-License-Identifier: Apache-2.0
# What World.add_switch takes besides lanes; and adapters that break.

cdef int _fill_table(vb_world_arbiter_entry *entry, object given, uint32_t lanes) except -1:
    if len(given) > VB_WORLD_ARBITER_ENTRIES:
        raise ValueError(f"an arbitration table has at most {VB_WORLD_ARBITER_ENTRIES} entries")
    for i, (lane, weight) in enumerate(given):
        entry[i].lane = _count("a lane of an arbitration table", lane, 0, lanes - 1)
        entry[i].weight = _count("a weight", weight, 0, 255)
    return len(given)


cdef int _fill_watchdog(vb_world_watchdog_config *to, object given) except -1:
    if given is None:
        return 0
    rest = _settings("watchdog", given)
    to.detect = _count("watchdog: detect", rest.pop("detect", 0), 1, 2**62)
    to.restore = _count("watchdog: restore", rest.pop("restore", to.detect), 0, 2**62)
    action = rest.pop("action", "drop")
    if action not in ("drop", "forward"):
        raise ValueError(f"watchdog: action is {action!r}, and neither 'drop' nor 'forward'")
    to.forward = action == "forward"
    if rest:
        raise ValueError(f"watchdog: unknown keys {', '.join(sorted(rest))}")
    return 0


cdef list _fill_fecn(vb_world_switch_config *to, object fecn, object at, object rate,
                     object victims):
    """The ports of Victim_Mask."""
    to.fecn = _count("fecn", fecn, 0, 2**32 - 1)
    to.fecn_at = _choice(FECN_AT, "fecn_at", at)
    if to.fecn_at == VB_WORLD_FECN_INPUT and not to.lanes:
        raise ValueError("fecn_at is 'input': without lanes inputs have no buffers")
    to.fecn_rate = _count("fecn_rate", rate, 0, 65535)
    to.fecn_to_hosts = isinstance(victims, str)
    if to.fecn_to_hosts and victims != "hosts":
        raise ValueError(f"fecn_victims is {victims!r}, and neither 'hosts' nor a list of ports")
    ports = [] if to.fecn_to_hosts else list(victims)
    for port in ports:
        _count("a port of fecn_victims", port, 0, to.ports - 1)
    if (to.fecn_rate or to.fecn_to_hosts or ports) and not to.fecn:
        raise ValueError("fecn_rate and fecn_victims are about fecn, which is 0: nothing gets it")
    if (to.fecn_to_hosts or ports) and to.fecn_at != VB_WORLD_FECN_ROOT:
        raise ValueError(f"fecn_victims is for fecn_at='root': with {at!r} victims get it anyway")
    return ports


cdef object _storm(vb_world *world, object host, object start, object end, object lane):
    cdef uint64_t first, last
    first = _count("start", world.now if start is None else start, 0, 2**62)
    last = VB_WORLD_NEVER if end is None else _count("end", end, 0, 2**62)
    if first < world.now or last <= first:
        raise ValueError(f"a storm from {start} to {end} ps: it is {world.now} ps")
    number = _count("lane", lane, 0, VB_WORLD_LANES - 1)
    if not 0 <= host < world.nodes or world.node[<uint32_t>host].kind != VB_WORLD_HOST:
        raise ValueError(f"node {host!r} is no host")
    error = vb_world_add_storm(world, host, number, first, last)
    if error == -EINVAL:
        raise ValueError(f"lane {lane} of node {host} has no pauses")
    _check(error, "a storm")
