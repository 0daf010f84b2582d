# SPDX-License-Identifier: Apache-2.0
"""One process of a pair: python -m verbena.measure.worker MODULE FUNCTION ROLE FD ARGUMENTS

scripts.run starts two. ROLE is first or second, FD a connected socket to the other one, ARGUMENTS a
JSON object. The first process prints what FUNCTION returned as one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys

from verbena.measure.side import Side


def main(module: str, name: str, role: str, fd: str, arguments: str) -> None:
    function = getattr(importlib.import_module(module), name)
    with socket.socket(fileno=int(fd)) as link:
        result = function(Side(role == "first", link), **json.loads(arguments))
    if role == "first":
        print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
