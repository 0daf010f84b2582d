# SPDX-License-Identifier: Apache-2.0
"""`make lint` sees rooms that use those above them, and circles inside a room."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def circles(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("circles")


@pytest.fixture
def check_layers(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("check_layers")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "NATIVE", tmp_path / "native")
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "verbena")
    monkeypatch.setattr(module, "BENCHMARKS", tmp_path / "benchmarks")
    monkeypatch.setattr(module.circles, "ALLOWED", {})
    return module


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_dot_", ".")).write_text(text)


def test_a_circle_is_those_that_lead_to_each_other(circles):
    arrows = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": [], "f": ["a"]}

    assert list(circles.circles(arrows)) == [frozenset("abc")]


def test_two_circles_that_touch_are_one(circles):
    assert list(circles.circles({"a": ["b"], "b": ["a", "c"], "c": ["b"]})) == [frozenset("abc")]


def test_a_line_is_no_circle(circles):
    assert not list(circles.circles({"a": ["b", "c"], "b": ["c"], "c": []}))


def test_an_allowed_circle_that_is_gone_has_to_leave_the_list(circles, monkeypatch):
    monkeypatch.setattr(circles, "ALLOWED", {"room": {frozenset("ab"): "a reason"}})

    assert not list(circles.problems("room", {"a": ["b"], "b": ["a"]}))
    assert "no circle (any more)" in next(circles.problems("room", {"a": ["b"], "b": []}))


def test_files_that_include_each_other_are_named(check_layers, tmp_path, capsys):
    write(tmp_path / "native" / "hca", a_dot_c='#include "hca/b.h"\n', a_dot_h="")
    write(tmp_path / "native" / "hca", b_dot_c='#include "hca/a.h"\n', b_dot_h="")
    (tmp_path / "verbena").mkdir()

    assert check_layers.main() == 1
    assert "hca: a, b use each other in a circle" in capsys.readouterr().out


def test_modules_that_import_each_other_are_named(check_layers, tmp_path, capsys):
    (tmp_path / "native").mkdir()
    write(tmp_path / "verbena" / "sim", a_dot_py="from verbena.sim import b\n")
    write(tmp_path / "verbena" / "sim", b_dot_py="from verbena.sim.a import x\n")

    assert check_layers.main() == 1
    assert "verbena.sim.a, verbena.sim.b use each other" in capsys.readouterr().out


def test_an_import_within_a_function_makes_no_circle(check_layers, tmp_path):
    (tmp_path / "native").mkdir()
    write(tmp_path / "verbena" / "sim", a_dot_py="from verbena.sim import b\n")
    write(tmp_path / "verbena" / "sim", b_dot_py="def f():\n    from verbena.sim import a\n")

    assert check_layers.main() == 0


@pytest.mark.parametrize(
    ("lower", "upper"), [("direct", "roce"), ("roce", "host"), ("hca", "port")]
)
def test_a_room_that_includes_one_above_it_is_named(check_layers, tmp_path, capsys, lower, upper):
    write(tmp_path / "native" / lower, a_dot_c=f'#include "{upper}/b.h"\n')
    write(tmp_path / "native" / upper, b_dot_h="")
    (tmp_path / "verbena").mkdir()

    assert check_layers.main() == 1
    assert f"{lower} uses {upper}, which is above it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["from benchmarks import a\n", "def f():\n    import benchmarks.a\n"]
)
def test_the_package_that_uses_the_benchmarks_is_named(check_layers, tmp_path, capsys, text):
    """A wheel has no benchmarks."""
    (tmp_path / "native").mkdir()
    write(tmp_path / "benchmarks", a_dot_py="from verbena.measure import b\n")
    write(tmp_path / "verbena" / "measure", b_dot_py="")
    assert check_layers.main() == 0

    write(tmp_path / "verbena", demo_dot_py=text)
    assert check_layers.main() == 1
    assert "demo uses benchmarks, which is above it" in capsys.readouterr().out


def test_a_circle_in_the_benchmarks_is_named(check_layers, tmp_path, capsys):
    (tmp_path / "native").mkdir()
    write(tmp_path / "benchmarks", a_dot_py="from benchmarks import b\n")
    write(tmp_path / "benchmarks", b_dot_py="from benchmarks.a import x\n")

    assert check_layers.main() == 1
    assert "benchmarks.a, benchmarks.b use each other" in capsys.readouterr().out
