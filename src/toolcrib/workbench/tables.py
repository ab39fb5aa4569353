"""What may stand in a `toolcrib.toml`: its tables and keys, and the JSON Schema of them for editors.

What a value means is said where it is used: a `[[rule]]` is a Rule, a `[[limit]]` a Limit, a `[[retry]]` a Retries.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..schema.derive import Quiet, clean
from .preview import LEAST_CHARS

Patterns = str | list[str]
Do = Literal["allow", "deny", "ask"]
Hint = Literal["read_only", "destructive", "idempotent", "open_world", "long_running"]
NoHint = Literal["not read_only", "not destructive", "not idempotent", "not open_world", "not long_running"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_TOOLS = "Patterns of tool names, one or several, as in 'db_*'."


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class SourceTable(_Table):
    """A source of tools. Filters and renames go by the tools' own names; the prefix comes last."""

    where: str = Field(
        alias="from",
        description="A .py file or a folder of them, relative to this file; 'package.module' or 'package.module:name'.",
    )
    tools: Patterns | None = Field(
        default=None, description=f"Only these. {_TOOLS} A name without * ? [ has to be there."
    )
    without: Patterns | None = Field(default=None, description=f"All but these. {_TOOLS}")
    tags: Patterns | None = Field(default=None, description="Only tools that have one of these tags.")
    hint: Hint | None = Field(default=None, description="Only tools that say this of themselves.")
    rename: dict[str, str | list[str]] | None = Field(
        default=None, description="Other names: old = 'new', or old = ['new', 'its description']."
    )
    prefix: str | None = Field(default=None, min_length=1, description="Put before each name, as in 'gh_'.")


class RuleTable(_Table):
    """What to do with the calls that it matches. The first rule that matches decides."""

    do: Do = Field(description="Let it run, refuse it, or ask a person.")
    tools: Patterns | None = Field(
        default=None, description="Patterns of tool names; '.' is any separator, as in 'db.*'."
    )
    hint: Hint | NoHint | None = Field(
        default=None, description="Tools that say this of themselves, or with 'not ', that do not."
    )
    principals: Patterns | None = Field(default=None, description="Patterns of who calls.")
    tags: Patterns | None = Field(default=None, description="Tools that have one of these tags.")
    where: dict[str, Any] | None = Field(
        default=None,
        description="Conditions on arguments by JSON pointer: { '/path' = '/etc/*', '/amount' = { gt = 100 } }.",
    )
    message: str | None = Field(default=None, description="The reason: told to the model, or shown to the person.")
    others_only: bool | None = Field(default=None, description="Whether whoever made the call may not answer it.")
    name: str | None = Field(default=None, description="Under which name it is recorded.")


class LimitTable(_Table):
    """How many calls run at a time, and how often."""

    tools: Patterns | None = Field(default=None, description=_TOOLS)
    per: Literal["tool", "principal", "workbench"] | None = Field(default=None, description="Who share it.")
    concurrency: int | None = Field(default=None, ge=1, description="How many calls run at a time.")
    rate: str | None = Field(default=None, description="How often: '10/s', '100/min', '1000/h' or '5/30s'.")
    wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="How long a call waits for its turn, in seconds; 0 refuses it at once."
    )


class RetryTable(_Table):
    """How often failed calls are made again, of tools that are idempotent or read only."""

    tools: Patterns | None = Field(default=None, description=_TOOLS)
    times: int | None = Field(default=None, ge=0, description="How often.")
    first_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="The longest pause before the first, in seconds; each next one may be twice as long."
    )
    most_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="The longest pause of all, in seconds."
    )


class DeadlineTable(_Table):
    """How long calls of some tools may take, in the place of what they say themselves. The first that fits holds."""

    tools: Patterns = Field(default="*", description=_TOOLS)
    timeout_s: Seconds = Field(description="In seconds.")


class PolicyTable(_Table):
    """What the rules leave open."""

    default: Do = Field(default="allow", description="What to do with calls that no rule matches.")


class ServerTable(_Table):
    """Where `toolcrib serve` listens."""

    host: str = Field(default="127.0.0.1", description="A loopback address.")
    port: int = Field(default=8642, ge=0, le=65535, description="The port; 0 takes any free one.")


class File(_Table):
    """Settings of the command toolcrib: where tools come from, and how they may be called."""

    timeout_s: Seconds | None = Field(
        default=None, description="The longest a call may take, in seconds; of `toolcrib serve` it is 60 unless set."
    )
    repair: bool = Field(default=True, description="Repair arguments where only one reading is possible.")
    show_errors: bool = Field(default=False, description="Tell models the text of exceptions, for development.")
    max_result_chars: Literal[0] | Annotated[int, Field(ge=LEAST_CHARS)] | None = Field(
        default=None,
        description="How many characters of a result are shown; 0 shows everything. Of `toolcrib serve` it is 20,000 "
        "unless set.",
    )
    pending_s: Seconds = Field(default=900.0, description="How long a call waits for its answer, in seconds.")
    secrets: list[str] = Field(
        default_factory=list[str],
        description="References to texts that no result, error or log may show: '${env:NAME}', '${file:PATH}'.",
    )
    source: list[SourceTable] = Field(default_factory=list[SourceTable], description="Where tools come from.")
    rule: list[RuleTable] = Field(default_factory=list[RuleTable], description="Which calls may run.")
    policy: PolicyTable = Field(default_factory=PolicyTable, description="What the rules leave open.")
    limit: list[LimitTable] = Field(default_factory=list[LimitTable], description="How many calls, how often.")
    retry: list[RetryTable] = Field(default_factory=list[RetryTable], description="Which calls are made again.")
    deadline: list[DeadlineTable] = Field(
        default_factory=list[DeadlineTable], description="How long calls of some tools may take."
    )
    variables: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="What tools find in Context.variables. '${env:NAME}' and '${file:PATH}' in their texts are "
        "replaced, and what they give is never shown.",
        repr=False,
    )
    server: ServerTable = Field(default_factory=ServerTable, description="Where `toolcrib serve` listens.")


def schema() -> dict[str, Any]:
    """The JSON Schema of the file. What is shipped for editors is this, written down."""
    made = clean(_without_null(File.model_json_schema(schema_generator=Quiet)))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "toolcrib.toml", **made}


def _without_null(schema: Any) -> Any:
    """TOML has no null: what may be left out is left out."""
    if isinstance(schema, list):
        return [_without_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _without_null(value) for key, value in schema.items() if not (key == "default" and value is None)}
    if {"type": "null"} in (branches := made.get("anyOf", ())):
        rest = [branch for branch in branches if branch != {"type": "null"}]
        beside = {key: value for key, value in made.items() if key != "anyOf"}
        return {**rest[0], **beside} if len(rest) == 1 else {"anyOf": rest, **beside}
    return made
