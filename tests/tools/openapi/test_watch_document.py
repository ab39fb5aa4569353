"""A document that changes on disk: what is loaded again, what is kept, and what is reported of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from toolcrib import Workbench
from toolcrib.cli.sources import open_sources
from toolcrib.tools import openapi_source
from toolcrib.tools.watch import WatchedDocument
from toolcrib.workbench.settings import find_settings, read_settings

HEAD = "openapi: 3.1.0\ninfo: { title: Parts, version: '1' }\nservers: [{ url: https://api.example.com }]\npaths:\n"
OK = "{ responses: { '200': { description: ok } } }"


def document(*names: str, more: str = "") -> str:
    return HEAD + "".join(f"  /{name}: {{ get: {OK} }}\n" for name in names) + more


def names(watched: WatchedDocument) -> list[str]:
    return [tool.spec.name for tool in watched.tools()]


def watch(file: Path, **options: bool) -> WatchedDocument:
    return WatchedDocument(file, lambda: openapi_source(file, **options), settle_s=0.01)


async def until(holds: Callable[[], bool]) -> None:
    end_s = monotonic() + 60
    while not holds():
        assert monotonic() < end_s
        await asyncio.sleep(0.01)


def test_what_is_saved_is_loaded_and_a_broken_document_keeps_its_tools(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(document("a"))
    watched = watch(file)
    assert (names(watched), watched.look()) == (["get_a"], None)

    file.write_text(document("a", "b", more="  /c: { get: { parameters: [{ in: query }] } }\n"))
    change = watched.look()
    assert change is not None
    assert (change.added, change.removed) == (("get_b",), ())
    assert [problem.reason for problem in change.problems] == [
        "GET /c is left out: a parameter of it has no name or no place."
    ]

    file.write_text(document("b", more="  /c: { get: { parameters: [{ in: query }] } }\n"))
    change = watched.look()
    assert change is not None
    assert (change.removed, names(watched), len(watched.problems)) == (("get_a",), ["get_b"], 1)
    file.write_text(document("a", "b"))
    watched.look()

    file.write_text(document("b") + "  /c: {")
    change = watched.look()
    assert change is not None
    (problem,) = change.problems
    assert (problem.place, names(watched)) == (str(file), ["get_a", "get_b"])
    assert problem.reason.startswith("It is not valid YAML: line ")
    assert problem in watched.problems

    file.write_text(document("b"))
    change = watched.look()
    assert change is not None
    assert (change.removed, names(watched), watched.problems) == (("get_a",), ["get_b"], [])

    file.unlink()
    change = watched.look()
    assert change is not None
    assert (names(watched), [problem.reason for problem in change.problems]) == (
        [],
        ["It was removed, and its tools with it."],
    )
    file.write_text(document("b"))
    watched.look()
    assert (names(watched), watched.problems) == (["get_b"], [])


def test_one_that_is_broken_at_first_is_read_when_it_is_repaired(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text("{")
    watched = watch(file)
    assert [problem.reason[:20] for problem in watched.problems] == ["It is not valid JSON"]
    file.write_text(document("a"))
    watched.look()
    assert (names(watched), watched.problems) == (["get_a"], [])


def test_files_that_it_refers_to_are_followed(tmp_path: Path) -> None:
    file, other = tmp_path / "api.yaml", tmp_path / "paths.yaml"
    other.write_text(f"b: {{ get: {OK} }}")
    file.write_text(document("a", more="  /b: { $ref: 'paths.yaml#/b' }\n"))
    watched = watch(file, external_refs=True)
    assert names(watched) == ["get_a", "get_b"]
    other.write_text(f"b: {{ get: {OK}, delete: {OK} }}")
    change = watched.look()
    assert change is not None
    assert change.added == ("delete_b",)


async def test_the_command_follows_a_document_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "api.yaml"
    file.write_text(document("a").replace("https://api.example.com", "/"))
    settings = '[[source]]\nfrom = "api.yaml"\nopenapi = { server = "https://api.example.com" }\n'
    (tmp_path / "toolcrib.toml").write_text(settings)
    opened = open_sources((), read_settings(find_settings(None)), example="", follow=True)
    async with opened.bench as bench:
        await serves(bench, {"get_a"})
        file.write_text(document("a", "b").replace("https://api.example.com", "/"))
        await serves(bench, {"get_a", "get_b"})
        file.write_text("openapi: [")
        await until(lambda: any("not valid YAML" in str(problem) for problem in bench.problems))
        await serves(bench, {"get_a", "get_b"})


async def serves(bench: Workbench, wanted: set[str]) -> None:
    await until(lambda: {spec.name for spec in bench.specs()} == wanted)
