"""`muster agent`: the agent of muster_report, as a command of `muster` and as `python -m muster.agent`."""
