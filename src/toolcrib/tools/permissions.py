"""What the operator grants to the tools of a source that run in the sandbox.

A stranger's `tool.toml` names what its tool needs. The tool is loaded only if all of it was granted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge, Gt

from ..core import LoadError, SetupError

if TYPE_CHECKING:
    from .manifest import Manifest


class NotGranted(LoadError):
    """A tool needs what the operator has not granted. The message has the setting that would."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What tools that run in the sandbox may have, beyond what every tool has. Raises SetupError."""

    trusted: Annotated[
        bool,
        Doc("Whether its tools get whatever their `tool.toml` names; mounts still need the paths in `mounts`."),
    ] = False
    hosts: Annotated[Sequence[str], Doc("The hosts that may be reached: 'api.example.com', '*.example.com'.")] = ()
    private_hosts: Annotated[
        Sequence[str],
        Doc("Names and networks of these that may be reached though they are not public: 'localhost', '10.0.0.0/8'."),
    ] = ()
    mounts: Annotated[Mapping[str, str | Path], Doc("The folders that may be read, by the names that tools have.")] = (
        field(default_factory=dict[str, str | Path])
    )
    writable: Annotated[Sequence[str], Doc("Which of the mounts may be written, too.")] = ()
    variables: Annotated[Sequence[str], Doc("Which of the host's variables tools may have in their environment.")] = ()
    secrets: Annotated[Sequence[str], Doc("Which secrets tools may have in their environment, by name.")] = ()
    providers: Annotated[Sequence[str], Doc("The providers whose tokens tools may have in their environment.")] = ()
    memory_mb: Annotated[Annotated[int, Ge(1)] | None, Doc("The most memory of a tool, in MiB, above 64.")] = None
    output_mb: Annotated[Annotated[int, Ge(1)] | None, Doc("The most output of a tool, in MiB, above 8.")] = None
    timeout_s: Annotated[Annotated[float, Gt(0)] | None, Doc("The longest call of a tool, in seconds, above 30.")] = (
        None
    )

    def __post_init__(self) -> None:
        from ..schema.declared import require_fields  # brings pydantic: with these, and not with the package

        require_fields(self)
        for name in ("hosts", "private_hosts", "writable", "variables", "secrets", "providers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "mounts", dict(self.mounts))
        if bad := [name for name, folder in self.mounts.items() if not str(folder) or "\0" in str(folder)]:
            raise SetupError(f"Permissions: the mount '{bad[0]}' is not a path of a folder.")
        if unknown := [name for name in self.writable if name not in self.mounts]:
            raise SetupError(f"Permissions: 'writable' names '{unknown[0]}', which is not among 'mounts'.")

    def to(self, source: Any) -> "Permitted":
        """Return *source* with these permissions, as a source."""
        return Permitted(source, self)


@dataclass(frozen=True, slots=True)
class Permitted:
    """A *source* with what its tools may have. Made by `Permissions.to`."""

    source: Any
    permissions: Permissions

    def __str__(self) -> str:
        return str(self.source)


NOTHING_GRANTED = Permissions()


def require(permissions: Permissions, manifest: "Manifest") -> None:
    """Raise NotGranted, naming the setting, for whatever *manifest* needs and *permissions* do not give."""
    if missing := list(_missing(permissions, manifest)):
        needs = ", ".join(need for need, _ in missing)
        settings: dict[str, list[str]] = {}
        for _, (key, value) in missing:
            settings.setdefault(key, []).append(value)
        allow = ", ".join(_setting(key, values) for key, values in settings.items())
        raise NotGranted(
            f"It needs what was not granted: {needs}. If it should have that, write in its [[source]] of "
            f"toolcrib.toml: allow = {{ {allow} }}; or in a program: Permissions(...).to(source)."
        )


def mounted(permissions: Permissions, manifest: "Manifest") -> list[tuple[str, str, bool]]:
    """Return of each mount of *manifest* its path in the tool, the host's folder, and whether it may be written.

    Raises LoadError where there is no such folder.
    """
    mounts: list[tuple[str, str, bool]] = []
    for mount in manifest.mounts:
        # Resolved first: what is given to a guest follows a link in the path itself.
        folder = Path(permissions.mounts[mount.name]).expanduser().resolve()
        if not folder.is_dir():
            raise LoadError(f"The mount '{mount.name}' is not a folder: {folder}.")
        mounts.append((f"/{mount.name}", str(folder), not mount.read_only))
    return mounts


def _missing(permissions: Permissions, manifest: "Manifest") -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what *manifest* needs and does not get, with the setting that would give it."""
    for mount in manifest.mounts:
        if mount.name not in permissions.mounts:
            yield f"the folder '{mount.name}'", ("mounts", mount.name)
        if not mount.read_only and mount.name not in permissions.writable:
            yield f"to write in '{mount.name}'", ("writable", mount.name)
    if not permissions.trusted:
        yield from _missing_names(permissions, manifest)
        yield from _missing_amounts(permissions, manifest)


def _missing_names(permissions: Permissions, manifest: "Manifest") -> Iterator[tuple[str, tuple[str, str]]]:
    labels = {"hosts": "the host", "variables": "the variable", "secrets": "the secret", "providers": "a token of"}
    for key, label in labels.items():
        grants: Sequence[str] = getattr(permissions, key)
        for name in getattr(manifest, key):
            if name not in grants and not (key == "hosts" and any(_covers(pattern, name) for pattern in grants)):
                yield f"{label} {name}", (key, name)


def _covers(granted: str, host: str) -> bool:
    return granted.startswith("*.") and host.endswith(granted[1:])


def _missing_amounts(permissions: Permissions, manifest: "Manifest") -> Iterator[tuple[str, tuple[str, str]]]:
    for key, unit in {"memory_mb": "MiB of memory", "output_mb": "MiB of output", "timeout_s": "seconds"}.items():
        amount, usual = getattr(manifest, key), type(manifest).model_fields[key].default
        if amount > max(usual, getattr(permissions, key) or 0):
            yield f"{amount:g} {unit}", (key, f"{amount:g}")


def _setting(key: str, values: Sequence[str]) -> str:
    """Return the *values* of the setting *key*, as TOML."""
    match key:
        case "mounts":
            return "mounts = { " + ", ".join(f'{value} = "PATH"' for value in values) + " }"
        case "memory_mb" | "output_mb" | "timeout_s":
            return f"{key} = {values[0]}"
        case _:
            return f"{key} = [" + ", ".join(f'"{value}"' for value in values) + "]"
