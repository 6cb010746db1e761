"""`python -m muster.agent -- python train.py`."""

from __future__ import annotations

from muster_report.agent.arguments import main

main()
