# SPDX-License-Identifier: Apache-2.0
# The parts of src/native/cable that the binding uses.

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint c_bool "_Bool"

cdef extern from "cable/cable.h" nogil:
    uint64_t VB_CABLE_NEVER
    struct vb_cable_config:
        uint64_t bit_ps, seed
        uint32_t slot_bits, gap_bits, header_bits, jam_bits, fragment_bits, tries, doublings
        c_bool star, ideal, log_collisions
    struct vb_cable_entry:
        uint64_t start, end, token
        uint32_t station
        uint16_t outcome, collisions
    struct vb_cable_counters_t "vb_cable_counters":
        uint64_t sent, sent_bits, collisions, deferred, excessive, late, crossed, waited_ps
    struct vb_cable:
        uint64_t collisions, runs, last_end
        uint32_t stations
    int vb_cable_open(vb_cable *, const vb_cable_config *, uint32_t, const uint64_t *)
    void vb_cable_close(vb_cable *)
    int vb_cable_offer(vb_cable *, uint32_t, uint64_t now, uint64_t born, uint32_t, uint64_t)
    int vb_cable_source(vb_cable *, uint32_t, uint64_t now, uint32_t bits, uint64_t mean_ps)
    uint64_t vb_cable_next(vb_cable *)
    uint32_t vb_cable_run(vb_cable *, uint64_t, uint64_t, vb_cable_entry *, uint32_t)
    const vb_cable_counters_t *vb_cable_counters(const vb_cable *, uint32_t)
