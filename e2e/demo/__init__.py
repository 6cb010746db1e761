"""`make demo`: a busy hour on a lab, first with the default scheduler, then with Muster, and the comparison.

trace.py      a trace file: its jobs, its virtual clusters, its hours
statistics.py works out the statistics that the seeded hour is drawn from (they are in muster.sim.philly)
workload.py   the hour to be submitted, as values; the Job objects
course.py     one run as a state machine: sightings in, instructions out, what is measured
drive.py      the shell around it: submits, watches, ends jobs
show.py       the live table, and lines where there is no terminal
outcome.py    figures of a run, the comparison, the JSON
picture.py    the picture
"""
