# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: what groups.py asks the core about multicast groups, once for a group or a
# flow and never while the world runs.

cdef list _group_ways(const vb_world *world, uint32_t group, uint32_t node, uint32_t port):
    """Return (port, node, port, is a host) of each link by which a group's packet leaves a switch.

    The last three are the link's other end. The link by which the packet came, with ``port`` at
    this switch, may be among them.
    """
    cdef const vb_world_switch *sw = world.node[node].sw
    cdef uint32_t through = vb_world_switch_through(world, sw, sw.port[port])
    cdef uint32_t i
    found = [] if through == VB_WORLD_NONE else [_far_end(world, through)]
    for i in range(sw.group[group].count if group < sw.groups else 0):
        if sw.port[sw.group[group].port[i]] != VB_WORLD_NONE:
            found.append(_far_end(world, sw.port[sw.group[group].port[i]]))
    return found


cdef tuple _far_end(const vb_world *world, uint32_t port):
    cdef const vb_world_port *peer = &world.port[world.port[port].peer]
    return (world.port[port].number, peer.node, peer.number,
            world.node[peer.node].kind == VB_WORLD_HOST)


cdef list _host_nodes(const vb_world *world):
    """Return the node of each host."""
    cdef uint32_t i
    return [i for i in range(world.nodes) if world.node[i].sw is NULL]


cdef tuple _group_error(World world, object columns):
    """Return the first flow whose group cannot be reached, and why: -EHOSTUNREACH or -ELOOP.

    Without such a flow it is (number of flows, 0).
    """
    from verbena.sim.groups import Branches
    cdef const vb_world *of = world._world
    cdef uint32_t at
    branches = Branches(lambda group, node, port: _group_ways(of, group, node, port))
    source, target, nodes = columns[0], columns[1], _host_nodes(of)
    chosen = np.flatnonzero(columns[9])
    _, first = np.unique(source[chosen] << 32 | target[chosen], return_index=True)
    for flow in chosen[np.sort(first)].tolist():
        at = of.node[<uint32_t>nodes[source[flow]]].port[0]
        reached = branches.hosts(int(target[flow]), nodes[source[flow]],
                                 None if at == VB_WORLD_NONE else _far_end(of, at))
        if not reached:
            return flow, -ELOOP if reached is None else -EHOSTUNREACH
    return len(source), 0
