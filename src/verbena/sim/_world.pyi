# SPDX-License-Identifier: Apache-2.0

from asyncio import Handle
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.verbs import CompChannel

EVENT: np.dtype[np.void]
FLOW: np.dtype[np.void]
LINK: np.dtype[np.void]
QUEUE: np.dtype[np.void]
SAMPLE: np.dtype[np.void]
UNLIMITED: int
FRAMINGS: dict[str, int]
GATES: dict[str, int]
BALANCES: dict[str, int]
TURNS: dict[str, int]
FECN_AT: dict[str, int]
LANES_BY: dict[str, int]
OPERATIONS: dict[str, int]
TRANSPORTS: dict[str, int]
CONTROLS: dict[str, int]
ENDS: dict[int, str]
STATES: tuple[str, ...]
DROPS: tuple[str, ...]

class Samples:
    @property
    def queues(self) -> NDArray[np.void]: ...
    @property
    def interval(self) -> int: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def times(self) -> NDArray[np.uint64]: ...
    @property
    def data(self) -> NDArray[np.void]: ...
    def __len__(self) -> int: ...
    def stop(self) -> None: ...

class World:
    def __init__(
        self,
        seed: int = 0,
        *,
        framing: str = "ethernet",
        mtu: int = 4096,
        timeout: int = 14,
        retry_count: int = 7,
        rd_atomic: int = 16,
        window: int = ...,
        ack_bytes: int = 1,
        burst: int = 1,
        congestion: Mapping[str, Any] | None = None,
        notice_level: int | None = 0,
        doorbell: int = 0,
        bus_rate: int = 0,
        receive_latency: int = 0,
        tcp: Mapping[str, Any] | None = None,
        hop_limit: int = 0,
        recovery: str = "go-back-n",
    ) -> None: ...
    def add_host(self) -> int: ...
    def add_switch(
        self,
        ports: int,
        *,
        lanes: Sequence[Mapping[str, Any]] = (),
        buffer: int = 0,
        mark: tuple[int, int, float] | None = None,
        high: Sequence[tuple[int, int]] = (),
        low: Sequence[tuple[int, int]] | None = None,
        high_limit: int = 0,
        remembers: bool = False,
        balance: str = "flow",
        cut_through: int = 0,
        lifetime: int = 0,
        fecn: int = 0,
        fecn_at: str = "root",
        fecn_rate: int = 0,
        fecn_victims: str | Iterable[int] = (),
        management: int = 0,
        turns: str = "input",
        watchdog: Mapping[str, Any] | None = None,
        floods: bool = False,
    ) -> int: ...
    def connect(
        self,
        a: int,
        a_port: int,
        b: int,
        b_port: int,
        *,
        rate: int,
        delay: int,
        bit_error_rate: float = 0.0,
        pause_response: int = 0,
        extender: int = 0,
    ) -> tuple[int, int] | None: ...
    def set_link(self, node: int, port: int, up: bool, at: int) -> None: ...
    def call_at(self, at: int, function: Callable[[World], object]) -> None: ...
    def capture(self, node: int, port: int, path: str | PathLike[str], size: int = 128) -> None: ...
    @property
    def captures_lost(self) -> int: ...
    def set_routes(self, switch: int, ports: ArrayLike) -> None: ...
    def set_lanes(self, switch: int, lanes: ArrayLike, by: str = "level") -> None: ...
    def set_detours(
        self,
        group: ArrayLike,
        *,
        adaptive: bool = True,
        per: str = "flow",
        threshold: int = 0,
        gap: int = ...,
    ) -> None: ...
    def add_group(self, members: Iterable[int], ports: Mapping[int, Iterable[int]]) -> int: ...
    def add_flows(
        self,
        source: ArrayLike,
        target: ArrayLike,
        size: ArrayLike,
        start: ArrayLike = 0,
        *,
        message: ArrayLike = 0,
        level: ArrayLike = 0,
        depth: ArrayLike = 1,
        read: ArrayLike = False,
        operation: ArrayLike | None = None,
        transport: ArrayLike = "rc",
        after: ArrayLike | None = None,
        multicast: ArrayLike = False,
        management: ArrayLike = False,
        reserve: ArrayLike = 0,
        back_level: ArrayLike | None = None,
        reserve_buffer: ArrayLike = 0,
        control: ArrayLike = "cubic",
    ) -> int: ...
    def sample(
        self,
        interval: int,
        queues: Iterable[tuple[int, int] | tuple[int, int, int]] | None = None,
        *,
        start: int | None = None,
        limit: int | None = None,
    ) -> Samples: ...
    def pause_storm(
        self, host: int, start: int | None = None, end: int | None = None, *, lane: int = 0
    ) -> None: ...
    def run(
        self, until: int | None = None, progress: Callable[[World], object] | None = None
    ) -> str: ...
    @property
    def now(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def hosts(self) -> int: ...
    @property
    def flows_left(self) -> int: ...
    @property
    def packets(self) -> dict[str, int]: ...
    @property
    def frame_bytes(self) -> int: ...
    @property
    def bytes_each(self) -> dict[str, int]: ...
    def flows(self) -> NDArray[np.void]: ...
    def links(self) -> NDArray[np.void]: ...
    def counters(self, host: int) -> dict[str, int]: ...
    def congestion_log(self, host: int) -> NDArray[np.void]: ...
    def blocked(self) -> list[tuple[int, int]]: ...
    def advice(self) -> list[str]: ...
    def check(self, at_rest: bool = False) -> str | None: ...

class Jack:
    @property
    def jacks(self) -> Jacks: ...
    @property
    def host(self) -> int: ...
    @property
    def address(self) -> int: ...
    def add_fd(self, fd: int, channel: CompChannel | None = None) -> None: ...
    def remove_fd(self, fd: int) -> None: ...

class Jacks:
    def __init__(self, world: World) -> None: ...
    @property
    def world(self) -> World: ...
    @property
    def now(self) -> int: ...
    def at(self, host: int) -> Jack: ...
    def set_looped(self, looped: bool) -> None: ...
    def watch(self, fd: int, reader: Handle) -> None: ...
    def unwatch(self, fd: int) -> Handle | None: ...
    def watched(self) -> list[int]: ...
    def gather(self, ready: MutableSequence[Handle], until: int | None = None) -> str: ...
