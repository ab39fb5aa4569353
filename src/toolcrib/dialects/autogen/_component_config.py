"""AutoGen's components: objects that can be dumped as data and loaded again.

The *provider* of a component names its class. Here, those below `autogen_core.` name the classes of this dialect,
whether or not AutoGen is installed.
"""

import importlib
import warnings
from typing import Any, ClassVar, Generic, Literal, Self, TypeGuard, cast, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from ._trust import require_trusted

ComponentType = Literal["model", "agent", "tool", "termination", "token_provider", "workbench"] | str
ConfigT = TypeVar("ConfigT", bound=BaseModel)
FromConfigT = TypeVar("FromConfigT", bound=BaseModel, contravariant=True)
ToConfigT = TypeVar("ToConfigT", bound=BaseModel, covariant=True)
ExpectedType = TypeVar("ExpectedType")

_THEIRS = "autogen_core"
_OURS = str(__package__)


class ComponentModel(BaseModel):
    """Model class for a component. Contains all information required to instantiate a component."""

    # That sentence is AutoGen's: it is a part of the schemas of configurations.

    provider: str  # the class: its module, a dot, and its name
    component_type: ComponentType | None = None
    version: int | None = None
    component_version: int | None = None  # of the class that wrote *config*; None for the present one
    description: str | None = None
    label: str | None = None
    config: dict[str, Any]


def _type_to_provider_str(kind: type) -> str:
    module = kind.__module__
    if f"{module}.".startswith(f"{_OURS}."):
        module = _THEIRS + module.removeprefix(_OURS)
    return f"{module}.{kind.__qualname__}"


class ComponentFromConfig(Generic[FromConfigT]):
    """A class whose objects can be loaded from a configuration."""

    @classmethod
    def _from_config(cls, config: FromConfigT) -> Self:
        """Make an object from *config*, a value of `component_config_schema`."""
        raise NotImplementedError("This component does not support dumping to config")

    @classmethod
    def _from_config_past_version(cls, config: dict[str, Any], version: int) -> Self:
        """Make an object from *config* as an older *version* of the class wrote it, not validated."""
        raise NotImplementedError("This component does not support loading from past versions")


class ComponentToConfig(Generic[ToConfigT]):
    """A class whose objects can be dumped as a configuration."""

    component_type: ClassVar[ComponentType]
    component_version: ClassVar[int] = 1  # of the configuration's shape
    component_provider_override: ClassVar[str | None] = None  # where it is imported from another module than its own
    component_description: ClassVar[str | None] = None  # None for the first paragraph of the docstring
    component_label: ClassVar[str | None] = None  # None for the name of the class

    def _to_config(self) -> ToConfigT:
        """Return the configuration that `_from_config` makes this object from."""
        raise NotImplementedError("This component does not support dumping to config")

    def dump_component(self) -> ComponentModel:
        """Return this component as data, for `load_component`. Its config has no entries that are None.

        Raises TypeError for an object of a local class, which cannot be imported.
        """
        provider = self.component_provider_override
        if provider is None:
            provider = _type_to_provider_str(type(self))
            if "._" in provider:
                warnings.warn(
                    "Internal module name used in provider string. This is not recommended and may cause issues in "
                    "the future. Silence this warning by setting component_provider_override to this value.",
                    stacklevel=2,
                )
        if "<locals>" in provider:
            raise TypeError("Cannot dump component with local class")
        if not hasattr(self, "component_type"):
            raise AttributeError("component_type not defined")
        description = self.component_description
        if description is None and type(self).__doc__:
            description = str(type(self).__doc__).strip().split("\n\n")[0].strip()
        return ComponentModel(
            provider=provider,
            component_type=self.component_type,
            version=self.component_version,
            component_version=self.component_version,
            description=description,
            label=self.component_label or type(self).__name__,
            config=self._to_config().model_dump(exclude_none=True),
        )


class ComponentLoader:
    """A class that loads components."""

    @overload
    @classmethod
    def load_component(cls, model: ComponentModel | dict[str, Any], expected: None = None) -> Self: ...
    @overload
    @classmethod
    def load_component(cls, model: ComponentModel | dict[str, Any], expected: type[ExpectedType]) -> ExpectedType: ...
    @classmethod
    def load_component(
        cls, model: ComponentModel | dict[str, Any], expected: type[ExpectedType] | None = None
    ) -> Self | ExpectedType:
        """Return the component that *model* describes: one of this class, or of *expected*.

        Raises ValueError for a malformed provider or one in no trusted namespace (see `trust_namespaces`),
        ImportError and AttributeError for one that does not exist, TypeError for one that is not a component or not
        what was expected, NotImplementedError for a version that its class does not read, and pydantic's
        ValidationError for a config that does not fit.
        """
        model = ComponentModel(**model) if isinstance(model, dict) else model
        kind = _component_class(model.provider)
        for variable in ("component_config_schema", "component_type"):
            if not hasattr(kind, variable):
                raise AttributeError(f"{variable} not defined")
        version = model.component_version or kind.component_version
        if version < kind.component_version:
            try:
                component = kind._from_config_past_version(model.config, version)  # pyright: ignore[reportPrivateUsage]
            except NotImplementedError as error:
                raise NotImplementedError(
                    f"Tried to load component {kind} which is on version {kind.component_version} with a config on "
                    f"version {version} but _from_config_past_version is not implemented"
                ) from error
        else:
            schema: type[BaseModel] = kind.component_config_schema  # pyright: ignore[reportGeneralTypeIssues]
            component = kind._from_config(schema.model_validate(model.config))  # pyright: ignore[reportPrivateUsage]
        if not isinstance(component, cls if expected is None else expected):
            raise TypeError("Expected type does not match")
        return cast("Self | ExpectedType", component)


class ComponentSchemaType(Generic[ConfigT]):
    """A class with a pydantic model of its configuration."""

    component_config_schema: type[ConfigT]
    """A class variable: `ClassVar` cannot have a type variable in it."""

    required_class_vars = ["component_config_schema", "component_type"]  # noqa: RUF012 - as AutoGen has it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in cls.required_class_vars if cls.__module__ != __name__ else ():
            if not hasattr(cls, name):
                warnings.warn(
                    f"Class variable '{name}' must be defined in {cls.__name__} to be a valid component", stacklevel=2
                )


class ComponentBase(ComponentToConfig[ConfigT], ComponentLoader, Generic[ConfigT]):
    """The base of an interface whose implementations are components; those inherit from `Component` as well."""


class Component(ComponentFromConfig[ConfigT], ComponentSchemaType[ConfigT], Generic[ConfigT]):
    """The base of a component, beside its interface with `ComponentBase`.

    The class sets `component_config_schema` and `component_type`, and defines `_to_config` and `_from_config`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not is_component_class(cls):
            warnings.warn(
                f"Component class '{cls.__name__}' must subclass the following: ComponentFromConfig, "
                "ComponentToConfig, ComponentSchemaType, ComponentLoader, individually or with ComponentBase and "
                "Component. Look at the component config documentation or how OpenAIChatCompletionClient does it.",
                stacklevel=2,
            )


class _ConcreteComponent(
    ComponentFromConfig[ConfigT], ComponentSchemaType[ConfigT], ComponentBase[ConfigT], Generic[ConfigT]
):
    """All parts of a component, for type checkers."""


_PARTS = (ComponentFromConfig, ComponentToConfig, ComponentSchemaType, ComponentLoader)


def is_component_instance(cls: Any) -> TypeGuard[_ConcreteComponent[BaseModel]]:
    """Return whether the object *cls* is a component."""
    return all(isinstance(cls, part) for part in _PARTS)


def is_component_class(cls: Any) -> TypeGuard[type[_ConcreteComponent[BaseModel]]]:
    """Return whether *cls* is a class of components."""
    return isinstance(cls, type) and all(issubclass(cls, part) for part in _PARTS)


def _component_class(provider: str) -> type[_ConcreteComponent[BaseModel]]:
    module, _, name = provider.rpartition(".")
    if not module or not all(part.isidentifier() for part in provider.split(".")):
        invalid = ValueError("Invalid")  # AutoGen's text
        invalid.add_note(f"A provider is a module and a class, as 'autogen_core.tools.FunctionTool'; not {provider!r}.")
        raise invalid
    require_trusted(module)
    if f"{module}.".startswith(f"{_THEIRS}."):
        module = _OURS + module.removeprefix(_THEIRS)
    kind = getattr(importlib.import_module(module), name)
    if not is_component_class(kind):
        wrong = TypeError("Invalid component class")
        wrong.add_note(f"{provider} is not a subclass of {_OURS}.Component and ComponentBase; AutoGen's are others.")
        raise wrong
    return kind
