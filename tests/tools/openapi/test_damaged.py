"""Documents that are damaged at random: what can be loaded is, and the rest is a reason; nothing else is raised."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from toolcrib import SetupError
from toolcrib.core import LoadError
from toolcrib.tools import is_openapi, openapi_source
from toolcrib.tools.openapi.documents import read_text

from ... import fuzz

ODD: list[Any] = [None, True, 0, -1, 1.5, "", "x", "#/", "#/paths", "{", "a" * 300, "\x00", [], [None], ["x"], {}]
ODD += [
    {"": {}},
    {"$ref": "#/components/schemas/A"},
    {"$ref": 5},
    {"$ref": "#/paths/~1a"},
    {"type": ["string", 5]},
    {"x": [{}]},
]

DOCUMENT = read_text(
    b"""
openapi: 3.1.0
info: {title: t, version: "1"}
servers: [{url: "https://{a}.example.com/v1", variables: {a: {default: b, enum: [b]}}}]
security: [{key: []}, {login: [read]}]
tags: [{name: t}]
paths:
  /a/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    get:
      operationId: get
      summary: s
      description: d
      tags: [t]
      parameters:
        - {name: q, in: query, style: form, explode: true, schema: {$ref: "#/components/schemas/A"}}
        - {name: c, in: query, content: {application/json: {schema: {type: object}}}}
        - {$ref: "#/components/parameters/P"}
      responses: {200: {description: "", content: {application/json: {schema: {$ref: "#/components/schemas/A"}}}}}
    post:
      requestBody:
        required: true
        content:
          multipart/form-data:
            schema:
              type: object
              properties: {f: {type: string, format: binary}, l: {type: array, items: {format: binary}}}
            encoding: {f: {contentType: image/png}}
      responses: {default: {$ref: "#/components/responses/R"}}
      servers: [{url: "https://other.example.com"}]
  /b: {$ref: "#/components/pathItems/B"}
  /good: {get: {security: []}}
components:
  schemas:
    A:
      type: object
      required: [a]
      properties: {a: {type: integer, readOnly: true}, b: {$ref: "#/components/schemas/A"}}
  parameters: {P: {name: h, in: header, schema: {type: array}}}
  responses: {R: {description: ""}}
  pathItems: {B: {put: {responses: {201: {description: "", content: {text/plain: {}}}}}}}
  securitySchemes:
    key: {type: apiKey, in: query, name: k}
    login: {type: oauth2, flows: {implicit: {authorizationUrl: "https://a", scopes: {}}}}
""",
    "api.yaml",
)


def places(value: Any) -> list[tuple[Any, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [pair for key, each in inner for pair in ((value, key), *places(each))]


@pytest.mark.parametrize("seed", fuzz.seeds(1))
def test_a_damaged_document_is_loaded_as_far_as_it_goes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    file = tmp_path / "api.json"
    loaded = refused = 0
    for _ in range(120):
        document = copy.deepcopy(DOCUMENT)
        for _ in range(chance.choice((1, 1, 2, 5))):
            holder, key = chance.choice(places(document))
            if isinstance(holder, dict) and chance.random() < 0.2:
                holder[chance.choice(["$ref", "x", "properties", "allOf", "items", "type", ""])] = holder.pop(key)
            else:
                holder[key] = copy.deepcopy(chance.choice(ODD))
        file.write_text(json.dumps(document))
        is_openapi(file.read_bytes())
        try:
            source = openapi_source(file)
        except (LoadError, SetupError):
            refused += 1
            continue
        loaded += 1
        assert len({tool.spec.name for tool in source.tools()}) == len(source.tools())
        assert all(problem.reason for problem in source.problems)
    assert loaded > 60
    assert refused < 60
