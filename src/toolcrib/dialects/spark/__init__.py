"""Spark's tool layer: change `spark` to `toolcrib.dialects.spark` in a program's imports, and its tools run here.

Every tool and registry has `__toolcrib__()`, so it can be a source beside native tools. docs/dialects/spark.md lists
Toolcrib's own name for each of Spark's.
"""

from .._modules import left_out

__getattr__ = left_out(__name__, "Graphs, flows and policies are left out.")
