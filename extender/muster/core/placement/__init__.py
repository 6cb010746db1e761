"""Where replicas go: capacity, feasibility, places for whole jobs, preemption, backfill and reservations."""
