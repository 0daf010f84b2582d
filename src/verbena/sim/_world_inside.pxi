# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: gives hosts an inside (sim/inside.h), and copies what it has counted.
# inside.py has checked the settings and computed the parameters.

SLICE_ROW = np.dtype([("at", "u8"), ("end", "u8"), ("flow", "u4"), ("bytes", "u4"), ("row", "u1"),
                      ("what", "u1")], align=True)


cdef object _inside_host(World world, object host):
    """Return the number of a host that is given by it, or by its name in a World: "h0"."""
    cdef uint32_t hosts = world._world.hosts
    if not isinstance(host, str):
        return _number("host", host, hosts)
    number = int(host[1:]) if host[:1] == "h" and host[1:].isdecimal() else hosts
    if number >= hosts:
        there = f"they are h0 to h{hosts - 1}" if hosts > 1 else "there is only h0" if hosts else \
            "there is none"
        raise ValueError(f"there is no host {_shown(host)}: {there}")
    return number


cdef object _set_inside(World world, object host, dict keywords):
    from verbena.sim import inside
    from verbena.sim.world_settings import checked
    cdef vb_inside_config config
    cdef int error
    number = _inside_host(world, host)
    given = checked(inside.from_keywords(keywords), inside.InsideSettings)
    _, nic = world._adapters.get(number, (world._framing, world._nic))
    if old := [name for name in ("doorbell", "bus_rate", "receive_latency") if getattr(nic, name)]:
        raise ValueError(f"host {_shown(host)} has an inside and {', '.join(old)}: the inside "
                         "computes that, so leave it out")
    memset(&config, 0, sizeof(config))
    _fill_inside(&config, inside.parameters(given))
    error = vb_sim_set_inside(world._sim, number, &config)
    if error == -EBUSY:
        raise ValueError(f"host {_shown(host)} has an inside, a flow, a group or a program already:"
                         " give it an inside once, and before those")
    _check(error, "the inside of a host")
    world._insides[number] = given, {}
    return inside_of(world, number)


def inside_of(World world, number):
    """Return the Inside of a host, or None if ``World.inside`` has not given it one.

    It is made anew each time: one that the world kept would keep the world.
    """
    from functools import partial
    from verbena.sim import inside
    if number not in world._insides:
        return None
    given, own = world._insides[number]
    return inside.Inside(
        number, given, own, partial(_inside_raw, world, number),
        partial(_inside_slices, world, number), partial(_inside_computes, world, number))


cdef int _fill_inside(vb_inside_config *to, dict given) except -1:
    to.byte_time, to.round_trip = given["byte_time"], given["round_trip"]
    to.memory = given["memory"]
    to.cycle, to.iommu_miss = given["cycle"], given["iommu_miss"]
    to.interrupt_time, to.interrupt_packets = given["interrupt_time"], given["interrupt_packets"]
    to.mps, to.mrrs, to.tags, to.cores = given["mps"], given["mrrs"], given["tags"], given["cores"]
    for i, cost in enumerate(given["cost"]):
        to.cost[i] = cost
    to.inline_most, to.cqe, to.batch = given["inline_most"], given["cqe"], given["batch"]
    to.iommu_entries, to.iommu_page = given["iommu_entries"], given["iommu_page"]
    to.iommu_walks = given["iommu_walks"]
    to.mtt_entries, to.mtt_page = given["mtt_entries"], given["mtt_page"]
    to.buffer, to.slices = given["buffer"], given["slices"]
    to.blueflame, to.interrupts = given["blueflame"], given["interrupts"]
    return 0


cdef dict _inside_link(const vb_inside_link *link):
    return {"bytes": link.bytes, "busy": link.busy,
            "tlp": [(link.tlp[i].count, link.tlp[i].bytes) for i in range(VB_INSIDE_TLPS)]}


def _inside_raw(World world, uint32_t host):
    """Return the present time in ps, and the counters of a host's inside."""
    world._idle()
    cdef const vb_inside *of = vb_sim_inside(world._sim, host)
    cdef uint32_t i
    cdef uint64_t now = world._world.now
    raw = {
        "up": _inside_link(&of.up),
        "down": _inside_link(&of.down),
        "cost": [of.counters.cost[i] for i in range(VB_INSIDE_COSTS)],
        "core": [(of.core[i].busy, of.core[i].free_at, vb_sim_inside_spun(of, i, now))
                 for i in range(of.config.cores)],
        "counters": {
            "requests": of.counters.requests, "doorbells": of.counters.doorbells,
            "blueflames": of.counters.blueflames, "inlined": of.counters.inlined,
            "fetched": of.counters.fetched, "placed": of.counters.placed,
            "completions": of.counters.completions, "interrupts": of.counters.interrupts,
            "merged": of.counters.merged,
        },
        "headers": (of.counters.headers_fetched, of.counters.headers_placed),
        "iotlb": (of.iotlb.hits, of.iotlb.misses),
        "mtt": (of.mtt.hits, of.mtt.misses),
    }
    return now, raw


def _inside_computes(World world, uint32_t host, uint32_t core, uint8_t what, uint64_t took):
    """Let a core of a host's inside work for ``took`` ps. Returns the ps from now to the end."""
    world._idle()
    return vb_sim_inside_computes(world._sim, host, core, what, took)


def _inside_slices(World world, uint32_t host):
    """Return SLICE_ROW [slices] of a host's inside."""
    world._idle()
    cdef const vb_inside *of = vb_sim_inside(world._sim, host)
    cdef uint32_t i
    made = np.zeros(of.sliced, SLICE_ROW)
    for i in range(of.sliced):
        made[i] = (of.slice[i].at, of.slice[i].end, of.slice[i].flow, of.slice[i].bytes,
                   of.slice[i].row, of.slice[i].what)
    return made
