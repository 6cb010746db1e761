"""What a job's Gang says: its status, its conditions, and what of the Ledger it keeps for the next leader."""
