"""Roles as data: what people may see and change beside what is their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_doc import Doc

from ..call import is_approver
from ..core import Approvers, Caller, SetupError
from ..schema.declared import require_fields
from .rules import Names

Right = Literal["calls:all", "keys", "sources", "tasks"]
"""What members of a role may see or change beyond what is their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What its members may, beside what everybody may. Raises SetupError for a role without members."""

    may: Annotated[
        Sequence[Right],
        Doc(
            "'calls:all': see the calls of everybody. 'tasks': see, cancel and settle the tasks of everybody. 'keys': "
            "make and revoke keys. 'sources': accept what has changed in a source."
        ),
    ]
    groups: Annotated[Names, Doc("Globs of groups, one or several.")] = ()
    principals: Annotated[Names, Doc("Globs of the names of callers, one or several.")] = ()

    def __post_init__(self) -> None:
        require_fields(self)
        if not self.groups and not self.principals:
            raise SetupError("A role is of 'groups', 'principals', or both.")

    def gives(self, caller: Caller, right: Right) -> bool:
        """Return whether *caller* has *right* by this role."""
        members: Approvers = {"groups": self.groups} if self.groups else {}
        if self.principals:
            members = {**members, "principals": self.principals}
        return right in self.may and is_approver(caller, members)
