"""A clean environment with what a user would install: python scripts/clean_env.py FOLDER [--extra serve] [--with PKG]

FOLDER/dist gets the source distribution and the wheel, unless they are there. FOLDER/env gets a new virtual
environment with the wheel in it. With --lowest every version is the lowest that pyproject.toml allows; with --free they
are the newest that fit; otherwise those of constraints.txt.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

from uv import find_uv_bin

REPOSITORY = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dist", type=Path, help="where the wheel is or comes; FOLDER/dist")
    parser.add_argument("--extra", action="append", default=[], help="an extra of Toolcrib")
    parser.add_argument("--with", action="append", default=[], dest="packages", help="another package")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environment; this one")
    parser.add_argument("--alone", action="store_true", help="without Toolcrib: only the packages of --with")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions that pyproject.toml allows")
    parser.add_argument("--free", action="store_true", help="other versions than those of constraints.txt")
    asked = parser.parse_args()
    if asked.alone:
        install(asked.folder / "env", asked.packages, asked)
        return
    wheel = built(asked.dist or asked.folder / "dist")
    extras = f"[{','.join(asked.extra)}]" if asked.extra else ""
    packages = [f"toolcrib{extras} @ {wheel.resolve().as_uri()}", *asked.packages]
    if asked.lowest:
        packages += required(asked.extra)
    install(asked.folder / "env", packages, asked)
    print(asked.folder / "env")


def built(dist: Path) -> Path:
    """The wheel in *dist*, built from a source distribution where it is not there yet."""
    if not list(dist.glob("*.whl")):
        run(sys.executable, "-m", "build", "--outdir", dist, REPOSITORY)
    (wheel,) = dist.glob("*.whl")
    return wheel


def required(extras: list[str]) -> list[str]:
    """What pyproject.toml asks for. Only what is asked for directly is taken at its lowest."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines: list[str] = [*project["dependencies"]]
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            inner = line.removeprefix("toolcrib[").removesuffix("]").split(",") if line.startswith("toolcrib[") else []
            lines += required(inner) if inner else [line]
    return list(dict.fromkeys(lines))


def install(env: Path, packages: list[str], asked: argparse.Namespace) -> None:
    constraints = [] if asked.free else ["-c", REPOSITORY / "constraints.txt"]
    versions = ["--resolution", "lowest-direct", "--only-binary", ":all:"] if asked.lowest else constraints
    uv = find_uv_bin()
    run(uv, "venv", "-q", "--python", asked.python, env)
    run(uv, "pip", "install", "-q", "--python", env / "bin" / "python", *versions, *packages)


def run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stdout}")


if __name__ == "__main__":
    main()
