# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: the sentences of World.advice. They are about buffers, about RC flows that may
# never end, and about windows. They read the world and change nothing.

cdef list _buffer_advice(World world):
    cdef vb_world *of = world._world
    cdef uint32_t i, lane
    cdef const vb_world_port *port
    cdef const vb_world_switch *sw
    found = []
    for i in range(of.ports):
        port = &of.port[i]
        sw = of.node[port.node].sw
        for lane in range(sw.config.lanes if sw is not NULL else 0):
            kind = sw.config.lane[lane].flow.flow_control
            need = _need(world, port, kind)
            has = sw.config.lane[lane].flow.room if kind == VB_WORLD_CREDITS else \
                sw.config.lane[lane].spare
            if sw.config.extender and port.number == 1:
                has = sw.config.extender
            if has < need and kind != VB_WORLD_LOSSY:
                found.append(
                    f"lane {lane} of port {port.number} of node {port.node} has a "
                    f"{'room' if kind == VB_WORLD_CREDITS else 'spare'} of {has}: "
                    f"{'the full rate' if kind == VB_WORLD_CREDITS else 'no loss'} takes {need}")
    return found


cdef object _need(World world, const vb_world_port *port, int flow_control):
    """Return the bytes of buffer that a lane needs behind this port."""
    cdef const vb_world_switch *sw = world._world.node[port.node].sw
    delay = 2 * port.delay + (port.pause_response if flow_control == VB_WORLD_PAUSES else 0)
    trip = -(-delay * port.rate // (8 * 10**12))
    frame = world._frame
    if flow_control == VB_WORLD_CREDITS:  # in whole packets
        need = (-(-trip // frame) + 2) * frame
        is_line = sw.config.extender and port.number == 1
        return need if is_line else min(need, VB_WORLD_CREDIT_WINDOW * VB_WORLD_CREDIT_BLOCK)
    for lane in range(sw.config.lanes):
        if sw.config.lane[lane].flow.flow_control == VB_WORLD_PAUSES:
            trip += VB_WORLD_PAUSE_BYTES
    return trip + 3 * frame


cdef set _rc_levels(vb_sim *sim):
    """Return the service levels of RC flows, in both directions."""
    cdef uint64_t count, i
    cdef const vb_sim_flow *flow = vb_sim_flows(sim, &count)
    found = set()
    for i in range(count):
        if flow[i].type == IBV_QPT_RC:
            found.add(flow[i].level)
            found.add(flow[i].back_level)
    return found


cdef bint _may_overflow(const vb_world_switch *sw, set levels):
    """Return whether the switch may drop packets of these levels because a queue is full."""
    if not sw.config.buffer:
        return False
    if not sw.config.lanes:
        return True
    lanes = {level % sw.config.lanes for level in levels}
    return any(sw.config.lane[lane].flow.flow_control == VB_WORLD_LOSSY and
               (sw.lane_of is not NULL or lane in lanes) for lane in range(sw.config.lanes))


cdef list _losses(World world, set levels):
    """Return sentences about where packets of these levels may be lost or overtaken."""
    cdef vb_world *of = world._world
    cdef const vb_world_switch *sw
    cdef uint32_t i
    found = {}
    for i in range(of.nodes):
        sw = of.node[i].sw
        if sw is NULL:
            continue
        if sw.config.balance == VB_WORLD_BY_PACKET and sw.table.sets:
            found.setdefault("ways", f"node {i} balances by packet, so that packets are overtaken")
        if _may_overflow(sw, levels):
            found.setdefault("room", f"node {i} drops what does not fit into its buffer")
        if sw.config.lifetime:
            found.setdefault("life", f"node {i} drops what has waited for its lifetime")
        if sw.config.watchdog.detect and not sw.config.watchdog.forward:
            found.setdefault("dog", f"the watchdog of node {i} drops what waits")
    for i in range(of.ports):
        if of.port[i].bit_error_rate > 0:
            found.setdefault("bits", f"the link at port {of.port[i].number} of node "
                                     f"{of.port[i].node} has bit errors")
    if world._detours_packets:
        found["detours"] = "packets make detours each by itself, and are overtaken"
    if world._goes_down:
        found["down"] = "a link goes down"
    return list(found.values())


cdef list _timeout_advice(World world):
    levels = _rc_levels(world._sim)
    found = _losses(world, levels) if levels else []
    if not found:
        return []
    return ["RC flows have timeout 0 and may never end, since they notice a loss only by what "
            f"comes after it: {'; '.join(found)}"]


cdef tuple _way(World world, uint32_t node, const vb_world_packet *like, uint64_t size):
    """Return the delay, the time that ``size`` bytes take on the links in ps, and the least rate of
    a path.

    The path is that of such packets from a host's node. Returns None if there is no path, or
    several.
    """
    cdef vb_world_reservation nothing  # empty: only the path is of interest
    cdef vb_world_route *way
    cdef const vb_world_port *port
    cdef const vb_world_switch *sw
    cdef uint32_t i
    cdef double delay = 0, wire = 0, slowest = 0, least = 0, each
    cdef bint cuts = False
    memset(&nothing, 0, sizeof(nothing))
    error = vb_world_reserve(world._world, node, like, &nothing, &way)
    if error == -ENOMEM:
        raise MemoryError
    if error:
        return None
    for i in range(way.count):
        port = &world._world.port[way.port[i]]
        sw = world._world.node[port.node].sw
        cuts = cuts or (sw is not NULL and sw.config.cut_through)
        each = size * 8e12 / port.rate
        delay, wire, slowest = delay + port.delay, wire + each, max(slowest, each)
        least = port.rate if i == 0 else min(least, port.rate)
    vb_world_release(world._world, way, &nothing)
    return delay, slowest if cuts else wire, least


cdef tuple _trip(World world, list nodes, tuple kind, uint64_t size):
    """Return the round trip of a packet in ps without queues, and the least rate on the way to the
    target.

    ``kind``: (source, target, level, back_level, path) of the flows. Returns None if there is no
    single path.
    """
    cdef vb_world_packet like
    memset(&like, 0, sizeof(like))
    source, target = [_flow_address(world, nodes, host, kind[4]) for host in kind[:2]]
    like.source, like.target, like.level_marks = source, target, kind[2] << 4
    there = _way(world, nodes[kind[0]], &like, size)
    like.source, like.target, like.level_marks = target, source, kind[3] << 4
    back = _way(world, nodes[kind[1]], &like, size)
    return None if there is None or back is None else (there[0] + back[0] + there[1], there[2])


cdef set _kinds_above(World world, int kind, uint64_t window):
    """Return (source, target, level, back_level, path) of flows of a transport that exceed a
    window."""
    cdef uint64_t count, i
    cdef const vb_sim_flow *flow = vb_sim_flows(world._sim, &count)
    found = set()
    for i in range(count):
        if flow[i].type == kind and flow[i].bytes > window:
            found.add((flow[i].source, flow[i].target, flow[i].level, flow[i].back_level,
                       flow[i].path))
    return found


cdef list _window_advice(World world):
    """Return a sentence about the flow of each transport that its window limits most."""
    from verbena.sim.windows import window_text
    cdef vb_world *of = world._world
    nodes = _host_nodes(of)
    said = []
    for kind, window, size, key, remedy in (
        (IBV_QPT_RC, world._window, world._mtu, "window", "window={} << 20"),
        (VB_SIM_FLOW_TCP, world._tcp_window, world._mss, 'tcp["window"]',
         'tcp={{"window": {} << 20}}'),
    ):
        carried = max(window, size)
        found = []
        for one in sorted(_kinds_above(world, kind, window)) if window else ():
            trip = _trip(world, nodes, one, size)
            if trip is not None and carried * 8e12 < trip[0] * trip[1]:
                found.append((carried * 8e12 / (trip[0] * trip[1]), one, trip))
        if found:
            _, one, trip = min(found)
            hosts = (f"host {one[0]}", f"host {one[1]}")
            said.append(window_text(window, key, size, *hosts, *trip, remedy))
    return said
