"""What a tool, a prompt or a resource can ask the MCP client it runs for, beside `ctx.ask`: `ask_client`.

In the older era the client is asked at once. In that of 2026-07-28 the request ends with the questions, and runs again
from its first line with the answers: so ask before effects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as wire

from ...core import ToolError
from ...machinery import redacted_data
from ...schema import Elicitation, inlined
from ...schema.view import UNIONS
from .request import ClientRequest, current_request

_SIMPLE = ("string", "number", "integer", "boolean")
"""The types of a form's fields."""


@dataclass(frozen=True, slots=True)
class Form:
    """Asks the user, with *message*, for a *schema* of flat values: a type that pydantic describes, or JSON Schema."""

    message: str
    schema: Any


@dataclass(frozen=True, slots=True)
class Sample:
    """Asks the client's model. *prompt* is text, or messages as MCP has them. The answer is its text."""

    prompt: str | Sequence[Mapping[str, Any]]
    max_tokens: int = 1000
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Roots:
    """Asks for the folders that the user works in. The answer is a list of `{"uri", "name"}`."""


Question = Form | Sample | Roots

_CAPABILITIES = {Form: "elicitation", Sample: "sampling", Roots: "roots"}


def client_can(kind: type[Question]) -> bool:
    """Return whether the client that is answered now can be asked a question of this *kind*.

    False where there is none.
    """
    request = current_request()
    if request is None or not request.can(_CAPABILITIES[kind]):
        return False
    return kind is not Form or request.shows_forms


async def ask_client(**questions: Question) -> dict[str, Any]:
    """Return the client's answers to *questions*, by their names, all asked at once.

    Raises ToolError: `unavailable` where the client cannot be asked all of them (see `client_can`), or does not answer,
    `denied` where the user refuses, and `invalid_result` for an answer that is not what was asked for.
    """
    request = current_request()
    if request is None:
        raise ToolError("There is no MCP client to ask: this does not run for one.", "unavailable")
    for question in questions.values():
        if not client_can(type(question)):
            name = _CAPABILITIES[type(question)]
            request.missing[name] = {}
            raise ToolError(f"This needs a client that has the capability '{name}'.", "unavailable")
    requests = {name: _request(question, request) for name, question in questions.items()}
    answers = await request.ask(requests)
    return {name: _answer(name, question, answers[name]) for name, question in questions.items()}


async def close_stream() -> bool:
    """Let go of the connection on which the client waits for this call: it comes back for what it missed.

    For work that takes longer than what is between holds a connection. False where the client could not come back: then
    nothing was done. Clients of 2025-11-25 over HTTP can.
    """
    request = current_request()
    if request is None or request.close_stream is None:
        return False
    await request.close_stream()
    return True


def _request(question: Question, request: ClientRequest) -> wire.InputRequest:
    redaction = request.bench.offers.redaction
    match question:
        case Form(message, schema):
            form = form_schema(Elicitation(schema).schema)
            if form is None:
                raise ToolError("A client's form has flat values only: text, numbers, choices.", "failed")
            params = {"message": message, "requestedSchema": form[0]}
            return wire.ElicitRequest(
                params=wire.ElicitRequestFormParams.model_validate(redacted_data(params, redaction))
            )
        case Sample(prompt, max_tokens, system):
            text = prompt if not isinstance(prompt, str) else [_user_message(prompt)]
            sampling = {"messages": list(text), "maxTokens": max_tokens, "systemPrompt": system}
            return wire.CreateMessageRequest(
                params=wire.CreateMessageRequestParams.model_validate(redacted_data(sampling, redaction))
            )
        case Roots():
            return wire.ListRootsRequest()


def _user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


def _answer(name: str, question: Question, answer: Any) -> Any:
    match question, answer:
        case Form(_, schema), wire.ElicitResult(action="accept"):
            elicitation = Elicitation(schema)
            form = form_schema(elicitation.schema)
            value: Any = answer.content or {}
            if form is not None and form[1]:
                value = value.get("value")
            if (problem := elicitation.problems(value)) is not None:
                raise ToolError(f"The answer to '{name}' is not what was asked for. {problem}", "invalid_result")
            return elicitation.read(value)
        case _, wire.ElicitResult():
            raise ToolError(f"The user did not answer '{name}'.", "denied")
        case _, wire.ListRootsResult(roots=roots):
            return [{"uri": str(root.uri), "name": root.name} for root in roots]
        case _:
            content = answer.content
            return content.text if isinstance(content, wire.TextContent) else content.model_dump(mode="json")


# The forms of MCP's elicitation: JSON Schemas of one flat object


def form_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool] | None:
    """Return the form for *schema*, and whether the answer is under its key `value`.

    None where no form can ask for it.
    """
    whole = inlined(schema)
    if "$defs" in whole:
        return None
    if whole.get("type") != "object":
        field = _field(whole)
        return (
            None if field is None else ({"type": "object", "properties": {"value": field}, "required": ["value"]}, True)
        )
    fields = {name: _field(inner) for name, inner in whole.get("properties", {}).items()}
    if not fields or None in fields.values():
        return None
    return {"type": "object", "properties": fields, "required": list(whole.get("required", ()))}, False


def _field(schema: Any) -> dict[str, Any] | None:
    """Return *schema* as that of one field; None where a form has none such."""
    if not isinstance(schema, Mapping):
        return None
    if (branch := _only_branch(schema)) is not None:
        return _field({**{key: schema[key] for key in schema if key not in ("anyOf", "default")}, **branch})
    if schema.get("type") == "array":
        items = schema.get("items")
        is_choice = isinstance(items, Mapping) and not items.keys().isdisjoint(("enum", *UNIONS))
        return dict(schema) if is_choice else None
    return dict(schema) if schema.get("type") in _SIMPLE else None


def _only_branch(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the only alternative to null in *schema*; None where it has others, or a type of its own.

    Null itself is in no form: a field that may be left out is not required.
    """
    branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    return branches[0] if len(branches) == 1 and "type" not in schema else None
