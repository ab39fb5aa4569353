"""The pages of tasks, connections, sources and keys."""

import re
from pathlib import Path
from typing import Any

from toolcrib import Crib, tool
from toolcrib.auth import Client, CredentialBroker, Grant, Owner
from toolcrib.auth.sealed import DatabaseVault
from toolcrib.serve import Authenticator
from toolcrib.serve.access.keys import AccessKeys
from toolcrib.store import Store
from toolcrib.workbench import Role

from .conftest import BASE_URL, Browser, Open, add, by_user

GRANT = Grant("the-token", scopes=("repo",))


@tool(task=True, idempotent=True)
async def report(topic: str) -> str:
    """Write a report."""
    return f"all of {topic}"


async def submitted(browser: Browser, topic: str, **headers: str) -> str:
    """Return the id of a task that has ended."""
    answer = await browser.post("/api/tools/report/call", json={"topic": topic}, headers=headers)
    task = str(answer.json()["pending"]["id"])
    await browser.crib.tasks.wait(task, timeout_s=60)  # type: ignore[attr-defined]
    return task


async def test_tasks_of_all_my_threads_are_shown_with_their_results(open_console: Open) -> None:
    async with open_console(report) as browser:
        assert "No tasks" in (await browser.get("/tasks")).text
        task = await submitted(browser, "<b>ships</b>", **{"toolcrib-thread": "another"})
        assert (await browser.get("/tasks")).text.count(f"/tasks/{task}") == 1
        assert f"/tasks/{task}" not in (await browser.get("/tasks?state=running")).text
        page = (await browser.get(f"/tasks/{task}")).text
        assert "all of &lt;b&gt;ships&lt;/b&gt;" in page
        assert "/cancel" not in page
        assert (await browser.get(f"/tasks/{task}.json")).json() == (await browser.get(f"/api/tasks/{task}")).json()
        assert (await browser.get("/tasks?state=wrong")).status_code == 422
        assert (await browser.get("/tasks/task_none")).status_code == 404


async def test_tasks_of_others_are_for_a_role(open_console: Open) -> None:
    roles = [Role(principals="olga", may=["tasks"])]
    async with open_console(report, identify=by_user, roles=roles) as browser:
        await browser.become("ann")
        task = await submitted(browser, "ships")
        seen: dict[str, Any] = {}
        for user in ("bob", "olga"):
            await browser.become(user)
            statuses = [
                (await browser.get(path)).status_code
                for path in (f"/tasks/{task}", f"/tasks/{task}.json", "/api/tasks?of=all", f"/api/tasks/{task}/events")
            ]
            posted = (await browser.submit(f"/tasks/{task}/cancel")).status_code
            seen[user] = (f"/tasks/{task}" in (await browser.get("/tasks")).text, statuses, posted)
        assert seen == {"bob": (False, [404, 404, 422, 404], 404), "olga": (True, [200, 200, 200, 200], 303)}


async def test_keys_are_made_shown_once_and_revoked(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "keys.db")
    keys = AccessKeys(store)
    own, _ = await keys.add("olga", groups=["ops"])
    other, _ = await keys.add("bob")
    crib = Crib([add], store=store)
    roles = [Role(groups="ops", may=["keys"])]
    async with open_console(crib=crib, identify=Authenticator(keys), roles=roles) as browser:
        await browser.post("/login", data={"key": other})
        assert (await browser.get("/keys")).status_code == 403
        assert 'href="/keys"' not in (await browser.get("/")).text
        assert (await browser.submit("/keys", name="mallory", groups="ops", days="")).status_code == 403
        await browser.submit("/logout")

        await browser.post("/login", data={"key": own})
        page = await browser.submit("/keys", name="carol", groups="leads, <b>", days="7")
        text = re.findall(r"toolcrib_[a-z0-9]{12}_\w{43}", page.text)[0]
        key = await keys.find(text)
        assert (key.name, key.groups) == ("carol", ("<b>", "leads"))
        assert text not in (await browser.get("/keys")).text
        for fields in ({"name": "no name", "days": ""}, {"name": "x", "days": "soon"}, {"name": "x", "days": "-1"}):
            wrong = await browser.submit("/keys", groups="", **fields)
            assert wrong.status_code == 422
            assert 'role="alert"' in wrong.text
            assert f'value="{fields["name"]}"' in wrong.text
        assert (await browser.submit(f"/keys/{key.id}/revoke")).status_code == 303
        assert await keys.find(text) is None
        assert (await browser.submit(f"/keys/{key.id}/revoke")).status_code == 404


async def test_a_login_is_begun_and_ended(open_console: Open, tmp_path: Path) -> None:
    store = Store(tmp_path / "logins.db")
    broker = CredentialBroker(
        clients={"github": Client("an-id", "a-secret")}, vault=DatabaseVault(store), redirect_uri=f"{BASE_URL}/callback"
    )
    async with open_console(crib=Crib([add], store=store, broker=broker)) as browser:
        page = (await browser.get("/connections")).text
        assert '<option value="github">GitHub</option>' in page
        assert "a-secret" not in page
        begun = await browser.submit("/connections", provider="github")
        assert begun.status_code == 200
        assert 'href="https://github.com/login/oauth/authorize?' in begun.text
        assert (await browser.submit("/connections", provider="none")).status_code == 422
        await DatabaseVault(store).put(Owner("local", "default", "github", "token"), GRANT, version=None)
        await DatabaseVault(store).put(Owner("bob", "default", "github", "token"), GRANT, version=None)
        page = (await browser.get("/connections")).text
        assert "/connections/github/token/default/disconnect" in page
        assert "the-token" not in page
        assert (await browser.submit("/connections/github/token/default/disconnect")).status_code == 303
        assert (await browser.submit("/connections/github/token/default/disconnect")).status_code == 404
        assert len(await DatabaseVault(store).owned_by("bob")) == 1


async def test_the_settings_of_clients_have_the_path_at_which_mcp_is_served(open_console: Open) -> None:
    async with open_console(add, path="/v1/mcp") as browser:
        page = (await browser.get("/")).text
        assert page.count(f"{BASE_URL}/v1/mcp") == 4
        assert page.count(f"{BASE_URL}/api/tools") == 2
        assert f"{BASE_URL}/mcp" not in page
