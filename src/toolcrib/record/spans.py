"""Calls as OpenTelemetry spans, after the semantic conventions for generative AI: `execute_tool`.

Needs the extra `telemetry`. Where no SDK is set up, the spans of the API are empty and go nowhere.
"""

from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..core import CallRecord, Recorder

_PARENT = TraceContextTextMapPropagator()


class Spans(Recorder):
    """A span for each call: part of the trace that its `traceparent` names, else of the one that is current.

    What a tool traces while it runs is below it. Each run of a task, which may come days later, is a trace of its own,
    linked to the one that its call was part of. *with_content* adds arguments and results. *provider* is the global
    one unless given.
    """

    def __init__(self, *, with_content: bool = False, provider: TracerProvider | None = None) -> None:
        self.with_content = with_content
        self._tracer = trace.get_tracer("toolcrib", tracer_provider=provider)
        self._open: dict[str, tuple[Span, Context]] = {}

    def current_trace(self) -> str | None:
        """Return the `traceparent` of the span that is current; None where there is none."""
        carrier: dict[str, str] = {}
        _PARENT.inject(carrier)
        return carrier.get("traceparent")

    async def started(self, record: CallRecord, /) -> None:
        if record.id not in self._open:  # middleware may run a call again
            before, span = contexts.get_current(), self._begin(record)
            self._open[record.id] = span, before
            contexts.attach(trace.set_span_in_context(span))

    async def finished(self, record: CallRecord, /) -> None:
        span, before = self._open.pop(record.id, None) or (self._begin(record), None)
        # Not by `detach`, which takes a token of the very context that it was made in: a call may end in a copy.
        if before is not None and trace.get_current_span() is span:
            contexts.attach(before)
        for name, value in self._attributes_at_end(record).items():
            if value is not None:
                span.set_attribute(name, value)
        if record.status == "error":
            span.set_status(Status(StatusCode.ERROR, record.code))
        span.end(_ns(record) + round(record.duration_s * 1e9))

    def _begin(self, record: CallRecord) -> Span:
        parent, links = None, []
        if record.traceparent is not None:
            parent = _PARENT.extract({"traceparent": record.traceparent})
        if record.run is not None:
            links = [] if parent is None else [Link(trace.get_current_span(parent).get_span_context())]
            parent = Context()
        caller = record.caller
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": record.tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": record.call_id,
            "gen_ai.conversation.id": caller.thread,
            "user.id": caller.principal,
            "toolcrib.call.id": record.id,
        }
        if record.run is not None:
            attributes |= {"toolcrib.task.id": record.call_id, "toolcrib.task.run": record.run}
        # A name that a model made up is not the name of an operation.
        tool = record.tool.partition(" ")[0]  # of 'resources/read URI' the method
        name = "execute_tool" if record.code == "unknown_tool" else f"execute_tool {tool}"
        return self._tracer.start_span(name, parent, SpanKind.INTERNAL, attributes, links=links, start_time=_ns(record))

    def _attributes_at_end(self, record: CallRecord) -> dict[str, Any]:
        return {
            "error.type": record.code,
            "toolcrib.status": record.status,
            "toolcrib.repairs": record.repairs,
            "toolcrib.pending": record.pending,
            "toolcrib.decision": record.decision,
            "toolcrib.rule": record.rule,
            "gen_ai.tool.call.arguments": record.arguments if self.with_content else None,
            "gen_ai.tool.call.result": record.result if self.with_content else None,
        }


def _ns(record: CallRecord) -> int:
    return round(record.started_at.timestamp() * 1e9)
