# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""Directed-route Gets and Sets that programs write to umadN, from the socket to the answer.

``UmadDevice`` calls ``serve`` for what a program has written. A sweep of a subnet manager is tens
of thousands of such requests, one after the other, so what is the same for all of them is compiled:
receiving, finding the way, counting and sending. What an attribute means is Python's
(``verbena.manage.agents.sma``), and so is every message that is not of the usual kind.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy, memset

from verbena.manage.agents.sma import ATTRIBUTES as _ATTRIBUTES
from verbena.manage.attribute_ids import SmpAttribute
from verbena.manage.mad import MAD_BYTES as _MAD_BYTES

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t send(int fd, const void *buffer, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef enum:
    # A MAD and the parts of an SMP (IBA 14.2.1.2); ROUTE_LIDS are DrSLID and DrDLID.
    MAD = 256
    METHOD = 3
    STATUS = 4
    HOPS = 7
    TRANSACTION = 8
    ATTRIBUTE = 16
    MODIFIER = 20
    ROUTE_LIDS = 32
    DATA = 64
    DATA_END = 128
    INITIAL_PATH = 129
    RETURN_PATH = 193
    MOST_HOPS = 63
    LONG_HEADER = 64
    # user_mad's header: time-out and LID. It is as long as LONG_HEADER, or shorter.
    TIMEOUT = 8
    LID = 28

cdef extern from *:
    """
    static const unsigned char usual_get[7] = {1, 0x81, 1, 1, 0, 0, 0};
    static const unsigned char usual_set[7] = {1, 0x81, 1, 2, 0, 0, 0};
    static const unsigned char permissive[4] = {0xff, 0xff, 0xff, 0xff};
    """
    const unsigned char usual_get[7]
    const unsigned char usual_set[7]
    const unsigned char permissive[4]

assert _MAD_BYTES == MAD
cdef int _SM_INFO = SmpAttribute.SM_INFO  # it may be for a program
cdef dict _GETS = {int(number): both[0] for number, both in _ATTRIBUTES.items()}
cdef dict _SETS = {int(number): both[1] for number, both in _ATTRIBUTES.items()}


cdef class DirectedSmps:
    """The directed-route requests of programs at an end port of a ``Subnet``.

    What it does with a request is what ``Subnet.inject`` does, without packets: the response does
    not go to the port's receiver.
    """

    cdef object subnet, node, book
    cdef int port
    cdef dict ways, with_traps

    def __init__(self, subnet, node, int port):
        self.subnet, self.node, self.port = subnet, node, port
        self.book, self.with_traps = subnet.routes, subnet.with_traps
        self.ways = subnet.routes.directed(node, port)

    cdef int answer_in_place(self, unsigned char *mad) except -1:
        """Makes the response of a request. 0: it is of another kind, and nothing was done."""
        cdef const unsigned char *source
        cdef Py_ssize_t hops = mad[HOPS], size
        cdef uint32_t modifier
        if memcmp(mad, usual_get, 7) and memcmp(mad, usual_set, 7):
            return 0
        if hops > MOST_HOPS or memcmp(mad + ROUTE_LIDS, permissive, 4):
            return 0
        cdef dict handlers = _GETS if mad[METHOD] == 1 else _SETS
        attribute = mad[ATTRIBUTE] << 8 | mad[ATTRIBUTE + 1]
        handler = handlers.get(attribute)
        if handler is None or attribute == _SM_INFO:
            return 0
        path = mad[INITIAL_PATH:INITIAL_PATH + hops]
        way = self.ways.get(path)
        if way is None:
            way = self.subnet.directed_way(self.node, self.port, path)
        end, node = way.end, way.node
        cdef dict ports = node.ports
        if way.problem is not None or way.is_lossy or end.m_key or end.lease_end is not None:
            return 0
        if not node.is_switch and len(ports) > 1:
            return 0  # each port has a key of its own
        at = ports.get(way.ingress)
        if at is None:
            return 0
        modifier = (<uint32_t>mad[MODIFIER] << 24 | <uint32_t>mad[MODIFIER + 1] << 16
                    | <uint32_t>mad[MODIFIER + 2] << 8 | mad[MODIFIER + 3])
        data = handler(node, at, modifier, mad[:MAD])
        mad[METHOD] = 0x81
        mad[STATUS] = 0x80
        if isinstance(data, int):
            mad[STATUS + 1] = data
        else:
            size = min(len(data), <Py_ssize_t>(DATA_END - DATA))
            source = data
            memcpy(mad + DATA, source, size)
            memset(mad + DATA + size, 0, DATA_END - DATA - size)
        if way.links:
            way.count(self.book, True)
        came_by = way.came_by
        source = came_by
        memcpy(mad + RETURN_PATH, source, hops)
        if self.with_traps:
            self.subnet.send_traps()
        return 1

    def answer(self, bytes mad not None):
        """Return the response to a MAD, or None if it is of another kind, and nothing was done."""
        cdef unsigned char made[MAD]
        cdef const unsigned char *source = mad
        if len(mad) != MAD or self.subnet.is_draining:
            return None
        memcpy(made, source, MAD)
        return made[:MAD] if self.answer_in_place(made) else None

    cdef int answer_message(self, unsigned char *message, Py_ssize_t size, dict agents,
                            dict headers) except -1:
        """The same for a message of user_mad with its header, which becomes that of the answer."""
        cdef const unsigned char *source
        cdef uint32_t number, timeout
        cdef Py_ssize_t header
        memcpy(&number, message, 4)
        memcpy(&timeout, message + TIMEOUT, 4)
        if not timeout or memcmp(message + LID, permissive, 2):
            return 0
        answers_with = headers.get(number)
        agent = agents.get(number)
        if answers_with is None or agent is None or agent.pending:
            return 0
        header = len(<bytes?>answers_with)
        if size != header + MAD or not self.answer_in_place(message + header):
            return 0
        source = answers_with
        memcpy(message, source, header)
        upper_half = agent.number
        source = upper_half
        memcpy(message + header + TRANSACTION, source, 4)
        return 1

    def serve(self, int fd, dict agents not None, dict headers not None, queue, int most):
        """Answer requests that are read from a socket, at most so many.

        Return the first message that is of another kind (empty: the program has closed the socket),
        False if there are no more messages, and True after ``most``. ``agents`` are by number, and
        ``headers`` go before their answers. ``queue`` is called with an answer that the socket
        does not take.
        """
        cdef unsigned char message[LONG_HEADER + MAD]
        cdef Py_ssize_t size
        if self.subnet.is_draining:
            most = 0
        for _ in range(most):
            size = recv(fd, message, sizeof(message), MSG_DONTWAIT)
            if size <= 0:
                return False if size < 0 and errno == EAGAIN else b""
            if size < MAD or not self.answer_message(message, size, agents, headers):
                return message[:size]
            if send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 and errno == EAGAIN:
                queue(message[:size])
                return True
        return True
