# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: Samples, which World.sample returns.


cdef class _Memory:
    """Memory of a world as NumPy reads it. Arrays made from it keep the world alive."""

    cdef World _world
    cdef readonly dict __array_interface__

    @staticmethod
    cdef _Memory of(World world, const void *start, tuple shape, object dtype):
        cdef _Memory made = _Memory.__new__(_Memory)
        made._world = world
        made.__array_interface__ = {
            "version": 3, "data": (<size_t>start, True), "shape": shape,
            "typestr": dtype.str, "descr": dtype.descr,
        }
        return made


cdef class Samples:
    """What ``World.sample`` has recorded until now; ``times`` and ``data`` are of the moment of the
    call.

    ``queues``: QUEUE [queues] with the node and port that send, the lane, and the row of
    ``links()``.
    ``interval``: ps. Both arrays are memory of the world, and read-only.
    """

    cdef World _world
    cdef uint32_t _number
    cdef readonly object queues

    cdef vb_world_sampler *_sampler(self):
        return self._world._world.sampler[self._number]

    def __len__(self):
        return self._sampler().rows

    @property
    def interval(self):
        return self._sampler().interval

    @property
    def stopped(self):
        """No rows follow: ``stop`` was called, or the limit is reached."""
        return self._sampler().stopped

    @property
    def times(self):
        """The times of the rows in ps, uint64 [rows]."""
        cdef vb_world_sampler *sampler = self._sampler()
        return np.asarray(_Memory.of(self._world, sampler.at, (sampler.rows,), np.dtype("u8")))

    @property
    def data(self):
        """SAMPLE [rows, queues].

        "bytes": what waits (for a port without lanes, including the rest of the packet that is
        being sent); "credits": bytes (UNLIMITED if the flow control has none); "held": bytes that
        arrived by this port and lane and are still here; "paused": whether the other end has paused
        this lane; "stopped": whether the other end was paused.
        """
        cdef vb_world_sampler *sampler = self._sampler()
        shape = (sampler.rows, sampler.queues)
        return np.asarray(_Memory.of(self._world, sampler.sample, shape, SAMPLE))

    def stop(self):
        self._world._idle()
        vb_world_sampler_stop(self._sampler())


cdef object _sampled_queues(World world, object queues):
    """Return QUEUE [queues]."""
    cdef uint32_t i
    found = []
    if queues is None:
        queues = [(world._world.port[i].node, world._world.port[i].number)
                  for i in range(world._world.ports)]
    for place in _listed("queues", queues, "(node, port) or (node, port, lane)"):
        if not isinstance(place, (tuple, list)) or not 2 <= len(place) <= 3:
            raise ValueError(f"a queue is {_shown(place)}, and not (node, port) or "
                             "(node, port, lane)")
        node, port, *lanes = place
        world._port_of(node, port)
        i = world._world.node[<uint32_t>node].port[<uint32_t>port]
        if i == VB_WORLD_NONE:
            raise ValueError(f"nothing is plugged into port {port} of node {node}")
        count = world._world.port[i].lanes.count if world._world.port[i].lanes else 1
        for lane in lanes or range(count):
            _number("lane", lane, count, f" of port {port} of node {node}")
            found.append((node, port, lane, i))
    if not found:
        raise ValueError("there are no queues to sample")
    return np.array(found, dtype=QUEUE)
