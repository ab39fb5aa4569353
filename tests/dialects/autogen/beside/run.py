"""Prints the outcomes of all probes, as JSON: name to text."""

import json
import sys

import probing
import results  # noqa: F401
import schemas  # noqa: F401
import tools  # noqa: F401
import workbenches  # noqa: F401

names = sys.argv[1:] or probing.PROBES
json.dump({name: probing.outcome(name) for name in names}, sys.stdout, indent=1, ensure_ascii=False)
