"""Tests of `muster doctor`."""
