"""`python -m muster.agent -- python train.py`: the agent without the packages that the `muster` command needs."""

from __future__ import annotations

import sys

from muster.agent.arguments import main

main(sys.argv[1:])
