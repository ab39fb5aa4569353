"""`tool.toml` and the beginning of modules, whatever is in them: read, or refused with a reason."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import wasmtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib import ToolcribError
from toolcrib.core import LoadError
from toolcrib.schema.toml import to_toml
from toolcrib.tools import load
from toolcrib.tools.manifest import Manifest

KEYS = st.sampled_from([*Manifest.model_fields, "nmae", "secret", ""])
VALUES: Any = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
CALM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
MODULE = wasmtime.wat2wasm('(module (func (export "_start")))')


def refusal(text: str | bytes) -> str | None:
    """Why a folder with this tool.toml is refused; None if it is not. Anything but an error of ours escapes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tool.toml").write_bytes(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        (folder / "tool.wasm").write_bytes(MODULE)
        try:
            load(folder)
        except ToolcribError as error:
            assert str(folder.resolve()) in str(error)
            return str(error)
    return None


@CALM
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_table_is_a_tool_or_refused_with_the_file(table: dict[str, Any]) -> None:
    lines = {"name": "guest", "description": "Does nothing.", **table}
    refusal("\n".join(f"{to_toml(key)} = {to_toml(value)}" for key, value in lines.items()))


@CALM
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused_with_the_file(text: str | bytes) -> None:
    assert refusal(text) is not None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('runtime = "java"', "'runtime'"),
        ("timeout_s = nan", "'timeout_s'"),
        ('mounts = [{ name = "../up" }]', "'mounts[0].name'"),
        ('variables = ["A=B"]', "'variables[0]'"),
        ('auth = [{ secret = "A-B" }]', "auth"),
        ("examples = [{ day = 2026-01-02 }]", "'examples[0].day': input was not a valid JSON value"),
        ('hosts = ["api.example"]', "A module has no network"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    from toolcrib.tools import Permissions

    (tmp_path / "tool.wasm").write_bytes(MODULE)
    (tmp_path / "tool.toml").write_text(f'name = "a"\ndescription = "b"\n{line}\n')
    with pytest.raises(LoadError) as raised:
        load(Permissions(trusted=True).to(tmp_path))
    assert message in str(raised.value)
    assert "network" in message or f"{tmp_path / 'tool.toml'}:3: " in str(raised.value)
