"""What an operation promises of its results, and whether an answer keeps that."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pydantic_core

from ...core import Encode, ToolError
from .operation import Operation
from .references import Unusable
from .schemas import Schemas


def promise(operation: Operation, schemas: Schemas) -> Mapping[str, Any] | None:
    """The schema of what success brings; None where nothing can be promised of it."""
    try:
        if not operation.responses:
            return None
        closed = schemas.closed({str(i): each for i, each in enumerate(operation.responses)}, "received")
        parts, definitions = list(closed.schemas.values()), closed.definitions
        if not all(isinstance(part, dict) for part in parts):
            return None
        whole = parts[0] if len(parts) == 1 else {"anyOf": parts}
        if whole.keys() == {"$ref"}:  # the root of what a tool promises is best an object itself
            whole = definitions[str(whole["$ref"]).rpartition("/")[2]]
        whole = {**whole, "$defs": definitions} if definitions else whole
        if not closed.is_valid:
            jsonschema_rs.meta.validate(whole)
    except (Unusable, jsonschema_rs.ValidationError, ValueError):
        return None
    return whole


def promised_json(output_schema: Mapping[str, Any], tool: str) -> Encode:
    """What writes a result that is as *output_schema* has it. Its validator is made with the first result."""
    from ...schema.serialize import serialize_any

    check: jsonschema_rs.Draft202012Validator | None = None

    def write(value: Any) -> str:
        nonlocal check
        text = serialize_any(tool, value)
        data = pydantic_core.from_json(text)
        if check is None:
            check = _validator(output_schema, tool)
        if check.is_valid(data):
            return text
        found = next(iter(check.iter_errors(data)), None)
        place = "" if found is None else "/".join(("", *map(str, found.instance_path)))
        why = "" if found is None else f": {found.message[:200]} (at '{place[:100]}')"
        raise _broken(tool, f"the server's answer is not what its OpenAPI document promises{why}")

    return write


def _validator(output_schema: Mapping[str, Any], tool: str) -> jsonschema_rs.Draft202012Validator:
    from ...schema.expansion import MOST, is_plainly_bounded, leads_to_itself, times_looked
    from ...schema.json_schema_validator import validator

    try:
        if is_plainly_bounded(output_schema) or (
            leads_to_itself(output_schema) is None and times_looked(output_schema) <= MOST
        ):
            return validator(output_schema, formats=False)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError):
        pass
    raise _broken(tool, "what its OpenAPI document promises of the answer cannot be checked")


def _broken(tool: str, why: str) -> ToolError:
    return ToolError(
        f"'{tool}' was carried out, but {why}. The operator can set `output_schemas = false` for this source.",
        "invalid_result",
    )
