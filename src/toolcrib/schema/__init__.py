"""JSON Schema from Python types; validation, repair and errors of what a model sent; schemas for providers."""

from .describe import closest_match, did_you_mean, display_name
from .from_python import Arguments
from .handles import handle_parameters, object_members, with_handles
from .json_text import JSONError, parse_exact, parse_json, write_json
from .models import arguments_model, model_from_schema, read_arguments
from .reading import Document
from .required import require_schema
from .serialize import has_no_schema, read_back, return_serializer, scalar_schema, serialize_any, written
from .signature import (
    EMPTY,
    Doc,
    Parameter,
    Signature,
    enclosing_names,
    is_plain_parameter,
    read_docstring,
    read_signature,
    returns_awaitable,
    unwrap_partials,
)
from .validate import (
    Elicitation,
    ModelReader,
    arguments_check,
    document_of,
    json_schema_check,
    model_check,
    with_documents,
)
from .view import SchemaView, inlined, is_valid

__all__ = [
    "Document",
    "EMPTY",
    "Arguments",
    "Doc",
    "JSONError",
    "Elicitation",
    "ModelReader",
    "Parameter",
    "SchemaView",
    "Signature",
    "arguments_check",
    "arguments_model",
    "closest_match",
    "did_you_mean",
    "document_of",
    "display_name",
    "enclosing_names",
    "handle_parameters",
    "has_no_schema",
    "inlined",
    "is_plain_parameter",
    "is_valid",
    "json_schema_check",
    "model_check",
    "model_from_schema",
    "object_members",
    "parse_exact",
    "parse_json",
    "read_back",
    "read_arguments",
    "read_docstring",
    "read_signature",
    "require_schema",
    "return_serializer",
    "returns_awaitable",
    "scalar_schema",
    "serialize_any",
    "unwrap_partials",
    "with_documents",
    "with_handles",
    "write_json",
    "written",
]
