# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in a guest, each in a process forked from one that has imported Verbena.

An emulated processor takes seconds to start Python and to import NumPy, and does it once here. A
connection to the port given brings a program, as JSON in a line, and gets what the program says and
its status. Nothing of the system's libraries is loaded before the program asks for it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

from tests.roce.linux_guest import STATUS


def import_what_programs_use() -> None:
    import verbena.collectives
    import verbena.nvmeof
    import verbena.peers
    import verbena.rpc

    assert verbena.collectives, (verbena.nvmeof, verbena.peers, verbena.rpc)


def answer(connection: socket.socket) -> None:
    """Run the program that a connection brings in a process of its own, and say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection.makefile("r") as lines:
        request = json.loads(lines.readline())
    child = os.fork()
    if child == 0:
        run(connection, **request)
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{STATUS}{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def run(
    connection: socket.socket, words: list[str], variables: dict[str, str], pid_file: str
) -> None:
    """Become the program. It ends by SystemExit or another exception, as a program does."""
    for number in (1, 2):
        os.dup2(connection.fileno(), number)
    connection.close()
    Path(pid_file).write_text(str(os.getpid()))
    os.environ.update(variables)
    sys.argv[:] = words
    runpy.run_path(words[0], run_name="__main__")
    sys.exit()


def main(port: int) -> None:
    import_what_programs_use()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.create_server(("", port)) as listener:
        print("ready")
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(connection)
            connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
