"""A client of MCP made of Toolcrib: it connects to the server of a conformance scenario and calls every tool it has.

The suite runs it with the URL as its last argument, and what the scenario provides in variables.
"""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib import Call, Caller, Input, Pending, Result, ToolSpec, Workbench
from toolcrib.auth import CallbackError, Client, CredentialBroker, Grant, OAuth2, Owner, Provider

REDIRECT = "http://localhost:3000/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: Mapping[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def visited(url: str) -> str:
    """Where a browser that opens *url* is sent to."""
    try:
        urllib.request.build_opener(_Stay).open(url, timeout=10)
    except urllib.error.HTTPError as answer:
        return str(answer.headers["Location"])
    raise SystemExit("The authorization server sent nobody back.")


async def accept(_: Pending) -> Input:
    """A person who accepts what is asked as it stands."""
    return Input({})


def sample(schema: Mapping[str, Any]) -> Any:
    """A value that *schema* accepts, as far as these scenarios go."""
    if "default" in schema or "const" in schema or "enum" in schema:
        return schema.get("default", schema.get("const", (schema.get("enum") or [None])[0]))
    match schema.get("type"):
        case "object":
            return {name: sample(of) for name, of in schema.get("properties", {}).items()}
        case "integer" | "number":
            return 5
        case "boolean":
            return True
        case "array":
            return []
        case "null":
            return None
    return "test"


async def call(bench: Workbench, broker: CredentialBroker, name: str, arguments: Any) -> Result[Any]:
    """The result of a call, after whatever has to be granted first: three times at most."""
    for _ in range(4):
        result: Result[Any] = await bench.call(Call(name, arguments))
        if result.pending is not None and result.pending.url:
            await broker.complete(visited(result.pending.url))
        elif result.error is None or result.error.code != "unauthorized":
            break
    print(name, result.status, result.text[:300])
    return result


def planned(specs: Sequence[ToolSpec]) -> list[tuple[str, Any]]:
    """The calls of a scenario: what it names, else each tool once; one that takes a schema gets that of another."""
    if "toolCalls" in CONTEXT:
        return [(each["name"], each["arguments"]) for each in CONTEXT["toolCalls"]]
    calls: list[tuple[str, Any]] = []
    for spec in specs:
        arguments = sample(spec.input_schema)
        if "schema" in spec.input_schema.get("properties", {}):
            arguments["schema"] = next(other.input_schema for other in specs if other is not spec)
        if not spec.name.startswith("connect_"):
            calls.append((spec.name, arguments))
    return calls


def issuer_of(url: str) -> str:
    """The authorization server that an operator knows: here that which the server names."""
    with urllib.request.urlopen(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp"), timeout=10) as answer:
        return str(json.load(answer)["authorization_servers"][0])


async def logins(url: str) -> CredentialBroker:
    """Return a broker with the clients of the scenario, and where it has an identity provider, the login there."""
    name, catalogue = f"mcp:{url}", {}
    clients: dict[str, Client] = {}
    login, secret = CONTEXT.get("client_id", ""), CONTEXT.get("client_secret", "")
    if "/client-credentials-" in SCENARIO:
        key = CONTEXT.get("private_key_pem", "")
        clients[name] = Client(login, secret, private_key=key, grant="client_credentials", issuer=issuer_of(url))
    elif "idp_issuer" in CONTEXT:
        clients["idp"] = Client(CONTEXT["idp_client_id"])
        catalogue["idp"] = Provider(title="IdP", oauth2=OAuth2(issuer=CONTEXT["idp_issuer"], id_token=True))
        clients[name] = Client(login, secret, grant="identity_assertion", issuer=issuer_of(url), idp="idp")
    elif login:
        clients[name] = Client(login, secret)
    broker = CredentialBroker(
        clients=clients, catalogue=catalogue, redirect_uri=REDIRECT, client_document_url=DOCUMENT, allow=["localhost"]
    )
    if "idp" in clients:
        await broker.save(Owner.of(Caller("local"), "idp", "oauth2"), Grant(CONTEXT["idp_id_token"]))
    return broker


async def main(url: str) -> int:
    broker = await logins(url)
    results: list[Result[Any]] = []
    workbench = Workbench([url], broker=broker, ask=accept)
    workbench.crib.lifespan.patience_s = 60.0  # the suite starts all its clients at once
    async with workbench as bench:
        for spec in bench.specs():
            if spec.name.startswith("connect_"):
                results.append(await call(bench, broker, spec.name, {}))
        for name, arguments in planned(bench.specs()):
            results.append(await call(bench, broker, name, arguments))
    refusals = [result for result in results if result.error is not None and result.error.code == "unauthorized"]
    return 1 if refusals else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(sys.argv[-1])))
    except CallbackError as error:
        sys.exit(f"Not granted: {error}")
