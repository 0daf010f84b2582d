# SPDX-License-Identifier: Apache-2.0
"""Links the first use of each term on a page to the glossary, with its explanation as a tooltip.

Called by mkdocs for each page. A heading of the third level in docs/glossary.md lists the spellings
of a term, with commas between, and the paragraph behind it explains it. What is found in a page is
what Markdown's `abbr` extension finds: whole words, outside of code.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.utils import get_relative_url

GLOSSARY = Path(__file__).parents[1] / "glossary.md"
ENTRY = re.compile(r"^### (.+)\n\n((?:.+\n)+)", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
NAMES = ("NVMe over Fabrics",)  # of other things, with a term's word in them: no links
MARKED = re.compile(r"<(/?)(?:h[1-6]|a)\b[^>]*>|<abbr title=\"[^\"]*\">([^<]*)</abbr>")


@dataclass(frozen=True)
class Term:
    """`spellings` include plurals, and words as they stand within a sentence; `anchor` is that of
    its heading on the glossary's page."""

    spellings: tuple[str, ...]
    anchor: str
    meaning: str


def terms(page: str) -> list[Term]:
    found = []
    for heading, paragraph in ENTRY.findall(page):
        names = [name.strip() for name in heading.split(",")]
        names += [name[0].lower() + name[1:] for name in names if name[1:2].islower()]
        meaning = " ".join(LINK.sub(r"\1", paragraph).replace("`", "").split())
        spellings = tuple(form for name in names for form in (name, f"{name}s"))
        found.append(Term(spellings, slugify(heading, "-"), meaning))
    return found


def linked(body: str, known: dict[str, Term], glossary: str) -> str:
    """The page with each `abbr` replaced: the first of a term by a link to the glossary's page, if
    it stands neither in a heading nor in another link; the others by their words."""
    seen: set[Term] = set()
    inside = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal inside
        word = match[2]
        if word is None:
            inside += -1 if match[1] else 1
            return match[0]
        term = known.get(html.unescape(word))
        if word in NAMES:
            return word
        if term is None:  # the page's own
            return match[0]
        if inside or term in seen:
            return word
        seen.add(term)
        meaning = html.escape(term.meaning, quote=True)
        return f'<a class="term" href="{glossary}#{term.anchor}" title="{meaning}">{word}</a>'

    return MARKED.sub(replace, body)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    if page.file.src_uri == GLOSSARY.name:
        return markdown
    marks = [
        f"*[{spelling}]: {term.anchor}"
        for term in terms(GLOSSARY.read_text())
        for spelling in term.spellings
    ] + [f"*[{name}]: {name}" for name in NAMES]
    # A blank line between two: `abbr` takes one at a time, and every other extension looks through
    # what remains of the block, which was half the time of a build.
    return markdown + "\n\n" + "\n\n".join(marks) + "\n"


def on_page_content(html: str, *, page: Any, files: Any, **_: Any) -> str:
    if page.file.src_uri == GLOSSARY.name:
        return html
    known = {form: term for term in terms(GLOSSARY.read_text()) for form in term.spellings}
    glossary = files.get_file_from_path(GLOSSARY.name)
    return linked(html, known, get_relative_url(glossary.url, page.url))
