# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: what a port of InfiniBand lets through, and the tables that a subnet manager
# sets for it. sim.partitions decides which P_Keys pass.

cdef extern from "event/gate.h" nogil:
    struct vb_world_gate:
        c_bool *opens
        const uint8_t **keys
        uint64_t *refused
        uint64_t *shut
        uint64_t interval
        vb_world_packet last
        c_bool wakes
        c_bool is_woken
    int vb_world_gate_set(vb_world *world, uint32_t port, const vb_world_gate *to)

cdef extern from "event/lanes.h" nogil:
    int vb_world_lanes_arbitrate(vb_world_lanes *lanes, const vb_world_arbiter_tables *tables)


cdef int _link_of(World world, object node, object port) except -1:
    """Return the number of a port that has a link. Raises ValueError."""
    world._port_of(node, port)
    cdef uint32_t number = world._world.node[<uint32_t>node].port[<uint32_t>port]
    if number == VB_WORLD_NONE:
        raise ValueError(f"nothing is plugged into port {port} of node {node}")
    return number


cdef int _guard(World world, object node, object port, object takes, object sends, object keys_in,
                object keys_out, object interval, object wakes) except -1:
    cdef vb_world_gate to
    memset(&to, 0, sizeof(to))
    number = _link_of(world, node, port)
    to.opens[0], to.opens[1] = bool(takes), bool(sends)
    to.interval = _count("interval", interval, 0, 2**62)
    to.wakes = bool(wakes)
    for way, keys in enumerate((keys_in, keys_out)):
        if keys is None:
            continue
        if not isinstance(keys, bytes) or len(keys) != 8192:
            raise ValueError("P_Keys that pass are 8192 bytes, with a bit for each")
        to.keys[way] = <const uint8_t *><const char *>keys
    _check(vb_sim_keep_whole(world._sim), "a gate")
    _check(vb_world_gate_set(world._world, number, &to), "a gate")
    world._gates[number] = keys_in, keys_out
    return 0


cdef tuple _kept_back(World world, object node, object port):
    cdef const vb_world_gate *gate = world._world.port[_link_of(world, node, port)].gate
    if gate is NULL:
        return 0, 0, 0, 0
    return gate.refused[0], gate.refused[1], gate.shut[0], gate.shut[1]


cdef int _tell_refused(World world) except -1:
    """Tell of the packet for which a gate has halted the run: it was refused, or came to an ARMED
    port."""
    from verbena.sim.doors import Mad
    cdef uint32_t number = world._world.refused_at
    cdef const vb_world_port *port
    cdef const vb_world_packet *at
    if number == VB_WORLD_NONE:
        return 0
    world._world.refused_at = VB_WORLD_NONE
    port = &world._world.port[number]
    if port.gate.is_woken:
        port.gate.is_woken = False
        if world._on_refused is not None:
            world._on_refused(port.node, port.number, None)
        return 0
    at = &port.gate.last
    key, qp = at.header[2] << 8 | at.header[3], int.from_bytes(at.header[5:8], "big")
    datagram = (at.header[0] >> 5) == 3
    source = int.from_bytes(at.header[17:20], "big") if datagram else 0
    if world._on_refused is not None:
        world._on_refused(port.node, port.number, Mad(
            b"", port.number, at.target, at.source, qp, source, at.level_marks >> 4, key))
    return 0


cdef int _arbitrate(World world, object node, object port, object high, object low,
                    object limit) except -1:
    cdef vb_world_arbiter_tables tables
    cdef vb_world_lanes *lanes = world._world.port[_link_of(world, node, port)].lanes
    memset(&tables, 0, sizeof(tables))
    if lanes is NULL:
        raise ValueError(f"port {port} of node {node} has no lanes")
    for name, table in (("high", high), ("low", low)):
        if len(table) > VB_WORLD_ARBITER_ENTRIES:
            raise ValueError(f"{name} has {len(table)} entries, and at most "
                             f"{VB_WORLD_ARBITER_ENTRIES} are possible")
        for lane, weight in table:
            _number("lane", lane, lanes.data)
            _count("weight", weight, 0, 255)
    tables.high_count = _fill_table(tables.high, list(high))
    tables.low_count = _fill_table(tables.low, list(low))
    tables.high_limit = _count("limit", limit, 0, 255)
    return _check(vb_world_lanes_arbitrate(lanes, &tables), "an arbitration")


cdef int _set_host_lanes(World world, object node, object lanes) except -1:
    cdef vb_world_lanes *of = world._world.port[_link_of(world, node, 0)].lanes
    cdef uint32_t level
    if world._world.node[<uint32_t>node].kind != VB_WORLD_HOST or of is NULL:
        raise ValueError(f"node {node} is no host whose port has lanes")
    row = _listed("lanes", lanes, "16 lanes")
    if len(row) != 16:
        raise ValueError(f"a host has a lane for each of 16 levels, and not {len(row)}")
    for lane in row:
        _number("lane", lane, of.data)
    for level in range(16):
        of.lane_of[level] = row[level]
    return 0
