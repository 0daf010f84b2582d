# SPDX-License-Identifier: Apache-2.0
"""`verbena pair`: when it starts the client, what it shows, how it ends the two."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs.pairs import free_port, marked_processes
from tests.support import verbena_command

SERVER = """
import os, socket, sys, time
how, delay, status = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
time.sleep(delay)
made = socket.socket(socket.AF_UNIX if how.startswith("/") else socket.AF_INET)
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
made.bind(how if how.startswith("/") else ("127.0.0.1", int(how)))
made.listen()
peer = made.accept()[0]
print("got", peer.recv(100).decode(), flush=True)
sys.exit(status)
"""
CLIENT = """
import os, socket, sys
where = sys.argv[1]
made = socket.socket(socket.AF_UNIX if where.startswith("/") else socket.AF_INET)
made.connect(where if where.startswith("/") else ("127.0.0.1", int(where)))
made.send(b"a word")
made.close()
word = sys.stdin.read() if len(sys.argv) > 3 else ""
os.write(1, f"sent {word}".encode() + bytes([10]))  # in one piece, as a line buffer would
sys.exit(int(sys.argv[2]))
"""
FOREVER = "import time\nwhile True: time.sleep(1)"


def python(program: str, *words: object) -> list[str]:
    return [sys.executable, "-c", program, *map(str, words)]


def pair(
    server: list[str], client: list[str], *options: str, text: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        verbena_command("pair", *options, "--", *server, "--", *client),
        env=os.environ | env,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


# ---- when the client starts --------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 0.7])
def test_the_client_finds_a_server_that_takes_its_time(delay: float) -> None:
    port = free_port()
    done = pair(python(SERVER, port, delay, 0), python(CLIENT, port, 0))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["sent ", "server: got a word"]


def test_a_unix_socket_counts(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    done = pair(python(SERVER, place, 0.3, 0), python(CLIENT, place, 0))
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_script_starts_counts() -> None:
    port = free_port()
    script = f"{shlex.join(python(SERVER, port, 0.2, 0))}; exit 0"
    done = pair(["sh", "-c", script], python(CLIENT, port, 0))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_listener_of_the_connection_manager_counts() -> None:
    """It has no socket that listens: the agent knows of it."""
    port = free_port()
    serves = (
        "import sys, time; from verbena.cm import sync; time.sleep(0.5)\n"
        "conn = sync.listen(int(sys.argv[1])).get_request().accept(); print(conn.wait_closed())"
    )
    connects = (
        "import sys; from verbena.cm import sync; sync.connect('127.0.0.1', int(sys.argv[1]))"
    )
    done = pair(python(serves, port), python(connects, port), "--wait", "10")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "server: the peer disconnected, or ended\n"


def test_others_sockets_do_not_count(tmp_path: Path) -> None:
    """Not of other processes, and not those by which processes of Verbena's meet."""
    opens = "import time; from verbena import verbs; ctx = verbs.open_device(); time.sleep(30)"
    begin = tmp_path / "begin"
    done = pair(python(opens), ["touch", str(begin)], "--wait", "1.5")
    assert (done.returncode, begin.exists()) == (124, False)
    assert "does not listen after 1.5 s" in done.stderr


def test_a_server_that_ends_first_is_shown_with_its_status() -> None:
    done = pair(["sh", "-c", "echo no such device; exit 7"], ["true"])
    assert done.returncode == 7
    assert done.stdout == "server: no such device\n"
    assert "sh ended before it listened (exit 7)" in done.stderr
    assert "(signal 9)" in pair(["sh", "-c", "kill -9 $$"], ["true"]).stderr
    assert pair(["true"], ["true"]).returncode == 1


# ---- how the two end ---------------------------------------------------------------------------


@pytest.mark.parametrize(("server", "client", "both"), [(0, 3, 3), (5, 0, 5), (5, 3, 3), (0, 0, 0)])
def test_the_status_is_that_of_the_client_or_else_of_the_server(
    server: int, client: int, both: int
) -> None:
    port = free_port()
    done = pair(python(SERVER, port, 0, server), python(CLIENT, port, client))
    assert done.returncode == both


def test_a_signal_is_a_status() -> None:
    port = free_port()
    done = pair(python(SERVER, port, 0, 0), ["sh", "-c", "kill -9 $$"], "--grace", "0.1")
    assert done.returncode == 128 + signal.SIGKILL


STILL_RAN = "s after the client's end and was ended"
LOST = "never looked for a device of Verbena"
LOOKS = "from verbena import verbs\nverbs.get_device_list()\n"


def test_a_side_that_lost_the_environment_is_named() -> None:
    port = free_port()
    server = ["env", "-i", *python(SERVER, port, 0, 0)]
    done = pair(server, python(LOOKS + CLIENT, port, 3))
    assert done.returncode == 3
    assert f"the server, env, {LOST}; if it should have, its environment" in done.stderr
    assert "as in sudo verbena run PROGRAM" in done.stderr
    assert "the client" not in done.stderr


def test_a_side_whose_program_is_missing_lost_nothing() -> None:
    done = pair(["env", "A=1", "./missing"], ["true"])
    assert "env ended before it listened (exit 127)" in done.stderr
    assert LOST not in done.stderr


def test_both_sides_may_have_lost_the_environment() -> None:
    port = free_port()
    server = ["env", "-i", *python(SERVER, port, 0, 4)]
    done = pair(server, ["env", "-i", *python(CLIENT, port, 3)])
    said = f"the server, env, and the client, env, {LOST}; if they should have, their environment"
    assert said in done.stderr


@pytest.mark.parametrize("way", ["words", "shell", "script"])
def test_the_advice_gives_the_environment_back(way: str, tmp_path: Path) -> None:
    """The words stand before the program in a command line of `verbena pair`."""
    port, script = free_port(), tmp_path / "script"
    words = [*verbena_command("run"), *python(LOOKS + SERVER, port, 0, 4)]
    script.write_text(f"{shlex.join(words)}; exit 4")
    server = {
        "words": ["env", "-i", f"PATH={os.environ['PATH']}", *words],
        "shell": ["sh", "-c", f"env -i {shlex.join(words)}; exit 4"],
        "script": ["sh", str(script)],
    }[way]
    done = pair(server, python(CLIENT, port, 3))
    assert done.returncode == 3
    assert "server: got a word" in done.stdout
    assert LOST not in done.stderr


def test_sides_that_looked_for_the_device_have_not_lost_the_environment() -> None:
    port = free_port()
    done = pair(python(LOOKS + SERVER, port, 0, 4), python(LOOKS + CLIENT, port, 3))
    assert done.returncode == 3
    assert LOST not in done.stderr


def test_a_program_that_fails_before_it_looks_has_said_why() -> None:
    """Behind a shell it may be another program that fails."""
    port = free_port()
    done = pair(python(SERVER, port, 0, 4), python(CLIENT, port, 3))
    assert done.returncode == 3
    assert LOST not in done.stderr


def test_sides_that_end_well_hear_nothing_of_the_environment() -> None:
    port = free_port()
    done = pair(["env", "-i", *python(SERVER, port, 0, 0)], python(CLIENT, port, 0))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGRTMIN + 3])
def test_the_signal_that_ended_one_of_the_two_is_named(number: int) -> None:
    port = free_port()
    name = "SIGRTMIN+3" if number > 31 else signal.Signals(number).name
    dies = ["sh", "-c", f"kill -{number} $$"]
    client = pair(python(SERVER, port, 0, 0), dies, "--grace", "0.1")
    said = f"ended by {name} (signal {number})"
    lines = client.stderr.splitlines()
    assert lines[0] == f"verbena pair: the client, sh, {said}"
    assert [STILL_RAN in line for line in lines[1:]] == [True]
    dying = f"{shlex.join(python(SERVER, port, 0, 0))}; kill -{number} $$"
    for status in (0, 4):
        server = pair(
            ["sh", "-c", dying],
            ["sh", "-c", f"{shlex.join(python(CLIENT, port, 0))}; sleep 1; exit {status}"],
        )
        assert server.returncode == (status or 128 + number)
        lines = server.stderr.splitlines()
        assert lines[0] == f"verbena pair: the server, sh, {said}"
        assert [LOST in line for line in lines[1:]] == [True] * (status > 0)


def test_a_client_that_outlives_its_server_is_ended_with_a_word() -> None:
    port = free_port()
    client = ["sh", "-c", f"{shlex.join(python(CLIENT, port, 0))}; exec sleep 60"]
    done = pair(python(SERVER, port, 0, 6), client, "--grace", "0.2")
    line, hint = done.stderr.splitlines()
    assert f"the client, sh, {LOST}" in hint
    assert "ended (exit 6); the client, sh, still runs after 0.2 s and is ended" in line


def test_a_server_for_many_clients_is_ended() -> None:
    """With what it started itself; its exit status does not count then."""
    port, mark = free_port(), f"pair-{os.getpid()}-{time.monotonic_ns()}"
    serving = f"{shlex.join(python(FOREVER))} & {shlex.join(python(SERVER, port, 0, 9))}; wait"
    done = pair(
        ["sh", "-c", serving], python(CLIENT, port, 0), "--grace", "0.3", VERBENA_TEST_MARK=mark
    )
    assert done.returncode == 0
    assert marked_processes(mark) == []


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("grace", ["0.2", "0"])
def test_a_server_that_hangs_is_named(grace: str, status: int) -> None:
    port = free_port()
    hangs = f"{LOOKS}{SERVER.replace('sys.exit(status)', FOREVER)}"
    done = pair(python(hangs, port, 0, 0), python(CLIENT, port, status), "--grace", grace)
    assert done.returncode == status
    assert [f"still ran {grace} s" in line for line in done.stderr.splitlines()] == (
        [] if grace == "0" else [True]
    )
    assert done.stderr.count(STILL_RAN) == (grace != "0")


def test_a_server_may_say_why_after_its_client_has_failed() -> None:
    """And is not waited for once it has ended."""
    port = free_port()
    server = f"{shlex.join(python(SERVER, port, 0, 0))}; sleep 0.7; echo late; exit 4"
    begin = time.monotonic()
    done = pair(["sh", "-c", server], python(CLIENT, port, 3), "--grace", "30")
    assert time.monotonic() - begin < 25
    assert done.returncode == 3
    assert "server: late" in done.stdout.splitlines()
    assert STILL_RAN not in done.stderr


def test_a_client_of_a_server_that_failed_is_ended() -> None:
    port = free_port()
    waits = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo x >&3; sleep 60"
    begin = time.monotonic()
    done = pair(python(SERVER, port, 0, 6), ["bash", "-c", waits], "--grace", "0.5")
    assert done.returncode == 6
    assert time.monotonic() - begin < 30


def begun_pair(tmp_path: Path, mark: str, before: str = "") -> subprocess.Popen[str]:
    """One whose client goes on for ever, and has begun. `before`: what the client does first."""
    begun = tmp_path / "begun"
    forever = shlex.join(python(FOREVER))
    client = ["sh", "-c", f"{before} touch {begun}; exec {forever}"]
    command = verbena_command("pair", "--", *python(SERVER, free_port(), 0, 0), "--", *client)
    process = subprocess.Popen(command, env=os.environ | {"VERBENA_TEST_MARK": mark}, text=True)
    deadline = time.monotonic() + 20
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_who_is_ended_ends_both(number: signal.Signals, tmp_path: Path) -> None:
    mark = f"pair-{os.getpid()}-{time.monotonic_ns()}"
    process = begun_pair(tmp_path, mark)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert marked_processes(mark) == []


def ended_by(
    number: signal.Signals, *words: str, when: Callable[[list[str]], bool]
) -> subprocess.CompletedProcess[str]:
    """`verbena pair` under timeout(1), which hands a signal on to its process group, once `when`
    holds for the command lines of what runs."""
    mark = f"pair-{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.Popen(
        ["timeout", "--preserve-status", "60", *verbena_command("pair"), *words],
        env=os.environ | {"VERBENA_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not when(marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # the pair looks every 0.2 s
    process.send_signal(number)
    said, complaints = process.communicate(timeout=30)
    return subprocess.CompletedProcess(words, process.returncode, said, complaints)


def sleeps(running: list[str]) -> bool:
    return any(line.startswith("sleep 60") for line in running)


def test_who_is_ended_says_what_it_waited_for() -> None:
    both = [*python(SERVER, free_port(), 0, 0), "--", "sh", "-c", "exec sleep 60"]
    done = ended_by(signal.SIGTERM, "--wait", "50", "--", "sleep", "60", "--", "sh", when=sleeps)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr.splitlines() == [
        "verbena pair: SIGTERM ends both while this waited for the server to listen: "
        "the server, sleep, still runs; the client, sh, was not started"
    ]
    done = ended_by(signal.SIGINT, "--", *both, when=sleeps)
    assert done.returncode == 128 + signal.SIGINT
    python_name = os.path.basename(sys.executable)
    assert done.stderr.splitlines() == [
        "verbena pair: SIGINT ends both while this waited for the client to end: "
        f"the server, {python_name}, still runs; the client, sh, still runs"
    ]


def test_who_is_ended_says_that_one_had_ended() -> None:
    port = free_port()
    serves = f"{shlex.join(python(SERVER, port, 0, 9))}; exec sleep 60"
    client = python(CLIENT, port, 0)
    words = ["--grace", "50", "--", "sh", "-c", serves, "--", *client]

    def has_ended(running: list[str]) -> bool:
        begins = f"{sys.executable} -c {CLIENT}"
        return sleeps(running) and not any(line.startswith(begins) for line in running)

    done = ended_by(signal.SIGTERM, *words, when=has_ended)
    assert done.returncode == 128 + signal.SIGTERM
    (line,) = done.stderr.splitlines()
    assert "while this waited for the server to end: the server, sh, still runs; " in line
    assert line.endswith(" has ended (exit 0)")


def ended_soon(mark: str) -> bool:
    """Whether no process with this mark is left after some seconds."""
    deadline = time.monotonic() + 10
    while marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return marked_processes(mark) == []


def test_who_is_killed_takes_both_along(tmp_path: Path) -> None:
    mark = f"pair-{os.getpid()}-{time.monotonic_ns()}"
    process = begun_pair(tmp_path, mark)
    process.kill()
    process.wait(20)
    assert ended_soon(mark)


def test_who_is_killed_takes_along_what_both_have_started(tmp_path: Path) -> None:
    """In the background, and in a session of its own."""
    mark = f"pair-{os.getpid()}-{time.monotonic_ns()}"
    process = begun_pair(tmp_path, mark, before=f"setsid {shlex.join(python(FOREVER))} &")
    process.kill()
    process.wait(20)
    assert ended_soon(mark)


def test_what_does_the_work_may_be_killed_as_well(tmp_path: Path) -> None:
    """The process that was started ends with its status, and the two sides end."""
    mark = f"pair-{os.getpid()}-{time.monotonic_ns()}"
    process = begun_pair(tmp_path, mark)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (worker,) = map(int, children)
    os.kill(worker, signal.SIGKILL)
    assert process.wait(20) == 128 + signal.SIGKILL
    assert ended_soon(mark)


def test_a_signal_while_the_client_is_started_leaves_nothing() -> None:
    """It comes between the fork and what remembers the process."""
    script = """
import os, subprocess, sys
from verbena.cli import pair
whole = subprocess.Popen._execute_child
def interrupted(self, *words):
    whole(self, *words)
    if "client" in words[0]:
        os.kill(os.getpid(), 15)
subprocess.Popen._execute_child = interrupted
sys.exit(pair.main(sys.argv[1:]))
"""
    mark = f"pair-{os.getpid()}-{time.monotonic_ns()}"
    sides = [*python(SERVER, free_port(), 0, 0), "--", *python(FOREVER, "client")]
    done = subprocess.run(
        python(script, "--", *sides), env=os.environ | {"VERBENA_TEST_MARK": mark}, timeout=60
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert marked_processes(mark) == []


def test_what_the_client_started_ends_with_it() -> None:
    port, mark = free_port(), f"pair-{os.getpid()}-{time.monotonic_ns()}"
    leaves = f"setsid {shlex.join(python(FOREVER))} & {shlex.join(python(CLIENT, port, 0))}"
    done = pair(python(SERVER, port, 0, 0), ["sh", "-c", leaves], VERBENA_TEST_MARK=mark)
    assert done.returncode == 0
    assert marked_processes(mark) == []


def test_programs_of_this_folder_are_found_by_their_path(tmp_path: Path) -> None:
    """`./server`, which is not in PATH; it is told its name as it was written."""
    port = free_port()
    for name, program in (("server", SERVER), ("client", CLIENT)):
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\n{program}")
        script.chmod(0o755)
    words = ["--", "./server", str(port), "0", "0", "--", "./client", str(port), "0"]
    done = subprocess.run(
        verbena_command("pair", *words), cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---- what they say -----------------------------------------------------------------------------


def test_a_mark_begins_its_line() -> None:
    """The server's word comes while the client's line is half written."""
    port = free_port()
    half = f"printf half; {shlex.join(python(CLIENT, port, 0))}; sleep 1; echo other"
    done = pair(python(SERVER, port, 0, 0), ["bash", "-c", half])
    assert sorted(done.stdout.splitlines()) == ["halfsent ", "other", "server: got a word"]


def test_output_that_cannot_be_written_is_a_failure() -> None:
    port = free_port()
    sides = [*python(SERVER, port, 0, 0), "--", *python(CLIENT, port, 0)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            verbena_command("pair", "--", *sides), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    said = "verbena pair: cannot write what the two say: No space left on device"
    assert done.stderr.splitlines() == [said]


def test_too_few_descriptors_are_named() -> None:
    command = shlex.join(verbena_command("pair", "--", "sleep", "1", "--", "true"))
    done = subprocess.run(["sh", "-c", f"ulimit -n 6; {command}"], capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "raise `ulimit -n`" in done.stderr


# ---- the rest ----------------------------------------------------------------------------------


def test_the_client_reads_what_the_pair_is_given() -> None:
    port = free_port()
    done = pair(python(SERVER, port, 0, 0), python(CLIENT, port, 0, "reads"), text="a line")
    assert "sent a line" in done.stdout


def test_both_run_over_verbena_with_the_options() -> None:
    port = free_port()
    shows = 'echo "$VERBENA_LOG $VERBENA_SPIN_US"; '
    server = ["sh", "-c", shows + shlex.join(python(SERVER, port, 0, 0))]
    client = ["sh", "-c", shows + shlex.join(python(CLIENT, port, 0))]
    done = pair(server, client, "--log", "errors", "--spin", "7")
    assert {"errors 7", "server: errors 7"} <= set(done.stdout.splitlines())


FAILS = """
import ctypes, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
device = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])))
assert verbs.ibv_query_pkey(device, 1, 99, ctypes.create_string_buffer(32)) == -1
sys.exit(3)
"""


def test_advice_under_a_pair_names_the_pair() -> None:
    """And a program that is started by `verbena run` in there is told of that."""
    port = free_port()
    fails = python(FAILS)
    server = python(SERVER, port, 0, 0)
    done = pair(server, fails, "--grace", "0.1")
    assert "to hear why: verbena pair --log errors (or" in done.stderr
    done = pair(server, [*verbena_command("run"), "--", *fails], "--grace", "0.1")
    assert "to hear why: verbena run --log errors (or" in done.stderr


@pytest.mark.parametrize(
    "words",
    [(), ("--",), ("--", "true"), ("true", "--"), ("--", "--", "true"), ("--wait", "x", "a", "--")],
    ids=" ".join,
)
def test_a_wrong_command_line_says_how(words: tuple[str, ...]) -> None:
    done = subprocess.run(verbena_command("pair", *words), capture_output=True, text=True)
    assert done.returncode == 2
    assert "as in: verbena pair --" in done.stderr or "number of seconds" in done.stderr


@pytest.mark.parametrize("words", [("nosuch", "--", "true"), ("true", "--", "nosuch")])
def test_neither_starts_when_one_is_not_there(words: tuple[str, ...]) -> None:
    done = subprocess.run(verbena_command("pair", *words), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    assert "verbena pair: there is no program nosuch" in done.stderr
