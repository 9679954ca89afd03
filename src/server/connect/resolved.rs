//! Everything needed to connect, as found by [`resolve`](super::resolve()), and text that must not be shown.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;

/// The directories of the server's socket if no host is given: Debian's, then PostgreSQL's own.
pub const DEFAULT_SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

pub const DEFAULT_PORT: u16 = 5432;

/// How TLS is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    Disable,
    /// Only if the server requires it.
    Allow,
    /// If the server supports it.
    Prefer,
    Require,
    /// Always, and the certificate must be issued by a trusted root.
    VerifyCa,
    /// Always, and the certificate must be issued by a trusted root and name the host.
    VerifyFull,
}

/// Where trusted root certificates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCertificates {
    /// A file; if it does not exist, there are no roots, which is an error only if the mode verifies.
    File(PathBuf),
    /// The operating system's certificates.
    System,
    /// None, because there is no home directory.
    Nowhere,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsParams {
    /// Whether to use TLS, and how strictly to verify.
    pub mode: SslMode,
    /// Whether to begin with TLS at once, without a request to the server (`sslnegotiation=direct`, PostgreSQL 17).
    pub direct: bool,
    pub roots: RootCertificates,
    /// The client's certificate, used if the file exists.
    pub certificate: Option<PathBuf>,
    /// Whether the user named the certificate file.
    pub certificate_given: bool,
    pub key: Option<PathBuf>,
    /// Whether to send the host's name to the server (`sslsni`).
    pub server_name: bool,
    /// Whether TLS 1.2 is allowed.
    pub tls12: bool,
    /// Whether TLS 1.3 is allowed.
    pub tls13: bool,
}

/// The kind of server to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSession {
    Any,
    /// One that accepts writes by default.
    ReadWrite,
    /// One that does not accept writes by default.
    ReadOnly,
    /// One that is not a standby.
    Primary,
    Standby,
    /// A standby if possible, otherwise any server.
    PreferStandby,
}

/// The location of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPlace {
    /// A Unix socket in this directory.
    Socket(PathBuf),
    /// A host name, to be resolved.
    Host(String),
    /// An IP address, with the host's name for certificates if one was given.
    Address {
        address: IpAddr,
        /// The name for which the server's certificate is verified.
        host: Option<String>,
    },
}

/// A server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub place: HostPlace,
    pub port: u16,
    /// The password for it, if known.
    pub password: Option<Secret>,
    /// Whether the password is from the password file.
    pub password_from_file: bool,
}

/// Everything needed to connect. `Debug` shows no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The servers, in the order to try them.
    pub targets: Vec<Host>,
    pub user: String,
    pub dbname: String,
    /// What the driver needs for every server: user, database, options, application name, TCP settings and channel
    /// binding.
    pub driver: Config,
    /// The time limit for each server, if one is given.
    pub connect_timeout: Option<Duration>,
    pub tls: TlsParams,
    /// The kind of server to accept.
    pub target_session: TargetSession,
    /// Whether the servers are tried in random order.
    pub load_balance: bool,
    pub passfile: Option<PathBuf>,
    /// Warnings for the user, such as `password file … has group or world access`.
    pub warnings: Vec<String>,
}

impl Host {
    /// The host, as `--host` takes it.
    pub(super) fn host(&self) -> String {
        match &self.place {
            HostPlace::Socket(dir) => dir.display().to_string(),
            HostPlace::Host(host) | HostPlace::Address { host: Some(host), .. } => host.clone(),
            HostPlace::Address { address, host: None } => address.to_string(),
        }
    }

    /// `host:port`.
    fn name(&self) -> String {
        match self.host() {
            address if address.contains(':') => format!("[{address}]:{}", self.port),
            host => format!("{host}:{}", self.port),
        }
    }
}

impl Resolved {
    /// Whether it is the server at the default sockets, because no host is given.
    fn is_default(&self) -> bool {
        let default = DEFAULT_SOCKET_DIRS.map(|dir| HostPlace::Socket(dir.into()));
        self.targets.iter().map(|host| &host.place).eq(&default)
    }

    /// The servers, as [`Resolved::name`] has them.
    pub fn servers(&self) -> String {
        match self.targets.first() {
            Some(host) if self.is_default() => format!("[local]:{}", host.port),
            _ => self.targets.iter().map(Host::name).collect::<Vec<_>>().join(","),
        }
    }

    /// The options of psql for the first server and the database.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let first = if !self.is_default() { self.targets.first() } else { None };
        let host = first.map(|host| ("-h", host.host()));
        let port = self.targets.first().map(|host| ("-p", host.port.to_string()));
        host.into_iter().chain(port).chain([("-d", self.dbname.clone())]).collect()
    }

    /// The database in reports: `host:port/dbname`, without the user and without anything secret.
    pub fn name(&self) -> String {
        format!("{}/{}", self.servers(), self.dbname)
    }
}

/// A password or other secret text. Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself; it must only be sent to the server.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::connect::{Given, ThisProcess, resolve};

    #[test]
    fn a_database_is_named_without_its_user_and_password() {
        let named = |text: &str| {
            let given = Given { dbname: Some(Secret::new(text)), ..Given::default() };
            let resolved = resolve(&given, &ThisProcess::default()).unwrap();
            let options = resolved.options().into_iter();
            let options: Vec<String> =
                options.map(|(name, value)| format!("{name} {value}")).collect();
            (resolved.name(), options.join(" "))
        };
        for (text, name, options) in [
            ("postgres://joe:sesame@h:5/d", "h:5/d", "-h h -p 5 -d d"),
            ("postgres://[::1]:5/d", "[::1]:5/d", "-h ::1 -p 5 -d d"),
            ("host=/s port=7 dbname=d password=sesame", "/s:7/d", "-h /s -p 7 -d d"),
            ("postgres://a:1,b:2/d", "a:1,b:2/d", "-h a -p 1 -d d"),
            ("host=a hostaddr=10.0.0.1 port=1 dbname=d", "a:1/d", "-h a -p 1 -d d"),
        ] {
            assert_eq!(named(text), (name.to_owned(), options.to_owned()), "{text}");
        }
    }
}
