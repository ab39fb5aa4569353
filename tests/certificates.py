"""Certificates for servers of tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def write_certificate(file: Path, *names: str) -> Path:
    """A certificate of *names* and of 127.0.0.1, signed by itself, and its key, in *file*."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    of = [*map(x509.DNSName, names), x509.IPAddress(IPv4Address("127.0.0.1"))]
    now, day = datetime.now(UTC), timedelta(days=1)
    made = (
        x509.CertificateBuilder(issuer, issuer, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.SubjectAlternativeName(of), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(made.public_bytes(pem) + private)
    return file
