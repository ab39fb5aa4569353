"""What each provider's schema dialect accepts, as data, each with its source. Limits change: these are of autumn 2026.

Loose dialects accept nearly any JSON Schema and enforce none of it; strict ones enforce what they accept, and refuse
anything else with an error for the whole request.
"""

from ..schema.lower import Accepts as Accepts
from ..schema.view import COMBINING

_ROOT = frozenset({*COMBINING, "enum", "const", "not", "$ref", "$dynamicRef"})

_DESCRIBING = frozenset({"title", "description"})

# Ranges in {}, classes, groups, alternatives and anchors; no look-around, back-references or word boundaries.
_PLAIN_PATTERN = r"(?:[^\\(]|\\[dDwWsSnrtfv.\\/\[\](){}?*+^$|-]|\((?!\?)|\(\?:)*"

OPENAI_STRICT = Accepts(
    name="OpenAI",
    source="platform.openai.com/docs/guides/structured-outputs: supported schemas",
    keywords=_DESCRIBING
    | {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minItems", "maxItems"},
    not_at_root=_ROOT,
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}),
    patterns=_PLAIN_PATTERN,
    needs_items=True,
    closed=True,
    all_required=True,
    max_depth=10,
    max_members=5000,
    max_values=1000,
    max_characters=120_000,
    large_enum=(250, 15_000),
)

OPENAI = Accepts(
    name="OpenAI",
    # "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level";
    # "array schema missing items".
    source="its errors 400 invalid_function_parameters, and shared/function_definition.py of the openai package",
    not_at_root=_ROOT,
    needs_items=True,
    strictly=OPENAI_STRICT,
)
"""Chat Completions, and servers that use its format: Mistral, Groq, Ollama, vLLM."""

RESPONSES = OPENAI
"""The Responses API accepts the same. It is strict unless `strict` is false, so `strict` must always be sent."""

ANTHROPIC_STRICT = Accepts(
    name="Anthropic",
    source="platform.claude.com/docs: structured outputs, limitations; its package's lib/_parse/_transform.py",
    keywords=_DESCRIBING
    | {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"format", "minItems", "default"},
    not_at_root=_ROOT,
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}),
    at_most=(("minItems", 1),),
    recursion="none",
    closed=True,
    member_names=r"[a-zA-Z0-9_.-]{1,64}",
    most_tools=20,
    most_optional=24,
    most_unions=16,
)

ANTHROPIC = Accepts(
    name="Anthropic",
    # "input_schema does not support oneOf, allOf, or anyOf at the top level";
    # "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'".
    source="platform.claude.com/docs: define tools, and its errors 400 invalid_request_error",
    not_at_root=_ROOT,
    member_names=r"[a-zA-Z0-9_.-]{1,64}",
    strictly=ANTHROPIC_STRICT,
)

GEMINI = Accepts(
    name="Gemini",
    # Those of the last line are not documented: its API answers 200 to them in recordings.
    source="ai.google.dev: responseJsonSchema, parametersJsonSchema: supported properties; google-genai's types.py",
    keywords=_DESCRIBING
    | {"type", "format", "enum", "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf"}
    | {"properties", "additionalProperties", "required"}
    | {"pattern", "minLength", "maxLength", "uniqueItems", "default"},
    not_at_root=_ROOT,
    enum_kinds=frozenset({"string", "integer", "number"}),
    recursion="optional",
    names=r"[A-Za-z_][A-Za-z0-9_.-]{0,63}",
)
"""For `parametersJsonSchema`. It accepts `oneOf` too and reads it as `anyOf`, so `anyOf` is sent."""

BEDROCK = Accepts(
    name="Bedrock",
    source="botocore's bedrock-runtime: ToolSpecification, ToolName, ToolInputSchema (the top level is an object)",
    # Its models differ; Anthropic's, which most requests are for, refuse these.
    not_at_root=_ROOT,
    member_names=r"[a-zA-Z0-9_.-]{1,64}",
    strictly=ANTHROPIC_STRICT,
)

MCP = Accepts(
    name="MCP",
    source="modelcontextprotocol.io: Tool.inputSchema is a JSON Schema 2020-12 of an object; tool names as in SEP-986",
    names=r"[A-Za-z0-9_./-]{1,128}",
    name_length=128,
)
