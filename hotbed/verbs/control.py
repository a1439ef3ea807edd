"""`hotbed control`: run a controller on a deployed testbed, inspect it, check its journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hotbed import completion
from hotbed.alone import agent_alone, agent_of
from hotbed.options import argument, from_file, name_values, named, option, quantity
from hotbed.output import JsonFlag, Output, Verbs, new_table
from hotbed.views import TestbedOption
from schemas.errors import UserError

ControllersDir = Annotated[
    list[Path] | None,
    named("--controllers-dir", "Folder of additional controllers; may be repeated."),
]


_MOST = 4  # OSDs in a step's line


group = Verbs(help="Run a controller on a deployed testbed.")


@group.command("list")
def list_(controllers_dir: ControllersDir = None) -> Output:
    """List the controllers with their parameters."""
    from controllers.registry import available, create

    known = available(controllers_dir or ())
    data = [
        {
            "name": name,
            "folder": controller.folder,
            "parameters": dict(create(controller, {}, 0).parameters()),
        }
        for name, controller in sorted(known.items())
    ]
    return Output(data, lambda: _controllers_table(data))


@group.command()
def start(
    name: Annotated[
        str, argument("The controller, such as dlr.", autocompletion=completion.controllers)
    ],
    *,
    parameter: list[str] | None = typer.Option(
        None, "--parameter", "-p", help="NAME=VALUE; may be repeated."
    ),
    parameters_file: Path | None = named(
        "--parameters", "YAML file of parameters; --parameter overrides it.", None
    ),
    seed: int = option("The policy's seed.", 0),
    interval: float = quantity("--interval", "seconds", "Control interval.", 20.0),
    signal: str = option("node, osd or op_r_latency.", "node"),
    act: bool = typer.Option(
        False,
        "--act",
        help="Let the controller change the store. By default, controllers that "
        "move data (ursa, nearest, htoc) only journal their decisions.",
    ),
    controllers_dir: ControllersDir = None,
    testbed: TestbedOption = None,
) -> Output:
    """Start a controller, after undoing the changes of a killed one."""
    from controllers import remote

    parameters = remote.cautious(
        name,
        from_file(parameters_file) | name_values(parameter or [], "theta_i=0.3"),
        act=act,
        controllers_dirs=controllers_dir or (),
    )
    with agent_alone(testbed) as agent:
        started = remote.start(
            agent,
            name,
            parameters=parameters,
            seed=seed,
            interval_s=interval,
            signal=signal,
            controllers_dirs=controllers_dir or (),
        )
    dry = parameters.get("dry_run") in {True, "true", "yes", "on"}
    report = dict(started) | ({"dry_run": dry} if "dry_run" in parameters else {})
    words = "; a dry run: it changes nothing without --act" if dry else ""
    return Output(report, lambda: f"started: {started['name']}{words}{_healed(started)}")


@group.command()
def stop(
    name: str | None = argument("Optional if there is only one.", None),
    testbed: TestbedOption = None,
) -> Output:
    """Stop the controller; the store is put back as it was found."""
    from controllers import remote

    with agent_alone(testbed, whole=False) as agent:
        stopped = remote.stop(agent, name)
    return Output(stopped, lambda: _stopped(stopped))


@group.command()
def status(testbed: TestbedOption = None) -> Output:
    """Show which controller runs and how earlier ones ended."""
    from controllers import remote

    known = remote.status(agent_of(testbed))
    return Output(known, lambda: _status_table(known))


@group.command()
def log(
    name: Annotated[str, argument("The controller.", autocompletion=completion.controllers)],
    out: Path | None = option("New file for the whole journal.", None),
    *,
    follow: bool = typer.Option(
        False, "--follow", "-f", help="Also show new steps, until the controller ends."
    ),
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> Output | None:
    """Show the journal of a controller's last run, a line a step, with the most pressed OSDs."""
    from controllers import remote
    from controllers.journal import parse_journal

    if out is not None and follow:
        raise UserError("--out writes the journal as it is now", do="leave out --follow or --out")
    agent = agent_of(testbed)
    if out is not None:
        return Output({"journal": remote.fetch_journal(agent, name, out)}, lambda: str(out))
    if follow:
        for line in remote.follow(agent, name, lambda why: typer.echo(f"{why} Again.", err=True)):
            print(json.dumps(line) if as_json else _line(line), flush=True)
        return None
    journal = parse_journal(remote.journal_text(agent, name), f"of {name}")
    data = {"header": journal.header, "steps": journal.steps, "footer": journal.footer}
    return Output(data, lambda: _steps_table(data))


@group.command()
def replay(
    journal: Annotated[Path, argument("A journal.jsonl.")],
    controllers_dir: ControllersDir = None,
) -> Output:
    """Recompute every decision of a journal; exit 1 at the first difference."""
    from controllers.journal import read_journal
    from controllers.replay import replay as recompute

    found = recompute(read_journal(journal), controllers_dir or ())
    return Output(found, found.sentence, code=int(not found.equal))


def _healed(result: Mapping[str, Any]) -> str:
    return "; restored first what a killed controller had changed" if result["healed"] else ""


def _stopped(result: Mapping[str, Any]) -> str:
    if not result["was_running"]:
        return "no controller was running" + (
            "; restored what a killed one had changed" if result["healed"] else ""
        )
    left = "stays unchanged" in str(result["reason"])
    found = "" if left else "; the store is restored"
    return f"stopped: {result['name']} ({result['reason']}){found}"


def _controllers_table(data: list[dict[str, Any]]) -> object:
    rows = (
        (row["name"], ", ".join(f"{k}={v}" for k, v in row["parameters"].items()), row["folder"])
        for row in data
    )
    return new_table(("controller", "parameters", "folder"), rows)


def _status_table(known: Mapping[str, Any]) -> object:
    if not known["controllers"]:
        return "no controller has run on this testbed; `hotbed control start NAME` starts one"
    from controllers.loop import EXIT_DIED

    rows = []
    for row in known["controllers"]:
        last, outcome = row["last"] or {}, row["outcome"] or {}
        died = row["leftover"] or outcome.get("code") == EXIT_DIED
        state = "running" if row["running"] else "died" if died else "ended"
        if row["leftover"]:
            state = f"died (still steered: {', '.join(row['steered'])}; hotbed control stop)"
        what = last.get("error") or (f"{last['actions']} actions" if last else "")
        rows.append((row["name"], state, last.get("step"), what, outcome.get("reason")))
    return new_table(("controller", "state", "step", "last step", "ended"), rows)


def _steps_table(data: Mapping[str, Any]) -> object:
    heads = ("step", "t (s)", "pressure (%)", "actions", "sense/decide/act (ms)", "error")
    footer = data["footer"]
    ended = f"ended: {footer['reason']}" if footer else "no end: it still runs or was killed"
    table = new_table(heads, caption=ended)
    for step in data["steps"]:
        spans = (step["sense_s"], step["decide_s"], step["act_s"])
        table.add_row(
            str(step["step"]),
            f"{step['t_s']:.1f}",
            _pressed(step["observation"] or {}),
            _did(step),
            " / ".join("-" if span is None else f"{span * 1000:.0f}" for span in spans),
            step["error"],
        )
    return table


def _line(line: Mapping[str, Any]) -> str:
    """Return a line of a journal for people."""
    if "step" not in line:
        known = line.get("policy", ""), line.get("reason", "")
        return f"{known[0]} begins" if line.get("header") else f"ended: {known[1]}"
    words = (
        _pressed(line["observation"] or {}),
        _did(line),
        line["error"] or "",
    )
    return f"step {line['step']}, {line['t_s']:.1f} s: {' | '.join(filter(None, words))}"


def _pressed(observation: Mapping[str, Any]) -> str:
    """Return the most pressed OSDs with their nodes, and the number of the others."""
    nodes = {str(osd["id"]): osd["node"] for osd in observation.get("osds", ())}
    pressures = observation.get("pressure", {}).items()
    ranked = sorted(pressures, key=lambda item: item[1], reverse=True)
    words = [f"osd.{osd} ({nodes.get(osd, '?')}) {value:.0f}" for osd, value in ranked[:_MOST]]
    return ", ".join([*words, *([f"{len(ranked) - _MOST} more"] if ranked[_MOST:] else [])])


def _did(step: Mapping[str, Any]) -> str:
    """Return what a step changed, or else what it would change."""
    from controllers.steps import action_words

    return ", ".join(action_words(step["actions"])) or _decided(step)


def _decided(step: Mapping[str, Any]) -> str:
    """Return the decision of a planning controller in a step that carried nothing out: a dry run's
    answer."""
    before, after = step["state_before"] or {}, step["state_after"] or {}
    if after.get("decisions", 0) == before.get("decisions", 0) or not after.get("decision"):
        return ""
    made = after["decision"]
    return (
        f"would: {len(made['swaps'])} swaps, {len(made['moves'])} moves over a distance of "
        f"{made['cost']:g} for {len(made['hot'])} hot OSDs"
    )
