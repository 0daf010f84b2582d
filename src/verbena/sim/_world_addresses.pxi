# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: LIDs, and the forwarding tables of switches. forwarding.py makes the tables,
# and addresses.py knows who has which LID; the World owns the arrays that the core reads.

cdef extern from *:
    """
    static void set_blocks(struct vb_world *world, const void *blocks)
    {
        world->blocks = blocks;
    }
    """
    void set_blocks(vb_world *world, const void *blocks)

cdef enum:
    LINEAR_BLOCKS = 768  # of 64 unicast LIDs
    MULTICAST_BLOCKS = 512  # of 32 multicast LIDs
    MULTICAST_PORTS = 16  # of a mask
    MOST_LINEAR_PORTS = 254
    NO_LINEAR_PORT = 0xff


# ---- addresses ----

cdef int _set_lids(World world, object nodes, object lids, object lmc) except -1:
    cdef vb_world_node *at
    cdef const uint32_t[::1] hosts
    world._idle()
    _count("lmc", lmc, 0, 7)
    if world._has_detours:
        raise ValueError("LIDs are assigned before set_detours, which counts them")
    given = [np.atleast_1d(np.asarray(part)) for part in (nodes, lids)]
    if any(part.dtype.kind not in "iu" or part.ndim != 1 for part in given) or \
            len(given[0]) != len(given[1]):
        raise ValueError("nodes and lids are to be whole numbers, or lists of one length")
    wanted = []
    moved = False
    for node, lid in zip(given[0].tolist(), given[1].tolist(), strict=True):
        at = _lid_node(world, node, lmc)
        host = at.host if at.kind == VB_WORLD_HOST else None
        moved = moved or (host is not None and (lmc != 0 or lid != at.host + 1))
        wanted.append((node, host, lid, at.address, at.lmc))
    _use_lids(world).assign(wanted, int(lmc))
    if moved:
        hosts = world._lids.hosts
        world._world.lid_host = &hosts[0]
    for node, _, lid, _, _ in wanted:
        at = &world._world.node[<uint32_t>node]
        at.address, at.lmc = lid, lmc
    world._addresses = None
    return 0


cdef int _take_lids(World world, object given) except -1:
    cdef vb_world_node *at
    cdef const uint32_t[::1] hosts
    world._idle()
    if world._has_detours:
        raise ValueError("LIDs are taken away before set_detours, which counts them")
    nodes = _listed("nodes", given, "nodes")
    for node in nodes:
        _lid_node(world, node, 0)
    lids = _use_lids(world)
    lids.take_away(nodes)
    hosts = lids.hosts
    world._world.lid_host = &hosts[0]
    for node in nodes:
        at = &world._world.node[<uint32_t>node]
        at.address, at.lmc = 0, 0
    world._addresses = None
    return 0


cdef vb_world_node *_lid_node(World world, object node, object lmc) except NULL:
    """Return a node that may have LIDs. Raises ValueError."""
    cdef vb_world_node *at
    _number("node", node, world._world.nodes)
    at = &world._world.node[<uint32_t>node]
    if not world._infiniband:
        raise ValueError("the world has no InfiniBand host, and only InfiniBand has LIDs")
    if at.kind == VB_WORLD_HOST and at.host not in world._infiniband:
        raise ValueError(f"node {node} is a host of Ethernet, which has no LID")
    if at.kind == VB_WORLD_SWITCH and lmc:
        raise ValueError(f"node {node} is a switch, whose port 0 has one LID: lmc is 0")
    if at.kind == VB_WORLD_SWITCH and at.sw.config.extender:
        raise ValueError(f"node {node} is a range extender: it has no LID")
    return at


cdef int _refuse_lid(World world) except -1:
    """Raise ValueError if one more InfiniBand host would have no LID."""
    last = world._world.hosts + 1
    if world._lids is None and last > VB_SIM_LID_MOST:
        raise ValueError(f"host {last - 1} of an InfiniBand subnet would need LID {last}, and "
                         f"unicast LIDs end at {VB_SIM_LID_MOST}: fewer hosts, or "
                         "framing=\"ethernet\"")
    if world._lids is not None:
        world._lids.free(last)
    return 0


cdef object _address_of(World world, object node):
    from verbena.sim.addresses import address_of
    cdef const vb_world_node *at
    _number("node", node, world._world.nodes)
    at = &world._world.node[<uint32_t>node]
    host = at.host if at.kind == VB_WORLD_HOST else None
    return address_of(host, node, at.address, at.lmc, host in world._infiniband)


cdef object _use_lids(World world):
    """Return the Lids of the world, from now on with the default ones."""
    from verbena.sim.addresses import Lids, default_lids
    if world._lids is None:
        nodes = _host_nodes(world._world)
        world._lids = Lids()
        default_lids(nodes.__getitem__, len(nodes), world._lids)
    return world._lids


cdef int _add_default_lid(World world, uint32_t node) except -1:
    """Give a new host its LID or, on Ethernet, its number + 1, which then is nobody's LID."""
    cdef vb_world_node *at = &world._world.node[node]
    cdef const uint32_t[::1] hosts
    if world._lids is not None and at.address < 2**16:
        wanted = at.address
        if at.host in world._infiniband:
            at.address = world._lids.free(wanted)
        world._lids.assign([(node, at.host, at.address, 0, 0)], 0)
        if at.address != wanted:
            hosts = world._lids.hosts
            world._world.lid_host = &hosts[0]
    world._addresses = None
    return 0


cdef tuple _host_addresses(World world):
    """Return the first address and the LMC of each host."""
    cdef uint32_t i
    if world._addresses is None:
        hosts = [i for i in range(world._world.nodes) if world._world.node[i].sw is NULL]
        world._addresses = (
            np.array([world._world.node[<uint32_t>i].address for i in hosts], np.int64),
            np.array([world._world.node[<uint32_t>i].lmc for i in hosts], np.uint8))
    return world._addresses


cdef uint32_t _flow_address(World world, list nodes, uint64_t host, uint64_t path):
    """Return the address of a host for flows with these path bits, as vb_sim_address does."""
    cdef const vb_world_node *at = &world._world.node[<uint32_t>nodes[host]]
    return at.address | <uint32_t>(path & ((1 << at.lmc) - 1))


# ---- tables by address ----

cdef object _table_of(World world, uint32_t node):
    from verbena.sim.forwarding import Blocks, Table
    if world._shared is None:
        world._shared = Blocks()
    if node not in world._tables:
        world._tables[node] = Table(world._shared)
    return world._tables[node]


cdef int _put_table(World world, vb_world_switch *sw, object table) except -1:
    """Give the core a table that was changed."""
    cdef const uint16_t[:, ::1] blocks = world._shared.entries
    cdef const uint32_t[::1] numbers = table.numbers, starts = table.starts
    cdef const uint16_t[::1] members = table.members
    set_blocks(world._world, &blocks[0, 0])
    sw.table.block = &numbers[0] if len(numbers) else NULL
    sw.table.targets, sw.table.sets = table.targets, len(starts) - 1
    sw.table.set = &starts[0]
    sw.table.member = &members[0] if len(members) else NULL
    return 0


cdef int _set_routes(World world, object switch, vb_world_switch *sw, object ports,
                     object path) except -1:
    from verbena.sim.forwarding import NO_PORT, PORT_SET, port_entries, spread
    if sw.config.extender:
        raise ValueError(f"node {switch} is a range extender: it has no routes")
    rows = _port_rows(world, switch, sw.config.ports, ports)
    if not rows.size:
        return 0
    addresses, lmcs = _host_addresses(world)
    table = _table_of(world, switch)
    before = table.entries()
    if path is not None:
        _count("path", path, 0, 127)
        if rows.shape[1] > 1 and (rows[:, 1:] >= 0).any():
            raise ValueError(f"routes of switch {switch}: with a path each host has one port")
        entries, has = port_entries(rows)[0], path >> lmcs == 0
        entries, addresses, lmcs = entries[has], addresses[has] + path, np.zeros_like(lmcs[has])
    else:
        entries, table.starts, table.members = port_entries(rows)
        before = np.where(before >= PORT_SET, NO_PORT, before).astype(np.uint16)
    table.set(spread(entries, addresses, lmcs, before))
    return _put_table(world, sw, table)


cdef object _port_rows(World world, object switch, uint32_t most, object ports):
    """Return int32 [hosts, ways]. Raises ValueError."""
    table = np.asarray(ports)
    if table.dtype.kind not in "iu":
        raise ValueError(f"routes of switch {switch} are to be whole numbers, and are "
                         f"{_shown(ports)}")
    if table.ndim not in (1, 2) or len(table) != world._world.hosts:
        raise ValueError(f"routes of switch {switch} are to be {world._world.hosts} rows, "
                         f"one for each host, and have the shape {table.shape}")
    if not table.size:
        return table
    if table.max() >= most:
        raise ValueError(f"routes of switch {switch}: it has no port {table.max()}")
    table = np.maximum(table, -1) if table.dtype.kind == "i" else table
    return np.ascontiguousarray(table, dtype=np.int32).reshape(len(table), -1)


cdef uint32_t _linear_entry(World world, object switch, uint32_t lid):
    """Return the first port of a switch for a LID, or NO_PORT."""
    table = world._tables.get(int(switch))
    if table is None or lid >= table.targets:
        return 0xffff
    return int(table.first_ports(table.entries()[lid:lid + 1])[0])


# ---- tables as a subnet manager sees them ----

cdef bytes _linear_block(World world, object switch, object block):
    """Return 64 ports, or 255 for none, as a LinearForwardingTable has them."""
    from verbena.sim.forwarding import BLOCK, NO_PORT
    cdef vb_world_switch *sw = _linear_switch(world, switch, block)
    table = _table_of(world, switch)
    ports = np.full(BLOCK, NO_PORT, np.uint16)
    part = table.entries()[block * BLOCK:(block + 1) * BLOCK]
    ports[:len(part)] = table.first_ports(part)
    return np.minimum(ports, NO_LINEAR_PORT).astype(np.uint8).tobytes()


cdef vb_world_switch *_linear_switch(World world, object switch, object block) except NULL:
    cdef vb_world_switch *sw = world._switch_of(switch)
    _count("block", block, 0, LINEAR_BLOCKS - 1)
    if sw.config.extender:
        raise ValueError(f"node {switch} is a range extender: it has no table")
    if sw.config.ports > MOST_LINEAR_PORTS + 1:
        raise ValueError(f"switch {switch} has {sw.config.ports} ports, and a switch of InfiniBand "
                         f"has at most {MOST_LINEAR_PORTS} beside port 0")
    return sw


cdef int _set_linear_block(World world, object switch, object block, object ports) except -1:
    from verbena.sim.forwarding import BLOCK, NO_PORT
    cdef vb_world_switch *sw = _linear_switch(world, switch, block)
    given = np.frombuffer(ports, np.uint8) if isinstance(ports, (bytes, bytearray)) else \
        np.asarray(ports)
    if given.shape != (BLOCK,) or given.dtype.kind not in "iu":
        raise ValueError(f"ports is {_shown(ports)}, and not {BLOCK} ports, 255 for none")
    wrong = (given < 0) | (given >= sw.config.ports) & (given != NO_LINEAR_PORT)
    if wrong.any():
        raise ValueError(f"ports: switch {switch} has no port {given[wrong][0]}")
    entries = given.astype(np.uint16)
    entries[given == NO_LINEAR_PORT] = NO_PORT
    if block == 0:
        entries[0] = NO_PORT  # LID 0 is nobody's
    table = _table_of(world, switch)
    table.set_block(int(block), entries)
    return _put_table(world, sw, table)


cdef int _set_lid_ports(World world, object switch, object lids, object ports) except -1:
    """Set entries for single LIDs; -1 for none."""
    from verbena.sim.addresses import LID_MOST
    from verbena.sim.forwarding import NO_PORT
    cdef vb_world_switch *sw = world._switch_of(switch)
    lids, ports = np.broadcast_arrays(np.atleast_1d(lids), np.atleast_1d(ports))
    if lids.dtype.kind not in "iu" or ports.dtype.kind not in "iu" or lids.ndim != 1:
        raise ValueError("lids and ports are to be whole numbers, of one length")
    if lids.size and (lids.min() < 1 or lids.max() > LID_MOST):
        raise ValueError(f"lids are to be unicast LIDs, 1 to {LID_MOST}")
    if ports.size and ports.max() >= sw.config.ports:
        raise ValueError(f"switch {switch} has no port {ports.max()}")
    table = _table_of(world, switch)
    before = table.entries()
    made = np.full(max(len(before), int(lids.max(initial=0)) + 1), NO_PORT, np.uint16)
    made[:len(before)] = before
    made[lids] = np.where(ports < 0, NO_PORT, ports.astype(np.int64))
    table.set(made)
    return _put_table(world, sw, table)


cdef list _multicast_block(World world, object switch, object block, object position):
    """Return the masks of 16 ports of 32 multicast LIDs."""
    cdef const vb_world_switch *sw = _multicast_switch(world, switch, block, position)
    cdef uint32_t group, i, first = <uint32_t>block * 32
    masks = [0] * 32
    for group in range(first, min(first + 32, sw.groups)):
        for i in range(sw.group[group].count):
            if sw.group[group].port[i] // MULTICAST_PORTS == position:
                masks[group - first] |= 1 << sw.group[group].port[i] % MULTICAST_PORTS
    return masks


cdef vb_world_switch *_multicast_switch(World world, object switch, object block,
                                        object position) except NULL:
    _linear_switch(world, switch, 0)
    _count("block", block, 0, MULTICAST_BLOCKS - 1)
    _count("position", position, 0, 15)
    return world._switch_of(switch)


cdef int _set_multicast_block(World world, object switch, object block, object position,
                              object masks) except -1:
    cdef vb_world_switch *sw = _multicast_switch(world, switch, block, position)
    cdef uint32_t group, i
    rows = [int(_count("a mask", mask, 0, 0xffff)) for mask in _listed("masks", masks, "masks")]
    if len(rows) != 32:
        raise ValueError(f"masks are {len(rows)}, and a block has 32 multicast LIDs")
    most = max(0, min(MULTICAST_PORTS, sw.config.ports - position * MULTICAST_PORTS))
    for i, mask in enumerate(rows):
        if mask >> most:
            last = position * MULTICAST_PORTS + int(mask).bit_length() - 1
            raise ValueError(f"mask {i}: switch {switch} has no port {last}")
        if mask and block * 32 + i == 0x3fff:
            raise ValueError("LID 0xffff is no multicast LID")
    for i, mask in enumerate(rows):
        group = <uint32_t>block * 32 + i
        old = [sw.group[group].port[k] for k in range(sw.group[group].count)] \
            if group < sw.groups else []
        new = [port for port in old if port // MULTICAST_PORTS != position]
        new += [position * MULTICAST_PORTS + bit for bit in range(16) if mask >> bit & 1]
        if sorted(new) != sorted(old):
            world._set_group(switch, group, sorted(new))
    return 0


cdef bint _is_infiniband_link(World world, uint32_t node) except -1:
    """Return whether the links of a node are InfiniBand's: those of all connected nodes are."""
    cdef const vb_world *of = world._world
    cdef uint32_t i, at
    if not world._infiniband or len(world._infiniband) == of.hosts:
        return bool(world._infiniband)
    seen, queue = {node}, [node]
    for at in queue:
        if of.node[at].kind == VB_WORLD_HOST:
            return of.node[at].host in world._infiniband
        for i in range(of.node[at].ports):
            if of.node[at].port[i] != VB_WORLD_NONE:
                next_node = _far_end(of, of.node[at].port[i])[1]
                if next_node not in seen:
                    seen.add(next_node)
                    queue.append(next_node)
    return False
