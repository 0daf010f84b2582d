# SPDX-License-Identifier: Apache-2.0
"""The two sides of `verbena pair` as processes: started, heard, and ended with all they started.

`verbena pair` is two processes. The one that a user sees waits and passes signals on, and its child
does the work: orphans below that become its children, so that they can be found and ended too. When
the first is killed (SIGKILL), the kernel tells the child, which ends all. When both are killed at
once, the kernel kills the two sides, and what those have started stays.
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
PIECE = 1 << 16  # of a line that does not end

prctl = ctypes.CDLL(None).prctl


def go_on_in_child() -> None:
    """Fork, and return in the child alone; this process waits, passes signals on, and exits as it.

    A process that is killed cannot end what it started. So what a user kills starts nothing itself,
    and its child hears PARENT_GONE in ended_together(). Call it while there is one thread.
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
    """What would end this process ends its child first; what is ignored stays so."""

    def hand_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, hand_on)


class EndedBySignal(SystemExit):
    """A signal ends this process, which unwinds; the exit status is a shell's for it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@contextmanager
def ended_together() -> Iterator[Callable[[], None]]:
    """A signal that ends this process unwinds it (EndedBySignal); then no descendant is left.

    Yields what ends them sooner. For the child of go_on_in_child(), which has no children yet.

    A signal that was ignored stays so, as nohup wants it. One that comes while the block unwinds is
    not heard: nothing may keep it from ending what it started.
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
    """For a child, before its exec if it has one: it gets signal `number` when `parent`, which
    starts it, is no more."""

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it has ended already
            os._exit(128 + signal.SIGKILL)

    return arrange


def end_descendants() -> None:
    """Kill what is left below this process. What runs as another user stays."""
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
    """The processes below `root` at the moment, with those that have ended and are not reaped."""
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
    """This process's stdout, which both sides' lines go to; whole lines, one at a time."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.error: OSError | None = None
        self.lock = threading.Lock()

    def copy(self, lines: IO[bytes], mark: bytes) -> None:
        """Each line, marked. What cannot be written is read on, so that its writer goes on."""
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
        """Raises OSError when something could not be written; BrokenPipeError if none reads."""
        if isinstance(self.error, BrokenPipeError):
            raise self.error
        if self.error:
            raise OSError(f"cannot write what the two say: {self.error.strerror}")

    def reader(self, lines: IO[bytes] | None, mark: bytes = b"") -> threading.Thread:
        """A thread that copies, started."""
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
    """A process group of its own, without a terminal; its lines come through a pipe.

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
    """It has the terminal; where stdout is none, its lines come through a pipe.

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
    """Whether stdout and stderr are the same, as after 2>&1."""
    with suppress(OSError):
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate it if it still runs, and kill it if it does not mind."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
            return
        process.kill()
        process.wait()


def shell_status(status: int) -> int:
    """As a shell gives it: 128 + N after signal N."""
    return status if status >= 0 else 128 - status


def how_it_ended(status: int) -> str:
    """What follows "it ended"."""
    return f"(exit {status})" if status >= 0 else f"by {signal_name(-status)} (signal {-status})"


def signal_name(number: int) -> str:
    """As signal.h has it. The real-time signals between the first and the last have no name."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"
