# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: management packets, which functions of Python take for nodes. doors.py has the
# packets' form.

cdef extern from "event/switch.h" nogil:
    void vb_world_switch_send(vb_world_partition *part, vb_world_switch *sw, uint32_t out,
                              uint32_t packet)

cdef extern from "event/telemetry.h" nogil:
    struct vb_world_telemetry:
        uint32_t hops
    vb_world_telemetry *vb_world_telemetry_of(vb_world_partition *part, uint32_t packet)

cdef extern from "sim/addresses.h" nogil:
    void vb_sim_gid_ipv4(uint32_t host, uint8_t *gid)

cdef extern from "sim/state.h" nogil:
    enum:
        VB_DETH
        VB_WORLD_HAS_BYTES
        VB_WORLD_MANAGEMENT
    uint32_t vb_world_pool_take(vb_world_pool *pool)
    void vb_world_pool_give(vb_world_pool *pool, uint32_t number)
    void vb_world_send(vb_world_partition *part, uint32_t node, uint32_t packet)
    vb_world_packet *vb_world_packet_at(vb_world_partition *part, uint32_t number)
    vb_sim_wire_packet *vb_sim_wire_packet_for(vb_sim *sim, uint32_t packet)


cdef int _serve(World world, object node, object function, bint general) except -1:
    """With ``general`` the node may be a host of Ethernet, which has QP 1 alone."""
    cdef vb_world_node *at
    world._idle()
    _number("node", node, world._world.nodes)
    at = &world._world.node[<uint32_t>node]
    if function is None:
        world._served.pop(int(node), None)
        at.is_served = 0
        return 0
    _called("function", function)
    if at.kind == VB_WORLD_HOST and at.host not in world._infiniband and not general:
        raise ValueError(f"node {node} is a host of Ethernet, which has no management packets")
    _refuse_port_0(world, node, "is served")
    _check(vb_sim_keep_whole(world._sim), "the door")
    world._served[int(node)] = function
    at.is_served = 1
    return 0


cdef int _refuse_port_0(World world, object node, str what) except -1:
    cdef const vb_world_node *at = &world._world.node[<uint32_t>node]
    if at.kind == VB_WORLD_SWITCH and at.sw.config.extender:
        raise ValueError(f"node {node} is a range extender, which takes no packets for itself")
    if at.kind == VB_WORLD_SWITCH and at.port[0] != VB_WORLD_NONE:
        raise ValueError(f"a switch of InfiniBand that {what} is its own port 0, and port 0 of "
                         f"node {node} has a link: connect its ports from 1 on")
    return 0


cdef int _send_mad(World world, object node, object packet, bint is_answer) except -1:
    """Send a packet of a node, or count it as lost if no link leads on.

    An answer may also name a port that does not exist, as the path of an SMP may. Raises TypeError,
    ValueError."""
    from verbena.sim.doors import Mad
    cdef const vb_world_node *at
    cdef uint32_t port
    _number("node", node, world._world.nodes)
    if not isinstance(packet, Mad):
        raise TypeError(f"a management packet is a Mad, and not {_shown(packet)}")
    cdef bytes content = packet.packet()
    at = &world._world.node[<uint32_t>node]
    if at.kind == VB_WORLD_HOST:
        if at.host not in world._infiniband:
            raise ValueError(f"node {node} is a host of Ethernet, which has no management packets")
        if packet.port not in (0, 1):
            raise ValueError(f"port is {_shown(packet.port)}, and a host's port is 1")
        port = 0
    else:
        _refuse_port_0(world, node, "sends")
        if not is_answer:
            _number("port", packet.port, at.ports, f" of node {node}")
        port = _count("port", packet.port, 0, 255) or _linear_entry(world, node, packet.dlid)
    if port >= at.ports or at.port[port] == VB_WORLD_NONE:
        world._mads_lost += 1
        return 0
    if packet.qp == 0:
        _refuse_without_vl15(world, at.port[port])
    _check(vb_sim_keep_whole(world._sim), "the door")
    return _leave(world, at, node, port, packet, content)


cdef int _send_general(World world, object node, object packet) except -1:
    """Send a packet from QP 1 of a host of Ethernet to QP 1 of another. Raises TypeError,
    ValueError."""
    from verbena.sim.doors import Mad
    cdef const vb_world_node *at
    _number("node", node, world._world.nodes)
    at = &world._world.node[<uint32_t>node]
    if not isinstance(packet, Mad):
        raise TypeError(f"a management packet is a Mad, and not {_shown(packet)}")
    if at.kind != VB_WORLD_HOST or at.host in world._infiniband:
        raise ValueError(f"node {node} is no host of Ethernet: send_mad sends its packets")
    cdef bytes content = packet.packet(0xffffff)
    if packet.qp != 1:
        raise ValueError("Ethernet has no QP 0")
    if at.port[0] == VB_WORLD_NONE:
        world._mads_lost += 1
        return 0
    _check(vb_sim_keep_whole(world._sim), "the door")
    return _leave(world, at, node, 0, packet, content)


cdef int _leave(World world, const vb_world_node *node, uint32_t number, uint32_t port,
                object packet, bytes content) except -1:
    """Make a packet of a node, and send it by a port that has a link."""
    cdef vb_world_partition *of = world._world.partition
    cdef uint32_t headers = VB_BTH + VB_DETH
    cdef uint32_t made = vb_world_pool_take(&of.pool)
    cdef bint ethernet = node.kind == VB_WORLD_HOST and node.host not in world._infiniband
    cdef vb_world_packet *at
    cdef vb_sim_wire_packet *wire = \
        NULL if made == VB_WORLD_NONE else vb_sim_wire_packet_for(world._sim, made)
    if wire is NULL:
        if made != VB_WORLD_NONE:
            vb_world_pool_give(&of.pool, made)
        return _check(-ENOMEM, "a management packet")
    memset(wire, 0, sizeof(vb_sim_wire_packet))
    wire.length, wire.payload = len(content), len(content) - headers
    wire.slid, wire.level = 0 if ethernet else packet.slid, packet.sl
    memcpy(wire.bytes, <const char *>content, len(content))
    if ethernet:
        vb_sim_gid_ipv4(packet.slid - 1, wire.sgid)
        vb_sim_gid_ipv4(packet.dlid - 1, wire.dgid)
        wire.hop_limit = 64
    at = vb_world_packet_at(of, made)
    memset(at, 0, sizeof(vb_world_packet))
    at.source, at.target = packet.slid, packet.dlid
    at.level_marks = packet.sl << 4 | (VB_WORLD_MANAGEMENT if packet.qp == 0 else 0)
    at.payload = len(content) - headers
    at.bytes = vb_sim_wire_bytes(VB_SIM_ETHERNET if ethernet else VB_SIM_INFINIBAND, headers,
                                 at.payload)
    at.flags, at.hops = VB_WORLD_HAS_BYTES, world._world.hop_limit
    memcpy(at.header, <const char *>content, headers)
    if world._world.traces:
        vb_world_telemetry_of(of, made).hops = 0
    if node.kind == VB_WORLD_HOST:
        vb_world_send(of, number, made)
    else:
        vb_world_switch_send(of, node.sw, node.port[port], made)
    return _check(of.error, "a management packet")


cdef int _refuse_without_vl15(World world, uint32_t number) except -1:
    cdef const vb_world_port *port = &world._world.port[number]
    if port.lanes is not NULL and port.lanes.count == port.lanes.data:
        raise ValueError(f"the link at port {port.number} of node {port.node} has lanes, and no "
                         "VL15 for management packets: give its switches management=8192 bytes")
    return 0


cdef int _serve_waiting(World world) except -1:
    """Give the packets that wait to the functions of their nodes, and send what these return."""
    from verbena.sim.doors import Mad, read
    cdef vb_world_partition *of = world._world.partition
    cdef const vb_world_packet *at
    cdef const vb_sim_wire_packet *wire
    cdef uint32_t first
    if world._serving:
        return 0
    while world._sim.door_first != VB_WORLD_NONE:
        first = world._sim.door_first
        at, wire = vb_world_packet_at(of, first), world._sim.wire_packet[first]
        node, port = at.keeper, at.input
        if world._world.node[at.keeper].kind == VB_WORLD_HOST:
            port = 1
            of.kept -= 1  # it counts as delivered already
        else:
            of.delivered += 1
        packet = read(wire.bytes[:wire.length], port, at.source, at.target, at.level_marks >> 4)
        world._sim.door_first = at.next
        vb_world_pool_give(&of.pool, first)
        function = world._served.get(node)
        if function is None:  # it was taken away at this instant
            continue
        world._serving = True
        try:
            out = function(world, node, packet)
        finally:
            world._serving = False
        for one in (out,) if isinstance(out, Mad) else out or ():
            _send_mad(world, node, one, True)
    return 0


cdef void _waiting_at_door(void *context) noexcept with gil:
    """Serve packets while a program waits in a blocking call. An exception is raised by the next
    run."""
    cdef World world = <World>context
    try:
        _serve_waiting(world)
        _tell_refused(world)
    except BaseException as error:
        world._raised = error
        world._world.error = VB_WORLD_END_HALT
