"""Objects and classes whose methods are tools. The tools of one object share it, and its life.

An object is an `ObjectSource`. A class is a `ClassSource`, which is opened for each workbench: that makes an instance.
"""

import asyncio
import functools
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from ..core import Caller, DefinitionError, LoadError, ToolcribError
from ..machinery import Semaphore
from .definition import needed_names
from .function import Definition, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")


class StatefulTool(Generic[S]):
    """Tools that share state: methods marked with `@tool`, of a class with a pydantic model for its state.

        class Counter(StatefulTool[Count]):
            @tool
            async def increment(self, by: int = 1) -> int: ...

    An instance is a source, for all who use the workbench or crib. The class is a source, too: each workbench makes
    its own instance of it, so that in a crib each caller has a state of their own.

    `state` is a `Count()` unless one is given, or set in `__init__`. What a subclass defines as `start`, `stop` and
    `reset`, plain (run in a thread) or async, is run when the workbench starts, stops and is reset; `reset` is run when
    `state` is already what it was right after `start`. `state_key` is the name under which the state is saved; the name
    of the class by default.

    A class that is not a StatefulTool can have tools for methods just the same; its `start`, `stop` and `reset` are run
    if they are there and are not tools, and its `state` is saved if it is a pydantic model.

    Raises DefinitionError where the state is not a pydantic model.
    """

    if TYPE_CHECKING:
        state: S

    state_key: str = ""
    _state_type: "type[BaseModel] | None" = None
    _first: "BaseModel | None" = None

    def __init__(self, state: S | None = None) -> None:
        if state is not None:
            self.state = state

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in vars(cls).get("__orig_bases__", ()):
            if get_origin(base) is StatefulTool and not isinstance(state_type := get_args(base)[0], TypeVar):
                cls._state_type = _require_model(state_type, cls)
        if cls._state_type is None and not getattr(cls, "__parameters__", ()):
            raise DefinitionError(
                f"{cls.__name__} does not declare its state. Write class {cls.__name__}(StatefulTool[State]), "
                "with State a pydantic model."
            )
        first = vars(cls).get("state")
        if first is not None and cls._state_type is not None and isinstance(first, cls._state_type):
            # As a class attribute it would be one for all instances.
            cls._first = first
            del cls.state

    if not TYPE_CHECKING:
        # Not in `__init__`, which a subclass need not call, nor in `__new__`, which would hide its signature.
        def __getattr__(self, name: str) -> Any:
            if name != "state" or self._state_type is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            with _lock:
                return self.__dict__.setdefault("state", self._first_state())

    def _first_state(self) -> "BaseModel":
        if self._first is not None:
            return self._first.model_copy(deep=True)
        assert self._state_type is not None
        name = self._state_type.__name__
        if names := [field for field, info in self._state_type.model_fields.items() if info.is_required()]:
            raise DefinitionError(
                f"{type(self).__name__} has no state yet, and {name} cannot be made without values "
                f"({', '.join(names)}). Set self.state in __init__, or give one: {type(self).__name__}({name}(...))."
            )
        return self._state_type()

    def start(self) -> Awaitable[None] | None:
        """Make ready. What it leaves running where it raises is not stopped."""
        return None

    def stop(self) -> Awaitable[None] | None:
        """Release what `start` took."""
        return None

    def reset(self) -> Awaitable[None] | None:
        """Back to how it was right after `start`, as far as that is not in `state`."""
        return None


class ObjectSource:
    """The source that an object is whose methods are tools. There is one for each object, see `object_source`.

    The object is started with its first holder, and stopped with its last.
    """

    required = True

    def __init__(self, instance: Any) -> None:
        self.instance = instance
        self.name = type(instance).__name__
        self._tools: list[Tool[..., Any]] | None = None
        self._turn = Semaphore(1)
        self._holders = 0
        self._initial: BaseModel | None = None

    @property
    def state_key(self) -> str:
        return _state_key(self.instance, type(self.instance))

    def tools(self) -> list[Tool[..., Any]]:
        if self._tools is None:
            cls = type(self.instance)
            self._tools = [
                definition.over(self.instance if name == "__call__" else getattr(self.instance, name)).offered_by(self)
                for name, definition in _methods(cls)
            ]
            for name in _HOOKS:
                self._hook(name)
        return self._tools

    async def start(self) -> None:
        permit = await self._turn.acquire()
        try:
            if self._holders == 0:
                await _run(self._hook("start"))
                state = self._state()
                self._initial = None if state is None else state.model_copy(deep=True)
            self._holders += 1
        finally:
            self._turn.release(permit)

    async def stop(self) -> None:
        permit = await self._turn.acquire()
        try:
            self._holders -= 1
            if self._holders == 0:
                await _run(self._hook("stop"))
        finally:
            self._turn.release(permit)

    async def reset(self) -> None:
        if self._initial is not None:
            self.instance.state = self._initial.model_copy(deep=True)
        await _run(self._hook("reset"))

    async def save_state(self) -> Any:
        state = self._state()
        return None if state is None else _dumped(state, self._state_type(state), self.name)

    def check_state(self, saved: Any) -> "BaseModel":
        """Return the state in *saved*. Raises ValueError."""
        state = self._state()
        if state is None:
            raise ValueError("It has no state.")
        return _validated(self._state_type(state), saved)

    async def load_state(self, saved: Any, /) -> None:
        self.instance.state = self.check_state(saved)

    def _state(self) -> "BaseModel | None":
        if not isinstance(self.instance, StatefulTool) and "pydantic" not in sys.modules:
            return None
        from pydantic import BaseModel

        state = getattr(self.instance, "state", None)
        if state is None or isinstance(state, BaseModel):
            return state
        if isinstance(self.instance, StatefulTool):
            raise ToolcribError(
                f"The state of {self.name} has become a {type(state).__name__}; it is a pydantic model, "
                f"{self._state_type(state).__name__}."
            )
        return None

    def _state_type(self, state: Any) -> "type[BaseModel]":
        state_type = getattr(self.instance, "_state_type", None) if isinstance(self.instance, StatefulTool) else None
        return state_type or type(state)

    def _hook(self, name: str) -> Callable[[], Any] | None:
        cls = type(self.instance)
        static = inspect.getattr_static(cls, name, None)
        if static is None or static is vars(StatefulTool).get(name) or _mark(static) is not None:
            return None
        hook = getattr(self.instance, name)
        if not callable(hook):
            return None
        if names := _needed_by(hook):
            raise DefinitionError(
                f"{self.name}.{name} takes arguments ({', '.join(names)}), and is run without any when the workbench "
                f"{_HOOKS[name]}. Give it another name, or mark it with @tool if a model is to call it."
            )
        return hook  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<ObjectSource of the tools of a {self.name}>"


class ClassSource:
    """A class whose methods are tools, and a way to make an instance. Its tools are no object's yet.

    Raises LoadError where no instance can be made without arguments.
    """

    def __init__(self, cls: type, make: Callable[[], Any]) -> None:
        self.name = cls.__name__
        self.state_key = _state_key(cls, cls)
        self._cls = cls
        self._make = make
        self._tools: list[Tool[..., Any]] | None = None
        if inspect.isabstract(cls):
            raise LoadError(f"The class {self.name} is abstract, so no instance of it can be made. Give a subclass.")
        if names := _needed_by(make):
            raise LoadError(
                f"An instance of {self.name} cannot be made without arguments ({', '.join(names)}). Give an instance, "
                f"{self.name}(...), or, for one in each workbench, functools.partial({self.name}, ...)."
            )

    def tools(self) -> list[Tool[..., Any]]:
        if self._tools is None:
            self._tools = []
            for name, definition in _methods(self._cls):
                if name == "__call__":
                    raise DefinitionError(
                        f"{self.name}.__call__ is a tool of an instance only. Give an instance, {self.name}(...)."
                    )
                plain = inspect.getattr_static(self._cls, name)
                is_bound = isinstance(plain, staticmethod | classmethod)
                # Bound to the class in the place of an instance, which is made later.
                bound_tool = definition.over(
                    getattr(self._cls, name) if is_bound else types.MethodType(plain, self._cls)
                )
                self._tools.append(bound_tool.offered_by(self))
        return self._tools

    def open(self, _caller: Caller) -> ObjectSource:
        """Return an instance, as a source without other holders. Raises what its class raises."""
        return object_source(self._make())

    def __repr__(self) -> str:
        return f"<ClassSource {self.name}>"


def object_source(instance: Any) -> ObjectSource:
    """Return the one ObjectSource of an object."""
    with _lock:
        source = _sources.get(id(instance))
        if source is None:
            source = _sources[id(instance)] = ObjectSource(instance)
        return source


# By identity, for objects that cannot be hashed. An ObjectSource keeps its object, so its number stays its own.
_sources: "weakref.WeakValueDictionary[int, ObjectSource]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def tools_of_object(source: Any) -> list[Tool[..., Any]] | None:
    """Return the tools that methods of *source* are: of an object, of a class, of a partial of a class.

    None without any.
    """
    cls = source.func if isinstance(source, functools.partial) else source
    if isinstance(cls, type):
        return ClassSource(cls, source).tools() if _is_marked(cls) else None
    return object_source(source).tools() if _is_marked(type(source)) else None


def marked_methods(cls: type) -> Mapping[str, Definition]:
    """Return the methods of *cls* that are tools, by their names in the class, those of its bases first.

    Raises DefinitionError for one that overrides a tool and is not a tool.
    """
    definitions: dict[str, Definition] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if (definition := _mark(value)) is not None:
                definitions[name] = definition
            elif name in definitions:
                if value is not None:
                    raise DefinitionError(
                        f"{base.__name__}.{name} overrides a tool, and is not a tool. Mark it with @tool, too; to "
                        f"have no such tool, write {name} = None."
                    )
                del definitions[name]
    return definitions


_MISSING = object()
_HOOKS = {"start": "starts", "stop": "stops", "reset": "is reset"}


def _is_marked(cls: type) -> bool:
    return any(name != "__call__" for name in marked_methods(cls))


def _mark(value: Any) -> Definition | None:
    plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    # Attributes of foreign classes may raise any exception when they are read.
    mark = inspect.getattr_static(plain, "__toolcrib__", None) if not isinstance(plain, type) else None
    return mark if isinstance(mark, Definition) else None


def _methods(cls: type) -> Iterator[tuple[str, Definition]]:
    """Yield the methods of *cls* that are tools. Raises DefinitionError for one that cannot be."""
    for name, definition in marked_methods(cls).items():
        if definition.options.get("isolation") is not None:
            raise DefinitionError(
                f"{cls.__name__}.{name} is a tool of an object, which stays in this process: it cannot have "
                'isolation="process". Leave that out, or make it a function at the top of a module.'
            )
        yield name, definition


def _require_model(declared: Any, cls: type) -> "type[BaseModel]":
    from pydantic import BaseModel

    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return declared
    raise DefinitionError(
        f"The state of {cls.__name__} is a pydantic model, a class that is defined before: StatefulTool[State], not "
        f"{declared!r}."
    )


def _state_key(owner: Any, cls: type) -> str:
    key = getattr(owner, "state_key", None)
    return key if isinstance(key, str) and key else cls.__name__


def _needed_by(fn: Callable[..., Any]) -> list[str]:
    """Return the parameters of *fn* that have to be given."""
    try:
        return needed_names(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


async def _run(hook: Callable[[], Any] | None) -> None:
    if hook is None:
        return
    result = hook() if inspect.iscoroutinefunction(hook) else await asyncio.to_thread(hook)
    if inspect.isawaitable(result):
        await result


def _dumped(state: "BaseModel", kind: "type[BaseModel]", name: str) -> Any:
    """Return *state* as JSON data from which it can be made again. Raises ToolcribError for what cannot."""
    from pydantic_core import from_json

    try:
        json_state = from_json(state.model_dump_json(round_trip=True, warnings="none"), allow_inf_nan=False)
        before = state.model_dump(round_trip=True, warnings="none")
        after = _validated(kind, json_state).model_dump(round_trip=True, warnings="none")
    except Exception as error:
        raise ToolcribError(f"The state of {name} cannot be saved, or not be loaded again: {error}") from error
    for field in {**before, **after}:
        if not _same(before.get(field, _MISSING), after.get(field, _MISSING)):
            raise ToolcribError(
                f"The state of {name} cannot be saved: its field '{field}' would come back as something else. What is "
                "masked or changed in JSON (secrets, sets in Any) does not belong in there; leave a field out with "
                "Field(exclude=True)."
            )
    return json_state


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # arrays and their like have no opinion
        return True


def _validated(kind: "type[BaseModel]", saved: Any) -> "BaseModel":
    from pydantic import ValidationError
    from pydantic_core import to_json

    try:
        # As JSON: there, text may stand for times, bytes and the like, also where a model is strict.
        return kind.model_validate_json(to_json(saved))
    except ValidationError as error:
        wrong = [
            f"'{'.'.join(map(str, error_of['loc']))}': {error_of['msg']}" if error_of["loc"] else error_of["msg"]
            for error_of in error.errors(include_input=False, include_url=False, include_context=False)
        ]
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(f"It is not a {kind.__name__}: {'; '.join(wrong[:3])}{more}.") from None
