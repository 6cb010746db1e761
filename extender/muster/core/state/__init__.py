"""What the Ledger keeps across cycles: events in, frozen Snapshots out."""
