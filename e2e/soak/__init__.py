"""The soak: elastic jobs come and go for minutes, and a referee watches the API for what must never be.

checker.py   the referee: what is seen goes in, sentences on what must not be come out; no clock, no client
drive.py     the shell around it: submits and ends jobs, watches pods and Gangs, feeds the referee
picture.py   GPUs, jobs and changes over time
__main__.py  `make soak`: ten minutes on a lab of its own; `make test` runs a minute (e2e/test_soak.py)

The referee knows nothing of Muster's plans. It reads pods (and of a Gang only the measured cost of a change), and
works out the rest from what was submitted and from the rule of the configuration.
"""
