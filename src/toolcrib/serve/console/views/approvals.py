"""`/approvals`: what waits for a person, the answers to it, and what was approved for more than one call."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from starlette.responses import Response

from ....call import MASKS
from ....schema import JSONError, SchemaView, parse_exact, parse_json
from ....schema.errors import problems
from ....schema.view import pointer
from ..forms import MISSING, Draft, draft_of, mark, value_of, visible_json
from ..visit import Answer, Page, Problem, Visit, redirect, render

_GRANTS_BESIDE = 10
_MAX_BOXES, _MAX_BOX_CHARS = 20, 200
"""So many arguments have a box by which a grant is for their value alone, and so long are these."""
_MAX_ROWS = 500
"""So many values are listed; all of them are in the JSON below."""
_Path = tuple[str, ...]
_SPANS = {"1": "one hour", "8": "eight hours", "24": "a day", "168": "a week", "720": "30 days"}


@dataclass(frozen=True, slots=True)
class Row:
    """A value of the arguments at *pointer*, and that of the last approved call: a *change* is new, changed or gone."""

    pointer: str
    name: str
    text: str
    before: str = ""
    change: str = ""


async def show_list(visit: Visit) -> Answer:
    after = visit.request.query_params.get("after", "")
    page = await visit.get("/api/pending", after=after)
    if (mark := mark_of(page["pending"])) == visit.request.query_params.get("seen"):
        return Response(status_code=204)
    grants = await visit.get("/api/grants", limit=_GRANTS_BESIDE)
    return render(visit, "approvals.html", page=page, grants=grants, after=after, mark=mark)


def mark_of(pendings: Sequence[Mapping[str, Any]]) -> str:
    """Return what tells a list of what waits from others: a page that has shown it leaves it alone."""
    return sha256(" ".join(pending["id"] for pending in pendings).encode()).hexdigest()[:16]


async def show_grants(visit: Visit) -> Answer:
    grants = await visit.get("/api/grants", after=visit.request.query_params.get("after"))
    return render(visit, "grants.html", grants=grants)


async def revoke(visit: Visit, grant: str) -> Answer:
    await visit.delete(f"/api/grants/{grant}")
    return redirect(visit, "/approvals/grants")


async def show(visit: Visit, pending: str, problem: Problem | None = None, *, is_edited: bool = False) -> Answer:
    question = await visit.get(f"/api/pending/{pending}")
    draft = await _draft(visit, question, is_edited=is_edited)
    if draft is not None and problem is not None and is_edited and not draft.is_invalid:
        mark(draft.fields, (mistake.to_dict() for mistake in problems(draft.fields.view, parse_json(draft.raw))))
    waits, last = question["pending"], question["last_approved"]
    rows, more = rows_of(waits.get("arguments", "{}"), last and last["arguments"])
    boxes = [row for row in rows if _has_box(row)][:_MAX_BOXES]
    text = visible_json(parse_exact(waits.get("arguments", "{}")))
    status = 200 if problem is None else problem.status
    about = {"question": question, "pending": waits, "text": text, "rows": rows, "more": more, "boxes": boxes}
    values = {**about, "last": last, "draft": draft, "is_edited": is_edited, "spans": _SPANS}
    return render(visit, "approval.html", status, problem=problem, form=visit.form, **values)


async def preview(visit: Visit, pending: str) -> Answer:
    """Show what an answer would grant, to the person who is to agree."""
    try:
        waits = (await visit.get(f"/api/pending/{pending}"))["pending"]
        where = _data(str(visit.form.get("conditions") or "{}"), "Conditions are")
        values = dict(_leaves(json.loads(waits.get("arguments", "{}"))))
        names = {pointer(path): value for path, value in values.items()}
        where = {str(name): {"eq": names.get(str(name))} for name in visit.form.getlist("where")} | where
        span = str(visit.form.get("until"))
        until = (datetime.now(UTC) + timedelta(hours=int(span))).isoformat() if span in _SPANS else "conversation"
        answer = {"kind": "approve", "until": until, **({"where": where} if where else {})}
        digest = str(visit.form.get("digest"))
        grant = (await visit.post(f"/api/pending/{pending}/preview", answer | {"digest": digest}))["grant"]
    except Problem as problem:
        return await show(visit, pending, problem)
    return render(visit, "grant_preview.html", pending=waits, grant=grant, answer=json.dumps(answer), digest=digest)


async def answer(visit: Visit, pending: str) -> Answer:
    """Give the answer of a form; without a `kind`, show what was filled in so far."""
    form = visit.form
    data: dict[str, Any] = {"digest": str(form.get("digest"))}
    value, kind = b"", form.get("kind")
    try:
        match kind:
            case "approve":
                data["kind"] = "approve"
            case "edit" | "input":
                data["kind"] = "approve" if kind == "edit" else "input"
                value = await _filled_in(visit, pending)
            case "grant":
                data |= _data(str(form.get("answer")), "An answer is")
            case "deny":
                data |= {"kind": "deny", "reason": str(form.get("reason", ""))}
            case _:
                return await show(visit, pending, is_edited=True)
        body = json.dumps(data).encode()
        name = b"arguments" if kind == "edit" else b"value"
        await visit.post(f"/api/pending/{pending}/answer", b'%b,"%b":%b}' % (body[:-1], name, value) if value else body)
    except Problem as problem:
        return await show(visit, pending, problem, is_edited=kind in ("edit", "input"))
    return redirect(visit, f"/approvals/{pending}")


async def _draft(visit: Visit, question: Mapping[str, Any], *, is_edited: bool) -> Draft | None:
    """Return what the visitor has filled in to answer *question*, or may change; None where there is nothing."""
    waits, is_approval = question["pending"], question["pending"]["kind"] == "approval"
    schema = question.get("input_schema") if is_approval else waits.get("schema")
    if schema is None or not question["may_answer"]:
        return None
    first = {"raw": visible_json(parse_exact(waits["arguments"]))} if is_approval else {}
    draft = draft_of(SchemaView(schema), await visit.posted() if is_edited else first)
    draft.fields.title = "Arguments" if is_approval else str(schema.get("title", "Answer"))
    return draft


async def _filled_in(visit: Visit, pending: str) -> bytes:
    """Return what the visitor has filled in, as JSON. Raises Problem."""
    draft = await _draft(visit, await visit.get(f"/api/pending/{pending}"), is_edited=True)
    if draft is None:  # answered meanwhile: the API says so
        return b"{}"
    if draft.is_invalid:
        raise Problem(422, "Not JSON", draft.raw_problem or "What you wrote is not valid JSON: see below.")
    if value_of(draft.fields) is MISSING:
        raise Problem(422, "No answer", "Fill in an answer, or refuse to give one.")
    return draft.body


def rows_of(arguments: str, before: str | None) -> tuple[Sequence[Row], int]:
    """Return the first values of *arguments*, JSON text, beside those of *before*, and how many more there are."""
    values = dict(_leaves(_exact(arguments)))
    try:
        last = None if before is None else dict(_leaves(_exact(before)))
    except ValueError:  # the log has only its beginning
        last = None
    # Of a list that was empty, what it has by now is new, and nothing is gone.
    removals = [path for path, value in (last or {}).items() if path not in values and value not in ([], {})]
    paths = [*values, *removals]
    return [_row(path, values, last) for path in paths[:_MAX_ROWS]], len(paths[_MAX_ROWS:])


def _row(path: _Path, values: Mapping[_Path, Any], last: Mapping[_Path, Any] | None) -> Row:
    text = _text(values[path]) if path in values else ""
    before = _text(last[path]) if last is not None and path in last else ""
    names = (pointer(path), " / ".join(path), text)
    if path not in values:
        return Row(*names, before, "gone")
    if last is None or before == text:
        return Row(*names)
    return Row(*names, before, "changed" if path in last else "new")


class _Number(str):
    """A number as it is written: each digit of it is approved."""

    __slots__ = ()


def _exact(text: str) -> Any:
    return json.loads(text, parse_float=_Number, parse_int=_Number)


def _leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    if not items and path:
        yield path, value
    for name, member in items:
        yield from _leaves(member, (*path, str(name)))


def _text(value: Any) -> str:
    """Return *value* for a person: a text in quotes where it could be taken for something else."""
    if isinstance(value, _Number):
        return str(value)
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value if value == value.strip() and value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _has_box(row: Row) -> bool:
    is_plain = row.change != "gone" and "*" not in row.pointer.split("/") and row.text not in ("{}", "[]", *MASKS)
    return is_plain and len(row.text) <= _MAX_BOX_CHARS


def _data(text: str, what: str) -> dict[str, Any]:
    try:
        data = parse_json(text)
    except JSONError as error:
        raise Problem(422, "Not JSON", f"What you wrote is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise Problem(422, "Not an object", f'{what} a JSON object, as in {{"name": "value"}}.')
    return data


PAGES = (
    Page("/approvals", show_list, api="/api/pending"),
    Page("/approvals/grants", show_grants, api="/api/grants"),
    Page("/approvals/grants/*/revoke", revoke, method="POST"),
    Page("/approvals/*", show, api="/api/pending/{}"),
    Page("/approvals/*/preview", preview, method="POST"),
    Page("/approvals/*/answer", answer, method="POST"),
)
