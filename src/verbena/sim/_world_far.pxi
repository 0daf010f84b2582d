# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: pairs of range extenders, which World.connect adds to a long link. In the core
# an extender is a switch of two ports: port 0 is the near end's, port 1 the long line's.


cdef object _connect_far(World world, object a, object a_port, object b, object b_port, object rate,
                         object delay, object bit_error_rate, object extender):
    cdef vb_world_switch_config config
    cdef vb_world_switch *sw
    cdef uint32_t box[2]
    cdef int i
    world._idle()
    for node, port in ((a, a_port), (b, b_port)):
        world._port_of(node, port)
        if world._world.node[<uint32_t>node].port[<uint32_t>port] != VB_WORLD_NONE:
            raise ValueError(f"port {port} of node {node} is in use")
    _count("rate", rate, 1, 10**15)
    _count("delay", delay, 0, 10**12)
    _fill_extender(world, &config, a, b)
    config.extender = _count("extender", extender, world._blocks(), 2**32 - 1)
    for i in range(2):
        _check(vb_world_switch_create(&config, &sw), "an extender")
        _check(vb_world_add_switch(world._world, sw, &box[i]), "an extender")
    world._connect(a, a_port, box[0], 0, rate, 0, 0.0, 0)
    world._connect(box[0], 1, box[1], 1, rate, delay, bit_error_rate, 0)
    world._connect(box[1], 0, b, b_port, rate, 0, 0.0, 0)
    return box[0], box[1]


cdef int _fill_extender(World world, vb_world_switch_config *config, object a, object b) except -1:
    """Configure an extender as the switch at one end, with the largest buffers that credits can
    use."""
    cdef vb_world_switch *ends[2]
    cdef vb_world_switch *sw
    cdef uint32_t lane
    ends[0], ends[1] = world._world.node[<uint32_t>a].sw, world._world.node[<uint32_t>b].sw
    sw = ends[0] if ends[0] is not NULL else ends[1]
    if sw is NULL or a == b:
        raise ValueError("an extender is for a link of a switch to another node")
    if ends[1] is not NULL and ends[1].config.lanes != sw.config.lanes:
        raise ValueError(f"node {a} and node {b} have different numbers of lanes")
    memset(config, 0, sizeof(config[0]))
    config.ports = 2
    config.lanes = sw.config.lanes
    config.tables = sw.config.tables
    config.management = sw.config.management
    for lane in range(config.lanes):
        for i in range(2):
            if ends[i] is not NULL and \
                    ends[i].config.lane[lane].flow.flow_control != VB_WORLD_CREDITS:
                raise ValueError(f"lane {lane} has no credits, which an extender is for")
        config.lane[lane].flow.flow_control = VB_WORLD_CREDITS
        config.lane[lane].flow.room = VB_WORLD_CREDIT_WINDOW * VB_WORLD_CREDIT_BLOCK
    if not config.lanes:
        raise ValueError("a switch without lanes has no credits, which an extender is for")
    return 0
