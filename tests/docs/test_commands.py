"""Commands in the documentation: each exists with its options, as do the named campaigns, figures,
reports, benches and controllers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.core.claims import Evidence
from analysis.core.load import LoadedRun
from analysis.core.papers import SHORT_NAMES, paper
from analysis.core.report import draw
from campaigns.engine.campaign_file import FILES, load_campaign
from campaigns.validate import select
from controllers.registry import available
from hotbed import cli
from schemas.campaign import Campaign
from schemas.errors import UserError
from schemas.run import Run, Summary
from tests.docs.pages import ROOT, Code, Page, pages
from tests.hotbed.runner import Runner

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)

STANDS_FOR = re.compile(r"\.\.\.|…|[A-Z][A-Z._-]*|<.*>|X|FILE\..*")
"""Placeholders for the user's own values."""

OF_OTHERS = {
    *("--sparse", "--unix-socket"),  # cp, curl
    *("--mkfs", "--upmap", "--upmap-deviation"),  # ceph-osd, osdmaptool
    *("--bs", "--direct", "--io_submit_mode", "--iodepth", "--rate_iops", "--rate_process", "--rw"),
    "--status-interval",
}
"""Options of foreign programs."""


@cache
def _campaigns() -> dict[str, Campaign]:
    return {file.stem: load_campaign(file) for file in FILES.glob("*.yaml")}


@cache
def _benches() -> set[str]:
    names = [path.stem.removeprefix("bench_") for path in ROOT.glob("tests/bench/bench_*.py")]
    return {"_".join(name.split("_")[:n]) for name in names for n in range(1, name.count("_") + 2)}


def _commands(code: Code) -> Iterator[list[str]]:
    """Yield the words after `hotbed` of every command, without usage brackets. In a block, also
    drop remarks behind a # or two spaces."""
    text = code.text if code.is_span else re.split(r"\s{2,}|\s#", code.text)[0]
    for part in re.split(r"&&|;| > ", re.sub(r"[\[\]]", "", text)):
        if re.match(r" *(\.venv/bin/)?hotbed( |$)", part):
            yield shlex.split(part)[1:]


def _verb(words: list[str]) -> tuple[str, Any, list[str]]:
    """Return the verb's name and command, and the words behind it. Return no command if the words
    name only a group, or stop at dots or a placeholder."""
    command = cli.command(cli.build())
    name: list[str] = []
    while hasattr(command, "commands"):
        while words and words[0].startswith("-"):
            assert words[0] in _names(command), f"hotbed has no option {words[0]}"
            words = words[1:]
        if not words or STANDS_FOR.fullmatch(words[0]):
            return " ".join(name), None, []
        for alternative in words[0].split("|"):
            assert alternative in command.commands, f"there is no hotbed {' '.join(words)}"
        name.append(words[0])
        command, words = command.commands[words[0].split("|")[0]], words[1:]
    return " ".join(name), command, words


def _names(command: Any) -> set[str]:
    """Return the names of a command's options, without those with values."""
    flags = (one for one in command.params if getattr(one, "is_flag", False) or one.count)
    return {"--help", *(name for one in flags for name in [*one.opts, *one.secondary_opts])}


def _parsed(command: Any, words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments, and options with values; fail on options that the verb lacks."""
    known = {name: one for one in command.params for name in [*one.opts, *one.secondary_opts]}
    arguments: list[str] = []
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word == "--" or (arguments and command.context_settings):
            break  # a command line for a node
        if not word.startswith("-"):
            arguments.append(word)
            continue
        option, _, value = word.partition("=")
        for alternative in option.split("|"):
            assert alternative in known, f"it has no option {alternative}"
        if not getattr(known[option.split("|")[0]], "is_flag", False):
            options[option] = value or next(rest, "")
    most = [one for one in command.params if one.param_type_name == "argument"]
    if all(one.nargs == 1 for one in most):
        named = [word for word in arguments if word not in {"...", "|"}]
        assert len(named) <= len(most), f"it takes {len(most)} arguments, not {named}"
    return arguments, options


def _is_known(name: str, known: set[str], what: str) -> None:
    if not STANDS_FOR.fullmatch(name):
        assert name in known, f"there is no {what} {name}"


def _check_names(verb: str, arguments: list[str], options: dict[str, str]) -> None:
    first = arguments[0] if arguments else "..."
    if verb in {"run", "bundle"} and first not in SHORT_NAMES and not first.endswith(".yaml"):
        _is_known(first, {*_campaigns(), "compare-sim"}, "campaign")
    if verb == "run" and first in _campaigns() and "--figure" in options:
        campaign = _campaigns()[first]
        select(
            campaign, {grid.name: [] for grid in campaign.grids}, options["--figure"], Path(first)
        )
    if verb == "report":
        _is_known(first.removesuffix("-sim"), {*SHORT_NAMES, *_campaigns()}, "report")
    if verb == "bench" and "--only" in options:
        _is_known(options["--only"], _benches(), "bench")
    if verb == "control start" and "--controllers-dir" not in options:
        _is_known(first, set(available()), "controller")


def _mistakes(code: Code) -> Iterator[str]:
    try:
        for words in _commands(code):
            verb, command, rest = _verb(words)
            if command is not None:
                _check_names(verb, *_parsed(command, rest))
    except (AssertionError, UserError, ValueError) as error:  # the last is shlex's: no closing "
        yield f"line {code.line}: {code.text}: {error}"


@PAGES
def test_every_command_is_one_of_the_product_s(page: Page) -> None:
    assert not [mistake for code in page.code() for mistake in _mistakes(code)]


@PAGES
def test_every_make_target_is_in_the_makefile(page: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        match[1]
        for code in page.code()
        if (match := re.match(r"make ([a-z-]+)(?:$|\s)", code.text))
    }
    assert named <= targets


@cache
def _options() -> set[str]:
    """Return the options of all verbs and of the data plane's programs."""
    found: set[str] = {"--help", *OF_OTHERS}
    commands = [cli.command(cli.build())]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        found.update(name for one in command.params for name in [*one.opts, *one.secondary_opts])
    for file in (ROOT / "dataplane").glob("**/cmd/**/*.go"):
        flags = re.findall(r"flags?\.\w+\([^\"\n]*\"([a-z-]+)\",", file.read_text())
        found.update(f"--{flag}" for flag in flags)
    return found


@PAGES
def test_every_option_in_a_sentence_is_known(page: Page) -> None:
    named = {
        option
        for code in page.code()
        if code.is_span
        for option in re.findall(r"(?<!\S)--[a-z][\w-]*", code.text)
    }
    assert named <= _options()


@pytest.mark.slow  # plans a hundred campaigns
@pytest.mark.parametrize(
    ("short", "simulated"), [*((short, False) for short in SHORT_NAMES), ("dlr", True)]
)
def test_the_commands_of_a_report_make_the_runs_of_its_figures(short: str, simulated: bool) -> None:
    chosen = paper(short)
    named = chosen.commands(simulated=simulated)
    commands = {named[entry.id]: part for part, entry in chosen.figures_by_part()}
    commands |= {text: part for part in chosen.parts for text in part.commands.values()}
    for text, part in commands.items():
        assert not list(_mistakes(Code(0, text, True)))
        words = shlex.split(text)[1:]
        planned = Runner().run([*words, "--dry-run", "--json"], catch_exceptions=False)
        scaled = words[0] == "scale"
        kind = "dlr" if scaled else _campaigns()[words[1]].kind
        ground = _parsed(*_verb(words)[1:])[1].get("--ground")
        if ground is None:
            ground = "sim" if scaled else _campaigns()[words[1]].ground
        made = [
            Run.model_construct(kind=kind, ground=ground, parameters=cell["parameters"])
            for cell in json.loads(planned.stdout)["pending"]
        ]
        assert any(part.takes(run) for run in made), text


def test_a_report_of_simulated_runs_asks_for_no_simulated_ones_of_figures_of_machines() -> None:
    chosen = paper("dlr")
    (overhead,) = (entry for entry in chosen.figures if entry.id == "11")
    assert "--ground" not in chosen.commands(simulated=True)["11"]
    summary = Summary(whole=[], steady=[], pressure_mean={})
    run = LoadedRun(Run.model_construct(ground="sim"), summary, Path())
    drawn = draw(overhead, Evidence(pd.DataFrame(), [run]), Path(), "dlr")
    assert drawn.path is None
    assert drawn.missing is not None
