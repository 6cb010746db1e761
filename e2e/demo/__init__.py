"""`make demo`: a busy hour on a lab by default scheduler, gangs and elastic jobs, and the comparison.

trace.py      a trace file: its jobs, its virtual clusters, its hours
statistics.py works out the statistics that the seeded hour is drawn from (they are in muster.sim.philly)
workload.py   the hour to be submitted, as values; the Job objects
course.py     one run as a state machine: sightings in, instructions out, what is measured
sides.py      the three runs, side by side, each on a lab
drive.py      the shell around one: submits, watches, ends jobs
show.py       the live table, and lines where there is no terminal
outcome.py    figures of a run, the comparison, the JSON
picture.py    the picture
camera.py     a picture of Muster's page while it runs
"""
