# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""The compiled binding of the shared medium, ``src/native/cable``.

``csma.py`` and ``medium.py`` check what is passed here, and say what went wrong in sentences.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

include "_cable_abi.pxi"


cdef class CableState:
    """The stations of one cable or hub. Times are picoseconds."""

    cdef vb_cable cable
    cdef vb_cable_entry *log
    cdef uint32_t capacity

    def __cinit__(self, places, *, uint64_t bit_ps, uint64_t seed, uint32_t slot_bits,
                  uint32_t gap_bits, uint32_t header_bits, uint32_t jam_bits,
                  uint32_t fragment_bits, uint32_t tries, uint32_t doublings, bint star,
                  bint ideal, bint log_collisions):
        cdef vb_cable_config config = vb_cable_config(
            bit_ps, seed, slot_bits, gap_bits, header_bits, jam_bits, fragment_bits, tries,
            doublings, star, ideal, log_collisions
        )
        cdef uint32_t count = len(places), i
        cdef uint64_t *place = <uint64_t *>malloc(max(count, 1) * sizeof(uint64_t))
        cdef int error
        self.capacity = 4 * count + 1024
        self.log = <vb_cable_entry *>malloc(self.capacity * sizeof(vb_cable_entry))
        if place is NULL or self.log is NULL:
            free(place)
            raise MemoryError
        try:
            for i in range(count):
                place[i] = places[i]
            error = vb_cable_open(&self.cable, &config, count, place)
        finally:
            free(place)
        if error != 0:
            raise ValueError(f"src/native/cable refuses these settings: {-error}")

    def __dealloc__(self):
        vb_cable_close(&self.cable)
        free(self.log)

    cdef int know(self, uint32_t station) except -1:
        if station >= self.cable.stations:
            raise IndexError(f"there is no station {station}")
        return 0

    def offer(self, uint32_t station, uint64_t now, uint64_t born, uint32_t bits, uint64_t token):
        """Gives a station its next frame, of so many bits behind the header; False: it has one."""
        self.know(station)
        return vb_cable_offer(&self.cable, station, now, born, bits, token) == 0

    def source(self, uint32_t station, uint64_t now, uint32_t bits, uint64_t mean_ps):
        """Lets a station make frames: always the next one, or a Poisson stream; False: it has."""
        self.know(station)
        return vb_cable_source(&self.cable, station, now, bits, mean_ps) == 0

    @property
    def next_at(self):
        """When ``run`` has something to work out; None: no station has a frame."""
        cdef uint64_t at = vb_cable_next(&self.cable)
        return None if at == VB_CABLE_NEVER else at

    def run(self, uint64_t until, uint64_t frames=0xFFFFFFFFFFFFFFFF):
        """Works out what becomes of frames up to ``until``; comes back earlier after ``frames``
        frames were sent, or with about a thousand results, of which the list has (outcome,
        station, start, end, token, collisions)."""
        cdef uint32_t count, i
        cdef vb_cable_entry *entry
        count = vb_cable_run(&self.cable, until, frames, self.log, self.capacity)
        result = []
        for i in range(count):
            entry = &self.log[i]
            result.append((entry.outcome, entry.station, entry.start, entry.end, entry.token,
                           entry.collisions))
        return result

    def run_counting(self, uint64_t until, uint64_t frames):
        """The same without results: what happens is in the counters."""
        with nogil:
            vb_cable_run(&self.cable, until, frames, NULL, 0)

    def counters(self, uint32_t station):
        """Of one station: sent, sent bits, collisions, deferred, excessive, late, crossed, and the
        picoseconds that frames that were sent waited."""
        self.know(station)
        cdef const vb_cable_counters_t *of = vb_cable_counters(&self.cable, station)
        return (of.sent, of.sent_bits, of.collisions, of.deferred, of.excessive, of.late,
                of.crossed, of.waited_ps)

    @property
    def collisions(self):
        """Of the whole medium: two stations that collide once are one."""
        return self.cable.collisions

    @property
    def runs(self):
        """Sequences of frames that one station sent without another's frame between them."""
        return self.cable.runs

    @property
    def last_end(self):
        """The end of the last frame that was sent."""
        return self.cable.last_end
