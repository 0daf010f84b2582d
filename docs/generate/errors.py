# SPDX-License-Identifier: Apache-2.0
"""Makes each error of the catalogue happen and writes what Verbena says about it, as Markdown.

python docs/generate/errors.py          # rewrites the catalogue in docs/errors.md
python docs/generate/errors.py --print  # prints it
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import catalogue
import marks

from verbena import launch, verbs

PAGE = Path(__file__).parent.parent / "errors.md"
BEGIN_MARK = "<!-- catalogue: made by generate/errors.py -->\n"
END_MARK = "<!-- end of catalogue -->"
WIDTH = 96


def raised(code: str) -> str:
    """Run the lines and return the VerbsError that they raise."""
    names: dict[str, Any] = {}
    try:
        exec(compile(catalogue.BEGIN + code, "<example>", "exec"), names)
    except verbs.VerbsError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if "ctx" in names:
            names["ctx"].close()
    raise AssertionError(f"the example was to fail and did not:\n{code}")


def raised_with(variable: str, code: str) -> str:
    """Run the lines in a process with this variable, NAME=VALUE; return the error."""
    command = [sys.executable, "-c", catalogue.BEGIN + code]
    name, _, value = variable.partition("=")
    environment = os.environ | {name: value}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    last = done.stderr.rstrip().splitlines()[-1:]
    if not last or "Error" not in last[0]:
        raise AssertionError(f"the example was to fail and did not:\n{code}\n{done.stderr}")
    return last[0].removeprefix("verbena.verbs.errors.")


def said(command: str) -> str:
    """Run a program with VERBENA_LOG=errors; return Verbena's lines on stderr."""
    done = subprocess.run(
        command.split(),
        env=launch.environment(dict(os.environ), log="errors"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("verbena:")]
    if not lines:
        raise AssertionError(f"{command} was to fail and did not:\n{done.stdout}{done.stderr}")
    return "\n".join(lines)


def block(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```\n"


def wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def example(one: Any) -> str:
    if one.command:
        shown, output = (
            block("text", f"$ verbena run --log errors -- {one.command}"),
            said(one.command),
        )
    else:
        shown = block("python", one.lines)
        output = raised_with(one.variable, one.lines) if one.variable else raised(one.lines)
    return f"*{one.title}*\n\n{shown}\n{block('text', wrapped(output))}"


def entry(one: Any) -> str:
    """Return an entry: heading, meaning, causes, remedy, examples."""
    text = (
        f"### {one.name}\n\n{one.means}\n\nUsual causes: {one.causes}\n\nWhat to do: {one.remedy}\n"
    )
    return "\n".join([text, *(example(each) for each in one.examples)])


def entries(them: Iterable[Any]) -> str:
    return "\n".join(entry(one) for one in them)


def made() -> str:
    """The whole catalogue."""
    begin = block("python", catalogue.BEGIN.rstrip())
    return (
        f"The Python examples go on from these lines, in any order:\n\n{begin}"
        f"\n## Statuses of completions\n\n{entries(catalogue.STATUSES)}"
        f"\n## Calls that fail\n\n{entries(catalogue.CALLS)}"
    )


def replaced(page: str, new: str) -> str:
    """The page with this catalogue, and none of the numbers changed that differ from run to run."""
    return marks.replaced(page, BEGIN_MARK, END_MARK, marks.settled(page, new))


if __name__ == "__main__":
    if "--print" in sys.argv[1:]:
        print(made())
    else:
        PAGE.write_text(replaced(PAGE.read_text(), made()))
