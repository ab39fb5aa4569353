"""The catalogue: what ships, and what users' files add, replace and get wrong."""

from pathlib import Path

import pytest

from toolcrib import Caller, Context, Crib, SetupError, ToolAuth, tool
from toolcrib.auth import Client, CredentialBroker, Grant, OAuth2, Owner, load_catalogue
from toolcrib.net import Guard

OAUTH2 = {
    *("asana", "bitbucket", "calendly", "discord", "facebook", "github", "google", "hubspot", "jira", "linear"),
    *("linkedin", "mailchimp", "notion", "reddit", "salesforce", "slack", "spotify", "x", "zoom"),
}
SUPPORTED = {"github", "google", "slack", "notion", "jira", "linear", "salesforce", "x"}
ALICE = Caller("alice")


def test_it_has_74_providers_with_82_handlers() -> None:
    shipped = load_catalogue()
    kinds = [kind for entry in shipped.values() for kind in entry.handlers]
    assert len(shipped) == 74
    assert {kind: kinds.count(kind) for kind in kinds} == {"oauth2": 19, "token": 60, "basic": 2, "keypair": 1}
    assert {name for name, entry in shipped.items() if "oauth2" in entry.handlers} == OAUTH2
    assert {name for name, entry in shipped.items() if entry.supported} == SUPPORTED


def test_each_provider_names_its_documentation_and_what_was_compared_has_a_date() -> None:
    shipped = load_catalogue()
    assert [name for name, entry in shipped.items() if not (entry.source or "").startswith("https://")] == []
    assert [name for name, entry in shipped.items() if not entry.environment] == []
    assert {name for name, entry in shipped.items() if entry.checked} >= SUPPORTED
    assert [name for name, entry in shipped.items() if "checked" not in entry.model_fields_set] == []


def test_the_environment_names_are_unique_and_those_that_programs_have() -> None:
    shipped = load_catalogue()
    names = [name for entry in shipped.values() for name in entry.environment]
    assert len(names) == len(set(names))
    for provider, expected in {
        "apitoken": ["API_TOKEN"],
        "basicauth": ["BASIC_AUTH"],
        "kraken": ["KRAKEN_API_KEY", "KRAKEN_API_SECRET"],
        "linkedin": ["LINKEDIN_TOKEN", "LINKEDIN_BASIC_AUTH"],
        "reddit": ["REDDIT_BOT_TOKEN"],
        "slack": ["SLACK_BOT_TOKEN"],
        "valyu": ["VALYU_API_KEY"],
        "x": ["X_AUTH_TOKEN"],
        "lever_sandbox": ["LEVER_SANDBOX_TOKEN"],
    }.items():
        assert shipped[provider].environment == expected


def test_hosts_are_public_names_and_wildcards_are_of_one_provider() -> None:
    shipped = load_catalogue()
    hosts = [host for entry in shipped.values() for host in entry.hosts if "{" not in host]
    guard = Guard(hosts=hosts)
    for host in hosts:
        guard.check(f"https://{host.replace('*', 'any')}/")
    assert [host for host in hosts if host.startswith("*")] == ["*.api.mailchimp.com", "*.pipedrive.com"]


def write(folder: Path, text: str) -> Path:
    file = folder / "providers.toml"
    file.write_text(text)
    return file


def test_a_users_file_adds_and_replaces_whole_tables(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
[github.token]
header = "X-Key"
prefix = ""

[myidp.oauth2]
issuer = "https://idp.example"
""",
    )
    found = load_catalogue(file)
    assert len(found) == 75
    assert (found["github"].title, list(found["github"].handlers), found["github"].hosts) == ("github", ["token"], [])
    assert (found["myidp"].title, found["myidp"].oauth2) == ("myidp", OAuth2(issuer="https://idp.example"))
    assert found["slack"] == load_catalogue()["slack"]


BROKEN = {
    "[a\nb = 1": ":1: This is not valid TOML: Expected ']' at the end of a table declaration.",
    "\n\na = 5": ":3: Expected a table: [a].",
    "[a.token]\n\n[a.token]": ":3: This is not valid TOML: Cannot declare ('a', 'token') twice.",
    '["a b".token]': ":1: 'a b' is not a name: letters, digits, '-' and '_'.",
    '[""]\ntoken = {}': ":1: '' is not a name: letters, digits, '-' and '_'.",
    "[a.token]\n[a]\ntitel = 'A'": (
        ":3: There is no key 'titel'. Did you mean 'title'? It takes: title, source, checked, hosts, environment, "
        "settings, default, recommended_scopes, supported, oauth2, token, basic, keypair."
    ),
    "[a.token]\nheadr = 'X'": (
        ":2: There is no key 'headr' in [a.token]. Did you mean 'header'? It takes: header, prefix."
    ),
    "[a.token]\nheader = 5": ":2: 'token.header': expected string, got integer.",
    "[a]\nhosts = 'a.example'\ntoken = {}": ":2: 'hosts': expected array of string, got string.",
    "[a]\nhosts = ['https://a.example/']\ntoken = {}": (
        ":2: 'hosts': '…' is not a host, such as 'example.com', '*.example.com' or 'example.com:8443'."
    ),
    "[a]\ntitle = 'A'": ":1: [a]: expected a table for a way to its credentials: oauth2, token, basic, keypair.",
    "[a]\ndefault = 'oauth2'\ntoken = {}": ":1: [a]: its default handler has no table.",
    "[a]\ndefault = 'key'\ntoken = {}": (
        ':2: \'default\': expected one of "oauth2", "token", "basic", "keypair". Did you mean "keypair"?'
    ),
    "[a]\nchecked = 'today'\ntoken = {}": ":2: 'checked': expected a valid date.",
    "[a.oauth2]\npkce = false": (":1: 'oauth2': expected 'token_url', or 'issuer' where its endpoints are discovered."),
    "[a.oauth2]\ntoken_url = 'https://a.example/'": (
        ":1: 'oauth2': expected 'authorize_url' or 'device_url', where a person grants access."
    ),
    "[a.oauth2]\nissuer = 'https://a.example'\nscope_separator = ';'": (
        ':3: \'oauth2.scope_separator\': expected one of " ", ",".'
    ),
    "[a.oauth2]\nissuer = 'https://a.example'\nlifetime_s = 1e300": (
        ":3: 'oauth2.lifetime_s': expected less than 1000000000.0."
    ),
    "[a.oauth2]\nissuer = '{domain}'\n[a]\nsettings = { domains = 'Which.' }": (
        ":3: [a]: there is no setting 'domain'. Did you mean 'domains'? Declare it in 'settings'."
    ),
    "[a]\nhosts = ['{site}.example.com']\ntoken = {}": (
        ":1: [a]: there is no setting 'site'. Declare it in 'settings'."
    ),
}
for url in ("http://a.example/", "http://10.0.0.1/", "ftp://127.0.0.1/", "https:///x", "https://[::1"):
    BROKEN[f"[a.oauth2]\nissuer = '{url}'"] = (
        ":2: 'oauth2.issuer': expected a URL that begins with https:// (http:// only for this computer)."
    )


@pytest.mark.parametrize("text", BROKEN)
def test_a_mistake_in_a_users_file_names_the_file_and_the_line(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SetupError) as raised:
        load_catalogue(file)
    assert str(raised.value) == f"{file}{BROKEN[text]}"


SITES = """
[crm]
hosts = ["{region}.crm.example", "{instance_url}", "{other}"]
settings = { region = "Where your account is: eu or us.", other = "Another." }

[crm.oauth2]
authorize_url = "https://{region}.crm.example/authorize"
token_url = "https://{region}.crm.example/token"
keep = ["instance_url"]
"""


@pytest.mark.parametrize(
    ("instance", "hosts"),
    [
        ("https://na40.crm.example", ["eu.crm.example", "na40.crm.example", "one"]),
        ("https://na40.crm.example:8443/x", ["eu.crm.example", "na40.crm.example:8443", "one"]),
        ("https://*.example", ["eu.crm.example", "one"]),
        ("*.example", ["eu.crm.example", "one"]),
        ("https://user@evil.example", ["eu.crm.example", "one"]),
        ("", ["eu.crm.example", "one"]),
    ],
)
async def test_hosts_are_filled_from_settings_and_from_what_the_provider_answered(
    tmp_path: Path, instance: str, hosts: list[str]
) -> None:
    @tool(auth=ToolAuth("crm"))
    async def where(ctx: Context) -> list[str]:
        return list(ctx.credentials["crm"].hosts)

    broker = CredentialBroker(
        catalogue=write(tmp_path, SITES),
        clients={"crm": Client("id", "a-client-secret", {"region": "eu", "other": "one"})},
    )
    await broker.save(Owner.of(ALICE, "crm", "oauth2"), Grant("a-token-0123", detail={"instance_url": instance}))
    async with Crib([where], broker=broker) as crib:
        assert (await crib.workbench(ALICE).call("where")).unwrap() == hosts


async def test_a_setting_that_is_missing_is_named(tmp_path: Path) -> None:
    @tool(auth=ToolAuth("crm"))
    async def where(ctx: Context) -> str:
        return ""

    broker = CredentialBroker(
        catalogue=write(tmp_path, SITES),
        clients={"crm": Client("id", "a-client-secret", {"other": "one"})},
        redirect_uri="http://127.0.0.1:1/",
    )
    assert broker.missing("crm") == ["region"]
    async with Crib([where], broker=broker) as crib:
        result = await crib.workbench(ALICE).call("where")
        assert (result.error.code, result.text) == (
            "unauthorized",
            "'crm' is not configured: [auth.crm] in the settings needs region. "
            "Register http://127.0.0.1:1/crm as the redirect address at 'crm'.",
        )
