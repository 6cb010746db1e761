"""Policies that ship with Muster, one file each. `muster` finds them by entry points, never imports them."""
