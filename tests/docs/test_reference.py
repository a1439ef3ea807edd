"""Reference pages: the list of environment variables, and pages that are generated."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, Field

from testbed.spec.quantities import Bytes
from tests.docs.pages import ROOT
from tools.reference import models

CODE = ("analysis", "campaigns", "controllers", "hotbed", "schemas", "testbed", "workloads")
INTERNAL = re.compile(r"HOTBED_(FAKE.*|READ_SEED|LOCAL|SOAK|COSBENCH.*)")


def test_the_page_of_environment_variables_is_complete() -> None:
    paths = [path for room in CODE for path in (ROOT / room).rglob("*.py")]
    text = "".join(path.read_text() for path in [*paths, ROOT / "tools" / "setup.sh"])
    page = (ROOT / "docs" / "reference-environment.md").read_text()
    name = re.compile(r"HOTBED_[A-Z_]*[A-Z]")
    read, documented = (
        {x for x in name.findall(one) if not INTERNAL.fullmatch(x)} for one in (text, page)
    )
    assert read == documented


class Inner(BaseModel):
    """Inner part, for nobody."""


class Shown(BaseModel):
    """Model with a <name>.

    Attributes:
        size: of it all,
            in a second line.
    """

    size: Bytes = Field(default=2**30, ge=2**20)
    inner: Inner | None = None
    rest: list[dict[str, Any]]  # what is left


def test_a_model_is_shown_with_values_defaults_and_meanings() -> None:
    text = "\n".join(models(Shown))
    assert "| `size` | a size such as `12GiB` at least 1.0 MiB | 1.0 GiB | Of it all, in a" in text
    assert "| `inner` | [Inner](#inner) | none |" in text
    assert "| `rest` | list of mapping of names to any value | required | what is left |" in text
    assert "\\<name>" in text
    assert "### Inner\n\nInner part" in text
