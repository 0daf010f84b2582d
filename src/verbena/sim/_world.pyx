# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""The compiled binding of the simulated fabric: hosts, switches, links, flows, and the run.

It passes settings to the core in C (src/native/sim and src/native/event) and copies what was
measured. One thread at a time uses a World; ``run`` releases the interpreter's lock. The files
_world_*.pxi are parts of this module.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetInterrupt
from libc.errno cimport EBUSY, EHOSTUNREACH, EINVAL, ELOOP, EMSGSIZE, ENOMEM, ENOSPC, \
    EOPNOTSUPP, EPROTO, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import os
import weakref
from array import array
from heapq import heappop, heappush

import numpy as np

include "_world_tcp.pxi"
include "_world_abi.pxi"

include "_world_rows.pxi"
UNLIMITED = 2**32 - 1

cdef enum:
    SAMPLES_DEFAULT = 1 << 28  # bytes of the records of one sampler
    SLICE = 200000  # events after which signals are checked
    FRAME_OVERHEAD = 106  # the most that framing and headers add to a payload of data


include "_world_settings.pxi"


include "_world_switches.pxi"
include "_world_congestion.pxi"
include "_world_flows.pxi"
include "_world_samples.pxi"
include "_world_addresses.pxi"


cdef class World:
    """A fabric in virtual time. Times are whole picoseconds, rates bits per second, sizes bytes.

    Add hosts and switches, connect them, set the routes of the switches (``build`` does all of this
    for a fabric of ``verbena.fabrics``), add flows, and ``run``.

    ``seed``: of everything that is random; runs with one seed are equal to the byte.
    ``framing``: the bytes that a packet takes on a link beside its payload: "ethernet" (RoCE v2,
    with preamble and gap), "infiniband" (LRH and CRCs; GRH for multicast), or "bare" (only the
    payload; a packet without one takes 64 bytes).

    These apply to every connection. ``mtu``: bytes. ``timeout``: 4.096 us * 2**timeout; 0 for none.
    ``retry_count``: with 0, a lost packet ends the connection. ``rd_atomic``: outstanding READs.
    ``window``: bytes in flight (1 MiB). ``ack_bytes``: one acknowledgement for so many bytes.
    ``burst``: packets before the next connection has its turn. ``recovery``: after a loss,
    everything from the lost packet on is repeated ("go-back-n"), or the whole message
    ("go-back-0").

    ``congestion``: None, or how senders react to marks.
    {"kind": "dcqcn", "set": "paper" or "adapter", ...fields of vb_dcqcn_config}.
    {"kind": "cct", "gaps": [packet times], "limit", "increase" (1), "timer" (150 * 1.024 us), "min"
    (0), "trigger" (0: none), "levels": {service level: {its own values of the last four}}}. A gap
    is rounded to what a table's entry can express: eighths up to 2047, at most 16383.
    {"kind": "hpcc", "base_rtt": ps, "target", "stages", "add"}: by the telemetry of switches.
    Each may have "notice_interval" (50 us for dcqcn, otherwise 0), the time between two
    notifications (CNP or BECN) of a connection. ``notice_level``: the service level of
    notifications; None for that of the connection's acknowledgements.

    ``hop_limit``: the hop limit of all packets, up to 255. Each switch decrements it and drops the
    packet at 0, so forwarding tables may have loops. 0: no limit, and flows into a loop are
    refused.

    ``tcp``: of flows over TCP: {"mss" (1460, at most the mtu), "initial_window" (10 segments),
    "window" (16 MiB), "least_rto" (200 ms), "most_rto" (60 s), "first_rto" (as least_rto),
    "retries" (15), "ack_delay" (0: every segment is acknowledged at once), "ecn" (False; DCTCP uses
    it always), "dctcp_gain" (1/16), "jitter": the most ps of a random delay before a flow begins
    and before a sender processes an acknowledgement (default: the time of a full segment on the
    slowest link of the flow's path; 0: none)}.
    ``sockets``: "control": streams of programs take a constant time, beside the fabric; "tcp": they
    are TCP, and datagrams UDP, over the links of the fabric.

    ``doorbell``: ps until an adapter sees new requests. ``bus_rate``: bits/s at which an adapter
    reads payload from memory (0: at once). ``receive_latency``: ps from a packet's arrival to its
    processing.

    A host may have its own ``congestion``, ``notice_level`` and these three (``add_host``).

    ``threads``: the most that run the world, each a part of its nodes, where there is enough to do.
    None: fewer than the idle processors. No result depends on it, but ``events`` may. One runs a
    world with programs, served nodes, groups, reservations, or flows over UC, UD or TCP.

    Raises ValueError for values that are not allowed, and TypeError for an unknown keyword.
    """

    cdef vb_sim *_sim
    cdef vb_world *_world
    cdef bint _busy
    cdef uint32_t _frame, _mtu, _groups
    cdef bint _waits, _detours_packets, _goes_down, _promises
    cdef dict _adapter  # the settings of hosts that have none of their own
    cdef list _calls  # a heap of (time, number, function)
    cdef uint64_t _called
    cdef int _framing
    cdef object _programs  # ProgramGroups; None: no program has joined a group
    cdef set _infiniband  # the hosts with this framing
    cdef object _lids  # Lids; None: all hosts have their number + 1
    cdef object _shared  # Blocks; None: there are no routes yet
    cdef dict _tables  # by switch: its Table
    cdef tuple _addresses  # of all hosts; None: to be read again
    cdef bint _has_detours, _serving
    cdef dict _served  # by node: the function that takes its management packets
    cdef dict _gates  # by port: the P_Keys that it lets in and out, which the core reads
    cdef object _on_refused  # called for a packet that a gate refuses; or None
    cdef uint64_t _mads_lost, _seed
    cdef object _raised  # an exception of such a function, for the next run
    cdef uint32_t _patience  # vb_sim_page.patience
    cdef readonly str sockets  # how asyncio's connections of programs reach other hosts
    cdef dict _insides  # by host that has one: its InsideSettings, and programs' costs by name
    cdef object _nic  # the settings of hosts' adapters
    cdef dict _adapters  # by host that has its own: its framing, and the settings of its adapter
    cdef object _nodes  # by host: its node
    cdef list _crossings  # to programs in other processes
    cdef dict _attached  # by host: the ports of the adapter that it is a port of, and where that is
    cdef list _wire  # by host: the bytes of a link that a packet of an MTU takes at most
    cdef uint64_t _window, _tcp_window, _mss  # bytes; _window is 0 for HPCC, which computes its own

    def __cinit__(self, seed=0, threads=None, **keywords):
        cdef vb_sim_config config = vb_sim_defaults()
        given = _settings_of("world_settings", keywords)
        config.seed = self._seed = _count("seed", seed, 0, 2**64 - 1)
        config.framing = self._framing = FRAMINGS[given.framing]
        self._infiniband, self._wire, self._tables, self._served = set(), [], {}, {}
        self._adapters, self._attached, self._nodes = {}, {}, array("I")
        self._crossings, self._gates, self._insides, self._calls = [], {}, {}, []
        config.mtu = self._mtu = given.mtu
        self._frame = self._mtu + (0 if self._framing == VB_SIM_BARE else FRAME_OVERHEAD)
        config.timeout = given.timeout
        self._waits = not given.timeout  # RC waits for ever
        config.retry_cnt = given.retry_count
        config.rd_atomic = given.rd_atomic
        config.engine.window_bytes = self._window = given.window
        config.engine.ack_bytes = given.ack_bytes
        config.engine.burst = given.burst
        config.engine.restart = RECOVERIES[given.recovery]
        config.hop_limit = given.hop_limit
        self._nic, self.sockets = given, given.sockets
        self._adapter = {name: getattr(given, name) for name in ADAPTER}
        _fill_nic(&config.nic, given)
        if config.nic.congestion.kind == VB_CONGESTION_HPCC:
            self._frame += VB_HPCC_BYTES
            self._window = 0
        if given.tcp.jitter is not None:
            config.tcp_jitter = given.tcp.jitter
        _fill_tcp(&config.tcp, given.tcp, given.mtu)
        self._tcp_window, self._mss = config.tcp.window, config.tcp.mss
        _check(vb_sim_create(&config, &self._sim), "the world")
        self._world = vb_sim_world(self._sim)
        self._world.threads = _threads(threads)

    def __dealloc__(self):
        if self._sim is not NULL:
            vb_sim_destroy(self._sim)

    cdef uint32_t _blocks(self):
        """Return the bytes that a packet takes of credits, which are whole blocks."""
        cdef uint32_t block = VB_WORLD_CREDIT_BLOCK
        return (self._frame + block - 1) // block * block

    cdef int _idle(self) except -1:
        """Raise RuntimeError if another thread runs the world: run() releases the interpreter's
        lock."""
        if self._busy:
            raise RuntimeError("the world is running in another thread")
        return 0

    # ---- what there is ----------------------------------------------------------------------

    def add_host(self, framing=None, **adapter):
        """Add a host with one port, number 0, and return its node.

        Hosts are also numbered by themselves, from 0. ``framing``: that of the host's packets, in
        place of the world's. Flows and programs reach a host with "infiniband" only from such a
        host. ``adapter``: what the host's adapter has in place of the world's ``congestion``,
        ``notice_level``, ``doorbell``, ``bus_rate`` or ``receive_latency``. Raises TypeError for
        another keyword, and ValueError, also for an InfiniBand host beyond the 49,151 unicast LIDs.
        """
        cdef uint32_t node
        cdef vb_nic_config config
        cdef int chosen = self._framing if framing is None else \
            _choice(FRAMINGS, "framing", framing)
        self._idle()
        own = self._nic
        if adapter:
            own = _settings_of("host_settings", {**self._adapter, **adapter})
            _check_hpcc(self._adapter["congestion"], own.congestion)
            _fill_nic(&config, own)
        if chosen == VB_SIM_INFINIBAND:
            _refuse_lid(self)
        _check(vb_sim_add_host(self._sim, &node), "a host")
        _check(vb_sim_set_framing(self._sim, self._world.hosts - 1, chosen), "framing")
        if adapter:
            _check(vb_sim_set_nic(self._sim, self._world.hosts - 1, &config), "a host")
        if chosen == VB_SIM_INFINIBAND:
            self._infiniband.add(self._world.hosts - 1)
        if adapter or framing is not None:
            self._adapters[self._world.hosts - 1] = chosen, own
        self._nodes.append(node)
        self._wire.append(vb_sim_wire_bytes(chosen, VB_BTH + VB_RETH + VB_IMM, self._mtu))
        _add_default_lid(self, node)
        return node

    def inside(self, host, **keywords):
        """Give a host an inside: its requests, packets and completions cost PCIe transactions and
        processor time.

        ``host``: its number, or in words "h0". ``keywords``: "cpu", "pcie" (also a
        ``verbena.host.Pcie``), "iommu", "cache", "interrupts", "hca" and "slices", the fields of
        ``verbena.sim.inside.InsideSettings``; times in ps or as "900 ns". The host has no flow and
        no program yet. Hosts without an inside stay as they are. Returns its
        ``verbena.sim.inside.Inside``. Raises ValueError, and TypeError for an unknown keyword.
        """
        self._idle()
        return _set_inside(self, host, keywords)

    def add_switch(self, ports, **keywords):
        """Add a switch with so many ports, and return its node.

        Without ``lanes`` each port has one lossy queue of ``buffer`` bytes (0: no limit), which
        marks packets by ``mark`` = (Kmin, Kmax, Pmax). With lanes, each is a dictionary. Its "flow"
        is "lossy" (with "alpha", a queue may take that multiple of the free part of the shared
        ``buffer``), "credits" ("room": bytes of each input's buffer) or "pauses" ("stop", "go",
        "spare": xoff, xon and headroom in bytes of an input). Each may have a "mark".
        ``high``, ``low``, ``high_limit``: the tables of (lane, weight) by which lanes send (IBA
        7.6.9). With ``remembers``, a low table keeps a lane's deficit, as ETS does.
        A packet's lane is its service level modulo the number of lanes (see set_lanes).
        ``turns``: an output takes packets of each "input" in turn, as a crossbar does, or in the
        order of their "arrival", as one queue in shared memory.
        ``watchdog``: {"detect", "restore" (ps), "action"}: a lane that was paused and has sent
        nothing for "detect" drops ("drop") or sends ("forward") all packets, until it was not
        paused for "restore".
        ``floods``: a packet without a port in the table leaves by all ports except that of its
        arrival.
        ``balance``: one of several ports to a host is chosen by a hash of the "flow", or at random
        for each "packet".
        ``cut_through``: bytes after which a packet is forwarded, if all ports have one rate.
        ``lifetime``: ps after which a packet at the head of a queue is dropped.
        ``fecn``: bytes of a queue above which packets get FECN, at the "root" of a congestion,
        where the lane has credits (IBA A10). With ``fecn_at`` = "output" its victims are marked,
        too; with "input", packets are marked by the bytes in the buffer of their input.
        ``fecn_rate``: Marking_Rate, the mean number of eligible packets between two that are
        marked. ``fecn_victims``: Victim_Mask, a list of ports or "hosts" for all ports to hosts, at
        which victims are marked with "root", too.
        ``management``: bytes of each output's queue for VL15, which precedes all lanes, has no flow
        control, and drops packets when it is full.

        Raises ValueError, and TypeError for an unknown keyword.
        """
        cdef vb_world_switch_config config
        cdef vb_world_switch *sw
        cdef uint32_t node, i
        self._idle()
        given = _settings_of("switch_settings", {"ports": ports, **keywords})
        _fill_switch(&config, given)
        for i in range(config.lanes):
            if config.lane[i].flow.flow_control == VB_WORLD_CREDITS and \
                    config.lane[i].flow.room < self._blocks():
                raise ValueError(f"lane {i}: room is {config.lane[i].flow.room}: a packet of "
                                 f"{self._frame} bytes, or {self._blocks()} in whole blocks of "
                                 "credit, would wait for ever")
        _check(vb_world_switch_create(&config, &sw), "a switch")
        _check(vb_world_add_switch(self._world, sw, &node), "a switch")
        if not config.fecn_to_hosts:
            for port in given.fecn_victims:
                _check(vb_world_switch_set_victim(sw, port), "a switch")
        return node

    def connect(self, a, a_port, b, b_port, *, rate, delay, bit_error_rate=0.0,
                pause_response=0, extender=0):
        """Connect two ports by a link of ``rate`` bits/s and ``delay`` ps in each direction.

        ``bit_error_rate``: the probability that a bit is wrong. ``pause_response``: ps until an end
        obeys a pause frame. ``extender``: the bytes of buffer for each lane in each of a pair of
        range extenders, one at each end of the link. Credits then are exchanged between an end and
        its extender, and between the two extenders, where the whole buffer counts. Returns the
        extenders' nodes, the one at ``a`` first, or None without extenders. Raises ValueError.
        """
        if _count("extender", extender, 0, 2**32 - 1):
            return _connect_far(self, a, a_port, b, b_port, rate, delay, bit_error_rate, extender)
        self._connect(a, a_port, b, b_port, rate, delay, bit_error_rate, pause_response)

    cdef int _connect(self, object a, object a_port, object b, object b_port, object rate,
                      object delay, object bit_error_rate, object pause_response) except -1:
        cdef vb_world_link link
        cdef int error
        self._idle()
        if not isinstance(bit_error_rate, (int, float, np.integer, np.floating)) or \
                not 0 <= bit_error_rate < 1:
            raise ValueError(f"bit_error_rate is {_shown(bit_error_rate)}, "
                             "and not a number from 0 to below 1")
        link.rate = _count("rate", rate, 1, 10**15)
        link.delay = _count("delay", delay, 0, 10**12)
        link.bit_error_rate = bit_error_rate
        link.pause_response = _count("pause_response", pause_response, 0, 10**12)
        for node, port in ((a, a_port), (b, b_port)):
            self._port_of(node, port)
        error = vb_world_connect(self._world, a, a_port, b, b_port, &link)
        if error == -EBUSY:
            raise ValueError(f"port {a_port} of node {a} or port {b_port} of node {b} is in use")
        if error == -EINVAL:
            raise ValueError(f"node {a} and node {b} do not go together: one node, or switches "
                             "with different numbers of lanes")
        _check(error, "a link")
        return _set_reservable(self._world) if self._promises else 0

    cdef int _port_of(self, object node, object port) except -1:
        _number("node", node, self._world.nodes)
        _number("port", port, self._world.node[<uint32_t>node].ports, f" of node {node}")
        return 0

    def set_link(self, node, port, up, at):
        """The link at this port goes up or down at a time in ps, in both directions.

        Raises TypeError if ``up`` is not a bool, and ValueError.
        """
        self._idle()
        self._port_of(node, port)
        if not isinstance(up, (bool, int, np.bool_)) or up not in (0, 1):
            raise TypeError(f"up is {_shown(up)}, and neither True nor False")
        time = _time("at", at, self._world.now, 2**62)
        if vb_world_set_link(self._world, node, port, up, time) == -EINVAL:
            raise ValueError(f"nothing is plugged into port {port} of node {node}")
        self._goes_down |= not up

    def call_at(self, at, function, *, looks=False):
        """Call ``function(world)`` at a time in ps, between two events of the run.

        It may change the world: set routes, add flows, call ``call_at`` again. An exception ends
        the run, which can be continued. The function is not called if the run ends earlier. While a
        program waits in a blocking call, it is called after that has returned. With ``looks`` the
        function changes nothing, and a run does not wait for it. Raises TypeError, ValueError.
        """
        self._idle()
        time = _time("at", at, self._world.now, 2**62)
        heappush(self._calls, (time, self._called, _called("function", function)))
        self._called += 1
        _check(vb_world_halt(self._world, time, looks), "a call")

    cdef int _call_due(self) except -1:
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error
        _serve_waiting(self)
        _tell_refused(self)
        while self._calls and self._calls[0][0] <= self._world.now:
            heappop(self._calls)[2](self)
        return 0

    def capture(self, node, port, path, size=VB_CAPTURE_BYTES_MOST):
        """Write what crosses the link at this port, in both directions, to a pcapng file from now
        on.

        Packets are RoCE v2 frames, and those of TCP flows TCP segments without a handshake.
        InfiniBand's are packets from the LRH to the VCRC, in records of ERF. Their time is that of
        the arrival at the link's end, and payloads are zeros. The first ``size`` bytes of each
        packet are kept, 64 to 4352, which is all. 128 bytes have all headers and make a small file;
        Wireshark reports packets with a payload as malformed then. Packets that leave by this port
        are outbound. Programs that read the file during the run find it consistent. An earlier
        capture is overwritten. Raises TypeError, ValueError, and OSError, also if the path has
        another kind of file.
        """
        cdef int error
        name = _path(path)
        self._idle()
        self._port_of(node, port)
        _count("size", size, VB_CAPTURE_BYTES_LEAST, VB_CAPTURE_BYTES_MOST)
        if self._world.node[<uint32_t>node].port[<uint32_t>port] == VB_WORLD_NONE:
            raise ValueError(f"nothing is plugged into port {port} of node {node}")
        error = vb_sim_capture(self._sim, node, port, name, size, _is_infiniband_link(self, node))
        if error == -EBUSY:
            raise ValueError(f"the link at port {port} of node {node} is captured already")
        if error:
            raise OSError(-error, vb_wrap_capture_problem(error).decode(), os.fsdecode(name))

    @property
    def captures_lost(self):
        """The number of packets that could not be written to captures."""
        return vb_sim_captures_lost(self._sim)

    cdef vb_world_switch *_switch_of(self, object node) except NULL:
        self._idle()
        _number("node", node, self._world.nodes)
        if self._world.node[<uint32_t>node].kind != VB_WORLD_SWITCH:
            raise ValueError(f"node {node} is not a switch")
        return self._world.node[<uint32_t>node].sw

    def set_routes(self, switch, ports, path=None):
        """Set the forwarding table of a switch. Row h of ``ports`` has the ports to host h.

        ``ports``: int32 of shape (hosts,) or (hosts, ways). -1 ends a row. A host whose row has no
        port cannot be reached from here, and packets to it are dropped. ``path``: the entries are
        those of this LID of each host, counted from its first; None for all of its LIDs. Entries
        for other LIDs stay. Routes may change between two runs or in a ``call_at``: packets that
        wait in a queue keep it, and later ones take the new path. Reservations of flows
        (``reserve``) keep their path. Raises ValueError.
        """
        _set_routes(self, switch, self._switch_of(switch), ports, path)

    def set_lids(self, nodes, lids, lmc=0):
        """Give hosts 2**``lmc`` LIDs each, or switches one, from these on, in place of their own.

        ``nodes`` and ``lids`` are numbers, or lists of one length. Without this, host h has LID
        h + 1, and a switch none. Connections that exist keep the LIDs with which they were made,
        and a program's adapter those that it was opened with. Forwarding tables do not change.
        Raises ValueError for LIDs that are not unicast, not aligned, or in use, for nodes that have
        none, and after ``set_detours``.
        """
        _set_lids(self, nodes, lids, lmc)

    def linear_block(self, switch, block):
        """Return 64 entries of a switch's table, for the LIDs from 64 * ``block`` on, as bytes.

        They are as in a LinearForwardingTable (IBA 14.2.5.6): a port, or 255 for none. Of several
        ports it is the first. Raises ValueError.
        """
        return _linear_block(self, switch, block)

    def set_linear_block(self, switch, block, ports):
        """Set 64 entries of a switch's table, as bytes or numbers; see ``linear_block``.

        Port 0 is the switch itself. The entry of LID 0 stays empty. Raises ValueError.
        """
        _set_linear_block(self, switch, block, ports)

    def set_lid_ports(self, switch, lids, ports):
        """Set the port of a switch for each of these LIDs; -1 for none. Raises ValueError."""
        _set_lid_ports(self, switch, lids, ports)

    def multicast_block(self, switch, block, position):
        """Return masks of ports for 32 multicast LIDs, from 0xc000 + 32 * ``block`` on.

        Bit k of a mask is port 16 * ``position`` + k, as in a MulticastForwardingTable (IBA
        14.2.5.9). Group n of ``add_group`` has LID 0xc000 + n. Raises ValueError.
        """
        return _multicast_block(self, switch, block, position)

    def set_multicast_block(self, switch, block, position, masks):
        """Set masks of ports for 32 multicast LIDs; see ``multicast_block``. Raises ValueError."""
        _set_multicast_block(self, switch, block, position, masks)

    def serve(self, node, function):
        """Have ``function(world, node, packet)`` called for each management packet of a node.

        These are packets to QP 0 and QP 1 of one of its LIDs, and directed-route SMPs that come to
        it, as doors.Mad. The function is called at the time of the arrival, before the next event,
        and what it returns is sent: a Mad, a list of them, or None. Without a function, or with
        None, such packets are dropped and counted by links(): ``dropped_route``. An exception ends
        the run, which can be continued. Raises TypeError, and ValueError for a node of Ethernet.
        """
        _serve(self, node, function, False)

    def serve_qp1(self, node, function):
        """Serve a node as ``serve`` does, or QP 1 of a host of Ethernet, which has no QP 0.

        The LIDs of a Mad of Ethernet are the numbers of the hosts plus 1, as in their addresses.
        """
        _serve(self, node, function, True)

    def send_qp1(self, node, packet):
        """Send a packet (doors.Mad) from QP 1 of a host of Ethernet to that of another, now.

        ``dlid`` and ``slid`` are as in ``serve_qp1``. Raises TypeError, ValueError.
        """
        _send_general(self, node, packet)

    def send_mad(self, node, packet):
        """Send a management packet (doors.Mad) of a node now. Raises TypeError, ValueError.

        A host sends by its port. A switch sends by ``packet.port``, or with port 0 by that of its
        table for the LID. SMPs are on VL15. A packet for which there is no link is counted by
        ``mads_lost``.
        """
        self._idle()
        _send_mad(self, node, packet, False)

    @property
    def mads_lost(self):
        """The number of management packets that their own node could not send."""
        return self._mads_lost

    def take_lids(self, nodes):
        """Let hosts and switches have no LID, as before a subnet manager has seen them.

        Packets to LIDs that they had before still belong to them, as far as tables lead to them.
        Raises ValueError as ``set_lids`` does.
        """
        _take_lids(self, nodes)

    def address(self, node):
        """Return the Address of a host's port, or of a switch's port 0. Raises ValueError."""
        return _address_of(self, node)

    def lane_count(self, switch):
        """Return the number of data lanes of a switch; 0: it has one queue without lanes."""
        return self._switch_of(switch).config.lanes

    def guard(self, node, port, *, takes=True, sends=True, keys_in=None, keys_out=None,
              interval=0, wakes=False):
        """Set what a port of InfiniBand lets through beside SMPs, as a subnet manager decides.

        ``takes`` and ``sends``: whether its state lets data in and out. A host whose port does not
        send waits, and goes on when it does; everything else that a port keeps back is lost, and
        counted by ``kept_back`` and by links(): ``dropped_route``. ``keys_in`` and ``keys_out``:
        8192 bytes, where bit k % 8 of byte k // 8 is set if packets with P_Key k pass; None for
        all. ``interval``: ps between two refused packets of which ``on_refused`` tells; 0: it tells
        of none. ``wakes``: it is told of the first packet that the port takes. Raises ValueError.
        """
        self._idle()
        _guard(self, node, port, takes, sends, keys_in, keys_out, interval, wakes)

    def kept_back(self, node, port):
        """Return how many packets a port has kept back: for their P_Key on the way in and out, and
        for the port's state on the way in and out. Raises ValueError."""
        return _kept_back(self, node, port)

    def on_refused(self, function):
        """Have ``function(node, port, packet)`` called when a port has refused a P_Key.

        ``packet``: its headers, in a Mad; None if it has woken an ARMED port. None: nobody is told.
        """
        self._on_refused = None if function is None else _called("function", function)

    def arbitrate(self, node, port, high, low, limit):
        """Set the VL arbitration of a port: lists of (lane, weight), and LimitOfHighPriority.

        Units are those of IBA 7.6.9: 64 bytes for a weight, and 4096 for the limit, 255 for none.
        Raises ValueError.
        """
        self._idle()
        _arbitrate(self, node, port, high, low, limit)

    def set_host_lanes(self, node, lanes):
        """Set the lane of each of 16 service levels on which a host sends. Raises ValueError."""
        self._idle()
        _set_host_lanes(self, node, lanes)

    def set_lanes(self, switch, lanes, by="level"):
        """Set the SL to VL table of a switch: uint8 of shape (ports in, ports out, 16 levels).

        With ``by`` = "lane" the last index is the lane on which a packet arrived. Raises
        ValueError.
        """
        _set_lanes(self, switch, lanes, by)

    def set_detours(self, group, *, adaptive=True, per="flow", threshold=0, gap=100_000_000):
        """Route packets to another group of switches through a random third group.

        ``group``: the number of the group of each node, without range extenders, which are behind
        all other nodes. Each group has a host. If not ``adaptive``, every packet makes the detour
        (Valiant and Brebner, 1981). Otherwise the first switch compares its queues towards both
        paths, each multiplied by the number of links: the packet makes the detour if the short
        path's is larger by ``threshold`` (UGAL-L, Kim et al., ISCA 2008). A queue is the bytes that
        wait and those whose credits have not returned.
        ``per``: all packets of a "flow" take one path until the flow pauses for ``gap`` ps; or each
        "packet" is decided by its PSN, and packets may overtake each other. Packets on VL15 make no
        detours. The caller sets lanes without a deadlock (see set_lanes; the routes of
        ``fabrics.route`` have them). Raises ValueError, also if detours are set already.
        """
        self._idle()
        _set_detours(self._world, group, adaptive, per, threshold, gap)
        self._detours_packets, self._has_detours = per == "packet", True

    def add_group(self, members, ports):
        """Add a multicast group and return its number, which is the target of flows with
        ``multicast``.

        ``members``: hosts, each with an attached UD queue pair. ``ports``: by the node of each
        switch, the ports by which the group's packets leave, except for the port of their arrival,
        as ``fabrics.multicast_tree`` computes them (see build.add_group). Raises ValueError for an
        unknown host, switch or port, and a host that is given twice.
        """
        cdef uint32_t group
        cdef uint32_t[:] hosts
        self._idle()
        named = [_number("host", host, self._world.hosts)
                 for host in _listed("members", members, "hosts")]
        if not named or len(set(named)) != len(named):
            raise ValueError("a group has members, and each of them once")
        if not hasattr(ports, "items"):
            raise ValueError(f"ports is {_shown(ports)}, and not a dictionary of lists of ports, "
                             "by the node of the switch")
        rows = {node: _listed("an entry of ports", given, "ports") for node, given in ports.items()}
        for node, row in rows.items():
            self._switch_of(node)
            for port in row:
                self._port_of(node, port)
        hosts = np.array(named, dtype=np.uint32)
        if self._groups == VB_MAX_GROUPS:
            raise ValueError(f"there are {VB_MAX_GROUPS} groups already")
        _check(vb_sim_add_group(self._sim, &hosts[0], len(named), &group), "a group")
        self._groups = group + 1
        for node, row in rows.items():
            self._set_group(node, group, sorted(set(row)))
        return group

    cdef int _set_group(self, object node, uint32_t group, list row) except -1:
        cdef uint16_t[::1] ports = np.array(row or [0], dtype=np.uint16)
        return _check(vb_world_switch_set_group(self._switch_of(node), group, &ports[0], len(row)),
                      "a group")

    def pause_storm(self, host, start=None, end=None, *, lane=0):
        """The adapter of a host (a node) fails, and pauses a lane of its switch endlessly.

        ``start`` (default: now) and ``end`` (None: never) are in ps. Raises ValueError for a node
        that is not a host, a lane without pauses at its switch, and a time in the past.
        """
        self._idle()
        return _storm(self._world, host, start, end, lane)

    # ---- what happens -----------------------------------------------------------------------

    def add_flows(self, source, target, size, start=0, *, message=0, level=0, depth=1,
                  read=False, operation=None, transport="rc", after=None, multicast=False,
                  management=False, reserve=0, back_level=None, reserve_buffer=0,
                  control="cubic", path=0, pkey=0xFFFF):
        """Add flows between hosts, one for each element of the arguments, which are broadcast
        together.

        Each flow has queue pairs of its own and transfers ``size`` bytes in messages of ``message``
        bytes (0: up to 1 GiB; the MTU for datagrams), with ``depth`` messages posted at a time.
        ``start``: ps.
        ``transport``: "rc", "uc", "ud" or "tcp". ``operation``: "write" (the default), "read" (the
        data come from the target; RC only) or "send" (the only one of UD, and its default).
        ``read`` = True is the same as "read". TCP is one stream without messages and operations;
        ``control``: "reno", "cubic" or "dctcp".
        ``after`` [m, 2]: flow after[i, 1] waits until flow after[i, 0] has been received, and its
        ``start`` is the delay after the last of those (see fabrics.Workload).
        ``multicast``: the target is a group (add_group); UD only. ``management``: UD on VL15.
        ``reserve``: bits/s that each link of the path reserves and to which the flow is limited. If
        a link has less left when the flow starts, the flow ends as "refused". ``reserve_buffer``:
        likewise, bytes that each switch of the path reserves; RC only. ``depth`` messages may not
        be larger than that, and with ``message`` 0 they are as large as that allows.
        ``level``: the service level, or priority. ``back_level``: that of the opposite direction,
        which carries acknowledgements and the data of READs; default: ``level`` (see build.levels).
        ``path``: path bits, 0 to 127: which of their LIDs the two hosts use, as far as the LMC of
        each allows. ``pkey``: the P_Key of the source's queue pair; the target's is that of a full
        member of the same partition.

        Returns the number of the first flow. Raises ValueError, which names the flow.
        """
        cdef uint64_t before, count
        cdef vb_sim_flow *flows = NULL
        cdef vb_sim_dependency *waits = NULL
        self._idle()
        pairs = self._after(after)
        kind = _codes("transport", transport, TRANSPORTS)
        if np.asarray(read).dtype.kind not in "biu":
            raise ValueError(f"read is {_shown(read)}, and not True or False, or an array of them")
        if operation is None:
            usual = np.where(kind == IBV_QPT_UD, IBV_WR_SEND, IBV_WR_RDMA_WRITE)
            opcode = np.where(np.atleast_1d(np.asarray(read, dtype=bool)), IBV_WR_RDMA_READ, usual)
        else:
            opcode = _codes("operation", operation, OPERATIONS)
        given = (source, target, size, start, message, level, depth, opcode, kind, multicast,
                 management, reserve, level if back_level is None else back_level,
                 reserve_buffer, path, pkey, _codes("control", control, CONTROLS))
        names = ("source", "target", "size", "start", "message", "level", "depth", "operation",
                 "transport", "multicast", "management", "reserve", "back_level",
                 "reserve_buffer", "path", "pkey", "control")
        signed = _columns(names, given)
        for name, part in zip(names, signed, strict=True):
            if part.size and part.min() < 0:
                raise ValueError(f"flow {part.argmin()}: {name} is {part.min()}")
        columns = [np.ascontiguousarray(part, dtype=np.uint64) for part in signed]
        controls = columns.pop()
        _check_flows(self, *columns, pairs)
        columns[7] = np.where(columns[8] == VB_SIM_FLOW_TCP, controls, columns[7])
        large = _fill_messages(self, columns) if columns[13].any() else len(columns[0])
        count = len(columns[0])
        vb_sim_flows(self._sim, &before)
        try:
            flows = _flow_array(columns, count)
            _check_routes(self, flows, columns, large)
            _check_order(pairs, count)
            waits = _after_array(pairs, len(pairs))
            _check(vb_sim_add_flows(self._sim, flows, count, waits, len(pairs)), "flows")
        finally:
            free(flows)
            free(waits)
        return before

    def _after(self, after):
        """Return uint64 [m, 2]."""
        if after is None:
            return np.zeros((0, 2), np.uint64)
        pairs = np.asarray(_listed("after", after, "pairs of flows"))
        if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu"):
            raise ValueError(f"after is {_shown(after)}, and not a list of pairs of flows")
        if pairs.size and pairs.min() < 0:
            raise ValueError(f"after: there is no flow {pairs.min()}")
        return np.ascontiguousarray(pairs.reshape(-1, 2), dtype=np.uint64)

    def sample(self, interval, queues=None, *, start=None, limit=None):
        """Sample queues every ``interval`` ps from ``start`` (default: now) on, and return the
        Samples.

        ``queues``: a list of (node, port) or (node, port, lane) that send; None for all lanes of
        all ports.
        ``limit``: the number of rows after which sampling ends; by default they take 256 MiB.
        Raises ValueError for an unknown port or lane and a start in the past, and MemoryError.
        """
        cdef uint32_t count, i
        cdef vb_world_sampled_queue *watched
        cdef Samples made = Samples.__new__(Samples)
        cdef int error
        self._idle()
        rows = _sampled_queues(self, queues)
        count = len(rows)
        most = max(1, SAMPLES_DEFAULT // (count * sizeof(vb_world_sample)))
        interval = _count("interval", interval, 1, 2**62)
        start = _time("start", self._world.now if start is None else start, self._world.now, 2**62)
        limit = _count("limit", most if limit is None else limit, 1, 2**40)
        watched = <vb_world_sampled_queue *>calloc(count, sizeof(vb_world_sampled_queue))
        if watched is NULL:
            raise MemoryError
        for i in range(count):
            watched[i].port, watched[i].lane = rows[i]["link"], rows[i]["lane"]
        error = vb_world_add_sampler(
            self._world, watched, count, interval, start, limit, &made._number)
        free(watched)
        _check(error, "samples")
        made._world = self
        made.queues = rows
        return made

    def run(self, until=None, progress=None):
        """Run until a time in ps, or until no event is left.

        ``progress(world)`` is called now and then. An exception of it, and Ctrl-C, end the run,
        which can be continued. Returns "time", "done", "deadlock" (see blocked), or "stalled": no
        event is left, and flows have not ended. Raises TypeError, and ValueError for a time in the
        past.
        """
        cdef uint64_t limit = VB_WORLD_NEVER
        cdef int why = VB_WORLD_END_EVENTS
        if self._serving:
            raise RuntimeError("a function that serves a node cannot run the world")
        if until is not None:
            limit = _time("until", until, self._world.now, 2**63)
        if progress is not None:
            _called("progress", progress)
        while why == VB_WORLD_END_EVENTS or why == VB_WORLD_END_HALT:
            self._idle()
            self._call_due()
            self._busy = True
            with nogil:
                why = vb_world_run(self._world, limit, SLICE)
            self._busy = False
            PyErr_CheckSignals()
            if progress is not None:
                progress(self)
        if why < 0:
            _check(why, "the run")
        if why == VB_WORLD_END_EMPTY and self.flows_left:
            return "stalled"
        return ENDS[why]

    # ---- what was seen ----------------------------------------------------------------------

    @property
    def now(self):
        return self._world.now

    @property
    def events(self):
        return vb_world_count(self._world).events

    @property
    def nodes(self):
        return self._world.nodes

    @property
    def hosts(self):
        return self._world.hosts

    @property
    def flows_left(self):
        return vb_sim_flows_left(self._sim)

    @property
    def packets(self):
        return _packet_sums(vb_world_count(self._world))

    @property
    def frame_bytes(self):
        """The bytes that the longest packet of an adapter takes on a link and in a buffer."""
        return self._frame

    @property
    def bytes_each(self):
        """The bytes of memory that a ``host`` and a queue pair (``qp``) take."""
        return {"host": vb_sim_host_bytes(), "qp": vb_sim_qp_bytes()}

    def flows(self):
        """Return FLOW [flows]: times in ps (``finish`` 2**64 - 1: not finished), states as in
        STATES.

        A UC or UD flow is "done" if all of it has arrived. An "incomplete" one has ended as well,
        and ``lost`` is the number of its bytes that did not arrive, or belong to a UC message that
        did not arrive whole.
        """
        self._idle()
        return _flow_rows(self._sim)

    def delivered(self, group, groups):
        """Return uint64 [groups]: sums of ``flows()["done"]`` by the ``group`` [flows] of each
        flow.

        Raises ValueError.
        """
        self._idle()
        return _delivered(self._sim, group, _count("groups", groups, 0, 2**32 - 1))

    def links(self):
        """Return LINK [connected ports]: what each port has sent until now.

        ``packets`` and ``bytes`` count packets whose transmission has begun. ``busy`` and
        ``stalled`` (packets waited without credits or in a pause) are in ps.
        """
        self._idle()
        return _link_rows(self._world)

    def counters(self, host):
        """Return the counters of a host's packet engine. Raises ValueError."""
        cdef const uint64_t *values
        _number("host", host, self._world.hosts)
        values = <const uint64_t *>vb_sim_host_counters(self._sim, host)
        return {vb_counter_names[i].name.decode(): values[i] for i in range(VB_COUNTER_COUNT)}

    def congestion_log(self, host):
        """Return EVENT [at most 13], the last times at which a flow's index reached its level's
        "trigger".

        They are the entries of the CongestionLog of a channel adapter (IBA A10). Raises ValueError.
        """
        return _congestion_log(self, host)

    def blocked(self):
        """Return (node, port) of ports that wait for each other, which is a cycle if there is
        one."""
        from verbena.sim.blocked import waiting_ports
        self._idle()
        return waiting_ports(_blocked_ports(self._world))

    def advice(self):
        """Return sentences about settings that probably are not meant; none if there is nothing to
        say.

        They are about buffers too small for their links, RC without a timeout where it needs one,
        and windows that limit flows. Credits for less than a round trip keep a lane below its
        link's rate. Headroom of less than a round trip, three packets and a pause frame for each
        lane may lose packets: the packet that crosses the threshold, the one that the pause frame
        waits for, and the one that has begun when it arrives. Where packets of RC flows may be lost
        or overtaken, ``timeout=0`` may leave a flow unfinished. Of the RC and TCP flows that are
        larger than their window (``window``, ``tcp["window"]``), the one that it limits most is
        named.
        """
        self._idle()
        return _buffer_advice(self) + (_timeout_advice(self) if self._waits else []) + \
            _window_advice(self)

    def check(self, at_rest=False):
        """Return None, or a sentence about what does not hold, which is a defect of the simulator.

        Packets and credits have to add up, and a lossless lane may not lose packets. ``at_rest``:
        nothing may be under way.
        """
        cdef char[200] text
        cdef const char *wrong
        self._idle()
        wrong = vb_world_check(self._world, at_rest, text, sizeof(text))
        return None if wrong is NULL else wrong.decode()


include "_world_advice.pxi"
include "_world_inside.pxi"
include "_world_programs.pxi"
include "_world_crossing.pxi"
include "_world_groups.pxi"
include "_world_far.pxi"
include "_world_detours.pxi"
include "_world_doors.pxi"
include "_world_gates.pxi"
include "_world_sockets.pxi"
