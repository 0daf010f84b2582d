# SPDX-License-Identifier: Apache-2.0
"""Methods of services: what their signatures say, as functions that encode and decode.

``service`` marks a class; the server makes a table of ``ServiceMethod`` of an object of it, and a
client that is given the class makes the same. A method's parameters and result have type hints,
which are checked at the server before it is called.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from .codecs import CallCodec, Decode
from .errors import WrongArguments

__all__ = ["Buffer", "ServiceMethod", "methods_of", "service"]

_MARK = "_verbena_service_"
_WRONG_COUNT = re.compile(r"Expected `array` of (?:at (?:least|most) )?length \d+, got (\d+)")
RESERVED = ("close", "explain", "is_connected", "peer", "within")
"""Names of ``Client`` that no method can have."""
T = TypeVar("T")

Buffer = Annotated[Any, "verbena.rpc.Buffer"]
"""The type hint of memory that travels as it is: bytes, a memoryview or an array.

A method with a parameter of this type has no other. Its result, and the parameters of a method with
a result of this type, may be of any types that can be encoded."""
_BUFFERS = (memoryview, np.ndarray)


def service(kind: type[T]) -> type[T]:
    """Mark a class as a service: its public methods can be called by clients.

    Raises TypeError for a method whose parameters lack type hints or cannot be sent, and for one
    with a name that clients have already.
    """
    if not isinstance(kind, type):
        raise TypeError(f"@rpc.service is for a class, and not for {kind!r}")
    for name, function in _public(kind):
        _shape(kind, name, function)
    setattr(kind, _MARK, True)
    return kind


@dataclass(frozen=True)
class _Shape:
    """What a signature says."""

    parameters: dict[str, tuple[Any, Any]]  # type and default (Parameter.empty: none)
    result: Any
    raw: bool  # the one parameter is a Buffer
    returns_raw: bool
    sends: Any  # the type of the client's items, or None
    receives: Any  # the type of the server's items, or None


class ServiceMethod:
    """A method, with the functions of one codec. ``function`` is bound to the server's object."""

    def __init__(self, name: str, shape: _Shape, codec: CallCodec, function: Any) -> None:
        self.name = name
        self.function: Callable[..., Any] = function
        self.parameters = list(shape.parameters)
        self.raw = shape.raw
        self.returns_raw = shape.returns_raw
        self.sends = shape.sends is not None
        self.receives = shape.receives is not None
        self.is_plain = not (self.sends or self.receives or inspect.iscoroutinefunction(function))
        self.encode = codec.encode
        self.decode_result: Decode = codec.decoder(shape.result)
        self.decode_item: Decode = codec.decoder(shape.sends if self.sends else Any)
        self.decode_received: Decode = codec.decoder(shape.receives if self.receives else Any)
        self._decode, self._named = _argument_decoders(codec, shape.parameters)

    def arguments(self, data: Any, named: bool) -> tuple[Any, ...]:
        """Decode and check arguments. Raises WrongArguments."""
        if self.raw:
            return (data,)
        try:
            if named:
                return msgspec.structs.astuple(self._named(data))
            return self._decode(data)  # type: ignore[no-any-return]
        except Exception as error:  # pickle raises anything
            raise WrongArguments(f"{self.name}: {self._said(error)}") from error

    def _said(self, error: Exception) -> str:
        """Name the parameter that msgspec names by its place."""
        text = str(error)
        if (found := _WRONG_COUNT.fullmatch(text)) is not None:
            return f"{found[1]} arguments, and the parameters are ({', '.join(self.parameters)})"
        for at, name in enumerate(self.parameters):
            text = text.replace(f"`$[{at}]", f"`{name}").replace(f"`$.{name}", f"`{name}")
        if "length" in text or isinstance(error, IndexError):
            text += f"; the parameters are ({', '.join(self.parameters)})"
        return text


def _argument_decoders(
    codec: CallCodec, parameters: dict[str, tuple[Any, Any]]
) -> tuple[Decode, Decode]:
    """Return the decoders of arguments by place, as a tuple, and by name, as a structure."""
    fields: list[Any] = []
    for name, (kind, default) in parameters.items():
        has_none = default is inspect.Parameter.empty
        fields.append((name, kind) if has_none else (name, kind, _default(default)))
    by_name = codec.decoder(
        msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
    )
    kinds = [kind for kind, _ in parameters.values()]
    if all(default is inspect.Parameter.empty for _, default in parameters.values()):
        by_place = codec.decoder(GenericAlias(tuple, tuple(kinds)))
        return by_place, by_name
    structure = msgspec.defstruct("Arguments", fields, array_like=True, forbid_unknown_fields=True)
    decode = codec.decoder(structure)
    return (lambda data: msgspec.structs.astuple(decode(data))), by_name


def _default(value: Any) -> Any:
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=lambda: value)
    return value


# ---- signatures ----------------------------------------------------------------------------------


def _public(kind: type) -> list[tuple[str, Any]]:
    return [
        (name, member)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]


def _shape(kind: type, name: str, function: Any) -> _Shape:
    about = f"{kind.__name__}.{name}"
    if name in RESERVED:
        raise TypeError(
            f"{about}: a client's own attributes are {', '.join(RESERVED)}; give the method another"
            " name"
        )
    hints = get_type_hints(function, include_extras=True)
    result = hints.get("return", Any)
    parameters: dict[str, tuple[Any, Any]] = {}
    sends = None
    for each in list(inspect.signature(function).parameters.values())[1:]:
        if each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"{about}: *args, **kwargs and keyword-only parameters cannot be sent")
        if each.name not in hints:
            raise TypeError(f"{about}: {each.name} needs a type hint, which the server checks")
        if (item := _item_of(hints[each.name])) is not None:
            sends = item
        elif sends is not None:
            raise TypeError(f"{about}: the iterator of the client's items is the last parameter")
        else:
            parameters[each.name] = hints[each.name], each.default
    receives = _item_of(result)
    if receives is not None and not inspect.isasyncgenfunction(function):
        raise TypeError(f"{about}: a method that returns an iterator is an async generator")
    raw = any(_is_buffer(hint) for hint, _ in parameters.values())
    returns_raw = _is_buffer(result)
    if raw and len(parameters) > 1:
        raise TypeError(f"{about}: a raw method has one parameter, the Buffer")
    if (raw or returns_raw) and (sends is not None or receives is not None):
        raise TypeError(f"{about}: a method with a Buffer has no iterators")
    if raw:
        parameters = dict.fromkeys(parameters, (Any, inspect.Parameter.empty))
    if returns_raw:
        result = Any
    if receives is not None:
        result = Any  # of the response behind the items, which is None
    result = None if result is type(None) else result
    return _Shape(parameters, result, raw, returns_raw, sends, receives)


def _item_of(hint: Any) -> Any:
    """Return the type of the items of an AsyncIterator, or None."""
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, AsyncIterator):
        return get_args(hint)[0]
    return Any if hint in (AsyncIterator, typing.AsyncIterator) else None


def _is_buffer(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return "verbena.rpc.Buffer" in get_args(hint)[1:]
    return hint in _BUFFERS or get_origin(hint) in _BUFFERS


def methods_of(kind: type, target: object | None, codec: CallCodec) -> dict[str, ServiceMethod]:
    """Return the methods of a service by name. Raises TypeError."""
    if not getattr(kind, _MARK, False):
        raise TypeError(f"{kind.__name__} is not a service: put @rpc.service before the class")
    return {
        name: ServiceMethod(
            name,
            _shape(kind, name, function),
            codec,
            function if target is None else getattr(target, name),
        )
        for name, function in _public(kind)
    }
