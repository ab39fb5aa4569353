"""The complete example of Spark's own document runs, with the import root changed, against a server that speaks OpenAI.

It is in tests/seeds/spark.
"""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from ...agent.wire import answer, wire

EXAMPLE = Path(__file__).parents[2] / "seeds" / "spark" / "complete_example.py"


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "gpt-4o-mini", "choices": [choice]}


def asked(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


THREE = completion(
    {
        "tool_calls": [
            asked("search_database", "c1", query="Zürich", limit=2),
            asked("contextual_search", "c2", query="Zürich"),
            asked("async_api_call", "c3", endpoint="/customers"),
        ]
    },
    "tool_calls",
)


async def test_the_complete_example_runs_its_three_tools_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    took_s = []
    while not took_s or (min(took_s) >= 0.35 and len(took_s) < 4):  # one after the other they take 0.6 s
        took_s.append(await complete_example(monkeypatch))
    assert 0.2 <= min(took_s) < 0.35


async def complete_example(monkeypatch: pytest.MonkeyPatch) -> float:
    """Runs it, and gives the time from the first tool's beginning to the last one's end."""
    with wire(answer(THREE), answer(completion({"content": "There are two."}))) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        names = runpy.run_path(str(EXAMPLE), run_name="spark_complete_example")
        result = await names["main"]()
    assert result.content == "There are two."
    first, second = (request.body for request in provider.requests)
    assert (first["model"], first["messages"]) == ("gpt-4o-mini", [{"role": "user", "content": names["context"]}])
    assert "parallel_tool_calls" not in first
    assert [tool["function"]["name"] for tool in first["tools"]] == [
        *("search_database", "contextual_search", "async_api_call")
    ]
    assert list(first["tools"][1]["function"]["parameters"]["properties"]) == ["query"]
    assert second["messages"][2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "Found 2 results: ['Zürich', 'Zürich']"},
        {"role": "tool", "tool_call_id": "c2", "content": "Zürich after 'Who are our customers in Zürich?'"},
        {"role": "tool", "tool_call_id": "c3", "content": '{"endpoint":"/customers","ok":true}'},
    ]
    traces = names["agent"].get_tool_traces()
    assert [trace["error"] for trace in traces] == [None, None, None]
    ended_s: float = max(trace["end_time"] for trace in traces)
    return ended_s - min(trace["start_time"] for trace in traces)
