"""Spark's tool layer: change `spark` to `toolcrib.dialects.spark` in a program's imports, and its tools run here.

Every tool and registry has `__toolcrib__()`, so it can be a source beside native tools. docs/dialects/spark.md lists
Toolcrib's own name for each of Spark's.
"""
