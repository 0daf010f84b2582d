# SPDX-License-Identifier: Apache-2.0
"""`verbena env`: prints the variables of `verbena run`, for a whole shell or the rest of a CI job.

The shell evaluates the lines, so each value is quoted for it. Only differences from this process's
environment are printed, so a second `eval` changes nothing. When the command fails it prints
`false`, so that a shell under `set -e` ends.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Mapping

from verbena import launch
from verbena.cli import run
from verbena.cli.exact import ExactParser

OPTIONS = [*run.OPTIONS, "fish", "github", "undo"]
HOW = 'eval "$(verbena env)"'
Form = Callable[[str, str | None], str]


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena env",
        usage="verbena env [OPTIONS of verbena run] [--fish | --github] [--undo]",
        description="Print the variables by which the programs of a shell run over Verbena, as "
        "commands of that shell (sh, bash, zsh).",
        epilog=f"As in: {HOW}, or in a job of GitHub Actions: "
        'verbena env --github >> "$GITHUB_ENV". One program needs none of this: verbena run.',
    )
    run.add_options(made)
    form = made.add_mutually_exclusive_group()
    form.add_argument("--fish", action="store_true", help="commands of fish: verbena env | source")
    form.add_argument(
        "--github",
        action="store_true",
        help="lines for the file $GITHUB_ENV: they hold from the next step of the job on",
    )
    made.add_argument(
        "--undo",
        action="store_true",
        help="print what takes Verbena out again, with all variables that the options set",
    )
    return made


def main(arguments: list[str]) -> int:
    """Run `verbena env` and return its exit status."""
    try:
        return print_differences(arguments)
    except (SystemExit, OSError, ValueError) as error:
        if not (isinstance(error, SystemExit) and error.code == 0) and "--github" not in arguments:
            print("false")  # a shell under `set -e` evaluates it, and does not look at our status
        raise


def print_differences(arguments: list[str]) -> int:
    made = parser()
    options, words = run.parse(arguments, made, OPTIONS)
    if words:
        made.error(f"it starts no program; {words[0]!r} belongs to verbena run, or behind {HOW}")
    if not options.undo:
        run.check_netdevs(made, options)
    if options.capture and not options.undo:
        try:
            run.begin_capture(options.capture)
        except run.ProgramError as error:
            made.error(str(error))
    after = launch.without(os.environ) if options.undo else run.environment_of(options)
    form = github if options.github else fish if options.fish else sh
    for name, value in differences(os.environ, after):
        print(form(name, value))
    if sys.stdout.isatty():
        print(f"# to use it: {'verbena env --fish | source' if options.fish else HOW}")
    return 0


def differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[tuple[str, str | None]]:
    """Return names and new values of the variables that differ; None for one that is removed."""
    names = sorted({*before, *after})
    return [(name, after.get(name)) for name in names if before.get(name) != after.get(name)]


def sh(name: str, value: str | None) -> str:
    return f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"


def fish(name: str, value: str | None) -> str:
    if value is None:
        return f"set -e {name}"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{quoted}'"


def github(name: str, value: str | None) -> str:
    """Return a line for the file $GITHUB_ENV; a value of several lines is put between two marks.

    That file cannot remove a variable, so it is set to an empty text, which the linker and Verbena
    treat in the same way.
    """
    if value and "\n" in value:
        return f"{name}<<end-of-{name}\n{value}\nend-of-{name}"
    return f"{name}={value or ''}"
