"""Calls as spans: what is in them, whose part they are, and that they arrive at a collector."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolcrib import Approve, Call, Caller, Context, Crib, Input, Workbench, tool
from toolcrib.record import CallLog, Spans

from ..waiting import until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def made(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_call_is_a_span_of_the_trace_that_it_names_without_content(spans: Any) -> None:
    provider, exporter = spans

    @tool
    async def greet(name: str) -> str:
        with provider.get_tracer("of the tool").start_as_current_span("inside"):
            return f"hello {name}"

    @tool
    def fail(name: str) -> None:
        with provider.get_tracer("of the tool").start_as_current_span("in a thread"):
            raise ValueError(name)

    async with Crib([greet, fail], recorder=[Spans(provider=provider), CallLog(with_content=True)]) as crib:
        bench = crib.workbench(Caller("ann", "default", "t1"))
        parent = f"00-{TRACE}-{PARENT}-01"
        await bench.call(Call("greet", {"name": "canary"}, id="c1", traceparent=parent))
        await bench.call(Call("fail", {"name": "canary"}, id="c2", traceparent="no trace"))
        await bench.call(Call("gret", {"name": "canary"}, id="c3"))
        assert not trace.get_current_span().get_span_context().is_valid
    found = made(exporter)
    span = found["execute_tool greet"]
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "greet",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.conversation.id": "t1",
        "user.id": "ann",
        "toolcrib.call.id": (span.attributes or {})["toolcrib.call.id"],
        "toolcrib.status": "success",
        "toolcrib.repairs": 0,
    }
    for name, above in (("inside", span), ("in a thread", found["execute_tool fail"])):
        inner = found[name].parent
        assert inner.span_id == above.context.span_id
    failed = found["execute_tool fail"]
    assert failed.parent is None
    assert (failed.status.status_code.name, failed.status.description) == ("ERROR", "failed")
    assert (failed.attributes or {})["error.type"] == "failed"
    assert (found["execute_tool"].attributes or {})["error.type"] == "unknown_tool"
    assert "canary" not in "".join(str(span.to_json()) for span in found.values() if span.name.startswith("execute"))


async def test_content_is_in_a_span_where_it_is_asked_for_and_secrets_are_not(spans: Any) -> None:
    provider, exporter = spans

    @tool
    async def login(key: str) -> str:
        return f"in with {key}"

    async with Crib([login], recorder=Spans(provider=provider, with_content=True), secrets=["s3cret-key"]) as crib:
        await crib.workbench().call("login", {"key": "s3cret-key"})
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["gen_ai.tool.call.arguments"] == '{"key": "[secret]"}'
    assert (span.attributes or {})["gen_ai.tool.call.result"] == "in with [secret]"


async def test_calls_at_once_and_calls_that_end_otherwise_have_a_span_each(spans: Any) -> None:
    provider, exporter = spans

    @tool
    async def wait() -> None:
        await asyncio.Event().wait()

    @tool
    async def add(a: int) -> int:
        await asyncio.sleep(0)
        return a

    async with Crib([wait, add], recorder=Spans(provider=provider), policy=ask_for_wait) as crib:
        bench = crib.workbench()
        await asyncio.gather(*(bench.call("add", {"a": n}) for n in range(100)))
        pending = (await bench.call("wait")).pending
        await crib.answer(pending.id, Approve(), by="bob")
        task = asyncio.create_task(bench.call("wait"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    found = exporter.get_finished_spans()
    assert len({span.context.span_id for span in found}) == 102
    assert all(span.parent is None for span in found)
    ends = [(span.attributes or {}) for span in found if span.name == "execute_tool wait"]
    assert [(one["toolcrib.status"], one.get("toolcrib.pending")) for one in ends] == [
        ("pending", "approval"),
        ("error", None),
    ]
    assert ends[1]["error.type"] == "cancelled"


def ask_for_wait(spec: Any, *_: Any) -> Any:
    return "ask" if spec.name == "wait" else "allow"


async def test_without_an_sdk_calls_go_on() -> None:
    @tool
    async def add(a: int) -> int:
        return a

    async with Workbench([add], recorder=Spans()) as bench:
        assert (await bench.call(Call("add", {"a": 1}, traceparent=f"00-{TRACE}-{PARENT}-01"))).value == 1


@pytest.mark.parametrize("is_named", [False, True])
async def test_each_run_of_a_task_is_a_trace_of_its_own_linked_to_that_of_its_call(
    spans: Any, tmp_path: Path, is_named: bool
) -> None:
    provider, exporter = spans

    @tool(task=True)
    async def ask(context: Context) -> str:
        with provider.get_tracer("of the tool").start_as_current_span("inside"):
            return f"for {await context.ask('who', str, 'Who?')}"

    async with Crib([ask], store=tmp_path / "store.db", recorder=Spans(provider=provider)) as crib:
        bench = crib.workbench(Caller("ann"))
        with provider.get_tracer("of the program").start_as_current_span("program") as program:
            own = program.get_span_context()
            trace_id, span_id = (int(TRACE, 16), int(PARENT, 16)) if is_named else (own.trace_id, own.span_id)
            parent = f"00-{TRACE}-{PARENT}-01" if is_named else None
            pending = (await bench.call(Call("ask", None, traceparent=parent))).pending
        questions = await until(crib.pendings)
        await crib.answer(questions[0].id, Input("bob"), by="ann")
        await crib.tasks.wait(pending.id, timeout_s=60)
    runs = [span for span in exporter.get_finished_spans() if "toolcrib.task.run" in (span.attributes or {})]
    assert [(span.name, span.attributes["toolcrib.task.run"], span.parent) for span in runs] == [
        ("execute_tool ask", 1, None),
        ("execute_tool ask", 2, None),
    ]
    assert {span.attributes["toolcrib.task.id"] for span in runs} == {pending.id}
    links = [(link.context.trace_id, link.context.span_id) for span in runs for link in span.links]
    assert links == [(trace_id, span_id)] * 2
    assert len({span.context.trace_id for span in runs} | {trace_id}) == 3
    inside = [span for span in exporter.get_finished_spans() if span.name == "inside"]
    assert [span.context.trace_id for span in inside] == [span.context.trace_id for span in runs]
