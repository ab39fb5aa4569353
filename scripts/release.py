"""What a release consists of, in dist: python scripts/release.py

The source distribution and the wheel, whose times are those of the commit, built twice and compared byte for byte; what
the wheel was tried with, as an SBOM in CycloneDX's JSON; and the checksums of these. It uploads nothing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from uv import find_uv_bin

REPOSITORY = Path(__file__).parents[1]
DIST = REPOSITORY / "dist"
SBOM = "cyclonedx-bom==7.5.0"


def main() -> None:
    if output("git", "status", "--porcelain"):
        sys.exit("The checkout has changes that are in no commit, and a release is made of one: commit or remove them.")
    os.environ["SOURCE_DATE_EPOCH"] = output("git", "log", "-1", "--format=%ct")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="toolcrib-release-") as name:
        again = Path(name, "dist")
        for folder in (DIST, again):
            output(sys.executable, "-m", "build", "--outdir", str(folder), str(REPOSITORY))
        if differing := [file.name for file in DIST.iterdir() if file.read_bytes() != (again / file.name).read_bytes()]:
            sys.exit(f"Built twice, they differ: {', '.join(differing)}.")
        clean_env = (sys.executable, "scripts/clean_env.py", name, "--dist", str(DIST), "--extra", "all")
        output(*clean_env)
        write_sbom(Path(name, "env", "bin", "python"))
    files = sorted(DIST.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


def write_sbom(python: Path) -> None:
    """Write what is installed in the environment of *python*."""
    (wheel,) = DIST.glob("*.whl")
    file = DIST / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    output(find_uv_bin(), "tool", "run", "-q", "--from", SBOM, "cyclonedx-py", "environment", "--output-reproducible",
           "-o", str(file), str(python))  # fmt: skip
    file.write_text(file.read_text().replace(f"{DIST.as_uri()}/", ""))  # where the wheel was


def output(*command: str) -> str:
    """Return what a command prints. Exits where it fails."""
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
