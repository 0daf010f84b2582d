# SPDX-License-Identifier: Apache-2.0
# What World.advice says: of buffers, and of RC flows that may never end.

cdef list _buffer_advice(World world):
    cdef vb_world *of = world._world
    cdef uint32_t i, lane
    cdef const vb_sim_port *port
    cdef const vb_sim_switch *sw
    found = []
    for i in range(of.ports):
        port = &of.port[i]
        sw = of.node[port.node].sw
        for lane in range(sw.config.lanes if sw is not NULL else 0):
            kind = sw.config.lane[lane].flow.gate
            need = _need(world, port, kind)
            has = sw.config.lane[lane].flow.room if kind == VB_SIM_CREDITS else \
                sw.config.lane[lane].spare
            if sw.config.line and port.number == 1:
                has = sw.config.line
            if has < need and kind != VB_SIM_LOSSY:
                found.append(
                    f"lane {lane} of port {port.number} of node {port.node} has a "
                    f"{'room' if kind == VB_SIM_CREDITS else 'spare'} of {has}: "
                    f"{'the full rate' if kind == VB_SIM_CREDITS else 'no loss'} takes {need}")
    return found


cdef object _need(World world, const vb_sim_port *port, int gate):
    """Bytes of buffer that a lane takes behind this port."""
    cdef const vb_sim_switch *sw = world._world.node[port.node].sw
    delay = 2 * port.delay + (port.pause_response if gate == VB_SIM_PAUSES else 0)
    trip = -(-delay * port.rate // (8 * 10**12))
    frame = world._frame
    if gate == VB_SIM_CREDITS:  # in whole packets
        need = (-(-trip // frame) + 2) * frame
        is_line = sw.config.line and port.number == 1
        return need if is_line else min(need, VB_SIM_CREDIT_WINDOW * VB_SIM_BLOCK)
    for lane in range(sw.config.lanes):
        if sw.config.lane[lane].flow.gate == VB_SIM_PAUSES:
            trip += VB_SIM_PAUSE_BYTES
    return trip + 3 * frame


cdef set _rc_levels(vb_sim *sim):
    """The levels of RC flows, both ways."""
    cdef uint64_t count, i
    cdef const vb_sim_flow *flow = vb_sim_flows(sim, &count)
    found = set()
    for i in range(count):
        if flow[i].type == IBV_QPT_RC:
            found.add(flow[i].level)
            found.add(flow[i].back_level)
    return found


cdef bint _may_overflow(const vb_sim_switch *sw, set levels):
    """May it drop packets of these levels for lack of room?"""
    if not sw.config.buffer:
        return False
    if not sw.config.lanes:
        return True
    lanes = {level % sw.config.lanes for level in levels}
    return any(sw.config.lane[lane].flow.gate == VB_SIM_LOSSY and
               (sw.lane_of is not NULL or lane in lanes) for lane in range(sw.config.lanes))


cdef list _losses(World world, set levels):
    """Where packets of these levels may be lost or overtaken, in words."""
    cdef vb_world *of = world._world
    cdef const vb_sim_switch *sw
    cdef uint32_t i
    found = {}
    for i in range(of.nodes):
        sw = of.node[i].sw
        if sw is NULL:
            continue
        if sw.config.balance == VB_SIM_BY_PACKET and sw.sets:
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
