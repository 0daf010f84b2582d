# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site: it builds without a warning, every link leads somewhere, and the
pages fit the windows in which they are read. Chromium looks at them, without a network.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from tests.support import ROOT, plain_environment

pytestmark = pytest.mark.not_sanitized("no browser starts with the sanitizer's runtime preloaded")

WIDE, NARROW = 1400, 400  # pixels

# Blocks of code whose lines go on beyond their right edge, and how much wider the page is than the
# window.
LOOK = """
document.querySelectorAll('details').forEach(each => each.open = true);
const cut = [...document.querySelectorAll('.md-content pre > code')]
  .filter(code => code.scrollWidth > code.clientWidth)
  .map(code => code.innerText.split('\\n').reduce((a, b) => a.length < b.length ? b : a));
const page = document.documentElement;
return [cut, page.scrollWidth - page.clientWidth];
"""


def mkdocs() -> list[str]:
    """The command that `make docs` uses, or this environment's."""
    own = ROOT / ".venv-docs" / "bin" / "mkdocs"
    if own.exists():
        return [str(own)]
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed; make docs installs it")
    return [sys.executable, "-m", "mkdocs"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [*mkdocs(), "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=plain_environment() | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


# ---- links -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page links to or loads, and the anchors in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attributes}
        self.anchors.add(known.get("id", ""))
        if tag == "a" and "href" in known:
            self.links.append(known["href"])
        if tag == "link" and known.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(known["href"])
        if tag in ("script", "img") and "src" in known:
            self.loaded.append(known["src"])


def read(site: Path) -> dict[str, Page]:
    """Each page by its address below the site's root, as `/running.html`."""
    found = {f"/{path.relative_to(site)}": path for path in site.rglob("*.html")}
    del found["/404.html"]
    return {address: Page(path.read_text()) for address, path in found.items()}


def outside(address: str) -> bool:
    return re.match(r"[a-z]+:|//", address) is not None


def test_every_link_and_anchor_is_there(site: Path) -> None:
    pages = read(site)
    missing = []
    for address, page in pages.items():
        for link in (each for each in page.links if not outside(each)):
            target, anchor = urldefrag(urljoin(address, link))
            there = pages.get(target)
            if there is not None and unquote(anchor) in there.anchors:
                continue
            if there is None and (site / unquote(target).lstrip("/")).is_file():
                continue
            missing.append(f"{address}: {link}")
    assert not missing


def test_the_site_needs_no_other(site: Path) -> None:
    """What a page shows is in the folder, so that it can be read without a network."""
    for address, page in read(site).items():
        for each in page.loaded:
            assert not outside(each), f"{address} loads {each}"
            target = urldefrag(urljoin(address, each)).url.partition("?")[0]
            assert (site / target.lstrip("/")).is_file(), f"{address} loads {each}"


def signatures(site: Path, name: str) -> list[str]:
    """The signatures that the reference of verbena.verbs shows for a method."""
    page = (site / "reference" / "verbs.html").read_text()
    _, _, entry = page.partition(f'<h4 id="verbena.verbs.{name}"')
    entry, _, _ = entry.partition("<h4 ")
    blocks = re.findall(r"<pre>.*?</pre>", entry, re.DOTALL)
    return ["".join(re.sub("<[^>]+>", "", block).split()) for block in blocks]


def test_the_reference_shows_each_overload_once_and_its_defaults(site: Path) -> None:
    by_address, by_object = signatures(site, "PD.reg_mr")
    assert by_address.startswith("reg_mr(target:int,length:int")
    assert by_object.startswith("reg_mr(target:Bytes")
    (write,) = signatures(site, "QP.write")
    assert "flags:int=SIGNALED" in write
    assert "..." not in write


def test_the_first_use_of_a_term_leads_to_the_glossary(site: Path) -> None:
    python = (site / "python.html").read_text()
    assert python.count('href="glossary.html#queue-pair-qp"') == 1
    assert "<abbr" not in python
    learn = (site / "learn" / "what-is-rdma.html").read_text()
    assert "Storage (NVMe over Fabrics, " in learn
    glossary = read(site)["/glossary.html"]
    assert "queue-pair-qp" in glossary.anchors


def test_the_link_to_the_source_is_the_package_s() -> None:
    path = ROOT / "docs" / "hooks" / "source_link.py"
    source_address = runpy.run_path(str(path))["source_address"]
    urls = {"Homepage": "https://example.org", "Source": "https://example.org/source"}
    assert source_address({"urls": urls}) == "https://example.org/source"
    assert source_address({"urls": {"Homepage": "https://example.org"}}) == "https://example.org"
    assert source_address({}) is None


# ---- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # one connection for many files

        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed; pip install '.[test]' brings it"
    )
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium or its driver is missing; scripts/setup-debian.sh test brings both")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        "--disable-threaded-compositing",  # a third less work, where nobody looks at the pictures
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=driver)
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


Looks = dict[int, tuple[list[str], int]]
"""For each width: lines of code that are cut, and pixels beyond the window."""
INDEX = "*/search_index.json*"  # which each page reads for longer than all else takes
SCRIPTS = "*.js"


def look_at(browser: Any, page: str, *blocked: str) -> Looks:
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": blocked})
    found: Looks = {}
    for width in (WIDE, NARROW):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        if width == WIDE:
            browser.get(page)
        cut, beyond = browser.execute_script(LOOK)
        found[width] = (cut, beyond)
    return found


@pytest.fixture(scope="module")
def looks(browser: Any, address: str, site: Path) -> dict[str, Looks]:
    """Of each page, without its scripts: they only let wide tables scroll by themselves, and are
    most of the work. A page that does not fit without them is looked at with them."""
    found: dict[str, Looks] = {}
    browser.execute_cdp_cmd("Network.enable", {})
    for page in read(site):
        found[page] = look_at(browser, address + page, INDEX, SCRIPTS)
        if any(beyond for _, beyond in found[page].values()):
            found[page] = look_at(browser, address + page, INDEX)
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    return found


@pytest.mark.timeout(300)
def test_code_fits_a_wide_window(looks: dict[str, Looks]) -> None:
    assert not {page: of[WIDE] for page, of in looks.items() if of[WIDE][0]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_page_scrolls_sideways(looks: dict[str, Looks], width: int) -> None:
    assert len(looks) > 20
    assert not {page: of[width][1] for page, of in looks.items() if of[width][1] > 0}


@pytest.mark.timeout(120)
def test_the_first_visit_follows_the_system_s_colours_and_later_ones_too(
    browser: Any, address: str
) -> None:
    def scheme(system: str) -> str:
        features = [{"name": "prefers-color-scheme", "value": system}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(f"{address}/index.html")
        chosen: str = browser.execute_script("return document.body.dataset.mdColorScheme")
        return chosen

    assert [scheme(system) for system in ("light", "dark", "light")] == [
        "default",
        "slate",
        "default",
    ]


@pytest.mark.timeout(120)
def test_a_page_opened_as_a_file_offers_no_search(browser: Any, address: str, site: Path) -> None:
    """The browser does not let it load the index; `mkdocs serve` does."""
    seen = "return document.querySelector('label.md-header__button[for=__search]').offsetWidth > 0"
    size = {"width": NARROW, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"{address}/index.html")
    assert browser.execute_script(seen)
    browser.get(f"file://{site}/index.html")
    assert not browser.execute_script(seen)
