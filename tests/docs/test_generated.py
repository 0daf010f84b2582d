# SPDX-License-Identifier: Apache-2.0
"""The generated parts of the documentation are what their generators make now."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import pytest

from tests.suite.rdma_core import Case
from tests.support import ROOT, load_script, native_build
from verbena import cm, verbs

DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "generate"))  # the generators import what they share, as scripts do


def load(name: str) -> ModuleType:
    return load_script(f"docs/generate/{name}.py")


@pytest.fixture(scope="module")
def transitions() -> list[str]:
    """The adapter's table of QP states, as its program prints it."""
    program = native_build("qp_table") / "docs" / "qp_table"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.timeout(600)  # builds the core, when it is the first
def test_the_tables_of_qp_states_are_current(transitions: list[str]) -> None:
    qp_states = load("qp_states")
    page = (DOCS / "qp-states.md").read_text()
    tables = qp_states.tables(qp_states.parse(transitions))
    assert page == qp_states.replaced(page, tables), "run: make generated"


@pytest.mark.timeout(600)
def test_the_diagram_of_qp_states_is_current(transitions: list[str]) -> None:
    qp_states = load("qp_states")
    diagram = (DOCS / "images" / "qp-states.svg").read_text()
    assert diagram == qp_states.diagram(qp_states.parse(transitions)), "run: make generated"


@pytest.mark.timeout(600)
def test_the_goodput_is_what_it_was() -> None:
    """Exactly: virtual time and seeds leave nothing to chance."""
    goodput = load("goodput")
    program = native_build("goodput") / "docs" / "goodput"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    page = (DOCS / "goodput.md").read_text()
    made = goodput.table(goodput.parse(done.stdout.splitlines()))
    assert page == goodput.replaced(page, made), "the engine behaves differently: make generated"


@pytest.mark.timeout(300)
def test_the_catalogue_of_errors_is_current() -> None:
    """Each of its examples is run. Numbers that differ from run to run stay as they are there."""
    errors = load("errors")
    page = (DOCS / "errors.md").read_text()
    assert page == errors.replaced(page, errors.made()), "run: make generated"


def test_output_that_differs_in_more_than_numbers_is_taken() -> None:
    page = "```text\nQP 0x1 ended\n```\n```text\nQP 0x2 ended\n```\n```text\nQP 0x3 is new\n```"
    made = "```text\nQP 0x7 ended\n```\n```text\nQP 0x8 failed\n```\n```text\nQP 0x9 ended\n```"
    assert load("marks").settled(page, made) == (
        "```text\nQP 0x1 ended\n```\n```text\nQP 0x8 failed\n```\n```text\nQP 0x2 ended\n```"
    )


def test_the_page_of_errors_has_every_status() -> None:
    page = (DOCS / "errors.md").read_text()
    failures = {status.name for status in verbs.WCStatus if status is not verbs.WCStatus.SUCCESS}
    assert failures <= set(re.findall(r"\b[A-Z][A-Z_]+\b", page))


def test_the_picture_and_the_table_of_fabrics_are_current() -> None:
    generate = load("fabrics")
    assert (DOCS / "images" / "fabrics.svg").read_text() == generate.picture(), (
        "run: make generated"
    )
    page = (DOCS / "fabrics.md").read_text()
    assert page == generate.replaced(page, generate.table()), "run: make generated"


def test_each_node_in_the_picture_of_fabrics_has_its_name_beside_the_shape() -> None:
    """A node that is too small has it only where the mouse is."""
    picture = (DOCS / "images" / "fabrics.svg").read_text()
    nodes = len(re.findall(r'class="(?:host|switch)"', picture))
    assert nodes == len(re.findall(r'class="name"', picture)) == 36 + 48 + 40 + 8


def test_the_picture_and_the_table_of_scenarios_are_current() -> None:
    """Exactly: a scenario's seed leaves nothing to chance."""
    generate = load("scenarios")
    assert (DOCS / "images" / "scenarios.svg").read_text() == generate.picture(), (
        "run: make generated"
    )
    page = (DOCS / "simulation.md").read_text()
    assert page == generate.replaced(page, generate.table()), "run: make generated"


def test_the_picture_of_one_scenario_is_current() -> None:
    """It is of what the page's own commands run."""
    made = load("one_scenario").picture()
    assert (DOCS / "images" / "one-scenario.svg").read_text() == made, "run: make generated"


def test_a_chart_has_round_ticks() -> None:
    ticks = load("scenarios").ticks
    assert ticks(2037) == [0, 500, 1000, 1500, 2000]
    assert ticks(9.57) == [0, 2, 4, 6, 8]
    assert ticks(1) == [0, 0.2, 0.4, 0.6, 0.8, 1]


def test_the_drawn_pictures_are_current() -> None:
    for name, text in load("pictures").made().items():
        assert (DOCS / "images" / name).read_text() == text, f"{name}: run make generated"


def test_the_keys_of_traffic_are_current() -> None:
    generate = load("traffic")
    page = (DOCS / "simulation.md").read_text()
    assert page == generate.replaced(page), "run: make generated"


def test_the_model_is_current() -> None:
    model = load("model")
    page = (DOCS / "model.md").read_text()
    assert page == model.replaced(page, model.pages()), "run: make generated"


def test_the_tables_of_connections_are_current() -> None:
    connections = load("connections")
    page = (DOCS / "connections.md").read_text()
    assert page == connections.replaced(page), "run: make generated"


def test_the_formats_of_management_packets_are_current() -> None:
    formats = load("management_formats")
    page = (DOCS / "management-formats.md").read_text()
    assert page == formats.replaced(page, formats.made()), "run: make generated"


def test_every_part_of_compatibility_has_its_place() -> None:
    compatibility = load("compatibility")
    page = (DOCS / "compatibility.md").read_text()
    for name in compatibility.PARTS:
        assert f"\n\nwhat was made\n\n<!-- end of {name} -->" in compatibility.replaced(
            page, name, "what was made\n"
        )


def test_the_tables_of_compatibility_count_and_group() -> None:
    compatibility = load("compatibility")
    cases = [
        Case("test_flow", "FlowTest.one", "skipped", "Create QP type 8 is not supported"),
        Case("test_flow", "FlowTest.two", "skipped", "Create QP type 8 is not supported"),
        Case("test_cq", "CQTest.three", "ok"),
        Case("test_cq", "CQTest.four", "ERROR"),
    ]
    made = compatibility.suite_tables(cases, ["test_cq: exit status 1"])
    assert "| `test_flow` | 0 | 2 |  |\n| `test_cq` | 1 |  | 1 |\n| together | 1 | 2 | 1 |" in made
    assert "* test_cq: exit status 1\n" in made
    assert "| `test_flow` | 2 | Create QP type 8 is not supported | flow steering" in made


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    notes = {"performance-notes.md"}  # become the end of performance.md
    assert pages - notes == set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))


def test_the_reference_of_connections_has_every_name() -> None:
    page = (DOCS / "reference" / "cm.md").read_text()
    assert set(re.findall(r"^::: verbena\.cm\.(\w+)$", page, re.MULTILINE)) == {*cm.__all__, "sync"}
