"""How long 1000 runs take to be bundled and verified (synthetic folders, real archive and
analysis)."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analysis"))

from synthetic import cells, write_campaign

from analysis.bundle.build import Inputs, build
from analysis.bundle.verify import verify
from schemas.bundle import Author

RUNS = 1000
LIMIT_S = 60.0
# Of what a real run leaves beside the files of the analysis: a recording and a tool's own words.
LOG_LINE = '{"wall": 1795297493.168, "values": {"osd0": {"disk_util": 97.466, "pressure": 85.682}}}'
LOG_LINES = 1200  # about 100 kB


def main() -> None:
    """Print the result."""
    per_block = sum(1 for _ in cells())
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        campaign = write_campaign(place / "artifacts", blocks=-(-RUNS // per_block))
        for record in campaign.glob("*/attempt-1/run.json"):
            log = record.parent / "logs" / "recording.jsonl"
            log.parent.mkdir()
            log.write_text(f"{LOG_LINE}\n" * LOG_LINES)
        author = Author(name="A bench")
        inputs = Inputs(files={}, hotbed_version="0", commit=None, authors=(author,))
        start = time.perf_counter()
        made = build(place / "artifacts", "dlr-full", place / "x.zip", inputs)
        bundled = time.perf_counter()
        checked = verify(made.path)
        end = time.perf_counter()
        assert checked.ok, checked.differences
    parts = f"bundle {bundled - start:.1f} s, verify {end - bundled:.1f} s"
    result = {
        "name": f"bundle and verify {made.derived.runs} runs",
        "value": end - start,
        "unit": "s",
        "limit": LIMIT_S,
        "n": 1,
        "note": f"{parts}; {made.bytes / 1e6:.0f} MB packed",
    }
    print(json.dumps([result]))


if __name__ == "__main__":
    main()
