# SPDX-License-Identifier: Apache-2.0
"""Every parameter of public classes and functions, for tests that give each something senseless.

Tests of rooms whose public names check their arguments call ``parameters_of`` and ``refusal``.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Nonsense:
    """A value that no parameter takes."""

    def __repr__(self) -> str:
        return "nonsense"


class Parameter(NamedTuple):
    """``name`` of the function ``call``; ``owner`` is the class of a method."""

    title: str
    call: Callable[..., Any]
    owner: type | None
    name: str
    is_first: bool  # it is ``*name``, and no other comes by position before it

    def __str__(self) -> str:
        return f"{self.title}-{self.name}"


def parameters_of(modules: list[str], left_out: set[str]) -> list[Parameter]:
    """Parameters with a type of all public names of modules, without the functions ``left_out``:
    "Class.method", "function", or "Class" for its constructor. LookupError for one that is not
    there."""
    found = list(_functions(modules))
    titles = {title for title, _, _ in found}
    if strange := left_out - titles:
        raise LookupError(f"there is no {sorted(strange)}")
    return [one for title, call, owner in found if title not in left_out
            for one in _parameters(title, call, owner)]  # fmt: skip


def refusal(one: Parameter, error: type[Exception]) -> str:
    """The text of the error that a senseless value for the parameter raises."""
    own = () if one.owner is None else (object.__new__(one.owner),)
    if inspect.ismethod(one.call):
        own = ()
    try:
        if one.is_first:
            one.call(*own, Nonsense())
        else:
            one.call(*own, **{one.name: Nonsense()})
    except error as raised:
        return str(raised)
    raise AssertionError(f"{one}: nonsense was taken")


def _functions(modules: list[str]) -> Iterator[tuple[str, Callable[..., Any], type | None]]:
    for module in map(importlib.import_module, modules):
        for name in _names(module):
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield name, found, None
            elif inspect.isclass(found) and not issubclass(found, enum.Enum | Exception):
                yield from _methods(name, found)


def _names(module: Any) -> list[str]:
    own = [
        name
        for name, found in vars(module).items()
        if not name.startswith("_") and getattr(found, "__module__", None) == module.__name__
    ]
    return getattr(module, "__all__", None) or own


def _methods(title: str, owner: type) -> Iterator[tuple[str, Callable[..., Any], type]]:
    if getattr(owner, "_is_protocol", False):
        return
    for name in vars(owner):
        member = inspect.getattr_static(owner, name)
        if inspect.isfunction(member) and name == "__init__":
            yield title, member, owner
        elif not name.startswith("_") and (inspect.isfunction(member)):
            yield f"{title}.{name}", member, owner
        elif not name.startswith("_") and isinstance(member, classmethod):
            yield f"{title}.{name}", getattr(owner, name), owner


def _parameters(title: str, call: Callable[..., Any], owner: type | None) -> Iterator[Parameter]:
    names = list(inspect.signature(call).parameters.values())
    names = names[owner is not None and not inspect.ismethod(call) :]
    for place, one in enumerate(names):
        typed = one.annotation not in (inspect.Parameter.empty, "Any", "object")
        is_rest = one.kind is one.VAR_POSITIONAL
        if typed and not one.name.startswith("_") and (place == 0 or not is_rest):
            yield Parameter(title, call, owner, one.name, is_rest)
