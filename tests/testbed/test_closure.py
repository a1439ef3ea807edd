"""Closure of code: its contents, and the changes that count."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from controllers.registry import available, code_hash
from testbed import closure
from testbed.deploy import bundle

TREE = {
    "room/__init__.py": "def lazy():\n    from room import unused\n",
    "room/cell.py": (
        "from typing import TYPE_CHECKING\n"
        "import os, numpy.linalg\n"
        "from room.steps import step\n"
        "if TYPE_CHECKING:\n    from room import unused\n"
        "VERBS = {'x': 'room.verbs:x'}\n"
        "ARGS = ['-m', 'room.program']\n"
        "SHIPPED = ('room/shipped', 'room/single.py')\n"
        "def run():\n"
        '    """Does it."""\n'
        "    from . import inner\n"
        "    name = load(f'room.plans.{inner.NAME}')\n"
        "    return __file__, 'data.json', 'probe.py'\n"
    ),
    "room/steps/__init__.py": "from .step import A as A\n",
    "room/steps/step.py": 'A = 1\n"""What it is."""\n',
    **{
        f"room/{name}.py": "X = 1\n"
        for name in ("verbs", "inner", "probe", "single", "unused", "plans/one", "shipped/main")
    },
    "room/plans/__init__.py": "",
    "room/shipped/__init__.py": "",
    "room/program/__init__.py": "",
    "room/program/__main__.py": "X = 1\n",
    "room/data.json": "{}",
    "roles/x/tasks/main.yml": "- command: python3 -m room.task\n",
    "roles/x/README.md": "words",
    "room/task.py": "X = 1\n",
    "go/go.mod": "module a/b\n\ngo 1.25 // words\n",
    "go/go.sum": "",
    "go/cmd/p/main.go": 'package main\n\nimport (\n\t"fmt"\n\n\tq "a/b/lib" // why\n)\n',
    "go/cmd/p/main_test.go": "package main\n",
    "go/lib/lib.go": (
        'package lib\n\nvar A, B = "a // b", \'"\' /* c */\n\n//go:noinline\nfunc F() {}\n'
    ),
    "go/other/other.go": "package other\n",
}
ENTRIES = ("room/cell.py", "go/cmd/p", "roles/x")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(closure, "ROOT", tmp_path)
    return tmp_path


def test_everything_that_may_run_is_reached(tree):
    left = {"room/unused.py", "roles/x/README.md", "go/cmd/p/main_test.go", "go/other/other.go"}
    names = {name.replace("roles/x/", "2:") for name in set(TREE) - left}
    assert set(closure.files(ENTRIES)) == names


@pytest.mark.parametrize(
    ("name", "before", "after", "counts"),
    [
        ("room/cell.py", "Does it", "Does more", False),
        ("room/cell.py", '    """Does it."""\n', "", False),
        ("room/cell.py", "import os, numpy", "# why\nimport os,  numpy", False),
        ("room/cell.py", "'data.json'", "'else.json'", True),
        ("room/steps/step.py", "What it is", "That", False),
        ("room/steps/step.py", "A = 1", "A = 1.0", True),
        ("room/steps/step.py", "A = 1", "A = True", True),
        ("room/probe.py", "1", "2", True),
        ("room/unused.py", "1", "2", False),
        ("room/data.json", "{}", "{ }", True),
        ("roles/x/tasks/main.yml", "python3", "python", True),
        ("go/go.mod", "words", "others", False),
        ("go/go.mod", "1.25", "1.26", True),
        ("go/cmd/p/main.go", "why", "because", False),
        ("go/cmd/p/main.go", "\n\n\tq", "\n\tq", False),
        ("go/lib/lib.go", "A, B", "A, /* two\n lines */ B", True),
        ("go/lib/lib.go", "/* c */", "/* other */", False),
        ("go/lib/lib.go", "a // b", "a // c", True),
        ("go/lib/lib.go", "go:noinline", "go:nosplit", True),
        ("go/other/other.go", "other", "another", False),
    ],
)
def test_code_counts_and_words_do_not(tree, name, before, after, counts):
    first = closure.Closure(ENTRIES, closure.digest(ENTRIES))
    text = (tree / name).read_text()
    assert before in text
    (tree / name).write_text(text.replace(before, after))
    assert first.changed == counts


def test_a_file_that_does_not_parse_or_is_not_there_counts(tree):
    first = closure.Closure(ENTRIES, closure.digest(ENTRIES))
    (tree / "room" / "inner.py").write_text("X = ")
    assert first.changed
    (tree / "room" / "inner.py").unlink()
    assert first.changed
    (tree / "room" / "cell.py").unlink()
    assert first.changed


def test_a_notebook_counts_by_its_code(tree):
    def digest(code: str, output: str) -> str:
        cells = [
            {"cell_type": "code", "source": [code], "outputs": [output]},
            {"cell_type": "markdown", "source": [output]},
        ]
        (tree / "a.ipynb").write_text(json.dumps({"cells": cells}))
        return closure.digest(["a.ipynb"])

    assert digest("x = 1", "one") == digest("x = 1  # why", "two") != digest("x = 2", "one")


def test_an_admin_node_computes_the_same_hash_of_a_controller(tmp_path):
    packed = bundle.pack(bundle.files())
    subprocess.run(["tar", "-x", "-C", tmp_path], input=packed, check=True)
    program = (
        "import json; from controllers.registry import available, code_hash; "
        "print(json.dumps({name: code_hash(one) for name, one in available().items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {name: code_hash(one) for name, one in available().items()}
