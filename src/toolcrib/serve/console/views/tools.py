"""`/tools`: what tools there are, and one of them."""

from ..visit import Answer, Page, Visit, render


async def show_list(visit: Visit) -> Answer:
    words = visit.request.query_params.get("q", "").lower().split()
    tools = (await visit.get("/api/tools"))["tools"]
    matches = [tool for tool in tools if all(word in f"{tool['name']} {tool['description']}".lower() for word in words)]
    return render(visit, "tools.html", tools=matches, query=" ".join(words), total=len(tools))


async def show_tool(visit: Visit, name: str) -> Answer:
    return render(visit, "tool.html", tool=await visit.get(f"/api/tools/{name}"))


PAGES = (Page("/tools", show_list, api="/api/tools"), Page("/tools/*", show_tool, api="/api/tools/{}"))
