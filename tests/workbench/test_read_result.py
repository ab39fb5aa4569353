"""What a model sees of large results, word for word: previews, and answers to every way of reading on.

The words are in `read_result.txt`. Run this file as a program to write them anew, and read what has changed.
"""

import json
from pathlib import Path
from typing import Any

from toolcrib import Image, Text, Tool, Workbench

WORDS = Path(__file__).with_name("read_result.txt")

ROWS = [{"id": n, "name": f"name {n}", "tags": ["a"] * (n % 3), "note": None if n % 2 else "é"} for n in range(60)]
LOG = "\n".join(f"{n:03} GET /orders/{n * 7}, status {200 if n % 10 else 500}" for n in range(80))
RESULTS: dict[str, Any] = {
    "rows": ROWS,
    "mixed": [1, 2.5, "x" * 30, None, True, [1], {"a": 1}] * 40,
    "big items": ["y" * 900, "z" * 900],
    "big first item": ["y" * 900, *range(200)],
    "big last item": [*range(200), "z" * 900],
    "object": {f"key {n}": [n] * n for n in range(40)} | {"deep": {"rows": ROWS[:3], "text": LOG[:300]}},
    "log": LOG,
    "one word": "abcdefghi\u00e9" * 200,
    "commas": ",".join(f"{n},{n * n}" for n in range(300)),
    "quoted": f'"{"q" * 2000}"',
    "parts": [Text("first " * 200), Text("second " * 100), Image(bytes(range(200)))],
    "picture": Image(bytes(range(256)) * 20_000),
}
READS: dict[str, list[dict[str, Any]]] = {
    "rows": [
        {},
        {"offset": 3, "limit": 2},
        {"offset": 59},
        {"offset": 60},
        {"pointer": "/7"},
        {"pointer": "/7/name", "offset": 2, "limit": 3},
        {"pointer": "/8/tags"},
        {"pointer": "/60"},
        {"pointer": "/7/nothing"},
        {"search": "name 5"},
        {"search": "name 5", "offset": 9, "limit": 1},
        {"search": "name 5", "offset": 11},
        {"search": "nowhere"},
        {"search": "a", "pointer": "/5", "limit": 3},
        {"search": "a", "pointer": "/5/name"},
    ],
    "big items": [{}, {"offset": 1}, {"pointer": "/1", "offset": 890}],
    "object": [{"pointer": "/deep/text", "offset": 2}],
    "log": [{}, {"offset": 2500}, {"pointer": "/0"}, {"search": "status 500"}, {"search": "", "limit": 1}],
    "picture": [{}, {"offset": 5_119_999}, {"limit": 4}, {"search": "x"}],
}


def giving(value: Any) -> Tool[..., Any]:
    def give() -> Any:
        return value

    return Tool(give)


async def words() -> str:
    """The previews and the answers, each after what was asked."""
    written = ""
    for name, value in RESULTS.items():
        for limit in (1000, 1500):
            async with Workbench([giving(value)], max_result_chars=limit) as bench:
                result = await bench.call("give")
                handle = result.metadata.get("handle", "none")
                written += f"\n=== {name}, at most {limit} characters\n\n{result.text.replace(handle, 'HANDLE')}\n"
                for request in READS.get(name, ()) if limit == 1000 else ():
                    answer = await bench.call("read_result", {"handle": handle, **request})
                    assert len(answer.text) <= limit
                    written += f"\n--- {name} {json.dumps(request)}\n\n{answer.text.replace(handle, 'HANDLE')}\n"
    return written


async def test_what_a_model_sees_of_large_results() -> None:
    assert await words() == WORDS.read_text()


if __name__ == "__main__":
    import asyncio

    WORDS.write_text(asyncio.run(words()))
