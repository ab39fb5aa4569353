"""`toolcrib call`: arguments in all their forms, results, and errors with a way out."""

import json
from pathlib import Path

from .conftest import Run

LOADING = "printed while loading\n"


def test_repairs_of_json_are_named_and_those_of_text_are_not(toolcrib: Run) -> None:
    repaired = toolcrib("call", "-s", "tools.py", "echo", '{"text": 1, "Number": "2"}')
    assert repaired.returncode == 0
    assert repaired.stderr == (
        f"{LOADING}Repaired: 'text', from integer to string.\n"
        "Repaired: 'Number' was renamed to 'number'.\n"
        "Repaired: 'Number', from string to integer.\n"
    )
    by_key = toolcrib("call", "-s", "tools.py", "echo", "text=1", "Number=2")
    assert (by_key.returncode, json.loads(by_key.stdout)["number"]) == (0, 2)
    assert by_key.stderr == f"{LOADING}Repaired: 'Number' was renamed to 'number'.\n"
    deep = toolcrib("call", "-s", "tools.py", "echo", "text=1", 'options={"depth": "2"}')
    assert (deep.returncode, deep.stderr.splitlines()[1:]) == (
        0,
        [
            "Repaired: '/options/depth', from string to integer.",
        ],
    )
    refused = toolcrib("call", "-s", "tools.py", "echo", '{"text": 1}', TOOLCRIB_REPAIR="no")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"{LOADING}Error (invalid_arguments): Tool 'echo': 'text': expected string, got integer.\n"


def test_json_output_is_the_result_and_nothing_else(toolcrib: Run) -> None:
    done = toolcrib("call", "-s", "tools.py", "add", '{"a": "1"}', "--json")
    result = json.loads(done.stdout)
    assert {key: result[key] for key in ("status", "content", "repairs")} == {
        "status": "success",
        "content": [{"type": "data", "data": 1}],
        "repairs": [{"path": "/a", "from": "string", "to": "integer"}],
    }
    assert done.stderr == f"{LOADING}printed by the tool\nprinted by a program\n"
    failed = toolcrib("call", "-s", "tools.py", "nosuch", "--json")
    assert (failed.returncode, failed.stderr) == (1, LOADING)
    assert json.loads(failed.stdout)["error"]["code"] == "unknown_tool"


def test_errors_name_the_way_out(toolcrib: Run) -> None:
    def run(*arguments: str | bytes, typed: bytes = b"") -> tuple[int, str, str]:
        done = toolcrib("call", "-s", "tools.py", *arguments, typed=typed)
        return done.returncode, done.stdout, done.stderr.removeprefix(LOADING)

    status, stdout, misspelt = run("echo", "texts=1")
    assert (status, stdout) == (1, "")
    assert misspelt.startswith("Error (invalid_arguments): Tool 'echo'")
    assert "Did you mean 'text'?" in misspelt
    needs = (
        "Error (unauthorized): 'github' is not configured: [auth.github] in the settings needs client_id and "
        "client_secret.\n"
    )
    assert run("wipe", "disk=a") == (1, "", needs)
    status, stdout, broken = run("echo", '{"text": ')
    assert (status, stdout) == (1, "")
    assert broken.startswith("Error (invalid_arguments): Tool 'echo': the arguments are not valid JSON: EOF")
    assert run("echo", b"text=\xff") == (
        2,
        "",
        "Error: 'text=\\udcff' is not UTF-8 text. Put it into a file and write key=@file.\n",
    )


def test_the_text_of_an_exception_is_shown_when_asked_for(toolcrib: Run) -> None:
    hidden = toolcrib("call", "-s", "tools.py", "fail")
    assert (hidden.returncode, hidden.stdout, hidden.stderr.count("\n")) == (1, "", 2)
    assert hidden.stderr.startswith(f"{LOADING}Error (failed): Tool 'fail' failed: RuntimeError (reference ")
    assert hidden.stderr.endswith("). The detail is in the log. To see it: --show-errors\n")
    shown = toolcrib("call", "-s", "tools.py", "fail", "--show-errors")
    assert "Traceback (most recent call last):" in shown.stderr
    assert shown.stderr.endswith("). the detail\n")


def test_a_timeout_ends_the_process_though_the_work_goes_on(toolcrib: Run) -> None:
    done = toolcrib("call", "-s", "tools.py", "executor", "--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{LOADING}begun\nError (timeout): Tool 'executor' did not answer in time.")


def test_what_is_no_text_is_named_and_saved(toolcrib: Run, folder: Path) -> None:
    named = toolcrib("call", "-s", "tools.py", "picture")
    assert (named.returncode, named.stderr) == (0, f"{LOADING}To save it: --output FILE\n")
    image, raw = "image: image/png, 4 bytes", "file ../../raw: application/x-raw, 3 bytes"
    assert named.stdout == f"Two files:\n[{image}]\n[{raw}]\n"
    saved = toolcrib("call", "-s", "tools.py", "picture", "--output", "out.png")
    assert (saved.returncode, saved.stdout) == (0, "Two files:\n")
    assert saved.stderr == f"{LOADING}Saved {image}, to out.png.\nSaved {raw}, to out-2.png.\n"
    assert ((folder / "out.png").read_bytes(), (folder / "out-2.png").read_bytes()) == (b"PNG!", b"RAW")
    nowhere = toolcrib("call", "-s", "tools.py", "picture", "--output", "absent/out.png")
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert nowhere.stderr == "Error: --output absent/out.png: there is no folder absent. Create it first.\n"


def test_text_is_saved_where_there_is_nothing_else(toolcrib: Run, folder: Path) -> None:
    for tool, text in (("coloured", "\x1b[31mred\x1b]0;title\x07\n"), ("much", "line\n" * 100_000)):
        done = toolcrib("call", "-s", "tools.py", tool, "-o", "out.txt")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{LOADING}Saved the text to out.txt.\n")
        assert (folder / "out.txt").read_text() == text
    as_json = toolcrib("call", "-s", "tools.py", "picture", "-o", "out.png", "--json")
    assert (json.loads(as_json.stdout)["status"], (folder / "out-2.png").read_bytes()) == ("success", b"RAW")
    failed = toolcrib("call", "-s", "tools.py", "fail", "-o", "none.txt")
    assert (failed.returncode, (folder / "none.txt").exists()) == (1, False)
    to_a_folder = toolcrib("call", "-s", "tools.py", "much", "-o", ".")
    assert (to_a_folder.returncode, to_a_folder.stderr) == (2, "Error: --output . is a folder. Name a file in it.\n")
    (folder / "out.txt").unlink()
    (folder / "out.txt").symlink_to("absent/file")
    unwritable = toolcrib("call", "-s", "tools.py", "much", "-o", "out.txt")
    assert (unwritable.returncode, unwritable.stderr) == (
        1,
        f"{LOADING}Error: The result cannot be saved to out.txt: No such file or directory.\n",
    )


PAGE = """
from typing import Any

from toolcrib import Result, tool


@tool
async def page() -> Any:
    return Result([1, 2], (), metadata={"headers": {"link": "</a?page=2>"}})
"""


def test_response_headers_are_beside_the_body_which_other_programs_read(toolcrib: Run, folder: Path) -> None:
    (folder / "page.py").write_text(PAGE)
    done = toolcrib("call", "-s", "page.py", "page")
    assert (done.returncode, json.loads(done.stdout)) == (0, [1, 2])
    assert done.stderr == "Response headers:\nlink: </a?page=2>\n"
    saved = toolcrib("call", "-s", "page.py", "page", "--output", "page.json")
    assert (saved.returncode, json.loads((folder / "page.json").read_text())) == (0, [1, 2])


def test_text_is_passed_on_as_it_is_when_piped(toolcrib: Run) -> None:
    assert toolcrib("call", "-s", "tools.py", "coloured").stdout == "\x1b[31mred\x1b]0;title\x07\n"


OPENS = """
from collections.abc import Iterator
from typing import Annotated

from toolcrib import Depends, tool


def pool() -> Iterator[str]:
    yield "opened"
    with open("closed", "a") as file:
        file.write("closed ")


@tool
def use(pool: Annotated[str, Depends(pool, scope="program")]) -> str:
    return pool
"""


def test_what_a_call_or_a_chat_opens_is_closed_at_its_end(toolcrib: Run, folder: Path) -> None:
    (folder / "opens.py").write_text(OPENS)
    (folder / "script.json").write_text('[{"calls": [["use", {}]]}, "Done."]')
    assert toolcrib("call", "opens.py", "use").stdout == "opened\n"
    assert toolcrib("chat", "opens.py", "-m", "scripted:script.json", "-p", "Go.").stdout == "Done.\n"
    assert (folder / "closed").read_text() == "closed closed "


def test_what_a_preview_leaves_out_is_read_by_the_next_commands(toolcrib: Run) -> None:
    preview = toolcrib("call", "tools.py", "much", TOOLCRIB_MAX_RESULT_CHARS="1000").stdout
    handle = preview.partition('under the handle "')[2].partition('"')[0]
    part = toolcrib("call", "tools.py", "read_result", f"handle={handle}", "offset=5", "limit=4")
    assert (part.stdout.splitlines(), part.returncode) == (
        ["[characters 5 to 8 of 500000; the next: offset 9]", "line"],
        0,
    )
    as_json = toolcrib("call", "tools.py", "read_result", json.dumps({"handle": handle, "search": "nowhere"}))
    assert as_json.stdout == "[Found 0 times.]\n\n"
