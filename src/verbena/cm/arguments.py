# SPDX-License-Identifier: Apache-2.0
"""Checks of what callers give: the functions of this package and of verbena.cm.sync call these.

``keywords`` gives a function with ``**options`` the keywords of a TypedDict as its signature, and
refuses others with the nearest name; ``check_port`` refuses numbers that are no ports. A wrong
value is a TypeError or a ValueError at the call, before anything has been sent.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

__all__ = [
    "CONNECT_SECONDS",
    "MOST_BACKLOG",
    "check_bytes",
    "check_port",
    "check_range",
    "keywords",
]

MOST_BACKLOG = 0x7FFFFFFF
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


def check_bytes(private_data: object) -> None:
    """Raise TypeError unless it is bytes."""
    if not isinstance(private_data, bytes | bytearray):
        kind = type(private_data).__name__
        advice = "; encode it" if isinstance(private_data, str) else ""
        raise TypeError(f"private_data must be bytes, not {kind}{advice}")


def keywords(known: type, **defaults: object) -> Callable[[F], F]:
    """Return a decorator for a function whose ``**options`` are those of the TypedDict ``known``.

    ``defaults`` are shown in the signature where they differ from the usual ones.
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
            _check_values(options)
            return function(*positional, **options)

        checked.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return decorate


def _check_names(function: str, allowed: list[str], options: Mapping[str, object]) -> None:
    for name in options:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(allowed)}"
            raise TypeError(f"{function}() has no option {name!r}: {advice}")


def _check_values(options: Mapping[str, object]) -> None:
    for name, most in _RANGES.items():
        value = options.get(name)
        if value is not None:
            check_range(name, value, most)
    if "private_data" in options:
        check_bytes(options["private_data"])
    timeout = options.get("timeout")
    if timeout is not None and not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be seconds or None, not {type(timeout).__name__}")
