# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: settings as a caller gave them, looked at before any of them counts.


cdef object _choice(dict table, str name, object value):
    if value not in table:
        raise ValueError(f"{name} is {value!r}, and not one of {', '.join(table)}")
    return table[value]


cdef dict _settings(str name, object given):
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} is {given!r}, and not a dictionary of settings")
    return dict(given)


cdef uint64_t _count(str name, object value, object least, object most) except? 0:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):  # a list, NaN, an infinity
        number = None
    if number is None or isinstance(value, bool) or number != value or not least <= number <= most:
        raise ValueError(f"{name} is {value!r}, and not a whole number from {least} to {most}")
    return number
