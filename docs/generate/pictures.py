# SPDX-License-Identifier: Apache-2.0
"""Draws the explanatory pictures of docs/images: one function for each, named as the file.

python docs/generate/pictures.py

pictures_learn.py has those of the tutorial, pictures_design.py those of how Verbena works,
pictures_manage.py those of management, and pictures_rpc.py that of verbena.rpc.
"""

from __future__ import annotations

from pathlib import Path

import pictures_design
import pictures_learn
import pictures_manage
import pictures_rpc

IMAGES = Path(__file__).parent.parent / "images"


def made() -> dict[str, str]:
    """The text of each picture by its file's name."""
    drawn = (
        *pictures_learn.PICTURES,
        *pictures_design.PICTURES,
        *pictures_manage.PICTURES,
        *pictures_rpc.PICTURES,
    )
    return {f"{draw.__name__.replace('_', '-')}.svg": draw().svg() for draw in drawn}


def main() -> None:
    for name, text in made().items():
        (IMAGES / name).write_text(text)


if __name__ == "__main__":
    main()
