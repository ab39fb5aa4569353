"""What the operator grants to the tools of a source that run in the sandbox."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge, Gt

from ..core import SetupError


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
