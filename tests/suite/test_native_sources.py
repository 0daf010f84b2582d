# SPDX-License-Identifier: Apache-2.0
"""What src/native makes of its own lists is current, and a file that is not is named."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support import load_script

FILES = {
    "libibverbs.map",
    "private_symbols.h",
    "checks.h",
    "sentences_table.h",
    "errors.md",
    "ranks.h",
    "locks.md",
}


def sources() -> ModuleType:
    return load_script("scripts/native_sources.py")


def test_every_file_is_what_its_list_says() -> None:
    assert {path.name for path in sources().outputs()} == FILES
    assert sources().main(["--check"]) == 0


@pytest.mark.parametrize("stale", sorted(FILES))
def test_a_stale_file_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stale: str
) -> None:
    script = sources()

    def changed(path: Path, text: str) -> str:
        return text + "\n" if path.name == stale else text

    outputs = {path: changed(path, text) for path, text in script.outputs().items()}
    monkeypatch.setattr(script, "outputs", lambda: outputs)
    assert script.main(["--check"]) == 1
    assert capsys.readouterr().out == f"{stale}: out of date, run: make generated\n"
