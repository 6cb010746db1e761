"""Certificates that Muster makes itself (tls.secret): an authority, and what it signs for the service port.

The authority outlives everything that trusts it (10 years), the certificate is short and made again when two thirds
of its life are over. Both lie in one Secret of the release, by these names: ca.crt (the authority, and one before it
that has not ended), ca.key, tls.crt, tls.key, all PEM. P-256 keys.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = 10 * 365 * 86400.0
"""Seconds. Pods are told the authority when they are made, and may run for months."""
BEFORE = 300.0
"""Seconds that a certificate is valid before it was made: clocks differ."""


def renewed(
    kept: Mapping[str, bytes], hosts: Sequence[str], life: float, now: float
) -> dict[str, bytes] | None:
    """What is to be kept instead of `kept`; None: it is good still.

    hosts: DNS names and addresses that the certificate is for. life: its life, s. now: Unix s. What is not to be
    understood in `kept` is made again, as what is missing."""
    authority, key = _authority(kept, now + 2 * life)
    if authority is not None and key is not None and _good(kept, authority, hosts, life, now):
        return None
    bundle = kept.get("ca.crt", b"") if authority is not None else b""
    if authority is None or key is None:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = _new_authority(key, now)
        bundle = _pem(authority) + _unended(kept.get("ca.crt", b""), now)
    own = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_name(host) for host in hosts])
    certificate = (
        _builder("muster", authority.subject, own.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return {"ca.crt": bundle, "ca.key": _secret(key), "tls.crt": _pem(certificate), "tls.key": _secret(own)}


def _good(
    kept: Mapping[str, bytes], authority: x509.Certificate, hosts: Sequence[str], life: float, now: float
) -> bool:
    """Whether the certificate that is kept is that authority's, for these hosts, and not in its life's last third."""
    try:
        certificate = x509.load_pem_x509_certificate(kept.get("tls.crt", b""))
        key = serialization.load_pem_private_key(kept.get("tls.key", b""), None)
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    ends = certificate.not_valid_after_utc.timestamp()
    return (
        key.public_key() == certificate.public_key()
        and list(names) == [_name(host) for host in hosts]
        and now + life / 3 < ends <= now + 1.1 * life + BEFORE  # else a shorter life was asked for since
        and certificate.not_valid_before_utc.timestamp() <= now
    )


def _authority(
    kept: Mapping[str, bytes], until: float
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | tuple[None, None]:
    """The authority that is kept, if it is valid until then."""
    try:
        authority = x509.load_pem_x509_certificate(kept.get("ca.crt", b""))
        key = serialization.load_pem_private_key(kept.get("ca.key", b""), None)
    except (ValueError, TypeError):
        return None, None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        return None, None
    return (authority, key) if authority.not_valid_after_utc.timestamp() > until else (None, None)


def _unended(bundle: bytes, now: float) -> bytes:
    """The first of an earlier bundle, while it is valid: what it signed is still met."""
    try:
        before = x509.load_pem_x509_certificate(bundle)
    except ValueError:
        return b""
    return _pem(before) if before.not_valid_after_utc.timestamp() > now else b""


def _new_authority(key: ec.EllipticCurvePrivateKey, now: float) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"muster authority {now:.0f}")])
    public = key.public_key()
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # cert_sign, crl_sign
    return (
        _builder(name, name, public, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name | str, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: float, life: float
) -> x509.CertificateBuilder:
    if isinstance(subject, str):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    made = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - timedelta(seconds=BEFORE))
        .not_valid_after(made + timedelta(seconds=life))
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
