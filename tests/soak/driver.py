# SPDX-License-Identifier: Apache-2.0
"""Starts the workers, hands out the talks, kills, and looks at what is left."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket as sockets
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tests.soak.plan import Shape, Talk, draw_talk, draw_victim
from tests.soak.traces import KIB, named_sockets, shared_files, sockets_of
from tests.support import ROOT

AT_ONCE = 6  # talks
SETTLING = 5.0  # seconds, on a busy machine
TALK_SECONDS = 150.0  # longer than any wait within a talk
REST_EVERY = 200  # talks: then all workers are idle for a moment, and are looked at
GROWTH_KIB = 6 * KIB  # of a survivor's memory after its first rest: what the C library keeps
FILES_KIB = 128 * KIB  # of a segment and a heap: the heap keeps 64 MiB of what is free again
PORT_DESCRIPTORS = 24  # UDP sockets to send from and sockets to other processes, opened when needed
PEER_DESCRIPTORS = 2 + 2 * 64  # sockets to a peer, and channels of its that are kept


class SoakFailed(Exception):
    pass


class Worker:
    """A process, and the driver's end of the socket to it."""

    def __init__(self, number: int, shape: Shape, folder: str) -> None:
        self.number = number
        self.control, there = sockets.socketpair(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
        self.control.settimeout(60)
        carrier = "auto" if shape.is_direct(number) else "roce"
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": folder,
            "VERBENA_CARRIER": carrier,
        }
        command = [sys.executable, "-m", "tests.soak.worker", str(there.fileno())]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=[there.fileno()]
        )
        there.close()
        self.talks: dict[tuple[int, str], float] = {}
        self.ask(open=True)
        self.ask(close=True)
        self.closed = self.ask(traces=True)  # the library keeps its empty heap
        self.ask(open=True)
        self.opened = self.ask(traces=True)
        self.rested: dict[str, int] | None = None

    def send(self, request: dict[str, Any], *files: sockets.socket) -> None:
        numbers = [file.fileno() for file in files]
        sockets.send_fds(self.control, [json.dumps(request).encode()], numbers)

    def receive(self) -> dict[str, Any]:
        data = self.control.recv(1 << 16)
        if not data:
            raise SoakFailed(f"worker {self.number} ended by itself: {self.process.wait(10)}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def ask(self, **request: Any) -> Any:
        """Of a worker that holds no talk."""
        self.send(request)
        (value,) = self.receive().values()
        return value

    def show_stacks(self) -> None:
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.control.close()

    def end(self) -> None:
        self.control.close()
        self.process.wait(30)


@dataclass
class Counts:
    """What was done, for the report."""

    talks: int = 0
    qps: int = 0
    checked: int = 0
    kills: int = 0
    partners_gone: int = 0
    rests: int = 0
    growth_kib: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    upsets: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)


class Soak:
    def __init__(self, seed: str, shape: Shape, folder: str) -> None:
        self.seed, self.shape, self.folder = seed, shape, folder
        self.counts = Counts()
        self.selector = selectors.DefaultSelector()
        self.files = shared_files()
        self.sockets: set[str] = set()
        self.workers: list[Worker] = []
        self.orphans: set[tuple[int, str]] = set()  # ends whose partner was killed
        self.lonely: set[tuple[int, str]] = set()  # ends whose partner is gone, not yet known why

    def __enter__(self) -> Self:
        for number in range(self.shape.processes):
            self.workers.append(self._start(number))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()

    def _start(self, number: int) -> Worker:
        worker = Worker(number, self.shape, self.folder)
        self.selector.register(worker.control, selectors.EVENT_READ, worker)
        self.sockets |= sockets_of(worker.process.pid)
        return worker

    # ---- talks ----

    def run(self, seconds: float, talks: int) -> None:
        """``talks`` talks, spread over the time if there is enough of it."""
        start = time.monotonic()
        for number in range(talks):
            self._wait_for_room(AT_ONCE)
            self._wait_until(start + seconds * number / talks)
            victim = draw_victim(self.seed, number, self.shape)
            self._begin(draw_talk(self.seed, number, self.shape))
            if victim is not None:
                self._kill(victim)
            if number % REST_EVERY == REST_EVERY - 1:
                self.rest()
            if time.monotonic() > start + 2 * seconds + 30:
                break  # a slow machine: the report says how many there were
        self.rest()

    def _begin(self, talk: Talk) -> None:
        here, there = sockets.socketpair()
        now = time.monotonic()
        for side, number, socket in (("a", talk.a, here), ("b", talk.b, there)):
            worker = self.workers[number]
            worker.talks[talk.number, side] = now
            worker.send({"talk": asdict(talk), "side": side}, socket)
            socket.close()
        self.counts.talks += 1
        self.counts.qps += 2
        way = "packets" if talk.packets else "direct"
        self.counts.kinds[f"{talk.qp_type} {talk.kind}, {way}"] += 1
        if talk.upset:
            self.counts.upsets[talk.upset] += 1

    def _under_way(self) -> int:
        return len({key[0] for worker in self.workers for key in worker.talks})

    def _wait_for_room(self, room: int) -> None:
        while self._under_way() >= room:
            self._look(1)

    def _wait_until(self, when: float) -> None:
        while (left := when - time.monotonic()) > 0:
            self._look(left)

    def _look(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            self._take(key.data)
        now = time.monotonic()
        for worker in self.workers:
            for talk, began in worker.talks.items():
                if now - began > TALK_SECONDS:
                    worker.show_stacks()
                    raise SoakFailed(f"worker {worker.number}: end {talk} hangs")

    def _take(self, worker: Worker) -> None:
        result = worker.receive()
        key = (result["number"], result["side"])
        del worker.talks[key]
        if "error" in result:
            plan = draw_talk(self.seed, result["number"], self.shape)
            raise SoakFailed(f"end {key}: {result['error']}\n{plan}")
        self._explain(key, result["gone"])
        self.counts.partners_gone += result["gone"]
        self.counts.checked += result["checked"]
        self.counts.statuses.update(result["statuses"])

    def _explain(self, key: tuple[int, str], gone: bool) -> None:
        """A partner is gone because it was killed, or because it failed: then it says so, later."""
        partner = key[0], "b" if key[1] == "a" else "a"
        if gone and key not in self.orphans:
            self.lonely.add(key)
        at_work = any(partner in worker.talks for worker in self.workers)
        if not at_work and self.lonely & {key, partner}:
            self._nobody_crashed()
            raise SoakFailed(f"end {self.lonely} lost its partner, which nobody killed")

    def _nobody_crashed(self) -> None:
        time.sleep(0.5)
        for worker in self.workers:
            if status := worker.process.poll():
                raise SoakFailed(f"worker {worker.number} ended with status {status}")

    # ---- kills ----

    def _kill(self, number: int) -> None:
        time.sleep(0.001 * (number + 1))
        worker = self.workers[number]
        self.selector.unregister(worker.control)
        worker.kill()
        self.counts.kills += 1
        for talk, side in worker.talks:
            self.orphans.add((talk, "b" if side == "a" else "a"))
        self.workers[number] = self._start(number)

    # ---- what is left ----

    def rest(self) -> None:
        self._wait_for_room(1)
        self.counts.rests += 1
        for worker in self.workers:
            self._look_at(worker)

    def _look_at(self, worker: Worker) -> None:
        name = f"worker {worker.number} (process {worker.process.pid})"
        found, stays = self._settled(worker)
        if stays:
            files = worker.ask(files=True) if stays == "descriptors" else ""
            raise SoakFailed(f"{name}: {stays} stay: {worker.opened}, now {found} {files}")
        if found["file_kib"] > FILES_KIB:
            raise SoakFailed(f"{name}: the heap or the segment grows: {worker.opened}, now {found}")
        if worker.rested:
            growth = found["anonymous_kib"] - worker.rested["anonymous_kib"]
            self.counts.growth_kib = max(self.counts.growth_kib, growth)
            if growth > GROWTH_KIB:
                raise SoakFailed(f"{name}: memory grows: {worker.rested}, now {found}")
        worker.rested = worker.rested or found

    def _settled(self, worker: Worker) -> tuple[dict[str, int], str]:
        """What the worker holds when the threads of the last talks have ended and the dead are
        noticed and released; and what of it is too much after `SETTLING` seconds."""
        until = time.monotonic() + SETTLING
        while True:
            found: dict[str, int] = worker.ask(traces=True)
            stays = self._too_much(worker, found)
            if not stays or time.monotonic() > until:
                return found, stays
            time.sleep(0.1)

    def _too_much(self, worker: Worker, found: dict[str, int]) -> str:
        """What a worker holds besides what its peers that live account for; or nothing."""
        descriptors = PEER_DESCRIPTORS * found["peers"]
        if not self.shape.is_direct(worker.number):
            descriptors += PORT_DESCRIPTORS
        if found["peers"] >= self.shape.processes:
            return "peers"
        allowed = {"threads": 0, "memory_files": 2 * found["peers"], "descriptors": descriptors}
        over = [what for what, more in allowed.items() if found[what] > worker.opened[what] + more]
        return over[0] if over else ""

    def end(self) -> None:
        """All close their devices, and hold what they held before they opened one."""
        for worker in self.workers:
            worker.ask(close=True)
            found = worker.ask(traces=True)
            for what in ("descriptors", "memory_files", "threads"):
                if found[what] > worker.closed[what]:
                    raise SoakFailed(
                        f"worker {worker.number}: {what} stay after the device is closed: "
                        f"{worker.closed}, now {found}"
                    )
            worker.end()
        self._host_is_clean()

    def _host_is_clean(self) -> None:
        if left := self.sockets & named_sockets():
            raise SoakFailed(f"sockets stay: {left}")
        if left := shared_files() - self.files:
            raise SoakFailed(f"files stay in /dev/shm: {left}")
        if left := set(os.listdir(self.folder)):
            raise SoakFailed(f"temporary files stay: {left}")

    def show_all_stacks(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.show_stacks()
