"""`hotbed exec`: one command on many nodes."""

from __future__ import annotations

import sys
from typing import Annotated

from hotbed.options import argument
from hotbed.output import JsonFlag, Output
from hotbed.views import TestbedOption

CONTEXT = {"ignore_unknown_options": True}


def verb(
    nodes: Annotated[str, argument("Names, groups or roles, separated by commas; or all.")],
    command: Annotated[list[str], argument("Command after --; a single word is a shell line.")],
    testbed: TestbedOption = None,
    as_json: JsonFlag = False,
) -> Output:
    """Run a command on nodes in parallel; exit 1 when it failed on any.

    Ctrl-C ends the command on every node.
    """
    from testbed.choose import choose_partly, select
    from testbed.reach import run_on

    found = choose_partly(testbed)
    chosen = select(found, nodes)
    width = max(len(node.name) for node in chosen)
    lines: dict[str, tuple[list[str], list[str]]] = {node.name: ([], []) for node in chosen}

    def show(node: str, line: str, is_error: bool) -> None:
        if as_json:
            lines[node][is_error].append(line)
            return
        stream = sys.stderr if is_error else sys.stdout
        print(f"{node:<{width}} | {line}", file=stream, flush=True)

    codes = run_on(found, chosen, command, show)
    facts = {
        node: {"exit_code": code, "stdout": lines[node][0], "stderr": lines[node][1]}
        for node, code in codes.items()
    }
    for node, code in codes.items():
        if code != 0 and not as_json:
            print(f"{node:<{width}} | exit code {code}", file=sys.stderr)
    return Output(facts, lambda: None, int(any(codes.values())))
