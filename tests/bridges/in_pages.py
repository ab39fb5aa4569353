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
CONTINUED = ' title="continued"'
EXAMPLES = re.findall(rf"```python({CONTINUED})?\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.S)


def test_the_examples_print_what_they_show() -> None:
    assert len(EXAMPLES) >= 2, "an example of either direction"
    names: dict[str, Any] = {}
    with asyncio.Runner() as runner:
        for number, (continued, program, expected) in enumerate(EXAMPLES, 1):
            namespace = {**(names if continued else {}), "__name__": "page"}
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                name = f"{PAGE.name}: example {number}"
                made = eval(compile(program, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
                if inspect.iscoroutine(made):
                    runner.run(made)
            assert printed.getvalue() == expected
            names |= namespace
