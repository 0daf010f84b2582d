# SPDX-License-Identifier: Apache-2.0
# The parts of src/native/wire that the binding uses.

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint c_bool "_Bool"

cdef extern from "wire/opcode.h" nogil:
    uint32_t VB_OPCODE_SEND, VB_OPCODE_WRITE, VB_OPCODE_READ, VB_OPCODE_ATOMIC
    uint32_t VB_OPCODE_RESPONSE, VB_OPCODE_FIRST, VB_OPCODE_LAST, VB_OPCODE_PAYLOAD
    uint32_t VB_OPCODE_RDETH, VB_OPCODE_DETH, VB_OPCODE_XRCETH, VB_OPCODE_FETH, VB_OPCODE_RETH
    uint32_t VB_OPCODE_ATOMICETH, VB_OPCODE_AETH, VB_OPCODE_ATOMICACKETH, VB_OPCODE_IMM
    uint32_t VB_OPCODE_IETH, VB_OPCODE_ATOMIC_WRITE
    struct vb_opcode:
        const char *name
        uint32_t flags, header_length
    const vb_opcode vb_opcodes[256]

cdef extern from "wire/headers.h" nogil:
    struct vb_bth:
        uint8_t opcode, pad, version
        c_bool solicited, migrated, fecn, becn, ack_request
        uint16_t pkey
        uint32_t dest_qp, psn
    struct vb_reth:
        uint64_t addr
        uint32_t rkey, length
    struct vb_atomiceth:
        uint64_t addr, swap_add, compare
        uint32_t rkey
    struct vb_aeth:
        uint8_t kind, value
        uint32_t msn
    struct vb_deth:
        uint32_t qkey, source_qp

cdef extern from "wire/dissect.h" nogil:
    enum vb_layer:
        VB_LAYER_LRH
    enum vb_stack:
        VB_STACK_IB_LOCAL
        VB_STACK_IB_GLOBAL
        VB_STACK_ROCE1
        VB_STACK_ROCE2_IPV4
        VB_STACK_ROCE2_IPV6
    enum vb_dissect_error:
        VB_DISSECT_OK
    struct vb_span:
        const uint8_t *bytes
        uint32_t length
    struct vb_vlan:
        uint16_t type, tag
    struct vb_ethernet:
        uint8_t target[6]
        uint8_t source[6]
        uint32_t vlans
        vb_vlan vlan[2]
        uint16_t type
    struct vb_lrh:
        uint8_t vl, version, sl, reserved, next, reserved5
        uint16_t dlid, length, slid
    struct vb_grh:
        uint8_t version, traffic_class, next_header, hop_limit
        uint32_t flow_label
        uint16_t length
        uint8_t source[16]
        uint8_t target[16]
    struct vb_ipv4:
        uint8_t tos, ttl, protocol
        uint16_t length, id, fragment, checksum
        uint8_t source[4]
        uint8_t target[4]
        vb_span options
    struct vb_udp:
        uint16_t source_port, target_port, length, checksum
    struct vb_reserved:
        uint8_t bth_4, bth_8, rdeth, deth, xrceth
    struct vb_dissection:
        vb_stack stack
        vb_ethernet ethernet
        vb_lrh lrh
        vb_grh grh
        vb_ipv4 ipv4
        vb_udp udp
        vb_bth bth
        vb_reserved reserved
        uint32_t ee_context, xrc_srq, flush, immediate, invalidate_rkey, error_offset
        vb_deth deth
        vb_reth reth
        vb_atomiceth atomic
        vb_aeth aeth
        uint64_t atomic_ack
        vb_span payload, pad, trailer
        uint8_t icrc[4]
        uint8_t vcrc[2]
    vb_dissect_error vb_wire_dissect(vb_dissection *, vb_layer, const uint8_t *, uint32_t)
    void vb_wire_dissect_icrc(const vb_dissection *, const uint8_t *, uint8_t *)
    int vb_wire_dissect_write(const vb_dissection *, uint8_t *, uint32_t)
    const char *vb_wire_dissect_error_name(vb_dissect_error)
    const char *vb_wire_dissect_error_text(vb_dissect_error)

cdef extern from "wire/crc32.h" nogil:
    uint32_t vb_wire_crc32(uint32_t, const void *, size_t)

cdef extern from "wire/vcrc.h" nogil:
    uint16_t vb_wire_vcrc(const void *, size_t)

cdef extern from "wire/icrc.h" nogil:
    uint16_t VB_ROCE_PORT
    struct vb_icrc_flow:
        uint8_t source[16]
        uint8_t target[16]
        uint16_t source_port, target_port
    struct vb_icrc_unseen:
        uint16_t id
        c_bool dont_fragment
    uint32_t vb_wire_icrc_start_udp(const vb_icrc_flow *, uint32_t)
    int vb_wire_icrc_check_ipv4(uint32_t, const uint8_t *, uint32_t, vb_icrc_unseen *)
