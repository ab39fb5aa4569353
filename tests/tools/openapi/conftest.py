"""Documents that name a service."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
OK: Any = {"responses": {"200": {"description": "ok"}}}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a document: `write({"/a": {...}}, server=..., version="3.0.3", components={...})`."""

    def write(
        paths: dict[str, Any], *, server: str = "https://api.example.com", version: str = "3.1.0", **more: Any
    ) -> Path:
        file = tmp_path / "api.json"
        data = {
            "openapi": version,
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": server}],
            "paths": paths,
        }
        file.write_text(json.dumps(data | more))
        return file

    return write
