# SPDX-License-Identifier: Apache-2.0
"""A Python prompt into which test_pages.py pastes blocks, line by line, in a process of its own.

Each line of stdin is a JSON string, a block; each line of stdout is the answer, a list: the error
with which the block ended or "", and what it printed. A blank line ends an indented statement here,
as it does at the real prompt.
"""

from __future__ import annotations

import code
import contextlib
import io
import json
import os
import sys


class Prompt(code.InteractiveConsole):
    """Remembers the first error of a block in place of showing it."""

    problem = ""

    def showtraceback(self) -> None:
        kind, error = sys.exc_info()[:2]
        self.problem = self.problem or f"{kind.__name__ if kind else ''}: {error}"

    def showsyntaxerror(self, filename: str | None = None, **_: object) -> None:
        self.showtraceback()

    def paste(self, block: str) -> tuple[str, str]:
        self.problem = ""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            for line in [*block.split("\n"), ""]:
                self.push(line)
        self.resetbuffer()
        return self.problem, printed.getvalue()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what processes of theirs print does not stand between the answers
    sys.path[0] = ""  # as at the real prompt: files that the page has saved can be imported
    prompt = Prompt({"__name__": "__main__"})
    for line in sys.stdin:
        answers.write(json.dumps(prompt.paste(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
