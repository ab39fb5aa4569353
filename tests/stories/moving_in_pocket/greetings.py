"""A program for hyperpocket: a tool in a git repository, which greets in the name of each user's own account."""

import sys

from hyperpocket import Pocket
from hyperpocket.tool import from_git

if __name__ == "__main__":
    tools = [from_git(sys.argv[1], "main", "tools/greet", tool_vars={"GREETING": "Welcome"}) | str.upper]
    with Pocket(tools=tools) as pocket:
        for thread in sys.stdin:
            result, paused = pocket.invoke_with_state("greet", {"name": "Ada"}, thread_id=thread.strip())
            print(paused, result, flush=True)
