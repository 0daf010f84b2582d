# SPDX-License-Identifier: Apache-2.0
"""`verbena agent`: the process that manages connections, in the foreground.

Programs start an agent by themselves (verbena.agent); this one prints what happens, and may have
faults and a capture of its packets.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys

from verbena import capture, launch
from verbena.agent.client import describe_agent
from verbena.agent.running import prepare_environment, run_agent
from verbena.cli.exact import ExactParser

FAILED = 1


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena agent",
        description="Manage the connections of this user's programs that use librdmacm "
        "(rdma_connect, rdma_listen, rsockets) in this network namespace. Programs that find no "
        "agent start one in the background, which ends ten seconds after its last program; so this "
        "command is needed only to watch one, or in a place where programs cannot start it.",
        epilog="Ctrl-C ends it: connections that are made go on, and no more can be made or ended "
        "in order by the programs that use it.",
    )
    made.add_argument(
        "--fault",
        metavar="RULES",
        help="drop, delay or damage the packets to other hosts by which connections are made, as "
        "in 'drop 10%%'",
    )
    made.add_argument(
        "--capture", metavar="FILE", help="write these packets to a file for Wireshark"
    )
    return made


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    prepare_environment(os.environ)
    try:
        os.environ.update(launch.packet_settings({}, options.fault, options.capture, False, None))
    except ValueError as error:
        made.error(str(error))
    if options.capture:
        capture.begin(options.capture)
    say("verbena agent: ready; Ctrl-C ends it")
    try:
        run_agent(None, report=say)
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        print(f"verbena agent: {reason(error)}", file=sys.stderr)
        return FAILED
    return 0


def reason(error: OSError) -> str:
    """What hinders the agent, and what to do."""
    if error.errno != errno.EADDRINUSE:
        return str(error)
    try:
        running = describe_agent()
    except OSError:
        running = None
    if running is None:
        return "another process has the agent's name; `verbena info` may show it"
    programs = ", ".join(map(str, running["programs"])) or "none"
    return (
        f"an agent is running already, process {running['pid']}, for the programs {programs}; "
        "it ends ten seconds after the last of them"
    )
