# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: the adapters of programs on the world's hosts. hosts.py attaches them; loop.py
# waits for their descriptors, and lets the world's time pass meanwhile.

cdef extern from "sim/attachment.h" nogil:
    enum:
        VB_MAX_PKEYS
        VB_MAX_PORTS
        VB_SIM_PROTOCOL_VERSION
        VB_SIM_SPARES
        VB_SIM_READABLES
    struct vb_sim_page_port:
        uint32_t host
        c_bool infiniband
        c_bool rings
        c_bool counts
        uint16_t inline_most
        uint8_t lmc
        uint8_t notice_level
        uint16_t lid
        uint16_t frame
        uint16_t *pkeys
        uint64_t rate
    struct vb_sim_page:
        uint32_t ports
        vb_sim_page_port *port
        uint64_t seed
        uint16_t mtu
        c_bool reacts
        c_bool traces
        c_bool at_once
        uint32_t patience
        c_bool is_open
        int64_t clock
        int64_t arrived
        int64_t *spare
        uint32_t readables
        int *readable
        c_bool woken
    struct vb_sim_crossing
    struct vb_sim_attachment:
        vb_sim_page *page
        int (*turn)(vb_sim_attachment *attachment) noexcept nogil
        void (*serve)(void *argument) noexcept nogil
        void *argument
        vb_sim_crossing *crossing
    size_t vb_sim_wire_packet_size(uint32_t mtu)

    int vb_sim_attach(vb_sim *sim, vb_sim_page *page, vb_sim_attachment **attachment)
    int vb_sim_advance(vb_sim *sim, uint64_t until, uint64_t events)
    uint16_t vb_sim_program_group_number(const vb_sim *sim, const uint8_t *gid, uint32_t host)

cdef extern from "sim/addresses.h" nogil:
    enum:
        VB_SIM_LID_MOST

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *, unsigned long, int)
    short POLLIN

cdef enum:
    ALONE = 16  # polls without a completion after which each is an event, without an event loop
    LOOPED = 1000  # the same with an event loop (vb_sim_page.patience)
    DEFAULT_PKEY = 0xffff  # full membership in the default partition

cdef str READABLE = "readable"


cdef class Attachments


# The garbage collector may destroy an adapter, which then detaches itself. What it needs for that
# must not be cleared before (no_gc_clear).
@cython.no_gc_clear
cdef class Attachment:
    """Where the adapter of a program is attached: each of these hosts of the world is a port of
    it."""

    cdef readonly Attachments attachments
    cdef readonly tuple hosts
    cdef vb_sim_attachment *_attachment

    @property
    def address(self):
        """The address of the struct vb_sim_attachment."""
        return <size_t>self._attachment

    def add_fd(self, int fd, channel=None):
        """Let programs wait for a descriptor; ``channel`` is its CompChannel, if it belongs to
        one."""
        self.attachments._descriptors[fd] = _new_descriptor(
            fd, channel, self._attachment.page.port[0].counts
        )

    def remove_fd(self, int fd):
        """Forget a descriptor before it is closed."""
        self.attachments.unwatch(fd)
        self.attachments._descriptors.pop(fd, None)


@cython.final
cdef class Descriptor:
    """A descriptor that a program may wait for."""

    cdef int fd
    cdef object channel  # weak reference to its CompChannel; None for asynchronous events
    cdef object reader   # the handle of the program that waits
    cdef bint doubtful   # it may be readable
    cdef bint interrupts  # its host has an inside: an event counts when its interrupt has come

    cdef int note_interrupt(self) except -1:
        """An interrupt has come for the events of a channel."""
        channel = self.channel() if self.interrupts and self.channel is not None else None
        if channel is not None:
            channel.note_interrupt()
        return 0

    cdef int keep(self, bint keep) except -1:
        """Let a channel keep its events for its reader, which saves their system calls."""
        channel = self.channel() if self.channel is not None else None
        if channel is not None and not channel.closed:
            channel.keep_events(keep)
        return 0

    cdef bint is_readable(self) except -1:
        if self.channel is None:
            return _has_input(self.fd)
        channel = self.channel()
        if channel is None:
            return False
        return channel.has_raised if self.interrupts else channel.has_kept


cdef Descriptor _new_descriptor(int fd, channel, bint interrupts):
    cdef Descriptor self = Descriptor.__new__(Descriptor)
    self.fd = fd
    self.channel = None if channel is None else weakref.ref(channel)
    self.interrupts = interrupts
    return self


@cython.no_gc_clear
cdef class Attachments:
    """What the adapters on a world's hosts have in common.

    It knows the descriptors that programs may wait for, which are those of completion channels and
    of asynchronous events. Only events of the world make one of them readable.
    """

    cdef readonly World world
    cdef dict _descriptors
    cdef bint _woken
    cdef list _doubtful  # in the order in which they may have become readable
    cdef object _on_news  # the reader of the sockets' news; or None

    def __init__(self, World world not None):
        self.world = world
        self._descriptors = {}
        self._doubtful = []
        _set_patience(world, ALONE)
        world._sim.on_group, world._sim.on_group_context = _change_group, <void *>world
        world._sim.on_door, world._sim.on_door_context = _waiting_at_door, <void *>world

    def at(self, *hosts, pkeys=()):
        """Return an Attachment whose ports are the hosts with these numbers, at most two.

        ``pkeys``: the P_Key table of each port; a port without one has the default partition.
        Raises ValueError for a host that does not exist or belongs to another attachment.
        """
        cdef Attachment made = Attachment.__new__(Attachment)
        _refuse_ports(self, hosts)
        made.attachments = self
        made.hosts = hosts
        made._attachment = _attached(self.world, hosts)
        _fill_ports(self.world, made._attachment.page, pkeys)
        return made

    def wake(self):
        """Have ``gather`` end: a function that the world has called has something for a loop."""
        self._woken = True

    def set_looped(self, bint looped):
        """Say whether an event loop lets time pass. If none does, polling lets time pass."""
        _set_patience(self.world, LOOPED if looped else ALONE)

    @property
    def now(self):
        """The world's time in ps."""
        return self._now()

    def watch(self, int fd, reader):
        """Have ``gather`` return ``reader`` when this descriptor becomes readable.

        Raises KeyError for a descriptor that programs may not wait for, and VerbsError (ENOMEM).
        """
        cdef Descriptor one = self._descriptors[fd]
        one.keep(True)
        one.reader = reader
        self._doubt(one)

    def watch_sockets(self, reader):
        """Have ``gather`` return ``reader`` when there are news of sockets. None: no more."""
        self._on_news = reader

    def unwatch(self, int fd):
        """Stop to watch a descriptor. Returns its reader, or None."""
        cdef Descriptor one = self._descriptors.get(fd)
        if one is None or one.reader is None:
            return None
        one.keep(False)
        reader = one.reader
        one.reader = None
        return reader

    def watched(self):
        """Return the descriptors that are watched."""
        return [fd for fd, one in self._descriptors.items() if (<Descriptor>one).reader is not None]

    cdef int _hear_of(self, Descriptor one) except -1:
        """The world says that the descriptor is readable."""
        if one is not None:
            one.note_interrupt()
        return self._doubt(one)

    cdef int _doubt(self, Descriptor one) except -1:
        if one is not None and one.reader is not None and not one.doubtful:
            one.doubtful = True
            self._doubtful.append(one)
        return 0

    def gather(self, ready, until=None):
        """Append to ``ready`` the readers of descriptors that are readable.

        If there are none, process the world's events until there is one, or until the time
        ``until`` in ps. Returns why it ended: "readable"; "time"; "done", no event is left;
        "deadlock", no event is left and packets wait for each other; without ``until`` also
        "events", after many of them. Ctrl-C ends it between two events.
        """
        cdef uint64_t limit = VB_WORLD_NEVER if until is None else until
        if self._doubtful or self._has_readable():
            self._append_readable(ready)
        while not ready and limit > self._now():
            why = self._advance(limit)
            if why is not READABLE:
                return why
            self._append_readable(ready)
        return READABLE if ready else "time"

    def advance(self, until=None):
        """Process events until another descriptor is readable, or until a time in ps.

        Returns why it ended, as ``gather`` does.
        """
        return self._advance(VB_WORLD_NEVER if until is None else until)

    cdef uint64_t _now(self) noexcept:
        return self.world._world.now

    cdef bint _has_readable(self) noexcept:
        return self.world._sim.readable > 0

    cdef int _doubt_readable(self) except -1:
        cdef vb_sim *sim = self.world._sim
        cdef uint32_t i
        for i in range(sim.readable):
            self._hear_of(self._descriptors.get(sim.readable_fd[i]))
        sim.readable = 0
        return 0

    def pass_time(self, until=None):
        """Process events until a program in another process has something to do, or until a time.

        Returns why it ended, as ``gather`` does, and the numbers of the programs' hosts.
        """
        cdef vb_sim *sim = self.world._sim
        cdef uint32_t i
        cdef uint64_t limit = VB_WORLD_NEVER if until is None else until
        why = READABLE if self._has_readable() else self._advance(limit)
        found = [~sim.readable_fd[i] for i in range(sim.readable)]
        sim.readable = 0
        return why, found

    cdef int _append_readable(self, ready) except -1:
        cdef Descriptor one
        cdef list doubtful
        self._doubt_readable()
        if self._on_news is not None and self.world._sim.news_first < self.world._sim.news_count:
            ready.append(self._on_news)
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
            if self._woken:
                self._woken = False
                return READABLE
            self.world._busy = True
            with nogil:
                why = vb_sim_advance(sim, until, SLICE)
            self.world._busy = False
            PyErr_CheckSignals()
            if sim.readable:
                return READABLE
            if why == VB_WORLD_END_EVENTS and until == VB_WORLD_NEVER:
                return "events"
        if why < 0:
            _check(why, "the run")
        if why == VB_WORLD_END_EMPTY and until != VB_WORLD_NEVER:
            return "time"
        return ENDS[why]


PKEYS_MOST = VB_MAX_PKEYS


cdef int _set_patience(World world, uint32_t polls) except -1:
    world._patience = polls
    for _, address in world._attached.values():
        (<vb_sim_attachment *><size_t>address).page.patience = polls
    return 0


cdef int _refuse_ports(Attachments attachments, tuple hosts) except -1:
    """Raise ValueError for hosts that cannot be the ports of one adapter."""
    cdef World world = attachments.world
    world._idle()
    if not 0 < len(hosts) <= VB_MAX_PORTS:
        raise ValueError(f"an adapter has 1 to {VB_MAX_PORTS} ports, and not {len(hosts)}")
    for host in hosts:
        _number("host", host, world._world.hosts, "host")
        if world._attached.get(host, (hosts,))[0] != hosts:
            raise ValueError(f"of hosts {hosts} one is a port of another adapter")
    if len(set(hosts)) < len(hosts):
        raise ValueError(f"hosts {hosts} are no ports: one stands there twice")
    return 0


cdef vb_sim_attachment *_attached(World world, tuple hosts) except NULL:
    """Return the attachment whose ports are these hosts, and make it the first time."""
    cdef vb_sim_attachment *made
    cdef vb_sim_page *page
    if hosts[0] in world._attached:
        return <vb_sim_attachment *><size_t>world._attached[hosts[0]][1]
    page = <vb_sim_page *>calloc(1, sizeof(vb_sim_page))
    if page is NULL:
        raise MemoryError
    page.at_once = True
    _fill_page(world, page, hosts)
    _check(vb_sim_attach(world._sim, page, &made), "an attachment")
    for host in hosts:
        world._attached[host] = hosts, <size_t>made
    return made


cdef int _fill_page(World world, vb_sim_page *page, tuple hosts) except -1:
    """Write what does not change while programs run."""
    cdef vb_sim_page_port *port
    cdef Py_ssize_t i
    page.ports = len(hosts)
    page.seed = world._seed << 16 ^ <uint64_t>hosts[0]
    page.mtu = world._mtu
    page.patience = world._patience
    for i, host in enumerate(hosts):
        framing, nic = world._adapters.get(host, (world._framing, world._nic))
        port = &page.port[i]
        port.host = host
        port.infiniband = framing == VB_SIM_INFINIBAND
        own, _ = world._insides.get(host, (None, None))
        port.rings = nic.doorbell > 0
        port.counts = own is not None
        port.inline_most = own.hca.inline if own is not None else 0
        port.notice_level = VB_NIC_OWN_LEVEL if nic.notice_level is None else nic.notice_level
        port.frame = vb_sim_wire_bytes(framing, VB_BTH, world._mtu) + VB_HPCC_BYTES
        page.reacts = page.reacts or nic.congestion is not None
        page.traces = page.traces or world._window == 0
    return 0


cdef int _fill_ports(World world, vb_sim_page *page, pkeys) except -1:
    """Write what may have changed since an earlier run of this world.

    ``arguments.pkey_tables`` has checked the P_Keys.
    """
    cdef const vb_world *of = world._world
    cdef vb_sim_page_port *port
    cdef const vb_world_node *node
    cdef uint32_t i, k
    for i in range(page.ports):
        port, node = &page.port[i], &of.node[<uint32_t>world._nodes[page.port[i].host]]
        port.rate = 0 if node.port[0] == VB_WORLD_NONE else of.port[node.port[0]].rate
        port.lid = node.address if port.infiniband else 0
        port.lmc = node.lmc if port.infiniband else 0
        table = pkeys[i] if i < len(pkeys) else [DEFAULT_PKEY]
        for k in range(VB_MAX_PKEYS):
            port.pkeys[k] = table[k] if k < len(table) else 0
    return 0


cdef bint _has_input(int fd):
    cdef pollfd entry
    entry.fd = fd
    entry.events = POLLIN
    entry.revents = 0
    return poll(&entry, 1, 0) > 0 and (entry.revents & POLLIN) != 0
