"""The example that fills the port of tasks with DBOS: a task waits for a person and goes on where its process died."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib import Input, Workbench
from toolcrib.store import Store

WAIT_S = 120


@pytest.mark.full
async def test_a_task_in_dbos_asks_a_person_and_goes_on_in_another_process(tmp_path: Path, examples: Path) -> None:
    pytest.importorskip("dbos")
    command = [str(Path(__file__).with_name("dbos_night.py")), str(examples), str(tmp_path)]

    async def started() -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line, await process.wait()
        return process, line

    effects = tmp_path / "effects"
    bench = Workbench([], store=Store(tmp_path / "tools.db", key=lambda: [b"k" * 32]))
    async with asyncio.timeout(WAIT_S):
        first, line = await started()
        while not (pendings := await bench.pendings()):
            await asyncio.sleep(0.05)
        await bench.answer(pendings[0].id, Input("Ada"), by="ann")
        while not effects.exists() or "hangs" not in effects.read_text():
            await asyncio.sleep(0.05)
        first.kill()
        await first.wait()
        (tmp_path / "go").touch()
        second, again = await started()
        assert (again.split()[0], again.split()[1] != line.split()[1]) == (line.split()[0], True)
        text, _ = await second.communicate()
    assert text.decode().splitlines()[-2:] == [f"a room in Oslo for Ada by {second.pid}", "lost"]
    assert sorted(effects.read_text().splitlines()) == ["a room in Oslo", "hangs", "pays"]
    assert second.returncode == os.EX_OK
