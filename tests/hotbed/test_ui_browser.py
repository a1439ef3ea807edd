"""Pages of `hotbed ui` in Debian's Chromium."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.hotbed.ui_browser import NEEDED, chromium, go, shot, window
from tests.hotbed.ui_world import CAMPAIGN, EVIL, runs, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), NEEDED]
PAGES = ("testbed", "campaign", "runs", "journal", "reports")
# What a page shows last.
CONTENT = {
    "testbed": "text=HEALTH_WARN",
    "campaign": "text=36 of 39 cells done",
    "runs": "text=37 of 37 attempts",
    "journal": "text=5 steps, one every 5.0 s; ended",
    "reports": "figure img",
}
# Counts a stranger's elements, in shadow roots, too.
STRANGERS = """() => {
  const count = root => [...root.querySelectorAll('*')].reduce(
    (n, e) => n + (e.shadowRoot ? count(e.shadowRoot) : 0),
    root.querySelectorAll('evil-tag, img[src="x"]').length)
  return count(document)
}"""
TEXTS = """() => {
  const words = root => [...root.childNodes].map(e => e.nodeType == 3 ? e.data :
    e.nodeName == 'STYLE' ? '' : words(e.shadowRoot || e)).join(' ')
  return words(document.body)
}"""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ui")
    runs(folder, 36)
    return folder


@pytest.fixture(scope="module")
def address(artifacts: Path) -> Iterator[str]:
    with served(artifacts) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def row(page: Page, words: str) -> Any:
    return page.locator(".tabulator-row", has_text=words)


def test_the_testbed_is_live(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        expect(page.get_by_text("HEALTH_WARN").first).to_be_visible()
        expect(page.get_by_text("4 times as slow").first).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="osd3")).to_contain_text("31")
        clock = page.locator("h1", has_text=re.compile(r"\d\d:\d\d:\d\d"))
        expect(clock).not_to_have_text(clock.inner_text())


def test_without_a_testbed_it_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "--none") as address, window(browser, address) as page:
        expect(page.get_by_text("hotbed up SPEC")).to_be_visible()
        for name in PAGES[1:4]:
            go(page, name)
            expect(page.get_by_text("hotbed run CAMPAIGN")).to_be_visible()
        go(page, "reports")
        expect(page.get_by_text("hotbed report PAPER")).to_be_visible()


def test_a_campaign_and_its_log(browser: Browser, address: str, artifacts: Path) -> None:
    with window(browser, address) as page:
        go(page, "campaign")
        expect(page.get_by_text("36 of 39 cells done")).to_be_visible()
        expect(page.locator("i.done")).to_have_count(36)
        expect(page.locator("i.running")).to_have_count(1)
        expect(page.get_by_text("0.9 cores were used outside").first).to_be_visible()
        log = artifacts / CAMPAIGN / "running00000/.attempt-1.partial/logs/cell.log"
        with log.open("a") as file:
            file.write("collect: fetching samples\n")
        expect(page.get_by_text("collect: fetching samples")).to_be_visible()


def test_runs_are_filtered_grouped_and_compared(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        go(page, "runs")
        expect(page.get_by_text("37 of 37 attempts")).to_be_visible()
        page.get_by_label("Group by").select_option("controller")
        expect(page.locator(".tabulator").last.locator(".tabulator-row")).to_have_count(3)
        page.get_by_label("Status").select_option("spoiled")
        expect(page.get_by_text("1 of 37 attempts")).to_be_visible()
        page.get_by_label("Status").select_option("done")
        page.get_by_label("Contains").fill("dlr-even")
        page.get_by_label("Contains").press("Enter")
        expect(page.get_by_text("12 of 37 attempts")).to_be_visible()
        row(page, "dlr-even").nth(-1).click()
        page.get_by_label("Contains").fill("")
        page.get_by_label("Contains").press("Enter")
        expect(page.get_by_text("36 of 37 attempts")).to_be_visible()
        row(page, "default").first.click()
        expect(page.get_by_text("what differs, and all results")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_text("Download as CSV").click()
        assert len(Path(download.value.path()).read_text().splitlines()) == 37


@pytest.mark.skipif("HOTBED_SCREENSHOTS" not in os.environ, reason="takes a picture for the docs")
def test_the_runs_of_a_comparison_are_drawn(browser: Browser, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "hotbed.cli", "try", "--output", str(tmp_path)]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    with served(tmp_path, "--none") as address, window(browser, address) as page:
        go(page, "runs")
        page.get_by_label("Group by").select_option("controller")
        grouped = page.locator(".tabulator").last.locator(".tabulator-row")
        expect(grouped).to_have_count(3)
        for name in ("default", "dlr"):
            page.locator(".tabulator").first.locator(".tabulator-row", has_text=name).first.click()
        expect(page.get_by_text("what differs, and all results")).to_be_visible()
        shot(page, "runs")


def test_groups_may_change_faster_than_a_browser_draws(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        go(page, "runs")
        by = page.get_by_label("Group by")
        for choice in [1, 0, 2, 3] * 5:
            by.select_option(index=choice)
        expect(page.locator(".tabulator-col-title", has_text="n").first).to_be_visible()
        page.wait_for_timeout(2000)


def test_a_journal_step_by_step(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        go(page, "journal")
        page.get_by_label("Campaign").select_option(CAMPAIGN)
        expect(page.get_by_text("5 steps, one every 5.0 s; ended")).to_be_visible()
        expect(page.get_by_text("primary-affinity").first).to_be_visible()
        row(page, "osd.0").nth(3).click()
        expect(page.get_by_text("Step 3 at")).to_be_visible()


def test_the_journal_of_a_running_controller_grows(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        expect(page.get_by_text("HEALTH_WARN").first).to_be_visible()  # the controllers are known
        go(page, "journal")
        page.get_by_label("Campaign").select_option("(on the testbed)")
        expect(page.get_by_text("has no end yet")).to_be_visible()
        newest = page.locator(".tabulator-row").first
        expect(newest).not_to_have_text(newest.inner_text())
        expect(page.get_by_text(re.compile(r"Step \d+ at")).first).to_be_visible()


def test_reports_and_the_gallery(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        go(page, "reports")
        expect(page.locator("figure img").first).to_be_visible()
        with page.expect_popup() as popup:
            page.get_by_text(f"{CAMPAIGN}/report.html").click()
        expect(popup.value.get_by_text("a report")).to_be_visible()


def test_strangers_texts_stay_texts(browser: Browser, tmp_path: Path) -> None:
    runs(tmp_path, 12, EVIL, EVIL)
    with served(tmp_path, "--evil") as address, window(browser, address) as page:
        for name in PAGES:
            go(page, name)
            page.wait_for_function(f"() => ({TEXTS})().includes('<evil-tag>')")
            if name == "runs":
                page.get_by_label("Group by").select_option(index=4)
                page.get_by_label("and by").select_option(index=1)
                page.locator(".tabulator-row").nth(4).click()
                page.locator(".tabulator-row").nth(5).click()
                expect(page.get_by_text("what differs, and all results")).to_be_visible()
            page.mouse.move(400, 500)
            page.wait_for_timeout(500)
            assert page.evaluate(STRANGERS) == 0, name
            assert "\x1b" not in page.evaluate(TEXTS), name


def test_nothing_is_wider_than_the_window(browser: Browser, address: str) -> None:
    with window(browser, address) as page:
        for name in PAGES:
            go(page, name)
            if name == "journal":
                page.get_by_label("Campaign").select_option(CAMPAIGN)
            expect(page.locator(CONTENT[name]).first).to_be_visible()
            for width in (1280, 480):
                page.set_viewport_size({"width": width, "height": 800})
                page.wait_for_timeout(400)
                assert page.evaluate("() => document.documentElement.scrollWidth") <= width, name
