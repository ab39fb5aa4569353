"""A console in this process, and a browser's requests to it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolcrib import Caller, Crib, tool
from toolcrib.serve import asgi_app
from toolcrib.serve.console import Sessions

BASE_URL = "http://127.0.0.1:8642"


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def by_user(headers: Mapping[str, str]) -> Caller:
    return Caller(headers["user"])


class Browser(httpx2.AsyncClient):
    """A client that posts the forms of pages as a browser does."""

    def __init__(self, app: Any, base_url: str = BASE_URL) -> None:
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50000))
        super().__init__(transport=transport, base_url=base_url, headers={"Sec-Fetch-Site": "same-origin"})

    async def token(self, page: str = "/") -> str:
        return fields_of((await self.get(page)).text)["token"]

    async def become(self, user: str) -> None:
        """Enter as *user*, whom the host knows by a header."""
        self.headers["user"] = user
        self.cookies.clear()
        await self.get("/")

    async def submit(self, path: str, /, **fields: Any) -> httpx2.Response:
        """Post a form with *fields* and the token of the session."""
        return await self.post(path, data={"token": await self.token(), **fields})


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "input" and (name := attributes.get("name")):
            self.values[name] = attributes.get("value") or ""


def fields_of(page: str) -> dict[str, str]:
    """Return the values of the input elements of *page*."""
    parser = _Fields()
    parser.feed(page)
    return parser.values


Open = Callable[..., AbstractAsyncContextManager[Browser]]


@pytest.fixture
def open_console(tmp_path: Path) -> Open:
    """Open a browser at the console of a crib of *tools*: of the person at this computer, or as `identify` says."""

    @asynccontextmanager
    async def opened(
        *tools: Any, logs_in: bool = True, base_url: str = BASE_URL, **options: Any
    ) -> AsyncGenerator[Browser]:
        app_options = {name: options.pop(name) for name in ("identify", "path", "roles", "routes") if name in options}
        crib: Any = options.pop("crib", None) or Crib([*tools], store=tmp_path / "console.db", **options)
        app = asgi_app(crib, console=True, **app_options)
        async with app.lifespan(), Browser(app) as browser:
            browser.app = app  # type: ignore[attr-defined]
            browser.crib = crib  # type: ignore[attr-defined]
            if logs_in and "identify" not in app_options:
                answer = await browser.get(await Sessions(crib.database).link(BASE_URL))
                assert answer.status_code == 303
            yield browser

    return opened
