"""`hotbed ui` on a real testbed."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from testbed.sites.contract import Testbed
from tests.hotbed.ui_browser import NEEDED, chromium, shot, window
from tests.testbed.ceph_beds import run

pytestmark = [pytest.mark.local, pytest.mark.timeout(120), NEEDED]


@pytest.fixture
def address(deployed: Testbed, tmp_path: Path) -> Iterator[str]:
    words = [sys.executable, "-m", "hotbed.cli", "ui", "--port", "0", "--no-browser"]
    words += ["--testbed", deployed.name, "--artifacts", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def row(page: Page, node: str) -> Locator:
    return page.get_by_role("row").filter(has_text=re.compile(rf"^\s*{node}\b"))


def hotbed(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "hotbed.cli", *words], check=True)


def test_the_page_follows_a_real_testbed(deployed: Testbed, address: str) -> None:
    with chromium() as browser, window(browser, address) as page:
        expect(page.get_by_text(re.compile("HEALTH_(OK|WARN)")).first).to_be_visible()
        node = row(page, "osd0")
        expect(node).to_contain_text("1.00")
        words = [sys.executable, "-m", "hotbed.cli", "exec", "--testbed", deployed.name, "admin"]
        load = subprocess.Popen([*words, "--", "rados -p bench bench 25 write --run-name ui"])
        began = time.monotonic()
        run(deployed, "admin", "ceph osd primary-affinity 0 0.5")
        try:
            expect(node).to_contain_text("0.50")
            print(f"the new affinity was shown after {time.monotonic() - began:.2f} s")
            expect(page.locator("h1")).to_contain_text(re.compile(r"write [1-9]"))
            hotbed("load", "start", "hotspot", "osd1", "--testbed", deployed.name)
            hotbed("fault", "disk", "osd2", "--slow", "4", "--testbed", deployed.name)
            for name, mark in (("osd1", "disturbed"), ("osd2", "fault")):
                expect(row(page, name)).to_contain_text(mark)
            page.wait_for_timeout(8_000)
            shot(page, "testbed")
        finally:
            hotbed("fault", "clear", "--testbed", deployed.name)
            run(deployed, "admin", "ceph osd primary-affinity 0 1")
            assert load.wait(60) == 0
