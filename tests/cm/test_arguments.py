# SPDX-License-Identifier: Apache-2.0
"""What verbena.cm says of wrong arguments, at the call and before it opens anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from verbena import cm
from verbena.cm import sync

OPENERS: list[Callable[..., Any]] = [
    cm.connect,
    cm.resolve_datagram,
    sync.connect,
    sync.resolve_datagram,
]
ACCEPTS: list[Callable[..., Any]] = [
    cm.ConnectionRequest.accept,
    cm.ConnectionRequest.accept_datagrams,
    sync.SyncRequest.accept,
    sync.SyncRequest.accept_datagrams,
]
LISTENS: list[Callable[..., Any]] = [cm.listen, sync.listen]


@pytest.mark.parametrize("opener", OPENERS)
def test_an_unknown_option(opener: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"no option 'timout': did you mean 'timeout'\?"):
        opener("127.0.0.1", 7174, timout=3)
    with pytest.raises(TypeError, match="no option 'foo': it has host, port, qp, pd"):
        opener("127.0.0.1", 7174, foo=1)


@pytest.mark.parametrize("join", [cm.join, sync.join])
def test_an_unknown_option_of_a_group(join: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="did you mean 'send_only'"):
        join("239.1.2.3", sendonly=True)


@pytest.mark.parametrize("accept", ACCEPTS)
def test_an_unknown_option_of_accept(accept: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="did you mean 'private_data'"):
        accept(None, privatedata=b"welcome")
    with pytest.raises(TypeError, match="no option 'source'"):
        accept(None, source="127.0.0.1")


@pytest.mark.parametrize("function", [*OPENERS, cm.join, sync.join])
def test_help_shows_every_option(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert "options" not in parameters
    assert set(cm.ConnectionOptions.__annotations__) <= set(parameters)
    assert parameters["timeout"].default == 10
    assert parameters["private_data"].default == b""
    assert parameters["source"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("function", ACCEPTS)
def test_help_shows_every_option_of_accept(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(parameters) == {"self", *cm.AcceptOptions.__annotations__}
    assert parameters["timeout"].default is None


@pytest.mark.parametrize("port", [70000, -1])
def test_a_number_that_is_no_port(port: int) -> None:
    sentence = f"port must be from 0 to 65535, and is {port}"
    for opener in OPENERS:
        with pytest.raises(ValueError, match=sentence):
            opener("127.0.0.1", port)
    for listen in LISTENS:
        with pytest.raises(ValueError, match=sentence):
            listen(port)


@pytest.mark.parametrize("listen", LISTENS)
def test_what_listen_refuses(listen: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="port must be a number, not str"):
        listen("7174")
    with pytest.raises(ValueError, match="backlog must be from 0"):
        listen(0, backlog=-1)


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize(
    ("option", "value", "error", "sentence"),
    [
        ("private_data", "hello", TypeError, "private_data must be bytes, not str; encode it"),
        ("private_data", 3, TypeError, "private_data must be bytes, not int"),
        ("timeout", "3", TypeError, "timeout must be seconds or None, not str"),
        ("retry_count", 8, ValueError, "retry_count must be from 0 to 7, and is 8"),
        ("initiator_depth", -1, ValueError, "initiator_depth must be from 0 to 255"),
        ("tos", 256, ValueError, "tos must be from 0 to 255"),
        ("ack_timeout", 32, ValueError, "ack_timeout must be from 0 to 31"),
    ],
)
def test_a_wrong_value(
    opener: Callable[..., Any], option: str, value: object, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        opener("127.0.0.1", 7174, **{option: value})


@pytest.mark.parametrize("reject", [cm.ConnectionRequest.reject, sync.SyncRequest.reject])
def test_a_rejection_with_text(reject: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="must be bytes, not str"):
        reject(None, "too busy")
