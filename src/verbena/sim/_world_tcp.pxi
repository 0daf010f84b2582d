# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: passes World(tcp=...), which world_settings.py has checked, to the core.

cdef extern from "tcp/config.h" nogil:
    enum:
        VB_TCP_RENO
        VB_TCP_CUBIC
        VB_TCP_DCTCP
    struct vb_tcp_config:
        uint32_t mss
        uint32_t initial_window
        uint64_t window
        uint64_t first_rto
        uint64_t least_rto
        uint64_t most_rto
        uint32_t retries
        uint64_t ack_delay
        double dctcp_gain
        bint ecn

CONTROLS = {"reno": VB_TCP_RENO, "cubic": VB_TCP_CUBIC, "dctcp": VB_TCP_DCTCP}


cdef int _fill_tcp(vb_tcp_config *to, object given, uint32_t mtu) except -1:
    to.mss = given.segment(mtu)
    to.initial_window, to.window = given.initial_window, given.window
    to.first_rto, to.least_rto, to.most_rto = given.first_rto, given.least_rto, given.longest_rto
    to.retries, to.ack_delay = given.retries, given.ack_delay
    to.dctcp_gain, to.ecn = given.dctcp_gain, given.ecn
    return 0
