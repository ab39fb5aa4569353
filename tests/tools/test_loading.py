"""Any source becomes tools; a file that cannot be imported is named, with its line, and harms no other."""

import functools
import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Source, Tool, Workbench, tool
from toolcrib.core import DefinitionError, LoadError, ToolSpec
from toolcrib.tools import LoadProblem, is_tool, load, loading

from ..sandbox.test_source_imports import plant

ADD = """
from toolcrib import tool

@tool
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture(autouse=True)
def nothing_changes_for_good() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    assert sys.path == path
    left = {name for name in set(sys.modules) - modules if not name.startswith("toolcrib_")}
    assert {name for name in left if "tmp" in str(getattr(sys.modules[name], "__file__", ""))} == set()


def names(source: Any) -> list[str]:
    return [made.spec.name for made in load(source).tools]


def refusal(source: Any) -> str:
    with pytest.raises(LoadError) as raised:
        load(source)
    return str(raised.value)


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@tool
def here(a: int) -> int:
    """Is here."""
    return a


def unmarked(a: int) -> int:
    return a


class Offers:
    def __init__(self, offered: Any) -> None:
        self.offered = offered

    def __toolcrib__(self) -> Any:
        return self.offered


class Holder:
    @tool
    def work(self, a: int) -> int:
        return a

    @tool(name="made_of_class")
    @classmethod
    def of_class(cls, a: int) -> int:
        return a


holder = Holder()


# Objects


def test_callables_tools_and_objects_that_offer_tools() -> None:
    made = Tool(unmarked)
    assert names(here) == ["here"]
    assert names(unmarked) == ["unmarked"]
    assert names(holder.work) == ["work"]
    assert names(Holder.of_class) == ["made_of_class"]
    assert load(made).tools == [made]
    assert load(Offers(made)).tools == [made]
    assert load(Offers([made, Tool(here)])).tools[0] is made
    assert names(Offers((made, Tool(here)))) == ["unmarked", "here"]
    assert names(Offers([])) == []


class Foreign:
    """A tool that is not one of ours: what the protocol asks for, and no more."""

    spec = ToolSpec(name="foreign", description="Elsewhere.", input_schema={"type": "object"})

    def check(self, arguments: Any, repair: bool, /) -> Any:
        return {}, ()

    async def work(self, arguments: dict[str, Any], context: Any) -> int:
        return 1

    def encode(self, value: Any, /) -> str:
        return "1"


def test_any_object_that_satisfies_the_protocol_is_a_tool(tmp_path: Path) -> None:
    foreign = Foreign()

    class Group(Source):
        def tools(self) -> list[Any]:
            return [foreign, here]

    for source in (foreign, Offers(foreign), Offers([foreign, Tool(here)]), Group()):
        made = load(source).tools[0]
        made.encode(1)
        assert (made.spec, made.check, made.work, made.encode) == (
            *(foreign.spec, foreign.check, foreign.work, foreign.encode),
        )
        assert Workbench([source]).call_sync("foreign", {}).value == 1
    write(tmp_path, tools=f"from {__name__} import Foreign\nforeign = Foreign()\n")
    assert names(tmp_path / "tools.py") == ["foreign"]
    assert names(f"{tmp_path / 'tools.py'}:foreign") == ["foreign"]


def test_only_an_object_that_has_all_of_a_tool_is_one() -> None:
    class Anything:
        def __getattr__(self, name: str) -> Any:
            return self

    class Raises:
        @property
        def spec(self) -> Any:
            raise RuntimeError

    assert is_tool(Foreign())
    assert is_tool(Tool(here))
    half = Foreign()
    half.encode = None  # type: ignore[assignment]
    for other in (Foreign, Tool, here, Foreign.spec, half, Anything(), Raises(), types, None):
        assert not is_tool(other)


def test_a_function_or_object_that_cannot_be_a_tool_is_refused_with_its_place() -> None:
    def bad(a: Offers) -> None: ...

    class Several:
        @tool
        def good(self) -> None: ...

        @tool
        def bad(self, a: Offers) -> None: ...

    for source in (bad, Several(), Several):
        with pytest.raises(DefinitionError, match="'a' has the type Offers, which has no JSON Schema") as raised:
            load(source)
        code = (bad if source is bad else Several.bad).__code__
        assert raised.value.__notes__ == [f"It is defined at {__file__}:{code.co_firstlineno}."]


@pytest.mark.parametrize(("offered", "kind"), [(None, "NoneType"), ("add", "str"), ([here], "function")])
def test_an_object_that_offers_something_else_is_refused(offered: Any, kind: str) -> None:
    assert refusal(Offers(offered)) == f"Offers.__toolcrib__() returned a {kind}. It returns a Tool or a list of Tools."


@pytest.mark.parametrize(
    "source",
    [5, None, [here]],
    ids=["int", "None", "list"],
)
def test_what_is_not_a_source_is_refused(source: Any) -> None:
    message = refusal(source)
    assert message.startswith(
        f"A value of type {type(source).__name__} is not a source of tools. A source is a function, a Tool, "
    )


# Modules and references


def test_a_module_gives_what_it_defines_and_marks() -> None:
    module = sys.modules[__name__]
    assert names(module) == ["here"]
    made: Any = types.ModuleType("made")
    made.here = here
    assert "made defines no tool. Mark its functions with @tool" in refusal(made)
    made.__all__ = ["here"]
    assert names(made) == ["here"]


def test_references_name_a_module_or_something_in_it() -> None:
    assert names("json:dumps") == ["dumps"]
    assert names(f"{__name__}:here") == ["here"]
    assert names(f"{__name__}:holder.work") == ["work"]
    assert names(f"{__name__}:Holder.of_class") == ["made_of_class"]
    assert names(__name__) == ["here"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "An empty text is not a source of tools."),
        ("no such", "'no such' is not a source of tools, and there is no such file. A source is a .py or"),
        ("nowhere.py", "There is no file nowhere.py."),
        ("nowhere.py:add", "There is no file nowhere.py."),
        (
            "nowhere_at_all",
            "'nowhere_at_all' cannot be imported: there is no module 'nowhere_at_all', and no file of that name.",
        ),
        ("json:nothing", "'json:nothing': there is no 'nothing' in json."),
        ("json", "json defines no tool. Mark its functions with @tool, or name one: json:name."),
        ("json:__name__", "A value of type str is not a source of tools."),
    ],
)
def test_references_that_lead_nowhere_are_refused(source: str, words: str) -> None:
    assert words in refusal(source)


def test_a_module_that_fails_to_import_is_named_with_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path, broken_module_of_test="x = 1\n\nraise RuntimeError('oh')\n", asks_for_more="import nowhere_at_all\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert refusal("broken_module_of_test") == f"{tmp_path}/broken_module_of_test.py:3: RuntimeError: oh"
    assert refusal("asks_for_more:add") == (
        f"{tmp_path}/asks_for_more.py:1: ModuleNotFoundError: No module named 'nowhere_at_all'"
    )
    monkeypatch.undo()


# Files


@pytest.mark.parametrize("name", ["my.tools", "1st größe", "json", "_hidden"])
async def test_a_file_gives_its_tools_whatever_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(ADD)
    for source in (file, str(file)):
        async with Workbench([source]) as bench:
            assert (await bench.call("add", {"a": 1, "b": 2})).value == 3
    assert names(f"{file}:add") == ["add"]


def test_a_file_gives_functions_methods_partials_builtins_and_tools(tmp_path: Path) -> None:
    text = """
import functools, json, math
from toolcrib import Tool, tool

class Counter:
    @tool
    def count(self, a: int) -> int:
        return a

@tool
def first(a: int) -> int:
    return a

@tool(name="second")
@functools.lru_cache
def cached(a: int) -> int:
    return a

def plain(a: int) -> int:
    return a

count = Counter().count
root = tool(math.sqrt)
dumps = Tool(json.dumps, name="dumps", parameters={"properties": {"obj": {}}, "required": ["obj"]})
fixed = tool(name="fixed")(functools.partial(plain, a=1))
same = first
"""
    file = tmp_path / "tools.py"
    file.write_text(text)
    assert names(file) == ["first", "second", "count", "sqrt", "dumps", "fixed"]


def test_what_a_file_only_imports_is_not_its_own_unless_it_exports_it(tmp_path: Path) -> None:
    text = (
        f"from toolcrib import tool\nfrom {__name__} import here, unmarked\n@tool\ndef own(a: int) -> int: return a\n"
    )
    write(tmp_path, tools=text, exports=text + "__all__ = ['own', 'here']\n")
    assert names(tmp_path / "tools.py") == ["own"]
    assert names(tmp_path / "exports.py") == ["here", "own"]
    assert names(f"{tmp_path / 'tools.py'}:here") == ["here"]


SOME_BAD = (
    ADD
    + """
class Point: ...

@tool
def move(point: Point) -> None: ...

class Robot:
    @tool
    def stop(self) -> None: ...

    @tool
    def go(self, to: list[Point]) -> None: ...

robot = Robot().go

@tool(name="a b")
def named(a: int) -> int:
    return a
"""
)


def test_one_bad_tool_does_not_take_the_others_of_its_file_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, some_bad_tools_of_test=SOME_BAD)
    file = tmp_path / "some_bad_tools_of_test.py"
    for source in (file, str(file), tmp_path):
        loaded = load(source)
        assert [made.spec.name for made in loaded.tools] == ["add"]
        assert [problem.place for problem in loaded.problems] == [f"{file}:22", f"{file}:10", f"{file}:17"]
        assert loaded.problems[1].reason.startswith(
            "Tool 'move': parameter 'point' has the type Point, which has no JSON"
        )
    bench = Workbench([file])
    assert ([spec.name for spec in bench.specs()], len(bench.problems)) == (["add"], 3)


def test_no_message_names_the_module_that_was_made_for_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my-tools.py"
    file.write_text(SOME_BAD + "\nclass Lost(Exception):\n    def __str__(self): return repr(type(self))\n")
    messages = [
        *map(str, load(file).problems),
        refusal(f"{file}:nothing"),
        refusal(f"{file}:Robot"),
        refusal(f"{file}:Point.nothing"),
    ]
    assert "there is no 'nothing' in my_tools." in messages[-3]
    file.write_text(file.read_text() + "raise Lost\n")
    messages.append(refusal(file))
    assert messages[-1].endswith("Lost: <class 'Lost'>")
    assert [message for message in messages if "toolcrib_" in message] == []


BROKEN = {
    "ImportError": ("import os\nfrom json import nothing_such\n", "2: ImportError: cannot import name"),
    "SyntaxError": ("a = 1\nb = = 2\n", "2: SyntaxError: invalid syntax"),
    "IndentationError": ("def a():\nreturn 1\n", "2: IndentationError: "),
    "NameError": ("\n\n\nundefined\n", "4: NameError: name 'undefined' is not defined"),
    "exit": ("import sys\nsys.exit(3)\n", "2: SystemExit: 3"),
    "silent exit": ("raise SystemExit\n", "1: SystemExit"),
    "deep": ("import json\ndef f():\n    json.loads('{')\n\nf()\n", "3: JSONDecodeError: "),
    "definition": (
        "from toolcrib import tool\n\n@tool(name='a b')\ndef add(a: int): ...\n",
        ":3: 'a b' cannot be the name of a tool",
    ),
}


async def test_annotations_of_a_file_are_read_where_it_stands(tmp_path: Path) -> None:
    text = """
from __future__ import annotations
from dataclasses import dataclass
from typing_extensions import TypedDict
from toolcrib import tool
from shapes import Point

class Line(TypedDict):
    start: Point
    next: Line | None

@dataclass
class Size:
    width: int
    inner: Size | None = None

@tool
def measure(line: Line, size: Size) -> int:
    return line["start"].x + size.width
"""
    write(tmp_path, tools=text, shapes="from pydantic import BaseModel\nclass Point(BaseModel):\n    x: int\n")
    async with Workbench([tmp_path / "tools.py"]) as bench:
        arguments = {"line": {"start": {"x": 1}, "next": None}, "size": {"width": 2, "inner": {"width": 3}}}
        assert (await bench.call("measure", arguments)).unwrap() == 3


# Siblings


async def test_siblings_of_one_name_in_two_folders_stay_apart(tmp_path: Path) -> None:
    text = "from toolcrib import tool\nimport helper_of_test\n@tool\ndef {}() -> str: return helper_of_test.WHO\n"
    one = write(tmp_path / "one", tools=text.format("one"), helper_of_test="WHO = 'one'\n")
    two = write(tmp_path / "two", tools=text.format("two"), helper_of_test="WHO = 'two'\n")
    async with Workbench([one / "tools.py", two]) as bench:
        assert [(await bench.call(name)).value for name in ("one", "two")] == ["one", "two"]


async def test_a_sibling_goes_before_a_module_of_the_program_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = types.ModuleType("helper_of_test")
    monkeypatch.setitem(sys.modules, "helper_of_test", mine)
    text = "from toolcrib import tool\nfrom helper_of_test import WHO\n@tool\ndef who() -> str: return WHO\n"
    folder = write(tmp_path / "tools", tools=text, helper_of_test="WHO = 'sibling'\n")
    async with Workbench([folder]) as bench:
        assert (await bench.call("who")).value == "sibling"
    assert sys.modules["helper_of_test"] is mine


def test_packages_of_an_environment_inside_the_folder_stay_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, tools="import installed_of_test, helper.inner\n" + ADD)
    write(tmp_path / ".venv", installed_of_test="")
    write(tmp_path / "helper", __init__="", inner="")
    monkeypatch.syspath_prepend(tmp_path / ".venv")
    assert names(tmp_path / "tools.py") == ["add"]
    assert [name for name in ("installed_of_test", "helper", "helper.inner") if name in sys.modules] == [
        "installed_of_test"
    ]
    monkeypatch.undo()
    del sys.modules["installed_of_test"]


# Folders


def test_a_folder_gives_the_tools_of_its_files_in_order(tmp_path: Path) -> None:
    def one(name: str) -> str:
        return ADD.replace("def add", f"def {name}")

    write(tmp_path, b=one("second"), a=one("first"), _hidden=one("hidden"), __init__=one("init"), plain="x = 1\n")
    (tmp_path / ".dot.py").write_text(one("dot"))
    (tmp_path / "notes.txt").write_text("no")
    write(tmp_path / "inner", deep=one("deep"))
    assert names(tmp_path) == ["first", "second"]
    assert names(str(tmp_path)) == ["first", "second"]


def test_a_file_that_fails_is_a_problem_and_the_others_load(tmp_path: Path) -> None:
    folder = write(tmp_path / "tools", good=ADD, **{kind.replace(" ", "_"): text for kind, (text, _) in BROKEN.items()})
    (folder / "binary.py").write_bytes(b"\x00")
    (folder / "dangling.py").symlink_to(folder / "nowhere.py")
    (folder / "folder.py").mkdir()
    write(
        folder,
        untyped="from toolcrib import tool\nclass C: ...\n@tool\ndef use(a: C) -> None: ...\n",
    )
    bench = Workbench([folder])
    assert [spec.name for spec in bench.specs()] == ["add"]
    problems = {problem.place.removeprefix(f"{folder}/"): problem.reason for problem in bench.problems}
    assert sorted(problems) == sorted([
        "ImportError.py:2", "IndentationError.py:2", "NameError.py:4", "SyntaxError.py:2", "binary.py", "dangling.py",
        "deep.py:3", "definition.py:3", "exit.py:2", "folder.py", "silent_exit.py:1", "untyped.py:3",
    ])  # fmt: skip
    for text, words in BROKEN.values():
        (tmp_path / "broken.py").write_text(text)
        message = refusal(tmp_path / "broken.py")
        assert message.startswith(f"{tmp_path}/broken.py:")
        assert words in message
    assert "which has no JSON Schema" in problems["untyped.py:3"]
    assert str(LoadProblem("a.py:1", "b")) == "a.py:1: b"


def test_two_files_that_import_one_tool_do_not_conflict(tmp_path: Path) -> None:
    again = f"from toolcrib import tool\nfrom {__name__} import here\nfrom b import add\n__all__ = ['here', 'add']\n"
    folder = write(tmp_path / "tools", a=again, b=ADD, c=again)
    assert sorted(spec.name for spec in Workbench([folder]).specs()) == ["add", "here"]


# Objects of other packages, by readers that are installed under the entry point `toolcrib.sources`


THEIRS = """
class Thing:
    def __init__(self, name="thing"):
        self.name = name

    def __call__(self):
        return "not read"
"""

PLUGIN = """
from toolcrib import ToolSpec
from toolcrib.tools import from_work

def read(value):
    if value.name == "other":
        return None
    async def work(arguments, context):
        return f"read {value.name}"
    return [from_work(ToolSpec(value.name, "", {"type": "object"}), work, home="plugin")]
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of another's, a plug-in that reads its objects, and one that cannot be imported."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").write_text("")
    (tmp_path / "their_package" / "things.py").write_text(THEIRS)
    (tmp_path / "their_plugin.py").write_text(PLUGIN)
    (tmp_path / "broken_package.py").write_text(THEIRS)
    about = tmp_path / "their_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[toolcrib.sources]\ntheir_package = their_plugin:read\nbroken_package = no_such_plugin:read\n"
    )
    loading._readers.cache_clear()
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        yield
    loading._readers.cache_clear()
    for name in ("their_package", "their_package.things", "their_plugin", "broken_package"):
        sys.modules.pop(name, None)


async def test_an_object_is_read_by_the_plugin_of_its_package(installed: None) -> None:
    from their_package.things import Thing  # type: ignore[import-not-found]

    class Own(Thing):  # type: ignore[misc]
        pass

    bench = Workbench([Thing(), Own("own")])
    assert [(await bench.call(name)).text for name in ("thing", "own")] == ["read thing", "read own"]


async def test_what_no_plugin_reads_is_what_it_was(installed: None) -> None:
    from their_package.things import Thing

    (made,) = load(Thing("other")).tools  # a callable, named by its class
    assert made.fn() == "not read"


async def test_a_plugin_that_cannot_be_imported_is_named(installed: None) -> None:
    from broken_package import Thing  # type: ignore[import-not-found]

    with pytest.raises(LoadError, match="A Thing cannot be read: No module named 'no_such_plugin'"):
        load(Thing())


def test_no_plugin_is_looked_for_where_toolcrib_knows_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    @functools.cache
    def readers() -> tuple[EntryPoint, ...]:
        looked.append("once")
        return ()

    monkeypatch.setattr(loading, "_readers", readers)

    def add(a: int) -> int:
        """Add."""
        return a

    load(add)
    load(functools.partial(add, 1))
    load(Workbench([add]).registry.get("add"))
    assert looked == []


@pytest.mark.parametrize("kind", ["unchecked", "by its time"])
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_planted_cache_runs_neither_for_a_file_nor_for_what_it_imports(
    tmp_path: Path, kind: str, as_folder: bool
) -> None:
    """Bytecode in `__pycache__` ran in place of the source that was reviewed; and none is left there by us."""
    (tmp_path / "beside_it.py").write_text("WHO = 'reviewed'\n")
    file = tmp_path / "tools.py"
    file.write_text("import beside_it\nfrom toolcrib import tool\n@tool\ndef who() -> str: return beside_it.WHO\n")
    cached = [plant(tmp_path / "beside_it.py", kind=kind), plant(file, "raise SystemExit('planted')", kind=kind)]
    contents = [path.read_bytes() for path in cached]
    (loaded,) = load(tmp_path if as_folder else file).tools
    assert loaded.fn() == "reviewed"
    assert [path.read_bytes() for path in sorted(cached[0].parent.iterdir())] == contents
