# SPDX-License-Identifier: Apache-2.0
# Where programs meet the world: what their adapters are plugged into, and how time passes for them.

cdef extern from "port/sim/jack.h" nogil:
    struct vb_jack:
        pass

    vb_jack *vb_sim_jack(vb_sim *sim, uint32_t host)
    void vb_sim_set_patience(vb_sim *sim, uint32_t polls)
    int vb_sim_advance(vb_sim *sim, uint64_t until, uint64_t events)
    uint32_t vb_sim_told(const vb_sim *sim)
    uint32_t vb_sim_take_told(vb_sim *sim, int *fd, uint32_t room)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *, unsigned long, int)
    short POLLIN

cdef enum:
    TOLD_ROOM = 64
    ALONE = 16   # polls in vain that let time go on, without a loop…
    LOOPED = 1000  # …and in one (vb_sim_set_patience)


cdef class Jacks


# Adapters leave their jacks whenever they are destroyed, also by the garbage collector: until then
# what they need for it is not cleared.
@cython.no_gc_clear
cdef class Jack:
    """A host's place for the adapter of a program: what ``verbena.verbs`` plugs a device into."""

    cdef readonly Jacks jacks
    cdef readonly uint32_t host
    cdef vb_jack *_jack

    @property
    def address(self):
        """Of the struct vb_jack."""
        return <size_t>self._jack

    def add_fd(self, int fd, channel=None):
        """A program may wait for this descriptor, of the CompChannel if it is one's."""
        self.jacks.fds[fd] = None if channel is None else weakref.ref(channel)

    def remove_fd(self, int fd):
        """It will be closed."""
        self.jacks.unwatch(fd)
        self.jacks.fds.pop(fd, None)


@cython.no_gc_clear
cdef class Jacks:
    """What the programs on a world's hosts have in common.

    ``fds`` are the descriptors that they may wait for: those of their completion channels, with
    a reference to the CompChannel, and of their adapters' asynchronous events, with None. Only the
    world's events make one readable. A channel that is watched keeps its events: then it needs no
    system call, from the event to the reader.
    """

    cdef readonly World world
    cdef readonly dict fds
    cdef set _watched
    cdef dict _maybe  # of them, those that may be readable, in the order in which that was said

    def __init__(self, World world not None):
        self.world = world
        self.fds = {}
        self._watched = set()
        self._maybe = {}
        vb_sim_set_patience(world._sim, ALONE)

    def at(self, host):
        """The Jack of host number ``host``. ValueError: there is none."""
        cdef Jack made = Jack.__new__(Jack)
        self.world._idle()
        if not 0 <= host < self.world._world.hosts:
            raise ValueError(f"there is no host {host!r}")
        made.jacks = self
        made.host = host
        made._jack = vb_sim_jack(self.world._sim, host)
        if made._jack is NULL:
            raise MemoryError
        return made

    def set_looped(self, bint looped):
        """Whether a loop lets time pass; if not, polling does."""
        vb_sim_set_patience(self.world._sim, LOOPED if looped else ALONE)

    @property
    def now(self):
        """The world's time in ps."""
        return self.world._world.now

    def watch(self, int fd):
        """Somebody waits for this descriptor. Raises VerbsError: ENOMEM."""
        self._keep(fd, True)
        self._watched.add(fd)
        self._maybe[fd] = self.fds[fd]

    def unwatch(self, int fd):
        """Nobody does any more."""
        if fd in self._watched:
            self._keep(fd, False)
        self._watched.discard(fd)
        self._maybe.pop(fd, None)

    cdef int _keep(self, int fd, bint keep) except -1:
        reference = self.fds[fd]
        channel = reference() if reference is not None else None
        if channel is not None and not channel.closed:
            channel.keep_events(keep)
        return 0

    def readable(self):
        """The watched descriptors that have something to read."""
        cdef int[TOLD_ROOM] told
        cdef uint32_t count = TOLD_ROOM
        cdef uint32_t i
        cdef list found = []
        if not self._maybe and not vb_sim_told(self.world._sim):
            return found
        while count == TOLD_ROOM:
            count = vb_sim_take_told(self.world._sim, told, TOLD_ROOM)
            for i in range(count):
                if told[i] in self._watched:
                    self._maybe[told[i]] = self.fds[told[i]]
        for fd, reference in list(self._maybe.items()):
            if _has_events(reference) if reference is not None else _has_input(fd):
                found.append(fd)
            else:
                del self._maybe[fd]
        return found

    def advance(self, until=None):
        """Let the world's events happen until a program is told of something: "told".

        "time": it is ``until`` (ps) now. "done": nothing is left to happen. "deadlock": nor will
        packets that wait for each other move. Ctrl-C ends it between two events.
        """
        cdef uint64_t limit = VB_SIM_NEVER if until is None else until
        cdef vb_sim *sim = self.world._sim
        cdef int why = VB_SIM_END_EVENTS
        self.world._idle()
        while why == VB_SIM_END_EVENTS:
            self.world._busy = True
            with nogil:
                why = vb_sim_advance(sim, limit, SLICE)
            self.world._busy = False
            PyErr_CheckSignals()
            if vb_sim_told(sim):
                return "told"
        if why < 0:
            _check(why, "the run")
        if why == VB_SIM_END_EMPTY and until is not None:
            return "time"
        return ENDS[why]


cdef bint _has_events(reference) except -1:
    channel = reference()
    return channel is not None and channel.has_kept


cdef bint _has_input(int fd):
    cdef pollfd entry
    entry.fd = fd
    entry.events = POLLIN
    entry.revents = 0
    return poll(&entry, 1, 0) > 0 and (entry.revents & POLLIN) != 0
