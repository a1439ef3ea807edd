"""Live view in the browser: `hotbed ui`. Panel is imported by the pages only."""

from __future__ import annotations

import secrets
import sys
from typing import Any

TOKEN_VARIABLE, TOKEN_HEADER = "HOTBED_UI_TOKEN", "X-Hotbed-Token"


def in_jupyter() -> dict[str, Any]:
    """Return the settings with which jupyter-server-proxy offers the live view in JupyterLab. Each
    request that Jupyter has let through carries the token in a header."""
    token = secrets.token_urlsafe(32)
    hotbed = [sys.executable, "-m", "hotbed.cli", "ui"]
    return {
        "command": [*hotbed, "--port", "{port}", "--no-browser", "--prefix", "{base_url}hotbed"],
        "environment": {TOKEN_VARIABLE: token},
        "request_headers_override": {TOKEN_HEADER: token},
        "absolute_url": True,
        "timeout": 60.0,
        "new_browser_tab": True,
        "launcher_entry": {"title": "Hotbed", "category": "Other"},
    }
