"""Muster's own authority and certificate: made once, renewed in time, and what each trusts."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from muster.signing import AUTHORITY_LIFE, renewed

HOSTS = ("muster.muster-system.svc", "127.0.0.1")
NOW, DAY = 1_800_000_000.0, 86400.0
LIFE = 90 * DAY


def made(now: float = NOW) -> dict[str, bytes]:
    found = renewed({}, HOSTS, LIFE, now)
    assert found is not None
    return found


def certificate(kept: dict[str, bytes]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(kept["tls.crt"])


def authorities(kept: dict[str, bytes]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(kept["ca.crt"])


def test_what_is_made_first_is_for_these_hosts_and_of_its_own_authority() -> None:
    kept = made()
    assert set(kept) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    found, (authority,) = certificate(kept), authorities(kept)
    found.verify_directly_issued_by(authority)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == list(HOSTS)
    assert found.not_valid_after_utc.timestamp() == NOW + LIFE
    assert authority.not_valid_after_utc.timestamp() == NOW + AUTHORITY_LIFE
    assert renewed(kept, HOSTS, LIFE, NOW) is None


def test_it_is_renewed_by_the_same_authority_when_two_thirds_of_its_life_are_over() -> None:
    kept = made()
    assert renewed(kept, HOSTS, LIFE, NOW + LIFE * 0.66) is None
    following = renewed(kept, HOSTS, LIFE, NOW + LIFE * 0.67)
    assert following is not None
    assert (following["ca.crt"], following["tls.key"] != kept["tls.key"]) == (kept["ca.crt"], True)
    certificate(following).verify_directly_issued_by(authorities(kept)[0])
    assert certificate(following).not_valid_after_utc.timestamp() == NOW + LIFE * 1.67


@pytest.mark.parametrize(
    ("hosts", "life"), [((*HOSTS, "muster.example"), LIFE), (HOSTS[:1], LIFE), (HOSTS, LIFE / 2)]
)
def test_other_hosts_or_a_shorter_life_make_a_new_one(hosts: tuple[str, ...], life: float) -> None:
    kept = made()
    following = renewed(kept, hosts, life, NOW)
    assert following is not None
    assert following["ca.crt"] == kept["ca.crt"]
    assert renewed(following, hosts, life, NOW) is None


def test_clocks_of_two_replicas_may_differ_by_minutes() -> None:
    kept = made()
    assert renewed(kept, HOSTS, LIFE, NOW - 299.0) is None
    assert renewed(kept, HOSTS, LIFE, NOW + 299.0) is None


def test_an_authority_near_its_end_makes_way_and_is_trusted_until_it_has_ended() -> None:
    kept = made()
    late = NOW + AUTHORITY_LIFE - 2 * LIFE
    following = renewed(kept, HOSTS, LIFE, late)
    assert following is not None
    new, old = authorities(following)
    assert old == authorities(kept)[0]
    certificate(following).verify_directly_issued_by(new)
    with pytest.raises((InvalidSignature, ValueError)):
        certificate(following).verify_directly_issued_by(old)
    assert renewed(following, HOSTS, LIFE, late) is None
    last = renewed({**following, "ca.key": b""}, HOSTS, LIFE, late + 3 * LIFE)
    assert last is not None
    assert [one.subject for one in authorities(last)][1:] == [new.subject], "the one that has ended is gone"


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("broken", [b"", b"no PEM", None])
def test_what_is_missing_or_broken_is_made_again(name: str, broken: bytes | None) -> None:
    kept, other = made(), made()
    following = renewed({**kept, name: other[name] if broken is None else broken}, HOSTS, LIFE, NOW)
    assert following is not None
    certificate(following).verify_directly_issued_by(authorities(following)[0])
    assert renewed(following, HOSTS, LIFE, NOW) is None
    assert (following["ca.key"] == kept["ca.key"]) == name.startswith("tls")
