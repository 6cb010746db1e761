"""`muster-agent -- python train.py` runs a training, reports what it prints, and changes its devices in place.

What the process is to the outside stays as it was: signals are forwarded once, its exit code or the signal that
ended it is ours, its output passes byte for byte as it comes (a terminal stays a terminal), and as PID 1 of a
container the agent reaps what it inherits. Reports go by muster_report.report, on a thread of their own: an
endpoint that fails disturbs nothing.

    muster: step=3 loss=0.2 total=100          anywhere in a line of output
    {"muster": {"step": 3, "loss": 0.2}}       a line of JSON, other keys beside it
    --pattern 'step (?P<step>\\d+)'             a regular expression whose named groups are values

The process has a process group of its own (the foreground one, where the agent is in it), so that a signal from the
keyboard reaches it once. When it ends the agent ends, whatever else still holds its output.

A folder of small files where reporting is one file: that is copied beside a training, this is a container's first
process.
"""
