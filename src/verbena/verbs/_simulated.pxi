# SPDX-License-Identifier: Apache-2.0
# Hosts of a simulated fabric (verbena.sim) as devices, and waits on them. There only events of the
# fabric let time pass: timeouts are in virtual seconds, and no thread sleeps.

cdef extern from "<errno.h>" nogil:
    int EDEADLK

cdef enum:
    PS_IN_S = 1000000000000
    LONGEST_S = 10000000  # the longest timeout that fits 64 bits in ps


def attach(Library library, size_t attachment, str name, owner):
    """Return a Device called ``name`` that is the adapter of a host of a simulated fabric.

    ``attachment`` is the address of the host's struct vb_sim_attachment; ``owner`` keeps that
    alive, and its ``add_fd`` and ``remove_fd`` are called for descriptors that programs may wait
    for (``add_fd`` gets the CompChannel, too, if the descriptor is one's). Raises VerbsError:
    EOPNOTSUPP when the library is not Verbena's, EPROTO when it is of another version.
    """
    cdef DeviceList entries = DeviceList.__new__(DeviceList)
    cdef Device made
    cdef ibv_device *device = NULL
    if library.call.attach is NULL or library.call.keep_events is NULL:
        raise failed("attach", EOPNOTSUPP, why=f"{library.path} is not this Verbena's library")
    entries.library = library
    entries.owner = owner
    cdef int code = library.call.attach(<vb_sim_attachment *>attachment, name.encode(), &device)
    if code:
        raise failed("attach", code)
    entries.attached = device
    return _new_device(entries, device)


def attached(owners):
    """Return the open contexts of devices that ``attach`` made for one of ``owners``."""
    mine = list(owners)
    return [one for one in _contexts if (<Context>one).device.list.owner in mine]


cdef uint64_t _world_deadline(Context context, timeout) except? 0:
    """``timeout`` in virtual seconds (None: never) as a time of the world in ps; 0: at once."""
    if timeout is None:
        return UINT64_MAX
    cdef double seconds = _seconds(timeout, "timeout")
    if not seconds < LONGEST_S:
        return UINT64_MAX
    if seconds <= 0:
        return 0
    return context.library.call.world_time(context.context) + <uint64_t>(seconds * PS_IN_S)


cdef bint _step(Context context, uint64_t deadline) except -1:
    """Run the next event of the context's world. Returns False when the time is over.

    Deadline 0 is a poll: it counts as an unsuccessful one, many of which let time pass.
    """
    cdef int moved = 0
    if deadline == 0 or deadline > context.library.call.world_time(context.context):
        moved = context.library.call.step(context.context, deadline)
    if moved < 0:
        raise failed("wait", -moved, why=_NOTHING_LEFT if moved == -EDEADLK else "")
    PyErr_CheckSignals()
    return moved


cdef str _NOTHING_LEFT = (
    "nothing is left to happen in the simulated fabric, so what is waited for never comes; where a"
    " program of another host has to act first, await it (verbena.aio) instead of blocking"
)


cdef Py_ssize_t _wait_simulated(CQ cq, Py_ssize_t n, Py_ssize_t count, ibv_wc *wcs,
                                uint64_t deadline) except -1:
    cdef int found
    while True:
        found = cq.cq.context.ops.poll_cq(cq.cq, <int>(n - count), wcs + count)
        if found < 0:
            if count:
                return count  # what was taken is not lost: the next call raises the error
            raise cq.context._failed("poll_cq", _poll_error(found))
        if found:
            _complete_all(cq, wcs + count, found)
        count += found
        if count >= n or (found == 0 and (deadline == 0 or not _step(cq.context, deadline))):
            return count  # at deadline 0 the poll was all
