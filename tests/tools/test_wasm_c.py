"""Programs in C, as Debian's clang builds them: what an author does, and what an attacker would try."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib import Workbench
from toolcrib.tools import Permissions

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("clang") is None or shutil.which("wasm-ld") is None,
        reason="needs Debian's clang, lld, wasi-libc and libclang-rt-14-dev-wasm32",
    ),
]

COUNT = r"""
#include <stdio.h>
#include <string.h>
int main(void) {
    static char text[65536];
    size_t size = fread(text, 1, sizeof text - 1, stdin);
    int words = 0, inside = 0;
    for (size_t i = 0; i < size; i++) {
        int letter = text[i] != ' ' && text[i] != '"' && text[i] != '{' && text[i] != '}' && text[i] != ':';
        words += letter && !inside;
        inside = letter;
    }
    fprintf(stderr, "counted\n");
    printf("{\"words\": %d, \"bytes\": %zu}\n", words - 1, size);
    return 0;
}
"""
ATTACKS = r"""
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
extern char **environ;
static void try_open(const char *path, int flags) {
    int file = open(path, flags, 0666);
    char text[64] = "";
    if (file >= 0) { read(file, text, sizeof text - 1); printf("OPENED %s %s\n", path, text); }
}
int main(void) {
    const char *paths[] = {"/etc/passwd", "../../etc/passwd", "/proc/self/environ", "/data/../secret.txt", "/data/link",
                           "/data/away/secret.txt", "/data/away/", "..", "/", "/data/./../secret.txt"};
    for (int i = 0; i < 10; i++) { try_open(paths[i], O_RDONLY); try_open(paths[i], O_RDWR | O_CREAT); }
    if (open("/data/made", O_WRONLY | O_CREAT, 0666) >= 0) printf("MADE\n");
    if (open("/data/towns.txt", O_WRONLY | O_TRUNC) >= 0) printf("TRUNCATED\n");
    if (!unlink("/data/towns.txt")) printf("REMOVED\n");
    if (!rename("/data/towns.txt", "/data/other.txt")) printf("RENAMED\n");
    if (!mkdir("/data/folder", 0777)) printf("FOLDER\n");
    if (!symlink("/etc", "/data/etc")) printf("LINKED\n");
    for (char **each = environ; *each; each++) printf("VARIABLE %s\n", *each);
    for (int file = 0; file < 64; file++) if (accept(file, 0, 0) >= 0) printf("ACCEPTED\n");
    char text[16] = "";
    int file = open("/data/towns.txt", O_RDONLY);
    read(file, text, 15);
    printf("read %s\n", text);
    return 0;
}
"""
NAP = r"""
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) { time_t before = time(0); usleep(20000); printf("[%d]", time(0) - before < 60); return 0; }
"""

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A file `NAME.wasm` of a program in C."""

    def build(code: str, name: str, *flags: str) -> Path:
        source, made = tmp_path / f"{name}.c", tmp_path / f"{name}.wasm"
        source.write_text(code)
        command = ["clang", "--target=wasm32-wasi", "-O1", "-w", "-o", str(made), str(source), *flags]
        subprocess.run(command, check=True, capture_output=True)
        return made

    return build


async def test_a_program_in_c_is_a_tool(build: Build) -> None:
    sources = [build(COUNT, "count"), build(NAP, "nap")]
    async with Workbench(sources) as bench:
        result = await bench.call("count", {"text": "one two three"})
        assert result.value == {"words": 3, "bytes": 25}
        assert (await bench.call("nap")).value == [1]


async def test_files_environment_and_network_are_out_of_reach(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "not for guests")
    (tmp_path / "secret.txt").write_text("canary")
    data, tool = tmp_path / "data", tmp_path / "tool"
    data.mkdir()
    tool.mkdir()
    (data / "towns.txt").write_text("Oslo")
    (data / "link").symlink_to(tmp_path / "secret.txt")
    (data / "away").symlink_to(tmp_path)
    build(ATTACKS, "attacks", "-Wl,--allow-undefined").rename(tool / "tool.wasm")
    (tool / "tool.toml").write_text(
        'name = "attacks"\ndescription = "Tries."\nmounts = [{ name = "data" }]\nvariables = ["UNITS"]\n'
    )
    source = Permissions(mounts={"data": data}, variables=["UNITS"]).to(tool)
    async with Workbench([source], variables={"UNITS": "metric"}) as bench:
        result = await bench.call("attacks")
    assert result.text == "VARIABLE UNITS=metric\nread Oslo"
    assert sorted(each.name for each in data.iterdir()) == ["away", "link", "towns.txt"]
    assert (data / "towns.txt").read_text() == "Oslo"
