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
        raise failed(
            "attach",
            EOPNOTSUPP,
            why=f"{library.path} is not this Verbena's library, which simulated hosts need: unset"
            " VERBENA_LIBRARY, and give no library=",
        )
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


cdef bint _wait_until(Context context, uint64_t time, uint64_t deadline) except -1:
    """Run the world until ``time`` in ps, which may be over. Returns False when ``deadline`` is
    over before; 0: it is."""
    cdef uint64_t until = time if time < deadline else deadline
    while until and _step(context, until):
        pass
    return context.library.call.world_time(context.context) >= time


cdef str _NOTHING_LEFT = (
    "nothing is left to happen in the simulated fabric, so what is waited for never comes; where a"
    " program of another host has to act first, await it (verbena.aio) instead of blocking"
)


cdef str _VAIN = (
    "millions of polls at one instant have found nothing, and nothing is left to happen in the"
    " simulated fabric: a peer has ended, or posts nothing until this program lets others run"
)

cdef enum:
    VAIN_LOOK = 100000      # polls between two looks at the clock
    VAIN_MOST = 20 * VAIN_LOOK  # within one moment; a loop that polls has its timers run before


cdef int _poll_in_vain(CQ cq) except -1:
    """Count a poll that found nothing.

    Raises VerbsError(EDEADLK) if no time passes between millions of them, and nothing is left to
    happen: a program would poll for ever.
    """
    cdef Context context = cq.context
    cdef uint64_t now
    cdef int moved
    cq.vain += 1
    if cq.vain % VAIN_LOOK:
        return 0
    now = context.library.call.world_time(context.context)
    if now != cq.vain_at:
        cq.vain, cq.vain_at = 0, now
    elif cq.vain >= VAIN_MOST:
        cq.vain = 0
        moved = context.library.call.step(context.context, UINT64_MAX)
        if moved < 0:
            raise failed("poll_cq", -moved, why=_VAIN if moved == -EDEADLK else "")
    return 0


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
        if found == 0 and deadline == 0:
            _poll_in_vain(cq)
        if count >= n or (found == 0 and (deadline == 0 or not _step(cq.context, deadline))):
            return count  # at deadline 0 the poll was all
