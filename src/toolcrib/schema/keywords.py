"""The keywords of JSON Schema 2020-12 that demand something: of which kinds of values, and when of none."""

from collections.abc import Mapping
from typing import Any

NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRINGS = ("minLength", "maxLength", "pattern", "format")
ARRAYS = ("minItems", "maxItems", "uniqueItems")
OBJECTS = ("required", "minProperties", "maxProperties", "dependentRequired")
ASSERTIONS = (*NUMBERS, *STRINGS, *ARRAYS, *OBJECTS)
OF_KINDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(NUMBERS, ("integer", "number")),
    **dict.fromkeys(STRINGS, ("string",)),
    **dict.fromkeys((*ARRAYS, "contains", "prefixItems", "items", "unevaluatedItems"), ("array",)),
    **dict.fromkeys((*OBJECTS, "propertyNames", "dependentSchemas", "unevaluatedProperties"), ("object",)),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties"), ("object",)),
}
SAYS_NOTHING: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("minLength", "minItems", "minProperties"), (0,)),
    "uniqueItems": (False,),
    "required": ([],),
    "dependentRequired": ({},),
}
# What a format that is no known one demands is up to whoever reads it; no check holds it.
FORMATS = frozenset(
    {"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri"}
    | {
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
        "uuid",
    }
)
HANDLED = frozenset(
    {*ASSERTIONS, "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "minContains"}
    | {"maxContains", "properties", "patternProperties", "additionalProperties", "prefixItems", "items", "not", "if"}
    | {"then", "else", "contains", "propertyNames", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties"}
)
