"""Numbers as people write them: the same in YAML, in quotes and on the command line."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from schemas.errors import UserError
from schemas.numbers import number
from schemas.yaml_file import load, read
from testbed.spec import quantities
from tests.errors import raises

KINDS = {
    "bytes": (quantities.parse_bytes, TypeAdapter(quantities.Bytes)),
    "bytes/s": (quantities.parse_bytes_per_s, TypeAdapter(quantities.BytesPerSecond)),
    "bits/s": (quantities.parse_bits_per_s, TypeAdapter(quantities.BitsPerSecond)),
    "seconds": (quantities.parse_seconds, TypeAdapter(quantities.Seconds)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "value"),
    [("1000000000", 1e9), ("1e9", 1e9), ("2.5E3", 2500), ("1_000", 1000), ("7.", 7)],
)
def test_a_plain_number_is_the_same_wherever_it_is_written(tmp_path, kind, text, value):
    parse, field = KINDS[kind]
    (tmp_path / "a.yaml").write_text(f"plain: {text}\nquoted: '{text}'\n")
    found = read(tmp_path / "a.yaml")
    assert parse(text) == value
    assert [field.validate_python(found[name]) for name in ("plain", "quoted")] == [value, value]


def test_fractions_units_and_whole_numbers():
    assert quantities.parse_seconds("5e-1") == quantities.parse_seconds("500ms") == 0.5
    assert (
        quantities.parse_bits_per_s("1.5e3kbit") == quantities.parse_bits_per_s("1.5 Mbit") == 1.5e6
    )
    assert quantities.parse_bytes("1e3KiB") == 1_024_000
    # Otherwise a campaign's 1e2 and 100 would be different cells.
    assert [(number(text), type(number(text))) for text in ("1e2", "100", "1.0", "1e300")] == [
        (100, int),
        (100, int),
        (1.0, float),
        (1e300, float),
    ]
    assert number("x1") is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(("0100", "octal"), ("00", "octal"), ("1:30", "base 60")),
        *((text, "is not a") for text in ("-5", "nan", ".inf", "1e999", "", "e9", "4 acres")),
    ],
)
def test_what_is_no_decimal_number_is_refused(kind, text, why):
    with raises(ValueError, why):
        KINDS[kind][0](text)


def test_amounts_for_people_have_a_prefix_and_a_unit():
    amounts = [(1.72e8, "B/s"), (999.7, "B"), (0, "B"), (0.00421, "s"), (42, "s"), (185, "s")]
    shown = ["172 MB/s", "1 kB", "0 B", "4.21 ms", "42 s", "3 min 05 s"]
    assert [quantities.format_si(*each) for each in amounts] == shown
    assert quantities.format_si(float("inf"), "s") == "unlimited"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), True, None])
def test_values_of_yaml_that_are_no_quantity(value):
    with raises(ValueError, "is not a"):
        quantities.parse_bytes(value)


@pytest.mark.parametrize("text", ["0100", "-0_7", "1:30", "190:20:30.15"])
def test_yaml_in_which_a_number_is_not_what_it_looks_like_is_refused(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(f"name: x\nvalues: [1, {text}]\n")
    with raises(UserError, "a.yaml: line 2: '", text):
        read(path)
    path.write_text(f"values: [1, '{text}', 0, 0.5, 0x10, 08:xy]\n")
    assert read(path)["values"] == [1, text, 0, 0.5, 16, "08:xy"]
    assert isinstance(load(f"mode: {text}", decimals=False)["mode"], (int, float))  # Ansible's own
