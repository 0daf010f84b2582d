# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: management packets, which functions of Python take for nodes. doors.py has the
# packets' form.

cdef extern from "sim/door.h" nogil:
    struct vb_sim_mad:
        uint32_t node
        uint16_t port
        uint16_t source
        uint16_t target
        uint8_t level
        c_bool management
        const uint8_t *bytes
        uint32_t length

    c_bool vb_sim_door_next(const vb_sim *sim, vb_sim_mad *mad)
    void vb_sim_door_taken(vb_sim *sim)
    int vb_sim_door_send(vb_sim *sim, const vb_sim_mad *mad)
    void vb_sim_on_door(vb_sim *sim, void (*waiting)(void *) noexcept, void *context)


cdef int _serve(World world, object node, object function) except -1:
    cdef vb_world_node *at
    world._idle()
    _number("node", node, world._world.nodes)
    at = &world._world.node[<uint32_t>node]
    if function is None:
        world._served.pop(int(node), None)
        at.is_served = 0
        return 0
    _called("function", function)
    if at.kind == VB_WORLD_HOST and at.host not in world._infiniband:
        raise ValueError(f"node {node} is a host of Ethernet, which has no management packets")
    _refuse_port_0(world, node, "is served")
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
    cdef vb_sim_mad mad
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
    _refuse_without_vl15(world, at.port[port])
    mad.node, mad.port = node, port
    mad.source, mad.target, mad.level = packet.slid, packet.dlid, packet.sl
    mad.management = packet.qp == 0
    mad.bytes, mad.length = <const uint8_t *>content, len(content)
    return _check(vb_sim_door_send(world._sim, &mad), "a management packet")


cdef int _refuse_without_vl15(World world, uint32_t number) except -1:
    cdef const vb_world_port *port = &world._world.port[number]
    if port.lanes is not NULL and port.lanes.count == port.lanes.data:
        raise ValueError(f"the link at port {port.number} of node {port.node} has lanes, and no "
                         "VL15 for management packets: give its switches management=8192 bytes")
    return 0


cdef int _serve_waiting(World world) except -1:
    """Give the packets that wait to the functions of their nodes, and send what these return."""
    from verbena.sim.doors import Mad, read
    cdef vb_sim_mad mad
    if world._serving:
        return 0
    while vb_sim_door_next(world._sim, &mad):
        node = mad.node
        port = 1 if world._world.node[mad.node].kind == VB_WORLD_HOST else mad.port
        packet = read(mad.bytes[:mad.length], port, mad.source, mad.target, mad.level)
        vb_sim_door_taken(world._sim)
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
    except BaseException as error:
        world._raised = error
        world._world.error = VB_WORLD_END_HALT
