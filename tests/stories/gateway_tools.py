"""The tools of the gateway itself: one needs an account of its caller."""

from toolcrib import Context, ToolAuth, tool


@tool(auth=ToolAuth("local", scopes=["openid", "read"]))
async def who(context: Context) -> str:
    """Who I am there."""
    host = context.credentials["local"].hosts[0]
    response = await context.http("local").get(f"http://{host}/me")
    return f"{response.status_code} {response.json().get('sub')}"
