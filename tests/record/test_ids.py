"""The ids of records: of each time that a call is made, in whichever process, another one."""

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from toolcrib import Caller
from toolcrib.core import CallRecord, record


def made() -> CallRecord:
    return CallRecord("call_1", "add", Caller(), datetime(2026, 11, 1, tzinfo=UTC))


def test_each_record_has_an_id_of_its_own_that_stays() -> None:
    records = [made() for _ in range(1000)]
    ids = [record.id for record in records]
    assert len({*ids}) == 1000
    assert [record.id for record in records] == ids
    assert all(each.startswith("run_") for each in ids)


def test_threads_that_read_the_id_of_one_record_at_once_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = (f"run_{number}" for number in range(100))

    def slowly() -> str:
        time.sleep(0.01)  # while the others look
        return next(ids)

    monkeypatch.setattr(record, "_new_id", slowly)
    one = made()
    with ThreadPoolExecutor(8) as threads:
        assert len({*threads.map(lambda _: one.id, range(8))}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs fork")
def test_a_process_that_is_forked_while_a_thread_makes_an_id_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def waits() -> str:
        begun.set()
        may_end.wait()
        return "run_1"

    with monkeypatch.context() as patched:
        patched.setattr(record, "_new_id", waits)
        thread = threading.Thread(target=lambda: made().id)
        thread.start()
        begun.wait()
        if (child := os.fork()) == 0:
            signal.alarm(60)
            record._new_id = lambda: "run_2"
            os._exit(0 if made().id == "run_2" else 1)
        status = os.waitpid(child, 0)[1]
        may_end.set()
        thread.join()
        assert status == 0


def test_a_program_that_seeds_chance_gets_other_ids_all_the_same() -> None:
    found = set()
    for _ in range(3):
        random.seed(1)
        found.add(made().id)
    assert len(found) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs fork")
def test_processes_that_were_forked_make_other_ids() -> None:
    found = set()
    for _ in range(3):
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, made().id.encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as pipe:
            found.add(pipe.read())
    assert len({*found, made().id}) == 4
