"""Random types and calls: no two calls that give a function other values share a document; names and order are free."""

import json
import random
from collections.abc import Callable
from dataclasses import InitVar, field, fields, is_dataclass, make_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SecretBytes,
    SecretStr,
    Tag,
    create_model,
)
from typing_extensions import TypedDict

from toolcrib import Call, Tool, ToolError
from toolcrib.call import CheckedArguments
from toolcrib.schema import Document

from .. import fuzz

Write = Callable[[], str]
Make = Callable[[random.Random], Callable[[random.Random], str]]
"""A random value of a type: a function that writes it as JSON, in another spelling each time."""


class Kind(NamedTuple):
    type: Any
    make: Make
    free: bool = True
    """Whether all spellings are the same call: not where a user's code sees them."""
    hashable: bool = False


class Colour(Enum):
    RED = "red"
    TWO = 2


def text(value: str, rng: random.Random) -> str:
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def of(values: list[Any], write: Callable[[Any, random.Random], str]) -> Make:
    def make(rng: random.Random) -> Callable[[random.Random], str]:
        value = rng.choice(values)
        return lambda spelling: write(value, spelling)

    return make


def number(value: Any, rng: random.Random) -> str:
    """The same number, written in one of several ways."""
    plain = format(Decimal(value), "f")
    if value == 0:
        return plain
    ways = [plain, f"{Decimal(value):E}".replace("E+", "e"), f"{plain}0" if "." in plain else f"{plain}.0"]
    return rng.choice(ways)


STRINGS = ["", "a", "é", "1", "1.5", "true", "null", "\u2028", "a/b", "red", "**********", "2030-01-02"]
SCALARS: list[Kind] = [
    Kind(str, of(STRINGS, text), hashable=True),
    Kind(int, of([0, 1, -1, 2, 5, 2**53, 2**53 + 1, 10**30], lambda v, _: str(v)), hashable=True),
    Kind(bool, of([True, False], lambda v, _: json.dumps(v)), hashable=True),
    Kind(float, of(["0", "1", "1.5", "-2", "0.1", "9007199254740993", "1e300"], number), False, hashable=True),
    Kind(
        Decimal,
        of(
            ["0", "1", "1.5", "12345678901234567.89", "12345678901234567.8", "12345678901234568", "0.1", "-2"],
            lambda v, rng: number(v, rng) if rng.random() < 0.7 else f'"{v}"',
        ),
        False,
        hashable=True,
    ),
    Kind(
        Any,
        of(["1", "1.0", "true", '"1"', "null", "[1]", "[1.0]", "{}", '{"a":1}', "-0.0", "0.0", "0"], lambda v, _: v),
    ),
    Kind(
        datetime,
        of(
            ["2030-01-02T03:04:05|Z", "2030-01-02T03:04:06|Z", "2030-01-02T03:04:05|+01:00", "2030-01-02T03:04:05|"],
            lambda v, rng: json.dumps(v.replace("|Z", rng.choice(["Z", "+00:00"])).replace("|", "")),
        ),
        False,
        hashable=True,
    ),
    Kind(date, of(["2030-01-02", "2030-01-03"], lambda v, _: json.dumps(v)), hashable=True),
    Kind(
        timedelta,
        of([["PT60S", "PT1M"], ["PT61S", "PT1M1S"]], lambda v, rng: json.dumps(rng.choice(v))),
        False,
        hashable=True,
    ),
    Kind(
        UUID,
        of(
            ["12345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345679"],
            lambda v, rng: json.dumps(rng.choice([v, v.upper(), v.replace("-", "")])),
        ),
        False,
        hashable=True,
    ),
    Kind(SecretStr, of(["", "a", "b", "**********"], text), hashable=True),
    Kind(SecretBytes, of(["a", "b"], text)),
    Kind(bytes, of(["a", "é", "YQ=="], text), hashable=True),
    Kind(Base64Bytes, of(["YQ==", "Yg==", ""], text)),
    Kind(Json[Any], of(["1", "1.0", '{"a": 1}', '{"a": 2}', '"1"'], lambda v, rng: text(v, rng))),
    Kind(Colour, of(["red", 2], lambda v, _: json.dumps(v))),
    Kind(Literal["a", "b", 1], of(["a", "b", 1], lambda v, _: json.dumps(v)), hashable=True),
    Kind(
        Annotated[str, BeforeValidator(lambda v: f"{type(v).__name__} {json.dumps(v, sort_keys=True)}")],
        of(['"a"', "1", "1.0", "true", '"1"'], lambda v, _: v),
        free=False,
    ),
    Kind(Annotated[str, AfterValidator(str.upper)], of(["a", "A", "b"], text)),
    Kind(Annotated[int, PlainSerializer(lambda v: 0)], of([0, 1, 2], lambda v, _: str(v)), hashable=True),
]
NAMES = ["a", "default", "type", "config"]
OTHERS = ["p", "q", "r", "s", "sum", "x-y"]
T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    item: T = Field(validation_alias=AliasChoices("item", "thing"))
    more: list[T] = []


class Maker:
    """Makes random kinds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0

    def kind(self, depth: int) -> Kind:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice(SCALARS)
        makers = [self.list_of, self.dict_of, self.tuple_of, self.set_of, self.union, self.union, self.optional]
        makers += [self.root, self.box, *[self.model] * 5, *[self.dataclass] * 2, *[self.typed_dict] * 2]
        return rng.choice([*makers, self.named, self.tagged])(depth - 1)

    def name(self) -> str:
        self.count += 1
        return f"Kind{self.count}"

    def list_of(self, depth: int) -> Kind:
        inner = self.kind(depth)
        return Kind(list[inner.type], items(inner), inner.free)

    def set_of(self, depth: int) -> Kind:
        inner = self.rng.choice([kind for kind in SCALARS if kind.hashable])

        def make(rng: random.Random) -> Callable[[random.Random], str]:
            made = [inner.make(rng) for _ in range(rng.randrange(4))]
            return lambda spelling: f"[{','.join(item(spelling) for item in spelling.sample(made, len(made)))}]"

        return Kind(self.rng.choice([set, frozenset])[inner.type], make, False)  # another order is another call

    def dict_of(self, depth: int) -> Kind:
        inner = self.kind(depth)

        def make(rng: random.Random) -> Callable[[random.Random], str]:
            return members({name: inner.make(rng) for name in rng.sample(NAMES, rng.randrange(3))})

        return Kind(dict[str, inner.type], make, inner.free)

    def tuple_of(self, depth: int) -> Kind:
        inner = [self.kind(depth) for _ in range(2)]

        def make(rng: random.Random) -> Callable[[random.Random], str]:
            made = [kind.make(rng) for kind in inner]
            return lambda spelling: f"[{','.join(item(spelling) for item in made)}]"

        return Kind(tuple[inner[0].type, inner[1].type], make, all(kind.free for kind in inner))

    def optional(self, depth: int) -> Kind:
        inner = self.kind(depth)
        return Kind(inner.type | None if inner.type is not Any else Any, either([inner, NULL]), inner.free)

    def union(self, depth: int) -> Kind:
        branches = [self.kind(depth) for _ in range(self.rng.choice([2, 2, 3]))]
        # Which branch takes a value may depend on how it is written: '1.0' is a float, and no int.
        return Kind(reduce(or_, [kind.type for kind in branches]), either(branches), False)

    def root(self, depth: int) -> Kind:
        inner = self.kind(depth)
        return Kind(type(self.name(), (RootModel[inner.type],), {"__module__": __name__}), inner.make, inner.free)

    def box(self, depth: int) -> Kind:
        inner = self.kind(depth)

        def make(rng: random.Random) -> Callable[[random.Random], str]:
            item, more = inner.make(rng), items(inner)(rng)
            return lambda spelling: members({spelling.choice(["item", "thing"]): item, "more": more})(spelling)

        return Kind(Box[inner.type], make, inner.free)

    def model(self, depth: int) -> Kind:
        rng = self.rng
        by_name, extra = rng.random() < 0.5, rng.choice(["allow", "ignore", "forbid"])
        made, written = self.fields(depth, by_name)
        config = ConfigDict(extra=extra, validate_by_name=by_name, validate_by_alias=True)
        kind = create_model(self.name(), __config__=config, **made)
        kinds = [each for _, each, _ in written]
        if rng.random() < 0.3:
            kind = type(self.name(), (kind,), {"__annotations__": {"_hidden": int}, "_hidden": PrivateAttr(7)})
        return Kind(kind, objects(written, extras=extra == "allow"), all(each.free for each in kinds))

    def dataclass(self, depth: int) -> Kind:
        inner = [self.kind(depth) for _ in range(2)]

        def keep(self: Any, once: Any) -> None:
            self.kept = once

        made = make_dataclass(
            self.name(),
            [("a", inner[0].type), ("once", InitVar[inner[1].type]), ("rest", list[int], field(default_factory=list))],
            namespace={"__post_init__": keep},
        )
        names: list[tuple[list[str], Kind, bool]] = [(["a"], inner[0], True), (["once"], inner[1], True)]
        return Kind(made, objects(names), free=False)  # of what only the constructor gets, the names stay as sent

    def typed_dict(self, depth: int) -> Kind:
        build: Any = TypedDict
        made, written = {}, []
        for name in NAMES[:2]:
            inner, needed = self.kind(depth), self.rng.random() < 0.5
            alias = self.rng.choice([None, f"{name}_2"])
            names = [name] if alias is None else [f"{name}_1", alias]
            annotation = (
                inner.type if alias is None else Annotated[inner.type, Field(validation_alias=AliasChoices(*names))]
            )
            made[name] = annotation if needed else NotRequired[annotation]
            written.append((names, inner, needed))
        return Kind(build(self.name(), made), objects(written), all(kind.free for _, kind, _ in written))

    def named(self, depth: int) -> Kind:
        inner = [self.kind(depth) for _ in range(2)]
        made = NamedTuple(self.name(), [("a", inner[0].type), ("b", inner[1].type)])  # type: ignore[misc]  # noqa: UP014
        return Kind(made, objects([(["a"], inner[0], True), (["b"], inner[1], True)]), all(kind.free for kind in inner))

    def tagged(self, depth: int) -> Kind:
        branches, makes = [], []
        for tag in ("one", "two"):
            inner = self.kind(depth)
            made = create_model(
                self.name(), kind=(Literal[tag], ...), v=(inner.type, Field(validation_alias=AliasChoices("v", "w")))
            )
            branches.append(made)
            label = Kind(str, of([tag], text))
            makes.append(Kind(made, objects([(["kind"], label, True), (["v", "w"], inner, True)]), inner.free))
        by_code = self.rng.random() < 0.3
        if by_code:
            tagged = [Annotated[made, Tag(tag)] for made, tag in zip(branches, ("one", "two"), strict=True)]
            union: Any = Annotated[
                reduce(or_, tagged),
                Discriminator(lambda v: v.get("kind") if isinstance(v, dict) else getattr(v, "kind", None)),
            ]
        else:
            union = Annotated[reduce(or_, branches), Field(discriminator="kind")]
        return Kind(union, either(makes), not by_code and all(kind.free for kind in makes))

    def fields(self, depth: int, by_name: bool) -> tuple[dict[str, Any], list[tuple[list[str], Kind, bool]]]:
        rng = self.rng
        made: dict[str, Any] = {}
        written: list[tuple[list[str], Kind, bool]] = []
        others = iter(rng.sample(OTHERS, len(OTHERS)))
        for name in NAMES[: rng.randrange(1, 4)]:
            inner = self.kind(depth)
            needed = rng.random() < 0.6
            way = rng.randrange(4)
            names, alias = [name], None
            if way == 1:
                alias = next(others)
                names = [alias, name] if by_name else [alias]
            elif way == 2:
                names = [next(others), name]
                alias = AliasChoices(*names)
            options: dict[str, Any] = {"exclude": rng.random() < 0.3, "repr": rng.random() < 0.7}
            if alias is not None:
                options["validation_alias"] = alias
            if needed:
                made[name] = (inner.type, Field(**options))
            else:
                made[name] = (inner.type | None if inner.type is not Any else Any, Field(default=None, **options))
            written.append((names, inner, needed))
        if rng.random() < 0.1:
            made["deep"] = (int, Field(default=3, validation_alias=AliasPath("deeper", 0)))
        return made, written


NULL = Kind(None, lambda _: lambda _: "null")


def items(inner: Kind) -> Make:
    def make(rng: random.Random) -> Callable[[random.Random], str]:
        made = [inner.make(rng) for _ in range(rng.randrange(3))]
        return lambda spelling: f"[{','.join(item(spelling) for item in made)}]"

    return make


def members(made: dict[str, Callable[[random.Random], str]]) -> Callable[[random.Random], str]:
    def write(spelling: random.Random) -> str:
        order = spelling.sample(list(made.items()), len(made))
        space = spelling.choice(["", " ", "\n"])
        return "{" + ",".join(f"{text(name, spelling)}:{space}{value(spelling)}" for name, value in order) + "}"

    return write


def either(kinds: list[Kind]) -> Make:
    return lambda rng: rng.choice(kinds).make(rng)


def objects(written: list[tuple[list[str], Kind, bool]], *, extras: bool = False) -> Make:
    def make(rng: random.Random) -> Callable[[random.Random], str]:
        made = [(names, kind.make(rng)) for names, kind, needed in written if needed or rng.random() < 0.5]
        more = {}
        if extras and rng.random() < 0.4:
            more = {rng.choice(["z", "sum", "p", "a", "b"]): SCALARS[5].make(rng)}

        def write(spelling: random.Random) -> str:
            return members(more | {spelling.choice(names): value for names, value in made})(spelling)

        return write

    return make


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to any function: of the same types, hidden attributes too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, BaseModel):
        return same(
            (one.__dict__, one.__pydantic_extra__, one.__pydantic_private__, one.model_fields_set),
            (other.__dict__, other.__pydantic_extra__, other.__pydantic_private__, other.model_fields_set),
        )
    if is_dataclass(one):
        return same(vars(one), vars(other)) and len(fields(one)) == len(fields(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, SecretStr | SecretBytes):
        return bool(one.get_secret_value() == other.get_secret_value())
    if isinstance(one, set | frozenset):
        return one == other and sorted(str(type(item)) for item in one) == sorted(str(type(item)) for item in other)
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


def accepted(tool: Tool[..., Any], sent: str) -> tuple[Any, Document, str] | None:
    """Return what the tool gets when a person approves this call, its document, and what the approval is bound to."""
    try:
        arguments = CheckedArguments.read(tool, Call(tool.spec.name, sent), repair=True)
        settled, identity = arguments.settled()
    except ToolError:
        return None
    return (settled or arguments).arguments, arguments.forms, identity


def attack(seed: int) -> tuple[int, int]:
    """Try one random type. Returns how many calls were accepted, and how many pairs of spellings."""
    maker = Maker(random.Random(seed))
    kind = maker.kind(3)

    def use(x: Any) -> None: ...

    use.__annotations__ = {"x": kind.type}
    try:
        tool = Tool(use)
    except Exception:  # a combination that pydantic, or a model, cannot take
        return 0, 0
    rng = random.Random(seed)
    by_identity: dict[str, tuple[str, Any]] = {}
    calls = pairs = 0
    for _ in range(25):
        write = kind.make(rng)
        spelled = [f'{{"x": {write(random.Random(rng.random()))}}}' for _ in range(3)]
        found = [(sent, *made) for sent in spelled if (made := accepted(tool, sent)) is not None]
        for sent, checked, document, identity in found:
            calls += 1
            before = by_identity.setdefault(identity, (sent, checked))
            # As plain dictionaries: arguments that were repaired are one of their own kind.
            assert same(dict(before[1]), dict(checked)), f"seed {seed}: {before[0]} and {sent} share a document"
            json.loads(document.text)
            assert document.views
        if kind.free:
            for (sent, *_, identity), (other, *_, another) in pairwise(found):
                pairs += 1
                assert identity == another, f"seed {seed}: {sent} and {other} are one call"
    return calls, pairs


@pytest.mark.full
def test_no_two_calls_with_other_values_share_a_document_and_two_spellings_do() -> None:
    seed, number = fuzz.seed(1), fuzz.cases(400)
    tried = [attack(each) for each in range(seed, seed + number)]
    calls, pairs, tools = sum(each[0] for each in tried), sum(each[1] for each in tried), sum(map(any, tried))
    print(f"{tools} tools, {calls} calls, {pairs} pairs of spellings")
    assert tools > number / 2
    assert calls > 20 * number
    assert pairs > 10 * number
