# SPDX-License-Identifier: Apache-2.0
# What _world.pyx uses of tcp/config.h.

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


cdef int _fill_tcp(vb_tcp_config *to, dict given, uint32_t mtu) except -1:
    to.mss = _count("mss", given.pop("mss", min(to.mss, mtu)), 64, mtu)
    to.initial_window = _count("initial_window", given.pop("initial_window", to.initial_window),
                               1, 2**16)
    to.window = _count("window", given.pop("window", to.window), to.mss, 2**31)
    to.least_rto = _count("least_rto", given.pop("least_rto", to.least_rto), 1, 10**15)
    to.most_rto = _count("most_rto", given.pop("most_rto", max(to.most_rto, to.least_rto)),
                         to.least_rto, 10**16)
    to.first_rto = _count("first_rto", given.pop("first_rto", 0), 0, to.most_rto)
    to.retries = _count("retries", given.pop("retries", to.retries), 1, 1000)
    to.ack_delay = _count("ack_delay", given.pop("ack_delay", 0), 0, 5 * 10**11)
    to.dctcp_gain = given.pop("dctcp_gain", to.dctcp_gain)
    if not 0 < to.dctcp_gain <= 1:
        raise ValueError(f"dctcp_gain is {to.dctcp_gain!r}, and not above 0 and at most 1")
    ecn = given.pop("ecn", False)
    if not isinstance(ecn, bool):
        raise ValueError(f"ecn is {ecn!r}, and neither True nor False")
    to.ecn = ecn
    if given:
        raise ValueError(f"tcp: unknown keys {', '.join(sorted(given))}")
    return 0
