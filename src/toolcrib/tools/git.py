"""Folders of git repositories, by addresses in text, fetched into the user's cache by the system's `git`.

    git+https://HOST/PATH@REF#FOLDER    git+ssh://USER@HOST/PATH@REF#FOLDER    git+PATH@REF#FOLDER
    https://github.com/OWNER/REPO/tree/REF/FOLDER    git@HOST:PATH@REF#FOLDER, over SSH

REF and FOLDER may be left out. What git would read as an option, a command or another transport is not an address.

Nothing of a repository runs: there is no checkout, so no hook, filter, attribute or submodule of it counts, and no
configuration of the user or the system. What is fetched is read from the object database, by our own rules for paths.
"""

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic
from urllib.parse import urlsplit

from ..core import LoadError
from ..sandbox import MAX_BYTES, MAX_FILES, content_hash
from ..sandbox.cache import hold, private_folder, size_of, trim

FORMS = (
    "git+https://HOST/PATH@REF#FOLDER, git+ssh://USER@HOST/PATH@REF#FOLDER, git@HOST:PATH@REF#FOLDER or "
    "git+PATH@REF#FOLDER"
)

DOCUMENT = "openapi:"
DOCUMENTS = (".json", ".yaml", ".yml")
_PREFIX = "git+"
_GITHUB = re.compile(r"https://github\.com/(?P<repository>[^/#?]+/[^/#?]+?)(\.git)?/?(/(?P<view>[^/]+)/(?P<rest>.+))?")
_OTHER = re.compile(rf"git@[^/@:]+:|{_GITHUB.pattern}$")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LOCAL = re.compile(r"(?!-)(?!.*::).+", re.DOTALL)
_PATH = re.compile(r"/[A-Za-z0-9~_][A-Za-z0-9~_.+/-]*")
_SHORT = re.compile(r"(?P<user>[^/@:]+)@(?P<host>[^/@:]+):(?!:)(?P<path>[^@]*)")
"""How git writes an address of SSH for short; the path may be one from the user's home."""
_REF = re.compile(r"(?!.*(\.\.|//|/\.))[A-Za-z0-9_][A-Za-z0-9_.+/-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.[0-9]+)(:[0-9]+)?")
_CREDENTIALS = re.compile(r"//[^/#]*@(?=[^/@]*(/|$))")


@dataclass(frozen=True, slots=True)
class GitAddress:
    """The *folder* ("" for the root) of a *repository*, an URL or a path, at *ref*: a branch, a tag or a commit."""

    repository: str
    ref: str = "HEAD"
    folder: str = ""

    @property
    def is_local(self) -> bool:
        return "://" not in self.repository and _SHORT.fullmatch(self.repository) is None

    @property
    def protocol(self) -> str:
        """The one transport that git may use for it."""
        if self.is_local:
            return "file"
        scheme, separator, _ = self.repository.partition("://")
        return scheme if separator else "ssh"

    @property
    def commit(self) -> str | None:
        """The commit, where *ref* is the hash of one."""
        return self.ref if _COMMIT.fullmatch(self.ref) else None

    def beside(self, folder: Path) -> "GitAddress":
        """Return the address with the path of a local repository as one from *folder*."""
        if not self.is_local or folder == Path():
            return self
        return GitAddress(str(folder / Path(self.repository).expanduser()), self.ref, self.folder)

    def __str__(self) -> str:
        ref = "" if self.ref == "HEAD" else f"@{self.ref}"
        return f"{_PREFIX}{self.repository}{ref}{self.folder and '#'}{self.folder}"


@dataclass(frozen=True, slots=True)
class GitSource:
    """The tools at a git *address*; with *commit* and *sha256*, that of the content, these and no others."""

    address: GitAddress
    commit: str | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        return str(self.address)


def is_document(source: object) -> bool:
    """Return whether *source* is where an OpenAPI document has to be: `openapi:ADDRESS`, or a file by its suffix."""
    if isinstance(source, str) and source.startswith(DOCUMENT):
        return True
    return isinstance(source, str | Path) and "://" not in str(source) and Path(source).suffix in DOCUMENTS


def is_git_address(source: object) -> bool:
    """Return whether *source* is text that is to be read as a git address, valid or not."""
    return isinstance(source, str) and (source.startswith(_PREFIX) or _OTHER.match(source) is not None)


def parse_git_address(text: str) -> GitAddress:
    """Return the address in *text*. Raises LoadError for one that is not valid, or whose transport is not safe."""
    from ..schema import display_name  # brings pydantic: with the first address, and not with the package

    label = display_name(_CREDENTIALS.sub("//", text))
    if not text.isprintable():
        raise LoadError(f"'{label}' is not a git address: it has characters that no address has.")
    if (match := _GITHUB.fullmatch(text)) is not None:
        ref, _, folder = (match["rest"] or "HEAD").partition("/")
        if match["view"] not in (None, "tree"):
            raise LoadError(f"'{label}' is not the address of a folder: https://github.com/OWNER/REPO/tree/REF/FOLDER.")
        repository = f"https://github.com/{match['repository']}"
    else:
        where, _, folder = text.removeprefix(_PREFIX).partition("#")
        repository, ref = _split_ref(where)
    address = GitAddress(repository, ref or "HEAD", folder.strip("/"))
    if (problem := _problem(address)) is not None:
        raise LoadError(f"'{label}' is not a git address that can be used: {problem} It has the form {FORMS}.")
    return address


def _split_ref(where: str) -> tuple[str, str]:
    """Return what is before and after the last `@` of the path; one before the host belongs to the user."""
    if (short := re.match(_SHORT, where)) is not None:
        return short[0], where[short.end() + 1 :]
    scheme, separator, rest = where.rpartition("://")
    host, slash, path = rest.partition("/") if separator else ("", "", rest)
    path, ref = path.rpartition("@")[::2] if "@" in path else (path, "")
    return f"{scheme}{separator}{host}{slash}{path}", ref


def _problem(address: GitAddress) -> str | None:
    """Return what is wrong with *address*, as a sentence; None where it can be given to git."""
    if not _REF.fullmatch(address.ref) or address.ref.endswith(("/", ".lock", ".")):
        return f"'{address.ref[:64]}' is not the name of a branch or tag, nor a commit."
    parts = address.folder.split("/") if address.folder else []
    if any(part in ("", ".", "..") or part.lower() == ".git" or "\\" in part for part in parts):
        return f"'{address.folder[:64]}' is not a folder of a repository."
    if address.is_local:
        return None if _LOCAL.fullmatch(address.repository) else "its repository is not the path of a folder."
    return _problem_of_url(address.repository)


def _problem_of_url(repository: str) -> str | None:
    url = urlsplit(repository)
    if (short := _SHORT.fullmatch(repository)) is not None:
        url = urlsplit(f"ssh://{short['user']}@{short['host']}/{short['path'].removeprefix('/')}")
    user, at, host = url.netloc.rpartition("@")
    is_of_characters = _HOST.fullmatch(host) and _PATH.fullmatch(url.path) and not url.query
    refusals = (
        (
            url.scheme not in ("https", "ssh", "http"),
            f"git is not allowed to use '{url.scheme[:64]}'. A repository of this computer is its path.",
        ),
        (url.scheme == "http" and not _LOOPBACK.fullmatch(host), "over http it could be changed on the way."),
        (
            at and url.scheme != "ssh",
            "an address holds no name and no password. Private repositories are reached over ssh, by its agent.",
        ),
        (at and not _USER.fullmatch(user), "its user is not a name."),
        (not is_of_characters, "its host or its path has characters that are not allowed there."),
        (".." in url.path.split("/"), "its path has '..' in it."),
    )
    return next((problem for is_refused, problem in refusals if is_refused), None)


# Fetching

_TIMEOUT_S = 300.0
_MAX_FETCHED_BYTES = 256 * 1024**2
_MAX_LISTED_BYTES = 4 * 1024**2
_MAX_MEMORY_KIB = 4 * 1024**2
_LIMITS = (
    *("/bin/sh", "-c", 'ulimit -c 0; ulimit -f "$1"; ulimit -v "$2" 2>/dev/null; shift 2; exec "$@"', "sh"),
    *(str(_MAX_FETCHED_BYTES // 512), str(_MAX_MEMORY_KIB)),
)
_OPTIONS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "core.bigFileThreshold=1m"),
    *("credential.helper=", "credential.interactive=false", "gc.auto=0", "maintenance.auto=false"),
    *("fetch.recurseSubmodules=false", "submodule.recurse=false", "fetch.writeCommitGraph=false", "pack.threads=1"),
    *("fetch.unpackLimit=1", "transfer.unpackLimit=1", "transfer.bundleURI=false", "http.followRedirects=false"),
    *("http.lowSpeedLimit=100", "http.lowSpeedTime=30", "protocol.version=2", "fetch.negotiationAlgorithm=noop"),
)
_FETCH = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--filter=blob:none")
_CONFIG = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tpartialClone = origin\n"
# A host whose key is not known is not asked about, and not trusted; nor is it given the agent, whatever the user's
# settings say of other uses of it.
_SSH = (
    "ssh -oBatchMode=yes -oStrictHostKeyChecking=yes -oForwardAgent=no -oForwardX11=no -oClearAllForwardings=yes "
    "-oPermitLocalCommand=no -oConnectTimeout=30"
)
_PASSED_ON = (
    *("PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"),
)
_LOST = "fatal: Could not read from remote repository."
_UNKNOWN_HOST = ". The key of that host is not among your known_hosts: see whose it is, and connect once by `ssh`"
_FILE, _LINK, _SUBMODULE = ("100644", "100755", "100664"), "120000", "160000"

_log = logging.getLogger("toolcrib.git")


@dataclass(frozen=True, slots=True)
class Fetched:
    """The files of an address at one *commit*, in a folder of the cache, and the *sha256* of their content."""

    path: Path
    commit: str
    sha256: str


def fetch(source: GitSource) -> Fetched:
    """Return the folder of *source*, as it is at its commit, by default the one that its ref leads to now.

    It stays while this process lives. What is in the cache is not fetched again, and with a commit nothing is asked of
    the network then. Raises LoadError, also for content that does not have the hash of *source*.
    """
    address, sha256 = source.address, source.sha256
    cache = _cache()
    with TemporaryDirectory(dir=cache, prefix=".new-") as temporary:
        git = _Git(Path(temporary), address)
        commit = source.commit or address.commit or git.resolve()
        name = hashlib.sha256(f"{_url(address)}#{address.folder}".encode()).hexdigest()[:20]
        folder = cache / f"{name}-{commit}"
        result = Fetched(folder, commit, content_hash(folder)) if hold(folder) else None
        if result is None or sha256 not in (None, result.sha256):
            shutil.rmtree(folder, ignore_errors=True)  # damaged: nothing else has this name
            git.extract(commit, Path(temporary) / "files")
            with suppress(FileExistsError, OSError):  # another process was first
                (Path(temporary) / "files").rename(folder)
            if not hold(folder):
                raise LoadError(f"{address}: the cache was cleared at this moment. Try again.")
            trim("git")
            result = Fetched(folder, commit, content_hash(folder))
    if sha256 not in (None, result.sha256):
        raise LoadError(f"{address}: its content at {commit[:12]} is not what was locked. Its repository was changed.")
    return result


def commit_of(address: GitAddress) -> str:
    """Return the commit that the ref of *address* leads to now. Raises LoadError."""
    with TemporaryDirectory(dir=_cache(), prefix=".new-") as temporary:
        return address.commit or _Git(Path(temporary), address).resolve()


def _cache() -> Path:
    if sys.platform == "win32":
        raise LoadError("Git addresses need POSIX: without it, the memory and disk space of git cannot be limited.")
    if find_spec("platformdirs") is None:
        raise LoadError("Git addresses need the package 'platformdirs': pip install 'toolcrib[sandbox]'.")
    if shutil.which("git") is None:
        raise LoadError("Git addresses need the program 'git', which is not there. Install it.")
    if (folder := private_folder("git")) is None:
        raise LoadError("The cache folder cannot be made, or others may write to it. Set XDG_CACHE_HOME to another.")
    return folder


class _Git:
    """A repository of our own in *folder*, to fetch from that of *address* into. It is empty, and has no settings."""

    def __init__(self, folder: Path, address: GitAddress) -> None:
        self._address = address
        self._folder = folder / "repository"
        for name in ("objects", "refs"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "HEAD").write_text("ref: refs/heads/main\n")
        (self._folder / "config").write_text(_CONFIG)
        self._deadline = monotonic() + _TIMEOUT_S
        url = str(Path(address.repository).expanduser().absolute()) if address.is_local else address.repository
        remote = (
            f"remote.origin.url={url}",
            "remote.origin.promisor=true",
            "remote.origin.partialCloneFilter=blob:none",
        )
        options = [word for option in (*_OPTIONS, *remote) for word in ("-c", option)]
        self._command = (*_LIMITS, "git", f"--git-dir={self._folder}", *options)
        # Made from nothing: no variable of the user reaches git, nor what it starts.
        self._environ = {name: value for name in _PASSED_ON if (value := os.environ.get(name))} | {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ASKPASS": "false",
            "SSH_ASKPASS": "false",
            "GIT_SSH_COMMAND": _SSH,
            "GIT_SSH_VARIANT": "ssh",
            "GIT_ALLOW_PROTOCOL": address.protocol,
            "GIT_NO_LAZY_FETCH": "1",
        }

    def resolve(self) -> str:
        """Return the commit that the ref leads to now: that of a tag, else of a branch."""
        ref = self._address.ref
        names = ["HEAD"] if ref == "HEAD" else [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
        lines_of_refs = self._run("ls-remote", "--", "origin", *names, max_bytes=_MAX_LISTED_BYTES).decode()
        commits = {name: commit for commit, _, name in (line.partition("\t") for line in lines_of_refs.splitlines())}
        for name in names:
            if _COMMIT.fullmatch(commits.get(name, "")):
                return commits[name]
        raise LoadError(
            f"{self._address}: there is no branch and no tag '{ref}'. A commit is named by all 40 digits of its hash."
        )

    def extract(self, commit: str, to: Path) -> None:
        """Write the files of the folder, as they are at *commit*, below *to*."""
        _log.info("Fetching %s at %s", self._address, commit[:12])
        self._run("fetch", "--depth=1", *_FETCH, "--", "origin", commit)
        tree = self._tree(commit)
        files = list(self._files(tree))
        names = [name for name, _, _ in files]
        self._fetch_missing(tree, names)
        content = self._contents(names)
        plain = {path: content[name] for name, path, is_link in files if not is_link}
        links = {path: content[name] for name, path, is_link in files if is_link}
        plain |= {path: plain[self._target(path, target, plain)] for path, target in links.items()}
        if sum(map(len, plain.values())) > MAX_BYTES:
            raise self._too_large()
        for path, data in plain.items():
            try:
                (to / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with (to / path).open("xb") as file:
                    file.write(data)
            except OSError as error:  # two of one name, for this file system
                raise self._refused(path, f"it cannot be written ({error.strerror})") from None

    def _fetch_missing(self, tree: str, names: Sequence[str]) -> None:
        """Fetch those of the objects *names*, below *tree*, that are not here yet."""
        objects = self._run("rev-list", "--objects", "--no-object-names", "--missing=print", tree).decode().split()
        if absent := {name[1:] for name in objects if name.startswith("?")}.intersection(names):
            self._run("fetch", *_FETCH, "--stdin", "origin", data="\n".join(sorted(absent)).encode() + b"\n")

    def _tree(self, commit: str) -> str:
        revision = f"{commit}:{self._address.folder}"
        tree = ""
        try:
            tree = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", revision).decode().strip()
            is_tree = self._run("cat-file", "-t", tree) == b"tree\n"
        except _GitError:
            is_tree = False
        if not is_tree:
            raise LoadError(f"{self._address}: there is no folder '{self._address.folder}' in it at {commit[:12]}.")
        return tree

    def _files(self, tree: str) -> Iterator[tuple[str, str, bool]]:
        """Yield the name of the object, the path, and whether it is a link, for each file below *tree*."""
        output = self._run("ls-tree", "-r", "-z", "--full-tree", tree, max_bytes=_MAX_LISTED_BYTES)
        lines = output.split(b"\0")[:-1]
        if len(lines) > MAX_FILES:
            raise LoadError(f"{self._address} has more than {MAX_FILES} files. Name the folder of the tools in it.")
        if not lines:
            raise LoadError(f"{self._address} has no files.")
        for line in lines:
            about, _, raw = line.partition(b"\t")
            mode, _, name = about.decode().split()
            path = raw.decode(errors="replace")
            if path.endswith((".pyc", ".pyo")):
                continue  # its source is unknown
            if not _is_safe(path):
                raise self._refused(path, "its path leads elsewhere, or could not be written everywhere")
            if mode == _SUBMODULE:
                raise self._refused(path, "it is a submodule, and these are not fetched")
            if mode not in (*_FILE, _LINK):
                raise self._refused(path, "it is not a file")
            yield name, path, mode == _LINK

    def _contents(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the bytes of each object. They are measured before any is read."""
        request = "\n".join(dict.fromkeys(names)).encode() + b"\n"
        headers = [line.split() for line in self._run("cat-file", "--batch-check", data=request).decode().splitlines()]
        if any(len(about) != 3 or about[1] != "blob" for about in headers):
            raise LoadError(f"{self._address}: its repository is damaged.")
        if sum(int(size) for _, _, size in headers) > MAX_BYTES:
            raise self._too_large()
        read = self._run("cat-file", "--batch", data=request)
        contents: dict[str, bytes] = {}
        at = 0
        for name, _, size in headers:
            begin = read.index(b"\n", at) + 1
            contents[name] = read[begin : begin + int(size)]
            at = begin + int(size) + 1
        return contents

    def _target(self, path: str, target: bytes, files: dict[str, bytes]) -> str:
        """Return the file that a link leads to, which is copied in its place: one of *files*, so not a link itself."""
        text = target.decode(errors="replace")
        leads_to = os.path.normpath(os.path.join(os.path.dirname(path), text))  # noqa: PTH118, PTH120
        if text.startswith("/") or leads_to not in files:
            raise self._refused(path, "it is a link, and does not lead to a file of the folder")
        return leads_to

    def _too_large(self) -> LoadError:
        limit = MAX_BYTES // 1024**2
        return LoadError(f"{self._address} is larger than {limit} MiB. Name the folder of the tools in it.")

    def _refused(self, path: str, why: str) -> LoadError:
        from ..schema import display_name

        return LoadError(f"{self._address} is refused for '{display_name(path)}': {why}.")

    def _run(self, *arguments: str, data: bytes = b"", max_bytes: int = _MAX_FETCHED_BYTES) -> bytes:
        """Return what git writes to standard output. Raises LoadError where it fails, and where it takes too much."""
        with TemporaryFile() as input_file, TemporaryFile() as output_file, TemporaryFile() as errors:
            input_file.write(data)
            input_file.seek(0)
            process = subprocess.Popen(  # noqa: S603
                [*self._command, *arguments],
                stdin=input_file,
                stdout=output_file,
                stderr=errors,
                cwd=self._folder,
                env=self._environ,
                start_new_session=True,
            )
            try:
                process.wait(max(0.0, self._deadline - monotonic()))
            except subprocess.TimeoutExpired:
                raise LoadError(f"{self._address} could not be fetched in {_TIMEOUT_S:g} seconds.") from None
            finally:
                with suppress(ProcessLookupError):  # and whatever it has started
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            # A limit of the process ends it where one file becomes larger.
            size = os.fstat(output_file.fileno()).st_size
            if size >= max_bytes or size_of(self._folder) >= _MAX_FETCHED_BYTES:
                raise LoadError(f"{self._address} is larger than what is fetched of a repository.")
            if process.returncode:
                errors.seek(-min(errors.seek(0, os.SEEK_END), 4096), os.SEEK_END)
                raise _GitError(f"{self._address} cannot be fetched: {_reason(errors.read())}.")
            output_file.seek(0)
            return output_file.read()


class _GitError(LoadError):
    """What git could not do."""


def _url(address: GitAddress) -> str:
    return str(Path(address.repository).expanduser().resolve()) if address.is_local else address.repository


def _is_safe(path: str) -> bool:
    parts = path.split("/")
    return (
        path.isprintable()
        and "\\" not in path
        and ":" not in path
        and "\N{REPLACEMENT CHARACTER}" not in path
        and not any(part in ("", ".", "..") or part.lower() == ".git" or len(part) > 200 for part in parts)
        and len(path) < 1000
    )


def _reason(errors: bytes) -> str:
    """Return the line in which git says what is wrong. The other side may have written it: it is shown on one line."""
    lines = list(filter(None, map(str.strip, re.split(r"[\r\n]", errors.decode(errors="replace")))))
    if _LOST in lines:  # it was not git that failed, but what it had called before it said so
        lines = lines[: lines.index(_LOST)] or [_LOST]
    reasons = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[-1:] or ["git gave no reason"]
    hint = _UNKNOWN_HOST if "Host key verification failed." in lines else ""
    return "".join(c for c in reasons[0] if c.isprintable())[:300].rstrip(".") + hint
