"""A program written for AutoGen, on AutoGen and on Toolcrib's dialect of it: the same lines, another import."""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module

from cases import CALLS, TINY, Case, Loop
from toolcrib_calls import BARE

AUTOGEN = "AutoGen workbench"
ROOTS = {BARE: "toolcrib.dialects.autogen", AUTOGEN: "autogen_core"}
"""What stands before `.tools` in the program's import."""


def _title(case: Case) -> str:
    return f"AutoGen's call_tool, {case.title}"


CASES: Mapping[str, Case] = {_title(case): case for case in (TINY, next(c for c in CALLS if c.fn.__name__ == "stock"))}


def call_tool(case: Case, subjects: Sequence[str]) -> dict[str, Loop]:
    return {subject: _loop(case, ROOTS[subject]) for subject in subjects}


def _loop(case: Case, root: str) -> Loop:
    tools = import_module(f"{root}.tools")
    workbench = tools.StaticWorkbench([tools.FunctionTool(case.fn, description=case.fn.__doc__ or "")])
    name, text = case.name, case.text

    async def loop(times: int) -> str:
        answer = ""
        for _ in range(times):
            answer = (await workbench.call_tool(name, json.loads(text))).to_text()
        return answer

    return loop
