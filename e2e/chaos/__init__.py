"""Chaos: jobs come and go as in the soak, and every few seconds something breaks.

troubles.py  what breaks and when, drawn of a seed before anything begins; pure
days.py      the jobs, what their trainings report, and each policy's settings
machine.py   the troubles carried out on a lab, undone again, and a kubelet that starts what has ended
end.py       what has become of each job when all is calm again
drive.py     the shell around it
__main__.py  `make chaos`: ten minutes on a lab of two replicas; `make test` runs a minute (e2e/test_chaos.py)

What must hold: the referee (`e2e/referee`) sees nothing; Muster's logs have no error and no traceback; no muster
ends by itself; when all is calm every job is done, runs whole, or waits and says why."""
