"""Who may talk to a lab's apiserver: a certificate authority of its own, client certificates, kubeconfig
files.

Keys are P-256 and certificates live for ten years: a lab is thrown away long before."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class Signed:
    """A private key and its certificate, both PEM."""

    key: bytes
    certificate: bytes


class Authority:
    """Signs certificates for one lab; lives in pki/ca.{crt,key}, so a later command can sign more. kubeadm's,
    of a kind cluster, does as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "ca.key").exists():
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster lab")])
            certificate = (
                _builder(name, name, key.public_key())
                .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
                .sign(key, hashes.SHA256())
            )
            write(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))
            write(folder / "ca.key", pem(key))
        self.certificate = (folder / "ca.crt").read_bytes()
        own = x509.load_pem_x509_certificate(self.certificate)
        self._name = own.subject
        self._known_by = own.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        loaded = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
        self._key = loaded

    def client(self, user: str, groups: tuple[str, ...] = ()) -> Signed:
        """A client certificate: common name = user, organizations = groups, as kube-apiserver reads them."""
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._sign(subject, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def server(self, name: str, hosts: tuple[str, ...]) -> Signed:
        """A serving certificate for these DNS names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._sign(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def _sign(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._known_by), critical=False
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Signed(pem(key), certificate.public_bytes(serialization.Encoding.PEM))


def signing_key() -> bytes:
    """A private key for service-account tokens, PEM. kube-apiserver takes the public half from it."""
    return pem(ec.generate_private_key(ec.SECP256R1()))


def kubeconfig(server: str, authority: bytes, user: Signed | str) -> str:
    """A kubeconfig file's text; `user` is a client certificate or a bearer token."""
    if isinstance(user, str):
        credentials = {"token": user}
    else:
        credentials = {
            "client-certificate-data": encoded(user.certificate),
            "client-key-data": encoded(user.key),
        }
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": encoded(authority),
                    },
                }
            ],
            "users": [{"name": "lab", "user": credentials}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        },
        sort_keys=False,
    )


def encoded(text: bytes) -> str:
    """As the API carries certificates: base64."""
    return base64.b64encode(text).decode()


def write(path: Path, content: bytes | str) -> Path:
    """A file that only its owner reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
