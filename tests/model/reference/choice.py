# SPDX-License-Identifier: Apache-2.0
"""Where the rules leave freedom.

The specification does not always say what happens: which of two errors is named first, how much of
a failed transfer has arrived. There the model asks ``choices.one_of(...)``, and every answer is
right. ``outcomes`` follows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Answers questions by a script, and after its end with the first option."""

    def __init__(self, script: list[int] | None = None) -> None:
        self.script = script or []
        self.asked: list[tuple[int, int]] = []

    def one_of(self, *options: T) -> T:
        """One of the options: nobody may rely on which."""
        if len(options) == 1:
            return options[0]
        at = len(self.asked)
        index = self.script[at] if at < len(self.script) else 0
        self.asked.append((index, len(options)))
        return options[index]


def outcomes(run: Callable[[Choices], T]) -> Iterator[T]:
    """What ``run`` returns for every series of answers that it may get."""
    script: list[int] | None = []
    while script is not None:
        choices = Choices(script)
        yield run(choices)
        script = following(choices.asked)


def following(asked: list[tuple[int, int]]) -> list[int] | None:
    """The next series in order: the last answer that has another is changed."""
    while asked:
        index, count = asked.pop()
        if index + 1 < count:
            return [answer for answer, _ in asked] + [index + 1]
    return None
