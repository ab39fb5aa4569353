"""Keys, and the envelopes that they seal.

An envelope is AES-256-GCM under a data key of its own, which is wrapped, by AES-256-GCM too, in a key of `Keys`. What
it is bound to is its associated data: in the place of another row, or for another caller, it does not open. No key and
no plaintext is in a repr or an error here.

    version (1 byte) | id of the key (8) | nonce (12) | wrapped data key (32 + 16) | data (n + 16)
"""

import base64
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import SetupError, StoreError
from ..machinery import defer_package

if TYPE_CHECKING:
    from . import ciphers as ciphers
else:
    ciphers = defer_package(f"{__package__}.ciphers")

KEY_BYTES = 32
VARIABLE = "TOOLCRIB_KEY"

KeySource = Callable[[], Sequence[bytes]]
"""Gives the keys, 32 bytes each, the newest first. Called again where something was sealed with another key."""

_VERSION = b"\x01"
_ID = 8
_NONCE = 12
_HEADER = 1 + _ID
_DATA = _HEADER + _NONCE + KEY_BYTES + 16
# A data key seals once, so its nonce need not vary.
_ONCE = bytes(_NONCE)


class Keys:
    """The newest key seals; all of them open. *source* gives them; *place* is where they come from, for errors."""

    def __init__(self, source: KeySource, *, place: str) -> None:
        self._source = source
        self.place = place
        self._newest = b""
        self._keys: dict[bytes, ciphers.AESGCM] = {}
        self._signers: list[ciphers.Ed25519PrivateKey] = []
        self._digest = hashlib.blake2b()

    @property
    def file(self) -> Path | None:
        """The file that they are in; None where they come from elsewhere."""
        return self._source.path if isinstance(self._source, KeyFile) else None

    def seal(self, data: bytes, *binding: str) -> bytes:
        """Return an envelope of *data* that opens only with the same *binding*."""
        self._load(stale=isinstance(self._source, KeyFile) and self._source.changed())
        header, data_key, nonce = _VERSION + self._newest, secrets.token_bytes(KEY_BYTES), secrets.token_bytes(_NONCE)
        wrapped = self._keys[self._newest].encrypt(nonce, data_key, header)
        return header + nonce + wrapped + ciphers.AESGCM(data_key).encrypt(_ONCE, data, header + _associated(binding))

    def unseal(self, envelope: bytes, *binding: str) -> bytes:
        """Return what is in *envelope*. Raises StoreError where it does not open."""
        header = envelope[:_HEADER]
        if header[:1] != _VERSION or len(envelope) < _DATA + 16:
            raise StoreError("A sealed value is damaged, or was sealed by a newer version of Toolcrib.")
        self._load(stale=header[1:] not in self._keys)
        key = self._keys.get(header[1:])
        if key is None:
            raise StoreError(
                f"A sealed value needs the key {header[1:].hex()}, which is not in {self.place}. Add it there, after "
                "the newest."
            )
        try:
            nonce, wrapped = envelope[_HEADER : _HEADER + _NONCE], envelope[_HEADER + _NONCE : _DATA]
            data_key = key.decrypt(nonce, wrapped, header)
            return ciphers.AESGCM(data_key).decrypt(_ONCE, envelope[_DATA:], header + _associated(binding))
        except ciphers.InvalidTag:
            raise StoreError("A sealed value cannot be opened: it was changed, or belongs to something else.") from None

    def signatures(self, data: bytes) -> list[str]:
        """Return the signatures of *data* by all keys, the newest first."""
        self._load(stale=True)
        return [hmac.digest(key, b"toolcrib signature" + data, "sha256").hex() for key in self._source()]

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature of *data* by the newest key. Its public key verifies it."""
        self._load(stale=isinstance(self._source, KeyFile) and self._source.changed())
        return self._signers[0].sign(data)

    def public_keys(self) -> Sequence[bytes]:
        """Return the public keys that verify what `sign` has signed, the newest first."""
        self._load(stale=True)
        return [signer.public_key().public_bytes_raw() for signer in self._signers]

    def digest(self, data: bytes) -> str:
        """Return a keyed digest of *data*: who reads it cannot try out what it is of.

        By the oldest key, so that the same data have the same digest when there is a new one.
        """
        if not self._keys:
            self._load(stale=False)
        digest = self._digest.copy()  # which has taken the key in
        digest.update(data)
        return digest.hexdigest()

    def rotate(self) -> bytes:
        """Make a new key, if they are in a file, else read them again. The header of what is sealed from now on."""
        if isinstance(self._source, KeyFile):
            self._source.add()
        self._load(stale=True)
        return _VERSION + self._newest

    def __repr__(self) -> str:
        return f"<Keys from {self.place}>"

    def _load(self, *, stale: bool) -> None:
        if not stale and self._keys:
            return
        keys_given = self._read()
        # The id says which key it is, and nothing else: a digest of 256 random bits leads back to nothing.
        keys = {hashlib.sha256(b"toolcrib key id" + key).digest()[:_ID]: ciphers.AESGCM(key) for key in keys_given}
        seeds = [hmac.digest(key, b"toolcrib signing key", "sha256") for key in keys_given]
        self._signers = [ciphers.Ed25519PrivateKey.from_private_bytes(seed) for seed in seeds]
        self._digest = hashlib.blake2b(key=hmac.digest(keys_given[-1], b"toolcrib digests", "sha256"), digest_size=16)
        self._keys, self._newest = keys, next(iter(keys))

    def _read(self) -> list[bytes]:
        try:
            keys_given = list(self._source() or ())
        except (SetupError, StoreError):
            raise
        except Exception as error:  # of a function of the host's: its text may quote a key
            raise StoreError(f"{self.place} failed with {type(error).__name__}.") from None
        if not keys_given or not all(isinstance(key, bytes) and len(key) == KEY_BYTES for key in keys_given):
            raise SetupError(f"{self.place} must give at least one key, and keys of {KEY_BYTES} bytes only.")
        return keys_given


class KeyFile:
    """Keys in a file that only its owner can read: one in base64 on each line, the newest first.

    The file is made, with one key, when it is first needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None

    def __call__(self) -> Sequence[bytes]:
        if not self.path.exists():
            self._write(_new(), replace=False)
        try:
            with self.path.open("rb") as file:
                info = os.fstat(file.fileno())
                if os.name == "posix" and (info.st_mode & 0o077 or info.st_uid not in (os.getuid(), 0)):
                    raise SetupError(
                        f"The key file {self.path} can be read by others (mode {stat.S_IMODE(info.st_mode):04o}), or "
                        f"belongs to another user. Make it your own: chmod 600 {self.path}"
                    )
                self._seen = (info.st_ino, info.st_mtime_ns)
                return _decoded(file.read(), str(self.path))
        except OSError as error:
            raise SetupError(f"The key file {self.path} cannot be read: {error.strerror}.") from None

    def changed(self) -> bool:
        try:
            info = self.path.stat()
        except OSError:
            return True
        return (info.st_ino, info.st_mtime_ns) != self._seen

    def add(self) -> None:
        """Put a new key first. The others stay: what they sealed must open."""
        self()
        self._write(_new() + self.path.read_bytes(), replace=True)

    def include(self, other: "KeyFile") -> None:
        """Add the keys of *other* that are missing, after those that are there."""
        keys_given = other()
        if not self.path.exists():
            self._write(other.path.read_bytes(), replace=False)
        present = self()
        if missing := [key for key in keys_given if key not in present]:
            lines = b"".join(base64.b64encode(key) + b"\n" for key in missing)
            self._write(self.path.read_bytes().rstrip() + b"\n" + lines, replace=True)

    def _write(self, content: bytes, *, replace: bool) -> None:
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(dir=folder)  # with mode 0600
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                if replace:
                    Path(name).replace(self.path)
                    return
                with suppress(FileExistsError):  # another process was first, and its key counts
                    os.link(name, self.path)
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise SetupError(f"The key file {self.path} cannot be written: {error.strerror}.") from None


def environment_keys() -> Sequence[bytes]:
    """Return the keys in the variable TOOLCRIB_KEY: in base64, with spaces between them, the newest first."""
    return _decoded(os.environ.get(VARIABLE, "").encode(errors="replace"), VARIABLE)


def _new() -> bytes:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"


def _decoded(text: bytes, place: str) -> list[bytes]:
    try:
        return [base64.b64decode(word, validate=True) for word in text.split()]
    except ValueError:
        raise SetupError(f"{place} must hold keys in base64, {KEY_BYTES} bytes each, and nothing else.") from None


def _associated(binding: Sequence[str]) -> bytes:
    # With lengths, so that no two bindings are written the same.
    parts = [part.encode(errors="surrogatepass") for part in binding]
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])
