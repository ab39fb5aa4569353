"""Grants over HTTP: shown before they are given, listed, and revoked, by those who have or gave them."""

from typing import Any

from toolcrib import Caller, Crib, tool
from toolcrib.serve import asgi_app
from toolcrib.workbench import Rule, Rules

from .serving import client_of

GRANT: dict[str, Any] = {"kind": "approve", "until": "conversation", "where": {"/city": "Oslo*"}}


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"


async def test_a_grant_is_shown_given_listed_and_revoked() -> None:
    crib = Crib([weather], policy=Rules([Rule(name="weather", do="ask", approvers={"principals": ["bob"]})]))
    async with client_of(asgi_app(crib, lambda headers: Caller(headers["x-user"], thread="t1"))) as api:

        async def send(who: str, method: str, path: str, json: Any = None) -> tuple[int, Any]:
            answer = await api.request(method, path, json=json, headers={"x-user": who})
            return answer.status_code, answer.json()

        async def status(city: str) -> str:
            return str((await send("ada", "POST", "/api/tools/weather/call", {"city": city}))[1]["status"])

        _, waits = await send("ada", "POST", "/api/tools/weather/call", {"city": "Oslo"})
        at = f"/api/pending/{waits['pending']['id']}"
        for who in ("ada", "eve"):
            for door in ("preview", "answer"):
                assert (await send(who, "POST", f"{at}/{door}", GRANT))[0] == 403
        _, shown = await send("bob", "POST", f"{at}/preview", GRANT)
        assert "/city is like \"Oslo*\", in the thread 't1'" in shown["grant"]["text"]
        assert await send("bob", "POST", f"{at}/preview", {"kind": "approve"}) == (200, {"grant": None})
        assert await send("bob", "GET", "/api/grants") == (200, {"grants": [], "next": None})
        code, refused = await send("bob", "POST", f"{at}/answer", {**GRANT, "where": {"/citi": "Oslo"}})
        assert (code, refused["reason"]) == (422, "invalid")
        assert (await send("bob", "POST", f"{at}/answer", GRANT))[0] == 200
        assert [await status(city) for city in ("Oslo", "Oslo S", "Bergen")] == ["success", "success", "pending"]
        checks = [await send("ada", "POST", "/api/tools/weather/check", {"city": city}) for city in ("Oslo", "Bergen")]
        assert [check["decision"] for _, check in checks] == ["allow", "ask"]
        _, page = await send("ada", "GET", "/api/grants?limit=1")
        (grant,) = page["grants"]
        assert (grant["given_by"], grant["tools"], page["next"]) == ("bob", ["weather"], None)
        assert await send("eve", "GET", "/api/grants") == (200, {"grants": [], "next": None})
        assert (await send("ada", "GET", "/api/grants?after=x"))[0] == 422
        assert (await send("eve", "DELETE", f"/api/grants/{grant['id']}"))[0] == 404
        assert (await send("ada", "DELETE", f"/api/grants/{grant['id']}"))[0] == 200
        assert (await send("ada", "DELETE", f"/api/grants/{grant['id']}"))[0] == 404
        assert await status("Oslo S") == "pending"
    await crib.stop()
