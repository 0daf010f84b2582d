# SPDX-License-Identifier: Apache-2.0
# The base of every object of a context: its token, its lifetime, and the order of closing.
#
# Threads and closing. C objects are destroyed, and short calls made, with the GIL, so no thread
# destroys an object between another thread's check of its pointer and the call. A call that
# releases the GIL is counted in `busy` of each object that it uses, from `_begin` to `_end`.
# `close()` fails while `busy` is not 0. Closing a context, or leaving a `with` block, lets no call
# begin any more, ends the waits, lets the other calls end, and then closes. No Python code may run
# between the last check of a pointer (`_begin`, or `_check`) and the C call.

cdef enum:
    RANK_USER = 0      # AH, QP: nothing depends on them
    RANK_SHARED = 1    # SRQ, MR
    RANK_CQ = 2
    RANK_CHANNEL = 3
    RANK_PD = 4

cdef enum:
    JOIN_US = 100  # between checks whether waits that were ended have returned
    BELL_LESS_MS = 10  # between checks whether the wait was ended, if there is no eventfd

_contexts = weakref.WeakSet()


def _forget_after_fork():
    """Every object of the parent is closed in the child, and nothing of it is released there."""
    cdef Context context
    for context in list(_contexts):
        context._forget()
    _contexts.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


cdef int _raised(int fd) except -1:
    """Move a descriptor above the standard streams, which a program may have closed.

    As vb_memory_descriptor_raise of the core: what the program prints must not reach it.
    """
    if fd > STDERR_FILENO:
        return fd
    try:
        return _fcntl.fcntl(fd, _fcntl.F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
    finally:
        close_fd(fd)


@cython.final
cdef class Waits:
    """The threads that wait inside calls on one object, and how another thread ends that.

    Several may sleep on one descriptor, whose event only the first of them finds. So who leaves
    passes on: one of the others wakes up, and looks at what may be left.
    """

    cdef list threads  # each waiting thread's identifier, and `endings` when its wait began
    cdef uint64_t endings
    cdef int bell  # an eventfd, which wakes sleeping threads; -1 until a thread sleeps

    def __cinit__(self):
        self.threads = []
        self.bell = -1

    def __dealloc__(self):
        if self.bell >= 0:
            close_fd(self.bell)

    cdef uint64_t _enter(self) except? 0xffffffff:
        """Begin a wait; returns the number that `_check` needs. `_leave` ends it."""
        self.threads.append((PyThread_get_thread_ident(), self.endings))
        return self.endings

    cdef int _leave(self) except -1:
        this = PyThread_get_thread_ident()
        for i in reversed(range(len(self.threads))):
            if self.threads[i][0] == this:
                del self.threads[i]
                break
        if not self.threads:
            self._silence()
        elif self.bell >= 0:
            os.eventfd_write(self.bell, 1)
        return 0

    cdef int _silence(self) except -1:
        """Reset the eventfd, since all waits that it woke have returned."""
        cdef uint64_t rung
        if self.bell >= 0 and read_fd(self.bell, &rung, sizeof(rung)) < 0:
            pass  # it was not set
        return 0

    cdef bint _are_all_told(self) except -1:
        """Return whether all waits that were ended have returned."""
        return all([began == self.endings for _, began in self.threads])

    cdef int _check(self, uint64_t endings) except -1:
        """Raise VerbsError when the wait that began with ``endings`` was ended."""
        if self.endings != endings:
            raise VerbsError(
                ECANCELED, "another thread ended the wait, by cancel_wait() or by closing"
            )
        return 0

    cdef int _sleep(self, uint64_t endings, int fd, uint64_t deadline, int longest_ms) except -1:
        """Sleep as `_readable`, or until the wait that began with ``endings`` is ended."""
        if self.bell < 0 and not self._hang_bell() and not 0 <= longest_ms <= BELL_LESS_MS:
            longest_ms = BELL_LESS_MS  # `endings` is checked at this interval
        if self.endings != endings:
            return 0
        cdef int woken = _readable(fd, self.bell, deadline, longest_ms)
        if self.endings == endings and self._are_all_told():
            self._silence()
        return woken

    cdef bint _hang_bell(self) except -1:
        """Create the eventfd. Other threads run meanwhile: they may create it, or end the wait.

        Returns False if no descriptor is left.
        """
        try:
            made = _raised(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        except OSError:
            return self.bell >= 0
        if self.bell < 0:
            self.bell = made
        else:  # other threads sleep on that one
            close_fd(made)
        return True

    cdef int _end(self) except -1:
        self.endings += 1
        if self.bell >= 0 and self.threads:
            os.eventfd_write(self.bell, 1)
        return 0

    cdef bint _has_this_thread(self) except -1:
        """Return whether this thread is in a wait, whose signal handler or finalizer calls this."""
        this = PyThread_get_thread_ident()
        return any([thread == this for thread, _ in self.threads])

cdef str _LET_IT_END = "let it end first"
cdef str _END_IT = (
    "cancel_wait() ends its wait; closing the context, or leaving a `with` block, does so too"
)
cdef str _CLOSED = "is closed"
cdef str _FORKED = "belongs to the process that forked: open the device again in the child"


cdef str _no_copy(thing):
    """Return why a resource or a device cannot be pickled or copied, and what to do instead."""
    instead = (
        "a peer needs its addr and rkey, which are numbers: send those"
        if isinstance(thing, MR) else "another process opens the device and makes its own"
    )
    name = type(thing).__name__
    return f"{name} objects belong to this process, and cannot be pickled or copied: {instead}"


@cython.no_gc_clear
cdef class Resource:
    """An object of a device: a context manager that closes itself and its users."""

    cdef object __weakref__
    cdef readonly Context context
    cdef readonly size_t token
    cdef int busy     # calls without the GIL that use it
    cdef int closing  # threads that close it together with other objects: no call begins
    cdef str why_closed
    cdef list watchers
    cdef list early_watchers
    cdef Waits waits  # None until the first wait

    def __reduce_ex__(self, protocol):
        raise TypeError(_no_copy(self))

    def __init__(self):
        raise TypeError(f"a {type(self).__name__} is made by its context or protection domain")

    cdef int _adopt(self, Context context) except -1:
        if context.closing or context.context is NULL:
            raise context._closed()
        self.context = context
        self.token = context._next_token()
        context._children[self.token] = weakref.ref(self)
        return 0

    cdef void _leave(self) noexcept:
        """Remove the object from its context; `__dealloc__` does this first.

        Otherwise another thread would take a reference to what is being freed.
        """
        if self.context is not None:
            self.context._children.pop(self.token, None)

    cdef int _begin(self) except -1:
        """Begin a call that releases the GIL and uses this object until `_end`.

        Raises VerbsError when the object is closed, or being closed.
        """
        if self.closing or self.context.closing or not self._is_open():
            raise self._closed()
        self.busy += 1
        return 0

    cdef inline void _end(self) noexcept:
        self.busy -= 1

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
        """Release the object. Closing it twice has no effect.

        Raises VerbsError(EBUSY) while another object uses it.
        """
        if not self._is_open():
            return
        if not self.busy:
            _tell(self.early_watchers)  # runs Python code: all checks follow it
        if not self._is_open():
            return
        if self.busy:
            raise VerbsError(
                EBUSY,
                f"another thread is inside a call on this {type(self).__name__}:"
                f" {_END_IT if self.waits is not None and self.waits.threads else _LET_IT_END}",
            )
        cdef int code = self._destroy()
        if code:
            raise self.context._failed(f"{type(self).__name__}.close", code)
        self.why_closed = _CLOSED
        _tell(self.watchers)

    def call_when_closed(self, method):
        """Register a bound method to be called after closing. It is held by a weak reference."""
        self.watchers = _with_watcher(self.watchers, method)

    def call_before_closing(self, method):
        """Register a bound method to be called before closing, while the object still works.

        It is held by a weak reference, and is called again if closing fails (EBUSY) and is
        repeated.
        """
        self.early_watchers = _with_watcher(self.early_watchers, method)

    def _close_with_users(self):
        cdef list things
        if not self._is_open():
            return
        things = self._with_users()
        _refuse_inside(things)
        _count_closing(things, 1)
        try:
            _join_calls(things)
            _close_each(things)
        finally:
            _count_closing(things, -1)

    cdef list _with_users(self):
        """Return this object and its direct and indirect users, in the order of closing."""
        cdef Resource one, other
        cdef list found = [self]
        for one in reversed(self.context._open_children()):  # an object comes before its users
            for other in found:
                if one._uses(other):
                    found.append(one)
                    break
        return found[::-1]

    cdef Waits _waits(self):
        if self.waits is None:
            self.waits = Waits()
        return self.waits

    cdef uint64_t _begin_wait(self) except? 0xffffffff:
        """Begin a wait that `waits._end` can end; returns the number that `waits._check` needs."""
        self._begin()
        try:
            return self._waits()._enter()
        except BaseException:
            self._end()
            raise

    cdef int _end_wait(self, Waits waits) except -1:
        self._end()
        return waits._leave()

    cdef int _cancel_wait(self) except -1:
        if not self._is_open():
            raise self._closed()
        if self.waits is not None:
            self.waits._end()
        return 0

    def __enter__(self):
        if not self._is_open():
            raise self._closed()
        return self

    def __exit__(self, *exc_info):
        self._close_with_users()


cdef int _refuse_inside(list things) except -1:
    """Raise VerbsError(EBUSY) when a wait of this thread on one of these calls this."""
    cdef Resource one
    for one in things:
        if one.waits is not None and one.waits._has_this_thread():
            raise _inside(type(one).__name__)
    return 0


cdef object _inside(str kind):
    return VerbsError(
        EBUSY,
        f"this thread itself waits in a call on this {kind}, which has called a signal's handler or"
        " a finalizer: cancel_wait() there, and close when the call has ended",
    )


cdef int _count_closing(list things, int by) except -1:
    cdef Resource one
    for one in things:
        one.closing += by
    return 0


cdef int _join_calls(list things) except -1:
    """End the waits on these objects, on which no call begins, and let the other calls end."""
    cdef Resource one
    for one in things:
        if one.busy and one.waits is not None:
            one.waits._end()
    for one in things:
        while one.busy:
            _pause()
    return 0


cdef int _pause() except -1:
    with nogil:
        usleep(JOIN_US)
    PyErr_CheckSignals()
    return 0


cdef int _close_each(list things) except -1:
    cdef Resource one
    for one in things:
        one.close()
    return 0


cdef int _begin_all(things) except -1:
    """Call `_begin` on all of these objects, or on none; None stands for no object."""
    cdef Resource one
    cdef Py_ssize_t begun = 0
    try:
        for one in things:
            if one is not None:
                one._begin()
            begun += 1
    except VerbsError:
        _end_all(things[:begun])
        raise
    return 0


cdef int _end_all(things) except -1:
    cdef Resource one
    for one in things:
        if one is not None:
            one._end()
    return 0


cdef int _of_context(Context context, Resource other) except -1:
    """Raise unless ``other`` is open and of ``context``; libraries do not check that."""
    if not other._is_open():
        raise other._closed()
    if other.context is not context:
        raise VerbsError(
            EINVAL,
            f"the {type(other).__name__} was made from another context: objects work together only"
            " when they come from one open_device()",
        )
    return 0


cdef list _with_watcher(list watchers, method):
    return [one for one in watchers or () if one() is not None] + [weakref.WeakMethod(method)]


cdef int _tell(list watchers) except -1:
    for one in watchers or ():
        method = one()
        if method is not None:
            method()
    return 0


cdef int _error_of(int code) noexcept:
    """Return the errno of a call that returns either it or -1."""
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
    """Return ``timeout`` in seconds (None: never) as a deadline in ns of CLOCK_MONOTONIC."""
    cdef uint64_t wait = UINT64_MAX if timeout is None else _nanoseconds(timeout, "timeout")
    return UINT64_MAX if wait == UINT64_MAX else vb_now_ns() + wait


cdef uint64_t _nanoseconds(value, str name) except? 0:
    """Convert seconds; more than a hundred years give UINT64_MAX, which means forever."""
    cdef double seconds = _seconds(value, name)
    if not seconds < 4e9:
        return UINT64_MAX
    return <uint64_t>(seconds * 1e9) if seconds > 0 else 0


cdef int _readable(int fd, int bell, uint64_t deadline, int longest_ms) except -1:
    """Sleep until ``fd`` (-1: none) or ``bell`` is readable or the time is over."""
    cdef pollfd entries[2]
    cdef int found
    entries[0].fd = fd
    entries[1].fd = bell
    entries[0].events = entries[1].events = POLLIN
    with nogil:
        found = poll(entries, 2, _timeout_slice(deadline, longest_ms))
    if found < 0 and errno != EINTR:
        raise failed("poll", errno)
    PyErr_CheckSignals()
    return found > 0
