# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: programs in processes of their own (sim/crossing.h). processes.py has the
# world's side of each, and remote.py the program's.

cdef extern from "sim/crossing.h" nogil:
    enum:
        VB_SIM_PAGES
        VB_SIM_LETTERS
        VB_SIM_WANT_TIME
        VB_SIM_WANT_STEP
        VB_SIM_WANT_END
        VB_SIM_WANT_RUN
    struct vb_sim_segment:
        uint32_t version
        uint32_t pages
        uint64_t *page
        uint32_t want
        int why
        uint64_t now
        uint64_t until
        uint32_t *written
        uint8_t (*letters)[65536]
    struct vb_sim_crossing:
        vb_sim_segment *segment
        uint32_t side
        int lifeline
        int error
        bint steps
        vb_sim *sim
        vb_sim_attachment **attachment
        int (*interrupted)() noexcept nogil
    int vb_sim_crossing_give(vb_sim_crossing *crossing, int want)
    int vb_sim_crossing_await(vb_sim_crossing *crossing)
    void vb_sim_crossing_end(vb_sim_crossing *crossing)
    int vb_sim_crossing_turn(vb_sim_attachment *attachment)
    void vb_sim_crossing_serve(void *crossing)

cdef extern from "<errno.h>" nogil:
    int EDEADLK

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *at, size_t size, int protection, int flags, int fd, long offset)
    int munmap(void *at, size_t size)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED

cdef enum:
    TO_WORLD = 0
    TO_PROGRAM = 1
    CACHE_LINE = 64

NOTHING_LEFT = -EDEADLK


from verbena.sim.errors import WorldEnded


cdef int _interrupted() noexcept nogil:
    """Return whether a signal's handler has raised; it is raised again when the wait is over."""
    with gil:
        try:
            PyErr_CheckSignals()
        except BaseException:
            PyErr_SetInterrupt()
            return 1
    return 0


cdef size_t _aligned(size_t size) noexcept:
    return (size + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


cdef vb_sim_segment *_map_segment(int fd) except NULL:
    cdef size_t size = os.fstat(fd).st_size
    cdef void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    if at == MAP_FAILED:
        raise OSError(errno, "a segment cannot be mapped")
    return <vb_sim_segment *>at


cdef vb_sim_page *_page_of(vb_sim_segment *segment, uint32_t number) noexcept:
    return <vb_sim_page *>(<char *>segment + segment.page[number])


cdef list _read_letters(vb_sim_segment *segment, int direction):
    """Take the letters, each of which begins with its length in 4 bytes."""
    cdef bytes written = (<char *>segment.letters[direction])[:segment.written[direction]]
    cdef Py_ssize_t at = 0
    found = []
    while at < len(written):
        size = int.from_bytes(written[at:at + 4], "little")
        found.append(written[at + 4:at + 4 + size])
        at += 4 + size
    segment.written[direction] = 0
    return found


cdef bint _write_letter(vb_sim_segment *segment, int direction, bytes letter) except -1:
    """Return False if there is no room before the next turn."""
    cdef bytes whole = len(letter).to_bytes(4, "little") + letter
    cdef uint32_t written = segment.written[direction]
    if len(whole) > VB_SIM_LETTERS:
        raise ValueError(f"a letter of {len(letter)} bytes does not fit")
    if written + len(whole) > VB_SIM_LETTERS:
        return False
    memcpy(&segment.letters[direction][written], <const char *>whole, len(whole))
    segment.written[direction] = written + len(whole)
    return True


# ---- the world's side ----------------------------------------------------------------------------

@cython.no_gc_clear
cdef class Crossing:
    """The world's side of a program's process, whose host has adapters with these ports each.

    ``fd``: the segment, which the process maps. ``lifeline``: a socket whose other end it has.
    """

    cdef readonly Attachments attachments
    cdef readonly int fd
    cdef vb_sim_crossing _crossing
    cdef size_t _size

    def __cinit__(self):
        self.fd = -1

    def __init__(self, Attachments attachments not None, ports, pkeys, int lifeline):
        cdef World world = attachments.world
        cdef size_t packet = _aligned(vb_sim_wire_packet_size(world._mtu))
        cdef size_t each = _aligned(sizeof(vb_sim_page)) + (VB_SIM_SPARES + 1) * packet
        cdef size_t first = _aligned(sizeof(vb_sim_segment))
        cdef vb_sim_page *page
        cdef uint32_t i
        groups = [tuple(own) for own in ports]
        for own in groups:
            _refuse_ports(attachments, own)
        self.attachments = attachments
        self._size = first + len(groups) * each
        self.fd = os.memfd_create("verbena-sim", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self._size)
        self._crossing.segment = _map_segment(self.fd)
        self._crossing.segment.version = VB_SIM_PROTOCOL_VERSION
        self._crossing.segment.pages = len(groups)
        self._crossing.sim = world._sim
        self._crossing.lifeline = lifeline
        self._crossing.interrupted = _interrupted
        left = list(pkeys)
        for i, own in enumerate(groups):
            self._crossing.segment.page[i] = first + i * each
            page = _page_of(self._crossing.segment, i)
            _fill_page(world, page, own)
            _fill_ports(world, page, left[:len(own)])
            left = left[len(own):]
            self._place(page, packet)
            self._attach(world, i, own)
        world._crossings.append(self)

    cdef int _place(self, vb_sim_page *page, size_t packet) except -1:
        """Say where the clock and the memory for packets are."""
        cdef uint32_t i
        cdef int64_t at = _aligned(sizeof(vb_sim_page))
        page.clock = <char *>&self._crossing.segment.now - <char *>page
        page.arrived = at
        for i in range(VB_SIM_SPARES):
            page.spare[i] = at + (i + 1) * <int64_t>packet
        return 0

    cdef int _attach(self, World world, uint32_t number, tuple hosts) except -1:
        cdef vb_sim_attachment *made
        _check(vb_sim_attach(world._sim, _page_of(self._crossing.segment, number), &made),
               "an attachment")
        made.serve, made.argument = vb_sim_crossing_serve, &self._crossing
        self._crossing.attachment[number] = made
        for host in hosts:
            world._attached[host] = hosts, <size_t>made
        return 0

    def __dealloc__(self):
        if self._crossing.segment is not NULL:
            munmap(self._crossing.segment, self._size)
        if self.fd >= 0:
            os.close(self.fd)

    def write(self, bytes letter not None):
        """Add a letter to the next turn of the program. False: there is no room."""
        return _write_letter(self._crossing.segment, TO_PROGRAM, letter)

    def run(self, int why):
        """Let the program run until it waits. ``why``: 1, it has something to do; 0, its time has
        come; NOTHING_LEFT. Returns the letters that it wrote and the time in ps until which it
        waits (None: for ever), or None as its process ends.

        Raises BrokenPipeError if the process has ended otherwise.
        """
        cdef vb_sim_crossing *of = &self._crossing
        cdef uint32_t i
        self.attachments.world._idle()
        for i in range(of.segment.pages):
            of.attachment[i].turn(of.attachment[i])
        of.segment.why = why
        of.steps = False
        with nogil:
            vb_sim_crossing_give(of, VB_SIM_WANT_RUN)
        PyErr_CheckSignals()
        if of.error:
            raise BrokenPipeError(-of.error, "the process has ended")
        of.steps = of.segment.want == VB_SIM_WANT_STEP
        if of.segment.want == VB_SIM_WANT_END:
            for i in range(of.segment.pages):
                of.attachment[i].page.is_open = False  # nobody takes what arrives
            return None
        letters = _read_letters(of.segment, TO_WORLD)
        return letters, None if of.segment.until == VB_WORLD_NEVER else of.segment.until


# ---- the program's side --------------------------------------------------------------------------

@cython.no_gc_clear
cdef class FarAttachments(Attachments):
    """The adapters of a host whose world is another process. ``fd``: the segment; ``lifeline``: a
    socket whose other end that process has.

    ``on_letter`` is called with each letter that comes. Raises OSError (EPROTO) for a world of
    another version, and WorldEnded, as all waits, if its process has ended.
    """

    cdef public object on_letter
    cdef vb_sim_crossing _crossing
    cdef vb_sim_attachment[VB_SIM_PAGES] _each
    cdef size_t _size

    def __init__(self, int fd, int lifeline):
        cdef uint32_t i
        self._descriptors, self._doubtful = {}, []
        self._size = os.fstat(fd).st_size
        self._crossing.segment = _map_segment(fd)
        self._crossing.side, self._crossing.lifeline = 1, lifeline
        self._crossing.interrupted = _interrupted
        if self._crossing.segment.version != VB_SIM_PROTOCOL_VERSION:
            raise OSError(EPROTO, "the world's process is of another version of Verbena")
        for i in range(self._crossing.segment.pages):
            self._each[i].page = _page_of(self._crossing.segment, i)
            self._each[i].turn = vb_sim_crossing_turn
            self._each[i].crossing = &self._crossing
            self._crossing.attachment[i] = &self._each[i]

    def __dealloc__(self):
        if self._crossing.segment is not NULL:
            vb_sim_crossing_end(&self._crossing)
            munmap(self._crossing.segment, self._size)

    def begin(self):
        """Wait for the first turn, and return the letters that come with it."""
        with nogil:
            vb_sim_crossing_await(&self._crossing)
        self._check_world()
        return _read_letters(self._crossing.segment, TO_PROGRAM)

    def end(self):
        """Give the turn away for ever."""
        vb_sim_crossing_end(&self._crossing)

    cdef int _check_world(self) except -1:
        PyErr_CheckSignals()
        if self._crossing.error:
            raise WorldEnded("the process of the simulated world has ended")
        return 0

    def at(self, *hosts, pkeys=()):
        """Return the Attachment whose ports are these hosts. Raises ValueError if another process
        has them."""
        cdef Attachment made = Attachment.__new__(Attachment)
        cdef vb_sim_page *page
        cdef uint32_t i, k
        made.attachments, made.hosts = self, hosts
        for i in range(self._crossing.segment.pages):
            page = self._each[i].page
            if hosts == tuple([page.port[k].host for k in range(page.ports)]):
                made._attachment = &self._each[i]
                return made
        raise ValueError(f"hosts {hosts} are in another process")

    def set_looped(self, bint looped):
        cdef uint32_t i
        for i in range(self._crossing.segment.pages):
            self._each[i].page.patience = LOOPED if looped else ALONE

    cdef uint64_t _now(self) noexcept:
        return self._crossing.segment.now

    cdef bint _has_readable(self) noexcept:
        cdef uint32_t i
        cdef const vb_sim_page *page
        for i in range(self._crossing.segment.pages):
            page = self._each[i].page
            # A program whose host has an inside runs when an interrupt has woken it.
            if page.readables and (page.woken or not page.port[0].counts):
                return True
        return False

    cdef int _doubt_readable(self) except -1:
        cdef vb_sim_page *page
        cdef uint32_t i, k
        for i in range(self._crossing.segment.pages):
            page = self._each[i].page
            if page.port[0].counts and not page.woken:
                continue
            if page.readables > VB_SIM_READABLES:
                for one in self._descriptors.values():
                    self._hear_of(one)
            else:
                for k in range(page.readables):
                    self._hear_of(self._descriptors.get(page.readable[k]))
            page.readables, page.woken = 0, False
        return 0

    def gather(self, ready, until=None):
        """Do as the world's own does. Letters are given to ``on_letter``, and end it."""
        why = Attachments.gather(self, ready, until)
        if self._has_readable():
            self._append_readable(ready)
        for letter in _read_letters(self._crossing.segment, TO_PROGRAM):
            self.on_letter(letter)
        return why

    cdef str _advance(self, uint64_t until):
        cdef vb_sim_segment *segment = self._crossing.segment
        segment.until = until
        with nogil:
            vb_sim_crossing_give(&self._crossing, VB_SIM_WANT_TIME)
        self._check_world()
        if segment.written[TO_PROGRAM]:
            return "time"
        return READABLE if segment.why > 0 else "time" if segment.why == 0 else "done"

    def ask(self, bytes letter not None):
        """Send a letter with the end of this turn; the next one is at once."""
        self.write(letter)
        self.pass_turn(self._now())

    def pass_turn(self, until=None):
        """Wait for a letter, for a descriptor or until a time in ps, without an event loop. Returns
        why it ended, as ``gather`` does."""
        why = self._advance(VB_WORLD_NEVER if until is None else until)
        for letter in _read_letters(self._crossing.segment, TO_PROGRAM):
            self.on_letter(letter)
        return why

    def write(self, bytes letter not None):
        """Send a letter with the end of this turn, or of one that ends at once."""
        while not _write_letter(self._crossing.segment, TO_WORLD, letter):
            self._advance(self._now())
