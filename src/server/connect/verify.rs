//! Which server certificates are trusted, as by OpenSSL and libpq (`fe-secure-openssl.c`, `fe-secure-common.c`).
//!
//! rustls follows the rules of the web, which do not allow host names in the common name, certificates of version 1, or
//! a self-signed certificate as its own root. PostgreSQL's documentation creates all of these, so they are verified
//! here.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    self, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fmt;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};
use x509_cert::{Certificate, Version};

/// Which servers to trust.
pub(crate) enum Trust {
    /// Any server: the connection is encrypted, but the server is not authenticated.
    Anyone,
    /// Servers whose certificate is issued by one of these roots.
    Roots {
        roots: Vec<CertificateDer<'static>>,
        /// Whether the certificate must name the host.
        names: bool,
    },
}

/// The verifier used by rustls.
pub(crate) struct Verifier {
    trust: Trust,
    store: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("roots", &self.store.len()).finish()
    }
}

impl Verifier {
    pub(crate) fn new(trust: Trust, algorithms: WebPkiSupportedAlgorithms) -> Verifier {
        let mut store = RootCertStore::empty();
        if let Trust::Roots { roots, .. } = &trust {
            store.add_parsable_certificates(roots.iter().cloned());
        }
        Verifier { trust, store, algorithms }
    }

    fn verify_chain(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        roots: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let refused = match ParsedCertificate::try_from(certificate) {
            Ok(parsed) => {
                let checked = verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    &self.store,
                    intermediates,
                    now,
                    self.algorithms.all,
                );
                match checked {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        let Ok(parsed) = Certificate::from_der(certificate) else { return Err(refused) };
        let vouched = roots.iter().any(|root| {
            root == certificate
                || (parsed.tbs_certificate.version == Version::V1
                    && self.signed_by(&parsed, root).is_some_and(|signed| signed))
        });
        if !vouched {
            return Err(refused);
        }
        check_validity(&parsed, now)
    }

    /// Whether a root, which must be a certificate authority, signed this certificate directly.
    fn signed_by(&self, certificate: &Certificate, root: &CertificateDer<'_>) -> Option<bool> {
        let root = Certificate::from_der(root).ok()?;
        let (_, constraints) = root.tbs_certificate.get::<BasicConstraints>().ok()??;
        if !constraints.ca || root.tbs_certificate.subject != certificate.tbs_certificate.issuer {
            return Some(false);
        }
        let message = certificate.tbs_certificate.to_der().ok()?;
        let signature = certificate.signature.as_bytes()?;
        let algorithm = certificate.signature_algorithm.to_der().ok()?;
        let (key_algorithm, key) = public_key(&root)?;
        // The encoding of an algorithm identifier is shorter than 128 bytes, so its header has two bytes.
        let algorithm = algorithm.get(2..)?;
        Some(self.algorithms.all.iter().any(|candidate| {
            candidate.signature_alg_id().as_ref() == algorithm
                && candidate.public_key_alg_id().as_ref() == key_algorithm
                && candidate.verify_signature(&key, &message, signature).is_ok()
        }))
    }

    /// Verifies the handshake's signature under a certificate of version 1 with TLS 1.2, where any algorithm of the
    /// scheme may match the key.
    fn old_tls12_signature(
        &self,
        message: &[u8],
        certificate: &Certificate,
        signed: &DigitallySignedStruct,
    ) -> Option<HandshakeSignatureValid> {
        let (key_algorithm, key) = public_key(certificate)?;
        let (_, candidates) =
            self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme)?;
        candidates
            .iter()
            .filter(|candidate| candidate.public_key_alg_id().as_ref() == key_algorithm)
            .any(|candidate| candidate.verify_signature(&key, message, signed.signature()).is_ok())
            .then(HandshakeSignatureValid::assertion)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Trust::Roots { roots, names } = &self.trust {
            self.verify_chain(end_entity, intermediates, roots, now)?;
            if *names {
                check_name(end_entity, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match version_1(cert) {
            Some(old) => self
                .old_tls12_signature(message, &old, dss)
                .ok_or_else(|| CertificateError::BadSignature.into()),
            None => verify_tls12_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = version_1(cert)
            .and_then(|old| old.tbs_certificate.subject_public_key_info.to_der().ok());
        match key {
            Some(key) => crypto::verify_tls13_signature_with_raw_key(
                message,
                &SubjectPublicKeyInfoDer::from(key),
                dss,
                &self.algorithms,
            ),
            None => verify_tls13_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn version_1(certificate: &CertificateDer<'_>) -> Option<Certificate> {
    let parsed = Certificate::from_der(certificate).ok()?;
    (parsed.tbs_certificate.version == Version::V1).then_some(parsed)
}

/// The algorithm identifier of a certificate's key, without its header, and the bits of the key.
fn public_key(certificate: &Certificate) -> Option<(Vec<u8>, Vec<u8>)> {
    let info = &certificate.tbs_certificate.subject_public_key_info;
    let algorithm = info.algorithm.to_der().ok()?.get(2..)?.to_vec();
    Some((algorithm, info.subject_public_key.as_bytes()?.to_vec()))
}

fn check_validity(certificate: &Certificate, now: UnixTime) -> Result<(), Error> {
    let validity = &certificate.tbs_certificate.validity;
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Checks that the certificate names the host: in its alternative names or, if these contain no host, in its common
/// name (`pq_verify_peer_name_matches_certificate`).
fn check_name(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> Result<(), Error> {
    if let Ok(parsed) = ParsedCertificate::try_from(certificate)
        && verify_server_name(&parsed, host).is_ok()
    {
        return Ok(());
    }
    let parsed = Certificate::from_der(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let alternatives = alternative_names(&parsed);
    let common = common_name(&parsed);
    let host = host.to_str();
    if alternatives.is_empty() && common.as_deref().is_some_and(|name| name_matches(name, &host)) {
        return Ok(());
    }
    let names: Vec<String> = alternatives.into_iter().chain(common).collect();
    let shown = match names.as_slice() {
        [] => {
            return Err(Error::General(
                "could not get server's host name from server certificate".into(),
            ));
        }
        [name] => format!("\"{name}\""),
        [name, others @ ..] if others.len() == 1 => format!("\"{name}\" (and 1 other name)"),
        [name, others @ ..] => format!("\"{name}\" (and {} other names)", others.len()),
    };
    Err(Error::General(format!(
        "server certificate for {shown} does not match host name \"{host}\""
    )))
}

/// The alternative names that are host names or addresses.
fn alternative_names(certificate: &Certificate) -> Vec<String> {
    let Ok(Some((_, names))) = certificate.tbs_certificate.get::<SubjectAltName>() else {
        return Vec::new();
    };
    names
        .0
        .iter()
        .filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
            GeneralName::IpAddress(octets) => Some(match octets.as_bytes() {
                bytes if bytes.len() == 4 => {
                    std::net::Ipv4Addr::from(<[u8; 4]>::try_from(bytes).unwrap_or_default())
                        .to_string()
                }
                bytes => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap_or([0; 16]))
                    .to_string(),
            }),
            _ => None,
        })
        .collect()
}

/// The last common name of the subject, in any of the usual string types.
fn common_name(certificate: &Certificate) -> Option<String> {
    let subject = &certificate.tbs_certificate.subject;
    let value = subject.0.iter().flat_map(|set| set.0.iter()).rfind(|pair| pair.oid == CN)?;
    let any = &value.value;
    any.decode_as::<Utf8StringRef<'_>>()
        .map(|text| text.as_str().to_owned())
        .or_else(|_| any.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()))
        .or_else(|_| any.decode_as::<Ia5StringRef<'_>>().map(|text| text.as_str().to_owned()))
        .or_else(|_| any.decode_as::<TeletexStringRef<'_>>().map(|text| text.as_str().to_owned()))
        .ok()
        // Other programs would see a name that contains a NUL as a shorter name.
        .filter(|name| !name.contains('\0'))
}

/// Whether a certificate's name matches a host; `*.` matches exactly one label (`wildcard_certificate_match`).
fn name_matches(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(tail) = name.strip_prefix("*.") else { return false };
    host.split_once('.').is_some_and(|(label, rest)| {
        !label.is_empty() && !tail.is_empty() && rest.eq_ignore_ascii_case(tail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        assert!(name_matches("DB.example.com", "db.EXAMPLE.com"));
        assert!(name_matches("*.example.com", "db.example.com"));
        assert!(!name_matches("*.example.com", "a.db.example.com"));
        assert!(!name_matches("*.example.com", "example.com"));
        assert!(!name_matches("*.", "db."));
        assert!(!name_matches("d*.example.com", "db.example.com"));
    }
}
