"""Story 9, Monday morning: a person who has never seen the console, with a terminal, a browser and a phone.

They start a server in a fresh folder, open its link, find a tool, and are asked before one deletes anything. On the
phone they approve it with a narrower pattern; at the desk they see what ran, and copy it, and the settings of a client.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

HERE = Path(__file__).parent
SETTINGS = """
[store]
url = "sqlite:///store.db"
[calls]
content = true
[[source]]
from = "monday_tools.py"
[[rule]]
name = "deletions"
hint = "destructive"
do = "ask"
message = "Delete these notes? They are gone then."
"""
PHONE: ViewportSize = {"width": 390, "height": 844}
WAIT_MS = 60_000
PICTURES = os.environ.get("PICTURES")

pytestmark = pytest.mark.full


@pytest.fixture
def link(
    tmp_path: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> Iterator[str]:
    """The link of `toolcrib serve` in a fresh folder, as its terminal shows it."""
    shutil.copy(HERE / "monday_tools.py", tmp_path)
    (tmp_path / "toolcrib.toml").write_text(SETTINGS)
    (tmp_path / "notes").mkdir()
    for name in ("2024-a", "2025-a", "2025-b"):
        (tmp_path / "notes" / f"{name}.txt").write_text(name)
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    environ = {**user_environ(clean_env("--extra", "serve", "--extra", "store")), **folders, "HOME": str(tmp_path)}
    process = subprocess.Popen(
        ["toolcrib", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = list[str]()
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("The console: "):
                break
        assert lines[-1].startswith("The console: "), "".join(lines)
        yield lines[-1].removeprefix("The console: ").strip()
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()


@pytest.fixture
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture
def agent(link: str) -> Iterator[httpx2.Client]:
    """A program that calls tools over HTTP."""
    with httpx2.Client(base_url=link.partition("/login")[0], timeout=60) as client:
        yield client


def copied(page: Page, button: str) -> str:
    """Click a button that copies, and return what is in the clipboard then."""
    page.locator(f"button[data-copy={button}]").click()
    expect(page.locator(f"button[data-copy={button}]")).to_have_text("Copied")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_monday_morning(link: str, browser: Browser, agent: httpx2.Client, tmp_path: Path) -> None:
    base = link.partition("/login")[0]
    desk = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    desk.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    page, errors = desk.new_page(), list[str]()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))

    # The link from the terminal lets in, and a tool is found by a word of what it does, and run.
    page.goto(link)
    expect(page).to_have_url(f"{base}/")
    page.get_by_role("link", name="Tools", exact=True).click()
    expect(page.locator("#tools tbody tr")).to_have_count(3)  # with that which reads large results
    page.get_by_label("Find").press_sequentially("count")
    expect(page.locator("#tools tbody tr")).to_have_count(1)
    page.get_by_role("link", name="count_notes").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("count_notes")
    page.locator("#run-fields").click()
    expect(page.locator("#run")).to_contain_text(re.compile(r"Result\s+done\s+3\b"))

    # An agent wants to delete too much. The first page, which is open, shows that it asks.
    page.goto(f"{base}/")
    expect(page.locator("#waiting")).to_contain_text("Nothing.")
    deletion = {"pattern": "*"}
    assert agent.post("/api/tools/delete_notes/call", json=deletion).json()["status"] == "pending"
    expect(page.locator("#waiting")).to_contain_text("delete_notes")

    # On the phone it is approved with a narrower pattern.
    hand = browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True, storage_state=desk.storage_state())
    hand.set_default_timeout(WAIT_MS)
    phone = hand.new_page()
    phone.goto(f"{base}/approvals")
    phone.get_by_role("link", name="delete_notes").tap()
    expect(phone.get_by_text("They are gone then.")).to_be_visible()
    expect(phone.locator("dl.arguments")).to_contain_text("most")
    if PICTURES is not None:  # of the documentation
        phone.screenshot(path=f"{PICTURES}/approval.png")
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    phone.get_by_text("Approve with other arguments").tap()
    phone.get_by_label("The same as JSON").fill('{"pattern": "2025-*", "most": 1}')
    phone.get_by_role("button", name="Approve with this JSON").tap()
    expect(phone.get_by_role("status")).to_contain_text("Approved by you")
    answer = agent.post("/api/tools/delete_notes/call", json=deletion).json()
    assert "deleted 2025-a.txt" in str(answer["content"])
    assert sorted(path.name for path in (tmp_path / "notes").iterdir()) == ["2024-a.txt", "2025-b.txt"]

    # At the desk nothing waits any more. The log has what was sent and what ran, to be copied.
    expect(page.locator("#waiting")).to_contain_text("Nothing.")
    page.get_by_role("link", name="Calls", exact=True).click()
    page.locator("#calls tr", has_text="delete_notes").filter(has_text="success").get_by_role("link").first.click()
    expect(page.locator("#sent")).to_contain_text('"*"')
    expect(page.locator("#arguments")).to_contain_text('"2025-*"')
    again = subprocess.run(["bash", "-c", copied(page, "curl")], capture_output=True, text=True, timeout=60)
    assert '"status":"pending"' in again.stdout, again.stderr

    # And the settings of a client, for tomorrow.
    page.get_by_role("link", name="Home", exact=True).click()
    expect(page.locator("#waiting")).to_contain_text("delete_notes")
    page.locator("summary", has_text="Claude Code").click()
    assert copied(page, "client-1") == f"claude mcp add --transport http toolcrib {base}/mcp"
    assert errors == []
