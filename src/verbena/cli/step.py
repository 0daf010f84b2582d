# SPDX-License-Identifier: Apache-2.0
"""`verbena step`: a program shown step by step, with the bus, the wire and interrupts.

verbena.cli starts main(); verbena.host.lessons has the lessons and makes the steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from verbena.cli.exact import ExactParser
from verbena.cli.paths import prepare_file, unusable
from verbena.host import HostError
from verbena.host.cost_list import ListedCost, cost_list_text, used_costs
from verbena.host.lessons import LESSONS, Frame, Lesson, frames_of, lesson_of_file
from verbena.host.lessons.programs import MAP

_MOST = 2000
_KEYS = "Enter or n: next, p: back, a number: that step, q: end"


def parser() -> argparse.ArgumentParser:
    lessons = "; ".join(f"{one.name}: {one.title}" for one in LESSONS.values())
    made = ExactParser(
        prog="verbena step",
        description="Show a program step by step: each instruction, and what it leads to on the "
        f"bus, on the wire and in memory. The lessons are: {lessons}.",
        epilog=f"A file of assembly runs on a computer that has {MAP}. A comment behind an "
        "instruction is shown as its sentence.",
    )
    made.add_argument("program", metavar="PROGRAM", help="a lesson, or a file of assembly")
    made.add_argument(
        "--all", action="store_true",
        help="print all steps, as is done where stdin or stdout is no terminal",
    )  # fmt: skip
    made.add_argument(
        "--most", type=int, default=_MOST, metavar="N", help="steps shown; default: %(default)s"
    )
    made.add_argument(
        "--timeline", type=Path, metavar="FILE.json",
        help="write what the steps shown did, for https://ui.perfetto.dev",
    )  # fmt: skip
    return made


def main(arguments: list[str]) -> int:
    """Run `verbena step`. Returns its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    if options.most < 1:
        made.error(f"--most {options.most}: at least 1")
    try:
        lesson = lesson_of(options.program)
        if options.timeline is not None:
            prepare_file(options.timeline)
        steps = Steps(lesson, options.most)
        try:
            show(steps, options)
        finally:  # also of what came before a fault
            if options.timeline is not None:
                steps.timeline.write(options.timeline)
    except BrokenPipeError:
        raise  # its caller ends quietly, as the reader of its lines has
    except OSError as error:
        print(f"verbena step: {unusable(error)}", file=sys.stderr)
        return 1
    except HostError as error:
        print(f"verbena step: {error}", file=sys.stderr)
        return 1
    return 0


def show(steps: Steps, options: argparse.Namespace) -> None:
    """Prints all steps, or lets the reader walk through them."""
    if options.all or not (sys.stdin.isatty() and sys.stdout.isatty()):
        for number, frame in enumerate(steps.rest(), 1):
            print(shown(number, frame), flush=True)
        if steps.cut:
            print(f"... and more: {steps.cut}")
    else:
        walk(steps, input, print)
    print("\n".join(["", "Costs that were used", cost_list_text(steps.costs())]))


def lesson_of(name: str) -> Lesson:
    """The lesson of a name or a file. Raises HostError, OSError."""
    if name in LESSONS:
        return LESSONS[name]
    path = Path(name)
    if not path.exists():
        raise HostError(f"{name!r} is no file, and no lesson: those are {', '.join(LESSONS)}")
    try:
        return lesson_of_file(name, path.read_text())
    except UnicodeDecodeError as error:
        raise HostError(f"{name} is no text, and so no assembly: {error.reason}") from None


class Steps:
    """The steps of a lesson, made when they are first asked for; at most ``most``."""

    def __init__(self, lesson: Lesson, most: int) -> None:
        self._made: list[Frame] = []
        scene = lesson.build()
        machines = scene.computer.machines
        self._computers = [scene.computer] if machines is None else machines.computers
        self.timeline = (machines or scene.computer).timeline()
        self._frames = frames_of(scene)
        self._most = most
        self._cut: str | None = None

    def get(self, number: int) -> Frame | None:
        """The step with that number, from 1; None behind the last."""
        wanted = min(number, self._most) - len(self._made)
        self._made += islice(self._frames, max(0, wanted))
        return self._made[number - 1] if 1 <= number <= len(self._made) else None

    def rest(self) -> Iterator[Frame]:
        """All steps."""
        number = 1
        while (frame := self.get(number)) is not None:
            yield frame
            number += 1

    def costs(self) -> list[ListedCost]:
        """The rows of the list of costs that the steps so far have used."""
        return used_costs(*self._computers)

    @property
    def cut(self) -> str:
        """Where the program is behind the last step that may be shown, and what then helps; empty
        if there are no more."""
        if self._cut is None and len(self._made) == self._most:
            where = self._computers[0].cores[0].where
            has_more = next(self._frames, None) is not None
            self._cut = f"{where}. {self._advice}" if has_more else ""
        return self._cut or ""

    @property
    def _advice(self) -> str:
        return f"--most shows more than {self._most} steps, if that is no loop without end"


def shown(number: int, frame: Frame) -> str:
    """A step as text."""
    return f"{number:4}  {frame}"


def walk(steps: Steps, ask: Callable[[str], str], say: Callable[[str], None]) -> None:
    """Goes through the steps as the reader's keys say, until q or the end of the input."""
    at = 1
    say(_KEYS)
    while True:
        frame = steps.get(at)
        if frame is not None:
            say(shown(at, frame))
        try:
            word = ask("> ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            return
        if word == "q":
            return
        if word in ("", "n", "p") or word.isdecimal():
            wanted = int(word) if word.isdecimal() else at + (-1 if word == "p" else 1)
            try:
                found = steps.get(wanted)
                cut = steps.cut if found is None and wanted > at else ""
            except HostError as error:
                say(f"the program ends here: {error}")
                continue
            if found is None:
                ends = f" that may be shown: {cut}" if cut else ""
                say(f"there is no such step: it is before the first, or behind the last{ends}")
            else:
                at = wanted
        else:
            say(_KEYS)
