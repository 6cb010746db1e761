"""muster_report.devices under the name `muster.devices`: one module, of the distribution muster-report."""

from __future__ import annotations

import sys

from muster_report import devices

sys.modules[__name__] = devices
