"""GitHub's issues, with the account of the caller."""

from toolcrib import Context, ToolAuth, tool


@tool(auth=ToolAuth("github", scopes=["repo"]), read_only=True)
async def my_issues(context: Context) -> list[str]:
    """List the titles of the open issues that are assigned to me."""
    response = await context.http("github").get(f"{context.variables['api']}/issues")
    return [issue["title"] for issue in response.raise_for_status().json()]
