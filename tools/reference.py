"""Write the reference pages of docs/ from the code: docs/reference-*.md.

Run it as: python -m tools.reference. With --check it writes nothing, and fails if a page is old.
"""

import importlib
import inspect
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from analysis.core.claims import Claim
from analysis.core.papers import SHORT_NAMES, paper
from campaigns.engine.campaign_file import FILES, load_campaign
from campaigns.engine.plan import raw_cells
from campaigns.papers.prioritymeister.topology import Topology
from campaigns.papers.registry import KINDS, kind_named
from controllers.registry import available, create
from hotbed import cli
from hotbed.verbs.doctor import recorded
from schemas import claim, run
from schemas.campaign import Campaign
from schemas.cells import SizedCell, cells_of
from testbed.simulated import store as simulated
from testbed.simulated.cosperf import store as cosperf
from testbed.simulated.parameters import ModelParameters
from testbed.sites.chameleon.options import ChameleonOptions
from testbed.sites.inventory.hosts import InventoryOptions, ShortFile
from testbed.spec import TestbedSpec, quantities
from testbed.spec.stores import as_list
from testbed.stores import contract, microstores
from testbed.stores.ceph.store import Features
from tools import json_schemas

ROOT = Path(__file__).resolve().parents[1]
NOTE = "<!-- Generated from the code: python -m tools.reference -->\n"

_UNITS = {
    quantities.parse_bytes: ("a size such as `12GiB`", quantities.format_bytes),
    quantities.parse_bytes_per_s: ("a rate such as `60MB/s`", lambda v: f"{v / 1e6:g} MB/s"),
    quantities.parse_bits_per_s: ("a rate such as `500Mbit`", lambda v: f"{v / 1e6:g} Mbit/s"),
    quantities.parse_seconds: ("a time such as `4ms`", lambda v: f"{v:g} s"),
}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, without columns that are empty; cells are Markdown."""
    lines = [[" ".join(str(one).replace("|", "\\|").split()) for one in row] for row in rows]
    kept = [place for place in range(len(heads)) if any(line[place] for line in lines)]
    shown_lines = [heads, ["---"] * len(heads), *lines] if lines else []
    return "".join(f"| {' | '.join(line[i] for i in kept)} |\n" for line in shown_lines)


def prose(doc: str | None) -> str:
    """Return a docstring as Markdown, in which pages of docs/ are links."""
    text = re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc(doc or ""))
    text = re.sub(r"<(?=\w+>)", r"\\<", text)
    return re.sub(r"\bdocs/([\w-]+\.md)\b", r"[\1](\1)", text)


def shown(value: object) -> str:
    """Return a default in words, or as code."""
    if value is None or value in ((), [], {}, ""):
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _unit(rules: Iterable[Any]) -> tuple[str, Callable[[Any], str]] | None:
    parsers = (rule.func for rule in rules if isinstance(rule, BeforeValidator))
    return next((_UNITS[one] for one in parsers if one in _UNITS), None)


def allowed(kind: Any, rules: Sequence[Any] = ()) -> str:
    """Return the values of a type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return allowed(inner[0], (*rules, *inner[1:]))
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(allowed(one, rules) for one in inner if one is not type(None))
    if origin in (list, tuple):
        one, rule = allowed(inner[0]), BeforeValidator(as_list)
        return f"{one} or list of {one}" if rule in rules else f"list of {one}"
    if origin is dict:
        return f"mapping of names to {allowed(inner[1])}"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    found = [one for rule in rules for one in getattr(rule, "metadata", [rule])]
    words, show = _unit(found) or (_WORDS.get(kind, "any value"), "{:,}".format)
    bounds = [
        f"{word} {show(getattr(rule, name))}"
        for rule in found
        for name, word in _BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return " and ".join([f"{words} {bounds[0]}", *bounds[1:]]) if bounds else words


def _default(item: FieldInfo) -> str:
    if item.is_required():
        return "required"
    value, unit = item.get_default(call_default_factory=True), _unit(item.metadata)
    return unit[1](value) if unit and value is not None else shown(value)


def _inner(kind: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(kind) and get_origin(kind) is None and issubclass(kind, BaseModel):
        yield kind
    for one in get_args(kind):
        yield from _inner(one)


def _meaning(model: type[BaseModel], field: str) -> str:
    """Return what docstrings say of a field, or else the comment behind it."""
    behind = re.compile(rf"^    {field}: [^#\n]*  # (.+)$", re.M)
    sources = (
        inspect.getsource(one) for one in model.__mro__ if one.__module__ == model.__module__
    )
    comments = (found[1] for source in sources if (found := behind.search(source)))
    return prose(json_schemas.description(model, field)) or next(comments, "")


def models(*wanted: type[BaseModel], base: type[BaseModel] | None = None) -> Iterator[str]:
    """Yield a section for each model and for the models in its fields; with `base`, only the fields
    that differ from those of `base`."""
    waiting = list(wanted)
    for model in waiting:  # grows
        said = json_schemas._parts(vars(model).get("__doc__") or "")
        text = prose(" ".join(part for part in said if not part.startswith("`")))
        rows = []
        for name, item in model.model_fields.items():
            old = base and base.model_fields.get(name)
            if not old or (old.annotation, old.default) != (item.annotation, item.default):
                values = allowed(item.annotation, item.metadata)
                rows.append((f"`{name}`", values, _default(item), _meaning(model, name)))
                waiting += [one for one in _inner(item.annotation) if one not in waiting]
        if issubclass(model, SizedCell):
            rows.append(("`size`", model.allowed("size"), "none", ""))
        yield f"### {model.__name__}\n\n{text}\n"
        yield table(("key", "values", "default", "meaning"), rows)


def command_line() -> Iterator[str]:
    """Yield the verbs with their arguments and options."""
    yield "The option `-h` of a verb prints the same in the terminal.\n"
    waiting = [("hotbed", cli.command(cli.build()))]
    while waiting:
        name, command = waiting.pop(0)
        inner = sorted(getattr(command, "commands", {}).items())
        waiting[:0] = [(f"{name} {verb}", one) for verb, one in inner]
        yield f"## {name}\n\n{prose(command.help)}\n"
        rows = []
        for one in command.params:
            names = [*one.opts, *one.secondary_opts]
            if one.param_type_name == "argument":
                names = [str(one.name).upper()]
            default = "required" if one.required else shown(one.default)
            rows.append((", ".join(f"`{name}`" for name in names), prose(one.help), default))
        yield table(("argument or option", "meaning", "default"), rows)


def yaml_files() -> Iterator[str]:
    """Yield the schemas of all YAML files."""
    yield "An unknown key is an error.\n"
    yield "## Spec of a testbed\n\nExamples: `testbed/specs/*.yaml`.\n"
    yield from models(TestbedSpec)
    yield "## Options of a site\n\nThe block `site.options` of a spec. The local site has one, "
    yield "`suite`: the Debian suite of its nodes.\n"
    yield from models(InventoryOptions, ShortFile, ChameleonOptions)
    yield "## Campaign files\n\nExamples: `campaigns/files/*.yaml`.\n"
    yield from models(Campaign)
    yield "Files with one of the keys below ask for other cells. They differ in these keys:\n"
    for kind in KINDS:
        yield from models(kind.schema, base=Campaign)
    yield "## Parameters of cells\n\nKeys of `parameters`, `fixed` and `vary` in a campaign file.\n"
    for name in ("dlr", "ursa", "twochoice", "twochoice-objects", "prioritymeister", "mos"):
        for cells in {cells_of(name, "local"): None, cells_of(name, "sim"): None}:  # type: ignore[arg-type]
            yield from models(*cells.members)
    yield "## Topology for PriorityMeister\n\nThe file of `hotbed pm plan`.\n"
    yield from models(Topology)
    yield "## Constants of the modelled Ceph\n\nThe file of `--model`.\n"
    yield from models(ModelParameters)


def files_of_a_run() -> Iterator[str]:
    """Yield the files of a run's folder and their fields."""
    yield f"```text\n{inspect.cleandoc(run.__doc__ or '')}\n```\n"
    yield from models(run.Run, run.Summary)
    yield "## claims.json\n\nResults of claims, in the folder of a report.\n"
    yield from models(claim.ClaimResult)


def stores() -> Iterator[str]:
    """Yield what controllers can sense and change, and which store offers it."""
    reef = Features(
        "18.2", (18, 2, 7), frozenset(), "reef", True, frozenset(), True, True,
        frozenset({contract.MCLOCK_PROFILE}),
    )  # fmt: skip
    tentacle = Features(
        "20.2", (20, 2, 0), frozenset(), "reef", True, contract.READ_MODES, True, True,
        frozenset(contract.OPTIONS),
    )  # fmt: skip
    offered = {
        "Ceph 16.2": Features("16.2", (16, 2, 15), frozenset(), "luminous").needs(),
        "Ceph 18.2": reef.needs(),
        "Ceph 20.2": tentacle.needs(),
        "modelled Ceph": simulated.offers(ModelParameters(op_queue="mclock_scheduler")),
        "Swift, COSPerf": cosperf.OFFERS,
    }
    yield (
        "A controller declares its senses and acts (`needs`). A store that lacks one refuses the "
        "controller by name. The columns of Ceph are Debian's packages. `size-balancer` needs a "
        "foreign program ([ceph-store.md](ceph-store.md)). Swift's acts depend on its spec. The "
        "types are in [testbed/stores/contract.py](../testbed/stores/contract.py).\n"
    )
    source = inspect.getsource(contract) + inspect.getsource(microstores)
    meaning = dict(re.findall(r'^[A-Z_]+ = "([\w-]+)"  # (?:an? \w+: )?(.+)$', source, re.M))
    for one in contract._ACTIONS.values():
        kinds = [item.default for item in fields(one) if item.name == "kind"] or contract.OPTIONS
        for kind in kinds:
            text = re.sub(r"^Action(:| that)? ", "", prose(one.__doc__))
            said = f"`{one.__name__}`: {text}"
            meaning[kind] = f"{meaning[kind]} {said}" if "`" in meaning.get(kind, "") else said
    for kind in ("senses", "acts"):
        names = sorted({name for needs in offered.values() for name in getattr(needs, kind)})
        rows = []
        for name in names:
            has = ["yes" if name in getattr(needs, kind) else "" for needs in offered.values()]
            rows.append((f"`{name}`", *has, meaning.get(name, "")))
        yield f"## {kind.capitalize()}\n"
        yield table((kind.removesuffix("s"), *offered, "meaning"), rows)


def all_campaigns() -> Iterator[str]:
    """Yield all campaigns with their grids."""
    yield (
        "`hotbed run NAME --dry-run` shows the cells, what is done and the estimated time. A "
        "grid's runs are cells times blocks, without blocks that `precision` adds.\n"
    )
    for path in sorted(FILES.glob("*.yaml")):
        made = load_campaign(path)
        comment = "".join(line for line in path.open() if line.startswith("#"))
        words = re.sub(r"^# ?(yaml-language-server.*)?", "", comment, flags=re.M)
        yield f"## {made.name}\n\n{prose(words)}\n"
        grounds = f"ground {made.ground} (of {', '.join(kind_named(made.kind).grounds)})"
        yield f"Paper {made.paper}, {grounds}{made.spec and f', spec `{made.spec}`'}.\n"
        rows = []
        for grid in made.grids:
            cells = len(list(raw_cells(made, grid))) * grid.repeats
            more = " or more" if grid.precision else ""
            varied = ", ".join(f"`{key}`" for key in grid.vary)
            blocks = f"{grid.repetitions}{more}"
            rows.append((grid.name, ", ".join(grid.figures), varied, cells, blocks))
        yield table(("grid", "figures", "varies", "cells", "blocks"), rows)


def _claim(one: Claim) -> tuple[str, ...]:
    value = "" if one.paper_value is None else f"{one.paper_value:g} {one.unit}"
    statement = re.sub(r"([*_<])", r"\\\1", one.statement)
    return (f"`{one.id}`", one.figure, statement, one.rule.replace("_", " "), value)


def figures() -> Iterator[str]:
    """Yield all figures and claims of the papers."""
    yield (
        "`hotbed report NAME` draws the figures and tests the claims, on the runs in `artifacts/`. "
        "A value is the paper's, in the claim's unit.\n"
    )
    for short in SHORT_NAMES:
        made = paper(short)
        commands = made.commands(simulated=False)
        yield f"## {short}\n\n{made.title}. Code: `{made.code}`.\n"
        rows = [(one.id, one.title, f"`{commands[one.id]}`") for one in made.figures]
        yield table(("figure", "title", "its runs"), rows)
        claims = [_claim(one) for part in made.parts for one in part.claims]
        yield table(("claim", "figure", "statement", "rule", "paper's value"), claims)


def gallery() -> Iterator[str]:
    """Yield the pictures of the recorded figures, with their origin."""
    yield (
        "Figures of recorded runs, as `hotbed report NAME --reference` draws them. Diamonds "
        "are the paper's values.\n"
    )
    for short in SHORT_NAMES:
        made, folder = paper(short), f"artifacts/reference/{short}"
        pictures = {one.id: f"{folder}/{one.id}/{short}-fig{one.id}.png" for one in made.figures}
        drawn = [one for one in made.figures if (ROOT / pictures[one.id]).is_file()]
        yield from [f"## {made.title}\n"] * bool(drawn)
        for one in drawn:
            facts = json.loads((ROOT / folder / one.id / "reference.json").read_text())
            commits = ", ".join(commit[:8] for commit in facts["commits"])
            yield f"### {short} {one.id}: {one.title}\n\n![{one.title}](../{pictures[one.id]})\n"
            yield (
                f"{facts['runs']} runs of {', '.join(facts['campaigns'])} on the ground "
                f"{facts['ground']}, {facts['ended_at'][:10]}, commit {commits}.\n"
            )


def controllers() -> Iterator[str]:
    """Yield the built-in controllers with their needs and parameters."""
    yield "`hotbed control list` also lists those of `--controllers-dir`.\n"
    for name, found in sorted(available().items()):
        policy = create(found, {}, 0)
        module = importlib.import_module(f"controllers.{found.folder.name}.policy")
        declared = {one.name: one.metadata for one in fields(vars(policy)["_p"])}
        yield f"## {name}\n\n{prose(module.__doc__).split(chr(10) * 2)[0].rstrip(':')}\n"
        senses, acts = (shown(sorted(one)) for one in (policy.needs.senses, policy.needs.acts))
        yield f"Senses: {senses}. Acts: {acts}.\n"
        rows = []
        for key, value in policy.parameters().items():
            meta = declared.get(key, {})
            values = ", ".join(map(shown, meta.get("allowed", ()))) or _WORDS.get(meta.get("type"))
            if "low" in meta:
                values = f"{values} from {meta['low']:,} to {meta['high']:,}"
            rows.append((f"`{key}`", values or "", shown(value), meta.get("doc", "")))
        yield table(("parameter", "values", "default", "meaning"), rows)


def badges() -> str:
    """Return the picture of README.md: what the recorded runs tested."""
    shown_badges = []
    for each in recorded(ROOT / "artifacts" / "reference"):
        runs, *others = each.found.split(", ")
        stores = " and ".join(one.capitalize() for one in others if not one.startswith("paper "))
        system = re.sub(r"nodes with |GNU/Linux | \(.*", "", each.what)
        shown_badges.append((system, f"{stores}: {runs.split(' in ')[0]}"))
    effects = Counter(
        one["effect"]
        for path in ROOT.glob("artifacts/reference/*/*/claims.json")
        for one in json.loads(path.read_text())
    )
    counts = (f"{effects[name]} {name}" for name in ("confirmed", "inconclusive", "contradicted"))
    shown_badges.append(("claims of references", ", ".join(counts)))
    drawn = ""
    for y, (label, value) in enumerate(shown_badges):
        left = 0.0
        for text, colour in ((label, "#5b6672"), (value, "#1a6f8f")):
            width = 6.4 * len(text) + 12
            drawn += (
                f'<rect x="{left:g}" y="{24 * y}" width="{width:g}" height="20" fill="{colour}"/>'
                f'<text x="{left + 6:g}" y="{24 * y + 14}" textLength="{width - 12:g}">{text}'
                "</text>\n"
            )
            left += width
    style = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" fill="#fff"'
    size = f'width="520" height="{24 * len(shown_badges) - 4}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{drawn}</svg>\n'


PAGES: Mapping[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "cli": ("Command line", command_line),
    "yaml": ("YAML files", yaml_files),
    "run": ("Files of a run", files_of_a_run),
    "stores": ("Senses and acts of stores", stores),
    "campaigns": ("All campaigns", all_campaigns),
    "figures": ("All figures and claims", figures),
    "controllers": ("All controllers", controllers),
    "gallery": ("Gallery", gallery),
}


if __name__ == "__main__":
    files = {ROOT / "docs" / "figures" / "tested.svg": badges()}
    for name, (title, page) in PAGES.items():
        text = re.sub(r"\n{3,}", "\n\n", "\n".join([NOTE, f"# {title}\n", *page()])).strip() + "\n"
        files[ROOT / "docs" / f"reference-{name}.md"] = text
    sys.exit(json_schemas.write(files, "reference"))
