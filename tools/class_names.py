"""Print class names that occur twice in Python, tests excluded; exit 1 if there are any.

`_Name` and `Name` count as the same. Usage: ``python tools/class_names.py``.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def places() -> dict[str, list[str]]:
    """Return the places of every class by its name without leading underscores."""
    found = defaultdict(list)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py", ":!tests"],
        check=True,
        capture_output=True,
        text=True,
    )
    for path in filter(Path.is_file, map(Path, listed.stdout.splitlines())):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(f"{path}:{node.lineno}")
    return found


def main() -> int:
    """Print each double name with its places."""
    double = {name: where for name, where in places().items() if len(where) > 1}
    for name, where in sorted(double.items()):
        print(f"class {name} occurs {len(where)} times: {' '.join(where)}")
    return 1 if double else 0


if __name__ == "__main__":
    sys.exit(main())
