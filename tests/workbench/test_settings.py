"""`toolcrib.toml`: its values, what overrides them, where secrets come from, and how its mistakes are reported.

`python tests/workbench/test_settings.py` writes the JSON Schema that is shipped.
"""

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema_rs
import pytest

from toolcrib import SetupError, ToolcribError
from toolcrib.schema.declared import doc_of
from toolcrib.store import Webhook
from toolcrib.workbench import Limit, Retry, Rule
from toolcrib.workbench.credentials import configured
from toolcrib.workbench.options import FileOptions
from toolcrib.workbench.settings import (
    SCHEMA,
    Settings,
    SettingsError,
    find_settings,
    read_settings,
    schema,
    unknown_variables,
    variables,
)

Read = Callable[..., Settings]
Problems = Callable[..., list[str]]
HOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The settings in a text, saved as `toolcrib.toml` in the current folder."""
    monkeypatch.chdir(tmp_path)

    def read(text: str, **environ: str) -> Settings:
        Path("toolcrib.toml").write_text(text)
        return read_settings(Path("toolcrib.toml"), environ)

    return read


@pytest.fixture
def problems(read: Read) -> Problems:
    """The problems of a text that is wrong."""

    def problems(text: str, **environ: str) -> list[str]:
        with pytest.raises(SettingsError) as raised:
            read(text, **environ)
        assert str(raised.value) == "\n".join(map(str, raised.value.problems))
        return [str(problem).removeprefix("toolcrib.toml:") for problem in raised.value.problems]

    return problems


def test_an_unknown_key_is_refused_with_the_nearest_name_and_its_line(problems: Problems) -> None:
    text = 'timout_s = 5\n\n[[source]]\nfrom = "a.py"\n[[source]]\nfrm = "b.py"\n[server]\n"prot" = 1\n[[sources]]\n'
    takes = (
        "It takes: from, command, url, name, sampling, roots, headers, env, required, trusted, allow, openapi, tools, "
    )
    takes += "without, tags, hint, resources, prompts, rename, prefix, labels."
    every = ", ".join(schema()["properties"])
    assert problems(text) == [
        f"1: There is no key 'timout_s'. Did you mean 'timeout_s'? It takes: {every}.",
        f"6: There is no key 'frm' in [[source]]. Did you mean 'from'? {takes}",
        "8: There is no key 'prot' in [server]. Did you mean 'port'? It takes: host, port, public_base_url, "
        "allowed_hosts, keys, issuer, audience, scopes, groups_claim, client_id, client_secret, grace_s, console, "
        "workbenches.",
        f"9: There is no key 'sources'. Did you mean 'source'? It takes: {every}.",
    ]


def test_a_wrong_value_is_named_by_its_kind_and_its_line(problems: Problems) -> None:
    text = """\
timeout_s = "secret-looking"
repair = 1
max_result_chars = 5
source = [
    { from = "a.py" },
    # one more
    { from = "b.py", prefix = "" },
]

[[rule]]
tools = "db_*"
do = "alow"
[[rule]]
hint = "destuctive"
do = "ask"

[server]
host = 1979-05-27
port = 70_000
"""
    assert problems(text) == [
        "1: 'timeout_s': expected number (more than 0), got string.",
        "2: 'repair': expected boolean, got integer.",
        "3: 'max_result_chars': expected 0 or integer (at least 1000).",
        "4: 'source[1].prefix': expected at least 1 character.",
        '12: \'rule[0].do\': expected one of "allow", "deny", "ask". Did you mean "allow"?',
        "14: 'rule[1].hint': expected one of "
        '"read_only", "destructive", "idempotent", "open_world", "long_running" or one of '
        '"not read_only", "not destructive", "not idempotent", "not open_world", "not long_running". '
        'Did you mean "destructive"?',
        "18: 'server.host': expected a valid string.",
        "19: 'server.port': expected at most 65535.",
    ]
    for text in ('source = ["a.py"]', 'source = "a.py"', '[source]\nfrom = "a.py"'):
        assert problems(text) == ['1: Each source is a table: [[source]], and below it from = "tools.py".']


def test_an_invalid_rule_limit_or_rename_is_reported_with_its_line(problems: Problems) -> None:
    text = """\
[[source]]
from = "a.py"
rename = { old = ["new", "described", "and more"] }
[[rule]]
do = "deny"
[[rule]]
do = "allow"
others_only = true
[[rule]]
do = "deny"
where = { "/amount" = { above = 3 } }
[[limit]]
tools = "a"
[[limit]]
rate = "3/week"
[[retry]]
tools = []
"""
    found = problems(text)
    assert [line.partition(":")[0] for line in found] == ["1", "6", "9", "12", "14", "16"]
    assert found[1] == "6: 'others_only' restricts who may answer, so it needs do = \"ask\"."
    assert (
        found[3] == '12: A limit needs a concurrency, as in 4, a rate, as in "10/s", or a budget, as in "1000 calls/d".'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = = 1\n", "1: This is not valid TOML, column 5: Invalid value."),
        ("timeout_s = 1\n\ntimeout_s = 2\n", "3: This is not valid TOML, column 14: Cannot overwrite a value."),
        ("a = 1\nb = '''never closed\n", "3: This is not valid TOML: "),
    ],
)
def test_invalid_toml_is_reported_with_its_line(problems: Problems, text: str, message: str) -> None:
    (found,) = problems(text)
    assert found.startswith(message)


def test_references_are_resolved_and_what_they_resolve_to_is_redacted(read: Read) -> None:
    Path("key").write_text("from-a-file\n")
    text = """\
secrets = ["${env:OTHER}"]
[variables]
header = "Bearer ${env:TOKEN}"
nested = { list = ["${file:key}", 3, "$${env:TOKEN}"] }
"""
    settings = read(text, TOKEN="token-value", OTHER="other-value")
    assert settings.values.variables == {
        "header": "Bearer token-value",
        "nested": {"list": ["from-a-file", 3, "${env:TOKEN}"]},
    }
    assert sorted(settings.secrets) == ["from-a-file", "other-value", "token-value"]
    assert settings.redact("a token-value") == "a [secret]"
    assert "value" not in repr(settings)


def test_a_secret_has_four_characters_at_least(read: Read) -> None:
    settings = read('secrets = ["${env:SHORT}"]\n[variables]\nkey = "${env:KEY}"\n', SHORT="abcd", KEY="efgh")
    assert sorted(settings.secrets) == ["abcd", "efgh"]
    shown = repr(read('[secret]\nSHOP = "${env:KEY}"\n[store]\nurl = "${env:URL}"\n', KEY="canary", URL="s://canary"))
    assert "canary" not in shown


def test_the_url_of_a_database_is_not_shown_since_a_password_may_be_in_it(read: Read) -> None:
    settings = read('[store]\nurl = "postgresql://me:canary@host/db"\n')
    assert settings.values.store.url == "postgresql://me:canary@host/db"
    assert "canary" not in f"{settings!r} {settings.values!r} {settings.values.store!r}"


def test_files_of_secrets_and_tools_are_relative_to_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep" / "conf"
    folder.mkdir(parents=True)
    (folder / "key").write_text("from-a-file")
    (folder / "toolcrib.toml").write_text(
        '[[source]]\nfrom = "tools.py"\n[[source]]\nfrom = "../more"\n[[source]]\nfrom = "toolcrib.demo"\n'
        '[[source]]\nfrom = "tools.py:add"\n[variables]\nkey = "${file:key}"\n'
    )
    monkeypatch.chdir(tmp_path)
    settings = read_settings(Path("deep/conf/toolcrib.toml"), {})
    assert [source.source for source in settings.sources] == [
        "deep/conf/tools.py",
        "deep/conf/../more",
        "toolcrib.demo",
        "deep/conf/tools.py:add",
    ]
    assert settings.values.variables == {"key": "from-a-file"}


def test_a_reference_that_does_not_resolve_is_reported_without_quoting_it(problems: Problems) -> None:
    Path("binary").write_bytes(b"\xff")
    text = """\
timeout_s = 3
secrets = ["sk-spelled-out", "${env:EMPTY}"]
[[source]]
from = "${env:TOKEN}/tools.py"
[variables]
a = "${env:NOWHERE}"
b = ["${file:nowhere}", "${file:binary}"]
c = "${sk-spelled-out}"
d = "${env:TOKEN"
e = "${env:SHORT}"
"""
    found = problems(text, EMPTY="", TOKEN="token-value", SHORT="abc")
    forms = "Write '${env:NAME}' or '${file:PATH}'; '$${' stands for '${' itself."
    assert found == [
        "2: 'secrets[0]' is not a reference. The secret itself must not be in this file: write '${env:NAME}' or "
        "'${file:PATH}'.",
        "2: 'secrets[1]': the variable EMPTY is empty.",
        "4: 'source[0].from': references like '${env:NAME}' work in variables, secrets, auth, secret, store, tasks, "
        "pending only.",
        "6: 'variables.a': the variable NOWHERE is not set.",
        "7: 'variables.b[0]': the file nowhere cannot be read: No such file or directory.",
        "7: 'variables.b[1]': the file binary cannot be read: it is not UTF-8 text.",
        f"8: 'variables.c': the '${{' in it does not begin a reference. {forms}",
        f"9: 'variables.d': the '${{' in it does not begin a reference. {forms}",
        "10: 'variables.e': what '${env:SHORT}' resolves to is too short to be redacted: it would be found in ordinary "
        "words. A secret has at least 4 characters. If it is not a secret, write it here.",
    ]


def test_the_environment_overrides_the_file_and_arguments_override_both(read: Read) -> None:
    text = 'timeout_s = 1\nrepair = false\nmax_result_chars = 2000\n[server]\nport = 1\nhost = "::1"\n'
    settings = read(text, TOOLCRIB_TIMEOUT_S="2.5", TOOLCRIB_SERVER_PORT="2", TOOLCRIB_MAX_RESULT_CHARS="0")
    assert (settings.values.server.port, settings.values.server.host) == (2, "::1")
    options = settings.options()
    assert {name: options[name] for name in ("timeout_s", "repair", "max_result_chars")} == {
        "timeout_s": 2.5,
        "repair": False,
        "max_result_chars": None,
    }
    assert settings.options(timeout_s=4, repair=None) == options | {"timeout_s": 4}
    assert settings.options({"timeout_s": 60, "pending_timeout_s": 5}) == options | {"pending_timeout_s": 5}


def leaves_in(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The settings that are one value, with the schema of each."""
    if "$ref" in part:
        part = schema()["$defs"][part["$ref"].rpartition("/")[2]]
    for name, below in part.get("properties", {}).items():
        kinds = {kind.get("type") for kind in below.get("anyOf", [below])}
        if not kinds & {"array", "object"}:
            yield from leaves_in(below, (*path, name)) if "$ref" in below else [((*path, name), below)]


def test_every_setting_that_is_one_value_has_a_variable(read: Read) -> None:
    expected: dict[tuple[str, ...], Any] = {}
    for keys, leaf in leaves_in(schema()):
        kinds = leaf.get("anyOf", [leaf])
        numbers = [kind for kind in kinds if kind.get("type") in ("integer", "number")]
        if numbers:
            expected[keys] = 5000
        elif kinds[0].get("type") == "boolean":
            expected[keys] = not leaf["default"] if isinstance(leaf.get("default"), bool) else True
        else:
            expected[keys] = (
                HOOK_SECRET if keys[-1] == "webhook_secret" else (leaf.get("enum") or ["https://a.b/c"])[-1]
            )
    environ = {f"TOOLCRIB_{'_'.join(keys)}".upper(): str(value) for keys, value in expected.items()}
    assert variables() == dict(zip(environ, expected))
    values = read("", **environ).values
    assert {keys: reduce(getattr, keys, values) for keys in expected} == expected


def test_the_secret_of_a_webhook_is_a_reference_or_a_variable_and_is_needed(read: Read, problems: Problems) -> None:
    text = '[tasks]\nwebhook = "https://example.com/"\n'
    settings = read(text, TOOLCRIB_TASKS_WEBHOOK_SECRET=HOOK_SECRET)
    assert (settings.secrets, HOOK_SECRET in repr(settings)) == ((HOOK_SECRET,), False)
    with pytest.raises(SetupError, match=r"needs a store, as in url in \[store\]\."):
        configured(settings)
    settings = read(f'{text}webhook_secret = "${{env:HOOK}}"\n', HOOK=HOOK_SECRET)
    assert configured(settings, {"store": "own.db"})["store"].webhooks == {
        "tasks": Webhook("https://example.com/", HOOK_SECRET)
    }
    needs = (
        "1: 'webhook' and 'webhook_secret' in [tasks]: A webhook needs a secret that signs its messages: 'whsec_' and "
        "24 to 64 bytes in base64, as from: echo whsec_$(openssl rand -base64 32)"
    )
    assert problems(text) == [needs]
    assert problems(f'{text}webhook_secret = "${{env:HOOK}}"\n', HOOK="not-a-secret-of-webhooks") == [needs]
    assert problems(f'{text}webhook_secret = "{HOOK_SECRET}"\n') == [
        "3: 'tasks.webhook_secret' is not a reference. The secret itself must not be in this file: write "
        "'${env:NAME}' or '${file:PATH}'."
    ]


def test_the_secret_of_the_client_is_a_reference_or_a_variable_and_redacted(read: Read, problems: Problems) -> None:
    text = '[server]\nclient_secret = "${env:CLIENT}"\n'
    for settings in (read(text, CLIENT="the-secret"), read("", TOOLCRIB_SERVER_CLIENT_SECRET="the-secret")):
        assert settings.values.server.client_secret == "the-secret"
        assert (settings.secrets, "the-secret" in repr(settings)) == (("the-secret",), False)
    assert problems('[server]\nclient_secret = "the-secret"\n') == [
        "2: 'server.client_secret' is not a reference. The secret itself must not be in this file: write "
        "'${env:NAME}' or '${file:PATH}'."
    ]


def test_a_variable_with_a_wrong_value_is_named(problems: Problems) -> None:
    assert problems("", TOOLCRIB_TIMEOUT_S="soon", TOOLCRIB_POLICY_DEFAULT="alow", TOOLCRIB_SOURCES="'a") == [
        "TOOLCRIB_TIMEOUT_S: Expected number (more than 0).",
        'TOOLCRIB_POLICY_DEFAULT: Expected one of "allow", "deny", "ask".',
        "TOOLCRIB_SOURCES: A quote in it is never closed.",
    ]
    environ = {"TOOLCRIB_TIMEOUT": "3", "TOOLCRIB_REPAIR": "1", "TOOLCRIB_ALLOW_SOURCE_CODE": "1", "OTHER": ""}
    (unknown,) = unknown_variables(environ)
    assert str(unknown) == "TOOLCRIB_TIMEOUT: There is no setting of this name. Did you mean 'TOOLCRIB_TIMEOUT_S'?"


def test_sources_in_the_environment_are_words_as_in_a_shell(read: Read) -> None:
    settings = read('[[source]]\nfrom = "a.py"\n', TOOLCRIB_SOURCES="'my tools.py' toolcrib.demo")
    assert [source.source for source in settings.sources] == ["my tools.py", "toolcrib.demo"]


def test_which_file_the_settings_are_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_settings(None, {}) is None
    Path("toolcrib.toml").touch()
    Path("other.toml").touch()
    assert find_settings(None, {}) == Path("toolcrib.toml")
    assert find_settings(None, {"TOOLCRIB_CONFIG": "other.toml"}) == Path("other.toml")
    assert find_settings(Path("toolcrib.toml"), {"TOOLCRIB_CONFIG": "other.toml"}) == Path("toolcrib.toml")
    with pytest.raises(ToolcribError, match=r"There is no file nowhere.toml, which TOOLCRIB_CONFIG names\."):
        find_settings(None, {"TOOLCRIB_CONFIG": "nowhere.toml"})


@pytest.mark.skipif(not hasattr(os, "chown") or os.getuid() != 0, reason="needs root, to give a file away")
def test_a_file_above_that_belongs_to_another_user_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    planted = tmp_path / "toolcrib.toml"
    planted.touch()
    os.chown(planted, 12345, 12345)
    monkeypatch.chdir(tmp_path / "deep")
    assert find_settings(None, {}) is None
    monkeypatch.chdir(tmp_path)
    assert find_settings(None, {}) == Path("toolcrib.toml")


def test_settings_in_pyproject_have_its_lines_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = Path("pyproject.toml")
    project.write_text(
        '[project]\nname = "x"\n\n[tool.toolcrib]\ntimeout_s = 3\n[[tool.toolcrib.source]]\nfrom = "tools.py"\n'
    )
    settings = read_settings(project, {})
    assert settings.options()["timeout_s"] == 3
    assert [(source.source, source.place, source.line) for source in settings.sources] == [
        ("tools.py", "pyproject.toml:6", 6)
    ]
    project.write_text('[tool.toolcrib]\ntimout_s = 3\n[[tool.toolcrib.source]]\nfrm = "a.py"\n')
    with pytest.raises(SettingsError) as raised:
        read_settings(project, {})
    assert [str(problem).partition(" It takes")[0] for problem in raised.value.problems] == [
        "pyproject.toml:2: There is no key 'timout_s'. Did you mean 'timeout_s'?",
        "pyproject.toml:4: There is no key 'frm' in [[tool.toolcrib.source]]. Did you mean 'from'?",
    ]
    project.write_text("[tool]\n")
    with pytest.raises(ToolcribError, match=r"pyproject.toml has no table \[tool.toolcrib\]\."):
        read_settings(project, {})
    project.write_text("[tool.toolcrib]\ntimeout_s = = 3\n")
    assert find_settings(None, {}) == project
    with pytest.raises(SettingsError, match=r"^pyproject.toml:2: This is not valid TOML, column 13: Invalid value.$"):
        read_settings(project, {})


def test_rules_limits_retries_and_plain_options_are_declared_once() -> None:
    tables = schema()["$defs"]
    for declared in (Rule, Limit, Retry):
        properties = tables[declared.__name__]["properties"]
        assert list(properties) == [one.name for one in fields(declared) if one.init]
        assert all(one["description"] for one in properties.values())
    for name, annotation in get_type_hints(FileOptions, include_extras=True).items():
        assert schema()["properties"][name]["description"] == doc_of(annotation)


def test_the_schema_that_is_shipped_is_current() -> None:
    shipped = json.loads(SCHEMA.read_text())
    jsonschema_rs.meta.validate(shipped)
    assert shipped == schema(), "python tests/workbench/test_settings.py writes it"


def test_the_schema_refuses_what_the_command_refuses() -> None:
    validator = jsonschema_rs.Draft202012Validator(schema())
    right = {"source": [{"from": "a.py", "tools": ["a*"]}], "rule": [{"do": "ask", "hint": "not read_only"}]}
    assert validator.is_valid(right)
    for wrong in ({"source": [{}]}, {"sources": []}, {"timeout_s": 0}, {"rule": [{"do": "x"}]}, {"timeout_s": None}):
        assert not validator.is_valid(wrong)


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=2) + "\n")


def keys_in(schema: dict[str, Any], whole: dict[str, Any], path: str = "") -> Iterator[str]:
    """The keys that a file may have: those of tables below their table's."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for name, below in schema.get("properties", {}).items():
        yield f"{path}{name}"
        yield from keys_in(below, whole, f"{path}{name}.")
        yield from keys_in(below.get("items", {}), whole, f"{path}{name}.")


def keys_of(data: Any, path: str = "") -> Iterator[str]:
    for table in data if isinstance(data, list) else [data]:
        for name, value in table.items() if isinstance(table, dict) else ():
            yield f"{path}{name}"
            yield from keys_of(value, f"{path}{name}.")


def test_the_complete_example_of_the_documentation_has_every_key() -> None:
    docs = Path(__file__).parents[2] / "docs"
    example = (docs / "configuration.md").read_text().partition("```toml\n# toolcrib.toml\n")[2].partition("```")[0]
    servers = (docs / "gateway.md").read_text().partition("```toml\n")[2].partition("```")[0]
    shown = {*keys_of(tomllib.loads(example)), *keys_of(tomllib.loads(servers))}
    assert sorted({*keys_in(schema(), schema())} - shown) == []


def test_references_in_the_store_are_resolved(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.toml"
    file.write_text('[store]\nurl = "${env:WHERE}"\nkey = "${env:KEYS}/store.key"\n')
    settings = read_settings(file, {"WHERE": "postgresql://u:hidden@h/d", "KEYS": "/keys"})
    assert (settings.values.store.url, settings.values.store.key) == ("postgresql://u:hidden@h/d", "/keys/store.key")
    assert "hidden" not in repr(settings)
    file.write_text('[store]\nurl = "data/store.db"\nkey = "~/store.key"\n')
    settings = read_settings(file, {"TOOLCRIB_STORE_URL": "own.db"})
    assert settings.path(settings.values.store.url) == str(Path("own.db").absolute())
    assert settings.path(settings.values.store.key) == str(Path("~/store.key").expanduser())
    settings = read_settings(file, {})
    assert settings.path(settings.values.store.url) == str(tmp_path / "data" / "store.db")
