"""The soak: elastic jobs come and go for minutes, and it is watched what a policy owes those who share.

arrivals.py  what jobs come and when, of a seed
checker.py   an idle GPU that a job may have, a change before the last one is paid for; no clock, no client
drive.py     the shell around it: submits and ends jobs, watches pods and Gangs, feeds the checker
picture.py   GPUs, jobs and changes over time
__main__.py  `make soak`: ten minutes on a lab of its own; `make test` runs a minute (e2e/test_soak.py)

What must never be under any policy says the referee (e2e/referee), which watches, too. The checker knows nothing of
Muster's plans: it reads pods, of a Gang what a change costs and when one was decided, and the rule of the
configuration.
"""
