"""A FastAPI application, called by the document that it publishes: what a function gets is what a model sent."""

import base64
import socket
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Body, Cookie, FastAPI, File, Form, Header, HTTPException, Query, Response, Security, UploadFile
from fastapi.security import APIKeyCookie, APIKeyHeader, APIKeyQuery, HTTPBasic, HTTPBearer
from pydantic import BaseModel

from toolcrib import Result, Workbench
from toolcrib.auth import CredentialBroker

pytestmark = pytest.mark.full


class Pet(BaseModel):
    name: str
    age: int | None = None
    friends: list["Pet"] = []


def application() -> FastAPI:
    app = FastAPI()

    @app.get("/items/{item_id}/parts/{part:path}")
    async def parameters(
        item_id: str,
        part: str,
        q: Annotated[list[str] | None, Query()] = None,
        limit: int = 5,
        ratio: float | None = None,
        exact: bool = False,
        x_trace: Annotated[str | None, Header()] = None,
        x_list: Annotated[list[int] | None, Header()] = None,
        session: Annotated[str | None, Cookie()] = None,
    ) -> dict[str, Any]:
        return {
            "item": item_id,
            "part": part,
            "q": q,
            "limit": limit,
            "ratio": ratio,
            "exact": exact,
            "x_trace": x_trace,
            "x_list": x_list,
            "session": session,
        }

    @app.post("/pets")
    async def create(pet: Pet) -> Pet:
        return pet

    @app.put("/two/{pet_id}")
    async def two(pet_id: int, pet: Pet, note: Annotated[str, Body()]) -> dict[str, Any]:
        return {"id": pet_id, "name": pet.name, "note": note}

    @app.post("/form")
    async def form(name: Annotated[str, Form()], tags: Annotated[list[str], Form()]) -> dict[str, Any]:
        return {"name": name, "tags": tags}

    @app.post("/upload")
    async def upload(
        file: UploadFile, more: Annotated[list[bytes], File()], note: Annotated[str, Form()]
    ) -> dict[str, Any]:
        return {"size": len(await file.read()), "more": [len(each) for each in more], "note": note}

    @app.get("/image")
    async def image() -> Response:
        return Response(b"\x89PNG", media_type="image/png")

    @app.delete("/pets/{name}", status_code=204)
    async def delete(name: str) -> None:
        if name == "rex":
            raise HTTPException(429, "later", {"Retry-After": "3"})

    @app.get("/who")
    async def who(
        header: Annotated[str | None, Security(APIKeyHeader(name="X-Key", auto_error=False))],
        query: Annotated[str | None, Security(APIKeyQuery(name="key", auto_error=False))],
        cookie: Annotated[str | None, Security(APIKeyCookie(name="sid", auto_error=False))],
    ) -> dict[str, Any]:
        return {"header": header, "query": query, "cookie": cookie}

    @app.get("/bearer")
    async def bearer(given: Annotated[Any, Security(HTTPBearer())]) -> str:
        return str(given.credentials)

    @app.get("/basic")
    async def basic(given: Annotated[Any, Security(HTTPBasic())]) -> list[str]:
        return [given.username, given.password]

    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application(), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


async def call(url: str, tool: str, arguments: dict[str, Any]) -> Result[Any]:
    host = url.removeprefix("http://")
    names = ("APIKeyHeader", "APIKeyQuery", "APIKeyCookie", "HTTPBearer")
    secrets = {f"{host}/{name}": f"key-{name}" for name in names} | {f"{host}/HTTPBasic": "ann:top:secret"}
    async with Workbench([f"openapi:{url}/openapi.json"], broker=CredentialBroker(secrets=secrets)) as bench:
        return await bench.call(tool, arguments)


@pytest.mark.parametrize("text", ["plain", "a b", "a/b", "ä&=?#+%;,", "100%25", "..x", "'\"<>|{}"])
async def test_values_arrive_as_they_were_sent(url: str, text: str) -> None:
    sent: dict[str, Any] = {
        "item_id": text.replace("/", "-"),
        "part": text,
        "q": [text, "two"],
        "limit": 7,
        "ratio": 0.5,
        "exact": True,
        "session": "abc",
    }
    result = await call(url, "parameters", sent)
    assert result.status == "success", result.text
    assert result.value["item"] == sent["item_id"]
    assert {key: result.value[key] for key in ("part", "q", "limit", "ratio", "exact", "session")} == {
        key: sent[key] for key in ("part", "q", "limit", "ratio", "exact", "session")
    }


async def test_headers_bodies_forms_and_files_arrive(url: str) -> None:
    result = await call(url, "parameters", {"item_id": "1", "part": "2", "x-trace": "a; b", "x-list": [1]})
    assert (result.value["x_trace"], result.value["x_list"]) == ("a; b", [1])
    pet = {"name": "Rex", "age": 3, "friends": [{"name": "Tom", "age": None, "friends": []}]}
    assert (await call(url, "create", pet)).value == pet
    assert (await call(url, "two", {"pet_id": 1, "pet": pet, "note": "n"})).value == {
        "id": 1,
        "name": "Rex",
        "note": "n",
    }
    assert (await call(url, "form", {"name": "a+b c&d", "tags": ["x", "y=z"]})).value == {
        "name": "a+b c&d",
        "tags": ["x", "y=z"],
    }
    data = base64.b64encode(bytes(range(256))).decode()
    uploaded = await call(url, "upload", {"file": data, "more": [data, data], "note": "é"})
    assert uploaded.value == {"size": 256, "more": [256, 256], "note": "é"}, uploaded.text


async def test_results_and_errors_are_those_of_the_application(url: str) -> None:
    assert (await call(url, "image", {})).content[0].text.startswith("[image: image/png")
    assert (await call(url, "delete", {"name": "tom"})).value is None
    limited = await call(url, "delete", {"name": "rex"})
    assert (limited.error.code, limited.error.details["retry_after_s"]) == ("limited", 3.0)


async def test_every_scheme_of_security_is_taken(url: str) -> None:
    assert (await call(url, "who", {})).text.count("key-") == 0  # alternatives: one is enough, and it is redacted
    assert (await call(url, "bearer", {})).value == "key-HTTPBearer"
    assert (await call(url, "basic", {})).value == ["ann", "top:secret"]
