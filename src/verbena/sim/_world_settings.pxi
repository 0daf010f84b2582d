# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: settings that World checks. Keywords of World and of add_switch are checked by
# world_settings.py, which is imported for the first world; other arguments by the functions here.


def _settings_of(str reader, keywords):
    """The structure that verbena.sim.world_settings makes of keywords."""
    from verbena.sim import world_settings

    return getattr(world_settings, reader)(keywords)


cdef object _choice(dict table, str name, object value):
    if value not in table:
        raise ValueError(f"{name} is {value!r}, and not one of {', '.join(table)}")
    return table[value]


cdef uint64_t _count(str name, object value, object least, object most) except? 0:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):  # a list, NaN, an infinity
        number = None
    if number is None or isinstance(value, bool) or number != value or not least <= number <= most:
        raise ValueError(f"{name} is {value!r}, and not a whole number from {least} to {most}")
    return number
