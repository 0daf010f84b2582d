# SPDX-License-Identifier: Apache-2.0
"""Arguments of public functions checked by their annotations, before the function begins.

``checked_class`` and ``checked_arguments`` decorate what users of verbena.host, verbena.internet
and verbena.lan call. An argument of a type that its annotation does not have, a keyword that does
not exist and an argument that is missing raise the package's own error, whose text names the
parameter and says what it takes. Methods that run for each packet or event are left out by name.
"""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from enum import Enum, Flag
from functools import cached_property, wraps
from math import inf, isfinite
from numbers import Real
from os import PathLike
from pathlib import Path
from reprlib import Repr
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_UNIONS = (typing.Union, types.UnionType)
_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", bool: "True or False", str: "a text",
    bytes: "bytes", bytearray: "bytes", type(None): "None", Path: "a path", PathLike: "a path",
    collections.abc.Callable: "a function",
}  # fmt: skip


def fits(hint: Any, value: object) -> bool:
    """Whether a value has the type of an annotation; true for annotations of unknown kinds."""
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return any(fits(one, value) for one in typing.get_args(hint))
    if origin is not None:
        return _fits_generic(origin, typing.get_args(hint), value)
    if hint is None:
        return value is None
    if hint is float:
        return isinstance(value, Real)
    if hint in (bytes, bytearray):
        return is_buffer(value)
    if not isinstance(hint, type) or hint in (object, Any):
        return True
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in _members(hint))
    if hint is int:
        return is_whole(value)
    if issubclass(hint, Flag):
        return isinstance(value, int)
    if issubclass(hint, Enum) and type(value) in (int, str):
        return value in list(hint)
    return isinstance(value, hint) or (hint is bool and type(value) is int and value in (0, 1))


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, also one of NumPy."""
    return isinstance(value, int) or hasattr(value, "__index__")


def is_buffer(value: object) -> bool:
    """Whether a value is bytes, or has them, as an array does."""
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _fits_generic(origin: Any, parameters: tuple[Any, ...], value: object) -> bool:
    if origin is collections.abc.Callable:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin) or isinstance(value, (str, bytes, bytearray)):
        return False
    if origin is tuple and Ellipsis not in parameters:
        found = value if isinstance(value, tuple) else ()
        return len(found) == len(parameters) and all(map(fits, parameters, found))
    if isinstance(value, (list, tuple)) and parameters:
        return all(fits(parameters[0], one) for one in value)
    return True


def _always_fits(hint: Any, kind: type) -> bool:
    """Whether every value of a type fits when one of it does."""
    if kind is int:
        return fits(hint, -2)  # 0 and 1 may stand for False and True, others for an enum's
    if kind is str:
        return fits(hint, "")  # others may stand for an enum's
    return kind is float or not issubclass(kind, (float, list, tuple, dict))


def _members(protocol: type) -> set[str]:
    """What an object must have to be used as a protocol."""
    own = [vars(one) for one in protocol.__mro__ if getattr(one, "_is_protocol", False)]
    names = {name for one in own for name in (*one, *one.get("__annotations__", {}))}
    return {name for name in names if not name.startswith("_")}


def words(hint: Any) -> str:
    """An annotation in words: "a whole number or None"."""
    origin, parameters = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return _listed(list(dict.fromkeys(words(one) for one in parameters)))
    if hint in _WORDS or origin in _WORDS:
        return _WORDS.get(hint) or _WORDS[origin]
    if origin is tuple and Ellipsis not in parameters:
        return "a tuple of " + " and ".join(words(one) for one in parameters)
    if origin is not None and issubclass(origin, Mapping):
        return "a dictionary"
    if origin is not None and issubclass(origin, Iterable):
        return f"a list (each: {words(parameters[0])})"
    name = getattr(hint, "__name__", str(hint))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _listed(texts: list[str]) -> str:
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _read(annotation: str, names: dict[str, Any]) -> Any:
    """What an annotation means; Any if it has a name that nothing has. A class that a module
    imports for mypy only is found in the modules of its package, where names are unique."""
    more: dict[str, Any] = {}
    while True:
        try:
            return eval(annotation, names, more)
        except NameError as error:
            missing = str(error.name)
            package = ".".join(names["__name__"].split(".")[:2])
            modules = [one for name, one in sys.modules.items() if name.startswith(package)]
            found = [vars(one)[missing] for one in modules if missing in vars(one)]
            if not found or missing in more:
                return Any
            more[missing] = found[0]


class _Parameter:
    """A parameter and what its annotation means."""

    def __init__(self, found: inspect.Parameter, names: dict[str, Any]) -> None:
        self.name = found.name
        self.is_rest = found.kind is found.VAR_POSITIONAL
        self.is_any_keyword = found.kind is found.VAR_KEYWORD
        self.by_position = found.kind in (found.POSITIONAL_ONLY, found.POSITIONAL_OR_KEYWORD)
        is_named = not self.is_rest and not self.is_any_keyword
        self.is_needed = is_named and found.default is found.empty
        self.may_be_infinite = found.default == inf
        self.hint = Any if found.annotation is found.empty else found.annotation
        if isinstance(self.hint, str):
            self.hint = _read(self.hint, names)

    def called(self, name: str) -> _Parameter:
        """One of any keywords, ``**keywords``, by the name that its caller uses."""
        one = copy(self)
        one.name = name
        return one


class _Parameters:
    """The parameters of a function, which are read when it is first called."""

    def __init__(self, function: Callable[..., Any], error: type[Exception], is_method: bool):
        self._function, self._error, self._is_method = function, error, is_method
        self._known: set[tuple[object, ...]] = set()  # types, and keywords, that need no check

    @cached_property
    def _all(self) -> list[_Parameter]:
        found = list(inspect.signature(self._function).parameters.values())[self._is_method :]
        return [_Parameter(one, self._function.__globals__) for one in found]

    def check(self, owner: object, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Raises the package's error for the first argument that is wrong. A call with types that
        an earlier one has had costs half a microsecond."""
        kinds: tuple[object, ...] = tuple(map(type, args))
        if keywords:
            kinds += (*keywords, *map(type, keywords.values()))
        if kinds in self._known and not (float in kinds and _is_odd(*args, *keywords.values())):
            return
        pairs = [*self._positional(owner, args), *self._by_name(owner, keywords)]
        for one, value in pairs:
            if not fits(one.hint, value):
                text = f"{one.name} is {_SHORT.repr(value)}, and not {words(one.hint)}"
                self._refuse(owner, text)
            if _is_odd(value) and not one.may_be_infinite:
                self._refuse(owner, f"{one.name} is {value}, and not a finite number")
        given = {one.name for one, _ in pairs}
        missing = [one.name for one in self._all if one.is_needed and one.name not in given]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            self._refuse(owner, f"{' and '.join(missing)} {verb} missing")
        if all(_always_fits(one.hint, type(value)) for one, value in pairs):
            self._known.add(kinds)

    def _positional(
        self, owner: object, args: tuple[Any, ...]
    ) -> Iterator[tuple[_Parameter, object]]:
        taken = [one for one in self._all if one.by_position]
        yield from zip(taken, args, strict=False)
        more = args[len(taken) :]
        rest = next((one for one in self._all if one.is_rest), None)
        if more and rest is None:
            self._refuse(owner, f"{len(args)} arguments by position, and it takes {len(taken)} so")
        for value in more:
            yield rest, value  # type: ignore[misc]

    def _by_name(
        self, owner: object, keywords: dict[str, Any]
    ) -> Iterator[tuple[_Parameter, object]]:
        named = {one.name: one for one in self._all if not one.is_rest and not one.is_any_keyword}
        others = next((one for one in self._all if one.is_any_keyword), None)
        for name, value in keywords.items():
            one = named.get(name) or (others and others.called(name))
            if one is None:
                names = ", ".join(named) or "none"
                self._refuse(owner, f"there is no parameter {name}: there are {names}")
            yield one, value

    def _refuse(self, owner: object, text: str) -> NoReturn:
        name = self._function.__qualname__
        if self._is_method:
            kind = owner if isinstance(owner, type) else type(owner)
            name = kind.__name__ + ("" if name.endswith(".__init__") else "." + name.split(".")[-1])
        raise self._error(f"{name}: {text}")


def _is_odd(*values: object) -> bool:
    """Whether one of them is infinite, or NaN."""
    return any(isinstance(value, float) and not isfinite(value) for value in values)


def checked_arguments(error: type[Exception]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function: ``error`` is raised for arguments that its annotations do not have."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = _Parameters(function, error, False)

        @wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            parameters.check(None, args, keywords)
            return function(*args, **keywords)

        return call

    return decorate


def checked_class(error: type[Exception], *, but: Iterable[str] = ()) -> Callable[[C], C]:
    """Decorates a class: as ``checked_arguments``, its ``__init__`` and each public method that
    it defines itself, except those named in ``but``, which run for each packet or event."""
    left_out = frozenset(but)

    def decorate(cls: C) -> C:
        for name, member in list(vars(cls).items()):
            if name in left_out or (name.startswith("_") and name != "__init__"):
                continue
            if inspect.isfunction(member):
                setattr(cls, name, _checked_method(member, error))
            elif isinstance(member, classmethod):
                setattr(cls, name, classmethod(_checked_method(member.__func__, error)))
        return cls

    return decorate


def _checked_method(function: Callable[..., Any], error: type[Exception]) -> Callable[..., Any]:
    parameters = _Parameters(function, error, True)
    if len(inspect.signature(function).parameters) == 1:  # self alone
        return function

    @wraps(function)
    def call(owner: object, /, *args: Any, **keywords: Any) -> Any:
        parameters.check(owner, args, keywords)
        return function(owner, *args, **keywords)

    return call
