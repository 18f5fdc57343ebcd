"""A certificate authority of one instance: who speaks TLS inside it is known by it."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class KeyPair:
    """Where a certificate, or a public key, and its private key are."""

    public: Path
    private: Path


class Authority:
    """Signs with a key that stays in memory; its own certificate is at `path`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, _name("raytpu-cluster")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / "ca.crt"
        own = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.path.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *, hosts: Sequence[str] = (), group: str | None = None) -> KeyPair:
        """For a server of these names and addresses, or for a client.

        Kubernetes takes a client for the user `name` in `group`.
        """
        pair, key = new_key(self._folder, name)
        builder = _builder(_name(name, group), self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(PURPOSES), critical=False
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        pair.public.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        return pair


def signing_key(folder: Path, name: str) -> KeyPair:
    """A key pair without a certificate, such as the one that signs tokens."""
    pair, key = new_key(folder, name)
    pair.public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pair


def new_key(folder: Path, name: str) -> tuple[KeyPair, ec.EllipticCurvePrivateKey]:
    """A private key in a file that only its owner reads, and where its public part goes."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
    pair.private.touch(mode=0o600)
    pair.private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return pair, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=now + VALID,
    )


def _name(name: str, group: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
