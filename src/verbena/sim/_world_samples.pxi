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
