"""Write the JSON Schemas of the YAML files that people write, for editors (schemas/json).

    python -m tools.json_schemas           write them
    python -m tools.json_schemas --check   exit 1 if a committed schema is not up to date

The models stay as they are, because their code is part of the identity of runs. Descriptions come
from docstrings, which are not: the entry of a field, or the sentences that name it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from campaigns.papers.prioritymeister.topology import Topology
from campaigns.papers.registry import KINDS
from schemas.bundle import About
from schemas.campaign import Campaign, Grid
from schemas.cells import Cells, cells_of
from schemas.cells.base import SIZE
from testbed.simulated.parameters import ModelParameters
from testbed.sites.chameleon.options import ChameleonOptions
from testbed.sites.inventory.hosts import InventoryOptions, ShortFile
from testbed.sites.local.image import SUITES
from testbed.spec import TestbedSpec, quantities

FOLDER = Path(__file__).resolve().parents[1] / "schemas" / "json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
VALUES = "additionalProperties"
Change = Callable[[JsonSchemaValue], JsonSchemaValue]


def description(model: type[BaseModel], field: str) -> str:
    """Return the description of a field in the docstrings of a model and its bases; empty if they
    do not name it."""
    ours = [one for one in model.__mro__[:-1] if one is not BaseModel]
    parts = [part for one in ours for part in _parts(one.__doc__ or "")]
    entry = re.compile(rf"(?:`\w+`, )*`{field}`(?:, `\w+`)*: ")
    entries = [part[found.end() :] for part in parts if (found := entry.match(part))]
    text = entries[0] if entries else " ".join(part for part in parts if f"`{field}`" in part)
    return text[:1].upper() + text[1:].rstrip(".;") + "." if text else ""


def _parts(docstring: str) -> list[str]:
    """Return the sentences of a docstring, and its attributes as "`name`: meaning"."""
    text, _, section = inspect.cleandoc(docstring).partition("\nAttributes:\n")
    parts = re.split(r"(?<=\.) (?=[A-Z`])|(?<=;) (?=`)", " ".join(text.split()))
    for entry in re.split(r"\n(?=    \w)", f"\n{section}")[1:]:
        names, _, meaning = entry.strip().partition(":")
        parts.append(f"`{names.replace(', ', '`, `')}`: {' '.join(meaning.split())}")
    return parts


def _also(schema: JsonSchemaValue, *kinds: str) -> JsonSchemaValue:
    """Accept further kinds of values; limits hold for values of their own kind only."""
    own = schema["type"]
    return schema | {"type": sorted({*([own] if isinstance(own, str) else own), *kinds})}


def _quantity(units: Iterable[str]) -> Change:
    """Accept a number, or a text with a number and one of `units`."""
    listed = "|".join(sorted(map(re.escape, filter(None, units))))
    pattern = rf"^\s*[0-9._]+([eE][-+]?[0-9]+)?\s*({listed})?\s*$"
    return lambda schema: _also(schema, "number", "string") | {"pattern": pattern}


def _deployer(schema: JsonSchemaValue) -> JsonSchemaValue:
    return {"if": {"type": "string"}, "then": schema["properties"]["kind"], "else": schema}


def _store(schema: JsonSchemaValue) -> JsonSchemaValue:
    del schema["required"], schema["allOf"][0]["if"]["required"]  # Ceph by default
    return schema


def _devices(schema: JsonSchemaValue) -> JsonSchemaValue:
    return _also(schema, "string", "array") | {"items": {"type": "string"}}


SHORT_FORMS: Mapping[str, Change] = {
    "parse_bytes": _quantity(quantities._BYTES),
    "parse_bytes_per_s": _quantity(quantities._BYTES_PER_S),
    "parse_bits_per_s": _quantity(quantities._BITS_PER_S),
    "parse_seconds": _quantity(quantities._SECONDS),
    "<lambda>": _quantity(quantities._BITS_PER_S),
    "JumpOption._from_text": lambda schema: _also(schema, "string"),
    "HostOptions._from_text": lambda schema: _also(schema, "string") | {"required": ["address"]},
    "DevicesOfNode._from_text": _devices,
    "as_list": lambda schema: _also(schema, "string") if "type" in schema else schema,
    "_by_name": _deployer,
    "_ceph_by_default": _store,
    "TopologyHost._short": lambda it: it | {VALUES: {"anyOf": [{"type": "string"}, it[VALUES]]}},
    "About._as_written": lambda schema: _also(schema, "number"),
}
"""Further values that a model accepts, by the function that reads them before its own check."""


def cases(key: str, by_value: Mapping[str, JsonSchemaValue]) -> JsonSchemaValue:
    """Return a schema selected by the value of `key`: an editor explains it better than `anyOf`."""
    return {
        "properties": {key: {"enum": list(by_value)}},
        "allOf": [
            {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": schema}
            for value, schema in by_value.items()
        ],
    }


class EditorSchema(GenerateJsonSchema):
    """JSON Schema of a model as people write it, with descriptions and without titles."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a model's schema with descriptions of its fields."""
        made, model = super().model_schema(schema), schema["cls"]
        for name, field in made["properties"].items():
            field.pop("title", None)  # it only repeats the name
            if text := description(model, name):
                field["description"] = text
        del made["title"]
        about = [part for part in _parts(model.__doc__ or "") if not part.startswith("`")]
        return made | {"description": " ".join(about)}

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        """Return the schema with the short forms that the function reads."""
        made = super().function_before_schema(schema)
        name = schema["function"]["function"].__qualname__
        return SHORT_FORMS[name](made) if name in SHORT_FORMS else made

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the value's own schema with null as another kind."""
        inner = self.generate_inner(schema["schema"])
        plain = "type" in inner and "enum" not in inner
        return _also(inner, "null") if plain else {"anyOf": [inner, {"type": "null"}]}

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return the schemas selected by the discriminator."""
        key = str(schema["discriminator"])
        by_tag = {str(tag): self.generate_inner(one) for tag, one in schema["choices"].items()}
        return cases(key, by_tag) | {"type": "object", "required": [key]}


def _models(*models: type[BaseModel]) -> JsonSchemaValue:
    """Return the definitions of models, and of the models that they use, by name."""
    made = models_json_schema([(m, "validation") for m in models], schema_generator=EditorSchema)
    return dict(made[1]["$defs"])


def _ref(name: str) -> JsonSchemaValue:
    return {"$ref": f"#/$defs/{name}"}


def _file(model: type[BaseModel], *others: type[BaseModel]) -> JsonSchemaValue:
    return _ref(model.__name__) | {"$defs": _models(model, *others)}


def spec_schema() -> JsonSchemaValue:
    """Return the schema of a spec; the kind of site selects the site's options."""
    made = _file(TestbedSpec, InventoryOptions, ChameleonOptions)
    options = {
        "local": {"properties": {"suite": {"enum": list(SUITES)}}, VALUES: False},
        "inventory": _ref("InventoryOptions"),
        "chameleon": _ref("ChameleonOptions"),
    }
    chosen = cases("kind", {kind: {"properties": {"options": options[kind]}} for kind in options})
    del chosen["allOf"][0]["if"]["required"]  # local by default
    site, nfs = made["$defs"]["SiteSpec"], made["$defs"]["NfsSpec"]["properties"]
    site["allOf"] = chosen["allOf"]
    site["properties"]["kind"] |= chosen["properties"]["kind"]
    nfs["profile"] = _also(nfs["profile"], "string")  # a file's name
    return made


def campaign_schema() -> JsonSchemaValue:
    """Return the schema of a campaign; a key of the file selects the kind, and the kind (with MOS,
    also the ground) the parameters of cells."""
    defs = _models(Campaign, *(one.schema for one in KINDS))
    for model in (Campaign, *(one.schema for one in KINDS)):
        made, cells = defs[model.__name__], cells_of(model.kind, "local")
        sim = cells_of(model.kind, "sim")
        usual = _of_cells(defs, cells, model.kind)
        if sim is cells:
            made["properties"] |= usual
            continue
        made["properties"] |= {name: {"description": usual[name]["description"]} for name in usual}
        made["if"] = {"properties": {"ground": {"const": "sim"}}, "required": ["ground"]}
        made["then"] = {"properties": _of_cells(defs, sim, f"{model.kind}-sim")}
        made["else"] = {"properties": usual}
    chosen: list[JsonSchemaValue] = []
    keys: dict[str, list[str]] = {}
    for one in KINDS:
        defs[one.schema.__name__]["properties"][one.key]["description"] = "Kind of the campaign."
        chosen += cases(one.key, {one.value: _ref(one.schema.__name__)})["allOf"]
        keys.setdefault(one.key, []).append(one.value)
    plain = {"not": {"anyOf": [{"required": [key]} for key in keys]}}
    return {
        "type": "object",
        "properties": {key: {"enum": values} for key, values in keys.items()},
        "allOf": [*chosen, {"if": plain, "then": _ref("Campaign")}],
        "$defs": defs,
    }


def _of_cells(defs: JsonSchemaValue, cells: Cells[Any], name: str) -> JsonSchemaValue:
    """Define grids with the parameters of `cells`; return the properties of a campaign with these
    parameters."""
    members = _models(*cells.members)
    defs |= {f"{name}.{key}": _value(key, cells, members) for key in cells.names}
    values = {key: _ref(f"{name}.{key}") for key in cells.names}
    cell = {"type": "object", "properties": values, VALUES: False}
    several = {key: {"type": "array", "minItems": 1, "items": one} for key, one in values.items()}
    own = {"vary": cell | {"properties": several, "minProperties": 1}, "fixed": cell}
    own |= {"exclude": {"type": "array", "items": cell}}
    grid = {key: one | {"description": description(Grid, key)} for key, one in own.items()}
    defs[f"{name}.grid"] = defs["Grid"] | {"properties": defs["Grid"]["properties"] | grid}
    made = {
        "grids": {"type": "array", "minItems": 1, "items": _ref(f"{name}.grid")},
        "parameters": cell,
    }
    return {key: one | {"description": description(Campaign, key)} for key, one in made.items()}


def _value(name: str, cells: Cells[Any], members: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of a parameter that any of the models of `cells` has."""
    if name == SIZE:
        return {"type": "string", "description": cells.members[0].allowed(SIZE)}
    having = [one.__name__ for one in cells.members if name in one.model_fields]
    found = [dict(members[one]["properties"][name]) for one in having]
    text = max(one.pop("description", "") for one in found)
    for one in found:
        one.pop("default", None)
    values = [one.get("enum", [one["const"]] if "const" in one else []) for one in found]
    different = [one for at, one in enumerate(found) if one not in found[:at]]
    made = different[0] if len(different) == 1 else {"anyOf": different}
    if all(values):
        made = {"enum": list(dict.fromkeys(value for one in values for value in one))}
    return made | {"description": text}


SCHEMAS: Mapping[str, Callable[[], JsonSchemaValue]] = {
    "campaign": campaign_schema,
    "spec": spec_schema,
    "model": lambda: _file(ModelParameters),
    "topology": lambda: _file(Topology),
    "inventory": lambda: _file(ShortFile),
    "about": lambda: _file(About),
}
"""Kinds of files: the name of the schema, and the function that makes it."""


def write(texts: Mapping[Path, str], tool: str) -> int:
    """Write files that are not up to date, or with --check name them; return the exit code."""
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path} is not up to date: run python -m tools.{tool}")
        else:
            path.write_text(texts[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    made = {name: {"$schema": DIALECT} | make() for name, make in SCHEMAS.items()}
    texts = {
        FOLDER / f"{name}.json": json.dumps(one, indent=1, ensure_ascii=False) + "\n"
        for name, one in made.items()
    }
    sys.exit(write(texts, "json_schemas"))
