"""A dangerous tool, which needs an account, and writes down what it has done."""

from toolcrib import Context, ToolAuth, tool


@tool(destructive=True, auth=ToolAuth("local", scopes=["openid", "write"]))
async def drop(table: str, context: Context) -> str:
    """Drop a table."""
    host = context.credentials["local"].hosts[0]
    response = await context.http("local").get(f"http://{host}/me")
    with open("dropped.txt", "a") as file:
        print(table, file=file)
    return f"{table} is dropped by {response.json()['sub']}"
