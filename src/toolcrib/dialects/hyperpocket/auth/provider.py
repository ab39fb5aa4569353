"""`hyperpocket.auth.provider`: the names of providers, those of users' catalogues too."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class _Providers(type):
    """Has each provider of the catalogue as a member, as an Enum has its own: `AuthProvider.SLACK`."""

    def __call__(cls, value: Any) -> "AuthProvider":
        return value if isinstance(value, AuthProvider) else AuthProvider.get_auth_provider(value)

    def __getattr__(cls, name: str) -> "AuthProvider":
        if name.startswith("_") or name != name.upper():
            raise AttributeError(name)
        try:
            return AuthProvider.get_auth_provider(name)
        except ValueError as error:
            raise AttributeError(str(error)) from None

    def __getitem__(cls, name: str) -> "AuthProvider":
        try:
            return AuthProvider.get_auth_provider(name)
        except ValueError:
            raise KeyError(name) from None

    def __iter__(cls) -> Iterator["AuthProvider"]:
        from ._catalogue import catalogue

        return map(_member, catalogue())

    def __len__(cls) -> int:
        return sum(1 for _ in cls)

    def __contains__(cls, value: object) -> bool:
        return isinstance(value, AuthProvider)


class AuthProvider(metaclass=_Providers):
    """A provider of credentials: `name` is in upper case, `value` is that of its module and of its settings."""

    __slots__ = ("name", "value")
    name: str
    value: str

    @classmethod
    def get_auth_provider(cls, auth_provider_name: str) -> "AuthProvider":
        """The provider of that name, in any case. Raises ValueError where the catalogue has none."""
        from .._providers import module_name
        from ._catalogue import is_provider

        if not isinstance(auth_provider_name, str) or not is_provider(module_name(auth_provider_name)):
            raise ValueError(f"Invalid auth provider name. {auth_provider_name}")
        return _member(module_name(auth_provider_name))

    def __repr__(self) -> str:
        return f"<AuthProvider.{self.name}: {self.value!r}>"

    def __str__(self) -> str:
        return f"AuthProvider.{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AuthProvider) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return AuthProvider, (self.value,)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        as_text = core_schema.plain_serializer_function_ser_schema(lambda provider: provider.value, when_used="json")
        return core_schema.no_info_plain_validator_function(cls, serialization=as_text)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string"}


@cache
def _member(value: str) -> AuthProvider:
    made = object.__new__(AuthProvider)
    made.name, made.value = value.upper(), value
    return made
