"""JSON Schema of ``case.json``: ``case.schema.json``, which refers to one schema per kind beside it."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from conformance.cases import CaseError


def problems(document: Any) -> list[str]:
    """What is wrong with the content of a ``case.json``, one line each: where, and what. Empty if it is right.

    Raises CaseError if the package jsonschema is not installed.
    """
    return [f"{error.json_path}: {error.message}" for error in sorted(_validator().iter_errors(document), key=str)]


@cache
def _validator() -> Any:
    try:
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012
    except ImportError as error:
        raise CaseError("checking a case against its schema needs the package jsonschema") from error
    schemas = {
        file.name: json.loads(file.read_text(encoding="utf-8"))
        for file in resources.files(__name__).iterdir()
        if file.name.endswith(".schema.json")
    }
    registry = Registry().with_resources((name, DRAFT202012.create_resource(text)) for name, text in schemas.items())
    return Draft202012Validator(schemas["case.schema.json"], registry=registry)
