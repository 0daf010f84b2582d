# SPDX-License-Identifier: Apache-2.0
"""Programs that were built with a sanitizer, and programs below a debugger, over Verbena."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.support import plain_environment, program_or_skip, verbena_command
from verbena.cli.elf import sanitizers

pytestmark = pytest.mark.not_sanitized("the runtime of Verbena's own build is there already")

SOURCE = r"""
#include <dirent.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shared;

static void *count(void *unused)
{
    for (int i = 0; i < 100000; ++i)
        ++shared;
    return unused;
}

static int mistake(const char *which)
{
    char *late = malloc(100);
    int most = INT_MAX - (*which == 'n');
    pthread_t one, other;

    if (strcmp(which, "race") == 0) {
        pthread_create(&one, NULL, count, NULL);
        pthread_create(&other, NULL, count, NULL);
        pthread_join(one, NULL);
        pthread_join(other, NULL);
    }
    if (strcmp(which, "overflow") == 0)
        most += atoi("1");
    free(late);
    return strcmp(which, "late") == 0 ? late[5] & 1 : most == 0;
}

/* How many names the folder has that Verbena shows. */
static int listed(void)
{
    struct dirent **found;
    int count = scandir("/sys/class/infiniband", &found, NULL, NULL);

    for (int i = 0; i < count; ++i)
        free(found[i]);
    if (count >= 0)
        free(found);
    return count;
}

int main(int words, char **word)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    char *memory = malloc(1 << 20);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE);
    int result = listed() > 2 ? mistake(words > 1 ? word[1] : "none") : 3;

    if (words > 1 && strcmp(word[1], "leave") == 0)
        return puts("left") < 0;
    if (ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
        return 2;
    ibv_free_device_list(list);
    free(memory);
    puts("done");
    return result;
}
"""
REPORTS = {
    "address": ("late", "heap-use-after-free"),
    "undefined": ("overflow", "signed integer overflow"),
    "thread": ("race", "data race"),
}
BUILDS = [
    *((compiler, kind, ()) for compiler in ("gcc", "clang") for kind in REPORTS),
    ("gcc", "address", ("-static-libasan",)),
    ("gcc", "address,undefined", ()),
    ("clang", "address", ("-shared-libasan",)),
]


def build(folder: Path, compiler: str, kind: str, options: tuple[str, ...] = ()) -> str:
    found = program_or_skip(compiler)
    if "-shared-libasan" in options:
        name = "-print-file-name=libclang_rt.asan-x86_64.so"
        runtime = subprocess.run([found, name], capture_output=True, text=True).stdout.strip()
        if not Path(runtime).is_absolute():
            pytest.skip("clang has no shared runtime; apt-get install libclang-rt-dev brings it")
        options += (f"-Wl,-rpath,{Path(runtime).parent}",)
    return compile_program(folder, found, f"-fsanitize={kind}", *options)


def compile_program(folder: Path, compiler: str, *options: str) -> str:
    source, program = folder / "program.c", folder / "program"
    source.write_text(SOURCE)
    command = [compiler, "-g", *options, source, "-o", program, "-libverbs", "-pthread"]
    subprocess.run(command, env=plain_environment(), check=True, timeout=120)
    return str(program)


@pytest.mark.parametrize(("compiler", "kind", "options"), BUILDS)
def test_a_sanitized_program_runs_and_has_its_mistakes_found(
    verbena_run: Run, tmp_path: Path, compiler: str, kind: str, options: tuple[str, ...]
) -> None:
    program = build(tmp_path, compiler, kind, options)
    mistake, report = REPORTS[kind.partition(",")[0]]
    done = verbena_run(program)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert report in verbena_run(program, mistake).stdout


def test_a_sanitized_program_that_another_starts(verbena_run: Run, tmp_path: Path) -> None:
    program = build(tmp_path, "gcc", "address")
    done = verbena_run("sh", "-c", '"$0"; "$0" late', program)
    assert done.stdout.startswith("done\n")
    assert "heap-use-after-free" in done.stdout


def test_the_runtime_that_the_program_needs_is_in_front(tmp_path: Path) -> None:
    program = Path(build(tmp_path, "gcc", "address"))
    (runtime,) = sanitizers(program)
    assert runtime.startswith("libasan.so")
    assert sanitizers(Path(sys.executable)) == sanitizers(tmp_path / "nothing") == []
    environment = plain_environment() | {
        "LD_DEBUG": "files",
        "LD_DEBUG_OUTPUT": str(tmp_path / "log"),
    }
    subprocess.run(verbena_command("run", "--", str(program)), env=environment, timeout=60)
    logs = [each.read_text() for each in tmp_path.glob("log.*")]
    (log,) = [text for text in logs if "file=libasan" in text]
    assert log.index("file=libasan") < log.index("libverbena_paths.so")


def test_asan_options_of_the_user_stay(verbena_run: Run) -> None:
    for given, expected in (
        ("detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0"),
        ("verify_asan_link_order=1", "verify_asan_link_order=1"),
    ):
        done = verbena_run("sh", "-c", "echo $ASAN_OPTIONS", env={"ASAN_OPTIONS": given})
        assert done.stdout.strip() == expected


def run_below_valgrind(verbena_run: Run, program: str, word: str, *options: str) -> tuple[int, str]:
    command = ["valgrind", "-q", "--error-exitcode=9", *options, program, word]
    done = verbena_run("timeout", "100", *command)
    return done.returncode, done.stdout


def test_valgrind_finds_a_mistake_and_does_not_read_all_of_the_shared_memory(
    verbena_run: Run, tmp_path: Path
) -> None:
    program = compile_program(tmp_path, shutil.which("gcc") or "gcc")
    assert run_below_valgrind(verbena_run, program, "none") == (0, "done\n")
    assert run_below_valgrind(verbena_run, program, "leave") == (0, "left\n")
    status, report = run_below_valgrind(verbena_run, program, "late")
    for options in (["--track-origins=yes"], ["--tool=drd"], ["--tool=helgrind"]):
        assert run_below_valgrind(verbena_run, program, "none", *options) == (0, "done\n")
    assert status == 9
    assert "Invalid read of size 1" in report


def test_valgrind_finds_nothing_in_the_library_by_packets(tmp_path: Path) -> None:
    """Of perftest's own it does: it sends structures whose padding nobody has set."""
    program_or_skip("ib_write_bw", "perftest")
    program = ("ib_write_bw", "-F", "-n", "20", "-p", "20931")
    report = tmp_path / "report"
    checked = ("valgrind", "-q", f"--log-file={report}", *program)
    done = subprocess.run(
        verbena_command("pair", "--wait", "90", "--", *checked, "--", *program, "localhost"),
        env=plain_environment() | {"VERBENA_CARRIER": "roce", "VERBENA_HEAP_SIZE": str(64 << 20)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = report.read_text()
    assert "Syscall param write" in told  # of perftest's own: it did look
    assert "libibverbs" not in told  # without symbols the frames name the library…
    assert "uninitialised value(s)" not in told  # …and with them its files


def test_gdb_around_verbena_run_is_told_better() -> None:
    command = ["gdb", "-nx", "-batch", "-ex", "run", "--args"]
    done = subprocess.run(
        [*command, sys.executable, *verbena_command("run", "--", "true")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "verbena run -- gdb --args" in done.stderr + done.stdout
