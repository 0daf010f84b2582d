# SPDX-License-Identifier: Apache-2.0
# Flows as arrays, for World.add_flows.

def _codes(str name, object given, dict table):
    """Words, one or an array of them, as the numbers that the table has for them."""
    words = np.atleast_1d(np.asarray(given))
    if words.dtype.kind != "U":
        raise ValueError(f"{name} is to be one of {', '.join(table)}, or an array of them")
    found, where = np.unique(words, return_inverse=True)
    codes = np.array([_choice(table, name, str(word)) for word in found], dtype=np.uint64)
    return codes[where].reshape(words.shape)


cdef vb_sim_after *_after_array(object after, uint64_t count) except? NULL:
    """The caller frees it."""
    cdef const uint64_t[:, :] pairs = after
    cdef uint64_t i
    cdef vb_sim_after *made = <vb_sim_after *>calloc(count if count else 1, sizeof(vb_sim_after))
    if made is NULL:
        raise MemoryError
    for i in range(count):
        made[i].first, made[i].then = <uint32_t>pairs[i, 0], <uint32_t>pairs[i, 1]
    return made


cdef vb_sim_flow *_flow_array(object columns, uint64_t count) except? NULL:
    """One C flow for each row of the columns; the caller frees it."""
    cdef vb_sim_flow *flows = <vb_sim_flow *>calloc(count if count else 1, sizeof(vb_sim_flow))
    cdef const uint64_t[:] source, target, size, start, message, level, depth, opcode, kind
    cdef const uint64_t[:] multicast, management, reserve, back_level, buffer
    cdef uint64_t i
    if flows is NULL:
        raise MemoryError
    source, target, size, start, message, level, depth, opcode, kind = columns[:9]
    multicast, management, reserve, back_level, buffer = columns[9:]
    for i in range(count):
        flows[i].source = <uint32_t>source[i]
        flows[i].target = <uint32_t>target[i]
        flows[i].bytes = size[i]
        flows[i].start = start[i]
        flows[i].message = message[i]
        flows[i].level, flows[i].back_level = <uint8_t>level[i], <uint8_t>back_level[i]
        flows[i].depth = <uint8_t>depth[i]
        flows[i].opcode = <uint8_t>opcode[i]
        flows[i].type = <uint8_t>kind[i]
        flows[i].to_group, flows[i].management = multicast[i] != 0, management[i] != 0
        flows[i].reserve, flows[i].buffer = reserve[i], buffer[i]
    return flows


def _refuse_flow(int error, uint64_t bad, list columns, uint64_t most):
    """The ValueError for what vb_sim_add_waiting_flows said of this flow, if it has one."""
    if error == -ENOSPC:
        raise ValueError(f"flow {bad}: reserve_buffer is {columns[13][bad]}, and of a buffer on "
                         f"its way at most {most} bytes can be promised: the rest is kept for "
                         "acknowledgements, and for lanes with pauses")
    if error == -EMSGSIZE:
        raise ValueError(f"flow {bad}: depth messages are more than reserve_buffer, "
                         f"{columns[13][bad]}")
    if error == -EOPNOTSUPP:
        raise ValueError(f"flow {bad}: a switch on its way has credits or pauses for its "
                         "level: there is no buffer to reserve")
    if error == -EINVAL and (columns[11][bad] or columns[13][bad]):
        raise ValueError(f"flow {bad}: switches on its way balance by packet: there is no one "
                         "way to reserve")
    if error == -EDEADLK:
        raise ValueError(f"flow {bad} waits for itself, through others")
    if error in (-EHOSTUNREACH, -ELOOP):
        how = "no way leads" if error == -EHOSTUNREACH else "the routes go round"
        if columns[9][bad]:
            raise ValueError(f"flow {bad}: {how} from host {columns[0][bad]} to group "
                             f"{columns[1][bad]}")
        raise ValueError(f"flow {bad}: {how} from host {columns[0][bad]} to host "
                         f"{columns[1][bad]}, or back")
