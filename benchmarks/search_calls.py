"""The search of tools: how often it finds the right one, how long it takes among 10,000, and how much memory.

The set is public: the functions of the Berkeley Function Calling Leaderboard, and its questions that one of them
answers, from the package bfcl-eval. Each question is searched among the functions of all questions. The keyword count
beside it ranks by how many different words of the question a tool has, split as the search splits them.
"""

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from typing import Any

from toolcrib import ToolSpec
from toolcrib.workbench.search import ToolIndex, text_of, words_in

TITLE = "search among 10,000 tools"
_FILES = ("simple_python", "multiple", "live_simple", "live_multiple")
_MANY = 10_000

Rank = Callable[[str], Iterator[str]]


def public_set() -> tuple[list[ToolSpec], list[tuple[str, str]]]:
    """The tools, and the questions with the name of the tool that answers each."""
    folder = Path(str(distribution("bfcl-eval").locate_file("bfcl_eval"))) / "data"
    specs: dict[str, ToolSpec] = {}
    questions: list[tuple[str, str]] = []
    for file in _FILES:
        answers = {row["id"]: row["ground_truth"] for row in _rows(folder / "possible_answer" / f"BFCL_v4_{file}.json")}
        for row in _rows(folder / f"BFCL_v4_{file}.json"):
            for each in row["function"]:
                specs.setdefault(each["name"], ToolSpec(each["name"], each["description"], each["parameters"]))
            (right,) = answers[row["id"]][0]
            text = " ".join(turn["content"] for turn in row["question"][0] if turn["role"] == "user")
            questions.append((text, right))
    return list(specs.values()), questions


def _rows(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def by_search(specs: Sequence[ToolSpec]) -> Rank:
    index = ToolIndex(specs)
    return lambda question: (spec.name for spec in index.ranked(question))


def by_keywords(specs: Sequence[ToolSpec]) -> Rank:
    known = [(spec.name, set(words_in(text_of(spec)))) for spec in specs]

    def rank(question: str) -> Iterator[str]:
        asked = set(words_in(question))
        return (name for name, words in sorted(known, key=lambda one: -len(one[1] & asked)))

    return rank


def recall(rank: Rank, questions: Sequence[tuple[str, str]], at: int) -> float:
    """The share of *questions* whose tool is among the first *at*."""
    return sum(right in islice(rank(text), at) for text, right in questions) / len(questions)


def many(specs: Sequence[ToolSpec]) -> tuple[ToolIndex, float]:
    """An index of 10,000 tools, made of *specs* under other names, and the MiB that it keeps."""
    made = [
        ToolSpec(f"{spec.name}_{copy}", f"{spec.description} {copy}", spec.input_schema)
        for copy in range(_MANY // len(specs) + 1)
        for spec in specs
    ][:_MANY]
    ToolIndex(made[:10])  # imports what it needs
    tracemalloc.start()
    index = ToolIndex(made)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return index, kept / 2**20


def notes(specs: Sequence[ToolSpec], questions: Sequence[tuple[str, str]], kept_mib: float) -> list[str]:
    """What was found, in sentences."""
    found = {name: recall(make(specs), questions, 5) for name, make in (("search", by_search), ("words", by_keywords))}
    return [
        f"Search of tools: recall at 5 is {found['search']:.1%}, and {found['words']:.1%} for a plain count of "
        f"keywords, over {len(questions)} questions and {len(specs)} functions of the Berkeley Function Calling "
        f"Leaderboard (bfcl-eval {distribution('bfcl-eval').version}).",
        f"The index of 10,000 of these tools keeps {kept_mib:.0f} MiB.",
    ]


if __name__ == "__main__":
    tools, asked = public_set()
    print("\n".join(notes(tools, asked, many(tools)[1])))
