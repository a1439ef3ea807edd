"""Engine in its own process, to be killed: CAMPAIGN_FILE ARTIFACTS."""

from __future__ import annotations

import sys
from pathlib import Path

from campaigns.engine.display import Lines
from campaigns.engine.session import Request, run

QUICK_CELL = (sys.executable, str(Path(__file__).with_name("quick_cell.py")))


def main() -> int:
    request = Request(sys.argv[1], artifacts=Path(sys.argv[2]))
    result = run(request, progress=Lines(), command=QUICK_CELL)
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
