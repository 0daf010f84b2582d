# SPDX-License-Identifier: Apache-2.0
"""The pictures of how Verbena works, on several pages. Called by pictures.py."""

from __future__ import annotations

from pen import Pen


def layers() -> Pen:
    pen = Pen(
        860,
        574,
        "Layers, each using only those below it: preload; dropin; host; the carriers direct, "
        "roce and sim, and wrap; port; event; tcp; transport; hca; memory; abi, lock and wire.",
    )
    rows = (
        ("preload", "sysfs and device files for programs; malloc of the shared heap", "plain"),
        ("dropin", "libibverbs.so.1: the exported calls, and the settings", "verbs"),
        ("carriers", "", "host"),
        ("port", "the ports of an adapter: addresses, GIDs, P_Keys, settings", "plain"),
        ("event", "the simulated fabric: events, links, switches", "plain"),
        ("tcp", "TCP's rules for the simulation, without I/O", "plain"),
        ("transport", "the packet engine: InfiniBand's transport, without I/O", "verbs"),
        ("hca", "the adapter: PD, MR, CQ, SRQ, QP, AH, events", "verbs"),
        ("memory", "copies, and the shared heap", "memory"),
        ("abi, lock, wire", "libibverbs' structures; locks and their order; packets", "plain"),
    )
    y = 20
    for name, says, kind in rows:
        height = 86 if name == "carriers" else 42
        pen.box(24, y, 812, height, kind)
        pen.word(40, y + 26, name, "title")
        pen.word(150, y + 26, says, "text")
        if name == "carriers":
            carriers(pen, y)
        y += height + 8
    return pen


def carriers(pen: Pen, y: float) -> None:
    pen.box(150, y + 10, 130, 66, "plain", title="host", lines=["chooses the carrier"])
    pen.box(316, y + 10, 150, 66, "verbs", title="direct", lines=["the poster copies"])
    pen.box(486, y + 10, 118, 66, "plain", title="wrap", lines=["faults, captures"])
    pen.box(620, y + 10, 90, 66, "verbs", title="roce", lines=["UDP 4791"])
    pen.box(726, y + 10, 100, 66, "plain", title="sim", lines=["simulated", "hosts"])
    pen.line((280, y + 43), (316, y + 43))
    pen.line((280, y + 60), (298, y + 60), (298, y + 82), (545, y + 82), (545, y + 76))
    pen.line((604, y + 43), (620, y + 43))


def segment() -> Pen:
    pen = Pen(
        860,
        330,
        "The segment of process B, a memory file that B and its peers have mapped: header, "
        "tables of regions, queue pairs and completion queues, SRQs, groups, evidence and "
        "rings.",
    )
    pen.box(
        24,
        20,
        560,
        290,
        "host",
        title="segment of process B: a memfd, mapped by B and all its peers",
    )
    rows = (
        ("header", "magic, version, instance (a random number that identifies B)"),
        ("MR table", "key, range, access, PD, place in the shared heap; windows"),
        ("QP table", "state, type, PD, access, destination, receive queue"),
        ("CQ table", "ring of completions; where producers and the consumer are"),
        ("SRQ table", "requests, in the order posted"),
        ("groups", "multicast groups and their queue pairs"),
        ("evidence", "the values of the last 1024 failed checks"),
        ("rings", "receive requests, completions"),
    )
    for at, (name, says) in enumerate(rows):
        y = 54 + 31 * at
        pen.box(40, y, 528, 27, "plain", radius=3)
        pen.word(52, y + 18, name, "text")
        pen.word(140, y + 18, says)
    pen.box(
        632,
        54,
        204,
        104,
        "memory",
        title="written by B",
        lines=["regions, attributes,", "receive requests,", "what was polled"],
    )
    pen.box(
        632,
        192,
        204,
        104,
        "verbs",
        title="written by a peer",
        lines=["completions, which", "receives are taken,", "ERR as a QP's state"],
    )
    pen.line((632, 106), (584, 106), kind="bytes")
    pen.line((632, 244), (584, 244), kind="ask")
    return pen


def biased_lock() -> Pen:
    pen = Pen(
        860,
        290,
        "The lock's usual thread stores held = 1 and loads whether the lock is still its own. "
        "Another thread takes the privilege away, calls membarrier, and waits until held is "
        "0.",
    )
    pen.box(24, 20, 390, 250, "host", title="usual thread")
    pen.box(446, 20, 390, 250, "host", title="another thread, rarely")
    pen.box(40, 54, 358, 52, "verbs", title="held = 1", lines=["a plain store"])
    pen.box(40, 126, 358, 52, "verbs", title="still mine?", lines=["a plain load"])
    pen.box(40, 204, 170, 52, "memory", title="yes", lines=["goes on"])
    pen.box(228, 204, 170, 52, "wrong", title="no: held = 0", lines=["waits like others"])
    pen.line((219, 106), (219, 126))
    pen.line((125, 178), (125, 204))
    pen.line((313, 178), (313, 204), kind="error")
    pen.box(462, 54, 358, 52, "plain", title="takes the privilege away", lines=["a store"])
    pen.box(
        462,
        118,
        358,
        52,
        "kernel",
        title="membarrier()",
        lines=["every processor passes a barrier"],
    )
    pen.box(462, 186, 358, 68, "plain", title="waits until held is 0")
    pen.word(474, 226, "by now the usual thread has seen its loss,")
    pen.word(474, 243, "or its held is visible here")
    pen.line((641, 106), (641, 118))
    pen.line((641, 170), (641, 186))
    return pen


def packet_way() -> Pen:
    pen = Pen(
        860,
        420,
        "A request goes from ibv_post_send through the engine, wrap and roce to "
        "UDP; at the other side from UDP up through roce, wrap and the engine to "
        "ibv_poll_cq.",
    )
    sender = (
        (
            "hca: the engine",
            ["cuts the message at the path MTU, gives", "sequence numbers, keeps the timer"],
            "verbs",
        ),
        ("wrap", ["faults, then the capture, if asked for"], "plain"),
        (
            "roce",
            ["ICRC; many packets to one system call", "(sendmmsg, UDP_SEGMENT)"],
            "verbs",
        ),
    )
    receiver = (
        (
            "hca: the engine",
            ["sequence number, key, range, access; payload", "into memory, what to answer"],
            "verbs",
        ),
        ("wrap", ["the capture, faults"], "plain"),
        (
            "roce",
            ["is it this process's? ICRC; many packets to", "one system call (recvmmsg, GRO)"],
            "verbs",
        ),
    )
    for x, stack, call, up in (
        (24, sender, "ibv_post_send", False),
        (506, receiver, "ibv_poll_cq", True),
    ):
        pen.middle(x + 165, 38, call, "code")
        y = 74
        for at, (title, lines, kind) in enumerate(stack):
            pen.box(x, y, 330, 70, kind, title=title, lines=lines)
            arrow(pen, x + 165, y - 28, y, up=up, kind="line" if at == 0 else "bytes")
            y += 98
        arrow(pen, x + 165, y - 28, y, up=up, kind="bytes")
    pen.word(202, 64, "request")
    pen.word(684, 64, "completion")
    pen.word(202, 162, "header, pointers to payload")
    pen.box(24, 368, 812, 34, "host")
    pen.middle(430, 390, "the network: UDP, port 4791; the source port goes by the flow", "text")
    return pen


def arrow(pen: Pen, x: float, above: float, below: float, *, up: bool, kind: str) -> None:
    ends = ((x, below), (x, above)) if up else ((x, above), (x, below))
    pen.line(*ends, kind=kind)


def reuseport() -> Pen:
    pen = Pen(
        860,
        180,
        "A datagram for UDP port 4791 meets the BPF program in the kernel, which chooses "
        "the socket of process A or B by the slot in the queue pair's number.",
    )
    pen.box(24, 60, 150, 60, "plain", title="a datagram", lines=["for UDP 4791"])
    pen.box(
        234,
        50,
        190,
        80,
        "kernel",
        title="BPF program",
        lines=["in the kernel; reads the", "QP number in the packet"],
    )
    pen.box(636, 24, 200, 56, "host", title="process A", lines=["its socket"])
    pen.box(636, 100, 200, 56, "host", title="process B", lines=["its socket"])
    pen.line((174, 90), (234, 90), kind="bytes")
    pen.line((424, 76), (636, 52), kind="bytes")
    pen.line((424, 104), (636, 128), kind="bytes")
    pen.middle(528, 48, "QP 0x5da…: slot 0x5da")
    pen.middle(528, 140, "QP 0x633…: slot 0x633")
    return pen


def connection_messages() -> Pen:
    pen = Pen(
        860,
        500,
        "The client's host sends a REQ to the listener's; the REP comes back, and then the RTU "
        "goes; data go both ways; a DREQ ends the connection, a DREP answers it, and both sides "
        "wait in timewait. Beside each message stand the events and calls of the programs.",
    )
    left, right = 300, 560
    pen.middle(left, 34, "the client's host", "title")
    pen.middle(right, 34, "the listener's host", "title")
    pen.line((left, 46), (left, 484), tip=False, dashed=True)
    pen.line((right, 46), (right, 484), tip=False, dashed=True)
    messages = (
        (70, "REQ", left, right, ["connect"], ["CONNECT_REQUEST"]),
        (140, "REP", right, left, ["CONNECT_RESPONSE"], ["accept, or reject: REJ"]),
        (210, "RTU", left, right, ["accept"], ["ESTABLISHED"]),
        (330, "DREQ", left, right, ["disconnect"], ["DISCONNECTED"]),
        (400, "DREP", right, left, ["DISCONNECTED"], ["disconnect"]),
    )
    for y, name, begin, end, by_client, by_server in messages:
        pen.message(begin, end, y, name)
        first, last = (0, 12) if begin == left else (12, 0)
        for word in by_client:
            pen.word(left - 16, y + first + 4, word, "code", "end")
        for word in by_server:
            pen.word(right + 16, y + last + 4, word, "code")
    pen.box(left - 60, 256, right - left + 120, 40, "verbs")
    pen.middle((left + right) / 2, 281, "established: both sides send", "text")
    for x, anchor, shift in ((left, "end", -16), (right, "", 16)):
        pen.box(x - 6, 426, 12, 44, "memory")
        pen.word(x + shift, 444, "timewait, 2 s", "text", anchor)
        pen.word(x + shift, 470, "TIMEWAIT_EXIT", "code", anchor)
    return pen


PICTURES = (layers, segment, biased_lock, packet_way, reuseport, connection_messages)
