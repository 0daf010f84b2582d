# SPDX-License-Identifier: Apache-2.0

from asyncio import Handle
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.verbs import CompChannel

EVENT: np.dtype[np.void]
"""Dtype of an event of a flow: when it was (ps), and the flow's number."""
FLOW: np.dtype[np.void]
"""Dtype of what became of a flow: ``World.flows``."""
LINK: np.dtype[np.void]
"""Dtype of one direction of a link, and what went over it: ``World.links``."""
QUEUE: np.dtype[np.void]
"""Dtype of a queue's place: ``Samples.queues``."""
SAMPLE: np.dtype[np.void]
"""Dtype of a queue's state at one time: ``Samples.data``."""
UNLIMITED: int
"""The credits of a queue that needs none."""
CAPTURE_LEAST: int
"""How many bytes of each packet a capture keeps at least."""
CAPTURE_MOST: int
"""How many bytes of each packet a capture keeps at most, which is all of them."""
PKEYS_MOST: int
"""How many P_Keys the table of a port has at most."""
FRAMINGS: dict[str, int]
"""The kinds of link layer, by name: ``World(framing=…)``."""
GATES: dict[str, int]
"""What keeps a sender from overrunning the next buffer, by name."""
BALANCES: dict[str, int]
"""How packets are spread over equal ways, by name."""
TURNS: dict[str, int]
"""Whose turn it is at an output, by name."""
FECN_AT: dict[str, int]
"""Where congestion is marked, by name."""
LANES_BY: dict[str, int]
"""What a table of lanes is indexed by, by name."""
OPERATIONS: dict[str, int]
"""What a flow's requests are, by name."""
TRANSPORTS: dict[str, int]
"""What carries a flow, by name."""
CONTROLS: dict[str, int]
"""The congestion controls of TCP, by name."""
ENDS: dict[int, str]
"""What ``World.run`` returns, by the core's code."""
STATES: tuple[str, ...]
"""What a flow can be in, by the number in FLOW's ``state``."""
DROPS: tuple[str, ...]
"""Why packets are dropped: LINK has a field ``dropped_…`` for each."""

class Samples:
    """What World.sample saw until now; each look at ``times`` and ``data`` is of that moment.

    ``queues``: an array of QUEUE: node and port that send, lane, and the row of links().
    ``interval`` in ps. Both arrays are the world's own memory, and cannot be written to.
    """

    @property
    def queues(self) -> NDArray[np.void]:
        """An array of QUEUE: whose columns ``data`` has."""
    @property
    def interval(self) -> int:
        """The time from a look to the next one, in ps."""
    @property
    def stopped(self) -> bool:
        """No rows follow: stop() was called, or there is no more room."""
    @property
    def times(self) -> NDArray[np.uint64]:
        """uint64 [rows]: when, in ps."""
    @property
    def data(self) -> NDArray[np.void]:
        """SAMPLE [rows, queues]: bytes that wait (of a port without lanes, with what is left of the
        packet that is being sent), bytes of credits (UNLIMITED where the flow control has none),
        bytes held that came in by this port and lane, paused by the other end, and whether the
        other end was told to stop."""
    def __len__(self) -> int: ...
    def stop(self) -> None:
        """End the sampling; what was seen stays."""

class World:
    """A fabric in virtual time. Times are whole picoseconds, rates bits per second, sizes bytes.

    ``seed``: of everything that is drawn by lot; runs with one seed are equal to the byte.
    ``framing``: what a packet costs on the wire: "ethernet" (RoCE v2, with preamble and gap),
    "infiniband" (LRH and CRCs, GRH of multicast), or "bare": its payload, and 64 bytes for one
    without.
    ``mtu``, ``timeout`` (4.096 us * 2**timeout, 0: none), ``retry_count`` (0: a lost packet ends
    the connection), ``rd_atomic`` (READs outstanding), ``window`` (bytes in flight, 1 MiB),
    ``ack_bytes`` (one acknowledgement for so many), ``burst`` (packets before the next
    connection's turn): of every connection.
    ``recovery``: a loss repeats what follows it ("go-back-n"), or its message ("go-back-0").
    ``congestion``: None, or how senders react to marks: {"kind": "dcqcn", "set": "paper" or
    "adapter", ...fields of vb_dcqcn_config} or {"kind": "cct", "gaps": [packet times], "limit",
    "increase" (1), "timer" (150 * 1.024 us), "min" (0), "trigger" (0: none), "levels": {level:
    {of the last four, what it has of its own}}}; each with "notice_interval" (50 us, cct: 0), the
    time between two notifications of a connection. Those have the ``notice_level``; None: that of
    their connection's acknowledgements. A gap is the nearest that a table's entry can be: eighths
    up to 2047, at most 16383.
    {"kind": "hpcc", "base_rtt": ps, "target", "stages", "add"}: by what switches say of themselves.

    ``hop_limit``: up to 127, of all packets: each switch takes one of it, and drops the packet when
    none is left; tables may then lead in a circle. 0: no limit, and such flows are refused.

    ``tcp``: of flows over TCP: {"mss" (1460, at most the mtu), "initial_window" (10 segments),
    "window" (16 MiB), "least_rto" (200 ms), "most_rto" (60 s), "first_rto" (as least_rto),
    "retries" (15), "ack_delay" (0: every segment is acknowledged at once), "ecn" (False; DCTCP
    has it anyway), "dctcp_gain" (1/16), "jitter": up to so many ps, by the seed, before a flow
    begins and before a sender looks at an acknowledgement (a full segment's time on the slowest
    link of the flow's way; 0: none)}.

    Hosts: ``doorbell`` ps until an adapter sees new requests, ``bus_rate`` bits/s at which payload
    comes from memory (0: at once), ``receive_latency`` ps from a packet's arrival to what follows.

    Wrong values raise ValueError.
    """

    def __init__(
        self,
        seed: int = 0,
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
    ) -> None: ...
    def add_host(self, framing: str | None = None) -> int:
        """A host with one port, number 0. Returns its node; hosts are counted from 0 besides.

        ``framing``: of what it sends, in place of the world's. Flows and programs reach InfiniBand
        from InfiniBand only.
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
        """A switch of so many ports; returns its node.

        Without ``lanes`` each port has one lossy queue of ``buffer`` bytes (0: no limit), which
        marks by ``mark`` = (Kmin, Kmax, Pmax). With lanes each is a dictionary: "flow" is "lossy"
        ("alpha": at most so many times the free part of the shared ``buffer``), "credits" ("room":
        bytes of each input's buffer) or "pauses" ("stop", "go" and "spare" bytes of an input:
        xoff, xon, headroom); any may have a "mark". Lanes send by the tables ``high`` and ``low``
        of (lane, weight) and ``high_limit`` (IBA 7.6.9); ETS is a low table that ``remembers``.
        A packet takes the lane of its level modulo the number of lanes (see set_lanes).
        ``turns``: an output of a switch with lanes takes packets of each "input" in turn, as a
        crossbar does, or in the order of their "arrival", as one queue in shared memory.
        ``watchdog``: {"detect", "restore" (ps), "action"}: a lane that is paused and has sent
        nothing for so long drops ("drop") or sends ("forward") all, until it was free for
        "restore".
        ``floods``: what has no port in the table leaves by all but the one it came by.
        ``balance``: one of several ports to a host by a hash of the "flow", or by chance for each
        "packet". ``cut_through``: bytes after which a packet is passed on, where all ports have
        one rate. ``lifetime``: at the head of a queue. ``fecn``: bytes of a queue above which
        packets get FECN: at the "root" of a congestion, where the lane has credits (IBA A10); with
        ``fecn_at`` = "output" its victims' too; with "input" by the bytes of their input's buffer,
        wherever they go.
        ``fecn_rate``: Marking_Rate, up to 65535: the mean number of packets that could get it
        between two that do. ``fecn_victims``: Victim_Mask: "hosts", all ports to hosts, or a list
        of ports, at which victims get it with "root" too.
        ``management``: bytes of each output's queue for VL15, behind the lanes: before all of
        them, without flow control, lost when it is full.
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
        """A link: bits/s and ps in each direction, and the chance that a bit is wrong.

        ``pause_response``: ps that its ends take to do what a pause frame says. ``extender``: bytes
        of buffer for each lane, in each box of a pair of range extenders: one at each end, with the
        long line between them, so that credits go round from each end to its box, and on the line,
        where all of the buffer counts, between the boxes. Returns their nodes, the one at ``a``
        first; None without.
        """
    def set_link(self, node: int, port: int, up: bool, at: int) -> None:
        """The link at this port goes up or down at that time, in both directions."""
    def call_at(self, at: int, function: Callable[[World], object], *, looks: bool = False) -> None:
        """``function(world)`` is called at that time in ps, between two events of the run.

        It may change the world: set routes, add flows, call again later. What it raises ends the
        run, which may be gone on with. It is not called after a run that is over before. While a
        program waits in a call that blocks, it is called as soon as that has returned. With
        ``looks`` it changes nothing: a run does not wait for it.
        """
    def capture(self, node: int, port: int, path: str | PathLike[str], size: int = 4352) -> None:
        """Writes what crosses the link at this port, both ways, into a pcapng file from now on.

        Packets are RoCE v2 frames, those of TCP flows TCP segments without a handshake, at the
        time at which they come to the link's end, with a payload of zeros. Of each the first
        ``size`` bytes are kept, 64 to 4352, which is all; 128 have all headers and make a small
        file, of which Wireshark says that packets with a payload are malformed. What leaves by
        this port is outbound. An earlier capture is overwritten; another file is an OSError.
        Programs that read the file meanwhile find it whole.
        """
    @property
    def captures_lost(self) -> int:
        """Packets that could not be written."""
    def set_routes(self, switch: int, ports: ArrayLike) -> None:
        """Row h of ``ports``, int32 of shape (hosts,) or (hosts, ways): the ports to host h.

        -1 ends a row; a row without a port is a host that cannot be reached from here: what comes
        for it is dropped. Also between two runs, or in a call_at: what waits in a queue of the
        switch leaves by it, what comes from then on takes the new ways. What was promised to flows
        (``reserve``) stays where it is.
        """
    def set_lanes(self, switch: int, lanes: ArrayLike, by: str = "level") -> None:
        """SL to VL: uint8 of shape (ports in, ports out, 16 levels).

        With ``by`` = "lane" the last index is the lane by which a packet came.
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
        """Packets to another group of switches go by way of a third one, by chance.

        ``group``: the number of each node's group, but for range extenders, which are behind all
        others; each group has a host. Not ``adaptive``: always (Valiant and Brebner, 1981).
        Otherwise the first switch compares its queues towards both, each times the links of the
        way: the queue of the short way is to be longer by ``threshold`` (UGAL-L, Kim, ISCA 2008).
        A queue is what waits there and what has no credit back. ``per``: all packets of a "flow"
        go one way, until for ``gap`` ps none of them has come; or each "packet" its own, by its
        PSN, and they overtake each other. Packets on VL15 make no detours. Lanes are the caller's
        (see set_lanes; fabrics.route has them). ValueError: there are detours already.
        """
    def add_group(self, members: Iterable[int], ports: Mapping[int, Iterable[int]]) -> int:
        """A multicast group; returns its number, the target of flows with ``multicast``.

        ``members``: hosts, each with a UD queue pair that is attached. ``ports``: for each switch,
        by node, the ports that its packets leave by, but for the one they came by; as
        fabrics.multicast_tree has them (see build.add_group). ValueError: no such host, switch or
        port, or a host twice.
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
    ) -> int:
        """Flows from host to host, one for each element of the arguments broadcast together.

        Each has queue pairs of its own, and carries ``size`` bytes in messages of ``message`` bytes
        (0: up to 1 GiB, of datagrams the MTU), ``depth`` at a time. ``transport``: "rc", "uc",
        "ud" or "tcp"; ``operation``: "write" (the default), "read" (the data come from the target;
        RC only) or "send" (the only one of UD, and its default); ``read`` is the same as "read".
        ``after`` [m, 2]: flow after[i, 1] of these waits until flow after[i, 0] was received, and
        its ``start`` is the time from the last of those on (see fabrics.Workload).
        ``multicast``: the target is a group (add_group), of UD; ``management``: UD on VL15.
        ``reserve``: bits/s that each link of its way promises and that it keeps to; where one has
        less left when it starts, the flow ends as "refused". ``reserve_buffer``: bytes that each
        switch of its way keeps for it, likewise; RC alone. ``depth`` of its messages are at most
        so many, and with ``message`` 0 they are as large as that allows.
        ``level``: service level, or priority; ``back_level``: that of what comes back,
        acknowledgements and the data of a READ, if it is another one (see build.levels).
        TCP is one stream, without messages and operations; ``control``: "reno", "cubic" or
        "dctcp".
        Returns the number of the first. ValueError names a flow that cannot be.
        """
    def sample(
        self,
        interval: int,
        queues: Iterable[tuple[int, int] | tuple[int, int, int]] | None = None,
        *,
        start: int | None = None,
        limit: int | None = None,
    ) -> Samples:
        """Looks at queues every ``interval`` ps from ``start`` (now) on; returns the Samples.

        ``queues``: all lanes of all ports (None), or a list of (node, port) or (node, port, lane)
        that send. ``limit``: rows, after which the sampling ends; by default 256 MiB of them.
        ValueError: no such port or lane, a start in the past; MemoryError.
        """
    def pause_storm(
        self, host: int, start: int | None = None, end: int | None = None, *, lane: int = 0
    ) -> None:
        """The adapter of this host (a node) breaks, and sends pauses for a lane on and on.

        From ``start`` (now) up to ``end`` (None: for ever), in ps. ValueError: no host, a lane that
        is not one of its switch's with pauses, or a time in the past.
        """
    def run(
        self, until: int | None = None, progress: Callable[[World], object] | None = None
    ) -> str:
        """Until that time, or until nothing is left to do.

        ``progress(world)`` is called now and then; what it raises, and Ctrl-C, end the run, which
        may be gone on with. Returns "time", "done", "deadlock" (see blocked), or "stalled": nothing
        is left to do, and flows have not ended.
        """
    @property
    def now(self) -> int:
        """The present time in ps."""
    @property
    def events(self) -> int:
        """How many events have happened."""
    @property
    def nodes(self) -> int:
        """How many nodes there are: hosts, switches and extenders."""
    @property
    def hosts(self) -> int:
        """How many of the nodes are hosts."""
    @property
    def flows_left(self) -> int:
        """How many flows have not ended."""
    @property
    def packets(self) -> dict[str, int]:
        """How many packets were ``sent`` (copies too), ``delivered`` and ``dropped``."""
    @property
    def frame_bytes(self) -> int:
        """What the longest packet of an adapter takes on the wire, and in a buffer."""
    @property
    def bytes_each(self) -> dict[str, int]:
        """Bytes of memory that a ``host`` and a queue pair (``qp``) take."""
    def flows(self) -> NDArray[np.void]:
        """An array of FLOW: times in ps (finish 2**64 - 1: not yet, never), states as in STATES.

        A UC or UD flow is "done" when all of it has arrived; "incomplete" has ended, too, with
        ``lost`` bytes that did not arrive, or came for a message of UC of which others had not.
        """
    def delivered(self, group: ArrayLike, groups: int) -> NDArray[np.uint64]:
        """uint64 [groups]: sums of ``flows()["done"]`` by the ``group`` [flows] of each flow."""
    def links(self) -> NDArray[np.void]:
        """An array of LINK, one for each port that is plugged in: what it has sent by now.

        ``packets`` and ``bytes`` are those that have begun to leave; ``busy`` and ``stalled``
        (packets waited, without a credit or paused) are in ps.
        """
    def counters(self, host: int) -> dict[str, int]:
        """What the packet engine of a host counted."""
    def congestion_log(self, host: int) -> NDArray[np.void]:
        """An array of EVENT, the last 13: a flow's index came to the "trigger" of its level."""
    def blocked(self) -> list[tuple[int, int]]:
        """(node, port) of ports that wait for each other: a cycle, if there is one."""
    def advice(self) -> list[str]:
        """Sentences about buffers that are too small for their links, about RC without a timeout
        where it needs one, and about windows that keep flows below the rate of their links;
        empty: there is nothing to say.

        Credits that do not last for a round trip keep a lane below its link's rate; headroom of
        less than a round trip, three packets and a pause frame for each lane may lose what is not
        to be lost: the packet that crosses the threshold, the one that the pause waits for, and
        the one that has begun when it comes. Where a packet of RC flows may be lost or overtaken,
        ``timeout=0`` may leave the flow unfinished. Of RC and TCP flows that are larger than
        their window (``window`` and ``tcp["window"]``) the one that loses most is named.
        """
    def check(self, at_rest: bool = False) -> str | None:
        """None, or a sentence about what does not hold: packets and credits add up, no loss on a
        lossless lane; ``at_rest``: nothing is under way."""

class Attachment:
    """Where the adapter of a program is attached: hosts of the world, each a port of it."""

    @property
    def attachments(self) -> Attachments:
        """Those of the same world."""
    @property
    def hosts(self) -> tuple[int, ...]:
        """The numbers of the hosts that are its ports."""
    @property
    def address(self) -> int:
        """Of the struct vb_sim_attachment."""
    def add_fd(self, fd: int, channel: CompChannel | None = None) -> None:
        """A program may wait for this descriptor, of the CompChannel if it is one's."""
    def remove_fd(self, fd: int) -> None:
        """It will be closed."""

class Attachments:
    """What the programs on a world's hosts have in common.

    Of the descriptors that they may wait for, those of their completion channels and of their
    adapters' asynchronous events, only the world's events make one readable.
    """

    def __init__(self, world: World) -> None: ...
    @property
    def world(self) -> World:
        """The world on whose hosts they are."""
    @property
    def now(self) -> int:
        """The world's time in ps."""
    def at(self, *hosts: int, pkeys: Iterable[Sequence[int]] = ()) -> Attachment:
        """The Attachment whose ports are the hosts with these numbers, at most two.

        ``pkeys``: the P_Key table of each port; without one it has the default partition. Raises
        ValueError for hosts and P_Keys that cannot be, and for a host of another attachment.
        """
    def set_looped(self, looped: bool) -> None:
        """Whether a loop lets time pass; if not, polling does."""
    def watch(self, fd: int, reader: Handle) -> None:
        """From now on ``readable`` says ``reader`` for this descriptor.

        KeyError: it is none that a program may wait for; VerbsError: ENOMEM.
        """
    def unwatch(self, fd: int) -> Handle | None:
        """Nobody waits for it any more; who did, or None."""
    def watched(self) -> list[int]:
        """The descriptors that somebody waits for."""
    def gather(self, ready: MutableSequence[Handle], until: int | None = None) -> str:
        """Append to ``ready`` the readers of descriptors that have something to read.

        If it is empty even then, let the world's events happen until one of them has, or until
        the time ``until`` in ps. Returns why it ended: "readable"; "time"; "done", nothing is left
        to happen; "deadlock", nor will packets that wait for each other move; without ``until``
        also "events", after many. Ctrl-C ends it between two events.
        """
