# SPDX-License-Identifier: Apache-2.0
# What every object of a context has in common: a token, a life, and an order of closing.

cdef enum:
    RANK_USER = 0      # AH, QP: nothing depends on them
    RANK_SHARED = 1    # SRQ, MR
    RANK_CQ = 2
    RANK_CHANNEL = 3
    RANK_PD = 4

_contexts = weakref.WeakSet()


def _forget_after_fork():
    """Every object of the parent is closed in the child, and nothing of it is released there."""
    cdef Context context
    for context in list(_contexts):
        context._forget()
    _contexts.clear()


os.register_at_fork(after_in_child=_forget_after_fork)

cdef str _CLOSED = "is closed"
cdef str _FORKED = "belongs to the process that forked: open the device again in the child"


@cython.no_gc_clear
cdef class Resource:
    """An object of a device: a context manager that closes itself and whatever uses it."""

    cdef object __weakref__
    cdef readonly Context context
    cdef readonly size_t token
    cdef int busy
    cdef str why_closed
    cdef list watchers

    def __init__(self):
        raise TypeError(f"a {type(self).__name__} is made by its context or protection domain")

    cdef int _adopt(self, Context context) except -1:
        self.context = context
        self.token = context._next_token()
        context._children[self.token] = self
        return 0

    cdef int _rank(self):
        return RANK_USER

    cdef bint _is_open(self):
        return False

    cdef bint _uses(self, Resource other):
        return False

    cdef int _destroy(self) noexcept:
        """Destroy the C object, if there is one; returns libibverbs' errno."""
        return 0

    cdef void _forget(self) noexcept:
        """Drop the C object without destroying it."""

    cdef object _closed(self):
        return _closed_error(type(self).__name__, self.why_closed or _CLOSED)

    @property
    def closed(self):
        """True once the object is closed."""
        return not self._is_open()

    def close(self):
        """Release the object; once is enough, and twice does no harm.

        Raises VerbsError(EBUSY) while something else uses it.
        """
        if not self._is_open():
            return
        if self.busy:
            raise VerbsError(
                EBUSY,
                f"another thread is inside a call on this {type(self).__name__}: let it end first",
            )
        cdef int code = self._destroy()
        if code:
            raise self.context._failed(f"{type(self).__name__}.close", code)
        self.why_closed = _CLOSED
        _tell(self.watchers)

    def call_when_closed(self, method):
        """Have a bound method called once this is closed. It is held weakly."""
        self.watchers = _with_watcher(self.watchers, method)

    def _close_with_users(self):
        cdef Resource other
        if not self._is_open():
            return
        for other in self.context._open_children():
            if other._uses(self):
                other._close_with_users()
        self.close()

    def __enter__(self):
        if not self._is_open():
            raise self._closed()
        return self

    def __exit__(self, *exc_info):
        self._close_with_users()


cdef list _with_watcher(list watchers, method):
    return [one for one in watchers or () if one() is not None] + [weakref.WeakMethod(method)]


cdef int _tell(list watchers) except -1:
    for one in watchers or ():
        method = one()
        if method is not None:
            method()
    return 0


cdef int _error_of(int code) noexcept:
    """The errno of a call that returns either it or -1."""
    return errno if code < 0 else code


cdef int _timeout_slice(uint64_t deadline, int longest_ms) noexcept nogil:
    """Milliseconds to sleep at most, rounded up; -1 for no limit."""
    if deadline == UINT64_MAX:
        return longest_ms
    cdef uint64_t now = vb_now_ns()
    cdef uint64_t left = 0 if now >= deadline else (deadline - now + 999999) // 1000000
    if longest_ms >= 0 and left > <uint64_t>longest_ms:
        return longest_ms
    return <int>left if left < 1000000000 else 1000000000


cdef uint64_t _deadline(timeout) except? 0:
    """``timeout`` in seconds (None: never) as a deadline in nanoseconds of CLOCK_MONOTONIC."""
    cdef uint64_t wait = UINT64_MAX if timeout is None else _nanoseconds(timeout)
    return UINT64_MAX if wait == UINT64_MAX else vb_now_ns() + wait


cdef uint64_t _nanoseconds(double seconds) noexcept:
    """More than a hundred years are UINT64_MAX, forever."""
    if not seconds < 4e9:
        return UINT64_MAX
    return <uint64_t>(seconds * 1e9) if seconds > 0 else 0


cdef bint _readable(int fd, uint64_t deadline, int longest_ms) except -1:
    """Sleep until ``fd`` is readable or the time is over."""
    cdef pollfd entry
    cdef int found
    entry.fd = fd
    entry.events = POLLIN
    with nogil:
        found = poll(&entry, 1, _timeout_slice(deadline, longest_ms))
    if found < 0 and errno != EINTR:
        raise failed("poll", errno)
    PyErr_CheckSignals()
    return found > 0
