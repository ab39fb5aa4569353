"""Figures of calls for Prometheus. Needs the extra `telemetry`.

The number of series is bounded: a name that is not the name of a tool is never a label, and beyond *most_tools* tools
the rest are counted together.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0

from ..core import CallRecord, Recorder

CONTENT_TYPE = CONTENT_TYPE_PLAIN_1_0_0

_OTHER = "other"
_UNKNOWN = "unknown"
_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics(Recorder):
    """Counts calls by tool, status and error code, how long they took, and how many run.

    *registry* is one of its own unless given.
    """

    def __init__(self, *, registry: CollectorRegistry | None = None, most_tools: int = 1_000) -> None:
        self.registry = registry or CollectorRegistry()
        self._most_tools = most_tools
        self._tools: set[str] = set()
        self._running: set[str] = set()
        self._calls = Counter(
            "toolcrib_calls", "Calls that have ended.", ("tool", "status", "code"), registry=self.registry
        )
        self._durations = Histogram(
            "toolcrib_call_duration_seconds",
            "How long calls took.",
            ("tool",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        in_flight = Gauge("toolcrib_calls_in_flight", "Calls whose work runs.", registry=self.registry)
        in_flight.set_function(lambda: len(self._running))
        self._tasks = Gauge("toolcrib_tasks", "Tasks in the store that have not ended.", ("state",), registry=None)
        self._oldest = Gauge(
            "toolcrib_tasks_oldest_due_seconds", "How long the task has been due that waits longest.", registry=None
        )
        self._has_tasks = False

    async def started(self, record: CallRecord, /) -> None:
        self._running.add(record.id)

    async def finished(self, record: CallRecord, /) -> None:
        self._running.discard(record.id)
        tool = self._label(record)
        self._calls.labels(tool, record.status, record.code or "").inc()
        self._durations.labels(tool).observe(record.duration_s)

    def note_tasks(self, counts: Mapping[str, int], oldest_due_s: float) -> None:
        """Show how many tasks there are by their state, and for how many seconds the oldest has been due."""
        if not self._has_tasks:
            self._has_tasks = True
            self.registry.register(self._tasks)
            self.registry.register(self._oldest)
        for state, number in counts.items():
            self._tasks.labels(state).set(number)
        self._oldest.set(oldest_due_s)

    def text(self) -> str:
        """Return the figures in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def _label(self, record: CallRecord) -> str:
        if record.code == "unknown_tool":
            return _UNKNOWN
        tool = record.tool.partition(" ")[0]  # of 'resources/read URI' the method
        if tool not in self._tools:
            if len(self._tools) >= self._most_tools:
                return _OTHER
            self._tools.add(tool)
        return tool
