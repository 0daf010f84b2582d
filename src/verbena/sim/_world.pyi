# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.verbs import CompChannel

from .addresses import Address
from .callbacks import Callback
from .doors import Mad, Server
from .inside import Inside

EVENT: np.dtype[np.void]
"""Dtype of an event of a flow: its time in ps, and the flow's number (``congestion_log``)."""
FLOW: np.dtype[np.void]
"""Dtype of a flow and what became of it (``World.flows``)."""
LINK: np.dtype[np.void]
"""Dtype of one direction of a link and what it sent (``World.links``)."""
QUEUE: np.dtype[np.void]
"""Dtype of the place of a queue (``Samples.queues``)."""
SAMPLE: np.dtype[np.void]
"""Dtype of the state of a queue at one time (``Samples.data``)."""
SLICE_ROW: np.dtype[np.void]
"""Dtype of what a core or a link of a host did for a time (``Inside.slices``)."""
UNLIMITED: int
"""The credits of a queue whose flow control has none."""
CAPTURE_LEAST: int
"""How many bytes of each packet a capture keeps at least."""
CAPTURE_MOST: int
"""How many bytes of each packet a capture keeps at most, which is all of them."""
PKEYS_MOST: int
"""How many P_Keys the table of a port has at most."""
FRAMINGS: dict[str, int]
"""The core's numbers of framings by name (``World(framing=...)``)."""
GATES: dict[str, int]
"""The core's numbers of a lane's flow control by name."""
BALANCES: dict[str, int]
"""The core's numbers of how packets are spread over equal paths, by name."""
TURNS: dict[str, int]
"""The core's numbers of the order in which an output takes packets, by name."""
FECN_AT: dict[str, int]
"""The core's numbers of where FECN is set, by name."""
LANES_BY: dict[str, int]
"""What the last index of a table of lanes is, by name."""
OPERATIONS: dict[str, int]
"""The opcodes of a flow's requests by name."""
TRANSPORTS: dict[str, int]
"""The types of a flow's queue pairs, and TCP, by name."""
ADAPTER: tuple[str, ...]
"""The settings that each host's adapter may have of its own."""
DCQCN_SETS: dict[str, dict[str, float]]
"""The values of DCQCN's ready-made sets: times in ps, rates in bits/s."""
CONTROLS: dict[str, int]
"""The congestion controls of TCP, by name."""
ENDS: dict[int, str]
"""The results of ``World.run`` by the core's code."""
STATES: tuple[str, ...]
"""The states of a flow by the number in FLOW's ``state``."""
DROPS: tuple[str, ...]
"""The reasons for which packets are dropped: LINK has a field ``dropped_REASON`` for each."""

class Samples:
    """What ``World.sample`` has recorded until now; ``times`` and ``data`` are of the moment of the
    call.

    ``queues``: QUEUE [queues] with the node and port that send, the lane, and the row of
    ``links()``.
    ``interval``: ps. Both arrays are memory of the world, and read-only.
    """

    @property
    def queues(self) -> NDArray[np.void]:
        """QUEUE [queues]: the queues of the columns of ``data``."""
    @property
    def interval(self) -> int:
        """The time between two rows in ps."""
    @property
    def stopped(self) -> bool:
        """No rows follow: ``stop`` was called, or the limit is reached."""
    @property
    def times(self) -> NDArray[np.uint64]:
        """The times of the rows in ps, uint64 [rows]."""
    @property
    def data(self) -> NDArray[np.void]:
        """SAMPLE [rows, queues].

        "bytes": what waits (for a port without lanes, including the rest of the packet that is
        being sent); "credits": bytes (UNLIMITED if the flow control has none); "held": bytes that
        arrived by this port and lane and are still here; "paused": whether the other end has paused
        this lane; "stopped": whether the other end was paused.
        """
    def __len__(self) -> int: ...
    def stop(self) -> None:
        """End the sampling. The recorded rows stay."""

def inside_of(world: World, number: int) -> Inside | None:
    """Return the Inside of a host, or None if ``World.inside`` has not given it one.

    It is made anew each time: one that the world kept would keep the world.
    """

class World:
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

    def __init__(
        self,
        seed: int = 0,
        threads: int | None = None,
        *,
        framing: str = "ethernet",
        mtu: int = 4096,
        timeout: int = 14,
        retry_count: int = 7,
        rd_atomic: int = 16,
        window: int = ...,
        ack_bytes: int = 1,
        burst: int = 1,
        congestion: Mapping[str, Any] | None = None,
        notice_level: int | None = 0,
        doorbell: int = 0,
        bus_rate: int = 0,
        receive_latency: int = 0,
        tcp: Mapping[str, Any] | None = None,
        hop_limit: int = 0,
        recovery: str = "go-back-n",
        sockets: str = "control",
    ) -> None: ...
    @property
    def sockets(self) -> str:
        """How asyncio's connections of programs reach other hosts: "control" or "tcp"."""
    def add_host(self, framing: str | None = None, **adapter: Any) -> int:
        """Add a host with one port, number 0, and return its node.

        Hosts are also numbered by themselves, from 0. ``framing``: that of the host's packets, in
        place of the world's. Flows and programs reach a host with "infiniband" only from such a
        host. ``adapter``: what the host's adapter has in place of the world's ``congestion``,
        ``notice_level``, ``doorbell``, ``bus_rate`` or ``receive_latency``. Raises TypeError for
        another keyword, and ValueError, also for an InfiniBand host beyond the 49,151 unicast LIDs.
        """
    def inside(self, host: int | str, **keywords: Any) -> Inside:
        """Give a host an inside: its requests, packets and completions cost PCIe transactions and
        processor time.

        ``host``: its number, or in words "h0". ``keywords``: "cpu", "pcie" (also a
        ``verbena.host.Pcie``), "iommu", "cache", "interrupts", "hca" and "slices", the fields of
        ``verbena.sim.inside.InsideSettings``; times in ps or as "900 ns". The host has no flow and
        no program yet. Hosts without an inside stay as they are. Returns its
        ``verbena.sim.inside.Inside``. Raises ValueError, and TypeError for an unknown keyword.
        """
    def add_switch(
        self,
        ports: int,
        *,
        lanes: Sequence[Any] = (),
        buffer: int = 0,
        mark: tuple[int, int, float] | None = None,
        high: Sequence[tuple[int, int]] = (),
        low: Sequence[tuple[int, int]] | None = None,
        high_limit: int = 0,
        remembers: bool = False,
        balance: str = "flow",
        cut_through: int = 0,
        lifetime: int = 0,
        fecn: int = 0,
        fecn_at: str = "root",
        fecn_rate: int = 0,
        fecn_victims: str | Iterable[int] = (),
        management: int = 0,
        turns: str = "input",
        watchdog: Mapping[str, Any] | None = None,
        floods: bool = False,
    ) -> int:
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
    def connect(
        self,
        a: int,
        a_port: int,
        b: int,
        b_port: int,
        *,
        rate: int,
        delay: int,
        bit_error_rate: float = 0.0,
        pause_response: int = 0,
        extender: int = 0,
    ) -> tuple[int, int] | None:
        """Connect two ports by a link of ``rate`` bits/s and ``delay`` ps in each direction.

        ``bit_error_rate``: the probability that a bit is wrong. ``pause_response``: ps until an end
        obeys a pause frame. ``extender``: the bytes of buffer for each lane in each of a pair of
        range extenders, one at each end of the link. Credits then are exchanged between an end and
        its extender, and between the two extenders, where the whole buffer counts. Returns the
        extenders' nodes, the one at ``a`` first, or None without extenders. Raises ValueError.
        """
    def set_link(self, node: int, port: int, up: bool, at: int) -> None:
        """The link at this port goes up or down at a time in ps, in both directions.

        Raises TypeError if ``up`` is not a bool, and ValueError.
        """
    def call_at(self, at: int, function: Callable[[World], object], *, looks: bool = False) -> None:
        """Call ``function(world)`` at a time in ps, between two events of the run.

        It may change the world: set routes, add flows, call ``call_at`` again. An exception ends
        the run, which can be continued. The function is not called if the run ends earlier. While a
        program waits in a blocking call, it is called after that has returned. With ``looks`` the
        function changes nothing, and a run does not wait for it. Raises TypeError, ValueError.
        """
    def capture(self, node: int, port: int, path: str | PathLike[str], size: int = 4352) -> None:
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
    @property
    def captures_lost(self) -> int:
        """The number of packets that could not be written to captures."""
    def set_lids(self, nodes: ArrayLike, lids: ArrayLike, lmc: int = 0) -> None:
        """Give hosts 2**``lmc`` LIDs each, or switches one, from these on, in place of their own.

        ``nodes`` and ``lids`` are numbers, or lists of one length. Without this, host h has LID
        h + 1, and a switch none. Connections that exist keep the LIDs with which they were made,
        and a program's adapter those that it was opened with. Forwarding tables do not change.
        Raises ValueError for LIDs that are not unicast, not aligned, or in use, for nodes that have
        none, and after ``set_detours``.
        """
    def take_lids(self, nodes: Iterable[int]) -> None:
        """Let hosts and switches have no LID, as before a subnet manager has seen them.

        Packets to LIDs that they had before still belong to them, as far as tables lead to them.
        Raises ValueError as ``set_lids`` does.
        """
    def address(self, node: int) -> Address:
        """Return the Address of a host's port, or of a switch's port 0. Raises ValueError."""
    def linear_block(self, switch: int, block: int) -> bytes:
        """Return 64 entries of a switch's table, for the LIDs from 64 * ``block`` on, as bytes.

        They are as in a LinearForwardingTable (IBA 14.2.5.6): a port, or 255 for none. Of several
        ports it is the first. Raises ValueError.
        """
    def set_linear_block(self, switch: int, block: int, ports: bytes | ArrayLike) -> None:
        """Set 64 entries of a switch's table, as bytes or numbers; see ``linear_block``.

        Port 0 is the switch itself. The entry of LID 0 stays empty. Raises ValueError.
        """
    def set_lid_ports(self, switch: int, lids: ArrayLike, ports: ArrayLike) -> None:
        """Set the port of a switch for each of these LIDs; -1 for none. Raises ValueError."""
    def multicast_block(self, switch: int, block: int, position: int) -> list[int]:
        """Return masks of ports for 32 multicast LIDs, from 0xc000 + 32 * ``block`` on.

        Bit k of a mask is port 16 * ``position`` + k, as in a MulticastForwardingTable (IBA
        14.2.5.9). Group n of ``add_group`` has LID 0xc000 + n. Raises ValueError.
        """
    def set_multicast_block(
        self, switch: int, block: int, position: int, masks: Sequence[int]
    ) -> None:
        """Set masks of ports for 32 multicast LIDs; see ``multicast_block``. Raises ValueError."""
    def serve(self, node: int, function: Server | None) -> None:
        """Have ``function(world, node, packet)`` called for each management packet of a node.

        These are packets to QP 0 and QP 1 of one of its LIDs, and directed-route SMPs that come to
        it, as doors.Mad. The function is called at the time of the arrival, before the next event,
        and what it returns is sent: a Mad, a list of them, or None. Without a function, or with
        None, such packets are dropped and counted by links(): ``dropped_route``. An exception ends
        the run, which can be continued. Raises TypeError, and ValueError for a node of Ethernet.
        """
    def serve_qp1(self, node: int, function: Server | None) -> None:
        """Serve a node as ``serve`` does, or QP 1 of a host of Ethernet, which has no QP 0.

        The LIDs of a Mad of Ethernet are the numbers of the hosts plus 1, as in their addresses.
        """
    def send_qp1(self, node: int, packet: Mad) -> None:
        """Send a packet (doors.Mad) from QP 1 of a host of Ethernet to that of another, now.

        ``dlid`` and ``slid`` are as in ``serve_qp1``. Raises TypeError, ValueError.
        """
    def send_mad(self, node: int, packet: Mad) -> None:
        """Send a management packet (doors.Mad) of a node now. Raises TypeError, ValueError.

        A host sends by its port. A switch sends by ``packet.port``, or with port 0 by that of its
        table for the LID. SMPs are on VL15. A packet for which there is no link is counted by
        ``mads_lost``.
        """
    @property
    def mads_lost(self) -> int:
        """The number of management packets that their own node could not send."""
    def set_routes(self, switch: int, ports: ArrayLike, path: int | None = None) -> None:
        """Set the forwarding table of a switch. Row h of ``ports`` has the ports to host h.

        ``ports``: int32 of shape (hosts,) or (hosts, ways). -1 ends a row. A host whose row has no
        port cannot be reached from here, and packets to it are dropped. ``path``: the entries are
        those of this LID of each host, counted from its first; None for all of its LIDs. Entries
        for other LIDs stay. Routes may change between two runs or in a ``call_at``: packets that
        wait in a queue keep it, and later ones take the new path. Reservations of flows
        (``reserve``) keep their path. Raises ValueError.
        """
    def lane_count(self, switch: int) -> int:
        """Return the number of data lanes of a switch; 0: it has one queue without lanes."""
    def guard(
        self,
        node: int,
        port: int,
        *,
        takes: bool = True,
        sends: bool = True,
        keys_in: bytes | None = None,
        keys_out: bytes | None = None,
        interval: int = 0,
        wakes: bool = False,
    ) -> None:
        """Set what a port of InfiniBand lets through beside SMPs, as a subnet manager decides.

        ``takes`` and ``sends``: whether its state lets data in and out. A host whose port does not
        send waits, and goes on when it does; everything else that a port keeps back is lost, and
        counted by ``kept_back`` and by links(): ``dropped_route``. ``keys_in`` and ``keys_out``:
        8192 bytes, where bit k % 8 of byte k // 8 is set if packets with P_Key k pass; None for
        all. ``interval``: ps between two refused packets of which ``on_refused`` tells; 0: it tells
        of none. ``wakes``: it is told of the first packet that the port takes. Raises ValueError.
        """
    def kept_back(self, node: int, port: int) -> tuple[int, int, int, int]:
        """Return how many packets a port has kept back: for their P_Key on the way in and out, and
        for the port's state on the way in and out. Raises ValueError."""
    def on_refused(self, function: Callable[[int, int, Mad | None], object] | None) -> None:
        """Have ``function(node, port, packet)`` called when a port has refused a P_Key.

        ``packet``: its headers, in a Mad; None if it has woken an ARMED port. None: nobody is told.
        """
    def arbitrate(
        self,
        node: int,
        port: int,
        high: Sequence[tuple[int, int]],
        low: Sequence[tuple[int, int]],
        limit: int,
    ) -> None:
        """Set the VL arbitration of a port: lists of (lane, weight), and LimitOfHighPriority.

        Units are those of IBA 7.6.9: 64 bytes for a weight, and 4096 for the limit, 255 for none.
        Raises ValueError.
        """
    def set_host_lanes(self, node: int, lanes: Sequence[int]) -> None:
        """Set the lane of each of 16 service levels on which a host sends. Raises ValueError."""
    def set_lanes(self, switch: int, lanes: ArrayLike, by: str = "level") -> None:
        """Set the SL to VL table of a switch: uint8 of shape (ports in, ports out, 16 levels).

        With ``by`` = "lane" the last index is the lane on which a packet arrived. Raises
        ValueError.
        """
    def set_detours(
        self,
        group: ArrayLike,
        *,
        adaptive: bool = True,
        per: str = "flow",
        threshold: int = 0,
        gap: int = ...,
    ) -> None:
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
    def add_group(self, members: Iterable[int], ports: Mapping[int, Iterable[int]]) -> int:
        """Add a multicast group and return its number, which is the target of flows with
        ``multicast``.

        ``members``: hosts, each with an attached UD queue pair. ``ports``: by the node of each
        switch, the ports by which the group's packets leave, except for the port of their arrival,
        as ``fabrics.multicast_tree`` computes them (see build.add_group). Raises ValueError for an
        unknown host, switch or port, and a host that is given twice.
        """
    def add_flows(
        self,
        source: ArrayLike,
        target: ArrayLike,
        size: ArrayLike,
        start: ArrayLike = 0,
        *,
        message: ArrayLike = 0,
        level: ArrayLike = 0,
        depth: ArrayLike = 1,
        read: ArrayLike = False,
        operation: ArrayLike | None = None,
        transport: ArrayLike = "rc",
        after: ArrayLike | None = None,
        multicast: ArrayLike = False,
        management: ArrayLike = False,
        reserve: ArrayLike = 0,
        back_level: ArrayLike | None = None,
        reserve_buffer: ArrayLike = 0,
        control: ArrayLike = "cubic",
        path: ArrayLike = 0,
        pkey: ArrayLike = 0xFFFF,
    ) -> int:
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
    def sample(
        self,
        interval: int,
        queues: Iterable[tuple[int, int] | tuple[int, int, int]] | None = None,
        *,
        start: int | None = None,
        limit: int | None = None,
    ) -> Samples:
        """Sample queues every ``interval`` ps from ``start`` (default: now) on, and return the
        Samples.

        ``queues``: a list of (node, port) or (node, port, lane) that send; None for all lanes of
        all ports.
        ``limit``: the number of rows after which sampling ends; by default they take 256 MiB.
        Raises ValueError for an unknown port or lane and a start in the past, and MemoryError.
        """
    def pause_storm(
        self, host: int, start: int | None = None, end: int | None = None, *, lane: int = 0
    ) -> None:
        """The adapter of a host (a node) fails, and pauses a lane of its switch endlessly.

        ``start`` (default: now) and ``end`` (None: never) are in ps. Raises ValueError for a node
        that is not a host, a lane without pauses at its switch, and a time in the past.
        """
    def run(
        self, until: int | None = None, progress: Callable[[World], object] | None = None
    ) -> str:
        """Run until a time in ps, or until no event is left.

        ``progress(world)`` is called now and then. An exception of it, and Ctrl-C, end the run,
        which can be continued. Returns "time", "done", "deadlock" (see blocked), or "stalled": no
        event is left, and flows have not ended. Raises TypeError, and ValueError for a time in the
        past.
        """
    @property
    def now(self) -> int:
        """The present time in ps."""
    @property
    def events(self) -> int:
        """The number of events that the world has processed."""
    @property
    def nodes(self) -> int:
        """The number of nodes: hosts, switches and range extenders."""
    @property
    def hosts(self) -> int:
        """The number of hosts."""
    @property
    def flows_left(self) -> int:
        """The number of flows that have not ended."""
    @property
    def packets(self) -> dict[str, int]:
        """The numbers of packets ``sent`` (with copies), ``delivered`` and ``dropped``."""
    @property
    def frame_bytes(self) -> int:
        """The bytes that the longest packet of an adapter takes on a link and in a buffer."""
    @property
    def bytes_each(self) -> dict[str, int]:
        """The bytes of memory that a ``host`` and a queue pair (``qp``) take."""
    def flows(self) -> NDArray[np.void]:
        """Return FLOW [flows]: times in ps (``finish`` 2**64 - 1: not finished), states as in
        STATES.

        A UC or UD flow is "done" if all of it has arrived. An "incomplete" one has ended as well,
        and ``lost`` is the number of its bytes that did not arrive, or belong to a UC message that
        did not arrive whole.
        """
    def delivered(self, group: ArrayLike, groups: int) -> NDArray[np.uint64]:
        """Return uint64 [groups]: sums of ``flows()["done"]`` by the ``group`` [flows] of each
        flow.

        Raises ValueError.
        """
    def links(self) -> NDArray[np.void]:
        """Return LINK [connected ports]: what each port has sent until now.

        ``packets`` and ``bytes`` count packets whose transmission has begun. ``busy`` and
        ``stalled`` (packets waited without credits or in a pause) are in ps.
        """
    def counters(self, host: int) -> dict[str, int]:
        """Return the counters of a host's packet engine. Raises ValueError."""
    def congestion_log(self, host: int) -> NDArray[np.void]:
        """Return EVENT [at most 13], the last times at which a flow's index reached its level's
        "trigger".

        They are the entries of the CongestionLog of a channel adapter (IBA A10). Raises ValueError.
        """
    def blocked(self) -> list[tuple[int, int]]:
        """Return (node, port) of ports that wait for each other, which is a cycle if there is
        one."""
    def advice(self) -> list[str]:
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
    def check(self, at_rest: bool = False) -> str | None:
        """Return None, or a sentence about what does not hold, which is a defect of the simulator.

        Packets and credits have to add up, and a lossless lane may not lose packets. ``at_rest``:
        nothing may be under way.
        """

class Attachment:
    """Where the adapter of a program is attached: each of these hosts of the world is a port of
    it."""

    @property
    def attachments(self) -> Attachments:
        """The Attachments that made it."""
    @property
    def hosts(self) -> tuple[int, ...]:
        """The numbers of the hosts that are its ports."""
    @property
    def address(self) -> int:
        """The address of the struct vb_sim_attachment."""
    def add_fd(self, fd: int, channel: CompChannel | None = None) -> None:
        """Let programs wait for a descriptor; ``channel`` is its CompChannel, if it belongs to
        one."""
    def remove_fd(self, fd: int) -> None:
        """Forget a descriptor before it is closed."""

class Attachments:
    """What the adapters on a world's hosts have in common.

    It knows the descriptors that programs may wait for, which are those of completion channels and
    of asynchronous events. Only events of the world make one of them readable.
    """

    def __init__(self, world: World) -> None: ...
    @property
    def world(self) -> World:
        """The world of the hosts."""
    @property
    def now(self) -> int:
        """The world's time in ps."""
    def at(self, *hosts: int, pkeys: Iterable[Sequence[int]] = ()) -> Attachment:
        """Return an Attachment whose ports are the hosts with these numbers, at most two.

        ``pkeys``: the P_Key table of each port; a port without one has the default partition.
        Raises ValueError for a host that does not exist or belongs to another attachment.
        """
    def wake(self) -> None:
        """Have ``gather`` end: a function that the world has called has something for a loop."""
    def set_looped(self, looped: bool) -> None:
        """Say whether an event loop lets time pass. If none does, polling lets time pass."""
    def watch_sockets(self, reader: Callback | None) -> None:
        """Have ``gather`` return ``reader`` when there are news of sockets. None: no more."""
    def watch(self, fd: int, reader: Callback) -> None:
        """Have ``gather`` return ``reader`` when this descriptor becomes readable.

        Raises KeyError for a descriptor that programs may not wait for, and VerbsError (ENOMEM).
        """
    def unwatch(self, fd: int) -> Callback | None:
        """Stop to watch a descriptor. Returns its reader, or None."""
    def watched(self) -> list[int]:
        """Return the descriptors that are watched."""
    def gather(self, ready: MutableSequence[Callback], until: int | None = None) -> str:
        """Append to ``ready`` the readers of descriptors that are readable.

        If there are none, process the world's events until there is one, or until the time
        ``until`` in ps. Returns why it ended: "readable"; "time"; "done", no event is left;
        "deadlock", no event is left and packets wait for each other; without ``until`` also
        "events", after many of them. Ctrl-C ends it between two events.
        """
    def advance(self, until: int | None = None) -> str:
        """Process events until another descriptor is readable, or until a time in ps.

        Returns why it ended, as ``gather`` does.
        """
    def pass_time(self, until: int | None = None) -> tuple[str, list[int]]:
        """Process events until a program in another process has something to do, or until a time.

        Returns why it ended, as ``gather`` does, and the numbers of the programs' hosts.
        """

NOTHING_LEFT: int
"""``Crossing.run``: nothing is left to happen."""

class Crossing:
    """The world's side of a program's process, whose host has adapters with these ports each.

    ``fd``: the segment, which the process maps. ``lifeline``: a socket whose other end it has.
    """

    def __init__(
        self,
        attachments: Attachments,
        ports: Iterable[Iterable[int]],
        pkeys: Iterable[Sequence[int]],
        lifeline: int,
    ) -> None: ...
    @property
    def attachments(self) -> Attachments:
        """Those of the world."""
    @property
    def fd(self) -> int:
        """The descriptor of the segment."""
    def write(self, letter: bytes) -> bool:
        """Add a letter to the next turn of the program. False: there is no room."""
    def run(self, why: int) -> tuple[list[bytes], int | None] | None:
        """Let the program run until it waits. ``why``: 1, it has something to do; 0, its time has
        come; NOTHING_LEFT. Returns the letters that it wrote and the time in ps until which it
        waits (None: for ever), or None as its process ends.

        Raises BrokenPipeError if the process has ended otherwise.
        """

class FarAttachments(Attachments):
    """The adapters of a host whose world is another process. ``fd``: the segment; ``lifeline``: a
    socket whose other end that process has.

    ``on_letter`` is called with each letter that comes. Raises OSError (EPROTO) for a world of
    another version, and WorldEnded, as all waits, if its process has ended.
    """

    on_letter: Callable[[bytes], None]
    """What takes letters."""
    def __init__(self, fd: int, lifeline: int) -> None: ...
    def begin(self) -> list[bytes]:
        """Wait for the first turn, and return the letters that come with it."""
    def end(self) -> None:
        """Give the turn away for ever."""
    def ask(self, letter: bytes) -> None:
        """Send a letter with the end of this turn; the next one is at once."""
    def pass_turn(self, until: int | None = None) -> str:
        """Wait for a letter, for a descriptor or until a time in ps, without an event loop. Returns
        why it ended, as ``gather`` does."""
    def write(self, letter: bytes) -> None:
        """Send a letter with the end of this turn, or of one that ends at once."""

class SocketCore:
    """The sockets of a world's hosts, in numbers of bytes; all of them have one user."""

    def __init__(self, world: World) -> None: ...
    @property
    def world(self) -> World:
        """The world of the hosts."""
    @property
    def segment(self) -> int:
        """Bytes of a full segment."""
    @property
    def window(self) -> int:
        """Bytes of the receive window."""
    @property
    def ack_delay(self) -> int:
        """The world's ``ack_delay`` in ps."""
    def rate(self, host: int) -> int:
        """Return the bits per second of a host's link, 0 without one."""
    def is_infiniband(self, host: int) -> bool:
        """Return whether a host of the world has InfiniBand's framing."""
    def open(self, one: int, other: int, one_port: int, other_port: int, ack_delay: int) -> int:
        """Return the number of the socket of host ``one`` of a new connection; that of ``other``
        is one more."""
    def close(self, number: int) -> None:
        """Free both sockets of a connection."""
    def write(self, number: int, count: int, ended: bool = False) -> None:
        """Add bytes to a socket's stream, and perhaps its end."""
    def read(self, number: int, taken: int, reading: bool) -> None:
        """Say how much of the peer's stream the program has read, and whether it reads on."""
    def arrived(self, number: int) -> tuple[int, bool]:
        """Return the bytes of the peer's stream that have arrived, and whether its end has."""
    def unacked(self, number: int) -> int:
        """Return the written bytes that are not acknowledged."""
    def is_done(self, number: int) -> bool:
        """Return whether a socket's stream has ended and all of it is acknowledged."""
    def ask_room(self, number: int, low: int | None) -> None:
        """Have news when no more than so many bytes are unacknowledged. None: not any more."""
    def set_closed(self, number: int) -> None:
        """The program reads no more; bytes that come are news."""
    def set_no_delay(self, number: int, value: bool) -> None:
        """Set TCP_NODELAY."""
    def set_ack_delay(self, number: int, delay: int) -> None:
        """Set the delay of acknowledgements in ps."""
    def set_control(self, number: int, name: str) -> None:
        """Set the congestion control of both sockets' sending. Raises KeyError."""
    def counts(self, number: int) -> tuple[int, int, float]:
        """Return retransmitted segments, expirations of the timer, and the congestion window."""
    def send(
        self, source: int, target: int, number: int, payload: int, hash: int, head: bytes
    ) -> None:
        """Send a parcel from one host to another; ``payload`` is the bytes after its IP header."""
    def backlog(self, host: int) -> int:
        """Return the ps until a host's link has sent what it was given."""
    def news(self) -> list[tuple[int, int]]:
        """Return and forget what has happened: pairs of a number and enum vb_sim_news."""
