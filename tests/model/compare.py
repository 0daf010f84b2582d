# SPDX-License-Identifier: Apache-2.0
"""A program, run by the model and by the core at once.

    with Program(Setting("direct", 2)) as do:
        do.alloc_pd(process="A", name="pd1")
        ...

Each call must have a result that the model allows, and lead to what the model allows: completions,
states and memory. Where the rules leave freedom, every way that the model sees is kept until the
core has shown which it was. The first call after which none is left raises Difference, whose text
is the program up to there.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from tests.model.core import Core, CoreFailed, Observed, Result, Setting
from tests.model.reference.choice import Choices, outcomes
from tests.model.reference.flush import promised
from tests.model.reference.queues import Cap
from tests.model.reference.regions import Memory
from tests.model.reference.words import Bind, Completion, Send
from tests.model.reference.world import World
from tests.model.worker import SIZE

ARENAS = ("own", "heap", "dm")
SETTLE_SECONDS = {"direct": 2.0, "roce": 10.0, "sim": 10.0}
_CORES: dict[Setting, Core] = {}


class Difference(AssertionError):
    """The core did what the model does not allow."""


def initial(process: str, arena: str) -> bytes:
    """What an arena holds at first: no two of them the same."""
    salt = 17 * ord(process) + len(arena)
    return bytes((7 * i + salt + i // 251) % 256 for i in range(SIZE))


def contents() -> dict[tuple[str, str], bytes]:
    return {(p, arena): initial(p, arena) for p in "AB" for arena in ARENAS}


def new_world() -> World:
    arenas = {
        process: {arena: bytearray(initial(process, arena)) for arena in ARENAS} for process in "AB"
    }
    return World({process: Memory(found) for process, found in arenas.items()})


class Program:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.lines: list[str] = []
        self.worlds = [new_world()]
        self.flushed: tuple[str, Send, dict[str, bytes]] | None = None
        self.core = clean_core(setting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        forget_core(self.setting)

    @property
    def world(self) -> World:
        """One of the ways; objects and states are the same in all."""
        return self.worlds[0]

    def __getattr__(self, call: str) -> Callable[..., Result]:
        if call.startswith("_"):
            raise AttributeError(call)
        return lambda **arguments: self.do(call, arguments)

    def do(self, call: str, arguments: dict[str, Any]) -> Result:
        words = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        self.lines.append(f"do.{call}({words})")
        try:
            result = self.step(call, arguments)
            self.settle()
        except CoreFailed as error:
            forget_core(self.setting)
            raise self.difference(str(error)) from None
        return result

    def difference(self, why: str) -> Difference:
        return Difference(f"{why}\n\n{self.text()}")

    def text(self) -> str:
        """The program, as one can run it."""
        head = [
            "from tests.model.compare import Program",
            "from tests.model.core import Setting",
            "from tests.model.reference.words import Access, Bind, Place, Recv, Send, Sge",
            "",
            f"with Program({self.setting!r}) as do:",
        ]
        return "\n".join([*head, *(f"    {line}" for line in self.lines)])

    # ---- one call ----

    def step(self, call: str, arguments: dict[str, Any]) -> Result:
        special = getattr(self, f"_{call}", None)
        if special is not None:
            result, modelled = special(**arguments)
        else:
            result, modelled = getattr(self.core, call)(**arguments), arguments
        return self.compare_result(call, modelled, result)

    def compare_result(self, call: str, arguments: dict[str, Any], result: Result) -> Result:
        allowed, kept = [], []
        for world in self.worlds:
            for after, returned in ways(world, call, arguments):
                allowed.append(returned)
                if returned == result:
                    kept.append(after)
        if not kept:
            expected = " or ".join(sorted({str(one) for one in allowed}))
            raise self.difference(f"{call} returned {result}; the model says {expected}")
        self.worlds = kept
        return result

    def _create_srq(self, **arguments: Any) -> tuple[Result, dict[str, Any]]:
        max_wr, max_sge = self.core.create_srq(**arguments)
        if max_wr < arguments["max_wr"] or max_sge < arguments["max_sge"]:
            raise self.difference(f"create_srq granted only {max_wr}, {max_sge}")
        return (None, 0), arguments | {"max_wr": max_wr, "max_sge": max_sge}

    def _modify_srq(self, **arguments: Any) -> tuple[Result, dict[str, Any]]:
        result, granted = self.core.modify_srq(**arguments)
        wanted = arguments["max_wr"]
        if result[0] is None and wanted is not None and granted < wanted:
            raise self.difference(f"modify_srq granted only {granted}")
        return result, arguments | {"granted": granted}

    def _create_qp(self, **arguments: Any) -> tuple[Result, dict[str, Any]]:
        asked, sig_all = arguments.pop("cap"), arguments["sig_all"]
        cqs = arguments.pop("send_cq"), arguments.pop("recv_cq")
        fields = {
            "max_send_wr": asked[0],
            "max_recv_wr": asked[1],
            "max_send_sge": asked[2],
            "max_recv_sge": asked[3],
            "max_inline_data": asked[4],
            "sq_sig_all": sig_all,
        }
        srq, name, pd, kind = (arguments[word] for word in ("srq", "name", "pd", "kind"))
        cap = self.core.create_qp(name, pd, kind, cqs, srq, fields)
        if not srq:
            self.check_cap(cap, asked)
        return (None, 0), arguments | {"cap": cap, "send_cq": cqs[0], "recv_cq": cqs[1]}

    def check_cap(self, cap: Cap, asked: tuple[int, ...]) -> None:
        got = (cap.send_wr, cap.recv_wr, cap.send_sge, cap.recv_sge, cap.inline)
        if any(g < a for g, a in zip(got, asked, strict=True)):
            raise self.difference(f"create_qp granted {got} where {asked} was asked")

    def _post_send(self, **arguments: Any) -> tuple[Result, dict[str, Any]]:
        name, there, last = (
            arguments["name"],
            self.other(arguments["name"]),
            arguments["requests"][-1],
        )
        result = self.core.post_send(**arguments, there=there)
        if last.opcode == "FLUSH" and result[0] is None and self.world.qps[name].state == "RTS":
            self.look_after_flush(name, last, there)
        return result, arguments

    def look_after_flush(self, name: str, wr: Send, there: str) -> None:
        """Before the peer polls: a FLUSH promises that this shows the same as looking later."""
        if "SIGNALED" in wr.flags or self.world.qps[name].sig_all:
            arenas = self.core.after_flush(name, wr.wr_id, there)
            self.flushed = (name, wr, arenas) if arenas else None

    def _bind_mw(self, name: str, request: Bind) -> tuple[Result, dict[str, Any]]:
        regions = self.world.processes[self.world.owner[name]].regions
        offset = 0
        if request.region:
            offset = request.place.offset - regions[request.region].start.offset
        result = self.core.bind_mw(name, request, offset)
        return result, {"name": name, "request": request}

    def _modify(self, **arguments: Any) -> tuple[Result, dict[str, Any]]:
        now = self.world.qps[arguments["name"]].state
        return self.core.modify(**arguments, now=now), arguments

    def other(self, name: str) -> str:
        return "B" if self.world.owner[name] == "A" else "A"

    def _end(
        self, process: str, kill: bool, probes: tuple[tuple[str, int], ...]
    ) -> tuple[Result, dict[str, Any]]:
        bound = [
            qp.name
            for qp in self.world.qps.values()
            if qp.process != process and qp.peer is not None and qp.state != "RESET"
        ]
        self.core.end(process, kill, probes, bound)
        self.core.restart(process)
        self.refill(process)
        return (None, 0), {"process": process, "probes": probes}

    def refill(self, process: str) -> None:
        """The memory of the process that took the place of one that has ended."""
        for arena in ARENAS:
            data = initial(process, arena)
            self.core.must(process, "fill", arena, 0, data)
            for world in self.worlds:
                world.processes[process].arenas[arena][:] = data

    # ---- what it leads to ----

    def settle(self) -> None:
        """Wait until the core has shown what one of the ways has led to."""
        if any(qp.kind != "RC" for qp in self.world.qps.values()):
            self.core.barrier()
        # Bytes that are not specified agree before they come, too, and nothing else need show that
        # they have come: an unsignaled WRITE has no completion.
        uncertain = any(m.forgotten for world in self.worlds for m in world.processes.values())
        seen = Observed()
        deadline = time.monotonic() + SETTLE_SECONDS[self.setting.carrier]
        while True:
            self.core.observe(seen)
            reasons = [disagreement(world, seen) for world in self.worlds]
            if None in reasons:
                if not uncertain:
                    break
                self.core.barrier()
                uncertain = False
                continue
            if time.monotonic() > deadline or all(contradicts(w, seen) for w in self.worlds):
                raise self.difference(" or\n".join(dict.fromkeys(filter(None, reasons))))
            time.sleep(0.0005)
        self.check_flushed(self.worlds[reasons.index(None)], seen)
        self.core.settle_ahs()
        agreeing = zip(self.worlds, reasons, strict=True)
        self.worlds = distinct([world for world, reason in agreeing if reason is None], seen)

    def check_flushed(self, world: World, seen: Observed) -> None:
        flushed, self.flushed = self.flushed, None
        if flushed is None:
            return
        name, wr, early = flushed
        peer = world.listener(world.qps[name])
        assert peer is not None
        place, length = promised(world.memory(peer), peer, wr)
        bytes_of = slice(place.offset, place.offset + length)
        later = seen.memory[peer.process]
        if early[place.arena][bytes_of] != later[place.arena][bytes_of]:
            raise self.difference(f"the FLUSH {wr.wr_id} has ended, and its bytes came later")


def core_of(setting: Setting) -> Core:
    """The processes serve many programs."""
    if setting not in _CORES:
        _CORES[setting] = Core(setting)
    return _CORES[setting]


def clean_core(setting: Setting) -> Core:
    """As if no program had run; another one where the last has left what cannot be removed."""
    core = core_of(setting)
    try:
        core.clear(contents())
        core.observe(Observed())
    except CoreFailed:
        forget_core(setting)
        core = core_of(setting)
        core.clear(contents())
    return core


def forget_core(setting: Setting) -> None:
    core = _CORES.pop(setting, None)
    if core is not None:
        core.stop(kill=True)


def ways(world: World, call: str, arguments: dict[str, Any]) -> Iterator[tuple[World, Result]]:
    """The worlds to which a call may lead, with what it returns there."""

    def run(choices: Choices) -> tuple[World, Result]:
        after = copy.deepcopy(world)
        after.choices = choices
        return after, getattr(after, call)(**arguments)

    return outcomes(run)


def distinct(worlds: list[World], seen: Observed) -> list[World]:
    kept: list[World] = []
    for world in worlds:
        world.poll()
        accept(world, seen)
        if world not in kept:
            kept.append(world)
    return kept


# ---- agreement -----------------------------------------------------------------------------


def in_queues(completions: list[Completion], queue_of: dict[int, str]) -> dict[Any, list[Any]]:
    """The completions of each queue, in order."""
    queues: dict[Any, list[Any]] = {}
    for one in completions:
        queue = one.queue or queue_of.get(one.wr_id, "?")
        seen = (one.byte_len, one.imm, one.src, one.invalidated)
        values = (one.wr_id, one.status, one.opcode, *seen)
        queues.setdefault((one.qp, queue), []).append(values)
    return queues


def same(expected: tuple[Any, ...], got: tuple[Any, ...]) -> bool:
    """Only what is defined counts: where the model says None, everything is right."""
    return len(expected) == len(got) and all(
        e is None or e == g for e, g in zip(expected, got, strict=True)
    )


def disagreement(world: World, seen: Observed) -> str | None:
    """Why what was seen is not what this world has led to."""
    queue_of = {one.wr_id: one.queue for one in world.completions}
    wanted, got = in_queues(world.completions, {}), in_queues(seen.completions, queue_of)
    for queue in wanted.keys() | got.keys():
        mine, theirs = wanted.get(queue, []), got.get(queue, [])
        if len(mine) != len(theirs) or not all(map(same, mine, theirs)):
            return f"completions of {queue}: {theirs}; the model says {mine}"
    return (
        wrong_cq(world, seen)
        or wrong_state(world, seen)
        or wrong_limit(world, seen)
        or wrong_memory(world, seen)
    )


def wrong_cq(world: World, seen: Observed) -> str | None:
    for one in world.completions:
        qp = world.qps[one.qp]
        shared = world.srqs.get(one.queue)
        cq = shared.cq if shared else qp.send_cq if one.queue == "send" else qp.recv_cq
        if seen.where[one.wr_id] != cq:
            return f"the completion of {one.wr_id} is in {seen.where[one.wr_id]}, not in {cq}"
    return None


def wrong_state(world: World, seen: Observed) -> str | None:
    for name, qp in world.qps.items():
        if seen.states[name] != qp.state:
            return f"{name} is in {seen.states[name]}; the model says {qp.state}"
    return None


def wrong_limit(world: World, seen: Observed) -> str | None:
    for name, srq in world.srqs.items():
        if (seen.limits[name], seen.reached[name]) != (srq.limit, srq.reached):
            got = f"{seen.limits[name]}, reached {seen.reached[name]} times"
            return f"{name}'s limit is {got}; the model says {srq.limit}, {srq.reached}"
    return None


def wrong_memory(world: World, seen: Observed) -> str | None:
    for process, memory in world.processes.items():
        for arena, mine in memory.arenas.items():
            theirs = seen.memory[process][arena]
            if mine == theirs:
                continue
            for at in range(SIZE):
                if mine[at] != theirs[at] and (arena, at) not in memory.forgotten:
                    return f"{process}'s {arena}[{at}] is {theirs[at]}; the model says {mine[at]}"
    return None


def contradicts(world: World, seen: Observed) -> bool:
    """Whether a completion was seen that cannot become right: no need to wait."""
    queue_of = {one.wr_id: one.queue for one in world.completions}
    wanted, got = in_queues(world.completions, {}), in_queues(seen.completions, queue_of)
    return any(
        len(theirs) > len(wanted.get(queue, [])) or not all(map(same, wanted[queue], theirs))
        for queue, theirs in got.items()
    )


def accept(world: World, seen: Observed) -> None:
    """What was not specified has been seen."""
    for process, memory in world.processes.items():
        for arena, mine in memory.arenas.items():
            mine[:] = seen.memory[process][arena]
        memory.forgotten.clear()
