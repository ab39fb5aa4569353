"""Your own loop around a model, with the provider's SDK: Toolcrib checks, repairs and runs what the model calls."""

import os
import sys
from typing import Any

from openai import OpenAI

from toolcrib import Workbench, formats

MODEL = os.environ.get("MODEL", "gpt-5-mini")


def answer(question: str) -> str:
    client, messages = OpenAI(), [{"role": "user", "content": question}]
    with Workbench(["tools.py"]) as bench:
        specs = bench.specs()
        tools: Any = formats.openai.tools(specs)
        for _ in range(10):
            completion: Any = client.chat.completions.create(model=MODEL, messages=messages, tools=tools)  # type: ignore[arg-type]
            reply = formats.openai.reply(completion, specs)
            if not reply.calls:
                return reply.text
            results = bench.run_sync(bench.call_many(reply.calls))
            print(*(f"{result.status}: {result.text}" for result in results), sep="\n")
            messages += [reply.native, *formats.openai.messages(results, specs)]
    return "The model called tools ten times, and did not answer."


print(answer(sys.argv[1]))
