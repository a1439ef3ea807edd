"""Debian's Chromium for the tests of `hotbed ui`.

`HOTBED_SCREENSHOTS=FOLDER` writes the documentation's screenshot of a real testbed into a folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
NEEDED = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Provide a browser for several windows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def window(browser: Browser, address: str) -> Iterator[Page]:
    """Open an address that has the token; yield its page. Fail in the end if a page asked anything
    but 127.0.0.1, opened a dialog, or had an error: one of the content policy is among them."""
    wrong: list[str] = []

    def asked(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            wrong.append(f"a request to {request.url}")

    def dialog(dialog: Any) -> None:
        wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("request", asked)
        page.on("dialog", dialog)
        page.on("pageerror", lambda error: wrong.append(f"an error: {error.stack}"))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto(address)
        yield page
    assert not wrong, wrong


def go(page: Page, name: str) -> None:
    """Follow a link of the page's head, and wait until the new page is loaded.

    The title alone is no sign of that: it is there before the page has a body.
    """
    with page.expect_navigation(wait_until="load"):
        page.locator("header a", has_text=name).click()
    expect(page).to_have_title(f"Hotbed: {name}")


def shot(page: Page, name: str) -> None:
    """Write a screenshot for the documentation, if it is asked for."""
    folder = os.environ.get("HOTBED_SCREENSHOTS")
    if folder:
        page.wait_for_timeout(1500)
        page.screenshot(path=Path(folder) / f"ui-{name}.png")
