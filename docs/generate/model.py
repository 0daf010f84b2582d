# SPDX-License-Identifier: Apache-2.0
"""Writes docs/model.md: the pages of the model of verbs, each its rules and then its code.

python docs/generate/model.py
"""

from __future__ import annotations

import ast
from pathlib import Path

import marks

DOCS = Path(__file__).parent.parent
PAGE = DOCS / "model.md"
MODEL = DOCS.parent / "tests" / "model" / "reference"
BEGIN = "<!-- pages: made by generate/model.py -->\n"
END = "<!-- end of pages -->"
# In the order in which they are best read.
PAGES = (
    "words",
    "choice",
    "regions",
    "windows",
    "states",
    "queues",
    "posting",
    "reliable",
    "xrc",
    "unreliable",
    "lifetime",
    "world",
)


def page_of(name: str) -> str:
    """A module: its docstring as text, under its first line as the heading, and what follows."""
    source = (MODEL / f"{name}.py").read_text()
    docstring = ast.parse(source).body[0]
    heading, _, text = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    code = "\n".join(source.splitlines()[docstring.end_lineno :]).strip()
    code = code.removeprefix("from __future__ import annotations").strip()
    prose = text.replace("``", "`").strip("\n")
    return f"## {heading.rstrip('.')}\n\n{prose}\n\n```python\n{code}\n```\n"


def pages() -> str:
    """What docs/model.md has between its marks."""
    return "\n".join(page_of(name) for name in PAGES)


def replaced(page: str, made: str) -> str:
    return marks.replaced(page, BEGIN, END, made)


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text(), pages()))


if __name__ == "__main__":
    main()
