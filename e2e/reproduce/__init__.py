"""`make reproduce`: every figure of the papers that we know, target against result.

A module a paper: `entries(data: Path) -> list[Entry]`, where data is the folder of traces. Entries of one paper run
in one process and in their order, so that a module may keep a simulation for the next entry (functools.cache).
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command sets it, and before numpy is imported
