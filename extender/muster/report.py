"""muster_report.report under the name `muster.report`: one module, of the distribution muster-report."""

from __future__ import annotations

import sys

from muster_report import report

if __name__ == "__main__":
    sys.exit(report.main())

sys.modules[__name__] = report
