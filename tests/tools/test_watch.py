"""Files that change under a source: what is loaded, what is kept, and what is reported of it."""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Source, Workbench
from toolcrib.cli.sources import open_sources
from toolcrib.core import LoadError
from toolcrib.tools import Permissions, openapi_source
from toolcrib.tools.lock import Lock, LockedSource, definition_of, locked_hash
from toolcrib.tools.watch import Change, Watched, WatchedDocument, WatchedSandboxed
from toolcrib.workbench.settings import find_settings, read_settings

from ..waiting import until
from .guests import SAYS
from .tool_folders import module, tool_files

ADD = '''from toolcrib import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''

PAIR = (
    ADD
    + '''

@tool
def double(a: int) -> int:
    """Double a number."""
    return 2 * a
'''
)


def uses(module: str, name: str = "answer") -> str:
    return f"from toolcrib import tool\nimport {module}\n\n\n@tool\ndef {name}() -> int:\n    return {module}.VALUE\n"


def names(watched: Source) -> list[str]:
    return [tool.spec.name for tool in watched.tools()]


def value(watched: Watched, name: str, **arguments: Any) -> Any:
    return next(tool for tool in watched.tools() if tool.spec.name == name).fn(**arguments)


def problems(watched: Watched) -> list[str]:
    return [str(problem) for problem in watched.problems]


def save(file: Path, text: str) -> None:
    """As editors do: written beside, and put in its place, so that no look comes between two halves."""
    beside = file.with_suffix(".saved")
    beside.write_text(text)
    beside.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "tools.py"
    made.write_text(ADD)
    return made


# What a save does


def test_what_is_saved_is_there_and_what_is_deleted_is_not(file: Path) -> None:
    watched = Watched(file)
    assert (names(watched), problems(watched), watched.look()) == (["add"], [], None)
    file.write_text(PAIR.replace("Add two", "Sum two").replace("2 * a", "a + a"))
    assert watched.look() == Change((file,), {"new": ["double"], "changed": ["add"]})
    assert [tool.spec.description for tool in watched.tools()] == ["Sum two numbers.", "Double a number."]
    file.write_text(ADD.replace("def add(a: int, b: int)", "def plus(a: float, b: float)"))
    assert watched.look() == Change((file,), {"new": ["plus"], "gone": ["add", "double"]})
    assert value(watched, "plus", a=1, b=2) == 3


def test_a_change_of_size_nothing_within_a_second_is_loaded_too(file: Path) -> None:
    # Python would take its bytecode for current.
    watched = Watched(file)
    file.write_text(ADD.replace("a + b", "a * b"))
    os.utime(file, (1, 1))
    assert watched.look() == Change((file,))
    file.write_text(ADD.replace("a + b", "a - b"))
    os.utime(file, (1, 1))
    assert watched.look() == Change((file,))
    assert value(watched, "add", a=5, b=2) == 3


# What cannot be loaded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ADD + "\n\ndef (:\n", ":10: SyntaxError: invalid syntax"),
        (ADD + "\nimport no_such_module\n", ":9: ModuleNotFoundError: No module named 'no_such_module'"),
        (ADD + "\nraise SystemExit(3)\n", ":9: SystemExit: 3"),
        (ADD.replace("a: int", "a: object()"), ":4: "),
    ],
)
def test_what_cannot_be_loaded_changes_nothing_and_names_file_and_line(file: Path, text: str, message: str) -> None:
    watched = Watched(file)
    (before,) = watched.tools()
    file.write_text(ADD)
    assert watched.look() is None
    file.write_text(text)
    change = watched.look()
    assert change == Change(problems=tuple(watched.problems))
    (problem,) = problems(watched)
    assert problem.startswith(f"{file}{message}")
    assert watched.tools() == [before]
    assert sys.modules[before.fn.__module__].__dict__ is before.fn.__globals__
    file.write_text(PAIR)
    assert watched.look() == Change((file,), {"new": ["double"]})
    assert problems(watched) == []


def test_a_tool_that_cannot_work_stays_as_it_was_and_the_others_are_loaded(file: Path) -> None:
    file.write_text(PAIR)
    watched = Watched(file)
    before = {tool.spec.name: tool for tool in watched.tools()}
    new = "\n\n@tool\ndef negate(a: int) -> int:\n    return -a\n"
    file.write_text(PAIR.replace("add(a: int", "add(a: object()").replace("2 * a", "a + a") + new)
    change = watched.look()
    assert change == Change((file,), {"new": ["negate"]}, problems=tuple(watched.problems))
    assert problems(watched)[0].startswith(f"{file}:4: Tool 'add': ")
    after = {tool.spec.name: tool for tool in watched.tools()}
    assert after.keys() == {"add", "double", "negate"}
    assert (after["add"] is before["add"], after["double"] is before["double"]) == (True, False)
    file.write_text(ADD)
    assert watched.look() == Change((file,), {"gone": ["double", "negate"]})
    assert problems(watched) == []


def test_a_file_that_is_emptied_gone_or_not_a_file_any_more(file: Path) -> None:
    watched = Watched(file)
    file.write_text("")
    assert watched.look() == Change((file,), {"gone": ["add"]}, problems=tuple(watched.problems))
    assert problems(watched) == [f"{file}: It defines no tool. Mark functions with @tool."]
    file.write_text(ADD)
    assert watched.look() == Change((file,), {"new": ["add"]})
    # Unreadable, for root too: a link to itself.
    file.unlink()
    file.symlink_to(file)
    assert watched.look() == Change(problems=tuple(watched.problems))
    assert (names(watched), problems(watched)) == (["add"], [f"{file}: It is not a file that can be read."])
    file.unlink()
    file.mkdir()
    watched.look()
    assert (names(watched), problems(watched)) == (["add"], [f"{file}: It is not a file that can be read."])
    file.rmdir()
    watched.look()
    assert (names(watched), problems(watched)) == ([], [f"{file}: It was removed, and its tools with it."])
    file.write_text(ADD)
    watched.look()
    assert (names(watched), problems(watched)) == (["add"], [])


@pytest.mark.parametrize("name", ["nothing.py", "tools.txt"])
def test_what_is_neither_a_python_file_nor_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "tools.txt").write_text("text")
    with pytest.raises(LoadError, match=r"A source is a function, a Tool"):
        Watched(tmp_path / name)


# Folders, and what is imported from beside


def test_in_a_folder_what_has_changed_is_loaded_and_all_where_a_file_beside_has(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "a.py").write_text(ADD)
    (folder / "b.py").write_text(uses("_shared"))
    (folder / "_shared.py").write_text("VALUE = 1\n")
    watched = Watched(folder)
    add = watched.tools()[0]
    assert names(watched) == ["add", "answer"]
    (folder / "c.py").write_text(ADD.replace("add", "plus"))
    (folder / "notes.txt").write_text("no tools")
    assert watched.look() == Change((folder / "c.py",), {"new": ["plus"]})
    assert watched.tools()[0] is add
    (folder / "_shared.py").write_text("VALUE = 2\n")
    assert watched.look() == Change((folder / "a.py", folder / "b.py", folder / "c.py"))
    assert value(watched, "answer") == 2
    (folder / "b.py").unlink()
    assert watched.look() == Change((), {"gone": ["answer"]})
    for file in folder.glob("*.py"):
        file.unlink()
    watched.look()
    assert problems(watched) == [f"{folder}: The folder has no .py file."]


@pytest.mark.parametrize("on_path", [False, True])
def test_files_beside_are_followed_through_each_other_and_through_packages(
    on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path.resolve()
    if on_path:
        monkeypatch.syspath_prepend(str(folder))
    mark = f"beside_{on_path}"
    (folder / "tools.py").write_text(uses(f"{mark}_one"))
    (folder / f"{mark}_one.py").write_text(f"from {mark}_pack.inner import VALUE\n")
    (folder / f"{mark}_pack").mkdir()
    (folder / f"{mark}_pack" / "__init__.py").write_text("")
    (folder / f"{mark}_pack" / "inner.py").write_text("from .most import VALUE\n")
    (folder / f"{mark}_pack" / "most.py").write_text("VALUE = 1\n")
    watched = Watched(folder / "tools.py")
    assert value(watched, "answer") == 1
    for number, changed in enumerate([f"{mark}_pack/most.py", f"{mark}_pack/inner.py", f"{mark}_one.py"], 2):
        (folder / changed).write_text(f"VALUE = {number}\n")
        assert watched.look() == Change((folder / "tools.py",))
        assert value(watched, "answer") == number


def test_a_broken_file_beside_is_named_and_its_users_go_on(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "tools.py").write_text(uses("beside_two"))
    (folder / "beside_two.py").write_text("VALUE = 1\n")
    watched = Watched(folder / "tools.py")
    (folder / "beside_two.py").write_text("VALUE = (\n")
    watched.look()
    assert problems(watched) == [f"{folder}/beside_two.py:1: SyntaxError: '(' was never closed"]
    assert value(watched, "answer") == 1
    # Deleted, it can be imported no more; written again, it can.
    (folder / "beside_two.py").unlink()
    watched.look()
    assert problems(watched) == [f"{folder}/tools.py:2: ModuleNotFoundError: No module named 'beside_two'"]
    (folder / "beside_two.py").write_text("VALUE = 3\n")
    assert watched.look() == Change((folder / "tools.py",))
    assert (value(watched, "answer"), problems(watched)) == (3, [])


# While it runs


async def test_known_secrets_are_redacted_in_what_is_logged_of_a_file(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Workbench([Watched(file, settle_s=0)], secrets=["hush-hush"]) as bench:
        save(file, "raise RuntimeError('hush-hush')")
        await until(lambda: bool(caplog.records) and bool(bench.problems))
        assert bench.problems[0].reason == "RuntimeError: hush-hush"
    assert caplog.messages == [f"Not loaded, so its tools stay as they were: {file}:1: RuntimeError: [secret]"]


async def test_after_stop_nothing_is_loaded_and_it_can_start_again(file: Path) -> None:
    watched = Watched(file, settle_s=0)
    await watched.start()
    await watched.stop()
    await watched.stop()
    await until(lambda: not any(thread.name == f"toolcrib-watch-{file.name}" for thread in threading.enumerate()))
    save(file, PAIR)
    assert names(watched) == ["add"]
    await watched.start()
    try:
        await until(lambda: names(watched) == ["add", "double"])
    finally:
        await watched.stop()


# In a workbench


async def called(bench: Workbench, name: str, **arguments: Any) -> Any:
    return (await bench.call(name, arguments)).unwrap()


@pytest.mark.full
async def test_worker_processes_are_started_again_with_what_is_saved(file: Path) -> None:
    save(file.parent / "beside_three.py", "VALUE = 1\n")
    save(file, uses("beside_three").replace("@tool", '@tool(isolation="process")'))
    async with Workbench([Watched(file, settle_s=0.05)]) as bench:
        assert await called(bench, "answer") == 1
        # At once: whoever sees the new tool is served by no worker that knows the old one.
        loop, answers = asyncio.get_running_loop(), list[Any]()

        def ask() -> None:
            answers.append(asyncio.run_coroutine_threadsafe(called(bench, "answer"), loop).result())

        end = bench.registry.on_change(ask)
        save(file.parent / "beside_three.py", "VALUE = 2\n")
        await until(lambda: bool(answers))
        end()
        assert answers == [2]
        save(file, file.read_text().replace(".VALUE", ".VALUE + 40"))
        second = next(iter(bench.registry))
        await until(lambda: next(iter(bench.registry)) is not second)
        assert await called(bench, "answer") == 42
        # A worker that is there goes on with what it has imported.
        save(file, "def (:\n")
        await until(lambda: bool(bench.problems))
        assert await called(bench, "answer") == 42


# Tools for the sandbox


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def described(watched: WatchedSandboxed) -> dict[str, str]:
    return {tool.spec.name: tool.spec.description for tool in watched.tools()}


def test_a_folder_of_tools_follows_each_and_keeps_one_that_breaks(tmp_path: Path) -> None:
    write(tmp_path, {**tool_files("one"), **tool_files("two")})
    watched = WatchedSandboxed(tmp_path, Permissions())
    assert (described(watched), watched.look()) == ({"one": "Give it back.", "two": "Give it back."}, None)
    write(tmp_path, {**tool_files("one", "Other."), **tool_files("three"), "two/tool.toml": "name ="})
    change = watched.look()
    assert change.tools == {"new": ["three"], "changed": ["one"]}
    assert [problem.place for problem in change.problems] == [str(tmp_path / "two")]
    assert described(watched) == {"one": "Other.", "two": "Give it back.", "three": "Give it back."}
    for file in (tmp_path / "three").iterdir():
        file.unlink()
    write(tmp_path, tool_files("two"))
    assert (watched.look().tools, watched.problems) == ({"gone": ["three"]}, [])


def test_what_a_tool_needs_is_refused_without_permission_when_it_comes_later(tmp_path: Path) -> None:
    write(tmp_path, tool_files("one"))
    watched = WatchedSandboxed(tmp_path / "one", Permissions())
    write(tmp_path, tool_files("one", more='variables = ["REGION"]'))
    assert "variables = [" in watched.look().problems[0].reason
    assert [tool.requires["variables"] for tool in watched.tools()] == [[]]


async def test_a_module_that_is_saved_is_the_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path, {"guest.wasm": module()})
    watched = WatchedSandboxed(tmp_path / "guest.wasm", Permissions())
    async with Workbench([watched]) as bench:
        assert (await bench.call("guest", '{"a":1}')).text == '{"a":1}'
        write(tmp_path, {"guest.wasm": module(SAYS.format("new", 3))})
        watched.look()
        assert (await bench.call("guest", "{}")).text == "new"


# Documents

HEAD = "openapi: 3.1.0\ninfo: { title: Parts, version: '1' }\nservers: [{ url: https://api.example.com }]\npaths:\n"
OK = "{ responses: { '200': { description: ok } } }"


def document(*names: str, more: str = "") -> str:
    return HEAD + "".join(f"  /{name}: {{ get: {OK} }}\n" for name in names) + more


def watch(file: Path, **options: bool) -> WatchedDocument:
    return WatchedDocument(file, lambda: openapi_source(file, **options), settle_s=0.01)


def test_what_is_saved_is_loaded_and_a_broken_document_keeps_its_tools(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(document("a"))
    watched = watch(file)
    assert (names(watched), watched.look()) == (["get_a"], None)

    file.write_text(document("a", "b", more="  /c: { get: { parameters: [{ in: query }] } }\n"))
    change = watched.look()
    assert change.tools == {"new": ["get_b"]}
    assert [problem.reason for problem in change.problems] == [
        "GET /c is left out: a parameter of it has no name or no place."
    ]

    file.write_text(document("b", more="  /c: { get: { parameters: [{ in: query }] } }\n"))
    change = watched.look()
    assert (change.tools["gone"], names(watched), len(watched.problems)) == (["get_a"], ["get_b"], 1)
    file.write_text(document("a", "b"))
    watched.look()

    file.write_text(document("b") + "  /c: {")
    change = watched.look()
    (problem,) = change.problems
    assert (problem.place, names(watched)) == (str(file), ["get_a", "get_b"])
    assert problem.reason.startswith("It is not valid YAML: line ")
    assert problem in watched.problems

    file.write_text(document("b"))
    change = watched.look()
    assert (change.tools["gone"], names(watched), watched.problems) == (["get_a"], ["get_b"], [])

    file.unlink()
    change = watched.look()
    assert (names(watched), [problem.reason for problem in change.problems]) == (
        [],
        ["It was removed, and its tools with it."],
    )
    file.write_text(document("b"))
    watched.look()
    assert (names(watched), watched.problems) == (["get_b"], [])


def test_files_that_it_refers_to_are_followed(tmp_path: Path) -> None:
    file, other = tmp_path / "api.yaml", tmp_path / "paths.yaml"
    other.write_text(f"b: {{ get: {OK} }}")
    file.write_text(document("a", more="  /b: { $ref: 'paths.yaml#/b' }\n"))
    watched = watch(file, external_refs=True)
    assert names(watched) == ["get_a", "get_b"]
    other.write_text(f"b: {{ get: {OK}, delete: {OK} }}")
    assert watched.look().tools == {"new": ["delete_b"]}


async def test_the_command_follows_a_document_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "api.yaml"
    file.write_text(document("a").replace("https://api.example.com", "/"))
    settings = '[[source]]\nfrom = "api.yaml"\nopenapi = { server = "https://api.example.com" }\n'
    (tmp_path / "toolcrib.toml").write_text(settings)
    opened = open_sources((), read_settings(find_settings(None)), example="", follow=True)
    async with opened.bench as bench:
        await serves(bench, {"get_a"})
        save(file, document("a", "b").replace("https://api.example.com", "/"))
        await serves(bench, {"get_a", "get_b"})
        save(file, "openapi: [")
        await until(lambda: any("not valid YAML" in str(problem) for problem in bench.problems))
        await serves(bench, {"get_a", "get_b"})


async def serves(bench: Workbench, wanted: set[str]) -> None:
    await until(lambda: {spec.name for spec in bench.specs() if spec is not bench.reader()} == wanted)


SAY = """from toolcrib import tool
import words

@tool
def say() -> str:
    \"\"\"Say a word.\"\"\"
    return words.WORD
"""


@pytest.mark.parametrize(
    ("source", "changed"),
    [("say.py", "say.py"), ("say.py", "words.py"), ("tools", "tools/words.py"), ("echo", "echo/tool.toml")],
)
async def test_what_is_locked_is_not_loaded_again_with_other_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, changed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "words", raising=False)
    code = {"say.py": SAY, "words.py": 'WORD = "locked"\n'}
    write(tmp_path, code | {f"tools/{name}": text for name, text in code.items()} | tool_files("echo"))
    (tmp_path / "toolcrib.toml").write_text(f'[[source]]\nfrom = "{source}"\n')
    settings = read_settings(find_settings(None))
    tools = open_sources((), settings, example="").bench.registry
    locked = LockedSource(f"./{source}", None, locked_hash(source), {t.spec.name: definition_of(t) for t in tools})
    Lock(tmp_path / "toolcrib.lock").with_source(locked).write()

    before = (tmp_path / changed).read_text()
    async with open_sources((), settings, example="", follow=True).bench as bench:
        old = [*bench.registry]
        save(tmp_path / changed, before.replace("locked", "other") + "# more\n")
        await until(lambda: any("has changed since it was locked" in str(problem) for problem in bench.problems))
        assert (len(bench.problems), [*bench.registry]) == (1, old)
        assert source == "echo" or (await bench.call("say")).text == "locked"
        save(tmp_path / changed, before)
        await until(lambda: not bench.problems)
        assert [tool.spec for tool in bench.registry] == [tool.spec for tool in old]
