# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: conversions between arrays and the core's structures, for World.add_flows,
# World.flows and World.links.

def _codes(str name, object given, dict table):
    """Return the numbers that the table has for words, which are one or an array of them."""
    words = np.atleast_1d(np.asarray(given))
    if words.dtype.kind != "U":
        raise ValueError(f"{name} is {_shown(given)}, and not one of {', '.join(table)}, "
                         "or an array of them")
    found, where = np.unique(words, return_inverse=True)
    codes = np.array([_choice(table, name, str(word)) for word in found], dtype=np.uint64)
    return codes[where].reshape(words.shape)


cdef list _columns(tuple names, tuple given):
    """Return arrays [n] of whole numbers, each from one for all flows or from one for each."""
    columns = [np.atleast_1d(np.asarray(part)) for part in given]
    for name, column, part in zip(names, columns, given, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "biu":
            raise ValueError(f"{name} is {_shown(part)}, and not a whole number, "
                             "or an array of them")
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)
               if len(column) != 1}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"the arguments have different numbers of flows: {told}")
    return list(np.broadcast_arrays(*columns))


cdef vb_sim_dependency *_after_array(object after, uint64_t count) except? NULL:
    """Return the dependencies as C structures, which the caller frees."""
    cdef const uint64_t[:, :] pairs = after
    cdef uint64_t i
    cdef vb_sim_dependency *made
    made = <vb_sim_dependency *>calloc(count if count else 1, sizeof(vb_sim_dependency))
    if made is NULL:
        raise MemoryError
    for i in range(count):
        made[i].first, made[i].then = <uint32_t>pairs[i, 0], <uint32_t>pairs[i, 1]
    return made


cdef vb_sim_flow *_flow_array(object columns, uint64_t count) except? NULL:
    """Return a C structure for each row of the columns; the caller frees them."""
    cdef vb_sim_flow *flows = <vb_sim_flow *>calloc(count if count else 1, sizeof(vb_sim_flow))
    cdef const uint64_t[:] source, target, size, start, message, level, depth, opcode, kind
    cdef const uint64_t[:] multicast, management, reserve, back_level, buffer, path, pkey
    cdef uint64_t i
    if flows is NULL:
        raise MemoryError
    source, target, size, start, message, level, depth, opcode, kind = columns[:9]
    multicast, management, reserve, back_level, buffer, path, pkey = columns[9:]
    for i in range(count):
        flows[i].source = <uint32_t>source[i]
        flows[i].target = <uint32_t>target[i]
        flows[i].bytes = size[i]
        flows[i].start = start[i]
        flows[i].message = message[i]
        flows[i].level, flows[i].back_level = <uint8_t>level[i], <uint8_t>back_level[i]
        flows[i].depth = <uint8_t>depth[i]
        flows[i].opcode = <uint8_t>opcode[i]
        flows[i].type = <uint8_t>kind[i]
        flows[i].to_group, flows[i].management = multicast[i] != 0, management[i] != 0
        flows[i].reserve, flows[i].buffer = reserve[i], buffer[i]
        flows[i].path, flows[i].pkey = <uint8_t>path[i], <uint16_t>pkey[i]
    return flows


cdef object _flow_rows(vb_sim *sim):
    """Return FLOW [flows]."""
    cdef uint64_t count, i
    cdef const vb_sim_flow *flow
    flow = vb_sim_flows(sim, &count)
    made = np.zeros(count, dtype=FLOW)
    cdef uint32_t[:] source = made["source"], target = made["target"]
    cdef uint64_t[:] size = made["bytes"], start = made["start"], finish = made["finish"]
    cdef uint64_t[:] done = made["done"], lost = made["lost"]
    cdef uint32_t[:] resent = made["resent"], marked = made["marked"]
    cdef uint32_t[:] notices = made["notices"], timeouts = made["timeouts"]
    cdef uint8_t[:] state = made["state"], status = made["status"], level = made["level"]
    for i in range(count):
        source[i], target[i] = flow[i].source, flow[i].target
        size[i], done[i] = flow[i].bytes, vb_sim_flow_done(sim, &flow[i])
        lost[i] = flow[i].lost
        start[i], finish[i] = flow[i].start, flow[i].finish
        resent[i] = flow[i].end[0].resent + flow[i].end[1].resent
        marked[i] = flow[i].end[0].marked + flow[i].end[1].marked
        notices[i] = flow[i].end[0].notices + flow[i].end[1].notices
        level[i] = flow[i].level
        state[i], status[i] = flow[i].state, flow[i].status
        if flow[i].type == VB_SIM_FLOW_TCP and state[i] != VB_FLOW_WAITING:
            timeouts[i] = flow[i].timeouts
    return made


cdef object _delivered(vb_sim *sim, object group, uint32_t groups):
    """Return uint64 [groups]: the sums of what flows have delivered, by each flow's group."""
    cdef uint64_t count, i
    cdef const vb_sim_flow *flow = vb_sim_flows(sim, &count)
    cdef const uint32_t[::1] of
    made = np.zeros(groups, np.uint64)
    cdef uint64_t[::1] total = made
    numbers = np.asarray(group)
    if numbers.shape != (count,) or (count and (
            numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= groups)):
        raise ValueError(f"group is {_shown(group)}: there are {count} flows, and each is to have "
                         f"a whole number below {groups}")
    of = np.ascontiguousarray(numbers, np.uint32)
    for i in range(count):
        total[of[i]] += vb_sim_flow_done(sim, &flow[i])
    return made


cdef dict _packet_sums(vb_world_sums counted):
    return {"sent": counted.made + counted.copied, "delivered": counted.delivered,
            "dropped": counted.dropped}


cdef object _link_rows(vb_world *world):
    """Return LINK [connected ports]."""
    cdef uint32_t i
    cdef const vb_world_port *port
    cdef const vb_world_port *peer
    cdef vb_world_port_counters traffic
    made = np.zeros(world.ports, dtype=LINK)
    for i in range(world.ports):
        port = &world.port[i]
        peer = &world.port[port.peer]
        traffic = vb_world_traffic(world, port)
        made[i] = (
            port.node, port.number, peer.node, peer.number, port.rate, port.delay,
            traffic.packets, traffic.bytes, traffic.busy, traffic.stalled,
            traffic.queued_max, traffic.marked, traffic.pauses, traffic.storms,
            *[traffic.dropped[reason] for reason in range(VB_WORLD_DROPS)],
        )
    return made


cdef list _blocked_ports(const vb_world *world):
    """Return the ports that have packets and may not send, as blocked.Blocked."""
    from verbena.sim.blocked import Blocked
    cdef const vb_world_port *port
    cdef const vb_world_port *peer
    cdef uint32_t i, queue, packet
    found = []
    for i in range(world.ports):
        port = &world.port[i]
        peer = &world.port[port.peer]
        if port.lanes is NULL or not port.lanes.waiting or peer.arrive_first != VB_WORLD_NONE:
            continue
        inputs = set()
        for queue in range(port.lanes.count * port.lanes.inputs):
            packet = port.lanes.input_queue[queue].first
            while packet != VB_WORLD_NONE:
                inputs.add(world.packets.packet[packet].input)
                packet = world.packets.packet[packet].next
        peer = &world.port[port.peer]
        if world.node[port.node].kind == VB_WORLD_HOST:
            inputs.clear()
        found.append(Blocked(port.node, port.number, peer.node, peer.number, frozenset(inputs)))
    return found


cdef object _fill_messages(World world, list columns):
    """Make the messages of flows with a reserved buffer as large as it allows, where they are 0.

    Returns the first flow whose messages are larger; or the number of flows.
    """
    source, message, depth, buffer = columns[0], columns[4], columns[6], columns[13]
    packets = buffer // depth // np.array(world._wire, np.uint64)[source]
    most = np.minimum(packets * np.uint64(world._mtu), np.uint64(1 << 30))
    columns[4] = np.where((buffer != 0) & (message == 0), most, message)
    large = (buffer != 0) & ((most == 0) | (message > most))
    return int(large.argmax()) if large.any() else len(large)


cdef int _check_routes(World world, const vb_sim_flow *flows, list columns,
                       uint64_t large) except -1:
    """Raise the ValueError for the first flow whose routes do not allow it, or whose messages are
    too ``large``."""
    cdef uint64_t bad = 0
    cdef int error = vb_sim_check_flows(world._sim, flows, len(columns[0]), &bad)
    most = 0
    if columns[9].any():
        first, why = _group_error(world, columns)
        if first < bad:
            bad, error = first, why
    if columns[11].any() or columns[13].any():
        if columns[13].any() and not world._promises:
            world._promises = True
            _set_reservable(world._world)
        first, why, most = _promise_error(world, flows, len(columns[0]))
        if first < bad or (why and first == bad and
                           _is_there(world, flows[bad].source, flows[bad].target, flows[bad].path)):
            bad, error = first, why
    if large < bad:
        bad, error = large, -EMSGSIZE
    if error:
        _refuse_flow(error, bad, columns, most)
    return _check(error, "flows")


cdef int _set_reservable(vb_world *world) except -1:
    """Set how much can be reserved in each switch that has a buffer."""
    from verbena.sim.promises import reservable
    cdef vb_world_switch *sw
    cdef uint32_t node, i
    for node in range(world.nodes):
        sw = world.node[node].sw
        if sw is NULL or not sw.config.buffer:
            continue
        links = sum([sw.port[i] != VB_WORLD_NONE for i in range(sw.config.ports)])
        stops, alphas = [], []
        for i in range(sw.config.lanes):
            if sw.config.lane[i].flow.flow_control == VB_WORLD_PAUSES:
                stops.append(sw.config.lane[i].stop)
            elif sw.config.lane[i].flow.flow_control == VB_WORLD_LOSSY:
                alphas.append(sw.config.lane[i].alpha)
        sw.reservable = reservable(sw.config.buffer, links, stops, alphas)
    return 0


cdef bint _is_there(World world, uint32_t source, uint32_t target, uint8_t path):
    """Return whether the routes lead from a host to another, of the same link layer."""
    there = (source in world._infiniband) == (target in world._infiniband)
    nodes = _host_nodes(world._world)
    address = _flow_address(world, nodes, target, path)
    return there and not vb_world_reaches(world._world, nodes[source], address)


cdef tuple _promise_error(World world, const vb_sim_flow *flows, uint64_t count):
    """Return the first flow whose reservation can never be made, why, and how much buffer can be
    reserved on its route.

    Without such a flow it is (``count``, 0, 0). The other reasons than -ENOSPC are those of
    vb_world_reserve. A flow starts only if there is room for it then.
    """
    cdef vb_world_packet like
    cdef vb_world_reservation some
    cdef vb_world_route *route
    cdef uint64_t i, most
    cdef uint32_t hop, node
    cdef const vb_world_switch *sw
    cdef list nodes = _host_nodes(world._world)
    memset(&like, 0, sizeof(like))
    some.rate = 0
    for i in range(count):
        if not flows[i].reserve and not flows[i].buffer:
            continue
        like.source = _flow_address(world, nodes, flows[i].source, flows[i].path)
        like.target = _flow_address(world, nodes, flows[i].target, flows[i].path)
        like.level_marks = flows[i].level << 4
        node = nodes[flows[i].source]
        some.buffer = flows[i].buffer != 0
        error = vb_world_reserve(world._world, node, &like, &some, &route)
        if error == -EBUSY:  # at present
            some.buffer = 0
            error = vb_world_reserve(world._world, node, &like, &some, &route)
        if error:
            return i, error, 0
        most = VB_WORLD_NEVER
        for hop in range(1, route.count):
            sw = world._world.node[world._world.port[route.port[hop]].node].sw
            if sw.config.buffer:
                most = min(most, sw.reservable)
        vb_world_release(world._world, route, &some)
        if flows[i].buffer > most:
            return i, -ENOSPC, most
    return count, 0, 0


cdef int _check_order(object after, uint64_t count) except -1:
    from verbena.sim.order import never_start
    bad = never_start(after, count) if len(after) else None
    if bad is not None:
        raise ValueError(f"flow {bad} waits for itself, through others")
    return 0


def _refuse_flow(int error, uint64_t bad, list columns, uint64_t most):
    """Raise the ValueError for an error of _check_routes about this flow, if it has one."""
    if error == -ENOSPC:
        raise ValueError(f"flow {bad}: reserve_buffer is {columns[13][bad]}, and of a buffer on "
                         f"its way at most {most} bytes can be promised: the rest is kept for "
                         "acknowledgements, and for lanes with pauses")
    if error == -EMSGSIZE:
        raise ValueError(f"flow {bad}: depth messages are more than reserve_buffer, "
                         f"{columns[13][bad]}")
    if error == -EOPNOTSUPP:
        raise ValueError(f"flow {bad}: a switch on its way has credits or pauses for its "
                         "level: there is no buffer to reserve")
    if error == -EINVAL and (columns[11][bad] or columns[13][bad]):
        raise ValueError(f"flow {bad}: switches on its way balance by packet: there is no one "
                         "way to reserve")
    if error in (-EHOSTUNREACH, -ELOOP):
        how = "no way leads" if error == -EHOSTUNREACH else "the routes go round"
        if columns[9][bad]:
            raise ValueError(f"flow {bad}: {how} from host {columns[0][bad]} to group "
                             f"{columns[1][bad]}")
        raise ValueError(f"flow {bad}: {how} from host {columns[0][bad]} to host "
                         f"{columns[1][bad]}, or back")


def _check_flows(World world, source, target, size, start, message, level, depth, opcode, kind,
                 multicast, management, reserve, back_level, buffer, path, pkey, after):
    """Raise the ValueError for the first flow that no world allows."""
    hosts, group, tcp = world._world.hosts, multicast != 0, kind == VB_SIM_FLOW_TCP
    now = world._world.now
    if after.size and after.max() >= len(source):
        raise ValueError(f"after: there is no flow {after.max()}")
    waits = np.zeros(len(source), bool)
    waits[after[:, 1]] = True
    rules = (
        (source >= hosts, "there is no such source host"),
        (~group & (target >= hosts), "there is no such target host"),
        (group & (target >= world._groups), "there is no such group"),
        (~group & (source == target), "a host sends to itself"),
        (size == 0, "it has no bytes"),
        ((start < now) & ~waits, f"it starts in the past: it is {now} ps"),
        (start > 2**62, "it starts too late"),
        (message > 1 << 30, "a message is longer than 1 GiB"),
        ((level > 15) | (back_level > 15), "its level is above 15"),
        ((depth > 64) | (depth < 1), "its depth is not from 1 to 64"),
        ((kind == IBV_QPT_UD) & (opcode != IBV_WR_SEND), "UD only sends"),
        (tcp & (opcode != IBV_WR_RDMA_WRITE), "TCP has no operation"),
        (tcp & (message != 0), "TCP has no message: it is a stream"),
        (tcp & (reserve != 0), "TCP cannot reserve"),
        (tcp & np.isin(source, list(world._infiniband)), "TCP is not for InfiniBand's framing"),
        (group & (kind != IBV_QPT_UD), "only UD goes to groups"),
        ((buffer != 0) & (kind != IBV_QPT_RC), "reserve_buffer is for RC: only RC knows what "
         "is in flight"),
        (path > 127, "its path is above 127"),
        ((pkey & 0x7fff == 0) | (pkey > 0xffff), "its pkey is no P_Key"),
        (group & (pkey != 0xffff), "a group's flows have the P_Key 0xffff"),
        (buffer > 2**62, "it reserves more than any switch has"),
        (group & (reserve != 0), "a group has no one way to reserve"),
        ((reserve + buffer != 0) & (opcode == IBV_WR_RDMA_READ),
         "the data of a READ come the other way: that cannot be reserved"),
        (reserve > 10**15, "it reserves more than any link has"),
        ((management != 0) & (kind != IBV_QPT_UD), "management is UD"),
        ((kind == IBV_QPT_UC) & (opcode == IBV_WR_RDMA_READ), "UC does not read"),
        ((kind == IBV_QPT_UD) & (message > world._mtu), "a datagram is longer than the MTU"),
    )
    for wrong, why in rules:
        if wrong.any():
            raise ValueError(f"flow {int(wrong.argmax())}: {why}")
