"""`toolcrib auth`, `secrets` and `pending`: what callers have granted and entered, and what waits, in the store."""

from collections.abc import Callable, Coroutine, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import Answer, Approve, Caller, Deny, Pending, ToolAuth, ToolcribError
from ..workbench import Crib
from .complete import complete_provider
from .interrupts import Interrupts
from .login import grants_data, log_in, read_secret
from .options import Config, Json, Store, port_number
from .sources import settings_of
from .terminal import Output, UsageError, echo, log_to_stderr, one_line

if TYPE_CHECKING:
    from ..auth import Owner

auth = typer.Typer(help="Log in to providers, and see what was granted.")
secrets = typer.Typer(help="Secrets that tools need by name.")
pending = typer.Typer(help="What waits for a person: approvals, inputs and authorizations.")

_ProviderName = Annotated[
    str,
    typer.Argument(metavar="PROVIDER", help="One of: toolcrib auth providers.", autocompletion=complete_provider),
]
_HandlerName = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="oauth2, token, basic or keypair; else the default.")
]
_Principal = Annotated[str, typer.Option("--principal", metavar="NAME", help="Whose it is.")]
_Profile = Annotated[str, typer.Option("--profile", metavar="NAME", help="Which of their identities.")]
_ForAll = Annotated[bool, typer.Option("--for-all", help="The operator's, for callers who have none of their own.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="One of: toolcrib pending list.")]
_By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who answers.")]


def _run(
    context: typer.Context, config: Any, store: str | None, work: Callable[[Crib], Coroutine[Any, Any, int | None]]
) -> int:
    """Run *work* with a crib of the settings and the store, without tools. Returns the exit status."""
    from .. import auth as auth  # before the store, whose extra is a part of this one
    from ..workbench.credentials import configured

    log_to_stderr(tracebacks=False)
    settings = settings_of(config)
    given = {} if store is None else {"store": store}
    options = {**settings.options(), **configured(settings, given, default_store=True)}
    interrupts: Interrupts = context.find_root().obj

    async def run() -> int:
        crib = Crib((), **options)
        crib.own(options["store"])
        async with crib:
            return await work(crib) or 0

    return interrupts.run(run())


@auth.command("login")
def login(
    context: typer.Context,
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
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            callback=port_number,
            help="Listen for the answer on this port of this computer, whatever the settings say; 0 takes a free one.",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    principal: _Principal = "local",
    profile: _Profile = "default",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Grant tools access to an account, or store a key."""
    if token not in (None, "-"):
        raise UsageError("A key is not given on the command line, where others see it: --token - reads it.")
    secret = read_secret("Key: ") if token else None
    required = ToolAuth(provider, handler or ("token" if token else None), scope or ())

    async def work(crib: Crib) -> None:
        caller = Caller(principal, profile)
        owner = await log_in(crib, required, caller, device=device, secret=secret, port=port, browser=browser)
        owned = await crib.credentials.broker.vault.owned_by(principal)
        (data,) = grants_data([each for each in owned if each[0] == owner])
        _report(f"Logged in to {crib.credentials.broker.providers[provider].title}.", data, as_json)

    return _run(context, config, store, work)


@auth.command("list")
def list_grants(
    context: typer.Context,
    principal: _Principal = "local",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """List what was granted. Secrets are not shown."""

    async def work(crib: Crib) -> None:
        owned = await crib.credentials.broker.vault.owned_by(principal)
        data = grants_data([each for each in owned if each[0].handler != "secret"])
        names = ("Provider", "Handler", "Profile", "Scopes")
        _write(data, as_json, names, _grant_row)

    return _run(context, config, store, work)


def _grant_row(one: dict[str, Any]) -> list[str]:
    scopes = _damaged(f"auth revoke {one['provider']}", one) if one["damaged"] else _text(one["scopes"])
    return [one["provider"], one["handler"], one["profile"], scopes]


def _damaged(command: str, one: dict[str, Any]) -> str:
    """How to be rid of a grant or secret that does not open."""
    profile = "" if one["profile"] == Caller().profile else f" --profile {quote(one['profile'])}"
    return f"damaged: toolcrib {command}{profile}"


@auth.command("show")
def show_grant(
    context: typer.Context,
    provider: _ProviderName,
    principal: _Principal = "local",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Show what was granted at one provider. Secrets are not shown."""

    async def work(crib: Crib) -> int:
        owned = await crib.credentials.broker.vault.owned_by(principal)
        data = grants_data([each for each in owned if each[0].provider == provider])
        if not data:
            crib.credentials.broker.missing(provider)  # raises where there is no such provider
            raise ToolcribError(f"'{principal}' has granted nothing at '{provider}': toolcrib auth login {provider}")
        output = Output()
        if as_json:
            output.json(data)
        else:
            shown = ["\n".join(f"{name}: {one_line(_text(value))}" for name, value in one.items()) for one in data]
            output.write("\n\n".join(shown))
        return 0

    return _run(context, config, store, work)


@auth.command("revoke")
def revoke(
    context: typer.Context,
    provider: _ProviderName,
    handler: _HandlerName = None,
    principal: _Principal = "local",
    profile: _Profile = "default",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Forget what was granted at a provider, and tell it so."""

    async def work(crib: Crib) -> int:
        broker = crib.credentials.broker
        owned = await broker.vault.owned_by(principal)
        chosen = [
            (owner, grant)
            for owner, grant in owned
            if (owner.provider, owner.profile) == (provider, profile) and handler in (None, owner.handler)
        ]
        for owner, _ in chosen:
            await broker.revoke(owner)
        if not chosen:
            broker.missing(provider)  # raises where there is no such provider
            raise ToolcribError(f"'{principal}' has granted nothing at '{provider}' (profile '{profile}').")
        _report(f"Revoked: {provider}.", grants_data(chosen), as_json)
        return 0

    return _run(context, config, store, work)


@auth.command("providers")
def providers(context: typer.Context, config: Config = None, store: Store = None, as_json: Json = False) -> int:
    """List the providers, and which settings each lacks."""

    async def work(crib: Crib) -> None:
        broker = crib.credentials.broker
        data = [
            {
                "name": name,
                "title": entry.title,
                "handlers": list(entry.handlers),
                "supported": entry.supported,
                "missing": broker.missing(name),
                "documentation": entry.source,
                "checked": None if entry.checked is None else entry.checked.isoformat(),
            }
            for name, entry in sorted(broker.providers.items())
        ]
        names = ("Name", "Title", "Handlers", "Settings", "Checked")
        _write(data, as_json, names, _provider_row)

    return _run(context, config, store, work)


def _provider_row(one: dict[str, Any]) -> list[str]:
    return [one["name"], one["title"], _text(one["handlers"]), _missing(one), one["checked"] or "not compared"]


def _missing(one: Any) -> str:
    return f"needs [auth.{one['name']}] {' '.join(one['missing'])}" if one["missing"] else "ready"


@auth.command("rotate-key")
def rotate_key(context: typer.Context, config: Config = None, store: Store = None, as_json: Json = False) -> int:
    """Seal everything in the store with a new key. Servers go on meanwhile."""

    async def work(crib: Crib) -> None:
        count = await crib.options["store"].rotate_key()
        _report(f"Sealed again: {count} values.", {"sealed": count}, as_json)

    return _run(context, config, store, work)


@secrets.command("set")
def set_secret(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    for_all: _ForAll = False,
    principal: _Principal = "local",
    profile: _Profile = "default",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Store a secret: from the keyboard, unseen, or from standard input."""
    if not name.strip():
        raise UsageError("A secret needs a name, by which tools ask for it: toolcrib secrets set OPENWEATHER_KEY")
    text = read_secret(f"{name}: ")

    async def save(crib: Crib, owner: "Owner") -> None:
        from ..auth import Grant

        await crib.credentials.save(owner, Grant(text))

    return _change_secret(context, name, (principal, profile), save, config, store, for_all=for_all, as_json=as_json)


@secrets.command("list")
def list_secrets(
    context: typer.Context,
    for_all: _ForAll = False,
    principal: _Principal = "local",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """List the names of secrets, and never the secrets."""

    async def work(crib: Crib) -> None:
        from ..auth import OPERATOR

        owned = await crib.credentials.broker.vault.owned_by(OPERATOR if for_all else principal)
        data = [
            {"name": owner.provider, "profile": owner.profile, "damaged": grant is None}
            for owner, grant in owned
            if owner.handler == "secret"
        ]
        _write(data, as_json, ("Name", "Profile"), _secret_row)

    return _run(context, config, store, work)


@secrets.command("remove")
def remove_secret(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    for_all: _ForAll = False,
    principal: _Principal = "local",
    profile: _Profile = "default",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Remove a secret."""

    async def remove(crib: Crib, owner: "Owner") -> None:
        if not await crib.credentials.broker.vault.remove(owner):
            raise ToolcribError(f"There is no secret '{name}'.")

    return _change_secret(context, name, (principal, profile), remove, config, store, for_all=for_all, as_json=as_json)


def _change_secret(
    context: typer.Context,
    name: str,
    whose: tuple[str, str],
    change: "Callable[[Crib, Owner], Coroutine[Any, Any, None]]",
    config: Any,
    store: str | None,
    *,
    for_all: bool,
    as_json: bool,
) -> int:
    async def work(crib: Crib) -> None:
        from ..auth import OPERATOR, secret_owner

        owner = secret_owner(*((OPERATOR, "default") if for_all else whose), name)
        await change(crib, owner)
        if as_json:
            Output().json({"name": name, "profile": owner.profile})

    return _run(context, config, store, work)


def _secret_row(one: dict[str, Any]) -> list[str]:
    damaged = f" ({_damaged('secrets remove ' + quote(one['name']), one)})" if one["damaged"] else ""
    return [one["name"], f"{one['profile']}{damaged}"]


@pending.command("list")
def list_pending(context: typer.Context, config: Config = None, store: Store = None, as_json: Json = False) -> int:
    """List what waits, the oldest first."""

    async def work(crib: Crib) -> None:
        data = [one.to_dict() for one in await crib.pendings()]
        names = ("Id", "Kind", "Principal", "Tool", "Message")
        _write(data, as_json, names, lambda one: [*map(_text, map(one.get, map(str.lower, names)))])

    return _run(context, config, store, work)


@pending.command("show")
def show_pending(
    context: typer.Context, pending_id: _Id, config: Config = None, store: Store = None, as_json: Json = False
) -> int:
    """Show what waits under an id, always as JSON."""

    async def work(crib: Crib) -> None:
        Output().json((await _find(crib, pending_id)).to_dict())

    return _run(context, config, store, work)


@pending.command("approve")
def approve(
    context: typer.Context,
    pending_id: _Id,
    by: _By = "local",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Approve a call: it runs, once, when it is made again."""
    return _answer(context, pending_id, Approve(), by, config, store, as_json=as_json)


@pending.command("deny")
def deny(
    context: typer.Context,
    pending_id: _Id,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The model reads it.")] = "",
    by: _By = "local",
    config: Config = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Deny a call, or an answer."""
    return _answer(context, pending_id, Deny(reason), by, config, store, as_json=as_json)


def _answer(
    context: typer.Context, pending_id: str, answer: Answer, by: str, config: Any, store: str | None, *, as_json: bool
) -> int:
    async def work(crib: Crib) -> None:
        if (await _find(crib, pending_id)).kind == "input" and isinstance(answer, Approve):
            raise ToolcribError("This waits for an input. Make the call again at a terminal to enter it.")
        pending = await crib.answer(pending_id, answer, by=by)
        done = "Approved: it runs, once, when" if isinstance(answer, Approve) else "Denied: the model reads it when"
        _report(f"{done} '{pending.principal}' calls '{pending.tool}' again.", pending.to_dict(), as_json)

    return _run(context, config, store, work)


def _report(text: str, data: Any, as_json: bool) -> None:
    """What was done: *text* for people, or *data* on standard output."""
    if as_json:
        Output().json(data)
    else:
        echo(text)


async def _find(crib: Crib, pending_id: str) -> Pending:
    stored = await crib.pending.store.get(pending_id)
    if stored is None:
        raise ToolcribError(f"Nothing waits under '{one_line(pending_id)[:100]}'. See: toolcrib pending list")
    return stored.pending


def _write(
    data: list[dict[str, Any]], as_json: bool, columns: Sequence[str], row: Callable[[dict[str, Any]], list[str]]
) -> None:
    output = Output()
    if as_json:
        output.json(data)
    else:
        output.table(columns, [*map(row, data)])


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
