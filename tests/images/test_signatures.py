"""Signatures beside an image: ours with keys of cosign's own, checked by us and, where it is installed, by cosign 3.

keys/ has a key pair of cosign 3.1.1, whose password is `secret`, and a bundle that it made (2026-11-26).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from small_images import push_base
from test_referrers import BASE_DIGEST, documents

from toolkit.errors import BuildError, UsageError
from toolkit.images.evidence import Document, Referrers, attach, sign, verify
from toolkit.images.manifest import Manifest
from toolkit.images.registry import Registry
from toolkit.images.signing import PublicKey, SigningKey, public_key, signing_key

KEYS = Path(__file__).parent / "keys"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
UNSIGNED = r"(?m)has no signature by .* beside it for: "
OFFLINE = ["--insecure-ignore-tlog=true"]


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "secret")


@pytest.fixture
def key() -> SigningKey:
    return signing_key(str(KEYS / "cosign.key"))


@pytest.fixture
def public() -> PublicKey:
    return public_key(str(KEYS / "cosign.pub"))


@pytest.fixture
def beside(either: Registry, name: str) -> Referrers:
    """An image with its documents."""
    return with_documents(either, name, push_base(either, name))


def with_documents(registry: Registry, name: str, image: Manifest) -> Referrers:
    beside = Referrers(registry, name, image)
    attach(beside, *documents(image))
    return beside


def bundles(beside: Referrers) -> list[bytes]:
    return [content for _, content in beside.contents(BUNDLE)]


def test_what_is_signed_is_verified_and_signed_once(beside: Referrers, key: SigningKey, public: PublicKey) -> None:
    unsigned = verify(beside, BASE_DIGEST)
    with pytest.raises(BuildError, match=UNSIGNED + "image, bill of materials, provenance$"):
        verify(beside, BASE_DIGEST, public)
    sign(beside, BASE_DIGEST, key)
    assert verify(beside, BASE_DIGEST, public) == unsigned
    sign(beside, BASE_DIGEST, key)
    assert len(bundles(beside)) == 3


def test_a_signature_by_another_key_does_not_count(beside: Referrers, key: SigningKey) -> None:
    sign(beside, BASE_DIGEST, key)
    other = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(BuildError, match=UNSIGNED + "image, bill of materials, provenance$"):
        verify(beside, BASE_DIGEST, PublicKey("other.pub", other.public_key()))


def test_a_missing_signature_is_named(beside: Referrers, key: SigningKey, public: PublicKey) -> None:
    _, provenance = documents(beside.image)
    beside.put([Document(BUNDLE, key.bundle(provenance))])
    with pytest.raises(BuildError, match=UNSIGNED + "image, bill of materials$"):
        verify(beside, BASE_DIGEST, public)


def test_the_signatures_of_another_image_do_not_count(
    either: Registry, beside: Referrers, key: SigningKey, public: PublicKey
) -> None:
    """Its bundles, laid beside this one."""
    sign(beside, BASE_DIGEST, key)
    other = with_documents(either, beside.repository, push_base(either, beside.repository, "2", content=b"other"))
    other.put([Document(BUNDLE, bundle) for bundle in bundles(beside)])
    assert len(bundles(other)) == 3
    with pytest.raises(BuildError, match=UNSIGNED + "image, bill of materials, provenance$"):
        verify(other, BASE_DIGEST, public)


def test_other_words_of_this_key_on_this_image_do_not_count(
    beside: Referrers, key: SigningKey, public: PublicKey
) -> None:
    """Another provenance, and that it is signed under another name."""
    provenance = json.loads(documents(beside.image)[1])
    other = {**provenance, "predicate": {**provenance["predicate"], "buildDefinition": {}}}
    unnamed = {**provenance, "predicateType": "https://example.com/seen", "predicate": {}}
    beside.put([Document(BUNDLE, key.bundle(json.dumps(said).encode())) for said in (other, unnamed)])
    with pytest.raises(BuildError, match=UNSIGNED + "image, bill of materials, provenance$"):
        verify(beside, BASE_DIGEST, public)


@pytest.mark.parametrize("field", ["payload", "payloadType", "sig"])
def test_a_bundle_that_was_changed_does_not_count(
    beside: Referrers, key: SigningKey, public: PublicKey, field: str
) -> None:
    _, provenance = documents(beside.image)
    bundle = json.loads(key.bundle(provenance))
    assert public.statement(json.dumps(bundle).encode()) == provenance
    envelope = bundle["dsseEnvelope"]
    if field == "payload":
        changed = provenance.replace(b'"builder"', b'"Builder"')
        envelope["payload"] = base64.b64encode(changed).decode()
    elif field == "payloadType":
        envelope["payloadType"] += "x"
    else:
        signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
        signature[-1] ^= 1
        envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    assert public.statement(json.dumps(bundle).encode()) is None


def test_what_is_no_bundle_does_not_count(public: PublicKey) -> None:
    for content in (b"", b"{}", b"[", b'{"dsseEnvelope": {"payload": "", "payloadType": "", "signatures": []}}'):
        assert public.statement(content) is None


def test_a_statement_of_another_kind_is_none_of_an_image(key: SigningKey, public: PublicKey) -> None:
    """The signature holds, but what was signed is no statement to the one who signed it."""
    kind, content = "text/plain", b"{}"
    signature = key.sign(b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(content), content))
    envelope = {"payload": base64.b64encode(content).decode(), "payloadType": kind}
    envelope |= {"signatures": [{"sig": base64.b64encode(signature).decode()}]}  # type: ignore[dict-item]
    assert public.statement(json.dumps({"dsseEnvelope": envelope}).encode()) is None


def test_what_cosign_signed_is_read(public: PublicKey, key: SigningKey) -> None:
    statement = public.statement((KEYS / "bundle.json").read_bytes())
    assert statement is not None
    assert json.loads(statement)["predicateType"] == "https://sigstore.dev/cosign/sign/v1"
    hint = json.loads((KEYS / "bundle.json").read_bytes())["verificationMaterial"]["publicKey"]["hint"]
    assert json.loads(key.bundle(b"{}"))["verificationMaterial"]["publicKey"]["hint"] == hint


# Keys.


@pytest.mark.parametrize("password", ["", "secret"])
def test_a_key_in_plain_pem_signs(tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", password)
    (tmp_path / "key.pem").write_bytes(pem(ec.generate_private_key(ec.SECP256R1())))
    key = signing_key(str(tmp_path / "key.pem"))
    assert key.public.statement(key.bundle(b"{}")) == b"{}"


def test_keys_that_cannot_be_used_are_named_without_a_word_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rsa.pem").write_bytes(pem(rsa.generate_private_key(65537, 2048)))
    (tmp_path / "p384.pem").write_bytes(pem(ec.generate_private_key(ec.SECP384R1())))
    (tmp_path / "broken.key").write_bytes((KEYS / "cosign.key").read_bytes().replace(b"eyJr", b"eyJx"))
    for name, words in {
        "rsa.pem": "is not a key for ECDSA on the curve P-256",
        "p384.pem": "is not a key for ECDSA on the curve P-256",
        "broken.key": "is no private key that can be read with this password",
        "none.key": "cannot read the key",
    }.items():
        with pytest.raises(UsageError, match=words):
            signing_key(str(tmp_path / name))
    with pytest.raises(UsageError, match="is a private key"):
        public_key(str(KEYS / "cosign.key"))
    with pytest.raises(UsageError, match="is no public key in PEM"):
        public_key(str(KEYS / "bundle.json"))
    monkeypatch.setenv("COSIGN_PASSWORD", "Wrong-Word")
    with pytest.raises(UsageError, match="no private key that can be read") as raised:
        signing_key(str(KEYS / "cosign.key"))
    assert "Wrong-Word" not in f"{raised.value.message}{raised.value.hint}"
    monkeypatch.delenv("COSIGN_PASSWORD")
    with pytest.raises(UsageError, match="has a password"):
        signing_key(str(KEYS / "cosign.key"))


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# Keys of a service, with which cosign signs.

# Takes the name of a service's key for that of a file. `sign-blob` and its options are those of 3.1.1.
STAND_IN = """#!/bin/sh
set -e
echo "$@" >> "$COSIGN_CALLS"
echo "WARNING: of the real one" >&2
if [ "$1" = public-key ]; then cat "$COSIGN_KEYS/cosign.pub"; exit; fi
[ "$1 $2 $4 $6" = "sign-blob --key --signing-config --bundle" ]
[ "$(cat "$5")" = '{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}' ]
openssl dgst -sha256 -sign "$COSIGN_KEYS/private.pem" -out "$7" "$8"
echo "{\\"messageSignature\\": {\\"signature\\": \\"$(base64 -w 0 "$7")\\"}}" > "$7"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """A cosign on PATH, with the key of some service; what it was called with."""
    private = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "private.pem").write_bytes(pem(private))
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "cosign.pub").write_bytes(public)
    program = tmp_path / "bin" / "cosign"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("COSIGN_KEYS", str(tmp_path))
    monkeypatch.setenv("COSIGN_CALLS", str(tmp_path / "calls"))
    return lambda: (tmp_path / "calls").read_text()


def test_a_key_of_a_service_signs_through_cosign(beside: Referrers, calls: Callable[[], str], tmp_path: Path) -> None:
    sign(beside, BASE_DIGEST, signing_key("awskms:///alias/x"))
    assert verify(beside, BASE_DIGEST, public_key(str(tmp_path / "cosign.pub")))
    assert verify(beside, BASE_DIGEST, public_key("awskms:///alias/x"))
    assert calls().count("sign-blob --key awskms:///alias/x --signing-config") == 3
    assert "secret" not in calls()


def test_a_cosign_that_fails_or_is_not_there_says_so(
    calls: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = signing_key("awskms:///alias/x")
    (tmp_path / "private.pem").unlink()
    with pytest.raises(UsageError, match=r"cosign sign-blob failed: .*private\.pem"):
        key.bundle(b"{}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="cosign is not installed"):
        key.bundle(b"{}")


# The real one.


@pytest.fixture
def cosign() -> Callable[..., subprocess.CompletedProcess[str]]:
    program = shutil.which("cosign")
    said = program and subprocess.run([program, "sign", "--help"], capture_output=True, text=True, check=False).stdout
    if not said or "--use-signing-config" not in said:
        pytest.skip("NOT TESTED: cosign 3 is not installed (apt-get install cosign on a Debian that has it)")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["cosign", *words], capture_output=True, text=True, check=False)

    return run


def test_cosign_verifies_what_we_signed(
    registry: Registry, name: str, key: SigningKey, cosign: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    beside = with_documents(registry, name, push_base(registry, name))
    check = ["--key", str(KEYS / "cosign.pub"), *OFFLINE]
    kinds = {"slsaprovenance1": documents(beside.image)[1], "cyclonedx": documents(beside.image)[0]}
    assert cosign("verify", *check, str(beside)).returncode
    sign(beside, BASE_DIGEST, key)
    done = cosign("verify", *check, str(beside))
    assert done.returncode == 0, done.stderr
    for kind, document in kinds.items():
        done = cosign("verify-attestation", "--type", kind, *check, str(beside))
        assert done.returncode == 0, done.stderr
        said = json.loads(base64.b64decode(json.loads(done.stdout)["payload"]))
        assert said["predicate"] == json.loads(document).get("predicate", json.loads(document))


def test_what_cosign_signed_and_attested_is_verified(
    registry: Registry, name: str, tmp_path: Path, cosign: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    beside = with_documents(registry, name, push_base(registry, name))
    sbom, provenance = documents(beside.image)
    quiet = ["--key", str(KEYS / "cosign.key"), "--tlog-upload=false", "--use-signing-config=false", "--yes"]
    done = [cosign("sign", *quiet, str(beside))]
    predicates = {"slsaprovenance1": json.dumps(json.loads(provenance)["predicate"]).encode(), "cyclonedx": sbom}
    for kind, predicate in predicates.items():
        (tmp_path / kind).write_bytes(predicate)
        attest = ["attest", *quiet, "--type", kind, "--predicate", str(tmp_path / kind)]
        done.append(cosign(*attest, str(beside)))
    assert not any(one.returncode for one in done), [one.stderr for one in done]
    assert verify(beside, BASE_DIGEST, public_key(str(KEYS / "cosign.pub")))


def test_cosign_signs_for_us_where_it_has_the_key(
    registry: Registry,
    name: str,
    public: PublicKey,
    monkeypatch: pytest.MonkeyPatch,
    cosign: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """With the one service that is everywhere: its own environment."""
    beside = with_documents(registry, name, push_base(registry, name))
    monkeypatch.setenv("COSIGN_PRIVATE_KEY", (KEYS / "cosign.key").read_text())
    sign(beside, BASE_DIGEST, signing_key("env://COSIGN_PRIVATE_KEY"))
    assert verify(beside, BASE_DIGEST, public)
    assert cosign("verify", "--key", str(KEYS / "cosign.pub"), *OFFLINE, str(beside)).returncode == 0
