"""`hotbed ui`: live view in the browser."""

from __future__ import annotations

from pathlib import Path

import typer

from hotbed.options import named, option
from hotbed.views import TestbedOption


def verb(
    port: int = typer.Option(
        8642, min=0, max=65535, help="Port on 127.0.0.1; 0 takes any free one."
    ),
    no_browser: bool = named("--no-browser", "Print the address only.", False),
    testbed: TestbedOption = None,
    artifacts: Path = option("Folder of the runs and reports.", Path("artifacts")),
    prefix: str = option("Path in front of all paths, behind a proxy.", ""),
) -> None:
    """Show testbed, campaigns, runs, journals and reports in the browser, live."""
    import os
    import webbrowser

    from hotbed.ui import TOKEN_VARIABLE
    from hotbed.ui.pages import serve
    from hotbed.ui.sources import watched

    token = os.environ.get(TOKEN_VARIABLE, "")
    server, address = serve(watched(testbed), artifacts, port=port, prefix=prefix, token=token)
    print(address.partition("?")[0] if token else address, flush=True)
    screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if screen and not no_browser:
        webbrowser.open(address)
    server.start()
    server.io_loop.start()
