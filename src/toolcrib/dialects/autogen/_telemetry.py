"""The span of a tool's call, by OpenTelemetry's conventions for generative AI, where OpenTelemetry is installed."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def trace_tool_span(
    tool_name: str,
    *,
    tracer: Any = None,
    parent: Any = None,
    tool_description: str | None = None,
    tool_call_id: str | None = None,
) -> Generator[Any]:
    """Open a span around the call of the tool *tool_name*, and yield it; None without OpenTelemetry.

    *tracer* is by default that of "autogen-core", and *parent* the current span.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        yield None
        return
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.system": "autogen",
        "gen_ai.tool.name": tool_name,
        "gen_ai.tool.description": tool_description,
        "gen_ai.tool.call.id": tool_call_id,
    }
    with (tracer or trace.get_tracer("autogen-core")).start_as_current_span(
        f"execute_tool {tool_name}",
        kind=trace.SpanKind.INTERNAL,
        context=trace.set_span_in_context(parent) if parent else None,
        attributes={name: value for name, value in attributes.items() if value is not None},
    ) as span:
        try:
            yield span
        except Exception as error:  # the span itself records it, and sets its status
            span.set_attribute("error.type", type(error).__name__)
            raise
