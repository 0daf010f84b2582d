# SPDX-License-Identifier: Apache-2.0
# Address handles and the address vector that they share with connected QPs.

@cython.no_gc_clear
cdef class AH(Resource):
    """An address handle: where a UD request goes."""

    cdef readonly PD pd
    cdef ibv_ah *ah

    def __dealloc__(self):
        self._leave()
        self._destroy()

    cdef bint _is_open(self):
        return self.ah is not NULL

    cdef bint _uses(self, Resource other):
        return other is self.pd

    cdef int _destroy(self) noexcept:
        cdef int code = 0
        if self.ah is not NULL:
            code = self.context.library.call.destroy_ah(self.ah)
            code = _error_of(code)
            if code == 0:
                self.ah = NULL
        return code

    cdef void _forget(self) noexcept:
        self.ah = NULL

    def __repr__(self):
        return f"<AH {'open' if self._is_open() else 'closed'}>"


cdef AH _new_ah(PD pd):
    cdef AH self = AH.__new__(AH)
    self._adopt(pd.context)
    self.pd = pd
    return self


cdef AH _create_ah(PD pd, attr):
    cdef AH self = _new_ah(pd)
    cdef ibv_ah_attr c_attr
    _fill_ah_attr(&c_attr, attr)
    pd._begin()
    with nogil:
        self.ah = pd.context.library.call.create_ah(pd.pd, &c_attr)
    pd._end()
    if self.ah is NULL:
        raise pd.context._failed("create_ah", errno)
    return self


cdef AH _create_ah_from_wc(PD pd, WC wc, grh, uint8_t port_num):
    cdef AH self = _new_ah(pd)
    cdef Py_buffer view
    cdef char header[40]
    memset(header, 0, sizeof(header))
    if grh is not None:
        PyObject_GetBuffer(grh, &view, PyBUF_C_CONTIGUOUS)
        try:
            if view.len < 40:
                raise ValueError("grh must hold the 40 bytes of the GRH")
            memcpy(header, view.buf, 40)
        finally:
            PyBuffer_Release(&view)
    pd._check()
    self.ah = pd.context.library.call.create_ah_from_wc(pd.pd, &wc.wc, <ibv_grh *>header, port_num)
    if self.ah is NULL:
        raise pd.context._failed("create_ah_from_wc", errno)
    return self


cdef int _fill_ah_attr(ibv_ah_attr *c_attr, attr) except -1:
    cdef bytes dgid = bytes(_must_be(_attributes.AHAttr, attr).dgid)
    if len(dgid) != 16:
        raise ValueError(f"dgid must be 16 bytes, not {len(dgid)}")
    memset(c_attr, 0, sizeof(c_attr[0]))
    memcpy(c_attr.grh.dgid.raw, <const char *>dgid, 16)
    c_attr.grh.sgid_index = <uint8_t>_wanted(attr.sgid_index, "sgid_index", 0xff)
    c_attr.grh.hop_limit = <uint8_t>_wanted(attr.hop_limit, "hop_limit", 0xff)
    c_attr.grh.traffic_class = <uint8_t>_wanted(attr.traffic_class, "traffic_class", 0xff)
    c_attr.grh.flow_label = _u32(attr.flow_label, "flow_label")
    c_attr.dlid = <uint16_t>_wanted(attr.dlid, "dlid", 0xffff)
    c_attr.sl = <uint8_t>_wanted(attr.sl, "sl", 0xff)
    c_attr.src_path_bits = <uint8_t>_wanted(attr.src_path_bits, "src_path_bits", 0xff)
    c_attr.static_rate = <uint8_t>_wanted(attr.static_rate, "static_rate", 0xff)
    c_attr.is_global = attr.is_global
    c_attr.port_num = <uint8_t>_wanted(attr.port_num, "port_num", 0xff)
    return 0


cdef object _ah_attr(ibv_ah_attr *attr):
    return _attributes.AHAttr(
        dgid=_attributes.Gid(<bytes>(<char *>attr.grh.dgid.raw)[:16]),
        sgid_index=attr.grh.sgid_index,
        dlid=attr.dlid,
        is_global=bool(attr.is_global),
        port_num=attr.port_num,
        hop_limit=attr.grh.hop_limit,
        traffic_class=attr.grh.traffic_class,
        sl=attr.sl,
        flow_label=attr.grh.flow_label,
        src_path_bits=attr.src_path_bits,
        static_rate=attr.static_rate,
    )
