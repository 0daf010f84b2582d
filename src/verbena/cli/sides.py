# SPDX-License-Identifier: Apache-2.0
"""The two sides of `verbena pair` as processes: start, output, and end with all descendants.

`verbena pair` is two processes. The one that a user sees waits and passes signals on. Its child
does the work: orphans below it become its children (PR_SET_CHILD_SUBREAPER), so that they can be
found and ended, too. When the first is killed (SIGKILL), the kernel signals the child, which ends
all. When both are killed at once, the kernel kills the two sides, and processes that those have
started stay.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PARENT_GONE = signal.SIGRTMIN  # not one of ENDING: those may be ignored, as under nohup
ORPHANS_END = 5.0  # seconds
PIECE = 1 << 16  # a line that is longer is copied in pieces of this size

prctl = ctypes.CDLL(None).prctl


def go_on_in_child() -> None:
    """Fork, and return in the child alone; the parent waits, passes signals on, and exits as the
    child.

    A process that is killed cannot end its children. So the process that a user may kill starts
    nothing but this child, which gets PARENT_GONE in ended_together(). Call this while there is one
    thread.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    child = os.fork()
    if not child:
        dying_with(parent, PARENT_GONE)()
    else:
        pass_signals_to(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if child:
        _, status = os.waitpid(child, 0)
        raise SystemExit(shell_status(os.waitstatus_to_exitcode(status)))


def pass_signals_to(child: int) -> None:
    """Pass the signals that would end this process on to its child; ignored ones stay ignored."""

    def hand_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, hand_on)


class EndedBySignal(SystemExit):
    """A signal ends this process; the exit status is 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@contextmanager
def ended_together() -> Iterator[Callable[[], None]]:
    """Turn signals that end this process into EndedBySignal, and end all descendants at the exit.

    Yields a function that ends them sooner. Only the child of go_on_in_child() may use this, while
    it has no children yet.

    A signal that was ignored stays ignored, as nohup requires. Signals are ignored while the block
    unwinds, so that nothing keeps it from ending its descendants.
    """

    def leave(number: int, frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise EndedBySignal(number)

    before = {
        number: was
        for number in (*ENDING, PARENT_GONE)
        if (was := signal.getsignal(number)) != signal.SIG_IGN
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in before:
        signal.signal(number, leave)
    try:
        yield end_descendants
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        end_descendants()
        for number, was in before.items():
            signal.signal(number, was)


def dying_with(parent: int, number: int = signal.SIGKILL) -> Callable[[], None]:
    """Return a function that a child calls before its exec: the kernel then sends it signal
    `number` when `parent`, which starts it, ends."""

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it has ended already
            os._exit(128 + signal.SIGKILL)

    return arrange


def end_descendants() -> None:
    """Kill all processes below this one. Processes of another user stay."""
    deadline = time.monotonic() + ORPHANS_END
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def descendants(root: int) -> set[int]:
    """Return the processes below `root` at the moment, with zombies."""
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            state = Path("/proc", name, "stat").read_text(errors="replace")
            parents[int(name)] = int(state.rpartition(")")[2].split()[1])
    found, level = set[int](), {root}
    while level:
        level = {process for process, parent in parents.items() if parent in level}
        found |= level
    return found


class Output:
    """This process's stdout, to which the lines of both sides are copied, one whole line at a
    time."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.error: OSError | None = None
        self.lock = threading.Lock()

    def copy(self, lines: IO[bytes], mark: bytes) -> None:
        """Copy each line with the mark. Reads on after a write error, so that the writer can go
        on."""
        begins = True
        while piece := lines.readline(PIECE):
            text = mark * begins + piece
            begins = piece.endswith(b"\n")
            with self.lock:
                self.write(text)
        if not begins:
            with self.lock:
                self.write(b"\n")

    def write(self, text: bytes) -> None:
        try:
            while text and not self.error:
                text = text[os.write(self.descriptor, text) :]
        except OSError as error:
            self.error = error

    def check(self) -> None:
        """Raise OSError when a line could not be written; BrokenPipeError if there is no reader."""
        if isinstance(self.error, BrokenPipeError):
            raise self.error
        if self.error:
            raise OSError(f"cannot write what the two say: {self.error.strerror}")

    def reader(self, lines: IO[bytes] | None, mark: bytes = b"") -> threading.Thread:
        """Start and return a thread that copies the lines. Raises OSError."""
        assert lines is not None
        made = threading.Thread(target=self.copy, args=(lines, mark), daemon=True)
        try:
            made.start()
        except RuntimeError as error:  # Python does not say more
            raise OSError("a thread cannot be started; verbena doctor may say why") from error
        return made


def start_server(
    program: str, words: list[str], environment: dict[str, str], kept: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a server: a process group of its own, without a terminal, whose lines come through a
    pipe.

    It inherits the descriptors `kept`.
    """
    return subprocess.Popen(
        words,
        executable=program,
        env=environment,
        pass_fds=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=dying_with(os.getpid()),
    )


def start_client(
    program: str, words: list[str], environment: dict[str, str], kept: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a client, which has the terminal; if stdout is none, its lines come through a pipe.

    It inherits the descriptors `kept`.
    """
    piped = not sys.stdout.isatty()
    return subprocess.Popen(
        words,
        executable=program,
        env=environment,
        pass_fds=kept,
        stdout=subprocess.PIPE if piped else None,
        stderr=subprocess.STDOUT if piped and one_file() else None,
        preexec_fn=dying_with(os.getpid()),
    )


def one_file() -> bool:
    """Return whether stdout and stderr are the same file, as after 2>&1."""
    with suppress(OSError):
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process if it still runs, and kill it if it does not end within a second."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
            return
        process.kill()
        process.wait()


def shell_status(status: int) -> int:
    """Return an exit status as a shell does: 128 + N after signal N."""
    return status if status >= 0 else 128 - status


def how_it_ended(status: int) -> str:
    """Return the words that follow "it ended": the exit status, or the signal."""
    return f"(exit {status})" if status >= 0 else f"by {signal_name(-status)} (signal {-status})"


def signal_name(number: int) -> str:
    """Return a signal's name of signal.h, or SIGRTMIN+N for a real-time signal without one."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"
