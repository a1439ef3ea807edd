"""Bounds on what reading a stranger's file may cost: each file is checked before it is parsed.

`hotbed.contained` limits the whole reading; a sentence from here names the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from schemas.errors import UserError
from schemas.yaml_file import ContentError, survey

MIB = 2**20
MOST_YAML = 2 * MIB
MOST_PIXELS = 8_000_000
LEAST_TABLE, TABLE_RATIO = 64 * MIB, 64
"""Bytes that every Parquet file may decode to, and times its size that a larger one may."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_SIMPLE = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings with every value in the file: a delta can stand for any length."""


def require(files: Mapping[str, Path], source: Path) -> None:
    """Require that files (by their names in the bundle `source`) can be read at a moderate cost.

    Raises:
        UserError: names the first that cannot.
    """
    for name, file in files.items():
        look = _LOOKS.get(Path(name).suffix)
        why = None if look is None else look(file)
        if why is not None:
            raise UserError(f"{source}: {name} {why}; do not trust it.")


def _json(file: Path) -> str | None:
    try:
        json.loads(file.read_bytes())
    except RecursionError:
        return "is nested too deep"
    except ValueError:  # whoever needs the file says so
        pass
    return None


def _yaml(file: Path) -> str | None:
    if file.stat().st_size > MOST_YAML:
        return f"is YAML of more than {MOST_YAML // MIB} MiB"
    try:
        survey(file.read_text(errors="replace"), allowed=False)
    except ContentError as error:
        return f"cannot be: {error}"
    return None


def _picture(file: Path) -> str | None:
    from PIL.PngImagePlugin import PngImageFile

    try:
        with PngImageFile(file) as picture:
            width, height = picture.size
    except Exception:  # none that anybody will be able to read
        return None
    if width * height > MOST_PIXELS:
        return f"is a picture of {width} x {height} points, more than {MOST_PIXELS:,}"
    return None


def _table(file: Path) -> str | None:
    import pyarrow as pa

    most = max(LEAST_TABLE, TABLE_RATIO * file.stat().st_size)
    try:
        size = _decoded_bytes(file, most)
    except (pa.ArrowException, OSError, ValueError):  # whoever needs the file says so
        return None
    if size is None:
        return "is a table in an encoding that a bundle does not use"
    if size > most:
        return f"is a table of {size / MIB:,.0f} MiB or more in {file.stat().st_size} bytes"
    return None


def _decoded_bytes(file: Path, most: int) -> int | None:
    """Bytes that a Parquet file decodes to, at most, or something above `most`; None if that cannot
    be known. Texts are read only where their number and the file's size leave it open."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        about = opened.metadata
        parts = [
            about.row_group(group).column(column)
            for group in range(about.num_row_groups)
            for column in range(about.num_columns)
        ]
    if any(not _SIMPLE.issuperset(part.encodings) for part in parts):
        return None
    packed: int = sum(part.total_uncompressed_size for part in parts)
    numbers: int = sum(
        part.num_values * _WIDTHS[part.physical_type]
        for part in parts
        if part.physical_type in _WIDTHS
    )
    texts = [part for part in parts if part.physical_type not in _WIDTHS]
    longest: int = sum(part.num_values * part.total_uncompressed_size for part in texts)
    names = sorted({part.path_in_schema for part in texts})
    nested = any("." in name for name in names)
    if packed + numbers > most or packed + numbers + longest <= most or nested:
        return packed + numbers + longest
    return packed + numbers + _texts(file, names, most)


def _texts(file: Path, texts: list[str], most: int) -> int:
    """Bytes of a Parquet file's texts, as far as `most`, by row groups and without making them."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    total = 0
    with pq.ParquetFile(file, read_dictionary=texts) as opened:
        for group in range(opened.num_row_groups):
            for column in opened.read_row_group(group, columns=texts).columns:
                for chunk in column.chunks:
                    longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
                    total += len(chunk) * (longest + 8)
            if total > most:
                break
    return total


_LOOKS: Mapping[str, Callable[[Path], str | None]] = {
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".cff": _yaml,
    ".png": _picture,
    ".parquet": _table,
}
