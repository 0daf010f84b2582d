# SPDX-License-Identifier: Apache-2.0
"""Files and folders of results that cannot be written: the error says why, and what helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verbena._files import writing
from verbena.internet import Internet
from verbena.sim import Scenario

SCENARIO = """
seed = 1
[fabric]
topology = "one_switch"
hosts = 4
rate = "100GbE"
[[traffic]]
name = "a"
pattern = "flows"
from = ["h0"]
to = "h3"
size = "64 KiB"
"""


def captured(path: Path) -> None:
    Internet().capture(path).close()


def calls() -> dict[str, Callable[[Path], object]]:
    result = Scenario.parse(SCENARIO).run()
    return {"timeline": result.timeline, "tables": result.to_parquet, "pictures": result.plot,
            "capture": captured}  # fmt: skip


def test_a_place_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    made = calls()
    file = tmp_path / "file"
    file.write_text("")
    missing = tmp_path / "missing" / "file"
    for name in ("timeline", "capture"):
        text = f"the {name} cannot be written: there is no folder {missing.parent}: make it first"
        with pytest.raises(FileNotFoundError, match=text) as caught:
            made[name](missing)
        assert caught.value.filename == str(missing)
        with pytest.raises(IsADirectoryError, match="it is a folder, so name a file in it"):
            made[name](tmp_path)
        with pytest.raises(NotADirectoryError, match="a file has the name of a folder"):
            made[name](file / "more")
    for name in ("tables", "pictures"):
        text = f"the folder of {name} cannot be written: a file has the name of a folder"
        with pytest.raises(FileExistsError, match=text):
            made[name](file)


def test_other_errors_keep_their_reason(tmp_path: Path) -> None:
    def full() -> None:
        with writing(tmp_path / "x", "the capture"):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="the capture cannot be written: No space left") as caught:
        full()
    assert caught.value.errno == 28
