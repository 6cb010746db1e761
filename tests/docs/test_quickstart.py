"""How what the quickstart prints is compared with what the page shows."""

from __future__ import annotations

from e2e.quickstart_page import shows


def test_a_table_is_compared_by_the_columns_that_the_page_shows() -> None:
    told = "NAME    STATE     AGE   MESSAGE\njob-a   Waiting   3s    needs 2 GPUs\n"
    assert shows(told, "NAME    MESSAGE\njob-a   needs 2 GPUs\n")
    assert not shows(told, "NAME    STATE\njob-a   Running\n")
    assert not shows(told, "NAME    STATE\njob-b   Waiting\n")
