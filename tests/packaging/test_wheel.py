# SPDX-License-Identifier: Apache-2.0
"""A wheel holds all that Verbena needs, and runs where there is no compiler."""

from __future__ import annotations

import email
import re
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.support import ROOT, install_wheel, plain_environment, run_tool

pytestmark = [
    pytest.mark.not_sanitized("a build with sanitizers is never packaged"),
    pytest.mark.timeout(400),
]

# Where `make setup` has compiled all of it: with its settings nothing is compiled again.
BUILD = "build/venv"
SETTINGS = [f"-Cbuild-dir={BUILD}", "-Ccmake.define.VERBENA_WERROR=ON"]
CONTENTS = [
    "verbena/__init__.py",
    "verbena/py.typed",
    "verbena/verbs/_verbs.pyi",
    "verbena/host/kernel/asm/entry.asm",
    "verbena/lib/libibverbs.so.1",
    "verbena/lib/libibverbs.so",
    "verbena/lib/libverbena_paths.so",
    "verbena/lib/libverbena_heap.so",
    "verbena/lib/bin/rdma",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    programs = Path(sys.executable).parent
    path = f"{programs}:{plain_environment()['PATH']}"
    # As test_workflows.py, which builds in that folder again: `python -m pip` would be an
    # interpreter of another name, with which CMake compiles the extension modules anew.
    command = [programs / "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    run_tool(*command, *SETTINGS, "--wheel-dir", folder, ".", env={"PATH": path})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def machine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel alone."""
    return install_wheel(wheel, tmp_path_factory.mktemp("machine"))


def test_wheel_is_tagged_for_the_platform(wheel: Path) -> None:
    tag = wheel.stem.split("-", 2)[2]
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert tag.startswith(f"{version}-{version}-linux_")


def test_a_second_build_redoes_nothing(wheel: Path) -> None:
    cmake = Path(sys.executable).with_name("cmake")
    assert "no work to do" in run_tool(cmake, "--build", BUILD)


def test_wheel_contains_all_parts_and_no_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in CONTENTS if name not in names] == []
    assert any(name.startswith("verbena/verbs/_verbs.cpython") for name in names)
    assert [
        name for name in names if name.endswith((".c", ".h", ".pyx", ".pxi", ".pxd", ".a", ".o"))
    ] == []


def test_the_benchmarks_are_in_the_source_archive_alone(wheel: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "verbena/measure/worker.py" in names
    assert [name for name in names if name.startswith("benchmarks/")] == []
    build = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    run_tool(sys.executable, "-c", build)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        sources = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.*")}
    assert {"benchmarks/__main__.py", "benchmarks/line.c"} < wanted
    assert wanted - sources == set()


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name))


def test_the_description_has_no_links_that_need_the_repository(wheel: Path) -> None:
    """An index page shows it alone: README.md's own links and pictures are relative."""
    description = metadata(wheel).get_payload()
    assert isinstance(description, str)
    targets = re.findall(r"\]\(([^)]+)\)", description)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", description)
    assert pictures
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    inside = [each for each in targets if "/main/" in each]
    assert inside
    for each in inside:
        path = each.partition("/main/")[2].partition("#")[0]
        assert (ROOT / path).exists(), each


def test_the_metadata_name_where_to_go(wheel: Path) -> None:
    urls = dict(line.split(", ") for line in metadata(wheel).get_all("Project-URL", []))
    assert {"Source", "Documentation", "Changes", "Issues"} <= set(urls)


def test_the_version_stands_once(wheel: Path) -> None:
    """In pyproject.toml; CMake reads it there, also without Python. CITATION.cff has it again."""
    version = metadata(wheel)["Version"]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == version
    for name in ("CMakeLists.txt", "src/verbena/__init__.py"):
        assert version not in (ROOT / name).read_text(), name
    assert f"version {version}".encode() in zipfile.ZipFile(wheel).read(
        "verbena/lib/libibverbs.so.1"
    )


def test_a_wheel_names_the_commit_that_it_was_built_from(machine: Path) -> None:
    """So do two machines that compare theirs: the release alone is the same for a long time."""
    verbena = machine / "bin" / "verbena"
    commit = run_tool("git", "rev-parse", "--short=12", "HEAD").strip()
    said = run_tool(verbena, "--version")
    assert said.startswith("verbena 0")
    assert f" ({commit}" in said
    assert run_tool(machine / "bin" / "python", "-m", "verbena", "--version") == said
    first = run_tool(verbena, "info").partition("GIDs")[0]
    assert said.removeprefix("verbena ").strip() in first


def test_without_git_there_is_no_commit_and_no_error(tmp_path: Path) -> None:
    """A source archive; also one that lies below another project's checkout."""
    run_tool("git", "init", "--quiet", tmp_path)
    source = tmp_path / "source"
    script = source / "CMakeLists.txt"
    source.mkdir()
    module = ROOT / "cmake" / "VerbenaCommit.cmake"
    script.write_text(
        f'cmake_minimum_required(VERSION 3.25)\nproject(alone NONE)\ninclude("{module}")\n'
    )
    run_tool(Path(sys.executable).with_name("cmake"), "-S", source, "-B", tmp_path / "build")
    assert not (tmp_path / "build" / "commit.txt").exists()


def test_a_wheel_is_made_without_what_only_tests_need() -> None:
    """`make wheel` in a fresh checkout: what it would run."""
    command = ["make", "--dry-run", "--always-make", "wheel"]
    said = run_tool(*command)
    assert "extras.py wheel" in said
    assert re.findall(r"extras\.py (?!wheel)\S+", said) == []
    assert ".venv/" not in said


def test_wheel_runs_without_a_compiler(machine: Path) -> None:
    environment = {"PATH": str(machine / "bin"), "CC": "/bin/false"}
    libraries = run_tool(
        machine / "bin" / "python",
        "-c",
        "from verbena._native import library_dir; print(library_dir())",
        env=environment,
    )
    assert Path(libraries.strip()).is_relative_to(machine)
    assert "verbena0" in run_tool(machine / "bin" / "verbena", "devices", env=environment)


def test_helper_programs_stay_executable(machine: Path) -> None:
    (program,) = machine.glob("lib/python*/site-packages/verbena/lib/bin/rdma")
    assert program.stat().st_mode & 0o111 == 0o111
