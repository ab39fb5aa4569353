"""What a tool.toml needs is had only by the operator's leave."""

from pathlib import Path
from typing import Any

import pytest
import wasmtime

from toolcrib import SetupError
from toolcrib.core import LoadError
from toolcrib.tools import Permissions, load
from toolcrib.workbench.config import config_of

NOTHING = '(module (func (export "_start")))'


def write_tool(folder: Path, needs: str) -> Path:
    """A folder with a tool that does nothing, and *needs* in its tool.toml."""
    folder.mkdir(exist_ok=True)
    (folder / "tool.wasm").write_bytes(wasmtime.wat2wasm(NOTHING))
    (folder / "tool.toml").write_text(f'name = "guest"\ndescription = "Does nothing."\n{needs}\n')
    return folder


@pytest.mark.parametrize(
    ("needs", "permissions", "missing"),
    [
        ('variables = ["UNITS"]', {"variables": ["UNITS"]}, 'the variable UNITS|variables = ["UNITS"]'),
        ('auth = [{ secret = "KEY" }]', {"secrets": ["KEY"]}, 'the secret KEY|secrets = ["KEY"]'),
        ('auth = [{ provider = "github" }]', {"providers": ["github"]}, 'a token of github|providers = ["github"]'),
        ("memory_mb = 65", {"memory_mb": 65}, "65 MiB of memory|memory_mb = 65"),
        ('mounts = [{ name = "data" }]', {"mounts": {"data": "."}}, "the folder 'data'|mounts = { data = \"PATH\" }"),
        (
            'mounts = [{ name = "data", read_only = false }]',
            {"mounts": {"data": "."}, "writable": ["data"]},
            "to write in 'data'|writable = [\"data\"]",
        ),
    ],
)
def test_what_was_not_granted_is_named_with_its_setting_and_what_was_is_had(
    tmp_path: Path, needs: str, permissions: dict[str, Any], missing: str
) -> None:
    tool = write_tool(tmp_path, needs)
    with pytest.raises(LoadError) as raised:
        load(tool)
    needed, setting = missing.split("|")
    assert str(raised.value).startswith(f"{tool / 'tool.toml'}: It needs what was not granted: ")
    assert needed in str(raised.value) and setting in str(raised.value)
    assert [tool.spec.name for tool in load(Permissions(**permissions).to(tool)).tools] == ["guest"]


def test_a_trusted_source_gets_what_it_names_but_no_folder_without_its_path(tmp_path: Path) -> None:
    tool = write_tool(tmp_path, 'variables = ["A"]\nmemory_mb = 512\ntimeout_s = 90')
    assert load(Permissions(trusted=True).to(str(tool))).tools[0].spec.timeout_s == 90
    write_tool(tmp_path, 'mounts = [{ name = "data" }]')
    with pytest.raises(LoadError, match="the folder 'data'"):
        load(Permissions(trusted=True).to(tool))


def test_the_settings_grant_per_source_with_paths_beside_the_file(tmp_path: Path) -> None:
    write_tool(tmp_path / "tool", 'mounts = [{ name = "data" }]\nvariables = ["UNITS"]')
    (tmp_path / "files").mkdir()
    settings = tmp_path / "toolcrib.toml"
    allow = '{ mounts = { data = "files" }, variables = ["UNITS"] }'
    settings.write_text(f'[[source]]\nfrom = "tool"\nallow = {allow}\n')
    assert config_of(settings, environ={}).problems == ()
    settings.write_text('[[source]]\nfrom = "tool"\nallow = { variables = ["UNITS"] }\n')
    with pytest.raises(LoadError, match="the folder 'data'"):
        config_of(settings, environ={})


def test_a_mistake_in_the_settings_is_named_with_its_line(tmp_path: Path) -> None:
    settings = tmp_path / "toolcrib.toml"
    settings.write_text('[[source]]\nfrom = "tool"\n[source.allow]\nhost = ["a.example"]\n')
    with pytest.raises(SetupError, match=r"toml:4: There is no key 'host' in \[source.allow\]. Did you mean 'hosts'?"):
        config_of(settings, environ={})
    settings.write_text('[[source]]\nfrom = "tool"\nallow = { writable = ["data"] }\n')
    with pytest.raises(SetupError, match=r"toml:\d: Permissions: 'writable' names 'data'"):
        config_of(settings, environ={})


@pytest.mark.parametrize(
    ("permissions", "message"),
    [
        ({"hosts": "api.example"}, "Permissions: 'hosts': expected array"),
        ({"mounts": {"data": ""}}, "the mount 'data' is not a path"),
    ],
)
def test_permissions_that_cannot_be_are_refused(permissions: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Permissions(**permissions)
