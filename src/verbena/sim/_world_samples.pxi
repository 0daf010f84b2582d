# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: what World.sample gives.


cdef class _Memory:
    """Memory of a world, as NumPy takes it: what is made of it keeps the world."""

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
    """What World.sample saw until now; each look at ``times`` and ``data`` is of that moment.

    ``queues``: an array of QUEUE: node and port that send, lane, and the row of links().
    ``interval`` in ps. Both arrays are the world's own memory, and cannot be written to.
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
        """No rows follow: stop() was called, or there is no more room."""
        return self._sampler().stopped

    @property
    def times(self):
        """uint64 [rows]: when, in ps."""
        cdef vb_world_sampler *sampler = self._sampler()
        return np.asarray(_Memory.of(self._world, sampler.at, (sampler.rows,), np.dtype("u8")))

    @property
    def data(self):
        """SAMPLE [rows, queues]: bytes that wait (of a port without lanes, with what is left of the
        packet that is being sent), bytes of credits (UNLIMITED where the flow control has none),
        bytes held that came in by this port and lane, paused by the other end, and whether the
        other end was told to stop.
        """
        cdef vb_world_sampler *sampler = self._sampler()
        shape = (sampler.rows, sampler.queues)
        return np.asarray(_Memory.of(self._world, sampler.sample, shape, SAMPLE))

    def stop(self):
        self._world._idle()
        vb_world_sampler_stop(self._sampler())
