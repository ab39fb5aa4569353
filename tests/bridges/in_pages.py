"""The examples of the page of a bridge, which BRIDGE names, print what they show."""

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "bridges" / f"{os.environ['BRIDGE']}.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.S)


def test_the_examples_print_what_they_show() -> None:
    assert len(EXAMPLES) >= 2, "an example of either direction"
    namespace: dict[str, Any] = {"__name__": "page"}
    with asyncio.Runner() as runner:
        for number, (program, expected) in enumerate(EXAMPLES, 1):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                name = f"{PAGE.name}: example {number}"
                made = eval(compile(program, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
                if inspect.iscoroutine(made):
                    runner.run(made)
            assert printed.getvalue() == expected
