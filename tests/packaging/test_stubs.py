# SPDX-License-Identifier: Apache-2.0
"""What editors and type checkers see of the package: stubs, docstrings, and programs that pass."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import verbena
from tests.docs.blocks import Block, blocks, pages
from tests.support import ROOT

STUBS = [
    "verbena.verbs._verbs",
    "verbena.wire._wire",
    "verbena.sim._world",
    "verbena.host._cpu",
    "verbena.lan._cable",
    "verbena.rpc._frames",
    "verbena.subnet_process._directed_smps",
]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


# ---- docstrings ----


def test_the_stubs_have_the_docstrings_of_the_modules() -> None:
    done = python("scripts/stub_docstrings.py", "--check")
    assert done.returncode == 0, done.stderr


def without_docstring(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    """Public names of a stub that say nothing; an attribute's docstring stands behind it."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            name = ast.unparse(node.target)
            said = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            name = node.name
            said = ast.get_docstring(node) is not None or is_setter(node)
        else:
            continue
        if not name.startswith("_") and not said:
            yield prefix + name
        if isinstance(node, ast.ClassDef):
            yield from without_docstring(node.body, f"{prefix}{name}.")


def is_setter(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return any(ast.unparse(each).endswith(".setter") for each in node.decorator_list)


@pytest.mark.parametrize("module", STUBS)
def test_each_public_name_of_a_stub_has_a_docstring(module: str) -> None:
    stub = (ROOT / "src" / Path(*module.split("."))).with_suffix(".pyi")
    assert list(without_docstring(ast.parse(stub.read_text()).body, "")) == []


def modules() -> list[ModuleType]:
    others = ("__version__", "connect", "connect_rc", "listen")
    names = [name for name in verbena.__all__ if name not in others]
    return [importlib.import_module(f"verbena.{name}") for name in names]


def said_of(name: str, thing: object) -> Iterator[tuple[str, str | None]]:
    """The docstrings of a public object and of what is defined in it."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return
    yield name, thing.__doc__
    if not inspect.isclass(thing):
        return
    for member, value in vars(thing).items():
        own = value.fget if isinstance(value, property) else value
        if not member.startswith("_") and (
            inspect.isfunction(own) or isinstance(value, classmethod | staticmethod)
        ):
            yield f"{name}.{member}", inspect.getdoc(getattr(thing, member))


def test_each_public_name_of_the_modules_has_a_docstring() -> None:
    silent = [
        said
        for module in modules()
        for name in module.__all__
        for said, text in said_of(f"{module.__name__}.{name}", getattr(module, name))
        if not text
    ]
    assert silent == []


def test_the_reference_has_each_public_name_of_verbs() -> None:
    pages = [ROOT / "docs" / "reference" / f"{name}.md" for name in ("verbs", "codes")]
    shown = {word for page in pages for word in re.findall(r"^::: (\S+)", page.read_text(), re.M)}
    assert {f"verbena.verbs.{name}" for name in verbena.verbs.__all__} == {
        word for word in shown if "._" not in word
    }


def test_each_public_module_has_a_page_of_reference() -> None:
    for module in modules():
        page = ROOT / "docs" / "reference" / f"{module.__name__.rpartition('.')[2]}.md"
        assert f"::: {module.__name__}" in page.read_text()


# ---- types ----

TYPES = pytest.mark.usefixtures("mypy")


@pytest.fixture
def mypy() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed; pip install '.[lint]' brings it")


@pytest.mark.not_sanitized("stubtest imports the modules without the runtime of the sanitizer")
@TYPES
@pytest.mark.timeout(300)
def test_the_stubs_and_the_modules_agree() -> None:
    options = ["--ignore-disjoint-bases", "--allowlist", "scripts/stubtest.allow"]
    configured = ["--mypy-config-file", "pyproject.toml"]
    done = python("-m", "mypy.stubtest", *STUBS, *options, *configured)
    assert done.returncode == 0, done.stdout


STRICT = ["--strict", "--python-version", "3.11", "--config-file", ""]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mypy reads the package and NumPy once for all programs."""
    return tmp_path_factory.mktemp("mypy")


def check(cache: Path, *files: Path) -> str:
    """What mypy says of these programs, as a user's own mypy does."""
    done = python("-m", "mypy", *STRICT, "--cache-dir", str(cache), *map(str, files))
    return done.stdout if done.returncode else ""


def written(folder: Path, texts: list[str]) -> list[Path]:
    """A file for each program."""
    files = [folder / f"program{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return files


def programs() -> list[Block]:
    """The blocks of the pages that are programs of their own."""
    found = [block for page in pages() for block in blocks(page) if block.kind == "python"]
    return [block for block in found if block.page in WHOLE]


WHOLE = ("README.md", "docs/python.md", "docs/getting-started.md")
"""Pages each of whose Python blocks stands by itself."""


@TYPES
@pytest.mark.timeout(300)
def test_the_programs_of_the_pages_pass_a_strict_type_checker(tmp_path: Path, cache: Path) -> None:
    files = written(tmp_path, [f"# {block}\n{block.text}\n" for block in programs()])
    assert {block.page for block in programs()} == set(WHOLE)
    assert check(cache, *files) == ""


PASTED = ("docs/simulation.md", "docs/fabrics.md", "docs/memory.md")
"""Pages whose blocks go on from one that imports what it uses."""
OWN = ("no-untyped-def", "no-untyped-call", "var-annotated", "import-untyped")
"""What mypy says of a reader's functions without annotations, and of other packages."""


def pasted() -> list[str]:
    """Programs of the pages: a block that begins with an import, and those that go on from it."""
    found: list[str] = []
    for block in (one for page in pages() for one in blocks(page)):
        if block.kind != "python" or block.page not in PASTED:
            continue
        if re.match(r"(from|import) ", block.text):
            found.append(block.text + "\n")
        else:
            found[-1] += block.text + "\n"
    return found


@TYPES
@pytest.mark.timeout(300)
def test_what_a_reader_pastes_suits_the_types_of_the_package(tmp_path: Path, cache: Path) -> None:
    first = f'# mypy: disable-error-code="{", ".join(OWN)}"\n'  # the cache fits other files, too
    assert check(cache, *written(tmp_path, [first + text for text in pasted()])) == ""


WRONG = """
from verbena import verbs

with verbs.open_device() as ctx:
    pd = ctx.alloc_pd()
    pd.create_qp(send_cq=ctx.create_cq(4), max_send=4)
    pd.create_qp(send_cq=ctx.create_cq(4)).send(b"", offset="0")
    ctx.create_cq(4).wait_one(1).opcodes
"""


@TYPES
@pytest.mark.timeout(300)
def test_a_strict_type_checker_finds_mistakes(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    said = check(cache, file)
    assert all(f"wrong.py:{line}: error" in said for line in (6, 7, 8)), said


RIGHT = """
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type
from verbena import aio, verbs


def use(mr: verbs.MR, qp: verbs.QP, aqp: aio.AsyncQP) -> list[aio.Operation]:
    assert_type(mr.array(np.float32), NDArray[np.float32])
    assert_type(mr.array(np.dtype(np.int64), 4), NDArray[np.int64])
    assert_type(mr.array(), NDArray[np.uint8])
    assert_type(mr.array("f4"), NDArray[Any])
    addr, rkey = np.uint64(mr.addr), np.uint32(mr.rkey)
    qp.write(mr, addr, rkey)
    qp.read(mr, addr, rkey)
    qp.fetch_add(mr, addr, rkey, np.uint64(1))
    qp.post_send(verbs.SendWR(remote_addr=addr, rkey=rkey))
    return [
        aqp.write(mr, addr, rkey),
        aqp.flush(addr, rkey),
        aqp.send(b"bytes", flags=verbs.SendFlags.INLINE),
        aqp.write(np.zeros(8), addr, rkey, flags=verbs.SendFlags.INLINE),
    ]
"""


@TYPES
@pytest.mark.timeout(300)
def test_a_strict_type_checker_takes_what_runs(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text(RIGHT)
    assert check(cache, file) == ""


def test_what_the_type_checker_takes_runs(tmp_path: Path) -> None:
    program = (
        RIGHT
        + """
import asyncio


async def main() -> None:
    with verbs.open_device() as ctx:
        pd, channel = ctx.alloc_pd(), ctx.create_comp_channel()
        acq, cq = aio.AsyncCQ(ctx.create_cq(64, channel)), ctx.create_cq(64)
        near = pd.create_qp(send_cq=acq.cq, max_inline_data=64)
        plain, far, other = (pd.create_qp(send_cq=cq) for _ in range(3))
        verbs.connect_pair(near, far)
        verbs.connect_pair(plain, other)
        mr = pd.alloc(64, verbs.AccessFlags(0xF) | verbs.AccessFlags.FLUSH_GLOBAL)
        far.recv(mr)
        other.recv(mr)
        for operation in use(mr, plain, aio.AsyncQP(near, acq)):
            await operation
        assert [wc.is_success for wc in cq.wait(6, 10)] == [True] * 6


asyncio.run(main())
"""
    )
    file = tmp_path / "right.py"
    file.write_text(program)
    done = python(str(file))
    assert (done.returncode, done.stderr) == (0, "")


# ---- import ----


def test_an_import_leads_to_the_modules_and_costs_nothing() -> None:
    program = """
import sys, verbena
assert not any(name.startswith(("verbena.", "numpy")) for name in sys.modules)
assert {"verbs", "aio", "sim"} <= set(dir(verbena))
assert verbena.verbs.open_device and "numpy" not in sys.modules
assert verbena.aio.AsyncCQ and verbena.connect_rc is verbena.verbs.connect_rc
try:
    verbena.verb
except AttributeError as error:
    assert "no attribute 'verb'" in str(error)
"""
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
