//! Everything that a connection needs, as [`resolve`](super::resolve()) found it; text that is never shown.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How TLS is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server will not have it otherwise.
    Allow,
    /// If the server has it.
    Prefer,
    /// Always.
    Require,
    /// Always, and the certificate comes from a trusted root.
    VerifyCa,
    /// Always, and the certificate comes from a trusted root and names the host.
    VerifyFull,
}

/// Where trusted root certificates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCertificates {
    /// A file; one that is not there means none unless the mode verifies.
    File(PathBuf),
    /// Those of the operating system.
    System,
    /// Nowhere: there is no home directory to look in.
    Nowhere,
}

/// What TLS needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsParams {
    /// Whether and how far TLS is used.
    pub mode: SslMode,
    /// TLS from the first byte on, without asking the server (`sslnegotiation=direct`, 17).
    pub direct: bool,
    /// The roots.
    pub roots: RootCertificates,
    /// The client's certificate, used if the file is there.
    pub certificate: Option<PathBuf>,
    /// Whether the certificate's file was named by the user.
    pub certificate_given: bool,
    /// The client's key.
    pub key: Option<PathBuf>,
    /// Whether the server is told the host's name (`sslsni`).
    pub server_name: bool,
    /// Whether TLS 1.2 may be used.
    pub tls12: bool,
    /// Whether TLS 1.3 may be used.
    pub tls13: bool,
}

/// What kind of server to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSession {
    /// Any.
    Any,
    /// One that takes writes by default.
    ReadWrite,
    /// One that does not.
    ReadOnly,
    /// One that is not a standby.
    Primary,
    /// A standby.
    Standby,
    /// A standby if any, else any.
    PreferStandby,
}

/// Where one server may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPlace {
    /// A Unix socket in this directory.
    Socket(PathBuf),
    /// A host by name, to be looked up.
    Host(String),
    /// An address, with the host's name for certificates where one was given.
    Address {
        /// The address itself.
        address: IpAddr,
        /// The name.
        host: Option<String>,
    },
}

/// One server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Where.
    pub place: HostPlace,
    /// The port.
    pub port: u16,
    /// The password for it, where one is known.
    pub password: Option<Secret>,
    /// Whether the password comes from the password file.
    pub password_from_file: bool,
}

/// TCP settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpParams {
    /// Whether the kernel probes a silent connection.
    pub keepalives: bool,
    /// Silence before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Probes before the connection is given up.
    pub count: Option<u32>,
    /// How long sent bytes may stay unacknowledged.
    pub user_timeout: Option<Duration>,
}

/// Use of SCRAM's channel binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server has it.
    Prefer,
    /// Always.
    Require,
}

/// Everything needed to connect. `Debug` shows no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The servers, in the order to try them.
    pub targets: Vec<Host>,
    /// The role.
    pub user: String,
    /// The database.
    pub dbname: String,
    /// Command-line options for the backend (`PGOPTIONS`).
    pub options: Option<String>,
    /// The name for `pg_stat_activity`, where the user gave one.
    pub application_name: Option<String>,
    /// The time one server has to answer; `None`: as long as it takes.
    pub connect_timeout: Option<Duration>,
    /// TCP settings.
    pub tcp: TcpParams,
    /// TLS settings.
    pub tls: TlsParams,
    /// Channel binding.
    pub channel_binding: ChannelBinding,
    /// What kind of server to accept.
    pub target_session: TargetSession,
    /// Whether the servers are tried in random order.
    pub load_balance: bool,
    /// The password file.
    pub passfile: Option<PathBuf>,
    /// What the user should know although it goes on, as `password file … has group or world access`.
    pub warnings: Vec<String>,
}

/// A password or the like. Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the text in.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for the wire alone.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
