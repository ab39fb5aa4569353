"""`toolcrib auth` and `secrets`: grants and secrets of callers, in the store."""

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import Caller, ToolAuth, ToolcribError
from .app import STORE_OPTIONS, Session, command, group
from .arguments import Port, Principal, complete_provider
from .login import log_in, read_secret
from .store import opened_stores
from .terminal import UsageError, echo

if TYPE_CHECKING:
    from ..auth import Grant, Owner

auth = group("Log in to providers, and see what was granted.")
secrets = group("Secrets that tools need by name.")

_ProviderName = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="One of: toolcrib auth providers.", autocompletion=complete_provider)
]
_HandlerName = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="oauth2, token, basic or keypair; else the default.")
]
_ForAll = Annotated[bool, typer.Option("--for-all", help="The operator's, for callers who have none of their own.")]
_Name = Annotated[str, typer.Argument(metavar="NAME")]


@command(auth, "login", takes=f"caller {STORE_OPTIONS}")
async def login(
    session: Session,
    provider: _ProviderName,
    handler: _HandlerName = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="A scope to ask for; may be repeated.")
    ] = None,
    device: Annotated[
        bool, typer.Option("--device", help="Log in by a code that is entered on another device.")
    ] = False,
    token: Annotated[
        str | None, typer.Option("--token", metavar="-", help="Store a key: - reads it from standard input.")
    ] = None,
    port: Port = None,
) -> None:
    """Grant tools access to an account, or store a key."""
    if token not in (None, "-"):
        raise UsageError("A key is not given on the command line, where others see it: --token - reads it.")
    secret = read_secret("Key: ") if token else None
    required = ToolAuth(provider, handler or ("token" if token else None), scope or ())
    async with session.crib() as crib:
        broker = crib.credentials.broker
        owner = await log_in(crib, required, session.caller, device=device, secret=secret, port=port)
        (data,) = _data([owned for owned in await broker.vault.owned_by(session.principal) if owned[0] == owner])
        session.show(data, text=f"Logged in to {broker.providers[provider].title}.")


@command(auth, "list", takes=STORE_OPTIONS)
async def list_grants(session: Session, principal: Principal = "local") -> None:
    """List the grants of a caller. Secrets are not shown."""
    async with session.crib() as crib:
        owned = await crib.credentials.broker.vault.owned_by(principal)
    data = _data([grant for grant in owned if grant[0].handler != "secret"])
    session.show(data, columns=("provider", "handler", "profile", "scopes", "damaged"))


@command(auth, "show", takes=STORE_OPTIONS)
async def show_grant(session: Session, provider: _ProviderName, principal: Principal = "local") -> None:
    """Show the grants at one provider. Secrets are not shown."""
    async with session.crib() as crib:
        owned = await crib.credentials.broker.vault.owned_by(principal)
        data = _data([grant for grant in owned if grant[0].provider == provider])
        if not data:
            crib.credentials.broker.missing(provider)  # raises where there is no such provider
            raise ToolcribError(f"'{principal}' has granted nothing at '{provider}': toolcrib auth login {provider}")
    session.show(data)


@command(auth, "revoke", takes=f"caller {STORE_OPTIONS}")
async def revoke(session: Session, provider: _ProviderName, handler: _HandlerName = None) -> None:
    """Forget the grants at a provider, and notify it."""
    principal, profile = session.principal, session.profile
    async with session.crib() as crib:
        broker = crib.credentials.broker
        grants = [
            (owner, grant)
            for owner, grant in await broker.vault.owned_by(principal)
            if (owner.provider, owner.profile) == (provider, profile) and handler in (None, owner.handler)
        ]
        for owner, _ in grants:
            await broker.revoke(owner)
        if not grants:
            broker.missing(provider)  # raises where there is no such provider
            raise ToolcribError(f"'{principal}' has granted nothing at '{provider}' (profile '{profile}').")
        session.show(_data(grants), text=f"Revoked: {provider}.")


def _data(owned: "Sequence[tuple[Owner, Grant | None]]") -> list[dict[str, Any]]:
    """Return grants as JSON data, without their secrets. `damaged` is how to be rid of one that does not open."""
    from ..auth.grant import grant_data

    return [
        grant_data(owner, grant)
        | {"damaged": None if grant else _way_out(f"auth revoke {owner.provider}", owner.profile)}
        for owner, grant in owned
    ]


def _way_out(command: str, profile: str) -> str:
    return f"toolcrib {command}{'' if profile == Caller().profile else f' --profile {quote(profile)}'}"


@command(auth, "providers", takes=STORE_OPTIONS)
async def providers(session: Session) -> None:
    """List the providers, and which settings each lacks."""
    async with session.crib() as crib:
        broker = crib.credentials.broker
        data: list[dict[str, Any]] = [
            {
                "name": name,
                "title": entry.title,
                "handlers": list(entry.handlers),
                "supported": entry.supported,
                "missing": broker.missing(name),
                "redirect_uri": None if entry.oauth2 is None else broker.redirect_uri_of(name),
                "documentation": entry.source,
                "checked": None if entry.checked is None else entry.checked.isoformat(),
            }
            for name, entry in sorted(broker.providers.items())
        ]
    if not session.as_json:
        for entry in data:
            needs = f"needs [auth.{entry['name']}] {' '.join(entry['missing'])}"
            entry.update(settings=needs if entry["missing"] else "ready", checked=entry["checked"] or "not compared")
    session.show(data, columns=("name", "title", "handlers", "settings", "checked"))


@command(auth, "rotate-key", takes="config store")
async def rotate_key(session: Session) -> None:
    """Seal everything in the store with a new key. Servers go on meanwhile."""
    with opened_stores(session) as stores:
        count = sum([await database.rotate_key() for database, _ in stores])
    echo(f"Sealed again: {count} values.")


@command(secrets, "set", takes="caller config store")
async def set_secret(session: Session, name: _Name, for_all: _ForAll = False) -> None:
    """Store a secret: from the keyboard, unseen, or from standard input."""
    if not name.strip():
        raise UsageError("A secret needs a name, by which tools ask for it: toolcrib secrets set OPENWEATHER_KEY")
    text = read_secret(f"{name}: ")
    async with session.crib() as crib:
        from ..auth import Grant

        await crib.credentials.save(_owner(name, session.caller, for_all=for_all), Grant(text))
    echo(f"Stored: {name}.")


@command(secrets, "list", takes=STORE_OPTIONS)
async def list_secrets(session: Session, for_all: _ForAll = False, principal: Principal = "local") -> None:
    """List the names of secrets, and never the secrets."""
    async with session.crib() as crib:
        owner = _owner("", Caller(principal), for_all=for_all)
        owned = await crib.credentials.broker.vault.owned_by(owner.principal)
    data = [
        {
            "name": owner.provider,
            "profile": owner.profile,
            "damaged": None if grant else _way_out(f"secrets remove {quote(owner.provider)}", owner.profile),
        }
        for owner, grant in owned
        if owner.handler == "secret"
    ]
    session.show(data, columns=("name", "profile", "damaged"))


@command(secrets, "remove", takes="caller config store")
async def remove_secret(session: Session, name: _Name, for_all: _ForAll = False) -> None:
    """Remove a secret."""
    async with session.crib() as crib:
        if not await crib.credentials.broker.vault.remove(_owner(name, session.caller, for_all=for_all)):
            raise ToolcribError(f"There is no secret '{name}'.")
    echo(f"Removed: {name}.")


def _owner(name: str, caller: Caller, *, for_all: bool) -> "Owner":
    from ..auth import OPERATOR, secret_owner

    return secret_owner(*((OPERATOR, "default") if for_all else (caller.principal, caller.profile)), name)
