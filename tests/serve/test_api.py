"""The HTTP API, in process: tools, calls with their result or events, what waits, large results, and every refusal."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from toolcrib import Caller, Context, Crib, Image, Text, ToolError, ToolSpec, tool
from toolcrib.core import Data
from toolcrib.record import CallLog
from toolcrib.serve import asgi_app
from toolcrib.store import Store
from toolcrib.testing import doubles
from toolcrib.tools.function import from_work
from toolcrib.workbench import Ask, Limit, Rule, Rules

from .serving import by_user, client_of

ODD = "files/read a%2F?b#é"


@tool(title="Addition", read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def prices(amounts: list[Decimal]) -> list[Decimal]:
    """Decimals, as they are."""
    return amounts


@tool
async def count(to: int, context: Context) -> str:
    """Count, and say so."""
    for at in range(to):
        context.progress(at, to, "counting")
        await context.emit({"at": at})
    return "done"


@tool
def rows(n: int) -> list[dict[str, int]]:
    """Many rows."""
    return [{"row": at} for at in range(n)]


@tool
def fail(code: str) -> None:
    """Fail with a code."""
    raise ToolError("It went wrong.", code, details={"hint": "none", "status": 7})


@tool
def odd_parts() -> list[Text | Data | Image]:
    """What is hard to write."""
    return [Text("half \ud800"), Data("not JSON"), Data("NaN"), Data('{"n":\n1.00000000000000000001}'), Image(b"x")]


@tool(destructive=True)
def drop(name: str) -> str:
    """Drop it."""
    return f"dropped {name}"


@asynccontextmanager
async def client(*sources: Any, clock: Any = None, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application, as who its header `user` says."""
    with doubles(clock=clock):
        crib = Crib([add, prices, count, rows, fail, odd_parts, drop, *sources], **options)
    async with client_of(asgi_app(crib, by_user), user="ada") as opened:
        yield opened


def odd_tool() -> Any:
    async def work(arguments: dict[str, Any], _: object) -> str:
        return f"read {arguments}"

    made = from_work(ToolSpec("odd", "Odd.", {"type": "object"}), work, home="tests", needs_context=False)
    made.spec = replace(made.spec, name=ODD)  # as a server elsewhere may have it
    return made


async def call(api: httpx2.AsyncClient, name: str, arguments: Any = None, **headers: str) -> httpx2.Response:
    return await api.post(f"/api/tools/{name}/call", json={} if arguments is None else arguments, headers=headers)


def conforms(answer: httpx2.Response, schema: str, document: Any) -> bool:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(answer.json())


async def test_a_check_says_what_would_become_of_a_call_and_runs_nothing() -> None:
    policy = Rules(
        [
            Rule(do="ask", tools="drop", where={"/name": "prod*"}),
            Rule(do="deny", tools="drop", where={"/name": "/"}),
            Rule(do="deny", tools="rows"),
        ]
    )
    async with client(policy=policy) as api:
        document = (await api.get("/api/openapi.json")).json()

        async def check(name: str, arguments: Any) -> httpx2.Response:
            return await api.post(f"/api/tools/{name}/check", json=arguments)

        repaired = await check("add", {"a": 1, "b": "2"})
        assert repaired.json() == {
            "tool": "add",
            "decision": "allow",
            "repairs": [{"path": "/b", "from": "string", "to": "integer"}],
        }
        assert conforms(repaired, "Verdict", document)
        decisions = [(await check("drop", {"name": name})).json()["decision"] for name in ("x", "prod 1", "/")]
        assert decisions == ["allow", "ask", "deny"]
        wrong = await check("drop", {"nam": "x"})
        assert (wrong.status_code, wrong.json()["problems"][0]["path"]) == (422, "/nam")
        assert [(await check(name, {})).status_code for name in ("rows", "none")] == [403, 404]
        assert (await api.get("/api/tools/drop")).json()["rules"] == [
            {"do": "ask", "always": False},
            {"do": "deny", "always": False},
        ]
        assert (await api.get("/api/pending")).json()["pending"] == []


async def test_checks_and_formats_count_as_lists_of_tools() -> None:
    async with client(limits=[Limit(per="principal", rate="2/h", wait_s=0)]) as api:
        assert (await api.post("/api/tools/add/check", json={"a": 1, "b": 2})).status_code == 200
        assert (await api.get("/api/tools/add/formats")).status_code == 200
        assert (await api.post("/api/tools/add/check", json={"a": 1, "b": 2})).status_code == 429


async def test_a_tool_is_shown_as_each_provider_gets_it() -> None:
    async with client() as api:
        document = (await api.get("/api/openapi.json")).json()
        by_name = {entry["format"]: entry for entry in (await api.get("/api/tools/add/formats")).json()["formats"]}
        assert [*by_name] == ["openai", "openai_responses", "anthropic", "gemini", "bedrock", "mcp"]
        assert by_name["anthropic"]["definition"]["input_schema"]["required"] == ["a", "b"]
        assert all(entry["tokens"] > 10 for entry in by_name.values())
        whole = {"$ref": "#/components/schemas/Definition", "components": document["components"]}
        validator = jsonschema_rs.Draft202012Validator(whole)
        assert all(map(validator.is_valid, by_name.values()))


async def test_tools_are_listed_shown_and_called_under_any_name() -> None:
    async with client(odd_tool()) as api:
        document = (await api.get("/api/openapi.json")).json()
        listed = (await api.get("/api/tools")).json()["tools"]
        assert [each["name"] for each in listed][-1] == ODD
        path = "files%2Fread%20a%252F%3Fb%23%C3%A9"
        shown = await api.get(f"/api/tools/{path}")
        assert shown.json() == {"name": ODD, "description": "Odd.", "input_schema": {"type": "object"}}
        made = await call(api, path, {"x": 1})
        assert (made.status_code, made.json()["content"]) == (200, [{"type": "text", "text": "read {'x': 1}"}])
        # Unencoded, the slash is one between names.
        assert (await api.get("/api/tools/files/read a")).status_code == 404
        answer = await call(api, "add", {"a": 1, "b": "2"})
        assert answer.json() == {
            "status": "success",
            "call_id": answer.json()["call_id"],
            "tool": "add",
            "content": [{"type": "data", "data": 3}],
            "repairs": [{"path": "/b", "from": "string", "to": "integer"}],
            "started_at": answer.json()["started_at"],
            "finished_at": answer.json()["finished_at"],
        }
        assert conforms(answer, "Result", document)
        assert conforms(await api.get("/api/tools/add"), "Tool", document)
        assert not conforms(await api.get("/api/tools/add"), "Result", document)


async def test_numbers_keep_their_digits_in_both_directions() -> None:
    sent = '{"amounts": [98765432109876543.21, 0.1000000000000000055, "7.10"]}'
    async with client() as api:
        for space in ("", " " * 100_000):
            answer = await api.post(
                "/api/tools/prices/call", content=sent + space, headers={"Content-Type": "application/json"}
            )
            assert '{"type":"data","data":["98765432109876543.21","0.1000000000000000055","7.10"]}' in answer.text
        text = (await call(api, "odd_parts")).text
        assert '{"n":\n1.00000000000000000001}' in text
        assert [part.get("text") for part in json.loads(text)["content"]] == ["half ?", "not JSON", "NaN", None, None]
        events = (await call(api, "odd_parts", accept="text/event-stream")).text
        assert '{"n": 1.00000000000000000001}' in events


@pytest.mark.parametrize("is_stored", [False, True])
async def test_arguments_of_an_answer_keep_their_digits(tmp_path: Path, *, is_stored: bool) -> None:
    stored: Any = {"store": Store(tmp_path / "digits.db")} if is_stored else {}
    options: Any = {"headers": {"Content-Type": "application/json"}}
    sent, edited = '{"amounts":[1]}', '{"amounts":[98765432109876543.21,0.1000000000000000055,9007199254740993]}'
    async with client(policy=Rules([Rule(tools="prices", do="ask")]), **stored) as api:
        waits = (await api.post("/api/tools/prices/call", content=sent, **options)).json()["pending"]["id"]
        for arguments, status in (('"{}"', 422), ("[]", 422), ("null", 422), ("7", 422), (edited, 200)):
            body = f'{{"kind":"approve","arguments":{arguments}}}'
            answered = await api.post(f"/api/pending/{waits}/answer", content=body, **options)
            assert answered.status_code == status, answered.text
        result = await api.post("/api/tools/prices/call", content=sent, **options)
    assert '["98765432109876543.21","0.1000000000000000055","9007199254740993"]' in result.text


async def test_what_cannot_be_a_call_is_a_problem_that_names_the_way_out() -> None:
    async def refusal(content: bytes, media_type: str | None = "application/json") -> tuple[int, str]:
        headers = {} if media_type is None else {"Content-Type": media_type}
        answer = await api.post("/api/tools/add/call", content=content, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
        return answer.status_code, answer.json()["detail"]

    async with client(max_result_chars=1000) as api:
        document = (await api.get("/api/openapi.json")).json()
        for content, words in {
            b'{"a": 1, "a": 2, "b": 3}': "the name 'a' appears twice in an object",
            b'{"a": 1': "not valid JSON: EOF",
            b'{"a": NaN, "b": 1}': "NaN and Infinity are not JSON",
            b'{"a": \xff}': "not UTF-8",
            b"[1, 2]": "one JSON object, in UTF-8",
            b"   ": "one JSON object",
            '{"a": 1, "b": 1}'.encode("utf-16"): "one JSON object, in UTF-8",
            b'{"a":' * 100_000: "Tool 'add'",
            b'{"a": 1, "c": 2}': "takes no argument 'c'",
            b'{"a": "x", "b": 2}': "'a': expected integer",
        }.items():
            status, detail = await refusal(content)
            assert (status, words in detail) == (422, True), (content[:50], detail)
        assert (await refusal(b" " * 5_000_000))[0] == 413
        assert (await refusal(b'{"a": 1, "b": 2}', "text/plain"))[0] == 415
        assert (await refusal(b'{"a": 1, "b": 2}', None))[0] == 415
        unknown = await call(api, "ad", {"a": 1})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_tool")
        assert unknown.json()["retry"] == "changed"
        assert "Did you mean 'add'?" in unknown.json()["detail"]
        assert conforms(unknown, "Problem", document)
        for method, path, allowed in [
            ("GET", "/api/tools/add/call", "POST"),
            ("DELETE", "/api/tools/add", "GET, HEAD"),
            ("POST", "/api/tools", "GET, HEAD"),
            ("PUT", "/api/pending", "GET, HEAD"),
            ("TRACE", "/api/openapi.json", "GET, HEAD"),
        ]:
            answer = await api.request(method, path)
            assert (answer.status_code, sorted(answer.headers["allow"].split(", "))) == (405, allowed.split(", "))
            assert conforms(answer, "Problem", document)
        assert len((await api.get(f"/{'x' * 300}")).json()["detail"]) == 200
        for path in ("/api", "/api/", "/api/tools/", "/api/tools//call", "/api/tools/add/", "/other"):
            answer = await api.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path


async def test_an_error_of_a_call_is_a_problem_only_where_the_request_can_change_it() -> None:
    async with client(limits=[Limit("add", rate="1/h", wait_s=0)]) as api:
        for code, status in {
            "denied": 403,
            "unauthorized": 403,
            "conflict": 409,
            "failed": 200,
            "timeout": 200,
            "unavailable": 200,
        }.items():
            answer = await call(api, "fail", {"code": code})
            assert answer.status_code == status
            body = answer.json()
            if status == 200:
                assert (body["status"], body["error"]["code"]) == ("error", code)
            else:
                assert (body["status"], body["code"], body["hint"]) == (status, code, "none")
        await call(api, "add", {"a": 1, "b": 2})
        limited = await call(api, "add", {"a": 1, "b": 2})
        assert (limited.status_code, limited.json()["code"]) == (429, "limited")
        assert float(limited.headers["retry-after"]) > 3000


def events_of(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\n") for block in text.split("\n\n") if block and not block.startswith(":")]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in blocks]


async def test_events_have_progress_and_output_and_last_the_result() -> None:
    async with client() as api:
        answer = await call(api, "count", {"to": 2}, accept="text/event-stream")
        assert answer.headers["content-type"] == "text/event-stream"
        events = events_of(answer.text)
        assert [event for event in events if event[0] == "output"] == [
            ("output", {"content": [{"type": "data", "data": {"at": at}}]}) for at in range(2)
        ]
        assert ("progress", {"done": 1, "total": 2, "message": "counting"}) in events
        assert (events[-1][0], events[-1][1]["content"]) == ("result", [{"type": "text", "text": "done"}])
        assert [kind for kind, _ in events].count("result") == 1
        # What is no call is answered as it is without events.
        assert (await call(api, "nope", accept="text/event-stream")).status_code == 404
        assert (await call(api, "count", {"two": 2}, accept="text/event-stream")).status_code == 422
        failed = await call(api, "fail", {"code": "failed"}, accept="text/event-stream")
        assert [(kind, data["status"]) for kind, data in events_of(failed.text)] == [("result", "error")]


async def test_an_event_with_half_a_character_and_no_number_is_json() -> None:
    @tool
    def odd(context: Context) -> str:
        context.progress(float("nan"), float("inf"), "half \ud800")
        return "done"

    async with client(odd) as api:
        answer = await call(api, "odd", accept="text/event-stream")
    data = answer.text.partition("data: ")[2].partition("\n")[0]
    assert json.loads(data, parse_constant=pytest.fail) == {"done": None, "total": None, "message": "half ?"}


async def test_events_are_sent_to_those_who_name_them_first() -> None:
    with_events = ("text/event-stream", "TEXT/Event-Stream; charset=utf-8, */*", "text/event-stream, application/json")
    without = ("application/json, text/event-stream", "text/event-stream;q=0, */*", "", "*/*", ",;,text/event-streams")
    async with client() as api:
        for accept in (*with_events, *without):
            answer = await call(api, "add", {"a": 1, "b": 2}, accept=accept)
            has_events = answer.headers["content-type"].startswith("text/event-stream")
            assert (answer.status_code, has_events) == (200, accept in with_events), accept


async def test_a_silent_call_gets_comments_and_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.serve.protocol.reply._PING_INTERVAL_S", 0.01)

    @tool
    async def wait() -> str:
        """Wait a little."""
        await asyncio.sleep(0.1)
        return "done"

    async with client(wait) as api:
        answer = await call(api, "wait", accept="text/event-stream")
    assert answer.text.startswith(": still running\n\n")
    assert [kind for kind, _ in events_of(answer.text)] == ["result"]


async def test_who_calls_is_who_answers_and_sees_what_they_may() -> None:
    def policy(spec: ToolSpec, arguments: Any, caller: Caller) -> Any:
        return Ask("Drop it?", others_only=True) if spec.hints.destructive else "allow"

    async with client(policy=policy, may_answer=lambda pending, by: by in ("ada", "bob")) as api:
        document = (await api.get("/api/openapi.json")).json()
        waiting = await call(api, "drop", {"name": "x"})
        assert (waiting.status_code, waiting.json()["status"]) == (200, "pending")
        assert conforms(waiting, "Result", document)
        pending = waiting.json()["pending"]
        seen = {
            user: [one["id"] for one in (await api.get("/api/pending", headers={"user": user})).json()["pending"]]
            for user in ("ada", "bob", "eve")
        }
        assert seen == {"ada": [pending["id"]], "bob": [pending["id"]], "eve": []}

        async def answer(user: str, body: Any = None, id: str = pending["id"]) -> tuple[int, Any]:
            sent = await api.post(f"/api/pending/{id}/answer", json=body or {"kind": "approve"}, headers={"user": user})
            assert conforms(sent, "Pending" if sent.status_code == 200 else "Problem", document)
            return sent.status_code, sent.json().get("reason")

        assert await answer("eve") == (403, "foreign")
        assert await answer("ada") == (403, "foreign")  # their own
        assert await answer("bob", {"kind": "approve", "by": "ada"}) == (422, "invalid")
        assert await answer("bob", {"kind": "aprove"}) == (422, "invalid")
        assert await answer("bob", {"kind": "input", "value": 1}) == (422, "invalid")
        assert await answer("bob", id="pending_none") == (404, "unknown")
        assert await answer("bob") == (200, None)
        assert await answer("bob") == (409, "replayed")
        assert (await call(api, "drop", {"name": "x"})).json()["content"] == [{"type": "text", "text": "dropped x"}]
        assert (await call(api, "drop", {"name": "x"})).json()["status"] == "pending"
        for content, status in [
            (b"{", 400),
            (b'{"kind":"deny","kind":"approve"}', 400),
            (b"[]", 422),
            (b"x" * 2_000_000, 413),
        ]:
            sent = await api.post(
                "/api/pending/x/answer", content=content, headers={"Content-Type": "application/json"}
            )
            assert sent.status_code == status
        assert (await api.post("/api/pending/x/answer", content=b"{}")).status_code == 415


async def test_an_answer_that_comes_too_late_is_refused() -> None:
    now = [datetime(2026, 1, 31, tzinfo=UTC)]
    async with client(policy=lambda *_: Ask("Sure?"), clock=lambda: now[0], pending_timeout_s=60) as api:
        waiting = (await call(api, "drop", {"name": "x"})).json()["pending"]
        now[0] += timedelta(seconds=61)
        sent = await api.post(f"/api/pending/{waiting['id']}/answer", json={"kind": "approve"})
    assert (sent.status_code, sent.json()["reason"]) == (410, "expired")


async def test_a_large_result_is_read_whole_and_in_parts_by_its_caller_alone() -> None:
    async with client(max_result_chars=1000) as api:
        document = (await api.get("/api/openapi.json")).json()
        handle = (await call(api, "rows", {"n": 1000})).json()["metadata"]["handle"]
        url = f"/api/results/{handle}"
        whole = await api.get(url)
        assert whole.json() == {
            "handle": handle,
            "content": [{"type": "data", "data": [{"row": at} for at in range(1000)]}],
        }
        assert conforms(whole, "StoredResult", document)

        async def part(query: str) -> Any:
            return (await api.get(f"{url}?{query}")).json()

        items = {
            "handle": handle,
            "unit": "items",
            "start": 2,
            "end": 4,
            "total": 1000,
            "text": '[{"row":2},{"row":3}]',
        }
        assert await part("offset=2&limit=2") == items
        assert (await part("pointer=/7/row"))["text"] == "7"
        assert (await part("offset=0&limit=1"))["text"] == '[{"row":0}]'
        assert (await part("offset=999999999999999"))["text"] == "[]"
        refused = "by=items offset=-1 offset=1000000000000000 offset=x limit=0 limit= pointer=/x pointer=x size=1"
        for query in refused.split():
            answer = await api.get(f"{url}?{query}")
            assert (answer.status_code, conforms(answer, "Problem", document)) == (422, True), query
        for path, user in [(url, "bob"), ("/api/results/result_x", "ada"), ("/api/results/a%2Fb", "ada")]:
            assert (await api.get(path, headers={"user": user})).status_code == 404


async def test_a_part_of_a_result_is_bounded_and_says_how_to_read_on() -> None:
    @tool
    def long() -> list[str]:
        """Long texts."""
        return ["x" * 300_000, "y"]

    async with client(long, max_result_chars=1000) as api:
        document = (await api.get("/api/openapi.json")).json()
        url = f"/api/results/{(await call(api, 'long')).json()['metadata']['handle']}"
        by_item = await api.get(f"{url}?limit=100")
        assert conforms(by_item, "StoredResult", document)
        assert "rest" in by_item.json()
        assert "rest" not in (await api.get(f"{url}?offset=1")).json()
        by_character = (await api.get(f"{url}?pointer=/0&limit=300000")).json()
        assert (by_character["end"], len(by_character["text"])) == (262_144, 262_144)


async def test_a_program_is_shown_the_tools_that_models_have_to_search() -> None:
    async with client(search=True) as api:
        document = (await api.get("/api/openapi.json")).json()
        listed = (await api.get("/api/tools")).json()["tools"]
        assert [each["deferred"] for each in listed] == [True] * 7
        assert conforms(await api.get("/api/tools/add"), "Tool", document)
        answer = await call(api, "find_tools", {"query": "numbers"})
        found = [each["name"] for each in answer.json()["content"][0]["data"]]
        assert found[0] == "add"
        listed = (await api.get("/api/tools")).json()["tools"]
        assert len(listed) > len(found)
        assert {each["name"] for each in listed if "deferred" not in each} == {*found}


async def test_a_request_is_identified_once_and_its_call_is_part_of_its_trace() -> None:
    asked: list[str] = []

    def identify(headers: Mapping[str, str]) -> Caller:
        asked.append(headers["user"])
        return Caller(headers["user"])

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    log = CallLog()
    async with client_of(asgi_app(Crib([add], recorder=log), identify)) as api:
        for headers in ({"user": "ada", "traceparent": trace}, {"user": "bob"}):
            answer = await api.post("/api/tools/add/call", json={"a": 1, "b": 2}, headers=headers)
            assert answer.json()["status"] == "success"
    assert asked == ["ada", "bob"]
    assert [(one.caller.principal, one.traceparent) for one in log] == [("ada", trace), ("bob", None)]


async def test_lists_of_tools_count_in_the_limits_of_a_caller() -> None:
    """A stranger's loop over the cheapest route is a flood as one over calls is."""
    async with client(limits=[Limit(per="principal", rate="2/h", wait_s=0)]) as api:
        answers = [await api.get(path) for path in ("/api/tools", "/api/tools/nothing", "/api/tools")]
    assert [answer.status_code for answer in answers] == [200, 404, 429]
    assert (answers[2].json()["code"], answers[2].headers["Retry-After"]) == ("limited", "1800")
