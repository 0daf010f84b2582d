# SPDX-License-Identifier: Apache-2.0
# Conversion of callers' numbers to C. The error for a number that is not whole, or does not fit,
# names the argument.
#
# Cython's own conversion of an argument names neither the argument nor what it takes, and cuts a
# float. Here an int that fits costs what it costs there (_numbers.h); everything else takes
# `_wanted`, where NumPy's integers and whatever else has `__index__` are welcome too.

cdef enum:
    INT_LIMIT = 0x7fffffff

ctypedef uint64_t (*_refusal)(object, object, uint64_t) except? 0xfffffffffffffff7

cdef extern from "_numbers.h":
    # `value` from 0 to `limit`, or what `refusal` returns or raises.
    uint64_t vb_number_to(object value, object name, uint64_t limit, _refusal refusal) \
        except? 0xfffffffffffffff7
    uint64_t vb_u64(object value, object name, _refusal refusal) except? 0xfffffffffffffff7
    uint32_t vb_u32(object value, object name, _refusal refusal) except? 0xfffffff7
    size_t vb_size(object value, object name, _refusal refusal) except? <size_t>0xfffffffffffffff7


cdef uint64_t _u64(value, str name) except? 0xfffffffffffffff7:
    return vb_u64(value, name, _wanted)


cdef uint32_t _u32(value, str name) except? 0xfffffff7:
    return vb_u32(value, name, _wanted)


cdef size_t _size(value, str name) except? <size_t>0xfffffffffffffff7:
    return vb_size(value, name, _wanted)


cdef uint64_t _wanted(value, name, uint64_t limit) except? 0xfffffffffffffff7:
    """``value`` from 0 to ``limit``; TypeError or OverflowError, which says what the name takes.
    That of an offset or a length is a ValueError, too."""
    number = _whole_number(name, value)
    if 0 <= number <= limit:
        return number
    if name in ("offset", "length") and (number < 0 or limit == UINT64_MAX):
        raise RangeError(
            f"{name} is {number} ({number:#x}), and counts bytes: 0 to the length of the memory"
        )
    cdef str hint = ""
    if name == "rkey" and number > limit:
        hint = ": are addr and rkey swapped?"
    raise OverflowError(
        f"{name} takes {limit.bit_length()} bits, 0 to {limit:#x}, and not {number:#x}{hint}"
    )


cdef int _int(value, str name) except? -7:
    """Convert to C's int, of either sign."""
    number = _whole_number(name, value)
    if -INT_LIMIT <= number <= INT_LIMIT:
        return number
    raise OverflowError(f"{name} takes {-INT_LIMIT} to {INT_LIMIT}, and not {number}")


cdef object _whole_number(str name, value, str hint=""):
    """Return ``value`` as an int; TypeError for a number that is not whole, which C would cut."""
    try:
        return index(value)
    except TypeError:
        pass
    if isinstance(value, MR):
        hint = ": give its addr, rkey or length"
    elif isinstance(value, str):
        hint = ": int() makes one of text"
    raise TypeError(f"{name} is {_shown(value)}, and not a whole number{hint}") from None


cdef str _shown(value):
    """Return a value as text for an error; a long one is shortened."""
    cdef str text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


cdef double _seconds(value, str name) except? -7:
    cdef double seconds
    try:
        seconds = value
    except TypeError:
        raise TypeError(f"{name} is {_shown(value)}, and not a time in seconds") from None
    if seconds != seconds:
        raise ValueError(f"{name}: nan is no time in seconds")
    return seconds
