"""WebAssembly modules as tools: what they get, what they give, and what they cannot do."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from toolcrib import Caller, Workbench
from toolcrib.core import LoadError
from toolcrib.tools import Permissions, load

from .guests import (
    ECHO,
    ENVIRONMENT,
    GIVES_UP,
    GROWS,
    LOOPS,
    NESTS,
    OPENS,
    SAYS,
    SLEEPS,
    WASI,
    Module,
    broker,
    folder,
    outcome,
    outcomes,
)


async def test_a_module_gets_its_arguments_as_json_and_what_it_writes_is_the_result(module: Module) -> None:
    async with Workbench([str(module(ECHO, "echo"))]) as bench:
        result = await bench.call("echo", {"city": "Oslo", "n": [1, 2.5, None]})
        assert (result.status, result.value) == ("success", {"city": "Oslo", "n": [1, 2.5, None]})
        (spec,) = bench.specs()
        assert (spec.name, spec.input_schema, spec.timeout_s) == ("echo", {"type": "object"}, 30.0)


async def test_what_is_not_an_object_or_a_list_is_text(module: Module) -> None:
    says = ["fine\n", "[1, 2]", "[NaN]", "{broken", "7", ""]
    codes = [SAYS.format(text.replace("\n", "\\n"), len(text)) for text in says]
    texts = [text for _, text in await outcomes(module, *codes)]
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
        broker=broker(WEATHER_KEY="canary-5521"),
    ) as bench:
        result = await bench.call("guest")
        assert "canary" not in repr(result)
        assert result.text == "UNITS=metric\0WEATHER_KEY=[secret]\0"


async def test_a_variable_that_the_host_does_not_give_is_named(module: Module) -> None:
    made = folder(module, ECHO, 'variables = ["UNITS"]')
    assert await outcome(Permissions(variables=["UNITS"]).to(made)) == (
        "unavailable",
        "Tool 'guest' needs the variable 'UNITS', which the host does not give.",
    )


async def test_it_opens_no_file(module: Module) -> None:
    paths = ["/etc/passwd", "etc/passwd", "../../../../etc/passwd", "/proc/self/environ", "."]
    codes = [OPENS.format(path=path, size=len(path)) for path in paths]
    assert await outcomes(module, *codes) == [("success", "")] * len(paths)


@pytest.mark.parametrize("code", [LOOPS, SLEEPS], ids=["loop", "sleep"])
async def test_a_guest_that_does_not_return_is_ended_at_the_deadline_and_the_next_call_runs(
    module: Module, code: str
) -> None:
    made = folder(module, code, "timeout_s = 0.3")
    async with Workbench([made, module(ECHO, "echo")]) as bench:
        result = await bench.call("guest")
        assert result.error is not None
        assert result.error.code == "timeout"
        assert (await bench.call("echo", {"a": 1})).value == {"a": 1}
        assert (await bench.call("guest")).error is not None


async def test_memory_grows_to_its_limit_and_no_further(module: Module) -> None:
    # Of 16 pages of 64 KiB it has 4 to begin with.
    assert await outcome(folder(module, GROWS.format(12), "memory_mb = 1")) == ("success", "")
    assert (await outcome(folder(module, GROWS.format(13), "memory_mb = 1")))[0] == "failed"


async def test_a_trap_is_described_in_words(module: Module) -> None:
    reasons = {
        NESTS: "its calls were nested too deeply",
        GIVES_UP: "it aborted (its instruction 'unreachable')",
        '(func (export "_start") (drop (i32.load (i32.const -8))))': "it reached outside its memory",
        '(func (export "_start") (drop (i32.div_u (i32.const 1) (i32.const 0))))': "it divided by zero",
    }
    assert await outcomes(module, *reasons) == [
        ("trapped", f"Tool 'guest_{number}' was stopped: {reason}.") for number, reason in enumerate(reasons.values())
    ]


@pytest.mark.parametrize(
    ("code", "wasi", "reason"),
    [
        ('(import "env" "system" (func)) (func (export "_start"))', "", "It imports env.system, which nothing here"),
        ('(func (export "run"))', WASI, "It is not a program: it has no '_start'."),
        ('(func (export "_start") (param i64))', WASI, "It is not a program: it has no '_start'."),
    ],
)
async def test_a_module_that_is_not_a_program_for_wasi_is_unavailable_with_the_reason(
    module: Module, code: str, wasi: str, reason: str
) -> None:
    found = await outcome(module(code, wasi=wasi), show_errors=True)
    assert found[0] == "unavailable"
    assert reason in found[1]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (b"\x7fELF\x02\x01\x01\x00" + bytes(64), "is not a WebAssembly module"),
        (b"\0asm\x01\0\0\0" + bytes(32 * 1024**2), "is larger than 32 MiB"),
    ],
    ids=["elf", "large"],
)
def test_what_is_not_a_module_is_not_loaded(module: Module, code: bytes, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        load(module(code))


async def test_a_module_that_changed_after_it_was_loaded_does_not_run(module: Module) -> None:
    file = module(ECHO)
    async with Workbench([file], show_errors=True) as bench:
        file.write_bytes(wasmtime.wat2wasm('(module (func (export "_start")))'))
        result = await bench.call("guest")
    assert result.error is not None
    assert result.error.code == "unavailable"
    assert "has changed since the host loaded it" in result.error.message


async def test_what_is_kept_compiled_is_for_its_owner_alone_and_damage_is_noticed(module: Module, cache: Path) -> None:
    file = module(ECHO)
    assert (await outcome(file))[0] == "success"
    assert cache.stat().st_mode & 0o777 == 0o700
    (kept,) = cache.iterdir()
    good = kept.read_bytes()
    kept.write_bytes(good[:40] + b"\xcc" * 200 + good[240:])
    assert await outcome(file, '{"a":1}') == ("success", '{"a":1}')
    assert kept.read_bytes() == good


async def test_two_hundred_calls_at_once_do_not_mix_what_they_write(module: Module) -> None:
    async with Workbench([module(ECHO, "echo")]) as bench:
        given = [{"n": n, "text": "x" * (n * 37 % 9000)} for n in range(200)]
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


@pytest.mark.full
async def test_a_program_ends_cleanly_right_after_a_call(module: Module, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from toolcrib import Workbench\n"
        f"with Workbench([{str(module(ECHO, 'echo'))!r}]) as bench:\n"
        "    print(bench.call_sync('echo', {'a': 1}).text)\n"
    )
    for _ in range(5):
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=os.environ)
        assert (done.returncode, done.stdout, done.stderr) == (0, '{"a":1}\n', "")
