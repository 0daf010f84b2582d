# SPDX-License-Identifier: Apache-2.0
"""A process of a measurement in Python: python -m verbena.bench.worker NAME ROLE FD ARGUMENTS

ROLE is first or second, FD a connected socket to the other one, ARGUMENTS a JSON object. The first
process prints its result as one line of JSON.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

from verbena.bench import plain_scripts, verbs_scripts
from verbena.bench.side import Side

SCRIPTS: dict[str, Any] = {
    function.__name__: function
    for function in (
        verbs_scripts.write_latency,
        verbs_scripts.write_batches,
        verbs_scripts.write_bandwidth,
        verbs_scripts.write_cold,
        verbs_scripts.connect,
        verbs_scripts.idle,
        verbs_scripts.array,
        plain_scripts.tcp_latency,
        plain_scripts.tcp_bandwidth,
        plain_scripts.memcpy_cold,
        plain_scripts.eventfd_latency,
    )
}


def main(name: str, role: str, fd: str, arguments: str) -> None:
    with socket.socket(fileno=int(fd)) as link:
        result = SCRIPTS[name](Side(role == "first", link), **json.loads(arguments))
    if role == "first":
        print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
