# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: the sockets of programs, as the core has them. sockets.py and tcp_sockets.py
# keep their bytes, and give each socket its news.

cdef extern from "sim/socket.h" nogil:
    enum:
        VB_SIM_PARCEL_HEAD
    struct vb_tcp_stream:
        uint64_t written
        uint64_t acked
        bint no_delay
        bint ended
        bint has_end
        uint64_t next
    struct vb_tcp_board:
        uint64_t first
    struct vb_tcp_sender:
        vb_tcp_board board
        double window
    struct vb_sim_connection:
        vb_tcp_sender sender
    struct vb_sim_socket:
        vb_sim_connection connection
        vb_tcp_stream stream
        vb_tcp_config config
        vb_sim_flow counts
        uint64_t low
        bint closed
    struct vb_sim_socket_ends:
        uint32_t *host
        uint16_t *port
        uint8_t level
        uint8_t kind
        uint64_t ack_delay
    struct vb_sim_parcel:
        uint32_t source
        uint32_t target
        uint64_t number
        uint32_t hash
        uint16_t payload
        uint8_t level
        uint8_t *head
    int vb_sim_sockets_open(vb_sim *sim, const vb_sim_socket_ends *ends, uint32_t *number)
    void vb_sim_sockets_close(vb_sim *sim, uint32_t number)
    vb_sim_socket *vb_sim_socket_find(const vb_sim *sim, uint32_t number)
    void vb_sim_socket_write(vb_sim *sim, vb_sim_socket *socket)
    void vb_sim_socket_read(vb_sim *sim, vb_sim_socket *socket, uint64_t taken, bint reading)
    void vb_sim_socket_control(vb_sim_socket *socket, uint8_t kind)
    uint64_t vb_sim_socket_arrived(const vb_sim_socket *socket, c_bool *end)
    uint8_t vb_sim_socket_take_news(vb_sim *sim, uint64_t *number)
    bint vb_tcp_stream_is_done(const vb_tcp_stream *stream, uint64_t first)
    int vb_sim_parcel_send(vb_sim *sim, const vb_sim_parcel *parcel)
    uint64_t vb_sim_host_backlog(const vb_sim *sim, uint32_t host)


@cython.no_gc_clear
cdef class SocketCore:
    """The sockets of a world's hosts, in numbers of bytes; all of them have one user."""

    cdef readonly World world

    def __init__(self, World world not None):
        self.world = world
        _check(vb_sim_keep_whole(world._sim), "sockets")

    @property
    def segment(self):
        """Bytes of a full segment."""
        return self.world._mss

    @property
    def window(self):
        """Bytes of the receive window."""
        return self.world._tcp_window

    @property
    def ack_delay(self):
        """The world's ``ack_delay`` in ps."""
        return self.world._nic.tcp.ack_delay

    def rate(self, uint32_t host):
        """Return the bits per second of a host's link, 0 without one."""
        cdef const vb_world_node *node = &self.world._world.node[<uint32_t>self.world._nodes[host]]
        return 0 if node.port[0] == VB_WORLD_NONE else self.world._world.port[node.port[0]].rate

    def is_infiniband(self, uint32_t host):
        """Return whether a host of the world has InfiniBand's framing."""
        return host in self.world._infiniband

    def open(self, uint32_t one, uint32_t other, int one_port, int other_port, uint64_t ack_delay):
        """Return the number of the socket of host ``one`` of a new connection; that of ``other``
        is one more."""
        cdef vb_sim_socket_ends ends
        cdef uint32_t number
        memset(&ends, 0, sizeof(ends))
        ends.host[0], ends.host[1] = one, other
        ends.port[0], ends.port[1] = one_port, other_port
        ends.kind, ends.ack_delay = VB_TCP_CUBIC, ack_delay
        _check(vb_sim_sockets_open(self.world._sim, &ends, &number), "a connection")
        return number

    def close(self, uint32_t number):
        """Free both sockets of a connection."""
        vb_sim_sockets_close(self.world._sim, number)

    cdef vb_sim_socket *_find(self, uint32_t number) except NULL:
        cdef vb_sim_socket *found = vb_sim_socket_find(self.world._sim, number)
        if found is NULL:
            raise KeyError(number)
        return found

    def write(self, uint32_t number, uint64_t count, bint ended=False):
        """Add bytes to a socket's stream, and perhaps its end."""
        cdef vb_sim_socket *socket = self._find(number)
        socket.stream.written += count
        socket.stream.ended = socket.stream.ended or ended
        vb_sim_socket_write(self.world._sim, socket)

    def read(self, uint32_t number, uint64_t taken, bint reading):
        """Say how much of the peer's stream the program has read, and whether it reads on."""
        vb_sim_socket_read(self.world._sim, self._find(number), taken, reading)

    def arrived(self, uint32_t number):
        """Return the bytes of the peer's stream that have arrived, and whether its end has."""
        cdef c_bool end
        cdef uint64_t bytes = vb_sim_socket_arrived(self._find(number), &end)
        return bytes, end

    def unacked(self, uint32_t number):
        """Return the written bytes that are not acknowledged."""
        cdef vb_sim_socket *socket = self._find(number)
        return socket.stream.written - socket.stream.acked

    def is_done(self, uint32_t number):
        """Return whether a socket's stream has ended and all of it is acknowledged."""
        cdef vb_sim_socket *socket = self._find(number)
        return vb_tcp_stream_is_done(&socket.stream, socket.connection.sender.board.first)

    def ask_room(self, uint32_t number, low):
        """Have news when no more than so many bytes are unacknowledged. None: not any more."""
        self._find(number).low = <uint64_t>-1 if low is None else low

    def set_closed(self, uint32_t number):
        """The program reads no more; bytes that come are news."""
        self._find(number).closed = True

    def set_no_delay(self, uint32_t number, bint value):
        """Set TCP_NODELAY."""
        cdef vb_sim_socket *socket = self._find(number)
        socket.stream.no_delay = value
        vb_sim_socket_write(self.world._sim, socket)

    def set_ack_delay(self, uint32_t number, uint64_t delay):
        """Set the delay of acknowledgements in ps."""
        self._find(number).config.ack_delay = delay

    def set_control(self, uint32_t number, str name):
        """Set the congestion control of both sockets' sending. Raises KeyError."""
        cdef int kind = CONTROLS[name]
        vb_sim_socket_control(self._find(number), kind)

    def counts(self, uint32_t number):
        """Return retransmitted segments, expirations of the timer, and the congestion window."""
        cdef vb_sim_socket *socket = self._find(number)
        return socket.counts.end[0].resent, socket.counts.timeouts, socket.connection.sender.window

    def send(self, uint32_t source, uint32_t target, uint64_t number, uint16_t payload,
             uint32_t hash, bytes head):
        """Send a parcel from one host to another; ``payload`` is the bytes after its IP header."""
        cdef vb_sim_parcel parcel
        memset(&parcel, 0, sizeof(parcel))
        parcel.source, parcel.target, parcel.number = source, target, number
        parcel.payload, parcel.hash = payload, hash & 0xffffff
        memcpy(parcel.head, <const char *>head, min(len(head), <size_t>VB_SIM_PARCEL_HEAD))
        _check(vb_sim_parcel_send(self.world._sim, &parcel), "a packet")

    def backlog(self, uint32_t host):
        """Return the ps until a host's link has sent what it was given."""
        return vb_sim_host_backlog(self.world._sim, host)

    def news(self):
        """Return and forget what has happened: pairs of a number and enum vb_sim_news."""
        cdef uint64_t number
        cdef uint8_t what
        found = []
        while True:
            what = vb_sim_socket_take_news(self.world._sim, &number)
            if not what:
                return found
            found.append((number, what))
