# SPDX-License-Identifier: Apache-2.0
"""`verbena doctor`: what on this machine helps or hinders, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from verbena.cli import checks, host
from verbena.cli.exact import ExactParser
from verbena.cli.finding import Finding, Verdict


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena doctor",
        description="Check this machine for Verbena: what works, what is slower than it could be, "
        "what is missing, and what to do about it. Changes nothing.",
        epilog="Exit status 1: something keeps Verbena from working.",
    )
    made.add_argument("--json", action="store_true", help="print the findings as JSON")
    return made


def report(findings: Iterable[Finding]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{finding.verdict.value:>4}  {finding.name}: {finding.text}")
        if finding.advice:
            lines += [f"      -> {line}" for line in finding.advice.splitlines()]
    return "\n".join(lines)


def summary(findings: list[Finding]) -> str:
    bad = sum(f.verdict is Verdict.BAD for f in findings)
    slow = sum(f.verdict is Verdict.SLOW for f in findings)
    if bad:
        return f"Verbena cannot work fully here: {bad} of {len(findings)} findings are bad."
    if slow:
        return f"Verbena works here; {slow} of {len(findings)} findings cost speed."
    return "Verbena works here."


def main(arguments: list[str]) -> int:
    """Runs `verbena doctor`."""
    options = parser().parse_args(arguments)
    findings = [*checks.findings(), *host.findings()]
    if options.json:
        json.dump([asdict(finding) for finding in findings], sys.stdout, indent=2)
        print()
    else:
        print(report(findings), summary(findings), sep="\n\n")
    return int(any(finding.verdict is Verdict.BAD for finding in findings))
