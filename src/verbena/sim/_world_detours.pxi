# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: World.set_detours, paths through a third group of switches.

cdef extern from "event/detour.h" nogil:
    struct vb_world_detour_config:
        bint adaptive
        bint by_packet
        uint32_t threshold
        uint64_t gap
    int vb_world_set_detours(vb_world *world, const vb_world_detour_config *config,
                             const uint16_t *group, uint32_t count)


cdef int _set_detours(vb_world *world, object group, object adaptive, object per,
                      object threshold, object gap) except -1:
    cdef vb_world_detour_config config
    cdef const uint16_t[::1] row
    given = np.asarray(group)
    if given.dtype.kind not in "iu" or given.ndim != 1 or not given.size:
        raise ValueError("groups are to be a whole number for each node")
    if given.min() < 0 or given.max() > 65534:
        raise ValueError("numbers of groups are 0 to 65534")
    config.adaptive = adaptive
    config.by_packet = _choice({"flow": 0, "packet": 1}, "per", per)
    config.threshold = _count("threshold", threshold, 0, 2**32 - 1)
    config.gap = _count("gap", gap, 0, 2**63)
    row = np.ascontiguousarray(given, dtype=np.uint16)
    error = vb_world_set_detours(world, &config, &row[0], len(row))
    if error == -EBUSY:
        raise ValueError("there are detours already")
    if error == -EINVAL:
        raise ValueError(f"{len(row)} nodes have groups, of {world.nodes}, or a group has no host")
    return _check(error, "detours")
