# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: what groups.py asks the core about multicast groups and sets there, when flows
# to groups are added, and when programs join groups and leave them.

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


cdef class _GroupTables:
    """What ProgramGroups reads and sets of a world."""

    cdef World _world

    @property
    def size(self):
        """The number of nodes and of ports with a link, which only grow."""
        return self._world._world.nodes, self._world._world.ports

    def links(self):
        """Return the links of each node, in the order of its ports."""
        cdef const vb_world *of = self._world._world
        cdef uint32_t node, i
        return [[_far_end(of, of.node[node].port[i]) for i in range(of.node[node].ports)
                 if of.node[node].port[i] != VB_WORLD_NONE] for node in range(of.nodes)]

    def nodes(self):
        """Return the node of each host."""
        return _host_nodes(self._world._world)

    def number(self, const uint8_t[::1] gid, uint32_t host):
        """Return the number of the group of this GID that a host can reach, or None."""
        number = vb_sim_program_group_number(self._world._sim, &gid[0], host)
        return None if number == 0xffff else number - VB_MAX_GROUPS

    def name(self, uint32_t number, const uint8_t[::1] gid, first):
        """Name a group by its GID and its first member, a host, or None without members."""
        cdef vb_sim *sim = self._world._sim
        memcpy(sim.program_group[number].gid, &gid[0], 16)
        sim.program_group[number].first = VB_WORLD_NONE if first is None else <uint32_t>first
        sim.program_groups = max(sim.program_groups, number + 1)
        if first is not None and len(self._world._attached[first][0]) > 1:
            sim.groups_are_split = True

    def set_ports(self, uint32_t number, node, ports):
        self._world._set_group(node, VB_MAX_GROUPS + number, ports)


cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()


cdef int _change_group(void *context, const uint8_t *gid, uint32_t host, c_bool joins) noexcept \
        with gil:
    """Let a host join a group or leave it. The core calls this while the world does not run.

    The core holds the lock of the adapter's groups, which a queue pair takes that the garbage
    collector destroys. So nothing is collected here.
    """
    cdef bint collects = PyGC_Disable()
    cdef int error = _changed_group(<World>context, gid, host, joins)
    if collects:
        PyGC_Enable()
    return error


cdef int _changed_group(World world, const uint8_t *gid, uint32_t host, c_bool joins) noexcept:
    from verbena.sim.groups import ProgramGroups, UnreachableError
    cdef _GroupTables tables = _GroupTables.__new__(_GroupTables)
    try:
        if world._programs is None:  # also when the garbage collector takes the world
            if not joins:
                return 0
            world._programs = ProgramGroups(VB_MAX_GROUPS)
        tables._world = world
        change = world._programs.join if joins else world._programs.leave
        change(tables, <bytes>gid[:16], host)
    except UnreachableError:
        return -EHOSTUNREACH
    except MemoryError:
        return -ENOMEM
    except KeyboardInterrupt:  # is raised again when the program goes on
        PyErr_SetInterrupt()
        return -ENOMEM
    return 0
