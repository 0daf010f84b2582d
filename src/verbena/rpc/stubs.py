# SPDX-License-Identifier: Apache-2.0
"""Methods of a server as its clients see them: how arguments are encoded, and results decoded.

A client makes a ``RemoteMethod`` for each entry of the server's table; with the service's class it
knows the types of results, and checks the number of arguments against the signature of the server.
"""

from __future__ import annotations

from typing import Any

from .codecs import CallCodec, Decode, Encode
from .errors import WrongArguments
from .frames import FrameFlags, MethodEntry
from .methods import ServiceMethod

__all__ = ["RemoteMethod"]

_NAMED = int(FrameFlags.NAMED)


class RemoteMethod:
    """A method of the server."""

    def __init__(
        self, number: int, entry: MethodEntry, codec: CallCodec, known: ServiceMethod | None
    ) -> None:
        self.number = number
        self.name = entry.name
        self.parameters = entry.parameters
        self.raw = entry.raw
        self.returns_raw = entry.returns_raw
        self.sends = entry.sends
        self.receives = entry.receives
        untyped: Decode = codec.decoder(Any)
        self.decode: Decode = untyped if known is None else known.decode_result
        self.decode_item: Decode = untyped if known is None else known.decode_received

    def encode(
        self, args: tuple[Any, ...], named: dict[str, Any], encode: Encode
    ) -> tuple[Any, int]:
        """Return arguments as bytes, and the flags that say how. Raises WrongArguments."""
        if named:
            return self._by_name(args, named, encode)
        if self.raw:
            return self._raw(args), 0
        try:
            return encode(args), 0
        except Exception as error:
            raise WrongArguments(f"{self.name}: {error}") from error

    def _by_name(
        self, args: tuple[Any, ...], named: dict[str, Any], encode: Encode
    ) -> tuple[Any, int]:
        names = self.parameters
        twice = [name for name in names[: len(args)] if name in named]
        if twice:
            raise WrongArguments(
                f"{self.name}: {twice[0]!r} is given twice, by its place and by its name; the"
                f" parameters are ({', '.join(names)})"
            )
        if len(args) > len(names):
            raise WrongArguments(f"{self.name}: the parameters are ({', '.join(names)})")
        whole = dict(zip(names, args, strict=False)) | named
        unknown = set(whole) - set(names)
        if unknown:
            raise WrongArguments(
                f"{self.name}: there is no parameter {unknown.pop()!r}; they are"
                f" ({', '.join(names)})"
            )
        if self.raw:
            return self._raw(tuple(whole.values())), 0
        try:
            return encode(whole), _NAMED
        except Exception as error:
            raise WrongArguments(f"{self.name}: {error}") from error

    def _raw(self, args: tuple[Any, ...]) -> Any:
        if len(args) != len(self.parameters):
            raise WrongArguments(f"{self.name}: the parameters are ({', '.join(self.parameters)})")
        return args[0]
