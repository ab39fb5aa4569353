"""Addresses of tools in text: of OpenAPI documents, and of folders of git repositories. This file does no I/O.

    git+https://HOST/PATH@REF#FOLDER    git+ssh://USER@HOST/PATH@REF#FOLDER    git+PATH@REF#FOLDER
    https://github.com/OWNER/REPO/tree/REF/FOLDER    git@HOST:PATH@REF#FOLDER, over SSH

REF and FOLDER may be left out. What git would read as an option, a command or another transport is not an address.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..core import LoadError

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
_PATH = re.compile(r"/[A-Za-z0-9~_][A-Za-z0-9~_.+/-]*")
_SHORT = re.compile(r"(?P<user>[^/@:]+)@(?P<host>[^/@:]+):(?!:)(?P<path>[^@]*)")
"""How git writes an address of SSH for short; the path may be one from the user's home."""
_REF = re.compile(r"(?!.*(\.\.|//|/\.))[A-Za-z0-9_][A-Za-z0-9_.+/-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.[0-9]+)(:[0-9]+)?")
_CREDENTIALS = re.compile(r"//[^/#]*@(?=[^/@]*(/|$))")
_MOST_CHARS = 2000


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
        """The address with the path of a local repository as one from *folder*."""
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
    """Whether *source*, text or a path, is where an OpenAPI document has to be: `openapi:ADDRESS`, or such a file."""
    if isinstance(source, str) and source.startswith(DOCUMENT):
        return True
    return isinstance(source, str | Path) and "://" not in str(source) and Path(source).suffix in DOCUMENTS


def is_git_address(source: object) -> bool:
    """Whether *source* is text that is to be read as a git address, valid or not."""
    return isinstance(source, str) and (source.startswith(_PREFIX) or _OTHER.match(source) is not None)


def parse_git_address(text: str) -> GitAddress:
    """The address in *text*. Raises LoadError for one that is not valid, and for transports that are not safe."""
    from ..schema.describe import display_name  # brings pydantic: with the first address, and not with the package

    shown = display_name(_CREDENTIALS.sub("//", text[:_MOST_CHARS]))
    if len(text) > _MOST_CHARS or not text.isprintable():
        raise LoadError(f"'{shown}' is not a git address: it is too long, or has characters that no address has.")
    if (found := _GITHUB.fullmatch(text)) is not None:
        ref, _, folder = (found["rest"] or "HEAD").partition("/")
        if found["view"] not in (None, "tree"):
            raise LoadError(f"'{shown}' is not the address of a folder: https://github.com/OWNER/REPO/tree/REF/FOLDER.")
        repository = f"https://github.com/{found['repository']}"
    else:
        where, _, folder = text.removeprefix(_PREFIX).partition("#")
        repository, ref = _split_ref(where)
    address = GitAddress(repository, ref or "HEAD", folder.strip("/"))
    if (problem := _problem(address)) is not None:
        raise LoadError(f"'{shown}' is not a git address that can be used: {problem} It has the form {FORMS}.")
    return address


def _split_ref(where: str) -> tuple[str, str]:
    """What is before and after the last `@` of the path; one before the host belongs to the user."""
    if (short := re.match(_SHORT, where)) is not None:
        return short[0], where[short.end() + 1 :]
    scheme, separator, rest = where.rpartition("://")
    host, slash, path = rest.partition("/") if separator else ("", "", rest)
    path, ref = path.rpartition("@")[::2] if "@" in path else (path, "")
    return f"{scheme}{separator}{host}{slash}{path}", ref


def _problem(address: GitAddress) -> str | None:
    """What is wrong with *address*, as a sentence; None where it can be given to git."""
    if not _REF.fullmatch(address.ref) or address.ref.endswith(("/", ".lock", ".")):
        return f"'{address.ref[:64]}' is not the name of a branch or tag, nor a commit."
    parts = address.folder.split("/") if address.folder else []
    if any(part in ("", ".", "..") or part.lower() == ".git" or "\\" in part for part in parts):
        return f"'{address.folder[:64]}' is not a folder of a repository."
    repository = address.repository
    if address.is_local:
        if repository.startswith("-") or "::" in repository or not repository:
            return "its repository is not the path of a folder."
        return None
    url = urlsplit(repository)
    if (short := _SHORT.fullmatch(repository)) is not None:
        url = urlsplit(f"ssh://{short['user']}@{short['host']}/{short['path'].removeprefix('/')}")
    user, at, host = url.netloc.rpartition("@")
    if url.scheme not in ("https", "ssh", "http"):
        return f"git is not allowed to use '{url.scheme[:64]}'. A repository of this computer is its path."
    if url.scheme == "http" and not _LOOPBACK.fullmatch(host):
        return "over http anybody on the way could change it."
    if at and url.scheme != "ssh":
        return "an address holds no name and no password. Private repositories are reached over ssh, by its agent."
    if at and not _USER.fullmatch(user):
        return "its user is not a name."
    if not _HOST.fullmatch(host) or not _PATH.fullmatch(url.path) or url.query:
        return "its host or its path has characters that are not allowed there."
    return "its path has '..' in it." if ".." in url.path.split("/") else None
