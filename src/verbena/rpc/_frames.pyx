# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""What runs for each frame of a link and each record of a ring: it is packed, posted and taken.

``Link``, ``RingWriter`` and ``RingReader`` derive from these classes and do everything else. A
frame has the layout of ``frames.FRAME``; ``frames.py`` says what the numbers mean.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from verbena.verbs import VerbsError

cdef extern from *:
    """
    #include <endian.h>
    #include <stdint.h>

    /* The peer's adapter writes the word last, so that what precedes it is there. */
    static inline uint64_t load_word(const void *at)
    {
        return le64toh(__atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE));
    }
    """
    uint64_t load_word(const void *at) noexcept nogil
    uint16_t htole16(uint16_t number) nogil
    uint32_t htole32(uint32_t number) nogil
    uint64_t htole64(uint64_t number) nogil
    uint16_t le16toh(uint16_t number) nogil
    uint32_t le32toh(uint32_t number) nogil
    uint64_t le64toh(uint64_t number) nogil

cdef packed struct Header:
    uint8_t kind
    uint8_t flags
    uint16_t method
    uint32_t credits
    uint64_t call
    uint64_t count
    uint32_t length
    uint32_t taken

cdef enum:
    RECEIVES_BITS = 32
    REQUEST = 3
    DONE = 9
    CREDIT = 10
    SPECIAL = 1 | 2  # in parts, or to be fetched
    WORD = 8  # bytes


cdef inline void write_header(Header *header, uint8_t kind, uint8_t flags, uint16_t method,
                              uint32_t credits, uint64_t call, uint64_t count, uint32_t length,
                              uint32_t taken) noexcept nogil:
    header.kind = kind
    header.flags = flags
    header.method = htole16(method)
    header.credits = htole32(credits)
    header.call = htole64(call)
    header.count = htole64(count)
    header.length = htole32(length)
    header.taken = htole32(taken)


cdef inline int bucket_of(size_t length) noexcept nogil:
    """As memory.bucket_of."""
    cdef int bucket = 0
    while (<size_t>64 << bucket) < length:
        bucket += 1
    return bucket


cdef class FrameEnd:
    """The part of a link that runs for each frame. Its fields are the link's, which sets them."""

    cdef public object ended, on_frame, on_ring
    cdef public long long taken, told, held
    cdef public bint holds
    cdef public long long _credits, _sent, _completed, _slots, _owed, _half
    cdef public object _outbox, _leaving, _post, _out, _receives
    cdef list _by_slot
    cdef char *_to
    cdef const char *_from
    cdef size_t _to_size, _from_size, _most

    def _use_memory(self, out, receives, post):
        """Take frames from ``receives``, an OwnReceives, and send them from FrameSlots by a call of
        ``post``. The link closes both only once it has ended."""
        self._out, self._receives, self._post = out, receives, post
        self._by_slot = out.requests
        self._to = <char *><size_t>out.region.addr
        self._from = <const char *><size_t>receives.region.addr
        self._to_size, self._from_size = out.size, receives.size
        self._most = min(<size_t>out.inline, self._to_size) - sizeof(Header)

    def send(self, uint8_t kind, uint8_t flags, uint16_t method, uint64_t call, uint64_t count,
             payload):
        """Send a frame with a payload of at most ``room`` bytes, now or when there is a credit."""
        cdef Header *header
        cdef size_t size
        cdef long long slot
        if (self._credits <= 0 or self._outbox or self._sent - self._completed >= self._slots
                or self.ended is not None or type(payload) is not bytes):
            self._send_later(kind, flags, method, call, count, payload)
            return
        size = PyBytes_GET_SIZE(payload)
        self._credits -= 1
        if size > self._most:
            self._frame(kind, flags, method, call, count, size, payload)
            return
        slot = self._sent % self._slots
        header = <Header *>(self._to + slot * self._to_size)
        self.told = self.taken
        write_header(header, kind, flags, method, <uint32_t>self._owed, call, count,
                     <uint32_t>size, <uint32_t>self.taken)
        memcpy(header + 1, PyBytes_AS_STRING(payload), size)
        self._owed = 0
        self._sent += 1
        self._post_slot(slot, sizeof(Header) + size)

    cdef int _post_slot(self, long long slot, size_t length) except -1:
        request = (<list>self._by_slot[slot])[bucket_of(length)]
        if request is None:
            request = self._out.request(slot, length)
        try:
            self._post(request)
        except VerbsError:
            self._failed()
        return 0

    def completed(self, wc):
        """Take a completion: PollTarget."""
        cdef uint64_t slot = wc.wr_id
        if slot >> RECEIVES_BITS or self.ended is not None or not wc.is_success:
            self._requested(wc)
            return
        if self.held >= 0:
            self.give_back()
        cdef const Header *frame = <const Header *>(self._from + slot * self._from_size)
        cdef uint8_t kind = frame.kind, flags = frame.flags
        cdef uint32_t length = le32toh(frame.length), taken = le32toh(frame.taken)
        self._credits += le32toh(frame.credits)
        if taken:
            self.on_ring(taken)
        if kind == CREDIT:
            self._receives.post(slot)
        elif self.holds:
            self.held = slot
        else:
            self._owed += 1
        try:
            if kind < DONE and not flags & SPECIAL:
                self._take(frame, length)
            elif kind != CREDIT:
                self._special(kind, flags, le16toh(frame.method), le64toh(frame.call),
                              le64toh(frame.count), length, slot * self._from_size + sizeof(Header))
        except Exception as error:
            self.broken(error)
        if kind != CREDIT and not self.holds:
            self._receives.post(slot)
        self._go_on()

    cdef int _take(self, const Header *frame, uint32_t length) except -1:
        if length > self._from_size - sizeof(Header):
            raise ValueError(f"a frame of {length} bytes, more than its slot has")
        self.on_frame(frame.kind, frame.flags, le16toh(frame.method), le64toh(frame.call),
                      le64toh(frame.count),
                      PyBytes_FromStringAndSize(<const char *>(frame + 1), length))
        return 0

    cpdef _go_on(self):
        """After a completion: send what waited for it, and give credits back."""
        if self._outbox:
            self._flush()
        if self._owed >= self._half:
            self.tell()
        if self._leaving:
            self._wake_leaving()


cdef class RecordWriter:
    """The part of a ring's writer that runs for each record."""

    cdef public long long _written, _taken
    cdef public object _link
    cdef object _post
    cdef list _by_slot
    cdef char *_memory
    cdef const char *_wake
    cdef long long _slots
    cdef size_t _size

    def _use_memory(self, link, region, wake, requests):
        """Pack records into a region. ``wake``: the region whose first word is not 0 while the
        server polls. ``requests``: a list for each slot of SendWR by bucket, or None."""
        self._link, self._post, self._by_slot = link, link.post_record, requests
        self._memory = <char *><size_t>region.addr
        self._wake = <const char *><size_t>wake.addr
        self._slots = len(requests)
        self._size = region.length // self._slots

    def send(self, uint8_t flags, uint16_t method, uint64_t call, uint64_t count, data):
        """Write a request; False if the ring is full."""
        if self._link.ended is not None:
            return True  # the call fails with the link
        if self._written - self._taken >= self._slots:
            return False
        cdef long long slot = self._written % self._slots
        cdef size_t length = len(data)
        cdef size_t padded = (length + WORD - 1) & ~<size_t>(WORD - 1)
        cdef size_t before = sizeof(Header) + padded
        cdef char *end = self._memory + (slot + 1) * self._size - WORD
        cdef Header *header = <Header *>(end - before)
        cdef uint64_t word
        if before + WORD > self._size:
            raise ValueError(f"a record of {length} bytes, more than its slot has")
        if type(data) is not bytes:
            data = bytes(data)
        self._written += 1
        write_header(header, REQUEST, flags, method, 0, call, count, <uint32_t>length, 0)
        if padded:
            memset(end - WORD, 0, WORD)
        memcpy(header + 1, PyBytes_AS_STRING(data), length)
        word = htole64((<uint64_t>before << 32) | <uint32_t>self._written)
        memcpy(end, &word, WORD)
        request = (<list>self._by_slot[slot])[bucket_of(before + WORD)]
        if request is None:
            request = self._request(slot, before + WORD)
        self._post(request)
        if not load_word(self._wake):
            self._check()
        return True


cdef class RecordReader:
    """The part of a ring's reader that runs for each look at the ring and each record."""

    cdef public uint64_t _taken
    cdef public object _link
    cdef object _on_frame
    cdef const char *_memory
    cdef uint64_t _slots
    cdef size_t _size, _end

    def _use_memory(self, link, region, uint64_t slots, on_frame):
        """Take the records of a region, which has so many slots. ``link``: a FrameEnd."""
        self._link, self._on_frame = link, on_frame
        self._memory = <const char *><size_t>region.addr
        self._slots = slots
        self._size = region.length // slots
        self._end = self._size - WORD

    def _leave_memory(self):
        """Look no more."""
        self._memory = NULL

    def scan(self):
        """Take the records that are there, and return how many those were."""
        cdef int count = 0
        try:
            while self._is_there() and self._link.ended is None:
                count += 1
                self._take()
        except Exception as error:  # the client wrote something else
            self._link.broken(error)
            return 0
        return count

    cdef bint _is_there(self) noexcept:
        return (self._memory is not NULL and
                <uint32_t>load_word(self._memory + self._end) == <uint32_t>(self._taken + 1))

    cdef int _take(self) except -1:
        cdef size_t before = load_word(self._memory + self._end) >> 32
        cdef FrameEnd link = self._link
        cdef const Header *header
        cdef uint32_t length
        if before < sizeof(Header) or before > self._size - WORD:
            raise ValueError("a record that does not fit its slot")
        header = <const Header *>(self._memory + self._end - before)
        length = le32toh(header.length)
        if length > before - sizeof(Header):
            raise ValueError("a request that does not fit its record")
        data = PyBytes_FromStringAndSize(<const char *>(header + 1), length)
        flags, method = header.flags, le16toh(header.method)
        call, deadline = le64toh(header.call), le64toh(header.count)
        self._taken += 1
        self._end = (self._taken % self._slots + 1) * self._size - WORD
        link.taken = <uint32_t>self._taken
        self._on_frame(REQUEST, flags, method, call, deadline, data)
        if <uint32_t>(link.taken - link.told) >= self._slots // 2:
            link.tell()
        return 0
