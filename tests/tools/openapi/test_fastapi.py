"""A FastAPI application, called by the document that it publishes: what a function gets is what a model sent."""

import base64
import socket
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Body, Cookie, FastAPI, File, Form, Header, Query, Security, UploadFile
from fastapi.security import HTTPBearer
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
        return dict(locals())

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

    @app.delete("/pets/{name}", status_code=204)
    async def delete(name: str, _: Annotated[Any, Security(HTTPBearer())]) -> None: ...

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
    secrets = {f"{url.removeprefix('http://')}/HTTPBearer": "key-of-the-pets"}
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
    assert result.value == {**sent, "x_trace": None, "x_list": None}


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


async def test_an_operation_behind_a_token_that_answers_with_nothing_succeeds(url: str) -> None:
    result = await call(url, "delete", {"name": "tom"})
    assert (result.status, result.value) == ("success", None)
