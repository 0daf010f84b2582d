# SPDX-License-Identifier: Apache-2.0
"""Checks of what callers give: the functions of this package and of verbena.cm.sync call these.

``keywords`` gives a function with ``**options`` the keywords of a TypedDict as its signature, and
refuses others with the nearest name, and values of other types; ``check_port`` refuses numbers that
are no ports. A wrong value is a TypeError or a ValueError at the call, before anything has been
sent.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import ipaddress
import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeVar, get_args, get_type_hints

from verbena._arguments import fits, words

__all__ = [
    "ACCEPT_BYTES",
    "CONNECT_BYTES",
    "CONNECT_SECONDS",
    "DATAGRAM_BYTES",
    "MOST_BACKLOG",
    "MOST_SECONDS",
    "REJECT_BYTES",
    "SIDR_REPLY_BYTES",
    "check_bytes",
    "check_group",
    "check_host",
    "check_port",
    "check_range",
    "check_seconds",
    "check_text",
    "check_timeout",
    "check_whole",
    "keywords",
    "limited",
]

MOST_BACKLOG = 0x7FFFFFFF
# The most private data of a message. rdma_cm's header takes 36 bytes of what a request has (IBA
# 12.6 and annex A11).
CONNECT_BYTES, ACCEPT_BYTES, REJECT_BYTES = 92 - 36, 196, 148
DATAGRAM_BYTES, SIDR_REPLY_BYTES = 216 - 36, 136
MOST_SECONDS = 1e9
"""A limit beyond these 31 years is as good as none, and event loops and messages can hold them."""
CONNECT_SECONDS = 10.0  # for a whole connect, where the caller says nothing of a timeout

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULTS: dict[str, object] = {"private_data": b"", "retry_count": 7, "rnr_retry_count": 7}
_RANGES = {
    "initiator_depth": 255,
    "responder_resources": 255,
    "retry_count": 7,
    "rnr_retry_count": 7,
    "tos": 255,
    "ack_timeout": 31,
}


def check_port(port: int) -> None:
    """Raise TypeError or ValueError unless it is a port, 0 to 65535."""
    check_range("port", port, 65535)


def check_range(name: str, value: object, most: int) -> None:
    """Raise TypeError or ValueError unless it is a number from 0 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not 0 <= value <= most:
        raise ValueError(f"{name} must be from 0 to {most}, and is {value}")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise TypeError or ValueError unless it is a whole number from ``least`` to ``most``."""
    takes = f"{name} is a whole number from {least} to {most}, and not {value!r}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(takes)
    if not least <= operator.index(value) <= most:
        raise ValueError(takes)


def check_seconds(
    name: str,
    value: Any,
    most: float = math.inf,
    *,
    may_be_0: bool = True,
    may_be_none: bool = False,
    may_be_infinite: bool = True,
) -> None:
    """Raise TypeError or ValueError unless it is a number of seconds up to ``most``."""
    if value is None and may_be_none:
        return
    takes = f"{name} is a number of seconds, {'0 or more' if may_be_0 else 'more than 0'}"
    takes += f", {most:,.10g} at most" if most < math.inf else ""
    takes += f"{', or None' if may_be_none else ''}, and not {value!r}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(takes)
    is_refused = (value == 0 and not may_be_0) or (value == math.inf and not may_be_infinite)
    if is_refused or not 0 <= value <= most:  # type: ignore[operator]
        raise ValueError(takes)


def check_timeout(timeout: object, *, may_be_0: bool = True) -> None:
    """Raise TypeError or ValueError unless it is a timeout: seconds, or None for no limit."""
    check_seconds("timeout", timeout, may_be_0=may_be_0, may_be_none=True, may_be_infinite=False)


def limited(seconds: float | None) -> float | None:
    """Return a time limit that event loops and messages can hold; None where there is none."""
    return None if seconds is None else min(seconds, MOST_SECONDS)


def check_text(name: str, value: object) -> None:
    """Raise TypeError unless it is a str."""
    if not isinstance(value, str):
        advice = "; decode it" if isinstance(value, bytes) else ""
        raise TypeError(f"{name} must be a str, not {type(value).__name__}{advice}")


def check_host(host: object) -> None:
    """Raise TypeError or ValueError unless it can be the name or the address of a host."""
    check_text("host", host)
    if not host or "\0" in str(host):
        raise ValueError(f"host is the name or the address of a host, and not {host!r}")


def check_group(group: object) -> None:
    """Raise TypeError or ValueError unless it is a name, or the address of a multicast group."""
    check_text("group", group)
    try:
        address = ipaddress.ip_address(str(group))
    except ValueError:
        return  # a name
    if not address.is_multicast:
        raise ValueError(
            f"{group} is no address of a group: those are 224.0.0.0 to 239.255.255.255, and those"
            " that begin with ff"
        )


def check_bytes(private_data: object, most: int) -> None:
    """Raise TypeError or ValueError unless it is bytes, and no more than fit the message."""
    if not isinstance(private_data, bytes | bytearray):
        kind = type(private_data).__name__
        advice = "; encode it" if isinstance(private_data, str) else ""
        raise TypeError(f"private_data must be bytes, not {kind}{advice}")
    if len(private_data) > most:
        raise ValueError(f"private_data has {len(private_data)} bytes, and the message {most}")


def keywords(
    known: type,
    most_private_data: int = ACCEPT_BYTES,
    *,
    timeout_may_be_0: bool = False,
    **defaults: object,
) -> Callable[[F], F]:
    """Return a decorator for a function whose ``**options`` are those of the TypedDict ``known``.

    ``most_private_data`` is how many bytes the function's message has for the option of that name.
    ``timeout_may_be_0`` is for options whose timeout is not of a connection. ``defaults`` are shown
    in the signature where they differ from the usual ones.
    """
    defaults = _DEFAULTS | defaults
    hints = get_type_hints(known)

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        shown = [each for each in own.parameters.values() if each.name != "options"]
        shown += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=hint,
            )
            for name, hint in hints.items()
        ]
        allowed = [each.name for each in shown if each.name != "self"]

        @functools.wraps(function)
        def checked(*positional: Any, **options: Any) -> Any:
            _check_names(function.__name__, allowed, options)
            if "timeout" in options:
                check_timeout(options["timeout"], may_be_0=timeout_may_be_0)
            _check_values(options, hints, most_private_data)
            plain = {name: _plain(hints.get(name), each) for name, each in options.items()}
            return function(*positional, **plain)

        checked.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def _plain(hint: Any, value: Any) -> Any:
    """Return a whole number as int: what is computed with one of NumPy may wrap around."""
    is_number = hint is int or int in get_args(hint)
    if not is_number or isinstance(value, int) or not hasattr(value, "__index__"):
        return value
    return operator.index(value)


def _check_names(function: str, allowed: list[str], options: Mapping[str, object]) -> None:
    for name in options:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(allowed)}"
            raise TypeError(f"{function}() has no option {name!r}: {advice}")


def _check_values(
    options: Mapping[str, object], hints: Mapping[str, Any], most_private_data: int
) -> None:
    for name, most in _RANGES.items():
        value = options.get(name)
        if value is not None:
            check_range(name, value, most)
    if "private_data" in options:
        check_bytes(options["private_data"], most_private_data)
    for name, value in options.items():
        if name in hints and not fits(hints[name], value):
            kind = type(value).__name__
            raise TypeError(f"{name} must be {words(hints[name])}, not {kind}")
