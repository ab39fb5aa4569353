"""The MCP server that the conformance suite talks to, of Toolcrib's public names alone, over HTTP or with `stdio`.

It prints its URL. The names of its tools, resources and prompts, and what they give, are the suite's.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from toolcrib import Context, Crib, File, Image, Text, ToolError, ToolSpec, tool
from toolcrib.core import Audio
from toolcrib.serve import Form, Roots, Sample, ask_client, client_can, close_stream, serve_http, serve_stdio
from toolcrib.tools import from_schema
from toolcrib.workbench import PromptMessage

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)
WAVE = b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data"


class Numbers(BaseModel):
    numbers: list[int]
    name: str


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Okay(BaseModel):
    ok: bool


class User(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@tool
def test_simple_text() -> str:
    """Text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Image:
    """An image."""
    return Image(PIXEL)


@tool
def test_audio_content() -> Audio:
    """Sound."""
    return Audio(WAVE, "audio/wav")


@tool
def test_embedded_resource() -> File:
    """An embedded resource."""
    return File(b"This is an embedded resource content.", "text/plain", "embedded")


@tool
def test_multiple_content_types() -> list[Text | Image | File]:
    """Text, an image and a resource."""
    return [
        Text("Multiple content types test:"),
        Image(PIXEL),
        File(b'{"test":"data","value":123}', "application/json", "mixed"),
    ]


@tool
async def test_tool_with_logging(context: Context) -> str:
    """Log three lines."""
    context.log.info("Tool execution started")
    await asyncio.sleep(0.05)
    context.log.info("Tool processing data")
    await asyncio.sleep(0.05)
    context.log.info("Tool execution completed")
    return "Logged."


@tool
async def test_logging_tool(context: Context) -> str:
    """Log a line."""
    context.log.info("A line")
    return "Logged."


@tool
async def test_tool_with_progress(context: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        context.progress(done, 100)
        await asyncio.sleep(0.05)
    return "Done."


@tool
async def test_reconnection() -> str:
    """Let go of the connection, and answer when the client comes back."""
    await close_stream()
    await asyncio.sleep(0.05)
    return "Reconnected."


@tool
def test_structured_content(n: int) -> Numbers:
    """Return so many numbers, as structured content."""
    return Numbers(numbers=list(range(n)), name="first")


@tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
async def test_sampling(prompt: str) -> str:
    """Ask the client's model."""
    answers = await ask_client(answer=Sample(prompt, max_tokens=100))
    return f"LLM response: {answers['answer']}"


@tool
async def test_missing_capability() -> str:
    """Need what the client has not."""
    return str(await ask_client(answer=Sample("Anything", max_tokens=100)))


@tool
async def test_elicitation(message: str, context: Context) -> str:
    """Ask the user."""
    return f"User response: {(await context.ask('user', User, message)).model_dump_json()}"


@tool
async def test_streaming_elicitation(context: Context) -> str:
    """Ask the user, and say so before."""
    context.progress(1)
    return (await context.ask("user_name", Name, "What is your name?")).name


@tool
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask with defaults of every kind."""
    answer = await context.ask("defaults", Defaults, "Please review")
    return f"Elicitation completed: {answer.model_dump_json()}"


CHOICES: Any = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": f"{word} Option"} for n, word in [(1, "First"), (2, "Second")]],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
        },
    },
}


@tool
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Ask with choices of every kind."""
    return f"Elicitation completed: {await context.ask('choices', CHOICES, 'Please choose')}"


@tool
async def test_input_required_result_elicitation(context: Context) -> str:
    """Ask for a name."""
    return f"Hello, {(await context.ask('user_name', Name, 'What is your name?')).name}!"


@tool
async def test_input_required_result_sampling() -> str:
    """Ask the client's model."""
    answers = await ask_client(capital_question=Sample("What is the capital of France?", max_tokens=100))
    return str(answers["capital_question"])


@tool
async def test_input_required_result_list_roots() -> str:
    """Ask for the client's roots."""
    return str((await ask_client(client_roots=Roots()))["client_roots"])


@tool
async def test_input_required_result_request_state(context: Context) -> str:
    """Ask for a confirmation."""
    await context.ask("confirm", Okay, "Please confirm")
    return "state-ok"


@tool
async def test_input_required_result_tampered_state(context: Context) -> str:
    """Ask for a confirmation, whose state nobody changes."""
    await context.ask("confirm", Okay, "Please confirm")
    return "state-ok"


@tool
async def test_input_required_result_multiple_inputs() -> str:
    """Ask three things at once."""
    return str(
        await ask_client(
            user_name=Form("What is your name?", Name),
            greeting=Sample("Generate a greeting", max_tokens=50),
            client_roots=Roots(),
        )
    )


@tool
async def test_input_required_result_multi_round(context: Context) -> str:
    """Ask one thing after the other."""
    name = await context.ask("step1", Name, "Step 1: What is your name?")
    color = await context.ask("step2", Color, "Step 2: What is your favorite color?")
    return f"{name.name} likes {color.color}"


@tool
async def test_input_required_result_capabilities() -> str:
    """Ask only what the client can be asked."""
    questions = {"user_name": Form("What is your name?", Name), "greeting": Sample("Greet", max_tokens=50)}
    return str(await ask_client(**{name: one for name, one in questions.items() if client_can(type(one))}))


@tool
def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that proxies see in a header."""
    return f"Hello from {region}"


class Confirmation(BaseModel):
    confirm: bool


@tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool(task=True, idempotent=True)
async def slow_compute(seconds: float, label: str) -> str:
    """Take some seconds."""
    await asyncio.sleep(seconds)
    return f"{label} is done"


@tool(task="required")
async def failing_job() -> str:
    """Fail after a while."""
    await asyncio.sleep(0.5)
    raise ToolError("This job always fails.")


@tool(task=True)
async def protocol_error_job() -> str:
    """Need a tool that is not there."""
    raise ToolError("There is no tool 'gone'.", "unknown_tool")


@tool(task=True)
async def confirm_delete(filename: str, context: Context) -> str:
    """Ask before it deletes."""
    answer = await context.ask("confirm", Confirmation, f"Delete {filename}?")
    return f"{filename}: {answer.confirm}"


@tool(task=True)
async def multi_input(context: Context) -> str:
    """Ask two things at once."""
    answers = await asyncio.gather(
        *(context.ask(name, Name, f"What is the {name} name?") for name in ("first", "last"))
    )
    return " ".join(answer.name for answer in answers)


@tool(task=True)
async def greet_later(name: str) -> str:
    """Greet as a task."""
    return f"Hello, {name}!"


TASKS = [greet, slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input, greet_later]


JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def described(**arguments: Any) -> str:
    return str(arguments)


def crib(store: Path) -> Crib:
    tools = [value for name, value in globals().items() if name.startswith("test_")]
    spec = ToolSpec("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", JSON_SCHEMA)
    made = Crib([*tools, *TASKS, from_schema(spec, described, runs="async")], store=store)

    @made.registry.add
    @tool
    async def test_tool_with_task(context: Context) -> Any:
        """Ask for a name, and greet as a task."""
        name = (await context.ask("user_name", Name, "What is your name?")).name
        return await made.workbench(context.caller).call("greet_later", {"name": name})

    text = "This is the content of the static text resource."
    made.resources.add("test://static-text", text, name="Static text", description="Text.")
    made.resources.add(
        "test://static-binary", PIXEL, name="Static binary", description="A pixel.", media_type="image/png"
    )
    made.resources.add("test://watched-resource", "Watched.", name="Watched", description="Followed by clients.")

    @made.resources.add("test://template/{id}/data", media_type="application/json")
    async def template(id: str) -> dict[str, Any]:
        """Data of an id."""
        return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}

    @made.prompts.add
    def test_simple_prompt() -> str:
        """A prompt."""
        return "This is a simple prompt for testing."

    @made.prompts.add
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A prompt with arguments.

        Args:
            arg1: First test argument.
            arg2: Second test argument.
        """
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @made.prompts.add
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
        """A prompt with a resource."""
        return [File(b"Embedded resource content for testing.", "text/plain", resourceUri), "Please process it."]

    @made.prompts.add
    def test_prompt_with_image() -> list[Any]:
        """A prompt with an image."""
        return [PromptMessage("user", Image(PIXEL)), "Please analyze the image above."]

    @made.prompts.add
    async def test_input_required_result_prompt() -> str:
        """A prompt that asks."""
        answers = await ask_client(
            user_context=Form(
                "What context should the prompt use?",
                {
                    "type": "object",
                    "properties": {"context": {"type": "string"}},
                    "required": ["context"],
                },
            )
        )
        return f"Use this context: {answers['user_context']['context']}"

    # What they change, clients that listen are told of.
    @made.registry.add
    @tool
    def test_trigger_tool_change() -> str:
        """Add a tool, or take it away."""
        return flip(made.registry.remove, made.registry.add)

    @made.registry.add
    @tool
    def test_trigger_prompt_change() -> str:
        """Add a prompt, or take it away."""
        return flip(made.prompts.remove, made.prompts.add)

    return made


def extra() -> str:
    """Comes and goes."""
    return "extra"


def flip(remove: Callable[[str], object], add: Callable[[Any], object]) -> str:
    try:
        remove("extra")
    except KeyError:
        add(extra)
    return "Changed."


if __name__ == "__main__":
    logging.getLogger("toolcrib.tool").setLevel(logging.INFO)
    with TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        if sys.argv[1:] == ["stdio"]:
            asyncio.run(serve_stdio(crib(store)))
        else:
            asyncio.run(serve_http(crib(store), port=0, ready=lambda url: print(url, flush=True)))
