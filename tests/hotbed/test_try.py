"""`hotbed try` as a newcomer gives it: a page, and a copy of the template that is kept."""

from __future__ import annotations

import json
import re

import pytest

from hotbed.exit_codes import EXIT_USER
from tests.hotbed.runner import run


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_ends_with_a_page_that_is_whole_and_says_what_is_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "try", "--output", "results")
    page = tmp_path / "results" / "try" / "index.html"
    assert code == 0
    assert str(page) in out
    text = page.read_text()
    assert "data:image/png;base64," in text and "Simulated" in text
    assert not re.search(r"(src|href)=.(?!data:)", text)  # nothing from elsewhere
    assert len(re.findall("<li>", text)) == 3
    effect = r"\+[\d.]+ % .*95 % interval \+[\d.]+ … \+[\d.]+ %, n = 6"
    assert re.search(rf"dlr</b> [^:]*:\s+{effect}", text)
    assert "hotbed compare --controllers all --controllers-dir my-controllers" in text

    policy = tmp_path / "my-controllers" / "my_copy" / "policy.py"
    edited = policy.read_text().replace("number(0.3, 0, 1,", "number(0.4, 0, 1,")
    policy.write_text(edited)
    code, out, _ = run(capsys, "try", "--output", "results", "--json")
    said = json.loads(out)
    assert (code, said["ok"]) == (0, True)
    assert "18 of 18 runs done (12 of them before)" in said["sentence"]
    assert policy.read_text() == edited


def test_a_copy_that_does_not_load_is_kept_and_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    policy = tmp_path / "my-controllers" / "my_copy" / "policy.py"
    policy.parent.mkdir(parents=True)
    policy.write_text("def create(parameters, seed):\n    return mistake\n")
    code, _, err = run(capsys, "try")
    assert code == EXIT_USER
    assert "my-copy" in err
    assert policy.read_text().endswith("return mistake\n")
    assert not (tmp_path / "artifacts").exists()
