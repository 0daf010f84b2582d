# SPDX-License-Identifier: Apache-2.0
"""Runs random divisions on the interpreter and on the real processor, also those that raise #DE.

``python -m tests.host.compared_divisions FIRST END`` prints how many of the seeds raise #DE and how
many differ. The processor runs each in a process of its own, which a #DE ends by SIGFPE. With
``--spoil`` the interpreter begins with another R15. The exit code is 1 if any differs.
"""

from __future__ import annotations

import os
import pickle
import random
import resource
import signal
import sys

from tests.host.compared import Interpreter, UnexpectedStopError, compare, spoiled
from tests.host.divisions import prepared_division
from tests.host.random_programs import Maker
from tests.host.real_processor import RealProcessor, State

DIVIDE = 0  # the vector of #DE
_DEFINE_FLAGS = bytes.fromhex("4809c0")  # or rax, rax


def made(seed: int) -> tuple[State, bytes]:
    """The state before the division of a seed, and its machine code."""
    return Maker(seed).state(), prepared_division(random.Random(seed), fits=False) + _DEFINE_FLAGS


def on_processor(real: RealProcessor, code: bytes, before: State) -> State | None:
    """The state behind ``code``; None if it raised #DE."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.write(writer, pickle.dumps(real.run(code, before)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGFPE, f"ended by signal {os.WTERMSIG(status)}"
        return None
    state: State = pickle.loads(data)
    return state


def on_interpreter(ours: Interpreter, code: bytes, before: State) -> State | None:
    """The state behind ``code``; None if it raised #DE."""
    try:
        return ours.run(code, before)
    except UnexpectedStopError as error:
        if error.vector != DIVIDE:
            raise
        return None


def differences(real: State | None, ours: State | None) -> list[str]:
    """What differs, in words."""
    if real is None or ours is None:
        return [] if real is ours else [f"#DE: {real is None}, {ours is None}"]
    return compare(real, ours)


def main() -> int:
    """Compares the seeds that the command line names."""
    first, end, spoil = int(sys.argv[1]), int(sys.argv[2]), "--spoil" in sys.argv
    real, ours = RealProcessor(), Interpreter()
    errors = differ = 0
    for seed in range(first, end):
        before, code = made(seed)
        there = on_processor(real, code, before)
        here = on_interpreter(ours, code, spoiled(before) if spoil else before)
        errors += there is None
        if found := differences(there, here):
            differ += 1
            print(f"seed {seed}, {code.hex(' ')}: {found}")
    print(f"{end - first} divisions, {errors} with #DE, {differ} differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
