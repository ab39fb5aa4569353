"""What a document becomes: names, arguments, schemas, servers, and the operations that are left out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Secret, SetupError, ToolAuth
from toolcrib.core import LoadError
from toolcrib.tools import OpenAPISource, load, openapi_source

from .conftest import OK, Write


def parameter(name: str, place: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}} | more


def tools(source: OpenAPISource) -> dict[str, Any]:
    return {tool.spec.name: tool.spec for tool in source.tools()}


def schema_of(file: Path, **options: Any) -> dict[str, Any]:
    (tool,) = openapi_source(file, **options).tools()
    return dict(tool.spec.input_schema)


def problems(source: OpenAPISource) -> str:
    return "\n".join(map(str, source.problems))


@pytest.mark.parametrize(
    ("version", "is_read"),
    [
        ("3.0.0", True),
        ("3.2.0", True),
        ("3.3.0", False),
        ("4", False),
    ],
)
def test_which_versions_are_read(write: Write, version: str, is_read: bool) -> None:
    file = write({"/a": {"get": OK}}, version=version)
    if is_read:
        assert [*tools(openapi_source(file))] == ["get_a"]
    else:
        with pytest.raises(LoadError, match=re.escape(f"OpenAPI '{version}'")):
            openapi_source(file)


def test_a_source_is_a_file_by_its_ending_or_by_its_prefix(write: Write, tmp_path: Path) -> None:
    file = write({"/a": {"get": OK}})
    other = tmp_path / "api.txt"
    other.write_bytes(file.read_bytes())
    for source in (str(file), file, f"openapi:{file}", f"openapi:{other}"):
        assert [tool.spec.name for tool in load(source).tools] == ["get_a"]
    with pytest.raises(LoadError, match="cannot be read"):
        load(str(tmp_path / "missing.yaml"))
    with pytest.raises(LoadError, match="not an OpenAPI document"):
        (tmp_path / "data.json").write_text('{"a": 1}')
        load(str(tmp_path / "data.json"))


def test_names_are_those_of_the_document_and_do_not_clash(write: Write) -> None:
    long = "x" * 70
    paths = {
        "/users/{id}": {"get": {**OK, "parameters": [parameter("id", "path")]}},
        "/users/id": {"get": OK},
        "/a": {"get": {**OK, "operationId": "list.items"}, "post": {**OK, "operationId": "list-items"}},
        "/b": {"get": {**OK, "operationId": "list_items"}, "post": {**OK, "operationId": long}},
        "/c": {"get": {**OK, "operationId": long + "y"}, "post": {**OK, "operationId": "%%%"}},
    }
    names = [*tools(openapi_source(write(paths)))]
    assert len({name.replace("-", "_") for name in names}) == len(names) == 8
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert "post_c" in names
    assert "get_users_id" in names
    by_path = {
        tool.requires["request"]: name for name, tool in zip(names, openapi_source(write(paths)).tools(), strict=True)
    }
    backwards = openapi_source(write(dict(reversed(paths.items())))).tools()
    assert {tool.requires["request"]: tool.spec.name for tool in backwards} == by_path


def test_parameters_and_the_body_have_arguments_of_their_own(write: Write) -> None:
    listed = [
        parameter("id", "path"),
        parameter("id", "query"),
        parameter("id", "header"),
        parameter("id", "cookie"),
        parameter("body", "query"),
        parameter("filter[name]", "query"),
        parameter("$top", "query"),
        parameter("Authorization", "header"),
        parameter("Host", "header"),
        parameter("Content-Type", "header"),
    ]
    body = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
    made = schema_of(write({"/a/{id}": {"put": {**OK, "parameters": listed, "requestBody": body}}}))
    assert [*made["properties"]] == ["id", "id_query", "body", "filter_name", "top", "id_header", "id_cookie", "body_2"]
    assert made["required"] == ["id", "body_2"]
    assert made["additionalProperties"] is False


def body_of(schema: Any, **more: Any) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}, **more}


def test_the_members_of_a_body_are_arguments_where_that_says_all_of_it(write: Write) -> None:
    """As FastMCP has them. Not named: fields that are read only, a body that may be left out, and `PATCH` of an open
    object: only what can be said by arguments alone is."""
    pet = {
        "type": "object",
        "title": "Pet",
        "required": ["name", "id"],
        "properties": {
            "name": {"type": "string"},
            "id": {"type": "integer", "readOnly": True},
            "seen": {"$ref": "#/components/schemas/Seen"},
            "mother": {"$ref": "#/components/schemas/Pet"},
        },
    }
    seen = {"type": "string", "readOnly": True}
    ref = {"$ref": "#/components/schemas/Pet"}
    optional = {"type": "object", "properties": {"name": {"type": "string"}}}

    def made(body: Any, *parameters: Any) -> dict[str, Any]:
        item = {"post": {**OK, "requestBody": body, "parameters": [*parameters]}}
        return schema_of(write({"/a": item}, components={"schemas": {"Pet": pet, "Seen": seen}}))

    flat = made(body_of(ref), parameter("limit", "query"))
    assert [*flat["properties"]] == ["limit", "name", "mother"]
    assert flat["required"] == ["name"]
    assert flat["$defs"]["Pet"]["required"] == ["name"]
    assert made(body_of({**optional, "additionalProperties": False}, required=False))["required"] == []
    for body, taken in (
        (body_of(ref, required=False), ()),  # its members are required only if it is there
        (body_of(ref), (parameter("name", "query"),)),
        (body_of({**optional, "additionalProperties": True}), ()),
        (body_of({**optional, "additionalProperties": {"type": "string"}}), ()),
        (body_of({**optional, "minProperties": 1}), ()),
        (body_of({**optional, "anyOf": [{"required": ["name"]}]}), ()),
        (body_of({**optional, "required": ["other"]}), ()),
        (body_of({**optional, "properties": {"a b": {}}}), ()),
        (body_of({"allOf": [ref]}), ()),
        (body_of({"type": "object"}), ()),
        (body_of({"type": ["object", "null"], "properties": optional["properties"]}), ()),
        (body_of({"properties": optional["properties"]}), ()),
        (body_of({"type": "array"}), ()),
        (body_of(True), ()),
    ):
        assert [*made(body, *taken)["properties"]][-1] == "body", body


def test_ids_that_fastapi_made_become_the_names_of_its_functions(write: Write) -> None:
    """Not named: one function for two methods, whose id FastAPI makes once, and the name of another operation."""

    def of(identifier: str, *names: str) -> dict[str, Any]:
        return {**OK, "operationId": identifier, "parameters": [parameter(name, "path") for name in names]}

    paths = {
        "/": {"get": of("root__get")},
        "/items/{item_id}": {
            "get": of("read_item_items__item_id__get", "item_id"),
            "put": of("replace_items__item_id__put", "item_id"),
        },
        "/api/v1/users/": {"get": of("list_api_v1_users__get"), "post": of("create_api_v1_users__post")},
        "/api/v1/teams/": {"get": of("list_api_v1_teams__get"), "post": of("create_api_v1_teams__post")},
        "/both": {"get": of("both_both_get"), "post": of("both_both_get")},
        "/files/{file_path}": {"get": of("read_file_files__file_path__get", "file_path")},
        "/replace": {"post": of("replace")},
        "/a_get": {"get": of("a_get")},
    }
    expected = [
        *("root", "read_item", "replace_put", "list_api_v1_users__get", "create_api_v1_users__post"),
        *(
            "list_api_v1_teams__get",
            "create_api_v1_teams__post",
            "both_get",
            "both_post",
            "read_file",
            "replace",
            "a_get",
        ),
    ]
    assert [*tools(openapi_source(write(paths)))] == expected
    assert sorted(tools(openapi_source(write(dict(reversed(paths.items())))))) == sorted(expected)


def test_references_lead_anywhere_in_the_document(write: Write) -> None:
    paths = {
        "/a~b/{x/y}": {
            "get": {
                **OK,
                "operationId": "first",
                "parameters": [
                    {"$ref": "#/components/parameters/P"},
                    parameter("x/y", "path", schema={"type": "object", "properties": {"k%": {"enum": [1, 2]}}}),
                ],
            }
        },
        "/b": {"$ref": "#/components/pathItems/B"},
    }
    components = {
        "parameters": {
            "P": {"$ref": "#/components/parameters/Q"},
            "Q": parameter(
                "q", "query", schema={"$ref": "#/paths/~1a~0b~1%7Bx~1y%7D/get/parameters/1/schema/properties/k%25"}
            ),
        },
        "pathItems": {
            "B": {"post": {**OK, "operationId": "second", "requestBody": {"$ref": "#/components/requestBodies/R"}}}
        },
        "requestBodies": {"R": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}}},
        "schemas": {
            "Node": {
                "type": "object",
                "properties": {
                    "next": {"$ref": "#/components/schemas/Node"},
                    "other": {"$ref": "#/components/schemas/Other"},
                },
            },
            "Other": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
        },
    }
    source = openapi_source(write(paths, components=components))
    assert problems(source) == ""
    first, second = tools(source)["first"].input_schema, tools(source)["second"].input_schema
    assert first["properties"]["q"] == {"$ref": "#/$defs/k"}
    assert first["$defs"] == {"k": {"enum": [1, 2]}}
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "other": {"$ref": "#/$defs/Other"}}}
    assert second["properties"] == node["properties"]
    assert second["$defs"] == {"Node": node, "Other": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}


def test_what_cannot_work_is_left_out_with_the_reason_and_the_rest_works(write: Write) -> None:
    deep = json.loads('{"items":' * 90 + "{}" + "}" * 90)

    def takes(*parameters: Any) -> Any:
        return {"get": {**OK, "parameters": [*parameters]}}

    def takes_x(schema: Any = None, **more: Any) -> Any:
        return takes(parameter("x", "query", schema=schema or {}, **more))

    def at(url: str) -> Any:
        return {"get": {**OK, "servers": [{"url": url}]}}

    wrong: dict[str, tuple[Any, str]] = {
        "/a": (takes({"$ref": "#/components/parameters/None"}), "leads nowhere"),
        "/b": (takes({"$ref": "#/paths/~1b/get/parameters/0"}), "without end"),
        "/c/{id}": (takes(), "'{id}', which is not among its parameters"),
        "/d": (takes(parameter("x", "path")), "no place for its parameter 'x'"),
        "/e": (takes_x(style="deep"), "style 'deep'"),
        "/f": (takes_x({"type": "nothing"}), "not a JSON Schema"),
        "/g": (takes_x({"pattern": "("}), "regex"),
        "/h": ({"get": {**OK, "security": [{"unknown": []}]}}, "'unknown' is not declared"),
        "/i": (at("ftp://a.example.com"), "does not name the address of its server"),
        "/j": (at("https://{x}.example.com"), "'x' of its server has no default"),
        "/k": (takes_x({"$ref": "other.json#/a"}), "`external_refs` is not set"),
        "/l": ({"get": {**OK, "requestBody": {"content": {}}}}, "its body has no content"),
        "/m": ({"get": [], "trace": OK}, "an object is missing"),
        "/n": (at("http://10.0.0.1/"), 'private_hosts = ["10.0.0.1"]'),
        "/o": (at("https://user:pass@a.example.com/"), "not the address of a server"),
        "/p/../q": (takes(), "its path has '.' or '..'"),
        "/u": (at("https://*.example.com"), "not the address of a server"),
        "/v": (at("https://a b.example.com"), "not"),
        "q": (takes(), "does not begin with '/'"),
        "/r": (takes_x(deep), "nested"),
        "/s": ("nothing", "an object is missing"),
        "/t": (takes_x({"allOf": [{"$ref": "#/components/schemas/Loop"}]}), "applies itself"),
    }
    paths = {"/good": takes(), **{path: item for path, (item, _) in wrong.items()}}
    loop = {"allOf": [{"$ref": "#/components/schemas/Loop"}]}
    source = openapi_source(write(paths, components={"schemas": {"Loop": loop}}))
    assert [*tools(source)] == ["get_good"]
    report = problems(source).splitlines()
    assert len(report) == len(wrong)
    for path, (_, why) in wrong.items():
        assert any(path in line and why in line for line in report), (path, why, report)


def test_keywords_of_openapi_3_0_become_json_schema(write: Write) -> None:
    schema = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "name": {"type": "string", "nullable": True, "enum": ["a", "b"], "example": "a", "x-y": 1, "xml": {}},
            "size": {
                "type": "integer",
                "minimum": 1,
                "exclusiveMinimum": True,
                "maximum": 9,
                "exclusiveMaximum": False,
            },
            "file": {"type": "string", "format": "byte"},
            "pet": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Pet"}], "description": "d"},
            "bare": {"$ref": "#/components/schemas/Pet", "description": "not counted there"},
        },
        "discriminator": {"propertyName": "name"},
    }
    body = {"content": {"application/json": {"schema": schema}}}
    made = schema_of(
        write(
            {"/a": {"post": {**OK, "requestBody": body}}},
            version="3.0.3",
            components={"schemas": {"Pet": {"type": "string"}}},
        )
    )
    assert made["properties"]["body"] == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": ["string", "null"], "enum": ["a", "b", None], "examples": ["a"]},
            "size": {"type": "integer", "exclusiveMinimum": 1, "maximum": 9},
            "file": {"type": "string", "contentEncoding": "base64", "description": "Bytes, in base64."},
            "pet": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Pet"}]}, {"type": "null"}], "description": "d"},
            "bare": {"$ref": "#/$defs/Pet"},
        },
    }


def test_what_is_wrong_with_a_shared_schema_is_reported_for_each_operation_with_it_and_for_no_other(
    write: Write,
) -> None:
    schemas = {"Good": {"type": "string"}, "Bad": {"type": "string", "pattern": "("}, "Huge": {"maximum": 1e999}}
    paths: dict[str, Any] = {
        f"/{number}/{name}": {"post": {**OK, "requestBody": {"content": {"application/json": {"schema": schema}}}}}
        for name in schemas
        for schema in ({"$ref": f"#/components/schemas/{name}"},)
        for number in (1, 2)
    }
    file = write(paths, components={"schemas": schemas})
    file.write_text(file.read_text().replace("Infinity", "1e999"))
    source = openapi_source(file)
    assert [*tools(source)] == ["post_1_Good", "post_2_Good"]
    assert [(str(each).count("regex"), str(each).count("not JSON")) for each in source.problems] == [
        *[(1, 0)] * 2,
        *[(0, 1)] * 2,
    ]


def test_an_output_schema_is_promised_where_every_success_is_json(write: Write) -> None:
    def output(responses: dict[str, Any], **options: Any) -> Any:
        components = {
            "schemas": {
                "Pet": {
                    "type": "object",
                    "required": ["name", "key"],
                    "properties": {"name": {"type": "string"}, "key": {"type": "string", "writeOnly": True}},
                }
            }
        }
        (tool,) = openapi_source(
            write({"/a": {"get": {"responses": responses}}}, components=components), **options
        ).tools()
        return tool.spec.output_schema

    def of(schema: Any, kind: str = "application/json") -> dict[str, Any]:
        return {"description": "", "content": {kind: {"schema": schema}}}

    pet = {"$ref": "#/components/schemas/Pet"}
    promised = output({"200": of(pet), "404": of({"type": "string"})})
    assert promised["type"] == "object"
    assert promised["required"] == ["name"]
    assert output({"200": of({"type": "string"}), "2XX": of({"type": "integer"}, "application/problem+json")}) == {
        "anyOf": [{"type": "string"}, {"type": "integer"}]
    }
    for responses in (
        {"200": of(pet), "204": {"description": ""}},
        {"200": of(pet, "text/plain")},
        {"200": {"description": "", "content": {"application/json": {}}}},
        {"default": of(pet)},
        {"200": of({"$ref": "#/nowhere"})},
        {"200": of({"type": "wrong"})},
        {},
    ):
        assert output(responses) is None
    assert output({"200": of(pet)}, output_schemas=False) is None


def test_servers_are_of_the_operation_the_path_or_the_document_with_variables(write: Write) -> None:
    def request(paths: dict[str, Any], written: str, declared: Any = None, **options: Any) -> str:
        file = write(paths, servers=[{"url": written, "variables": declared or {}}])
        return str(openapi_source(file, **options).tools()[0].requires["request"])

    def at(name: str) -> Any:
        return {"servers": [{"url": f"https://{name}.example.com"}]}

    a: Any = {"/a": {"get": OK}}
    x = "https://x.example.com"
    assert request(a, f"{x}/v1/") == "GET https://x.example.com/v1/a"
    assert request({"/a": {"get": {**OK, **at("y")}, **at("z")}}, x) == "GET https://y.example.com/a"
    assert request({"/a": {"get": OK, **at("z")}}, x) == "GET https://z.example.com/a"
    names = {"region": {"default": "us", "enum": ["us", "eu"]}, "base": {"default": "v2"}}
    template = "https://{region}.example.com/{base}"
    assert request(a, template, names) == "GET https://us.example.com/v2/a"
    assert request(a, template, names, variables={"region": "eu"}) == "GET https://eu.example.com/v2/a"
    assert request(a, template, names, server="https://other.example.com/") == "GET https://other.example.com/a"
    with pytest.raises(LoadError, match="one of us, eu"):
        request(a, template, names, variables={"region": "evil.example.com/"})
    with pytest.raises(LoadError, match="server = "):
        request(a, "/v1")


def test_other_files_are_read_only_if_that_is_allowed_and_from_its_folder(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "types.yaml").write_text("A: {type: integer}\nB: {$ref: '#/A'}\nC: {$ref: '../secret.json#/x'}")
    (tmp_path / "secret.json").write_text('{"x": {"const": "secret"}}')
    for ref, is_found in (
        ("types.yaml#/B", True),
        ("types.yaml#/C", False),
        ("../secret.json#/x", False),
        ("/etc/hostname", False),
        ("https://127.0.0.1/x.json", False),
    ):
        listed = [parameter("q", "query", schema={"$ref": ref})]
        file = write({"/good": {"get": OK}, "/a": {"get": {**OK, "parameters": listed}}})
        document = file.rename(folder / "api.json")
        assert "get_a" not in tools(openapi_source(document))
        found = tools(openapi_source(document, external_refs=True))
        assert ("get_a" in found) is is_found, ref
        if is_found:
            schema = found["get_a"].input_schema
            assert schema["$defs"] == {"B": {"$ref": "#/$defs/A"}, "A": {"type": "integer"}}


def test_methods_and_tags_choose_operations_and_give_hints(write: Write) -> None:
    item: dict[str, Any] = {
        method: {**OK, "tags": [method]} for method in ("get", "head", "put", "post", "patch", "delete")
    }
    item["query"] = OK
    item["additionalOperations"] = {"LINK": OK}
    file = write({"/a": item}, version="3.2.0")
    hints = {tool.spec.name: tool.spec.hints for tool in openapi_source(file).tools()}
    assert {name for name, hint in hints.items() if hint.read_only} == {"get_a", "head_a", "query_a"}
    assert {name for name, hint in hints.items() if hint.destructive} == {"put_a", "delete_a", "patch_a"}
    assert {name for name, hint in hints.items() if hint.idempotent} == {
        "get_a",
        "head_a",
        "query_a",
        "put_a",
        "delete_a",
    }
    assert "link_a" in hints
    assert [*tools(openapi_source(file, methods=["get", "PUT"]))] == ["get_a", "put_a"]
    assert tools(openapi_source(file))["put_a"].tags == {"put"}


def test_security_schemes_are_what_a_tool_requires(write: Write) -> None:
    github = {
        "authorizationUrl": "https://github.com/login/oauth/authorize",
        "tokenUrl": "https://github.com/login/oauth/access_token",
        "scopes": {},
    }
    schemes = {
        "key": {"type": "apiKey", "in": "query", "name": "api_key"},
        "app": {"type": "apiKey", "in": "header", "name": "X-App"},
        "login": {"type": "http", "scheme": "basic"},
        "digest": {"type": "http", "scheme": "digest"},
        "github": {"type": "oauth2", "flows": {"authorizationCode": github}},
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://a/.well-known"},
    }

    def auth(security: Any, server: str = "https://x.example.com", **mapped: Any) -> Any:
        file = write(
            {"/a": {"get": {**OK, "security": security}}}, components={"securitySchemes": schemes}, server=server
        )
        (tool,) = openapi_source(file, auth=mapped).tools()
        return tool.spec.auth and list(tool.spec.requirements)

    assert auth([{"key": []}]) == [Secret("x.example.com/key")]
    assert auth([{"key": []}], server="https://x.example.com:8443/v1") == [Secret("x.example.com:8443/key")]
    assert auth([{"key": [], "app": []}]) == [Secret("x.example.com/key"), Secret("x.example.com/app")]
    assert auth([{"digest": []}, {"login": []}]) == [Secret("x.example.com/login")]
    assert auth([{"key": []}, {"oidc": []}]) == [Secret("x.example.com/key")]
    assert auth([{"key": []}, {"oidc": []}], oidc="secret:MINE") == [Secret("MINE")]
    assert auth([{"key": []}, {}]) is None
    assert auth([{"key": []}, {}], key="secret:MINE") == [Secret("MINE")]
    assert auth([{"key": []}], key="none") is None
    assert auth([]) is None
    assert auth([{"github": ["repo"]}], server="https://api.github.com") == [ToolAuth("github", "oauth2", ["repo"])]
    assert auth([{"github": ["repo"]}]) == [Secret("x.example.com/github")]  # not one of GitHub's hosts
    assert auth([{"github": ["a"]}], github="labels") == [ToolAuth("labels", None, ["a"])]
    assert auth([{"key": []}], key=ToolAuth("labels", "token")) == [ToolAuth("labels", "token")]
    with pytest.raises(SetupError, match="no security scheme 'kee'"):
        auth([], kee="secret:X")
    with pytest.raises(SetupError, match="secret:NAME"):
        auth([], key=5)


def test_unions_that_all_refer_to_one_another_cost_bounded_time_and_leave_no_operation_out(write: Write) -> None:
    """Elasticsearch has thousands of schemas behind each operation, which were refused as doubling references."""
    count = 300
    text = {"type": "string", "description": "x" * 200}
    schemas: dict[str, Any] = {
        f"Query{number}": {
            "type": "object",
            "properties": {
                "text": text,
                **{
                    f"q{step}": {"$ref": f"#/components/schemas/Query{(number * step + 1) % count}"}
                    for step in (1, 2, 3)
                },
                "any": {"oneOf": [{"$ref": "#/components/schemas/Any"}, {"type": "array"}]},
            },
        }
        for number in range(count)
    }
    schemas["Any"] = {"anyOf": [{"$ref": f"#/components/schemas/Query{number}"} for number in range(60)]}
    any_query = {"$ref": "#/components/schemas/Any"}
    body = body_of({"type": "object", "properties": {"query": any_query, "aggs": {"additionalProperties": any_query}}})
    paths = {f"/search{number}": {"post": {**OK, "requestBody": body}} for number in range(20)}
    source = openapi_source(write(paths, components={"schemas": schemas}))
    assert problems(source) == ""
    made = [tool.spec.input_schema for tool in source.tools()]
    assert len(made) == len(paths)
    assert max(len(json.dumps(schema)) for schema in made) < 20_000
    definitions = made[0]["$defs"]  # what is nearest is there, and what was cut admits anything
    assert (definitions["Query0"]["properties"]["text"], definitions["Query59"]) == (text, {})
