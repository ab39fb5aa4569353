"""The saved state of a workbench: JSON data with a version, keyed by source."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..core import SetupError

STATE_VERSION = 1


def state_of(sources: Mapping[str, Any]) -> dict[str, Any]:
    """What is saved of a workbench: JSON data."""
    return {"version": STATE_VERSION, "sources": dict(sources)}


def states_in(state: Any) -> Mapping[str, Any]:
    """The states of sources in what `state_of` gave. Raises SetupError for anything else."""
    if not isinstance(state, Mapping):
        written = " Read it first: json.loads(text)." if isinstance(state, str | bytes) else ""
        raise SetupError(f"A saved state is the mapping that save_state gave, not {type(state).__name__}.{written}")
    version = state.get("version")
    if type(version) is not int:
        raise SetupError(f'A saved state has a version, {{"version": {STATE_VERSION}, "sources": ...}}; this has none.')
    if version != STATE_VERSION:
        raise SetupError(
            f"The state is of version {version}, and version {STATE_VERSION} is read here. Load it with the release of "
            "Toolcrib that saved it."
        )
    if foreign := [key for key in state if key not in ("version", "sources")]:
        raise SetupError(f"A saved state has a version and sources, and nothing like '{str(foreign[0])[:100]}'.")
    sources = state.get("sources")
    if not isinstance(sources, Mapping):
        raise SetupError("The sources of a saved state are a mapping from their names to their states.")
    return sources


def require_json(value: Any, what: str) -> Any:
    """*value* as JSON data of its own. Raises SetupError where it is none."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SetupError(f"{what} is no JSON data: {error}.") from None


def nobody(key: Any, there: Sequence[str]) -> str:
    from ..schema import nearest, spoken

    meant = nearest(str(key), there)
    hint = f" Did you mean '{meant}'?" if meant else ""
    listed = f" There are: {', '.join(there)}." if there else " No source here keeps any."
    return f"There is state of '{spoken(str(key))}', and no such source here.{hint}{listed}"
