"""What keys seal and sign with: a module of its own, since it takes 9 MiB and is needed with the first row."""

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["AESGCM", "Ed25519PrivateKey", "Ed25519PublicKey", "InvalidSignature", "InvalidTag"]
