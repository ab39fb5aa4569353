"""Configurations are compared whole: they are files of AutoGen's users, and have to be the same here."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from toolcrib.core import LoadError
from toolcrib.dialects.autogen import (
    Component,
    ComponentBase,
    ComponentLoader,
    UntrustedError,
    trust_namespaces,
)

HERE = __name__.partition(".")[0]


class RectConfig(BaseModel):
    width: int
    height: int = 1
    colour: str | None = None


class Shape(ComponentBase[BaseModel]):
    component_type = "shape"


class Rect(Shape, Component[RectConfig]):
    """A rectangle.

    Args:
        width: How wide.
    """

    component_config_schema = RectConfig
    component_version = 2

    def __init__(self, width: int, height: int = 1) -> None:
        self.size = (width, height)

    def _to_config(self) -> RectConfig:
        return RectConfig(width=self.size[0], height=self.size[1])

    @classmethod
    def _from_config(cls, config: RectConfig) -> "Rect":
        return cls(config.width, config.height)


class Square(Rect):
    component_provider_override = f"{__name__}.Square"
    component_description = "All sides equal"
    component_label = "The square"

    @classmethod
    def _from_config_past_version(cls, config: dict[str, Any], version: int) -> "Square":
        return cls(config["side"], version)


class Unlike(Rect):
    pass


@pytest.fixture
def trusted() -> Any:
    with trust_namespaces(HERE):
        yield


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("loader", "expected"), [(Square, None), (Unlike, None), (ComponentLoader, Square), (ComponentLoader, int)]
)
def test_another_component_than_expected_is_refused(loader: Any, expected: Any) -> None:
    with pytest.raises(TypeError) as raised:
        loader.load_component(Rect(1).dump_component(), expected)
    assert str(raised.value) == "Expected type does not match"


@pytest.mark.parametrize("provider", ["", "Rect", ".Rect", "shapes.", "shapes..Rect", "shapes.Re ct"])
def test_a_malformed_provider_is_invalid(provider: str) -> None:
    with pytest.raises(ValueError) as raised:
        ComponentLoader.load_component({"provider": provider, "config": {}})
    assert str(raised.value) == "Invalid"
    assert raised.value.__notes__ == [
        f"A provider is a module and a class, as 'autogen_core.tools.FunctionTool'; not {provider!r}."
    ]


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("name", ["RectConfig", "HERE"])
def test_what_is_not_a_component_is_refused(name: str) -> None:
    with pytest.raises(TypeError) as raised:
        ComponentLoader.load_component({"provider": f"{__name__}.{name}", "config": {}})
    assert str(raised.value) == "Invalid component class"
    assert raised.value.__notes__ == [
        f"{__name__}.{name} is not a subclass of toolcrib.dialects.autogen.Component and ComponentBase; AutoGen's are "
        "others."
    ]


# Whose modules may be imported


def package(folder: Path, name: str) -> str:
    """A package *name* with a component, and the provider of that."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    (folder / name / "parts.py").write_text(f"from {__name__} import Rect\nclass Part(Rect):\n    '''A part.'''\n")
    return f"{name}.parts.Part"


def is_loaded(provider: str) -> bool:
    try:
        made = ComponentLoader.load_component({"provider": provider, "config": {"width": 1}}, Rect)
    except UntrustedError:
        assert provider.partition(".")[0] not in sys.modules
        return False
    return type(made).__name__ == provider.rpartition(".")[2]


@pytest.mark.parametrize("name", ["company_a", "test_company_a", "autogen_core_a", "toolcrib_a"])
def test_an_untrusted_module_is_refused_before_it_is_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    provider = package(tmp_path, name)
    with pytest.raises(ValueError) as raised:
        ComponentLoader.load_component({"provider": provider, "config": {}})
    assert isinstance(raised.value, LoadError)
    assert str(raised.value) == (
        f"Provider module '{name}.parts' is not in a trusted namespace. Trusted are: autogen_agentchat, autogen_core, "
        f"autogen_ext, autogen_studio, autogenstudio, toolcrib. If you trust it, call "
        f"toolcrib.dialects.autogen.trust_namespaces('{name}'), or set AUTOGEN_ALLOWED_PROVIDER_NAMESPACES={name} "
        "(names separated by commas)."
    )
    assert name not in sys.modules


@pytest.mark.parametrize(
    ("value", "is_trusted"),
    [
        *((value, True) for value in ("company_c", " other , company_c. ,", "company_c.parts")),
        *((value, False) for value in ("", "company", "company_c.part", "company_c.parts.Part", "*")),
    ],
)
def test_the_environment_can_trust_namespaces_by_whole_names(
    value: str, is_trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    provider = package(tmp_path, "company_c")
    monkeypatch.setenv("AUTOGEN_ALLOWED_PROVIDER_NAMESPACES", value)
    try:
        assert is_loaded(provider) is is_trusted
    finally:
        for name in ("company_c", "company_c.parts"):
            sys.modules.pop(name, None)


def test_trust_in_a_with_is_for_the_block_and_not_for_other_threads() -> None:
    provider = f"{__name__}.Rect"
    elsewhere = list[bool]()

    def look() -> None:
        try:
            ComponentLoader.load_component({"provider": provider, "config": {"width": 1}})
        except UntrustedError:
            elsewhere.append(False)
        else:
            elsewhere.append(True)

    def look_in_thread() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with trust_namespaces("nothing"), trust_namespaces("other", HERE):
        look()
        look_in_thread()
    look()
    trust = trust_namespaces(HERE)
    look()
    look_in_thread()
    with trust as entered:
        look()
    look()
    assert entered is trust
    assert elsewhere == [True, False, False, True, True, True, False]
