"""Which controllers there are: folders with a policy.py, ours and the user's."""

from __future__ import annotations

from pathlib import Path

from campaigns.campaign_file import ROOT
from schemas.errors import UserError

OURS = ROOT / "controllers"


def controller_folders(extra: Path | None = None) -> dict[str, Path]:
    """Folder of each controller by name; those of `extra` come first.

    Raises:
        UserError: `extra` is no folder, or holds no controller.
    """
    found = _controllers(OURS)
    if extra is not None:
        if not extra.is_dir():
            raise UserError(f"--controllers-dir {extra}: there is no such folder.")
        theirs = _controllers(extra)
        if not theirs:
            raise UserError(
                f"--controllers-dir {extra}: holds no controller; a controller is a folder with "
                "a policy.py (docs/add-a-controller.md)."
            )
        found |= theirs
    return found


def _controllers(folder: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/policy.py"))}
