"""`hotbed top`: the testbed live, a second at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from hotbed.output import JsonFlag
from hotbed.views import TestbedOption


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def top(
        testbed: TestbedOption = None,
        once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
        interval: Annotated[
            float, typer.Option(min=0.2, max=60.0, help="Seconds between looks.")
        ] = 1.0,
        as_json: JsonFlag = False,
    ) -> None:
        """Pressure, disk, network, primary affinity of every node, client throughput, live."""
        import json
        import sys
        from contextlib import closing

        from rich.live import Live

        from hotbed.output import console, plain
        from hotbed.top_view import top_view
        from testbed.agent.client import agent_client
        from testbed.choose import choose_ready

        _, found = choose_ready(testbed)
        payload = {"interval_s": interval} | ({"count": 1} if once else {})
        with closing(agent_client(found).stream("top", payload)) as samples:
            if as_json:
                for sample in samples:
                    print(json.dumps(plain(sample)), flush=True)
            elif once or not sys.stdout.isatty():
                for sample in samples:
                    console().print(top_view(sample))
            else:
                try:
                    with Live(console=console(), screen=True, auto_refresh=False) as live:
                        for sample in samples:
                            live.update(top_view(sample), refresh=True)
                except KeyboardInterrupt:
                    return  # the way to leave it
