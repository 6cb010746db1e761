"""The wall clock of a Python process is off by E2E_CLOCK seconds; what takes how long is right. Imported by
Python itself at its start, where PYTHONPATH names this folder.

Not Debian's libfaketime: with an offset, its clock_nanosleep answers time.sleep of Python 3.11 with EINVAL, or
never (0.9.10: it takes the offset off absolute times of the monotonic clock). This shifts what Muster reads,
time.time()."""

import os
import time

_OFF = float(os.environ.get("E2E_CLOCK") or 0.0)
_time, _time_ns = time.time, time.time_ns


def _shifted() -> float:
    return _time() + _OFF


def _shifted_ns() -> int:
    return _time_ns() + int(_OFF * 1e9)


time.time, time.time_ns = _shifted, _shifted_ns
