"""`hotbed top`: live view of the testbed, once per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from hotbed.options import named
from hotbed.output import JsonFlag
from hotbed.views import TestbedOption


def verb(
    testbed: TestbedOption = None,
    once: Annotated[bool, named("--once", "Print one sample and end.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.2, max=60.0, help="Seconds between looks.")
    ] = 1.0,
    as_json: JsonFlag = False,
) -> None:
    """Pressure, disk, network, primary affinity of every node, client throughput, live."""
    import sys
    from contextlib import closing

    from testbed.choose import choose_partly
    from testbed.client import agent_client

    found = choose_partly(testbed)
    payload = {"interval_s": interval} | ({"count": 1} if once else {})
    with closing(agent_client(found).stream("top", payload)) as samples:
        if as_json:
            _as_json(samples)
        elif once or not sys.stdout.isatty():
            _one_below_another(samples)
        else:
            _on_the_screen(samples)


def _as_json(samples: Iterable[Mapping[str, Any]]) -> None:
    import json

    from hotbed.output import plain

    for sample in samples:
        print(json.dumps(plain(sample)), flush=True)


def _one_below_another(samples: Iterable[Mapping[str, Any]]) -> None:
    from hotbed.top_view import top_view
    from testbed.terminal import console

    for sample in samples:
        console().print(top_view(sample))


def _on_the_screen(samples: Iterable[Mapping[str, Any]]) -> None:
    """Show only the last sample, until Ctrl-C ends the view."""
    from rich.live import Live

    from hotbed.top_view import top_view
    from testbed.terminal import console

    try:
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            for sample in samples:
                live.update(top_view(sample), refresh=True)
    except KeyboardInterrupt:
        pass
