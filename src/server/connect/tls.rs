//! TLS as specified by libpq's `ssl*` parameters (`initialize_SSL` in `fe-secure-openssl.c`), with rustls.

use super::error::os_message;
use super::resolved::{RootCertificates, SslMode, TlsParams};
use super::verify::{Trust, Verifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, version};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The maximum size of a file of certificates.
const LARGEST: u64 = 16 << 20;

const OTHER_WAYS: &str = "Either provide the file, use the system's trusted roots with sslrootcert=system, \
     or change sslmode to disable server certificate verification.";

/// Builds the connector, reading certificates and key.
///
/// # Errors
/// A file is missing, unreadable or readable by too many users; the message is libpq's.
pub(crate) fn connector(params: &TlsParams) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = trust(params)?;
    let verifier = Verifier::new(trust, provider.signature_verification_algorithms);
    let mut versions = Vec::new();
    if params.tls13 {
        versions.push(&version::TLS13);
    }
    if params.tls12 {
        versions.push(&version::TLS12);
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| format!("could not set SSL protocol versions: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match client_identity(params)? {
        Some((certificates, key)) => builder
            .with_client_auth_cert(certificates, key)
            .map_err(|error| format!("certificate does not match private key file: {error}"))?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = params.server_name;
    // some servers (16.4) fail where a cancel request takes up the session again; libpq does not try to
    config.resumption = rustls::client::Resumption::disabled();
    if params.direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

/// Which server certificates to trust. A root file that exists is used in every mode.
fn trust(params: &TlsParams) -> Result<Trust, String> {
    let verifies = params.mode >= SslMode::VerifyCa;
    let roots = match &params.roots {
        RootCertificates::System => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err("could not load system root certificate paths".to_owned());
            }
            found.certs
        }
        RootCertificates::File(path) if path.exists() => certificates(path).map_err(|error| {
            format!("could not read root certificate file \"{}\": {error}", path.display())
        })?,
        RootCertificates::File(path) if verifies => {
            return Err(format!(
                "root certificate file \"{}\" does not exist\n{OTHER_WAYS}",
                path.display()
            ));
        }
        RootCertificates::Nowhere if verifies => {
            return Err(format!(
                "could not get home directory to locate root certificate file\n{OTHER_WAYS}"
            ));
        }
        RootCertificates::File(_) | RootCertificates::Nowhere => return Ok(Trust::Anyone),
    };
    Ok(Trust::Roots { roots, names: params.mode == SslMode::VerifyFull })
}

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The client's certificate and key; `None` if there is no certificate.
fn client_identity(params: &TlsParams) -> Result<Option<ClientIdentity>, String> {
    let Some(path) = params.certificate.as_deref() else { return Ok(None) };
    if !path.exists() {
        if params.certificate_given {
            return Err(format!(
                "could not open certificate file \"{}\": No such file or directory",
                path.display()
            ));
        }
        return Ok(None);
    }
    let chain = certificates(path).map_err(|error| {
        format!("could not read certificate file \"{}\": {error}", path.display())
    })?;
    let Some(key) = params.key.as_deref() else {
        return Err("certificate present, but no private key file is known".to_owned());
    };
    Ok(Some((chain, private_key(key)?)))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let name = path.display();
    let metadata = std::fs::metadata(path)
        .map_err(|_| format!("certificate present, but not private key file \"{name}\""))?;
    if !metadata.is_file() {
        return Err(format!("private key file \"{name}\" is not a regular file"));
    }
    // A file of root may be readable by a group, so that services can share it.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.permissions().mode() & forbidden != 0 {
        return Err(format!(
            "private key file \"{name}\" has group or world access; file must have permissions u=rw (0600) \
             or less if owned by the current user, or permissions u=rw,g=r (0640) or less if owned by root"
        ));
    }
    let pem = read(path).map_err(|error| {
        format!("could not load private key file \"{name}\": {}", os_message(&error))
    })?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        format!("could not load private key file \"{name}\": no PEM private key without a passphrase in it")
    })
}

/// Reads a file of certificates or keys; refuses one that is too long, such as a device that never ends.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("longer than {} MB", LARGEST >> 20)));
    }
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(path).map_err(|error| os_message(&error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err("no certificate in PEM form in it".to_owned())
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

/// A connector that records whether a handshake was begun. After a refusal, `prefer` tries again without TLS only if
/// TLS was used.
#[derive(Clone)]
pub(crate) struct NotedConnector<T> {
    inner: T,
    begun: Arc<AtomicBool>,
}

impl<T> NotedConnector<T> {
    pub(crate) fn new(inner: T) -> NotedConnector<T> {
        NotedConnector { inner, begun: Arc::default() }
    }

    /// A handle to query this after the connector was consumed.
    pub(crate) fn begun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.begun)
    }
}

impl<S, T: MakeTlsConnect<S>> MakeTlsConnect<S> for NotedConnector<T> {
    type Stream = T::Stream;
    type TlsConnect = NotedConnector<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        let inner = self.inner.make_tls_connect(host)?;
        Ok(NotedConnector { inner, begun: Arc::clone(&self.begun) })
    }
}

impl<S, T: TlsConnect<S>> TlsConnect<S> for NotedConnector<T> {
    type Stream = T::Stream;
    type Error = T::Error;
    type Future = T::Future;

    fn connect(self, stream: S) -> Self::Future {
        self.begun.store(true, Ordering::Relaxed);
        self.inner.connect(stream)
    }
}
