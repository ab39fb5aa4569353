"""The console in a real browser: what a person sees, hears, and cannot be made to do."""

import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from ...npm import installed

SERVER = Path(__file__).with_name("browser_server.py")
AXE = "axe-core@4.11.0"
TAGS = ["wcag2a", "wcag2aa", "wcag22aa"]
PATHS = ["/", "/tools", "/approvals", "/calls", "/tasks", "/connections", "/sources", "/stats"]
"""The lists; a page of each thing in them is found by its first link."""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Links into a console in a process of its own, each good for one browser."""
    folder = tmp_path_factory.mktemp("console")
    with subprocess.Popen([sys.executable, SERVER, folder], stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().split()
        process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture
def person(browser: Browser, links: list[str]) -> Iterator[BrowserContext]:
    """A browser whose person has logged in. What its console says, and what its policy refused, fails the test."""
    context, said = browser.new_context(), list[str]()
    context.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(links.pop())
    page.close()
    yield context
    context.close()
    assert said == []


def base_of(context: BrowserContext, links: list[str]) -> str:
    return links[0].partition("/login")[0]


def pages(page: Page, base_url: str) -> list[str]:
    """Return the addresses of all views: the lists, and the first thing in each."""
    addresses = []
    for path in PATHS:
        addresses.append(f"{base_url}{path}")
        page.goto(addresses[-1])
        links = page.locator("main a[href]").evaluate_all("links => links.map(link => link.pathname)")
        details = [link for link in links if link.startswith(f"{path}/") and path != "/"]
        addresses += [f"{base_url}{details[0]}"] if details else []
    return addresses


def test_each_view_is_accessible_fits_and_shows_what_others_wrote_as_text(
    person: BrowserContext, links: list[str]
) -> None:
    axe = installed(AXE, "axe.min.js").read_text()
    page = person.new_page()
    addresses = pages(page, base_of(person, links))
    assert len(addresses) >= 12
    findings: list[Any] = []
    session = person.new_cdp_session(page)
    for width, scheme in ((1280, "light"), (320, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        for address in addresses:
            page.goto(address)
            if page.evaluate("document.documentElement.scrollWidth") > width:
                findings.append((address, width, "is too wide"))
            if page.evaluate("typeof window.hacked") != "undefined":
                findings.append((address, "ran what others wrote"))
            # By the protocol of the developer tools, which no policy of a page forbids.
            session.send("Runtime.evaluate", {"expression": axe})
            run = (
                f"axe.run({{runOnly: {TAGS!r}}}).then(found => found.violations.map("
                "one => [one.id, one.nodes.map(node => node.html.slice(0, 200))]))"
            )
            answer = session.send("Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True})
            findings += [(address, width, finding) for finding in answer["result"]["value"]]
    assert findings == []


def test_invisible_characters_are_shown(person: BrowserContext, links: list[str]) -> None:
    page = person.new_page()
    page.goto(f"{base_of(person, links)}/tools")
    expect(page.locator("main")).to_contain_text("\\u202e")
    assert "\u202e" not in page.content()


def test_the_list_of_calls_goes_on_by_itself_and_after_the_back_button(
    person: BrowserContext, links: list[str]
) -> None:
    base_url = base_of(person, links)
    page = person.new_page()
    page.goto(f"{base_url}/calls?tool=echo")
    rows = page.locator("main tbody tr")
    before = rows.count()
    answer = person.request.post(f"{base_url}/api/tools/echo/call", data={"text": "new"})
    assert answer.ok
    expect(rows).to_have_count(before + 1)
    page.locator("main tbody tr a").first.click()
    expect(page.locator("h1")).to_contain_text("echo")
    page.go_back()
    expect(rows).to_have_count(before + 1)


def test_a_form_and_its_json_change_each_other_and_run_the_call(person: BrowserContext, links: list[str]) -> None:
    page = person.new_page()
    page.goto(f"{base_of(person, links)}/tools/echo")
    page.get_by_label("text").press_sequentially("one")
    expect(page.locator("#raw")).to_have_value(re.compile('"text": "one"'))
    page.locator("#raw").fill('{"text": "two", "times": 2}')
    expect(page.get_by_label("text")).to_have_value("two")
    expect(page.get_by_label("times")).to_have_value("2")
    page.locator("#raw").fill('{"text": "two", "time": 2}')
    expect(page.locator("#state, #fields").first).to_be_visible()
    page.locator("#run-json").click()
    expect(page.locator("#run")).to_contain_text("Did you mean 'times'?")
    page.locator("#raw").fill('{"text": "two", "times": "2"}')
    page.locator("#run-json").click()
    expect(page.locator("#run")).to_contain_text("two")
    expect(page.locator("#run")).to_contain_text("Repaired")


def test_lists_go_on_after_the_connection_was_lost(browser: Browser, links: list[str]) -> None:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(links.pop())
    base_url = base_of(context, links)
    page.goto(f"{base_url}/calls?tool=echo")
    rows = page.locator("main tbody tr")
    before = rows.count()
    with page.expect_event("requestfailed"):
        context.set_offline(True)
    assert rows.count() == before
    assert context.request.post(f"{base_url}/api/tools/echo/call", data={"text": "meanwhile"}).ok
    context.set_offline(False)
    expect(rows).to_have_count(before + 1)
    context.close()


def test_pages_of_others_cannot_frame_it_post_to_it_or_read_it(
    person: BrowserContext, links: list[str], tmp_path: Path
) -> None:
    base_url = base_of(person, links)
    key = person.request.get(f"{base_url}/tools.json")
    assert key.ok
    (tmp_path / "index.html").write_text(
        f"""<!doctype html><iframe id=frame src="{base_url}/"></iframe>
        <form id=form method=post action="{base_url}/logout" target=elsewhere></form><iframe name=elsewhere></iframe>
        <script>
        window.read = fetch("{base_url}/tools.json", {{credentials: "include"}}).then(a => a.text(), e => "refused");
        document.getElementById("form").submit();
        </script>"""
    )
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: handler(*arguments, directory=str(tmp_path))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = person.browser.new_context(storage_state=person.storage_state())  # type: ignore[union-attr]
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")  # another port is the same site
        assert page.evaluate("window.read") == "refused"
        texts = [frame.evaluate("document.body ? document.body.innerText : ''") for frame in page.frames[1:]]
        assert not any("What waits" in text for text in texts)
        context.close()
        server.shutdown()
    assert person.request.get(f"{base_url}/tools", max_redirects=0).status == 200  # still logged in


def test_it_works_without_javascript(browser: Browser, links: list[str]) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(links.pop())
    base_url = base_of(context, links)
    page.goto(f"{base_url}/tools?q=echo")
    page.get_by_role("link", name="echo", exact=True).first.click()
    expect(page.locator("h1")).to_contain_text("echo")
    page.goto(f"{base_url}/calls")
    expect(page.locator("main tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{base_url}/calls")
    expect(page.locator("h1")).to_have_text("Log in")
    context.close()
