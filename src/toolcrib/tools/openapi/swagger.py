"""What Swagger 2.0 says otherwise than OpenAPI 3.0, converted where it is read: references lead to where they led."""

from collections.abc import Mapping, Sequence
from typing import Any

from .documents import Unusable, listed, mapping, texts

PAYLOAD = ("body", "formData")
"""The places of parameters that are the body."""
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_ABOUT = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue", "schema"})
"""The keywords of a parameter that are none of its schema."""
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "csv": {"explode": False},
    "multi": {"style": "form", "explode": True},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
}


def root_of(root: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return *root* with its servers and security schemes as OpenAPI 3.0 has them."""
    schemes = {name: _scheme(mapping(scheme)) for name, scheme in mapping(root.get("securityDefinitions")).items()}
    servers = _servers(root, root.get("schemes"), where)
    return {**root, "servers": servers, "components": {"securitySchemes": schemes}}


def operation_of(operation: Mapping[str, Any], root: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return *operation* with the media types that it has of *root*, and with servers if it has schemes of its own."""
    servers = {"servers": _servers(root, operation["schemes"], where)} if "schemes" in operation else {}
    return {"consumes": root.get("consumes"), "produces": root.get("produces"), **operation, **servers}


def _servers(root: Mapping[str, Any], schemes: Any, where: str) -> Sequence[Mapping[str, str]]:
    """Return the server of an operation with *schemes*, by https if it may be; else that of the document, *where*."""
    base, host = root.get("basePath") or "/", root.get("host")
    usual = "http" if where.startswith("http:") else "https"
    scheme = next((scheme for scheme in ("https", "http") if scheme in listed(schemes)), usual)
    return [{"url": f"{scheme}://{host}/{str(base).lstrip('/')}" if host else str(base)}]


def parameter(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter *data*, which is not a body. Raises Unusable."""
    schema = {key: value for key, value in data.items() if key not in _ABOUT} or mapping(data.get("schema"))
    if schema.get("type") == "file":
        schema = {**schema, "type": "string", "format": "binary"}
    style: Mapping[str, Any] = {}
    if schema.get("type") == "array":
        written = str(data.get("collectionFormat", "csv"))
        if (style := _STYLES.get(written, {})) == {}:
            raise Unusable(f"its parameter '{data['name'][:60]}' has the collectionFormat '{written[:40]}'")
    about = {key: data[key] for key in ("name", "in", "description", "required") if key in data}
    return {**about, **style, "schema": schema}


def request_body(payload: Sequence[tuple[Mapping[str, Any], str]], consumes: Any) -> tuple[dict[str, Any], str]:
    """Return the body that the parameters *payload* are, each with its file, and the file of that. Raises Unusable."""
    data, file = payload[0]
    kinds = texts(consumes)
    if data["in"] != "body":
        return _form([field for field, _ in payload], kinds), file
    if len(payload) > 1:
        raise Unusable("it has a body beside other parameters that are one")
    media = {"schema": data.get("schema", {})}
    return {"content": dict.fromkeys(kinds or ["application/json"], media), "required": data.get("required")}, file


def _form(fields: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> dict[str, Any]:
    """Return the body that the *fields* of a form are, of one of the media types *kinds* if it can be."""
    forms = _FORMS[any(field.get("type") == "file" for field in fields) :]
    kind = next((kind for kind in forms if kind in kinds), forms[0])
    properties: dict[str, Any] = {}
    encoding: dict[str, Any] = {}
    required: list[str] = []
    for field in fields:
        converted, name = parameter({**field, "schema": None}), field["name"]
        properties[name] = converted["schema"]
        if "description" in field:
            properties[name]["description"] = field["description"]
        if field.get("required") is True:
            required.append(name)
        if "explode" in converted:
            if kind == _FORMS[1] and not converted["explode"]:
                raise Unusable(f"its form has a list in one part, '{name[:60]}', which is not supported")
            encoding[name] = {"style": converted.get("style", "form"), "explode": converted["explode"]}
    schema = {"type": "object", "properties": properties, "required": required}
    return {"content": {kind: {"schema": schema, "encoding": encoding}}, "required": bool(required)}


def response(data: Mapping[str, Any], produces: Any) -> dict[str, Any]:
    """Return the response *data* with the content that it may have."""
    schema = data.get("schema")
    is_value = schema is not None and mapping(schema).get("type") != "file"
    kinds = (texts(produces) or ["application/json"]) if is_value else ()
    return {**data, "content": {kind: {"schema": schema} for kind in kinds}}


def _scheme(scheme: Mapping[str, Any]) -> Mapping[str, Any]:
    if scheme.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    return {**scheme, "flows": {"flow": scheme}} if scheme.get("type") == "oauth2" else scheme
