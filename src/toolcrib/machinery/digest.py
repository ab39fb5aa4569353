"""What binds an answer to one call: a digest of who calls what, as it is defined now, with which arguments."""

import json
from collections.abc import Callable
from typing import Any

from ..core import Caller, Hints, Tool, ToolSpec

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # `json.dumps` makes one at each call


def canonical(value: Any) -> str:
    """Return a JSON value as the one text for it: names sorted, no white space. Raises TypeError for what is not JSON.

    1, 1.0 and true stay apart: a tool can tell them from one another.
    """
    return _ENCODER.encode(value)


def definition_digest(spec: ToolSpec, body: str = "") -> str:
    """Return a digest of what a tool promises: with another description, schema, hint or requirement it is another
    tool.

    *body* is the identity of what it does, where that is known.
    """
    auth = [requirement.to_dict() for requirement in spec.requirements]
    return _sha256(
        spec.name,
        spec.description,
        spec.version,
        spec.input_schema,
        spec.output_schema,
        {name: getattr(spec.hints, name) for name in Hints.__slots__},
        auth,
        body,
    )


def promise_digest(spec: ToolSpec) -> str:
    """Return the digest of what a tool takes and returns, and of its version: what its tasks are stored with.

    Not of its code, which is another one with every repair, nor of its description.
    """
    return _sha256(spec.name, spec.version, spec.input_schema, spec.output_schema)


def call_digest(caller: Caller, tool: Tool, arguments: str) -> str:
    """Return the digest of one call: principal, profile, thread, tool, definition, body, and text of *arguments*."""
    spec = tool.spec
    body: Callable[[], str] = getattr(tool, "body", str)
    definition = definition_digest(spec, body())
    return _sha256(caller.principal, caller.profile, caller.thread, spec.name, definition, arguments)


def key_digest(profile: str, tool: str, arguments: str) -> str:
    """Return the digest of what an idempotency key stands for, whatever the conversation and the tool's definition."""
    return _sha256(profile, tool, arguments)


def text_digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of texts, or bytes, one after the other."""
    import hashlib

    data = [part if isinstance(part, bytes) else part.encode(errors="surrogatepass") for part in parts]
    return hashlib.sha256(b"".join(data)).hexdigest()


def _sha256(*parts: Any) -> str:
    import hashlib  # OpenSSL: who only defines tools needs none

    # As one JSON array: where a part ends is never in doubt, whatever stands in it.
    return hashlib.sha256(canonical(parts).encode()).hexdigest()
