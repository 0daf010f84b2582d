# SPDX-License-Identifier: Apache-2.0
"""What verbena.cm says of wrong arguments, at the call and before it opens anything."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypedDict

import numpy as np
import pytest

from verbena import cm
from verbena.cm import sync
from verbena.cm.arguments import keywords

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
        ("timeout", "3", TypeError, "timeout is a number of seconds, .* or None, and not '3'"),
        ("timeout", True, TypeError, "timeout is a number of seconds, .* and not True"),
        ("timeout", float("inf"), ValueError, "timeout is .* more than 0, or None, and not inf"),
        ("timeout", float("nan"), ValueError, "timeout is .* more than 0, or None, and not nan"),
        ("timeout", 0, ValueError, "timeout is .* more than 0, or None, and not 0"),
        ("timeout", -1, ValueError, "timeout is .* more than 0, or None, and not -1"),
        ("private_data", bytes(181), ValueError, "private_data has 181 bytes, and the message"),
        ("pd", "x", TypeError, "pd must be a PD or None, not str"),
        ("cap", 5, TypeError, "cap must be a QPCap or None, not int"),
        ("cq", b"", TypeError, "cq must be a CQ, an AsyncCQ or None, not bytes"),
        ("source", 4, TypeError, "source must be a text or None, not int"),
        ("prepare", 1, TypeError, "prepare must be a function or None, not int"),
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


@pytest.mark.parametrize("seconds", [1e10, 1e300])
def test_a_time_beyond_all_others_is_no_limit(seconds: float) -> None:
    async def main() -> None:
        async with cm.listen(0, "127.0.0.1") as listener:
            accepting = asyncio.create_task(listener.get_request(seconds))
            connecting = asyncio.ensure_future(call(listener.port))
            async with await (await accepting).accept(timeout=seconds) as conn:
                (await connecting).close()
                await conn.wait_closed(seconds)

    async def call(port: int) -> cm.Connection:
        return await cm.connect("127.0.0.1", port, timeout=seconds)

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [1e10, 1e300])
def test_a_time_beyond_all_others_in_a_thread(seconds: float) -> None:
    with sync.listen(0, "127.0.0.1") as listener:
        port = listener.port
        serving = threading.Thread(target=lambda: listener.get_request(seconds).accept().close())
        serving.start()
        with sync.connect("127.0.0.1", port, timeout=seconds) as conn:
            conn.wait_closed(seconds)
        serving.join()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, "x"])
def test_waits_for_requests_check_their_timeouts(wrong: Any) -> None:
    async def main() -> None:
        async with cm.listen(0, "127.0.0.1") as listener:
            await listener.get_request(wrong)

    refused = pytest.raises((TypeError, ValueError), match="timeout is a number of seconds")
    with refused, sync.listen(0, "127.0.0.1") as listener:
        listener.get_request(wrong)
    with refused:
        asyncio.run(main())


REJECTS = [cm.ConnectionRequest.reject, sync.SyncRequest.reject]


@pytest.mark.parametrize("reject", REJECTS)
@pytest.mark.parametrize(("datagram", "most"), [(False, 148), (True, 136)])
def test_what_reject_refuses(reject: Callable[..., Any], datagram: bool, most: int) -> None:
    request = SimpleNamespace(id=SimpleNamespace(datagram=datagram))
    with pytest.raises(TypeError, match="must be bytes, not str"):
        reject(request, "too busy")
    with pytest.raises(ValueError, match=f"has {most + 1} bytes, and the message {most}"):
        reject(request, bytes(most + 1))


@pytest.mark.parametrize("opener", OPENERS)
def test_hosts_that_are_no_text(opener: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="host must be a str, not NoneType"):
        opener(None, 7174)
    with pytest.raises(TypeError, match="host must be a str, not bytes; decode it"):
        opener(b"127.0.0.1", 7174)
    for wrong in ("", "127.0.0.1\0"):
        with pytest.raises(ValueError, match="host is the name or the address of a host, and not"):
            opener(wrong, 7174)


@pytest.mark.parametrize("join", [cm.join, sync.join])
def test_what_is_no_group(join: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="group must be a str, not int"):
        join(7)
    with pytest.raises(ValueError, match=r"10\.0\.0\.1 is no address of a group"):
        join("10.0.0.1")


def test_connect_has_room_for_56_bytes() -> None:
    with pytest.raises(ValueError, match="has 57 bytes, and the message 56"):
        cm.connect("127.0.0.1", 7174, private_data=bytes(57))


def test_a_request_outlives_an_answer_that_is_too_long() -> None:
    async def client(port: int) -> bytes:
        async with cm.connect("127.0.0.1", port) as conn:
            return conn.private_data

    async def main() -> bytes:
        async with cm.listen(0, "127.0.0.1") as listener:
            task = asyncio.create_task(client(listener.port))
            request = await listener.get_request(timeout=10)
            with pytest.raises(ValueError, match="has 197 bytes, and the message 196"):
                await request.accept(private_data=bytes(197))
            with pytest.raises(ValueError, match="and the message 148"):
                request.reject(bytes(149))
            async with await request.accept(private_data=b"yes"):
                return await task

    assert asyncio.run(main()).startswith(b"yes")


class Numbers(TypedDict, total=False):
    """Options of a function."""

    slots: int
    most: int | None
    is_large: bool
    share: float | None


def test_numbers_of_options_are_plain() -> None:
    """What is computed with a number of NumPy, which has few bits, wraps around."""

    @keywords(Numbers)
    def take(**options: Any) -> dict[str, Any]:
        return options

    taken = take(slots=np.uint8(200), most=np.int16(3), is_large=True, share=np.float32(0.5))
    assert [type(each) for each in taken.values()] == [int, int, bool, np.float32]
    assert take(slots=2, most=None, share=2) == {"slots": 2, "most": None, "share": 2}
    with pytest.raises(TypeError, match="slots must be a whole number"):
        take(slots=1.5)
