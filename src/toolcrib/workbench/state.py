"""The saved state of sources: JSON data with a version, by source. It loads all or nothing."""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..core import SetupError
from .lifespan import SourceLife, value_of

_log = logging.getLogger("toolcrib")

STATE_VERSION = 1


async def save(lives: Iterable[SourceLife]) -> dict[str, Any]:
    """Return the state of each source that has one, as JSON data. Raises ToolcribError."""
    states: dict[str, Any] = {}
    for key, life in by_key(lives).items():
        state = await value_of(life.source.save_state)
        if state is not None:
            states[key] = _as_json(state, f"The state of {life.name}")
    return {"version": STATE_VERSION, "sources": states}


async def load(
    lives: Iterable[SourceLife], states: Mapping[str, Any], *, describe: Callable[[BaseException], str]
) -> None:
    """Give each source named in *states* its state: all of them, or none. Raises SetupError."""
    keyed = by_key(lives)

    def misfit(key: str, error: Exception) -> SetupError:
        return SetupError(f"The state of '{key}' cannot be loaded, so none is: {describe(error)}")

    for key, state in states.items():
        # What can be checked without changing anything is checked before anything is changed.
        if (check := getattr(keyed[key].source, "check_state", None)) is not None:
            try:
                check(state)
            except Exception as error:
                raise misfit(key, error) from error
    done: list[tuple[SourceLife, Any]] = []
    for key, state in states.items():
        life = keyed[key]
        try:
            before = await value_of(life.source.save_state)
            await value_of(partial(life.source.load_state, state))
        except BaseException as error:
            for earlier, state_before in reversed(done):
                await _restore(earlier, state_before)
            if not isinstance(error, Exception):
                raise
            raise misfit(key, error) from error
        done.append((life, before))


def by_key(lives: Iterable[SourceLife]) -> dict[str, SourceLife]:
    """Return what runs and may have state, by the names it is saved under. Raises SetupError for two of one name."""
    lives_by_key: dict[str, SourceLife] = {}
    for life in lives:
        if not hasattr(life.source, "load_state") or not hasattr(life.source, "save_state"):
            continue
        key = getattr(life.source, "state_key", None) or type(life.source).__name__
        if key in lives_by_key:
            raise SetupError(
                f"Two sources save their state under one name, '{key}'. Give one of them another with state_key."
            )
        lives_by_key[key] = life
    return lives_by_key


def states_in(state: Any) -> Mapping[str, Any]:
    """Return the states of sources in what `save` returned. Raises SetupError for anything else."""
    if not isinstance(state, Mapping):
        hint = " Read it first: json.loads(text)." if isinstance(state, str | bytes) else ""
        raise SetupError(f"A saved state is the mapping that save_state returned, not {type(state).__name__}.{hint}")
    version = state.get("version")
    if type(version) is not int:
        raise SetupError(f'A saved state has a version, {{"version": {STATE_VERSION}, "sources": ...}}; this has none.')
    if version != STATE_VERSION:
        raise SetupError(
            f"The state is of version {version}, and version {STATE_VERSION} is read here. Load it with the release of "
            "Toolcrib that saved it."
        )
    if foreign := [key for key in state if key not in ("version", "sources")]:
        raise SetupError(f"A saved state has a version and sources only, not '{str(foreign[0])[:100]}'.")
    sources = state.get("sources")
    if not isinstance(sources, Mapping):
        raise SetupError("The sources of a saved state are a mapping from their names to their states.")
    return sources


def require_known(states: Mapping[str, Any], known: Sequence[str], shared: Collection[str] = ()) -> None:
    """Raise SetupError for state of a source that is not here: not *known*, or of those *shared* by all callers."""
    from ..schema import closest_match, did_you_mean, display_name

    for key in states:
        if key not in known:
            if key in shared:
                raise SetupError(
                    f"The state of '{key}' is shared by all callers, so the crib loads it: crib.load_state."
                )
            hint = did_you_mean(closest_match(str(key), known))
            list_hint = f" There are: {', '.join(known)}." if known else " No source here has any."
            raise SetupError(f"There is state of '{display_name(str(key))}', and no such source here.{hint}{list_hint}")


def _as_json(value: Any, label: str) -> Any:
    """Return *value* as JSON data of its own. Raises SetupError where it is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SetupError(f"{label} is not JSON data: {error}.") from None


async def _restore(life: SourceLife, state: Any) -> None:
    try:
        if state is not None:
            await value_of(partial(life.source.load_state, state))
    except Exception:
        _log.exception("The earlier state of the source %s could not be restored", life.name)
