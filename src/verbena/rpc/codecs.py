# SPDX-License-Identifier: Apache-2.0
"""How arguments and results become bytes: MessagePack or pickle. Methods and calls use this.

MessagePack is msgspec's, which checks types while it decodes. Pickle takes any Python object, but
whoever can send a pickle runs code here: a server accepts it only if it was started with
``pickle=True``. Buffers of raw methods are not encoded at all.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

__all__ = ["CODECS", "CallCodec", "Decode", "Encode", "codec_named"]

Encode = Callable[[Any], bytes]
Decode = Callable[[Any], Any]


class CallCodec(Protocol):
    """A way to encode objects."""

    @property
    def encode(self) -> Encode:
        """The function that encodes any object. Raises TypeError and others."""

    def decoder(self, kind: Any) -> Decode:
        """Return a function that decodes an object of a type.

        It raises msgspec.ValidationError for another type, and others for garbage.
        """


class MessagePack:
    """MessagePack by msgspec."""

    def __init__(self) -> None:
        self.encode: Encode = msgspec.msgpack.Encoder().encode

    def decoder(self, kind: Any) -> Decode:
        return msgspec.msgpack.Decoder(kind).decode


class Pickle:
    """Python's pickle; types are checked afterwards."""

    encode: Encode = staticmethod(pickle.dumps)

    def decoder(self, kind: Any) -> Decode:
        def decode(data: Any) -> Any:
            return msgspec.convert(pickle.loads(data), kind, dec_hook=_as_it_is)

        return decode


def _as_it_is(kind: Any, value: Any) -> Any:
    """Check an object of a class that msgspec does not know."""
    if isinstance(kind, type) and not isinstance(value, kind):
        raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
    return value


CODECS: dict[str, Callable[[], CallCodec]] = {"msgpack": MessagePack, "pickle": Pickle}


def codec_named(name: str) -> CallCodec:
    """Return a codec. Raises ValueError."""
    if name not in CODECS:
        raise ValueError(f"codec is one of {', '.join(CODECS)}, and not {name!r}")
    return CODECS[name]()
