"""OpenAPI documents as sources of the settings, and in the lock."""

from pathlib import Path

import pytest

from toolcrib import Workbench
from toolcrib.cli import main

from ..conftest import Service
from .conftest import OK, Write


async def test_a_source_of_the_settings_says_how_its_document_is_read(
    service: Service, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "key-of-the-api")
    schemes = {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}}
    item = {"get": {**OK, "tags": ["one"], "security": [{"key": []}]}, "post": OK, "delete": {**OK, "tags": ["two"]}}
    write({"/a": item}, components=schemes)
    file = tmp_path / "toolcrib.toml"
    file.write_text(f"""
        [[source]]
        from = "api.json"
        tags = ["one"]
        prefix = "api_"
        [source.openapi]
        server = "{service.url}/v9"
        methods = ["GET", "DELETE"]
        auth = {{ key = "secret:MINE" }}
        [secret]
        MINE = "${{env:API_KEY}}"
        """)
    async with Workbench.from_config(file) as bench:
        assert [spec.name for spec in bench.specs()] == ["api_get_a"]
        assert (await bench.call("api_get_a", {})).status == "success"
    assert service.last[1] == "/v9/a"
    assert service.last[2]["x-key"] == "key-of-the-api"


def test_what_a_document_promises_is_locked(
    service: Service, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def serve(server: str) -> None:
        document = write({"/a": {"get": OK}, "/b": {"get": OK}}, server=server).read_bytes()
        service.replies["/api.json"] = (200, {"content-type": "application/json"}, document)

    def command(*words: str) -> tuple[int, str]:
        status = main([*words])
        return status, capsys.readouterr().out

    serve("https://one.example.com")
    address = f"openapi:{service.url}/api.json"
    assert command("lock", address)[0] == 0
    assert "get_a" in command("list", address)[1]
    serve("https://other.example.com")
    status, shown = command("lock", "--check")
    assert status != 0
    assert "https://other.example.com/a" in shown
    assert "get_a" not in command("list", address)[1]
