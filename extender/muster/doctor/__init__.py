"""`muster doctor`: what is wrong with an installation, and what to do about it.

| file | one idea |
|---|---|
| `finding.py` | what is told of one thing that was looked at |
| `patient.py` | the installation that is looked at: its API server, names and settings |
| `checks.py`, `admission.py`, `shared_nodes.py`, `node_use.py` | the checks, each of one thing |
| `rights.py` | what Muster's account has to be allowed |
| `visit.py` | all checks in order, and the text |
| `command.py` | the command |

It changes nothing: what it creates it creates as a dry run.
"""
