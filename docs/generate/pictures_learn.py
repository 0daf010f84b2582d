# SPDX-License-Identifier: Apache-2.0
"""The pictures of "What is RDMA" and of the tutorial. Called by pictures.py."""

from __future__ import annotations

from pen import Pen


def sockets_and_rdma() -> Pen:
    pen = Pen(
        860,
        430,
        "Above: a message through sockets is copied by both processors, through both kernels. "
        "Below: an RDMA WRITE goes from memory to memory by the two adapters; no kernel and "
        "no processor of the target takes part.",
    )
    sockets_row(pen, 20)
    rdma_row(pen, 228)
    return pen


def sockets_row(pen: Pen, top: float) -> None:
    pen.word(24, top + 14, "Sockets: send() and recv()", "title")
    for x, name, call in (
        (24, "Process A", "send(sock, buffer)"),
        (656, "Process B", "recv(sock)"),
    ):
        pen.box(x, top + 28, 180, 132, "host", title=name, lines=[f"`{call}"])
        pen.box(x + 16, top + 92, 148, 52, "memory", title="buffer")
    for x in (252, 502):
        pen.box(
            x,
            top + 28,
            106,
            132,
            "kernel",
            title="kernel",
            lines=["socket buffer", "TCP, IP", "interrupts"],
        )
    pen.box(388, top + 92, 84, 52, "plain", title="network")
    pen.line((188, top + 130), (252, top + 130), kind="slow")
    pen.line((358, top + 130), (388, top + 130), kind="slow")
    pen.line((472, top + 130), (502, top + 130), kind="slow")
    pen.line((608, top + 130), (672, top + 130), kind="slow")
    pen.middle(220, top + 122, "copy")
    pen.middle(640, top + 122, "copy")
    pen.word(
        24, top + 182, "Two system calls and two copies; B's processor works for every message."
    )


def rdma_row(pen: Pen, top: float) -> None:
    pen.word(24, top + 14, "RDMA: a WRITE", "title")
    for x, name, call in (
        (24, "Process A", "qp.write(...)"),
        (656, "Process B", "does something else"),
    ):
        pen.box(x, top + 28, 180, 132, "host", title=name, lines=[f"`{call}" if x == 24 else call])
        pen.box(x + 16, top + 92, 148, 52, "memory", title="registered memory")
    for x, what in (
        (252, ["reads memory", "makes packets"]),
        (502, ["checks the key", "writes memory"]),
    ):
        pen.box(x, top + 28, 106, 132, "verbs", title="adapter", lines=what)
    pen.box(388, top + 92, 84, 52, "plain", title="network")
    for begin, end in ((188, 252), (358, 388), (472, 502), (608, 672)):
        pen.line((begin, top + 130), (end, top + 130), kind="bytes")
    pen.word(
        24, top + 182, "No system call, no copy by a processor; B's processor does nothing at all."
    )


def rdma_pieces() -> Pen:
    pen = Pen(
        860,
        372,
        "Two processes. In each, a protection domain holds memory regions and queue pairs; a "
        "queue pair has a send queue and a receive queue and reports to a completion queue. "
        "The queue pairs of both are connected.",
    )
    process(pen, 24, "Process A", mirrored=False)
    process(pen, 466, "Process B", mirrored=True)
    pen.line((330, 140), (514, 140), kind="bytes")
    pen.line((514, 186), (330, 186), kind="bytes")
    pen.middle(430, 130, "connected")
    pen.word(
        24,
        354,
        "A region's key (rkey) and address travel to the peer by any way: mostly a socket, once.",
    )
    return pen


def process(pen: Pen, x: float, name: str, *, mirrored: bool) -> None:
    pen.box(x, 24, 370, 306, "host", title=f"{name}: a context of the device")
    pen.box(x + 16, 58, 338, 176, "plain", title="protection domain (PD)")
    pair, region = (x + 36, x + 208) if mirrored else (x + 178, x + 32)
    width = 140
    pen.box(pair, 92, width, 126, "verbs", title="queue pair (QP)")
    queues = ("receive queue", "send queue") if mirrored else ("send queue", "receive queue")
    pen.box(pair + 12, 122, width - 24, 36, "plain", title=queues[0])
    pen.box(pair + 12, 168, width - 24, 36, "plain", title=queues[1])
    pen.box(
        region,
        92,
        130,
        126,
        "memory",
        title="memory region",
        lines=["(MR)", "`addr, length", "`lkey, rkey"],
    )
    pen.box(
        x + 16,
        262,
        338,
        52,
        "verbs",
        title="completion queue (CQ)",
        lines=["what has been done, or has failed"],
    )
    pen.line((pair + width / 2, 218), (pair + width / 2, 262))


def without_kernel() -> Pen:
    pen = Pen(
        860,
        420,
        "Once, the kernel pins the pages of a region, writes them into the adapter's table, and "
        "maps queues and a doorbell page into the process. For each request the process writes "
        "into its queue and rings its doorbell; the adapter fetches the request, checks it by its "
        "table, and reads the pinned pages.",
    )
    pen.box(24, 24, 812, 76, "kernel", title="the kernel, once, when something is made")
    pen.word(36, 66, "ibv_create_qp: maps the queues and a doorbell page into this process alone")
    pen.word(
        36, 86, "ibv_reg_mr: pins the pages, and writes into the adapter's table where they are"
    )
    pen.box(24, 132, 300, 264, "host", title="process A")
    pen.box(40, 166, 268, 54, "plain", title="queue", lines=["key, address, length"])
    pen.box(40, 236, 268, 46, "plain", title="doorbell page")
    pen.box(40, 298, 268, 82, "memory", title="memory region", lines=["virtual addresses;"])
    pen.word(52, 356, "its pages are pinned: physical memory")
    pen.word(52, 372, "that stays where it is")
    pen.box(500, 132, 336, 264, "verbs", title="adapter")
    pen.box(
        516, 166, 304, 54, "plain", title="1. fetches the request", lines=["of process A's queue"]
    )
    pen.box(516, 236, 304, 62, "plain", title="2. its table: is it allowed, and where is it?")
    pen.word(528, 276, "key: domain, range, access, pages", "code")
    pen.box(516, 314, 304, 66, "plain", title="3. reads the pages, makes packets")
    pen.word(528, 354, "or, for a wrong key: an error")
    pen.line((308, 259), (430, 259), (430, 206), (516, 206), kind="ask")
    pen.middle(368, 250, "“something new”")
    pen.line((308, 184), (516, 184), kind="bytes")
    pen.middle(408, 176, "the request")
    pen.line((308, 348), (516, 348), kind="bytes")
    pen.middle(412, 340, "the bytes")
    pen.line((174, 100), (174, 132), kind="slow")
    pen.line((668, 100), (668, 132), kind="slow")
    return pen


def write_step() -> Pen:
    pen = Pen(
        860,
        360,
        "In time: the two connect over a socket, the receiver sends address and key of its "
        "board, the writer's WRITE puts the bytes there, the writer gets a completion and "
        "says so over the socket.",
    )
    writer, receiver = 230, 630
    pen.box(120, 20, 220, 44, "host", title="writer.py")
    pen.box(520, 20, 220, 44, "host", title="receiver.py")
    for x in (writer, receiver):
        pen.line((x, 64), (x, 340), tip=False, dashed=True)
    pen.message(
        writer, receiver, 92, "connect_rc(): the queue pairs' numbers, by the socket", drop=0
    )
    pen.line((receiver, 92), (writer, 92))
    pen.message(receiver, writer, 134, "address and rkey of the board, by the socket")
    pen.message(writer, receiver, 190, "WRITE “Hello, board!”", "bytes")
    pen.box(receiver + 14, 180, 190, 52, "memory", title="the board", lines=["13 bytes are there"])
    pen.message(receiver, writer, 244, "acknowledged")
    pen.box(34, 240, 182, 52, "verbs", title="completion", lines=["RDMA_WRITE: SUCCESS"])
    pen.message(writer, receiver, 300, "“!”, by the socket: you may look now")
    return pen


def queue_pair() -> Pen:
    pen = Pen(
        860,
        390,
        "A queue pair: work requests are posted at the tail of its send queue and its receive "
        "queue, and the adapter takes them from the head. Below, the states of both queue "
        "pairs: RESET, INIT, RTR, RTS.",
    )
    for x, name, queues in (
        (24, "near", (("send queue", (4, 5)), ("receive queue", ()))),
        (456, "far", (("receive queue", (0, 1)), ("send queue", ()))),
    ):
        pen.box(x, 24, 380, 190, "host", title=f"queue pair “{name}”")
        for y, (queue, taken) in zip((58, 136), queues, strict=True):
            pen.word(x + 16, y + 12, queue, "text")
            for place in range(6):
                left = x + 16 + 58 * place
                pen.box(left, y + 20, 52, 32, "verbs" if place in taken else "plain", radius=3)
                if place in taken:
                    pen.middle(left + 26, y + 40, "SEND" if name == "near" else "RECV")
    pen.line((382, 94), (472, 94), kind="bytes")
    pen.line((472, 172), (382, 172), dashed=True)
    pen.middle(
        430, 240, "A SEND takes the oldest RECV of the other side; the other way it is the same."
    )
    for at, (state, means) in enumerate(
        (
            ("RESET", "made"),
            ("INIT", "receives may be posted"),
            ("RTR", "knows its peer, receives"),
            ("RTS", "sends"),
        )
    ):
        x = 34 + 206 * at
        pen.box(x, 276, 172, 52, "verbs", title=state, lines=[means])
        if at:
            pen.line((x - 34, 302), (x, 302))
    pen.box(652, 344, 172, 34, "wrong", title="ERR: after a failure")
    pen.line((738, 328), (738, 344), kind="error")
    return pen


def completions() -> Pen:
    pen = Pen(
        860,
        300,
        "A program has posted three requests. The adapter has carried out 7 and 8, whose "
        "completions are in the completion queue, which the program polls; 9 still waits in "
        "the send queue.",
    )
    pen.box(24, 40, 200, 220, "host", title="your program")
    for at, wr_id in enumerate((7, 8, 9)):
        pen.word(40, 84 + 20 * at, f"qp.write(..., wr_id={wr_id})", "code")
    pen.word(40, 206, "cq.wait(), cq.poll()", "code")
    pen.box(330, 60, 236, 62, "verbs", title="send queue")
    pen.box(486, 88, 62, 26, "plain", radius=3)
    pen.middle(517, 105, "wr_id 9")
    pen.box(
        656, 60, 180, 180, "host", title="adapter", lines=["works while the", "program goes on"]
    )
    pen.box(330, 176, 236, 62, "memory", title="completion queue")
    for at, text in enumerate(("7: ok", "8: ok")):
        pen.box(346 + 70 * at, 204, 62, 26, "plain", radius=3)
        pen.middle(377 + 70 * at, 221, text)
    pen.line((224, 92), (330, 92), kind="ask")
    pen.line((566, 100), (656, 100), kind="ask")
    pen.line((656, 216), (566, 216), kind="bytes")
    pen.line((330, 202), (224, 202), kind="bytes")
    pen.middle(277, 84, "post")
    pen.middle(277, 194, "completions")
    pen.middle(
        430,
        284,
        "Until its completion has come, a request's memory belongs to the adapter.",
        "text",
    )
    return pen


def keys() -> Pen:
    pen = Pen(
        860,
        330,
        "A WRITE names a key, an address and a length. The target's adapter asks in turn: "
        "does the key name a region, is it of this queue pair's protection domain, is the "
        "range inside, is the access granted? Only then it writes. A no at any of them is a "
        "remote access error.",
    )
    pen.box(
        24,
        40,
        190,
        100,
        "host",
        title="the WRITE",
        lines=["`rkey   0x905efa12", "`addr   mr.addr", "`length 64"],
    )
    asked = (
        ("key", "is known?"),
        ("domain", "the QP's own?"),
        ("range", "all inside?"),
        ("access", "is granted?"),
    )
    for at, (title, question) in enumerate(asked):
        x = 254 + 118 * at
        pen.box(x, 56, 104, 68, "verbs", title=title, lines=[question])
        pen.line((x - (40 if at == 0 else 14), 90), (x, 90), kind="bytes" if at else "ask")
        pen.line((x + 52, 124), (x + 52, 196), kind="error")
    pen.box(734, 40, 104, 100, "memory", title="memory", lines=["64 bytes", "are written"])
    pen.line((712, 90), (734, 90), kind="bytes")
    pen.box(254, 196, 458, 96, "wrong", title="no: remote access error (REM_ACCESS_ERR)")
    pen.word(266, 238, "no byte has moved; both queue pairs are in ERR")
    pen.word(266, 256, "the completion says which check failed, what was asked, what there was")
    pen.word(266, 274, "(an adapter gives the status alone)")
    pen.word(24, 174, "checked by the target's adapter,")
    pen.word(24, 192, "for every packet")
    return pen


def packet() -> Pen:
    pen = Pen(
        860,
        334,
        "The packet of the WRITE: Ethernet 14 bytes, IPv4 20, UDP 8, BTH 12, RETH 16, payload "
        "16 with 3 of padding, ICRC 4: 90 bytes.",
    )
    pen.word(24, 36, "WRITE Only, 90 bytes", "title")
    parts = (
        ("Ethernet", 14, "plain", ["addresses"]),
        ("IPv4", 20, "plain", ["addresses", "ECN"]),
        ("UDP", 8, "plain", ["4791"]),
        ("BTH", 12, "verbs", ["operation", "QP number", "PSN"]),
        ("RETH", 16, "verbs", ["address", "rkey", "length"]),
        ("payload", 16, "memory", ["Hello, board!", "3 bytes pad"]),
        ("ICRC", 4, "verbs", ["checksum"]),
    )
    x = 24.0
    widths = (116, 116, 84, 128, 128, 128, 112)
    for (name, size, kind, lines), width in zip(parts, widths, strict=True):
        pen.box(x, 52, width - 4, 96, kind, title=f"{name}: {size}", lines=lines, radius=3)
        x += width
    pen.word(24, 176, "any network")
    pen.line((24, 160), (336, 160), tip=False)
    pen.word(340, 176, "InfiniBand's transport, the same on a cable of its own")
    pen.line((340, 160), (832, 160), kind="ask", tip=False)
    pen.word(24, 216, "Acknowledge, 62 bytes", "title")
    x = 24.0
    answer = (*parts[:4], ("AETH", 4, "verbs", ["ACK or NAK"]), parts[6])
    for (name, size, kind, lines), width in zip(answer, (116, 116, 84, 128, 128, 112), strict=True):
        pen.box(x, 230, width - 4, 86, kind, title=f"{name}: {size}", lines=lines, radius=3)
        x += width
    return pen


def simulated_fabric() -> Pen:
    pen = Pen(
        860,
        260,
        "Two simulated hosts with your programs, a switch between them. The WRITE goes from h1 to "
        "h0, on cables of 100 Gb/s and 1000 m, which take 5 microseconds each way.",
    )
    for x, name, program in ((24, "h0", "receiver"), (636, "h1", "writer")):
        pen.box(x, 40, 200, 150, "host", title=f"host {name}: {program}")
        pen.box(x + 16, 72, 168, 40, "plain", title="your program")
        pen.box(x + 16, 132, 168, 44, "verbs", title="simulated adapter")
        pen.line((x + 100, 112), (x + 100, 132), kind="ask")
    pen.box(372, 128, 116, 52, "kernel", title="switch s0", lines=["queues"])
    pen.line((372, 154), (208, 154), kind="bytes")
    pen.line((652, 154), (488, 154), kind="bytes")
    for x in (298, 562):
        pen.middle(x, 144, "100 Gb/s, 1 km, 5 µs")
    pen.middle(430, 118, "the WRITE")
    pen.middle(430, 62, "one clock for all of it: virtual time,", "text")
    pen.middle(430, 82, "which goes from event to event", "text")
    pen.middle(
        430, 228, "The same engine makes the same packets; links and switches are computed.", "text"
    )
    return pen


PICTURES = (
    *(
        sockets_and_rdma,
        rdma_pieces,
        without_kernel,
        write_step,
        queue_pair,
        completions,
        keys,
        packet,
    ),
    simulated_fabric,
)
