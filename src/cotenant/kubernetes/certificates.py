"""The webhook's certificate, signed by an authority of its own that is thrown away afterwards: whoever has the
cluster's webhook configuration trusts this one certificate and nothing else."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.kubernetes.cluster import Cluster

YEARS = 10
LEAST_LEFT = datetime.timedelta(days=90)  # one that ends sooner is made anew


@dataclass(frozen=True)
class Certificate:
    """base64 of PEM, as Secrets have it."""

    certificate: str
    key: str
    authority: str

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.certificate.encode()).hexdigest()}"


def of_cluster(cluster: Cluster, service: str, namespace: str) -> Certificate | None:
    """The one of an earlier installation. None: there is none that the API server trusts yet for a while."""
    secret = cluster.get("v1", "Secret", service, namespace)
    configuration = cluster.get("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", service)
    if not secret or not configuration:
        return None
    data = secret.get("data") or {}
    client = (configuration.get("webhooks") or [{}])[0].get("clientConfig") or {}
    found = Certificate(data.get("tls.crt", ""), data.get("tls.key", ""), client.get("caBundle", ""))
    return found if is_valid(found, host_of(service, namespace)) else None


def is_valid(made: Certificate, host: str) -> bool:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import serialization

    try:
        signed = x509.load_pem_x509_certificate(base64.b64decode(made.certificate))
        authority = x509.load_pem_x509_certificate(base64.b64decode(made.authority))
        key = serialization.load_pem_private_key(base64.b64decode(made.key), None)
        signed.verify_directly_issued_by(authority)
        names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (
        ValueError,
        TypeError,
        x509.ExtensionNotFound,
        exceptions.InvalidSignature,
        exceptions.UnsupportedAlgorithm,
    ):
        return False
    end = min(signed.not_valid_after_utc, authority.not_valid_after_utc)
    return (
        key.public_key() == signed.public_key()
        and host in names.get_values_for_type(x509.DNSName)
        and end - datetime.datetime.now(datetime.UTC) > LEAST_LEFT
    )


def host_of(service: str, namespace: str) -> str:
    return f"{service}.{namespace}.svc"


def for_service(service: str, namespace: str, addresses: Sequence[str] = ()) -> Certificate:
    """`addresses` are IP addresses under which the service is reached as well."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.now(datetime.UTC)
    host = host_of(service, namespace)

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begin(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("cotenant-webhook-authority"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        )

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        begin("cotenant-webhook-authority", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    hosts = x509.SubjectAlternativeName(
        [
            x509.DNSName(host),
            x509.DNSName(f"{host}.cluster.local"),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        ]
    )
    certificate = (
        begin(host, key.public_key())
        .add_extension(hosts, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def text(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    return Certificate(text(certificate.public_bytes(pem)), text(private), text(authority.public_bytes(pem)))
