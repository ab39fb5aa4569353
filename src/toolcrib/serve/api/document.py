"""The OpenAPI 3.1 document of the HTTP API. Data: nothing here runs."""

from collections.abc import Mapping
from typing import Any

_Object = dict[str, Any]


def document(base_path: str = "") -> _Object:
    """Return the document; *base_path* is where the application is mounted."""
    from ... import __version__

    paths: dict[str, _Object] = {}
    for place, operation in _OPERATIONS.items():
        method, path = place.split(" ")
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolcrib",
            "version": __version__,
            "description": "The tools of a crib: what there are, calls of them, what waits for an answer, and large "
            "results. Errors are problem details (RFC 9457).",
        },
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _ref(name: str) -> _Object:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: _Object) -> _Object:
    return {"application/json": {"schema": schema}}


def _object(required: list[str] | None = None, /, **properties: _Object) -> _Object:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }


def _described(description: str, required: list[str] | None = None, /, **properties: _Object) -> _Object:
    return {**_object(required, **properties), "description": description}


def _list(name: str) -> _Object:
    return {"type": "array", "items": _ref(name)}


def _operation(operation_id: str, summary: str, responses: _Object, /, *parameters: _Object, **more: Any) -> _Object:
    inputs = {"parameters": [*parameters]} if parameters else {}
    return {"operationId": operation_id, "summary": summary, "responses": responses, **inputs, **more}


def _body(schema: _Object) -> _Object:
    return {"required": True, "content": _json(schema)}


def _answer(description: str, schema: _Object | None = None, /, **content: _Object) -> _Object:
    problem = {"description": "A problem.", "content": {"application/problem+json": {"schema": _ref("Problem")}}}
    content = {**({} if schema is None else _json(schema)), **content}
    return {"200": {"description": description, "content": content}, "default": problem}


def _page(description: str, /, **properties: _Object) -> _Object:
    return _answer(description, _object(**properties, next={"type": ["string", "null"]}))


def _path(name: str, description: str) -> _Object:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": _NAME}


def _query(name: str, description: str, **schema: Any) -> _Object:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_TEXT: _Object = {"type": "string"}
_NAME: _Object = {"type": "string", "minLength": 1}
_MOMENT: _Object = {"type": "string", "format": "date-time"}
_OPTIONAL_MOMENT: _Object = {"type": ["string", "null"], "format": "date-time"}
_TEXTS: _Object = {"type": "array", "items": _TEXT}
_COUNT: _Object = {"type": "integer", "minimum": 0}
_MAX_NUMBER = 10**15 - 1
_ANY: _Object = {"type": "object"}
_ANYS: _Object = {"type": "array", "items": _ANY}
_STATES = ["queued", "running", "waiting", "ended", "lost"]
_DEFINITION: _Object = {"type": ["object", "null"]}
_DIGEST: _Object = {"type": "string", "description": "That of what was shown: another one is a conflict, 409."}

_SCHEMAS: _Object = {
    "Problem": _described(
        "Problem details (RFC 9457).",
        ["type", "title", "status", "detail"],
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        code={"type": "string", "description": "The code of the error of a call."},
        retry={"enum": ["changed", "later", "never"]},
        call_id=_TEXT,
        tool=_TEXT,
        repeated={"type": "boolean", "description": "It is the error of an earlier call with the same key."},
        retry_after_s={"type": "number"},
        reason={
            "description": "Why an answer was not accepted.",
            "enum": ["unknown", "expired", "replayed", "foreign", "invalid", "changed"],
        },
    ),
    "Tool": _described(
        "What a tool promises. Its schemas are JSON Schema 2020-12.",
        ["name", "description", "input_schema"],
        name=_TEXT,
        title=_TEXT,
        description=_TEXT,
        input_schema=_ANY,
        output_schema=_ANY,
        hints=_ANY,
        tags=_TEXTS,
        version=_TEXT,
        timeout_s={"type": "number"},
        deferred={"type": "boolean", "description": "Models have to search for it."},
        source={"type": "string", "description": "The name of the source that it is of, such as a server."},
        rules={
            "type": "array",
            "items": _object(do={"enum": ["allow", "deny", "ask"]}, always={"type": "boolean"}),
            "description": "Of one tool: what the rules about it decide for the caller, the first that matches; "
            "`always` where its arguments and what came before are nothing to the rule.",
        },
    ),
    "Budget": _object(
        id=_TEXT,
        tools=_TEXTS,
        per={"enum": ["tool", "principal", "workbench"]},
        budget=_TEXT,
        unit=_TEXT,
        size={"type": "number"},
        left={"type": ["number", "null"], "description": "Below 0 where it is overdrawn; null where it is not known."},
        of={"type": ["string", "null"]},
        shared={"type": "boolean", "description": "All processes with the store count together."},
    ),
    "Change": _object(source=_TEXT, tool=_TEXT, kind={"enum": ["new", "changed", "gone"]}, digest=_TEXT),
    "Definition": _described(
        "A tool as a provider's models get it, what is lost in it, and about how many tokens it is.",
        format={"enum": ["openai", "openai_responses", "anthropic", "gemini", "bedrock", "mcp"]},
        definition=_ANY,
        losses={
            "type": "array",
            "items": _object(["path", "keyword", "meaning"], **dict.fromkeys(("path", "keyword", "meaning"), _TEXT)),
        },
        tokens=_COUNT,
    ),
    "Verdict": _described(
        "What would become of a call whose arguments fit.",
        tool=_TEXT,
        decision={"enum": ["allow", "deny", "ask"]},
        repairs={"type": "array", "items": _object(path=_TEXT, **{"from": _TEXT, "to": _TEXT})},
    ),
    "Content": {
        "oneOf": [
            _object(type={"const": "text"}, text=_TEXT),
            _object(type={"const": "data"}, data={"description": "Any JSON value."}),
            _object(
                ["type", "data", "media_type"],
                type={"enum": ["image", "audio", "file"]},
                data={"type": "string", "contentEncoding": "base64"},
                media_type=_TEXT,
                name={"type": ["string", "null"]},
            ),
        ],
    },
    "Result": _described(
        "How a call ended. `metadata.handle` is that of a result that is too large to be shown whole; "
        "`metadata.labels` say where it comes from.",
        ["status", "call_id", "tool", "content", "started_at", "finished_at"],
        status={"enum": ["success", "error", "pending"]},
        call_id=_TEXT,
        tool=_TEXT,
        content=_list("Content"),
        error=_object(["code", "message", "retry"], code=_TEXT, message=_TEXT, retry=_TEXT, details=_ANY),
        pending=_ref("Pending"),
        repairs={"type": "array", "items": _object(path=_TEXT, **{"from": _TEXT, "to": _TEXT})},
        started_at=_MOMENT,
        finished_at=_MOMENT,
        metadata=_ANY,
    ),
    "Pending": _described(
        "What a call waits for.",
        ["id", "kind", "message", "tool", "principal", "thread", "expires_at"],
        id=_TEXT,
        kind={"enum": ["authorization", "approval", "input", "task"]},
        message=_TEXT,
        digest=_TEXT,
        tool=_TEXT,
        principal=_TEXT,
        thread=_TEXT,
        expires_at=_MOMENT,
        arguments={"type": "string", "description": "JSON text."},
        key=_TEXT,
        url=_TEXT,
        schema=_ANY,
        others_only={"type": "boolean"},
        rule=_TEXT,
        approvers=_object([], groups=_TEXTS, principals=_TEXTS),
    ),
    "Question": _object(
        pending=_ref("Pending"),
        state={"enum": ["open", "answered", "taken", "expired"]},
        answered_by={"type": ["string", "null"]},
        answer={"enum": ["approve", "deny", "input", None], "description": "Its kind, until the call has used it."},
        may_answer={"type": "boolean", "description": "Whether the caller may answer it now."},
        input_schema={"type": ["object", "null"], "description": "Of an approval: what its tool takes."},
        last_approved={
            "oneOf": [
                _object(
                    **dict.fromkeys(("id", "answered_by"), _TEXT),
                    started_at=_MOMENT,
                    arguments={"type": ["string", "null"], "description": "JSON text, as far as the log has it."},
                ),
                {"type": "null"},
            ],
            "description": "The last call of this tool by the same principal that a person approved, where the call "
            "log has arguments: one that the caller made or approved, or any with the right `calls:all`.",
        },
    ),
    "Answer": {
        "oneOf": [
            {
                **_object(
                    ["kind"],
                    kind={"const": "approve"},
                    digest=_DIGEST,
                    arguments=_ANY,
                    until={"anyOf": [{"const": "conversation"}, _MOMENT]},
                    where=_ANY,
                    tools={"type": ["string", "array"], "items": _TEXT},
                ),
                "description": "With `arguments`, it runs with these in place of those that were sent. With `until`, "
                "it is a grant as well: of `tools`, where `where` holds.",
                "additionalProperties": False,
            },
            {**_object(["kind"], kind={"const": "deny"}, digest=_DIGEST, reason=_TEXT), "additionalProperties": False},
            {
                **_object(
                    ["kind", "value"],
                    kind={"const": "input"},
                    digest=_DIGEST,
                    value={"description": "What was asked for."},
                ),
                "additionalProperties": False,
            },
        ],
    },
    "Grant": _described(
        "An approval for more than one call.",
        **dict.fromkeys(("id", "principal", "thread", "rule", "given_by"), _TEXT),
        text={"type": "string", "description": "What it allows, in words."},
        tools=_TEXTS,
        where=_ANY,
        **dict.fromkeys(("given_at", "expires_at"), _MOMENT),
    ),
    "Lost": _object(
        ["id", "principal", "thread", "tool", "key", "arguments", "started_at"],
        **dict.fromkeys(("id", "principal", "thread", "tool", "key", "arguments", "approved_by"), _TEXT),
        started_at=_MOMENT,
    ),
    "Task": _described(
        "A call that runs as a task.",
        **dict.fromkeys(("id", "tool", "principal", "thread"), _TEXT),
        state={"enum": _STATES},
        started_at=_MOMENT,
        run_at=_OPTIONAL_MOMENT,
        attempts=_COUNT,
        arguments={"type": "string", "description": "JSON text."},
        result={
            "type": ["object", "null"],
            "description": "A Result, once it has ended; in lists without content.",
        },
    ),
    "Settlement": {**_object(done={"type": "boolean"}), "additionalProperties": False},
    "StoredResult": _described(
        "A whole result, its `content`; or a part, its `text`, from `start` up to `end` of `total`.",
        ["handle"],
        handle=_TEXT,
        content=_list("Content"),
        unit=_TEXT,
        start=_COUNT,
        end=_COUNT,
        total=_COUNT,
        text=_TEXT,
        rest={"type": "string", "description": "Where only the beginning of an item is shown: how to read it."},
    ),
    "Readiness": _object(
        ["status"],
        status={"enum": ["ready", "not ready"]},
        tools=_COUNT,
        sources={"type": "array", "items": _object(name=_TEXT, state={"enum": ["running", "unavailable"]})},
    ),
}

_PAGE = (
    _query("after", "`next` of the page before.", **_NAME),
    _query("limit", "How many to return at most; 50.", type="integer", minimum=1, maximum=200),
)
_TOOL = _path("name", "The name of a tool. A `/` in it is sent as `%2F`.")
_TASK = _path("id", "The id of the task.")
_PENDING = _path("id", "The id of what is pending.")
_ARGUMENTS = {
    "description": "The arguments. Without a body there are none.",
    "required": False,
    "content": _json({"type": "object"}),
}
_EVENTS: _Object = {"text/event-stream": {"schema": _TEXT}}

_OPERATIONS: Mapping[str, _Object] = {
    "GET /api/tools": _operation(
        "list_tools", "The tools that the caller sees.", _answer("The tools.", _object(tools=_list("Tool")))
    ),
    "GET /api/tools/{name}": _operation("get_tool", "One tool.", _answer("The tool.", _ref("Tool")), _TOOL),
    "GET /api/tools/{name}/formats": _operation(
        "show_formats",
        "One tool as each provider's models get it.",
        _answer("A definition for each.", _object(formats=_list("Definition"))),
        _TOOL,
    ),
    "POST /api/tools/{name}/check": _operation(
        "check_call",
        "Whether arguments fit, and what would be decided. Nothing runs; it counts as a list of tools.",
        _answer("They fit. Where they do not, the problem has `problems`.", _ref("Verdict")),
        _TOOL,
        requestBody=_ARGUMENTS,
    ),
    "POST /api/tools/{name}/call": _operation(
        "call_tool",
        "Call a tool. A client that closes the connection cancels the call, unless it has a key.",
        _answer(
            "How the call ended. With `Accept: text/event-stream`: events `progress`, `output`, and last `result`.",
            _ref("Result"),
            **_EVENTS,
        ),
        _TOOL,
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Calls of the caller with one key take effect once; the others get the result of the "
            "first one, with `repeated` in its metadata.",
            "schema": _NAME | {"maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
        },
        requestBody=_ARGUMENTS,
    ),
    "GET /api/pending": _operation(
        "list_pending",
        "What the caller's calls wait for, and what the caller may answer.",
        _page(
            "A page, the oldest first. It may have fewer than `limit`, or none, and be followed by another.",
            pending=_list("Pending"),
        ),
        *_PAGE,
    ),
    "GET /api/pending/{id}": _operation(
        "get_pending",
        "What a call waits for, or waited for: who answered it, and what was approved last.",
        _answer("The question.", _ref("Question")),
        _PENDING,
    ),
    "POST /api/pending/{id}/answer": _operation(
        "answer_pending",
        "Answer what a call waits for. The same call, made again, then runs, once.",
        _answer("What was answered.", _ref("Pending")),
        _PENDING,
        requestBody=_body(_ref("Answer")),
    ),
    "POST /api/pending/{id}/preview": _operation(
        "preview_answer",
        "What an answer would grant beyond the call, to be shown before it is given.",
        _answer(
            "The grant; null where it is for the call alone.",
            _object(grant={"oneOf": [_ref("Grant"), {"type": "null"}]}),
        ),
        _PENDING,
        requestBody=_body(_ref("Answer")),
    ),
    "GET /api/grants": _operation(
        "list_grants",
        "The approvals for more than one call that the caller has, or has given.",
        _page("A page, the oldest first.", grants=_list("Grant")),
        *_PAGE,
    ),
    "DELETE /api/grants/{id}": _operation(
        "revoke_grant",
        "End a grant that the caller has, or has given: its calls ask from now on.",
        _answer("What was revoked.", _ref("Grant")),
        _path("id", "The id of the grant."),
    ),
    "GET /api/calls/lost": _operation(
        "list_lost",
        "Calls with a key of which it is unknown whether they took effect: the caller's, and those that the caller "
        "may settle.",
        _answer("The oldest first.", _object(lost=_list("Lost"))),
    ),
    "POST /api/calls/{id}/settle": _operation(
        "settle_call",
        "Say whether a lost call took effect. If not, it runs when it is made again with its key.",
        _answer("What was settled.", _ref("Lost")),
        _path("id", "The id of the lost call."),
        requestBody=_body(_ref("Settlement")),
    ),
    "GET /api/tasks": _operation(
        "list_tasks",
        "The caller's tasks in this thread, the newest first.",
        _page("A page.", tasks=_list("Task")),
        *_PAGE,
        _query("of", "Of this thread, of all of the caller's, of everybody.", enum=["thread", "me", "all"]),
        _query("state", "Only those in it.", enum=_STATES),
    ),
    "GET /api/tasks/{id}": _operation("get_task", "One task.", _answer("The task.", _ref("Task")), _TASK),
    "GET /api/tasks/{id}/events": _operation(
        "follow_task",
        "What a task has reported, from the beginning, and reports until it has ended.",
        _answer("Events `progress`, `output`, `log`, and last `result`.", **_EVENTS),
        _TASK,
    ),
    "POST /api/tasks/{id}/cancel": _operation(
        "cancel_task",
        "Stop a task. One that runs ends soon after; one that has ended stays as it is.",
        _answer("The task afterwards.", _ref("Task")),
        _TASK,
    ),
    "GET /api/connections": _operation(
        "list_connections",
        "The caller's logins at providers, and the providers that there are.",
        _answer("The logins, without secrets.", _object(connections=_ANYS, providers=_ANYS)),
    ),
    "POST /api/connections": _operation(
        "connect",
        "Begin a login, which goes on in a browser at the `url` of the pending.",
        _answer("What it waits for.", _object(pending=_ANY)),
        requestBody=_body(_object(["provider"], provider=_TEXT, scopes=_TEXTS)),
    ),
    "DELETE /api/connections/{provider}/{handler}/{profile}": _operation(
        "disconnect",
        "Forget a login, and notify its provider.",
        _answer("The login that there was.", _ANY),
        *(_path(name, "As it is listed.") for name in ("provider", "handler", "profile")),
    ),
    "GET /api/sources": _operation(
        "list_sources", "The sources, and whether they run.", _answer("The sources.", _object(sources=_ANYS))
    ),
    "GET /api/sources/changes": _operation(
        "list_changes",
        "The tools that are left out because they are not as the lock file has them; for a role that may see "
        "'sources'.",
        _page("A page, by source and tool.", changes=_list("Change")),
        *_PAGE,
    ),
    "GET /api/sources/changes/{digest}": _operation(
        "get_change",
        "The definition of a tool as it was accepted, as it is now, and the difference.",
        _answer("The change.", {"allOf": [_ref("Change"), _object(diff=_TEXT, old=_DEFINITION, new=_DEFINITION)]}),
        _path("digest", "The digest of the change."),
    ),
    "POST /api/sources/changes/{digest}/accept": _operation(
        "accept_change",
        "Accept exactly this change: it goes into the lock file, and the tool is offered.",
        _answer("What was accepted.", _ref("Change")),
        _path("digest", "That of what was shown: if it has changed since, that is a conflict, 409."),
    ),
    "GET /api/limits": _operation(
        "list_limits",
        "The budgets that count the caller's calls, and how much is left of each: of one per tool, of the tool "
        "with the least left (`of`).",
        _page("A page, in the order of the settings.", limits=_list("Budget")),
        *_PAGE,
    ),
    "GET /api/workers": _operation(
        "list_workers",
        "The processes that run tasks now, and what waits for one; for a role that may see 'tasks'.",
        _page(
            "A page, and the number of tasks by their state.",
            workers={"type": "array", "items": _object(process=_TEXT, tasks=_COUNT)},
            tasks=_ANY,
            oldest_due_s={"type": "number"},
            unclaimed=_TEXTS,
        ),
        *_PAGE,
    ),
    "GET /api/keys": _operation(
        "list_keys",
        "The keys of clients, without their secrets; for a role that may see 'keys'.",
        _answer("The keys, the oldest first.", _object(keys=_ANYS)),
    ),
    "POST /api/keys": _operation(
        "add_key",
        "Make a key, whose text is in this answer alone.",
        _answer("The key.", _ANY),
        requestBody=_body(_object(["name"], name=_TEXT, groups=_TEXTS, expires_at=_OPTIONAL_MOMENT)),
    ),
    "DELETE /api/keys/{id}": _operation(
        "revoke_key",
        "Revoke a key. Its next request is refused.",
        _answer("The key that there was.", _ANY),
        _path("id", "The id of the key."),
    ),
    "GET /api/results/{handle}": _operation(
        "get_result",
        "A large result; with parameters, a part of it.",
        _answer("The result, or the part.", _ref("StoredResult")),
        _path("handle", "The handle of the result, from its metadata."),
        _query("pointer", "A JSON pointer (RFC 6901) to the part to read.", **_TEXT),
        _query("offset", "How many items, bytes or characters to skip.", **_COUNT, maximum=_MAX_NUMBER),
        _query("limit", "How many to return at most.", type="integer", minimum=1, maximum=_MAX_NUMBER),
    ),
    "GET /livez": _operation("livez", "Whether the process answers.", _answer("It does.", _object(status=_TEXT))),
    "GET /readyz": _operation(
        "readyz",
        "Whether requests are answered, and for callers the state of the sources.",
        _answer("They are.", _ref("Readiness"))
        | {"503": {"description": "They are not.", "content": _json(_ref("Readiness"))}},
    ),
    "GET /api/openapi.json": _operation("openapi", "This document.", _answer("The document.", _ANY)),
}
