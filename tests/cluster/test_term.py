"""The number of a term: it only rises, whatever happens to what keeps it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.cluster.term import next_term
from muster.errors import ClusterError
from tests.devices_api import DevicesApi


def term(api: DevicesApi, least: int = 1) -> int:
    return next_term(cast(Api, api), "muster-devices", least)


def test_it_rises_with_each_term_and_the_first_one_makes_what_keeps_it() -> None:
    api = DevicesApi()
    assert [term(api), term(api), term(api)] == [1, 2, 3]
    assert api.config["data"] == {"term": "3"}


def test_it_never_begins_below_the_epochs_of_holders() -> None:
    api = DevicesApi()
    assert term(api, 7) == 7
    assert (term(api, 3), term(api, 20)) == (8, 20)


def test_of_two_that_read_the_same_number_one_reads_again() -> None:
    api = DevicesApi()
    term(api)
    api.before_put = lambda: api.config["data"].update(term="5") or api.touch(api.config)
    assert term(api) == 6


@pytest.mark.parametrize("found", ["", "-1", "two", "1e3", "9" * 10])
def test_what_is_no_number_is_said(found: str) -> None:
    api = DevicesApi()
    term(api)
    api.config["data"] = {"term": found}
    with pytest.raises(ClusterError, match="expected a whole number, found"):
        term(api)


def test_a_right_that_is_missing_is_said() -> None:
    class Forbids(DevicesApi):
        def request(self, method: str, *_: Any, **__: Any) -> tuple[int, bytes]:
            found = {"message": f"may not {method.lower()}"}
            return 403, json.dumps(found).encode()

    with pytest.raises(ClusterError, match="ConfigMap muster-devices/muster-term: may not get"):
        term(Forbids())
