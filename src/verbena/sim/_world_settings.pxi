# SPDX-License-Identifier: Apache-2.0
# Part of _world.pyx: checks of arguments. world_settings.py, which is imported for the first world,
# checks the keywords of World and of add_switch; the functions here check all other arguments.

CAPTURE_LEAST, CAPTURE_MOST = VB_CAPTURE_BYTES_LEAST, VB_CAPTURE_BYTES_MOST


def _settings_of(str reader, keywords):
    """Return the structure that verbena.sim.world_settings makes of keywords."""
    from verbena.sim import world_settings

    return getattr(world_settings, reader)(keywords)


cdef object _choice(dict table, str name, object value):
    if not isinstance(value, str) or value not in table:
        raise ValueError(f"{name} is {_shown(value)}, and not one of {', '.join(table)}")
    return table[value]


cdef str _shown(object value):
    """Return a value as an error shows it, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


cdef object _number(str name, object value, object count, str of=""):
    """Return a node, host, port or lane as an int, if there are ``count`` of them. Raises
    ValueError."""
    number = value if hasattr(value, "__index__") and not isinstance(value, bool) else -1
    if 0 <= number < count:
        return int(number)
    there = f"they are 0 to {count - 1}" if count > 1 else "there is only 0" if count else \
        "there is none"
    raise ValueError(f"there is no {name} {_shown(value)}{of}: {there}")


cdef object _called(str name, object function):
    if not callable(function):
        raise TypeError(f"{name} is {_shown(function)}, and not a function")
    return function


cdef bytes _path(object path):
    try:
        return os.fsencode(path)
    except TypeError:
        raise TypeError(f"path is {_shown(path)}, and not the name of a file") from None


cdef object _listed(str name, object value, str what):
    """Return a list of any iterable except text and dictionaries. Raises ValueError."""
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise ValueError(f"{name} is {_shown(value)}, and not a list of {what}")
    return list(value)


cdef uint64_t _count(str name, object value, object least, object most) except? 0:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):  # a list, NaN, an infinity
        number = None
    if number is None or isinstance(value, bool) or number != value or not least <= number <= most:
        raise ValueError(
            f"{name} is {_shown(value)}, and not a whole number from {least} to {most}")
    return number


cdef uint32_t _threads(object given) except 0:
    from verbena.sim.threads import usual_threads
    return _count("threads", usual_threads() if given is None else given, 1, 256)


cdef uint64_t _time(str name, object value, uint64_t now, object most) except? 0:
    """Return a time in ps that is not in the past. Raises ValueError."""
    number = _count(name, value, 0, most)
    if number < now:
        raise ValueError(f"{name} is {number} ps, which is in the past: it is {now} ps")
    return number


cdef int _check(int error, str what) except -1:
    if error == -ENOMEM:
        raise MemoryError(f"no memory for {what}")
    if error:
        raise OSError(-error, f"{what} cannot be made")
    return 0
