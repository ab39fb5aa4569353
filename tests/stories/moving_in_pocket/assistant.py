"""A program for hyperpocket: a tool that asks the provider who the user is, in the thread of each user."""

import sys
import urllib.request

from hyperpocket import Pocket
from hyperpocket.auth import AuthProvider
from hyperpocket.tool import function_tool


@function_tool(auth_provider=AuthProvider.LOCAL, scopes=["openid", "read"], tool_vars={"PATH": "/me"})
def who(greeting: str, **kwargs) -> str:
    """Greet the user by the name that the provider knows them by.

    Args:
        greeting (str): What to say first.
    """
    request = urllib.request.Request(
        kwargs["ISSUER"] + kwargs["PATH"], headers={"Authorization": f"Bearer {kwargs['LOCAL_TOKEN']}"}
    )
    with urllib.request.urlopen(request) as answer:
        return f"{greeting}, {answer.read().decode()}, in {kwargs['thread_id']}"


if __name__ == "__main__":
    with Pocket(tools=[who.override_tool_variables({"ISSUER": sys.argv[1]})]) as pocket:
        for thread in sys.stdin:
            result, paused = pocket.invoke_with_state("who", {"greeting": "Hello"}, thread_id=thread.strip())
            print(paused, result, flush=True)
