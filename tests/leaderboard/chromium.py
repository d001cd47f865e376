"""A real browser for tests: Debian's Chromium through Playwright, and axe-core.

axe-core is `AXE_CORE` (its axe.min.js), or build/axe-core/package/axe.min.js, where `npm pack` and
`tar` may have put it. Screenshots go to the folder `SCREENSHOTS`, if that is set.
"""

import os
import shutil
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
AXE = Path(__file__).parents[2] / "build/axe-core/package/axe.min.js"


def launched():
    """The body of a module's fixture `browser`."""
    with playwright.sync_playwright() as started:
        # Root cannot have the sandbox.
        chromium = started.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=os.geteuid() != 0
        )
        yield chromium
        chromium.close()


def keep(page, name):
    """A screenshot, as an artefact."""
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def names(page):
    """The systems that the table shows, in its order."""
    return page.locator("#board tbody tr:visible .name").all_inner_texts()


def axe_source():
    path = Path(os.environ.get("AXE_CORE", AXE))
    if not path.is_file():
        pytest.skip("needs axe-core: cd build; npm pack axe-core; or AXE_CORE=…/axe.min.js")
    return path.read_text("utf-8")


def violations(page, source):
    """Of WCAG 2.2 A and AA, contrast among them, and of axe's best practices."""
    page.evaluate(source)
    return [
        (one["id"], one["help"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in page.evaluate("axe.run()")["violations"]
    ]
