# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""The compiled binding of the wire room: packets as dictionaries of numbers and bytes, and back.

``packet.py`` makes classes of them and has checked every value before ``assemble`` sees it.
"""

from libc.errno cimport ENOSPC
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from verbena.wire.errors import PacketError, UnseenError

include "_wire_abi.pxi"

cdef dict OPCODE_HEADERS = {
    "rdeth": VB_OPCODE_RDETH,
    "deth": VB_OPCODE_DETH,
    "xrceth": VB_OPCODE_XRCETH,
    "feth": VB_OPCODE_FETH,
    "reth": VB_OPCODE_RETH,
    "atomiceth": VB_OPCODE_ATOMICETH,
    "aeth": VB_OPCODE_AETH,
    "atomicacketh": VB_OPCODE_ATOMICACKETH,
    "immdt": VB_OPCODE_IMM,
    "ieth": VB_OPCODE_IETH,
}
cdef dict OPCODE_KINDS = {
    "send": VB_OPCODE_SEND,
    "write": VB_OPCODE_WRITE,
    "read": VB_OPCODE_READ,
    "atomic": VB_OPCODE_ATOMIC,
    "atomic-write": VB_OPCODE_ATOMIC_WRITE,
    "response": VB_OPCODE_RESPONSE,
    "first": VB_OPCODE_FIRST,
    "last": VB_OPCODE_LAST,
    "payload": VB_OPCODE_PAYLOAD,
}


def opcode_row(uint8_t opcode):
    """(name, kinds, headers, length of BTH and headers) of an opcode, or None if there is none."""
    cdef const vb_opcode *row = &vb_opcodes[opcode]
    if row.name is NULL:
        return None
    kinds = tuple(name for name, flag in OPCODE_KINDS.items() if row.flags & flag)
    headers = tuple(name for name, flag in OPCODE_HEADERS.items() if row.flags & flag)
    return row.name.decode(), kinds, headers, row.header_length


# ---- a packet to a dictionary --------------------------------------------------------------

cdef bytes _bytes(const uint8_t *at, size_t length):
    return (<const char *>at)[:length]


cdef bytes _span(vb_span span):
    return b"" if span.length == 0 else _bytes(span.bytes, span.length)


cdef dict _ethernet(const vb_ethernet *eth):
    vlans = tuple((eth.vlan[i].type, eth.vlan[i].tag) for i in range(eth.vlans))
    return dict(dst=_bytes(eth.target, 6), src=_bytes(eth.source, 6), vlans=vlans, type=eth.type)


cdef dict _lrh(const vb_lrh *lrh):
    return dict(
        vl=lrh.vl, lver=lrh.version, sl=lrh.sl, lnh=lrh.next, dlid=lrh.dlid, pktlen=lrh.length,
        slid=lrh.slid, rsv2=lrh.reserved, rsv5=lrh.reserved5,
    )


cdef dict _grh(const vb_grh *grh):
    return dict(
        ipver=grh.version, tclass=grh.traffic_class, flow=grh.flow_label, paylen=grh.length,
        nxthdr=grh.next_header, hoplmt=grh.hop_limit,
        sgid=_bytes(grh.source, 16), dgid=_bytes(grh.target, 16),
    )


cdef dict _ipv4(const vb_ipv4 *ip):
    return dict(
        tos=ip.tos, len=ip.length, id=ip.id, frag=ip.fragment, ttl=ip.ttl, proto=ip.protocol,
        csum=ip.checksum, src=_bytes(ip.source, 4), dst=_bytes(ip.target, 4),
        options=_span(ip.options),
    )


cdef dict _udp(const vb_udp *udp):
    return dict(
        sport=udp.source_port, dport=udp.target_port, len=udp.length, csum=udp.checksum
    )


cdef dict _carriers(const vb_dissection *packet):
    headers = {}
    if packet.stack == VB_STACK_IB_LOCAL or packet.stack == VB_STACK_IB_GLOBAL:
        headers["lrh"] = _lrh(&packet.lrh)
    else:
        headers["eth"] = _ethernet(&packet.ethernet)
    if packet.stack == VB_STACK_IB_GLOBAL or packet.stack == VB_STACK_ROCE1:
        headers["grh"] = _grh(&packet.grh)
    if packet.stack == VB_STACK_ROCE2_IPV4:
        headers["ipv4"] = _ipv4(&packet.ipv4)
    if packet.stack == VB_STACK_ROCE2_IPV6:
        headers["ipv6"] = _grh(&packet.grh)
    if packet.stack == VB_STACK_ROCE2_IPV4 or packet.stack == VB_STACK_ROCE2_IPV6:
        headers["udp"] = _udp(&packet.udp)
    return headers


cdef dict _extended(const vb_dissection *packet):
    cdef uint32_t flags = vb_opcodes[packet.bth.opcode].flags
    headers = {}
    if flags & VB_OPCODE_RDETH:
        headers["rdeth"] = dict(eec=packet.ee_context, rsv=packet.reserved.rdeth)
    if flags & VB_OPCODE_DETH:
        headers["deth"] = dict(
            qkey=packet.deth.qkey, src_qp=packet.deth.source_qp, rsv=packet.reserved.deth
        )
    if flags & VB_OPCODE_XRCETH:
        headers["xrceth"] = dict(srq=packet.xrc_srq, rsv=packet.reserved.xrceth)
    if flags & VB_OPCODE_FETH:
        headers["feth"] = dict(
            plt=packet.flush & 0xf, sel=packet.flush >> 4 & 3, rsv=packet.flush >> 6
        )
    if flags & VB_OPCODE_RETH:
        headers["reth"] = dict(
            va=packet.reth.addr, rkey=packet.reth.rkey, dmalen=packet.reth.length
        )
    if flags & VB_OPCODE_ATOMICETH:
        headers["atomiceth"] = dict(
            va=packet.atomic.addr, rkey=packet.atomic.rkey,
            swap_add=packet.atomic.swap_add, compare=packet.atomic.compare,
        )
    if flags & VB_OPCODE_AETH:
        headers["aeth"] = dict(
            syndrome=packet.aeth.kind << 5 | packet.aeth.value, msn=packet.aeth.msn
        )
    if flags & VB_OPCODE_ATOMICACKETH:
        headers["atomicacketh"] = dict(orig=packet.atomic_ack)
    if flags & VB_OPCODE_IETH:
        headers["ieth"] = dict(rkey=packet.invalidate_rkey)
    return headers


cdef dict _bth(const vb_dissection *packet):
    return dict(
        opcode=packet.bth.opcode, se=packet.bth.solicited, m=packet.bth.migrated,
        pad=packet.bth.pad, tver=packet.bth.version, pkey=packet.bth.pkey, fecn=packet.bth.fecn,
        becn=packet.bth.becn, dest_qp=packet.bth.dest_qp, ack_req=packet.bth.ack_request,
        psn=packet.bth.psn, rsv6=packet.reserved.bth_4, rsv7=packet.reserved.bth_8,
    )


cdef uint32_t _dissect(vb_dissection *packet, bytes data, int layer) except 0xffffffff:
    cdef const uint8_t *at = data
    cdef uint32_t length
    if len(data) > 0x7fffffff:
        raise PacketError("too long for a packet", "LENGTH", 0)
    length = len(data)
    error = vb_wire_dissect(packet, <vb_layer>layer, at, length)
    if error != VB_DISSECT_OK:
        raise PacketError(
            vb_wire_dissect_error_text(error).decode(),
            vb_wire_dissect_error_name(error).decode(),
            packet.error_offset,
        )
    return length


def dissect(bytes data, int layer):
    """(stack, BTH, headers by name, rest) of a packet; PacketError."""
    cdef vb_dissection packet
    _dissect(&packet, data, layer)
    rest = dict(
        payload=_span(packet.payload), pad_bytes=_span(packet.pad), icrc=_bytes(packet.icrc, 4)
    )
    if layer == VB_LAYER_LRH:
        rest["vcrc"] = _bytes(packet.vcrc, 2)
    else:
        rest["trailer"] = _span(packet.trailer)
    if vb_opcodes[packet.bth.opcode].flags & VB_OPCODE_IMM:
        rest["immdt"] = packet.immediate.to_bytes(4, "big")
    return packet.stack, _bth(&packet), _carriers(&packet) | _extended(&packet), rest


# ---- a dictionary to a packet --------------------------------------------------------------

cdef vb_span _as_span(bytes data):
    cdef vb_span span
    span.bytes = data
    span.length = len(data)
    return span


cdef void _put(uint8_t *to, bytes data, size_t length) noexcept:
    memcpy(to, <const char *>data, length)


cdef int _fill_ethernet(vb_ethernet *eth, dict fields) except -1:
    _put(eth.target, fields["dst"], 6)
    _put(eth.source, fields["src"], 6)
    eth.type = fields["type"]
    for i, (kind, tag) in enumerate(fields["vlans"]):
        eth.vlan[<int>i].type = kind
        eth.vlan[<int>i].tag = tag
    eth.vlans = len(fields["vlans"])
    return 0


cdef int _fill_lrh(vb_lrh *lrh, dict fields) except -1:
    lrh.vl, lrh.version, lrh.sl = fields["vl"], fields["lver"], fields["sl"]
    lrh.reserved, lrh.next = fields["rsv2"], fields["lnh"]
    lrh.dlid, lrh.slid = fields["dlid"], fields["slid"]
    lrh.reserved5, lrh.length = fields["rsv5"], fields["pktlen"]
    return 0


cdef int _fill_grh(vb_grh *grh, dict fields) except -1:
    grh.version, grh.traffic_class = fields["ipver"], fields["tclass"]
    grh.flow_label, grh.length = fields["flow"], fields["paylen"]
    grh.next_header, grh.hop_limit = fields["nxthdr"], fields["hoplmt"]
    _put(grh.source, fields["sgid"], 16)
    _put(grh.target, fields["dgid"], 16)
    return 0


cdef int _fill_ipv4(vb_ipv4 *ip, dict fields) except -1:
    ip.tos, ip.length, ip.id = fields["tos"], fields["len"], fields["id"]
    ip.fragment, ip.ttl = fields["frag"], fields["ttl"]
    ip.protocol, ip.checksum = fields["proto"], fields["csum"]
    _put(ip.source, fields["src"], 4)
    _put(ip.target, fields["dst"], 4)
    ip.options = _as_span(fields["options"])
    return 0


cdef int _fill_udp(vb_udp *udp, dict fields) except -1:
    udp.source_port, udp.target_port = fields["sport"], fields["dport"]
    udp.length, udp.checksum = fields["len"], fields["csum"]
    return 0


cdef int _fill_carriers(vb_dissection *packet, dict headers) except -1:
    if "eth" in headers:
        _fill_ethernet(&packet.ethernet, headers["eth"])
    if "lrh" in headers:
        _fill_lrh(&packet.lrh, headers["lrh"])
    if "grh" in headers:
        _fill_grh(&packet.grh, headers["grh"])
    if "ipv4" in headers:
        _fill_ipv4(&packet.ipv4, headers["ipv4"])
    if "ipv6" in headers:
        _fill_grh(&packet.grh, headers["ipv6"])
    if "udp" in headers:
        _fill_udp(&packet.udp, headers["udp"])
    return 0


cdef int _fill_bth(vb_dissection *packet, dict fields) except -1:
    cdef vb_bth *bth = &packet.bth
    bth.opcode, bth.pad, bth.version = fields["opcode"], fields["pad"], fields["tver"]
    bth.solicited, bth.migrated = fields["se"], fields["m"]
    bth.pkey, bth.fecn, bth.becn = fields["pkey"], fields["fecn"], fields["becn"]
    bth.dest_qp, bth.ack_request = fields["dest_qp"], fields["ack_req"]
    bth.psn = fields["psn"]
    packet.reserved.bth_4, packet.reserved.bth_8 = fields["rsv6"], fields["rsv7"]
    return 0


cdef int _fill_extended(vb_dissection *packet, dict headers) except -1:
    if header := headers.get("rdeth"):
        packet.ee_context, packet.reserved.rdeth = header["eec"], header["rsv"]
    if header := headers.get("deth"):
        packet.deth.qkey, packet.deth.source_qp = header["qkey"], header["src_qp"]
        packet.reserved.deth = header["rsv"]
    if header := headers.get("xrceth"):
        packet.xrc_srq, packet.reserved.xrceth = header["srq"], header["rsv"]
    if header := headers.get("feth"):
        packet.flush = header["plt"] | header["sel"] << 4 | header["rsv"] << 6
    if header := headers.get("reth"):
        packet.reth.addr, packet.reth.rkey = header["va"], header["rkey"]
        packet.reth.length = header["dmalen"]
    if header := headers.get("atomiceth"):
        packet.atomic.addr, packet.atomic.rkey = header["va"], header["rkey"]
        packet.atomic.swap_add, packet.atomic.compare = header["swap_add"], header["compare"]
    if header := headers.get("aeth"):
        packet.aeth.kind, packet.aeth.value = header["syndrome"] >> 5, header["syndrome"] & 31
        packet.aeth.msn = header["msn"]
    if header := headers.get("atomicacketh"):
        packet.atomic_ack = header["orig"]
    if header := headers.get("ieth"):
        packet.invalidate_rkey = header["rkey"]
    return 0


def assemble(int stack, dict bth, dict headers, dict rest):
    """The bytes of what ``dissect`` returns; every value has been checked to fit its field."""
    cdef vb_dissection packet
    cdef int length
    memset(&packet, 0, sizeof(packet))
    packet.stack = <vb_stack>stack
    _fill_bth(&packet, bth)
    _fill_carriers(&packet, headers)
    _fill_extended(&packet, headers)
    packet.payload, packet.pad = _as_span(rest["payload"]), _as_span(rest["pad_bytes"])
    _put(packet.icrc, rest["icrc"], 4)
    if "vcrc" in rest:
        _put(packet.vcrc, rest["vcrc"], 2)
    if "trailer" in rest:
        packet.trailer = _as_span(rest["trailer"])
    if "immdt" in rest:
        packet.immediate = int.from_bytes(rest["immdt"], "big")
    size = 256 + packet.payload.length + packet.trailer.length
    buffer = bytearray(size)
    cdef uint8_t[::1] view = buffer
    length = vb_wire_dissect_write(&packet, &view[0], size)
    assert length >= 0 and length != -ENOSPC, length
    return bytes(buffer[:length])


# ---- sums ----------------------------------------------------------------------------------

def icrc(bytes data, int layer):
    """The four bytes of ICRC that a packet should have; PacketError if it is none."""
    cdef vb_dissection packet
    cdef uint8_t wire[4]
    _dissect(&packet, data, layer)
    vb_wire_dissect_icrc(&packet, data, wire)
    return _bytes(wire, 4)


def vcrc(bytes data):
    """The two bytes of VCRC over ``data``: from the LRH to the ICRC, or to a raw packet's end."""
    return vb_wire_vcrc(<const char *>data, len(data)).to_bytes(2, "little")


def crc32(bytes data, uint32_t register):
    """The running register after ``data``, by the way that this CPU uses."""
    return vb_wire_crc32(register, <const char *>data, len(data))


def unseen(bytes source, bytes target, uint16_t source_port, bytes transport, guess):
    """(identification, don't fragment) that explain a datagram's ICRC; UnseenError if none do."""
    cdef vb_icrc_flow flow
    cdef vb_icrc_unseen found
    cdef const uint8_t *at = transport
    cdef uint32_t length
    if len(source) != 16 or len(target) != 16 or not 16 <= len(transport) <= 65499:
        raise ValueError("addresses of 16 bytes, and 16 to 65499 bytes from the BTH to the ICRC")
    _put(flow.source, source, 16)
    _put(flow.target, target, 16)
    flow.source_port, flow.target_port = source_port, VB_ROCE_PORT
    found.id, found.dont_fragment = guess
    length = <uint32_t>len(transport) - 4
    if vb_wire_icrc_check_ipv4(vb_wire_icrc_start_udp(&flow, length), at, length, &found):
        raise UnseenError("no IPv4 identification explains the ICRC", len(transport) - 4)
    return found.id, found.dont_fragment
