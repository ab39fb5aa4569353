"""Components as data: dumped, loaded, dumped again, and their errors."""

import json
import os
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import functions
from autogen_core import CancellationToken, Component, ComponentBase, ComponentLoader, ComponentModel
from autogen_core._component_config import is_component_class, is_component_instance
from autogen_core.code_executor import Alias, ImportFromModule
from autogen_core.tools import (
    BaseTool,
    FunctionTool,
    StaticStreamWorkbench,
    StaticWorkbench,
    ToolOverride,
    Workbench,
)
from autogen_core.tools._function_tool import FunctionToolConfig
from autogen_core.tools._static_workbench import StaticWorkbenchConfig
from probing import add, probe
from pydantic import BaseModel

os.environ["TOOLCRIB_ALLOW_SOURCE_CODE"] = "1"  # AutoGen always does

IMPORTS = {
    "rooted": ["math"],
    "thrown": [Alias("random", "chance")],
    "stopping": [ImportFromModule("autogen_core", ("CancellationToken",))],
    "add_up": [ImportFromModule("typing", ["Annotated"])],
    "decorated": [ImportFromModule("typing", (Alias("Any", "Anything"), "Annotated")), "json"],
}


def tool(name: str, **options: Any) -> FunctionTool:
    fn = getattr(functions, name)
    return FunctionTool(fn, **{"description": f"It is {name}.", "global_imports": IMPORTS.get(name, []), **options})


def dumped(component: Any) -> Any:
    """A dump without what only one of both writes; the probe `dump of a tool, whole` has it whole."""
    return _known(component.dump_component().model_dump())


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items() if key != "reference"}
    return [_known(each) for each in value] if isinstance(value, list) else value


def again(component: Any) -> Any:
    """Return the tool loaded from its dump, read from text; from source code."""
    return type(component).load_component(json.loads(json.dumps(dumped(component))))


NAMES = ["add_up", "later", "rooted", "thrown", "stopping", "decorated", "many_lines"]
for _name in ("add_up", "many_lines"):
    add(f"dump of a loaded tool: {_name}", lambda name=_name: dumped(again(tool(name))))
for _name in NAMES:
    add(f"dump of a tool: {_name}", lambda name=_name: dumped(tool(name)))
    add(f"schema of a loaded tool: {_name}", lambda name=_name: again(tool(name)).schema)


def _runs(name: str, arguments: Any) -> Any:
    async def run() -> Any:
        return await again(tool(name)).run_json(arguments, CancellationToken())

    return run


for _name, _arguments in {
    "add_up": {"a": 1},
    "later": {"text": "x"},
    "rooted": {"x": 9},
    "thrown": {"sides": 6},
    "decorated": {"a": 4},
    "many_lines": {"a": 4},
}.items():
    add(f"a loaded tool runs: {_name}", _runs(_name, _arguments))

add("dump of a tool, whole", lambda: tool("add_up").dump_component().model_dump())
add(
    "dump of a tool as JSON",
    lambda: tool("later", name="n").dump_component().model_dump_json(exclude={"config": {"reference"}}),
)
add("dump of a strict tool", lambda: dumped(tool("later", strict=True)))
add("a strict tool, loaded", lambda: again(tool("later", strict=True)).schema["strict"])
add("a tool with another name, loaded", lambda: again(tool("later", name="other")).name)
add("dump of a local function", lambda: dumped(FunctionTool(functions.make_local(), "d")))
add("dump of a closure", lambda: dumped(FunctionTool(functions.make_closure(3), "d")))
add("dump of a lambda", lambda: dumped(FunctionTool(lambda: "x", "d", name="short")))
add("dump of a partial", lambda: dumped(FunctionTool(functions.part, "d")))
add("dump of an object", lambda: dumped(FunctionTool(functions.Called(), "d", name="called")))
add("dump of a method", lambda: dumped(FunctionTool(functions.Methods().method, "d")))
add("dump of a static method", lambda: dumped(FunctionTool(functions.Methods.static, "d")))
add("dump of a builtin", lambda: dumped(FunctionTool(len, "d")))
add("JSON schema of FunctionToolConfig", lambda: FunctionToolConfig.model_json_schema())
add("JSON schema of StaticWorkbenchConfig", lambda: StaticWorkbenchConfig.model_json_schema())
add("JSON schema of ComponentModel", lambda: ComponentModel.model_json_schema())
add("JSON schema of ToolOverride", lambda: ToolOverride.model_json_schema())


def config(**changed: Any) -> Any:
    return {
        "provider": "autogen_core.tools.FunctionTool",
        "component_type": "tool",
        "version": 1,
        "component_version": 1,
        "description": "d",
        "label": "FunctionTool",
        "config": {
            "source_code": "def f(a: int) -> int:\n    return a\n",
            "name": "f",
            "description": "d",
            "global_imports": [],
            "has_cancellation_support": False,
            **changed,
        },
    }


def load(given: Any, expected: Any = None, of: Any = ComponentLoader) -> Any:
    made = of.load_component(given, expected)
    return f"a {type(made).__name__}"


add("source code is loaded", lambda: load(config()))
add("a module that is missing", lambda: load(config(global_imports=["nowhere_at_all"])))
add("a name that is missing", lambda: load(config(global_imports=[{"module": "math", "imports": ["nothing"]}])))
add("a name that is imported", lambda: load(config(global_imports=[{"module": "math", "imports": ["pi"]}])))
add("an import that is no import", lambda: load(config(global_imports=["math; import"])))
add("source code that cannot be read", lambda: load(config(source_code="def f(:")))
add("source code that fails", lambda: load(config(source_code="def f(a: Nothing) -> int:\n    return a")))
add("source code without a function", lambda: load(config(source_code="x = 1")))
add("source code of a class", lambda: load(config(source_code="class A: ...")))
add("empty source code", lambda: load(config(source_code="")))
add("a config without source code", lambda: load({**config(), "config": {}}))


@probe
def the_warning_before_source_code() -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(config())
    return [str(each.message) for each in caught]


@probe
def source_code_without_permission() -> Any:
    allowed = os.environ.pop("TOOLCRIB_ALLOW_SOURCE_CODE")
    try:
        return load(config())
    finally:
        os.environ["TOOLCRIB_ALLOW_SOURCE_CODE"] = allowed


@probe
def a_function_of_this_program_by_reference_without_permission() -> Any:
    allowed = os.environ.pop("TOOLCRIB_ALLOW_SOURCE_CODE")
    try:
        return load(tool("add_up").dump_component())
    finally:
        os.environ["TOOLCRIB_ALLOW_SOURCE_CODE"] = allowed


# Workbenches as data


def bench(*names: str, of: Any = StaticWorkbench, **options: Any) -> Any:
    return of([tool(name) for name in names], **options)


OVERRIDES = {"add_up": ToolOverride(name="plus", description="Plus."), "later": ToolOverride(description="Later.")}
for _name, _make in {
    "empty": lambda: bench(),
    "two tools": lambda: bench("add_up", "later"),
    "with overrides": lambda: bench("add_up", "later", tool_overrides=OVERRIDES),
    "a stream's": lambda: bench("add_up", of=StaticStreamWorkbench),
}.items():
    add(f"dump of a workbench: {_name}", lambda make=_make: dumped(make()))
    add(f"dump of a loaded workbench: {_name}", lambda make=_make: dumped(again(make())))


@probe
async def a_loaded_workbench_lists_and_calls() -> Any:
    made = again(bench("add_up", "later", tool_overrides=OVERRIDES))
    return [await made.list_tools(), (await made.call_tool("plus", {"a": 1})).model_dump()]


# Providers and components of programs


class ThingConfig(BaseModel):
    size: int
    note: str | None = None


class Thing(ComponentBase[ThingConfig], Component[ThingConfig]):
    """A thing.

    With more to say.
    """

    component_type = "thing"
    component_config_schema = ThingConfig

    def __init__(self, size: int, note: str | None = None) -> None:
        self.size = size
        self.note = note

    def _to_config(self) -> ThingConfig:
        return ThingConfig(size=self.size, note=self.note)

    @classmethod
    def _from_config(cls, config: ThingConfig) -> Self:
        return cls(config.size, config.note)


class Versioned(Thing):
    component_version = 3
    component_description = "Said elsewhere."
    component_label = "A label"
    component_provider_override = "configurations.Versioned"

    @classmethod
    def _from_config_past_version(cls, config: dict[str, Any], version: int) -> Self:
        return cls(config["length"] * 10 + version)


class Newer(Thing):
    component_version = 2


class Undocumented(ComponentBase[ThingConfig], Component[ThingConfig]):
    component_type = "thing"
    component_config_schema = ThingConfig

    def _to_config(self) -> ThingConfig:
        return ThingConfig(size=1)


class Outer:
    class Inner(Thing):
        """Within."""


class Plain:
    pass


add("dump of a component", lambda: Thing(3).dump_component().model_dump())
add("dump of a component with all it has", lambda: Thing(3, "n").dump_component().model_dump_json())
add("dump of a component with a version", lambda: Versioned(3).dump_component().model_dump())
add("dump of a component without a docstring", lambda: Undocumented().dump_component().model_dump())
add("dump of a nested class", lambda: Outer.Inner(3).dump_component().model_dump())


@probe
def dump_of_a_local_class() -> Any:
    class Local(Thing): ...

    return Local(3).dump_component().model_dump()


@probe
def a_component_class_that_lacks_its_variables() -> Any:
    class Lacking(ComponentBase[ThingConfig], Component[ThingConfig]): ...

    return is_component_class(Lacking)


@probe
def a_component_class_of_half_the_parts() -> Any:
    class Half(Component[ThingConfig]):
        component_type = "thing"
        component_config_schema = ThingConfig

    return is_component_class(Half)


@probe
def a_component_that_cannot_be_dumped() -> Any:
    class Mute(ComponentBase[ThingConfig]):
        component_type = "thing"

    return Mute()._to_config()


def thing(provider: str = "configurations.Thing", **changed: Any) -> Any:
    return {"provider": provider, "component_type": "thing", "config": {"size": 3}, **changed}


@probe
def a_trusted_component_by_the_environment() -> Any:
    return trusted("configurations", lambda: load(thing()))


def trusted(names: str, do: Any) -> Any:
    os.environ["AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"] = names
    try:
        return do()
    finally:
        del os.environ["AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"]


for _name, _given in {
    "as it is": thing(),
    "as a model": ComponentModel(**thing()),
    "of a past version that is read": thing("configurations.Versioned", component_version=1, config={"length": 3}),
    "of the present version": thing("configurations.Versioned", component_version=3),
    "of a future version": thing("configurations.Thing", component_version=9),
    "of a past version that is not read": thing("configurations.Newer", component_version=1),
    "with a config that does not fit": thing(config={"size": "large"}),
    "without a config": {"provider": "configurations.Thing"},
    "of a class that is not there": thing("configurations.Nothing"),
    "of a module that is not there": thing("configurations.nothing.Thing"),
    "of a class that is none": thing("configurations.OVERRIDES"),
    "of a class that is no component": thing("configurations.Plain"),
    "of a nested class": thing("configurations.Outer.Inner"),
    "of a class that cannot be made of a config": thing("configurations.Undocumented"),
}.items():
    add(f"load of a component {_name}", lambda given=_given: trusted("configurations, other", lambda: load(given)))

for _provider in ("", "Thing", "configurations.", ".Thing", "a b.Thing", "configurations..Thing", "os:system"):
    add(f"provider {_provider!r}", lambda provider=_provider: trusted("configurations", lambda: load(thing(provider))))
for _provider in ("os.system", "subprocess.Popen", "configurations.Thing", "autogen_core_evil.Tool"):
    add(f"provider {_provider!r} without trust", lambda provider=_provider: load(thing(provider)))
for _provider in ("autogen_core.tools.Nothing", "autogen_core.tools.ToolResult", "autogen_core.nothing.Thing"):
    add(f"provider {_provider!r}", lambda provider=_provider: load(thing(provider)))

add("expected type that fits", lambda: load(config(), BaseTool))
add("expected type that does not fit", lambda: load(config(), Workbench))
add("a tool by Workbench.load_component", lambda: load(config(), None, Workbench))
add("a tool by BaseTool.load_component", lambda: load(config(), None, BaseTool))
add("a workbench by Workbench.load_component", lambda: load(bench("later").dump_component(), None, Workbench))
add("is_component_class", lambda: [is_component_class(kind) for kind in (Thing, Plain, FunctionTool, StaticWorkbench)])
add("is_component_instance", lambda: [is_component_instance(each) for each in (Thing(1), Plain(), tool("later"))])


@probe
def a_module_whose_name_begins_with_test() -> Any:
    with TemporaryDirectory() as folder:
        (Path(folder) / "test_strangers.py").write_text("class Thing: ...\n")
        sys.path.insert(0, folder)
        try:
            return load(thing("test_strangers.Thing"))
        finally:
            sys.path.remove(folder)
            sys.modules.pop("test_strangers", None)


@probe
def the_class_variables_of_tools() -> Any:
    return [
        [
            kind.component_type,
            kind.component_version,
            kind.component_provider_override,
            kind.component_config_schema.__name__,
        ]
        for kind in (FunctionTool, StaticWorkbench, StaticStreamWorkbench)
    ]


@probe
def an_internal_module_in_a_provider() -> Any:
    class Hidden(Thing): ...

    Hidden.__module__, Hidden.__qualname__ = "package._inside", "Hidden"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = Hidden(1).dump_component()
    return [made.provider, [str(each.message) for each in caught]]
