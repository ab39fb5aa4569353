"""Git repositories for tests: made of files, or of trees that git itself would not make; and a server of them."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PERSON = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
PLAIN = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **PERSON}

Entry = tuple[str, str, str]
"""Mode, name, and the hash of an object."""


class Repository:
    """A repository in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, data: bytes | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=PLAIN, input=data, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, str | bytes | Path]) -> str:
        """Commit *files*, those that are a Path as links to it. Returns the hash."""
        for name, content in files.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            if isinstance(content, Path):
                file.symlink_to(content)
            else:
                file.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "files")
        return self.git("rev-parse", "HEAD")

    def blob(self, content: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", data=content)

    def tree(self, *entries: Entry) -> str:
        """A tree of *entries*, whatever they are."""
        raw = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(of) for mode, name, of in entries)
        return self.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=raw)

    def commit_tree(self, *entries: Entry) -> str:
        """Commit a tree of *entries* on the branch main."""
        commit = self.git("commit-tree", "-m", "tree", self.tree(*entries))
        self.git("update-ref", "refs/heads/main", commit)
        return commit


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """The URL of a server of the repositories in *folder*, and the sizes of what it has sent.

    It sends parts of a repository where that allows it. What is asked of it below `/moved/` is redirected.
    """
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/moved/"):
                self.send_response(302)
                self.send_header("Location", self.path.removeprefix("/moved"))
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            environ = {
                **PLAIN,
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            environ["CONTENT_LENGTH"] = str(len(body))
            done = subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            sent.append(len(content))

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
