"""Programs in C, as Debian's clang builds them. What an attacker tries is in test_sandboxed and test_wasm_mounts."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib import Workbench

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

    def build(code: str, name: str) -> Path:
        source, made = tmp_path / f"{name}.c", tmp_path / f"{name}.wasm"
        source.write_text(code)
        command = ["clang", "--target=wasm32-wasi", "-O1", "-w", "-o", str(made), str(source)]
        subprocess.run(command, check=True, capture_output=True)
        return made

    return build


async def test_a_program_in_c_is_a_tool(build: Build) -> None:
    sources = [build(COUNT, "count"), build(NAP, "nap")]
    async with Workbench(sources) as bench:
        assert (await bench.call("count", {"text": "one two three"})).value == {"words": 3, "bytes": 25}
        assert (await bench.call("nap")).value == [1]
