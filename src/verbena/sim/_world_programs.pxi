# SPDX-License-Identifier: Apache-2.0
# Where programs meet the world: what their adapters are attached to, and how time passes for them.

cdef extern from "sim/attachment.h" nogil:
    enum:
        VB_MAX_PORTS
        VB_MAX_PKEYS
        VB_SIM_LID_MOST
    struct vb_sim_attachment_port:
        uint16_t *pkeys
    struct vb_sim_attachment:
        vb_sim_attachment_port *port

    int vb_sim_attach(vb_sim *sim, const uint32_t *hosts, uint32_t ports,
                      vb_sim_attachment **attachment)
    void vb_sim_set_patience(vb_sim *sim, uint32_t polls)
    int vb_sim_advance(vb_sim *sim, uint64_t until, uint64_t events)
    uint32_t vb_sim_readable(const vb_sim *sim)
    uint32_t vb_sim_take_readable(vb_sim *sim, int *fd, uint32_t room)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *, unsigned long, int)
    short POLLIN

cdef enum:
    READABLE_ROOM = 64
    ALONE = 16  # polls in vain after which time passes, for a program without a loop
    LOOPED = 1000  # the same in a loop (vb_sim_set_patience)

cdef str READABLE = "readable"


cdef class Attachments


# An adapter leaves its attachment whenever it is destroyed, also by the garbage collector. What it
# needs for that is not cleared before.
@cython.no_gc_clear
cdef class Attachment:
    """Where the adapter of a program is attached: hosts of the world, each a port of it."""

    cdef readonly Attachments attachments
    cdef readonly tuple hosts
    cdef vb_sim_attachment *_attachment

    @property
    def address(self):
        """Of the struct vb_sim_attachment."""
        return <size_t>self._attachment

    def add_fd(self, int fd, channel=None):
        """A program may wait for this descriptor, of the CompChannel if it is one's."""
        self.attachments._descriptors[fd] = _new_descriptor(fd, channel)

    def remove_fd(self, int fd):
        """It will be closed."""
        self.attachments.unwatch(fd)
        self.attachments._descriptors.pop(fd, None)


@cython.final
cdef class Descriptor:
    """What a program may wait for."""

    cdef int fd
    cdef object channel  # reference to its CompChannel; None: of asynchronous events
    cdef object reader   # of the program that waits
    cdef bint doubtful   # it may be readable

    cdef int keep(self, bint keep) except -1:
        """A channel that is watched keeps its events: they need no system call then."""
        channel = self.channel() if self.channel is not None else None
        if channel is not None and not channel.closed:
            channel.keep_events(keep)
        return 0

    cdef bint is_readable(self) except -1:
        if self.channel is None:
            return _has_input(self.fd)
        channel = self.channel()
        return channel is not None and channel.has_kept


cdef Descriptor _new_descriptor(int fd, channel):
    cdef Descriptor self = Descriptor.__new__(Descriptor)
    self.fd = fd
    self.channel = None if channel is None else weakref.ref(channel)
    return self


@cython.no_gc_clear
cdef class Attachments:
    """What the programs on a world's hosts have in common.

    Of the descriptors that they may wait for, those of their completion channels and of their
    adapters' asynchronous events, only the world's events make one readable.
    """

    cdef readonly World world
    cdef dict _descriptors
    cdef list _doubtful  # in the order in which the world told of them

    def __init__(self, World world not None):
        self.world = world
        self._descriptors = {}
        self._doubtful = []
        vb_sim_set_patience(world._sim, ALONE)

    def at(self, *hosts, pkeys=()):
        """The Attachment whose ports are the hosts with these numbers, at most two.

        ``pkeys``: the P_Key table of each port; without one it has the default partition. Raises
        ValueError for hosts and P_Keys that cannot be, and for a host of another attachment.
        """
        cdef Attachment made = Attachment.__new__(Attachment)
        cdef uint32_t[VB_MAX_PORTS] number
        cdef Py_ssize_t i
        self.world._idle()
        if not 0 < len(hosts) <= VB_MAX_PORTS:
            raise ValueError(f"an adapter has 1 to {VB_MAX_PORTS} ports, and not {len(hosts)}")
        for i, host in enumerate(hosts):
            number[i] = _number("host", host, self.world._world.hosts, "host")
        made.attachments = self
        made.hosts = hosts
        error = vb_sim_attach(self.world._sim, number, len(hosts), &made._attachment)
        if error == -EBUSY:
            raise ValueError(f"of hosts {hosts} one is a port of another adapter")
        if error == -EINVAL:
            raise ValueError(f"hosts {hosts} are no ports: one stands there twice, or is beyond "
                             f"the {VB_SIM_LID_MOST} unicast LIDs of InfiniBand")
        _check(error, "an attachment")
        for i, table in enumerate(pkeys):
            _fill_pkeys(made._attachment.port[i].pkeys, table)
        return made

    def set_looped(self, bint looped):
        """Whether a loop lets time pass; if not, polling does."""
        vb_sim_set_patience(self.world._sim, LOOPED if looped else ALONE)

    @property
    def now(self):
        """The world's time in ps."""
        return self.world._world.now

    def watch(self, int fd, reader):
        """From now on ``readable`` says ``reader`` for this descriptor.

        KeyError: it is none that a program may wait for; VerbsError: ENOMEM.
        """
        cdef Descriptor one = self._descriptors[fd]
        one.keep(True)
        one.reader = reader
        self._doubt(one)

    def unwatch(self, int fd):
        """Nobody waits for it any more; who did, or None."""
        cdef Descriptor one = self._descriptors.get(fd)
        if one is None or one.reader is None:
            return None
        one.keep(False)
        reader = one.reader
        one.reader = None
        return reader

    def watched(self):
        """The descriptors that somebody waits for."""
        return [fd for fd, one in self._descriptors.items() if (<Descriptor>one).reader is not None]

    cdef int _doubt(self, Descriptor one) except -1:
        if one is not None and one.reader is not None and not one.doubtful:
            one.doubtful = True
            self._doubtful.append(one)
        return 0

    def gather(self, ready, until=None):
        """Append to ``ready`` the readers of descriptors that have something to read.

        If it is empty even then, let the world's events happen until one of them has, or until
        the time ``until`` in ps. Returns why it ended: "readable"; "time"; "done", nothing is left
        to happen; "deadlock", nor will packets that wait for each other move; without ``until``
        also "events", after many. Ctrl-C ends it between two events.
        """
        cdef uint64_t limit = VB_WORLD_NEVER if until is None else until
        if self._doubtful or vb_sim_readable(self.world._sim):
            self._append_readable(ready)
        while not ready and limit > self.world._world.now:
            why = self._advance(limit)
            if why is not READABLE:
                return why
            self._append_readable(ready)
        return READABLE if ready else "time"

    cdef int _append_readable(self, ready) except -1:
        cdef int[READABLE_ROOM] numbers
        cdef uint32_t count = READABLE_ROOM
        cdef uint32_t i
        cdef Descriptor one
        cdef list doubtful
        while count == READABLE_ROOM:
            count = vb_sim_take_readable(self.world._sim, numbers, READABLE_ROOM)
            for i in range(count):
                self._doubt(self._descriptors.get(numbers[i]))
        doubtful, self._doubtful = self._doubtful, []
        for one in doubtful:
            one.doubtful = False
            if one.reader is not None and one.is_readable():
                ready.append(one.reader)
                self._doubt(one)
        return 0

    cdef str _advance(self, uint64_t until):
        cdef vb_sim *sim = self.world._sim
        cdef int why = VB_WORLD_END_EVENTS
        self.world._idle()
        while why == VB_WORLD_END_EVENTS or why == VB_WORLD_END_HALT:
            self.world._call_due()
            self.world._busy = True
            with nogil:
                why = vb_sim_advance(sim, until, SLICE)
            self.world._busy = False
            PyErr_CheckSignals()
            if vb_sim_readable(sim):
                return READABLE
            if why == VB_WORLD_END_EVENTS and until == VB_WORLD_NEVER:
                return "events"
        if why < 0:
            _check(why, "the run")
        if why == VB_WORLD_END_EMPTY and until != VB_WORLD_NEVER:
            return "time"
        return ENDS[why]


PKEYS_MOST = VB_MAX_PKEYS


cdef int _fill_pkeys(uint16_t *to, object keys) except -1:
    """``keys`` are those of a port, which verbena.sim.arguments has checked."""
    cdef Py_ssize_t i
    for i in range(VB_MAX_PKEYS):
        to[i] = keys[i] if i < len(keys) else 0
    return 0


cdef bint _has_input(int fd):
    cdef pollfd entry
    entry.fd = fd
    entry.events = POLLIN
    entry.revents = 0
    return poll(&entry, 1, 0) > 0 and (entry.revents & POLLIN) != 0
