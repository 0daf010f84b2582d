# SPDX-License-Identifier: Apache-2.0
"""What a program prints reaches no file of Verbena's, also when it has closed its streams."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.robust.conftest import StartChild, connect
from tests.robust.test_conditions import carries_data
from tests.support import ROOT, own_network

NATIVE = ROOT / "src" / "native"
# Each answers with a new descriptor; those that answer otherwise are named apart.
OPENS = re.compile(
    r"(?<![\w.>])((?:socket|accept4?|open(?:at)?|memfd_create|epoll_create1?|eventfd|timerfd_create|"
    r"signalfd|inotify_init1?|pidfd_open|dup[23]?|fopen|fdopen|popen|tmpfile|opendir|mkstemp|"
    r"socketpair|pipe2?|recvmsg)(?=\()|F_DUPFD\w*)"
)
RAISED_ELSEWHERE = {  # both ends of a pipe; what a message brings; a packet brings none
    ("memory/descriptor.c", "pipe2"),
    ("direct/message.c", "recvmsg"),
    ("port/fabric_question.c", "recvmsg"),
    ("roce/udp_receive.c", "recvmsg"),
    ("memory/descriptor.c", "F_DUPFD_CLOEXEC"),
    ("direct/query.c", "fdopen"),  # of a descriptor that was raised
}


BINDINGS = ROOT / "src" / "verbena" / "verbs"
OPENS_IN_PYTHON = re.compile(
    r"\b(os\.(?:open|eventfd|pipe2?|dup2?|memfd_create|pidfd_open|openpty)|socket\.socket)\("
)


def opened_below_three(name: str, text: str) -> list[str]:
    """Calls in a source that do not pass their descriptor through vb_memory_descriptor_raise."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*|\"(\\.|[^\"\\])*\"", "", text, flags=re.DOTALL)
    return [
        f"{name}: {call[1]}"
        for call in OPENS.finditer(code)
        if (name, call[1]) not in RAISED_ELSEWHERE
        and not code[: call.start()].rstrip().endswith("vb_memory_descriptor_raise(")
    ]


def test_every_descriptor_is_raised() -> None:
    """But of what programs open themselves (preload/paths), where a number is theirs to expect."""
    sources = {str(path.relative_to(NATIVE)): path for path in NATIVE.rglob("*.c")}
    found = [
        each
        for name, path in sorted(sources.items())
        if not name.startswith("preload/paths/")
        for each in opened_below_three(name, path.read_text())
    ]
    assert found == []


def test_every_descriptor_of_the_bindings_is_raised() -> None:
    sources = [p for p in BINDINGS.rglob("*") if p.suffix in (".py", ".pyx", ".pxi")]
    calls = [
        (path.name, text[max(call.start() - 8, 0) : call.end()])
        for path in sources
        for text in [path.read_text()]
        for call in OPENS_IN_PYTHON.finditer(text)
    ]
    assert calls, "the look at the sources finds nothing"
    assert [each for each in calls if not each[1].startswith("_raised(")] == []


@pytest.mark.parametrize(
    "line", ["fd = open(path, O_RDONLY);", "close(accept4(a,\n b, 0, 0));", "f = fopen(p, m);"]
)
def test_the_look_at_the_sources_finds_one(line: str) -> None:
    assert len(opened_below_three("x.c", f"/* open( */ {line}")) == 1


@pytest.mark.parametrize("carrier", ["direct", "roce"])
@pytest.mark.parametrize("streams", ["closed", "undumpable"], ids=["closed", "open"])
def test_nothing_stands_where_standard_streams_were(
    start_child: StartChild,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    carrier: str,
    streams: str,
) -> None:
    monkeypatch.setenv("VERBENA_CARRIER", carrier)
    monkeypatch.setenv("VERBENA_CAPTURE", str(tmp_path / "capture.pcapng"))
    prefix = own_network() if carrier == "roce" else []
    child = start_child(streams, prefix=prefix)
    other = child if carrier == "roce" else start_child(streams)
    near, far = child.make(kind="own"), other.make(kind="alloc")
    before = near.standard_streams(), far.standard_streams()
    connect(near, far)
    near.make_channels(3)
    carries_data(near, far)
    carries_data(far, near)
    near.sleep_in_wait()
    assert (near.standard_streams(), far.standard_streams()) == before
    assert sorted(before[0]) == ([] if streams == "closed" else [0, 1, 2])
