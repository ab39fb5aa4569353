"""WebAssembly modules as tools: what they get, what they give, and what they cannot do.

`tool.toml` and the beginning of modules, whatever is in them: read, or refused with a reason.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import wasmtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib import Caller, ToolcribError, Workbench
from toolcrib.auth import CredentialBroker
from toolcrib.core import LoadError
from toolcrib.sandbox import ProcessWork, guest_processes
from toolcrib.sandbox.wasm import Engine
from toolcrib.schema.toml import to_toml
from toolcrib.tools import Permissions, load
from toolcrib.tools.sandboxed import Manifest

from .guests import ECHO, ENVIRONMENT, GIVES_UP, OPENS, SAYS, WASI, Module, folder, outcome, outcomes


async def test_a_module_gets_its_arguments_as_json_and_what_it_writes_is_the_result(module: Module) -> None:
    async with Workbench([str(module(ECHO, "echo"))]) as bench:
        result = await bench.call("echo", {"city": "Oslo", "n": [1, 2.5, None]})
        assert (result.status, result.value) == ("success", {"city": "Oslo", "n": [1, 2.5, None]})
        (spec,) = bench.specs()
        assert (spec.name, spec.input_schema, spec.timeout_s) == ("echo", {"type": "object"}, 30.0)


async def test_what_is_not_an_object_or_a_list_is_text(module: Module) -> None:
    says = ["fine\n", "[1, 2]", "[NaN]", "{broken", "7", ""]
    codes = [SAYS.format(text.replace("\n", "\\n"), len(text)) for text in says]
    sources = [module(code, f"guest_{number}") for number, code in enumerate(codes)]
    texts = [text for _, text in await outcomes(*sources)]
    assert texts == ["fine", "[1,2]", "[NaN]", "{broken", "7", ""]


async def test_a_manifest_has_the_schema_that_arguments_are_checked_against(module: Module) -> None:
    made = folder(
        module,
        ECHO,
        """
read_only = true
timeout_s = 5
version = "1.2"
examples = [{ a = 1 }]
[parameters]
type = "object"
required = ["a"]
properties.a.type = "integer"
""",
    )
    assert await outcome(made, '{"a": "x"}') == (
        "invalid_arguments",
        "Tool 'guest': 'a': expected integer, got string.",
    )
    assert await outcome(made, '{"a": "7"}') == ("success", '{"a":7}')
    (tool,) = load(made).tools
    assert (tool.spec.hints.read_only, tool.spec.timeout_s, tool.spec.version) == (True, 5, "1.2")
    assert (tool.isolation, tool.at_deadline) == ("wasm", "killed")


async def test_a_folder_has_the_tools_of_its_modules_and_of_the_folders_in_it(module: Module, tmp_path: Path) -> None:
    module(GIVES_UP, "other")
    folder(module, ECHO)
    async with Workbench([tmp_path]) as bench:
        assert [spec.name for spec in bench.specs()] == ["other", "guest"]
        assert (await bench.call("guest", {"a": 1})).value == {"a": 1}


async def test_variables_and_credentials_are_in_its_environment_and_nothing_else_is(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "not for guests")
    made = folder(
        module,
        ENVIRONMENT.format(to=1, status=0),
        'variables = ["UNITS"]\nauth = [{ secret = "WEATHER_KEY" }]',
    )
    async with Workbench(
        [Permissions(variables=["UNITS"], secrets=["WEATHER_KEY"]).to(made)],
        caller=Caller("alice"),
        variables={"UNITS": "metric", "OTHER": "hidden"},
        broker=CredentialBroker(secrets={"WEATHER_KEY": "canary-5521"}),
    ) as bench:
        result = await bench.call("guest")
        assert "canary" not in repr(result)
        assert result.text == "UNITS=metric\0WEATHER_KEY=[secret]\0"


async def test_it_opens_no_file(module: Module) -> None:
    paths = ["/etc/passwd", "etc/passwd", "../../../../etc/passwd", "/proc/self/environ", "."]
    codes = [OPENS.format(path=path, size=len(path)) for path in paths]
    sources = [module(code, f"guest_{number}") for number, code in enumerate(codes)]
    assert await outcomes(*sources) == [("success", "")] * len(paths)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (b"\x7fELF\x02\x01\x01\x00" + bytes(64), "is not a WebAssembly module"),
        (b"\0asm\x01\0\0\0" + bytes(64 * 1024**2), "is larger than 64 MiB"),
    ],
    ids=["elf", "large"],
)
def test_what_is_not_a_module_is_not_loaded(module: Module, code: bytes, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        load(module(code))


async def test_many_calls_at_once_do_not_mix_what_they_write(module: Module) -> None:
    async with Workbench([module(ECHO, "echo")]) as bench:
        given = [{"n": n, "text": "x" * (n * 37 % 9000)} for n in range(60)]
        results = await asyncio.gather(*(bench.call("echo", arguments) for arguments in given))
        assert [result.value for result in results] == given


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("timout_s = 3", ":4: There is no key 'timout_s'. Did you mean 'timeout_s'?"),
        ("examples = [{ a = 1 }]\nparameters = { type = 'object', additionalProperties = false }", "example 1"),
        ("parameters = '../schema.json'", "names a file that is not in its folder: '../schema.json'"),
        ('parameters = "schema\\u0000.json"', "names a file that is not in its folder"),
    ],
)
def test_errors_in_a_manifest_name_the_line(module: Module, manifest: str, problem: str) -> None:
    made = folder(module, ECHO, manifest)
    with pytest.raises(LoadError) as raised:
        load(made)
    assert str(raised.value).startswith(str(made / "tool.toml"))
    assert problem in str(raised.value)


# Before it runs, and beside files

CODE = bytes(wasmtime.wat2wasm(f"(module {WASI} {ECHO})"))

SOCKETS = """
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
"""
REACHES = """
  (func (export "_start") (local $fd i32)
    (loop $next
      (if (i32.eqz (call $accept (local.get $fd) (i32.const 0) (i32.const 64))) (then (call $exit (i32.const 7))))
      (if (i32.eqz (call $send (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 64)))
        (then (call $exit (i32.const 8))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $fd) (i32.const 64)))))
"""


async def test_sockets_are_out_of_reach(module: Module) -> None:
    assert await outcome(module(REACHES, wasi=SOCKETS + WASI)) == ("success", "")


def test_a_cache_that_is_not_a_folder_of_ours_is_not_used(cache: Path, tmp_path: Path) -> None:
    cache.parent.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache.symlink_to(elsewhere)
    Engine().compile(CODE)
    assert list(elsewhere.iterdir()) == []


def test_what_others_could_have_written_into_the_cache_is_not_run(cache: Path) -> None:
    Engine().compile(CODE)
    (kept,) = cache.iterdir()
    content = kept.read_bytes()
    for damaged in (b"", content[:20], content[:-1], b"\0" * 32 + content[32:], content[:32] + b"\x7fELF" * 100):
        kept.write_bytes(damaged)
        Engine().compile(CODE)
        assert kept.read_bytes() == content


def test_workers_of_modules_are_shared_with_no_other_tool(module: Module) -> None:
    (tool,) = load(module(ECHO)).tools
    assert isinstance(tool.work, ProcessWork)
    assert tool.work.processes is guest_processes


# tool.toml

KEYS = st.sampled_from([*Manifest.model_fields, "nmae", "secret", ""])
VALUES: Any = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
CALM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
MODULE = wasmtime.wat2wasm('(module (func (export "_start")))')


def refusal(text: str | bytes) -> str | None:
    """Why a folder with this tool.toml is refused; None if it is not. Anything but an error of ours escapes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tool.toml").write_bytes(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        (folder / "tool.wasm").write_bytes(MODULE)
        try:
            load(folder)
        except ToolcribError as error:
            assert str(folder.resolve()) in str(error)
            return str(error)
    return None


@CALM
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_table_is_a_tool_or_refused_with_the_file(table: dict[str, Any]) -> None:
    lines = {"name": "guest", "description": "Does nothing.", **table}
    refusal("\n".join(f"{to_toml(key)} = {to_toml(value)}" for key, value in lines.items()))


@CALM
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused_with_the_file(text: str | bytes) -> None:
    assert refusal(text) is not None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('runtime = "java"', "'runtime'"),
        ("timeout_s = nan", "'timeout_s'"),
        ('mounts = [{ name = "../up" }]', "'mounts[0].name'"),
        ('variables = ["A=B"]', "'variables[0]'"),
        ('auth = [{ secret = "A-B" }]', "auth"),
        ("examples = [{ day = 2026-01-02 }]", "'examples[0].day': input was not a valid JSON value"),
        ('hosts = ["api.example"]', "A module has no network"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "tool.wasm").write_bytes(MODULE)
    (tmp_path / "tool.toml").write_text(f'name = "a"\ndescription = "b"\n{line}\n')
    with pytest.raises(LoadError) as raised:
        load(Permissions(trusted=True).to(tmp_path))
    assert message in str(raised.value)
    assert "network" in message or f"{tmp_path / 'tool.toml'}:3: " in str(raised.value)
