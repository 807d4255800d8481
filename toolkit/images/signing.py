"""Statements about an image, signed with the user's own key as cosign 3 does, whose `verify` commands read them.

A bundle of Sigstore's holds one: the statement in an envelope (DSSE) and its signature, noted in no public log. Keys
are files, as `cosign generate-key-pair` writes them or plain PEM, or lie in a service that cosign signs with.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    load_pem_public_key,
)
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox
from pydantic import Base64Bytes, Field

from toolkit import documents
from toolkit.children import own_variables
from toolkit.errors import UsageError, reason
from toolkit.images.command import last_words, run
from toolkit.images.inventory import BUNDLE, IN_TOTO
from toolkit.images.manifest import at

PASSWORD = "COSIGN_PASSWORD"  # noqa: S105 - the variable's name

_COSIGNS_KEYS = (b"ENCRYPTED SIGSTORE PRIVATE KEY", b"ENCRYPTED COSIGN PRIVATE KEY")
_LARGEST_KEY = documents.Limits(size=64 * 1024)
_NO_LOG = {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}
_COSIGN = ("COSIGN_", "VAULT_")
_ALGORITHM = ECDSA(SHA256())


@dataclass(frozen=True)
class _Bundle:
    payload: Annotated[Base64Bytes, at("dsseEnvelope", "payload")]
    kind: Annotated[str, at("dsseEnvelope", "payloadType")]
    signature: Annotated[Base64Bytes, at("dsseEnvelope", "signatures", 0, "sig")]


@dataclass(frozen=True)
class _SignedByCosign:
    signature: Annotated[Base64Bytes, at("messageSignature", "signature")]


@dataclass(frozen=True)
class _EncryptedKey:
    """What a key of cosign's holds: how its password is stretched, how it is encrypted, and the key."""

    stretched: Annotated[Literal["scrypt"], at("kdf", "name")]
    numbers: Annotated[dict[str, Annotated[int, Field(gt=0, le=2**20)]], at("kdf", "params")]
    salt: Annotated[Base64Bytes, at("kdf", "salt")]
    encrypted: Annotated[Literal["nacl/secretbox"], at("cipher", "name")]
    nonce: Annotated[Base64Bytes, at("cipher", "nonce")]
    ciphertext: Base64Bytes


@dataclass(frozen=True)
class PublicKey:
    """Checks signatures. `name` is what the user calls the key."""

    name: str
    key: EllipticCurvePublicKey

    @property
    def hint(self) -> str:
        """By which cosign knows the key in a bundle."""
        der = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(der).digest()).decode()

    def statement(self, bundle: bytes) -> bytes | None:
        """The statement of a bundle that this key has signed; None for any other bundle."""

        try:
            said = documents.parse(_Bundle, bundle)
            self.key.verify(said.signature, _signed_bytes(said.kind, said.payload), _ALGORITHM)
        except (documents.Unfit, InvalidSignature):
            return None
        return said.payload if said.kind == IN_TOTO else None


@dataclass(frozen=True)
class SigningKey:
    """A key with which to sign bytes, and its public half."""

    public: PublicKey
    sign: Callable[[bytes], bytes]

    def bundle(self, statement: bytes) -> bytes:
        """The statement, signed, as it lies beside an image. Raises UsageError where cosign does not sign."""
        signature = self.sign(_signed_bytes(IN_TOTO, statement))
        document = {
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": self.public.hint}},
            "dsseEnvelope": {
                "payload": base64.b64encode(statement).decode(),
                "payloadType": IN_TOTO,
                "signatures": [{"sig": base64.b64encode(signature).decode()}],
            },
        }
        return json.dumps(document).encode()


def public_key(name: str) -> PublicKey:
    """The key that checks: a PEM file such as cosign.pub, or one of a service. Raises UsageError."""

    content = _ask_cosign("public-key", "--key", name) if "://" in name else _read(name)
    if b"PRIVATE KEY" in content:
        raise UsageError(f"{name} is a private key", hint="Give the public one, cosign.pub; --sign takes the private.")
    try:
        return PublicKey(name, _p256(name, load_pem_public_key(content)))
    except ValueError as error:
        raise UsageError(f"{name} is no public key in PEM: {error}", hint="Give cosign.pub.") from error


def signing_key(name: str) -> SigningKey:
    """The key that signs: a file such as cosign.key, or one of a service, such as awskms:///alias/x. Raises UsageError.

    A file's password is in the variable COSIGN_PASSWORD.
    """
    if "://" in name:
        return SigningKey(public_key(name), lambda data: _sign_with_cosign(name, data))

    private = _private_key(name)
    if not isinstance(private, EllipticCurvePrivateKey):
        raise _unsupported(name)
    public = PublicKey(name, _p256(name, private.public_key()))
    return SigningKey(public, lambda data: private.sign(data, _ALGORITHM))


def _private_key(name: str) -> object:
    """The key of a file. No error quotes a word of it."""

    content, password = _read(name), os.environ.get(PASSWORD)
    is_encrypted = b"ENCRYPTED" in content
    if is_encrypted and password is None:
        raise UsageError(f"{name} has a password", hint=f"Set {PASSWORD} to it in the environment.")
    try:
        if any(kind in content for kind in _COSIGNS_KEYS):
            return load_der_private_key(_decrypted(content, (password or "").encode()), None)
        return load_pem_private_key(content, (password or "").encode() if is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        hint = f"Give a key as cosign generate-key-pair writes it, and its password in {PASSWORD}."
        raise UsageError(f"{name} is no private key that can be read with this password", hint=hint) from None


def _decrypted(pem: bytes, password: bytes) -> bytes:
    """What a key of cosign's has encrypted (its KEY format: scrypt, and NaCl's secretbox). Raises ValueError."""

    body = b"".join(line for line in pem.splitlines() if line and not line.startswith(b"-----"))
    key = documents.parse(_EncryptedKey, base64.b64decode(body))
    n, r, p = (key.numbers.get(name, 0) for name in ("N", "r", "p"))
    secret = hashlib.scrypt(password, salt=key.salt, n=n, r=r, p=p, dklen=32, maxmem=2**28)
    try:
        return SecretBox(secret).decrypt(key.ciphertext, key.nonce)
    except CryptoError as error:
        raise ValueError("another password") from error


def _sign_with_cosign(name: str, data: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="toolkit-sign-") as folder:
        content, config, bundle = (Path(folder) / file for file in ("statement", "config.json", "bundle.json"))
        content.write_bytes(data)
        config.write_text(json.dumps(_NO_LOG), encoding="utf-8")
        _ask_cosign(
            *("sign-blob", "--key", name, "--signing-config", str(config), "--bundle", str(bundle), str(content))
        )
        try:
            return documents.parse(_SignedByCosign, documents.read_file(bundle)).signature
        except (OSError, ValueError) as error:
            hint = "Install cosign 3: it is the one that signs with a key of a service."
            raise UsageError(f"cosign wrote no signature that can be read: {error}", hint=hint) from error


def _ask_cosign(*words: str) -> bytes:
    hint = "Signing with a key of a service takes cosign 3, and its login; a key in a file takes neither."
    try:
        ended = run(["cosign", *words], environment=own_variables(*_COSIGN))
    except FileNotFoundError as error:
        raise UsageError("cosign is not installed", hint=hint) from error
    if ended.code:
        raise UsageError(f"cosign {words[0]} failed: {last_words(ended)}", hint=hint)
    return "\n".join(ended.lines).encode()


def _read(name: str) -> bytes:
    try:
        return documents.read_file(Path(name).expanduser(), _LARGEST_KEY)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the key {name}: {reason(error)}", hint="Give its file, or a URL for cosign."
        ) from error


def _p256(name: str, key: object) -> EllipticCurvePublicKey:

    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key
    raise _unsupported(name)


def _unsupported(name: str) -> UsageError:
    hint = "Make one: cosign generate-key-pair, or ECC_NIST_P256 with the use SIGN_VERIFY in KMS."
    return UsageError(f"{name} is not a key for ECDSA on the curve P-256", hint=hint)


def _signed_bytes(kind: str, payload: bytes) -> bytes:
    """What a signature is over: the envelope's kind and content with their lengths (DSSE's pre-authentication)."""
    return b"DSSEv1 %d %b %d %b" % (len(kind.encode()), kind.encode(), len(payload), payload)
