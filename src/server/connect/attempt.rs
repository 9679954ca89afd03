//! Tries servers, addresses and encryptions in libpq's order until a connection is accepted (`PQconnectPoll`).

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio_postgres::config;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use super::Secret;
use super::error::{
    Address, ConnectError, ConnectResult, Refusal, RefusalKind, os_message, prefix, refusal,
    server_message,
};
use super::life::{Raw, drive};
use super::resolved::{Host, HostPlace, Resolved, SslMode, TargetSession};
use super::session::Connection;
use super::settings::SessionOptions;
use super::surroundings::ThisProcess;
use super::tls::{self, NotedConnector};

/// How long one address may take until its server has answered the first query, unless `connect_timeout` says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// Prompts for the password of this user; returns `None` if there is no terminal to prompt on.
pub type Ask<'a> = &'a mut (dyn FnMut(&str) -> Option<Secret> + Send);

/// Connects and sets up the session. Requires a Tokio runtime.
///
/// # Errors
/// No server accepts the connection (with a message for each attempt), or the server refuses the session's settings.
pub async fn connect(
    resolved: &Resolved,
    session: &SessionOptions,
    ask: Ask<'_>,
) -> ConnectResult<Connection> {
    let mut resolved = resolved.clone();
    if resolved.load_balance {
        resolved.targets.shuffle(&mut rand::rng());
    }
    if resolved.driver.get_application_name().is_none() {
        resolved.driver.application_name(&session.application_name);
    }
    let made = match try_targets(&resolved).await {
        Err(ConnectError::Failed { attempts, needs_password: true }) => {
            let Some(password) = ask(&resolved.user) else {
                return Err(ConnectError::Failed { attempts, needs_password: true });
            };
            for target in &mut resolved.targets {
                target.password.get_or_insert_with(|| password.clone());
            }
            try_targets(&resolved).await
        }
        made => made,
    };
    let (raw, target) = made?;
    // Later connections go to the same server, even if others are given.
    resolved.targets = vec![target];
    resolved.target_session = TargetSession::Any;
    let limit = resolved.clone();
    match within(&limit, Connection::set_up(raw, resolved, session.clone())).await {
        Some(connection) => connection,
        None => {
            let attempts = vec!["the server does not answer: timeout expired".to_owned()];
            Err(ConnectError::Failed { attempts, needs_password: false })
        }
    }
}

impl Connection {
    /// Opens another connection to the same server, as the same user and with the same settings, without prompting.
    ///
    /// # Errors
    /// Like [`connect`](super::connect).
    pub async fn open_another(&self) -> ConnectResult<Connection> {
        self.open_another_with(self.session()).await
    }

    /// Like [`open_another`](Self::open_another), with other settings.
    ///
    /// # Errors
    /// Like [`connect`](super::connect).
    pub async fn open_another_with(&self, session: &SessionOptions) -> ConnectResult<Connection> {
        connect(self.resolved(), session, &mut |_| None).await
    }

    /// Like [`open_another_with`](Self::open_another_with), to the server at another address: see [`Resolved::at`].
    ///
    /// # Errors
    /// Like [`connect`](super::connect).
    pub(crate) async fn open_at(
        &self,
        address: &str,
        session: &SessionOptions,
    ) -> ConnectResult<Connection> {
        let resolved = self.resolved().at(address, &ThisProcess::default())?;
        connect(&resolved, session, &mut |_| None).await
    }
}

async fn try_targets(resolved: &Resolved) -> ConnectResult<(Raw, Host)> {
    let mut attempts = Vec::new();
    // With prefer-standby, standbys are tried first, then all servers.
    let rounds: &[TargetSession] = match resolved.target_session {
        TargetSession::PreferStandby => &[TargetSession::Standby, TargetSession::Any],
        _ => std::slice::from_ref(&resolved.target_session),
    };
    for wanted in rounds {
        for target in &resolved.targets {
            let addresses = match addresses(target, resolved).await {
                Ok(addresses) => addresses,
                Err(message) => {
                    attempts.push(message);
                    continue;
                }
            };
            for address in addresses {
                match try_address(resolved, target, &address, *wanted, &mut attempts).await {
                    Ok(raw) => return Ok((raw, narrowed(target, address))),
                    Err(RefusalKind::Unreachable | RefusalKind::Unwanted) => {}
                    Err(RefusalKind::NoDatabase) => {
                        return Err(ConnectError::NoDatabase { attempts, hint: None });
                    }
                    Err(kind) => {
                        let needs_password = kind == RefusalKind::NeedsPassword;
                        return Err(ConnectError::Failed { attempts, needs_password });
                    }
                }
            }
        }
    }
    Err(ConnectError::Failed { attempts, needs_password: false })
}

fn narrowed(target: &Host, address: Address) -> Host {
    let place = match address {
        Address::Socket(dir) => HostPlace::Socket(dir),
        Address::Ip(address, host) => HostPlace::Address { address, host },
    };
    Host { place, ..target.clone() }
}

async fn addresses(target: &Host, resolved: &Resolved) -> Result<Vec<Address>, String> {
    let host = match &target.place {
        HostPlace::Socket(dir) => return Ok(vec![Address::Socket(dir.clone())]),
        HostPlace::Address { address, host } => {
            return Ok(vec![Address::Ip(*address, host.clone())]);
        }
        HostPlace::Host(host) => host,
    };
    let failed = |why: &str| format!("could not translate host name \"{host}\" to address: {why}");
    let looked_up = within(resolved, tokio::net::lookup_host((host.as_str(), target.port))).await;
    let found = match looked_up {
        None => return Err(failed("timeout expired")),
        Some(Err(error)) => {
            let message = os_message(&error);
            let message = message.strip_prefix("failed to lookup address information: ");
            return Err(failed(message.unwrap_or(&os_message(&error))));
        }
        Some(Ok(found)) => found,
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    if resolved.load_balance {
        addresses.shuffle(&mut rand::rng());
    }
    Ok(addresses.into_iter().map(|address| Address::Ip(address, Some(host.clone()))).collect())
}

/// Awaits the future for at most the user's connect timeout.
async fn within<F: Future>(resolved: &Resolved, future: F) -> Option<F::Output> {
    tokio::time::timeout(resolved.connect_timeout.unwrap_or(PATIENCE), future).await.ok()
}

/// Whether to use encryption.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Never,
    IfOffered,
    Always,
}

fn encryptions(mode: SslMode, address: &Address) -> &'static [Encryption] {
    match (address, mode) {
        // A process that can listen on a local socket could read its traffic anyway.
        (Address::Socket(_), _) | (_, SslMode::Disable) => &[Encryption::Never],
        (_, SslMode::Allow) => &[Encryption::Never, Encryption::Always],
        (_, SslMode::Prefer) => &[Encryption::IfOffered, Encryption::Never],
        (_, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => &[Encryption::Always],
    }
}

async fn try_address(
    resolved: &Resolved,
    target: &Host,
    address: &Address,
    wanted: TargetSession,
    attempts: &mut Vec<String>,
) -> Result<Raw, RefusalKind> {
    let mut last = RefusalKind::Unreachable;
    for encryption in encryptions(resolved.tls.mode, address) {
        let (tried, encrypted) = try_once(resolved, target, address, wanted, *encryption).await;
        let refusal = match tried {
            Ok(raw) => return Ok(raw),
            Err(refusal) => refusal,
        };
        attempts.push(format!("{}{}", prefix(target, address), refusal.message));
        last = refusal.kind;
        let is_refused = matches!(last, RefusalKind::Refused | RefusalKind::NoDatabase);
        let again = match encryption {
            Encryption::IfOffered => encrypted && (is_refused || last == RefusalKind::Encryption),
            Encryption::Never => is_refused,
            Encryption::Always => false,
        };
        if !again {
            break;
        }
    }
    Err(last)
}

/// The result of one attempt, and whether a TLS handshake was begun.
async fn try_once(
    resolved: &Resolved,
    target: &Host,
    address: &Address,
    wanted: TargetSession,
    encryption: Encryption,
) -> (Result<Raw, Refusal>, bool) {
    let mut config = config(resolved, target, address);
    if encryption == Encryption::Never {
        config.ssl_mode(config::SslMode::Disable);
        let attempt = async {
            let (client, connection) = config
                .connect(NoTls)
                .await
                .map_err(|error| refusal(&error, resolved, target, address, false))?;
            wanted_only(drive(client, connection, None), wanted).await
        };
        return (finish(within(resolved, attempt).await), false);
    }
    let connector = match tls::connector(&resolved.tls) {
        Ok(connector) => connector,
        // This counts as TLS begun, because without TLS these files do not matter.
        Err(message) => return (Err(Refusal { message, kind: RefusalKind::Encryption }), true),
    };
    config.ssl_mode(match encryption {
        Encryption::IfOffered => config::SslMode::Prefer,
        Encryption::Never | Encryption::Always => config::SslMode::Require,
    });
    let noted = NotedConnector::new(connector.clone());
    let begun = noted.begun();
    let attempt = async {
        let (client, connection) = config.connect(noted).await.map_err(|error| {
            refusal(&error, resolved, target, address, begun.load(Ordering::Relaxed))
        })?;
        let tls = begun.load(Ordering::Relaxed).then_some(connector);
        wanted_only(drive(client, connection, tls), wanted).await
    };
    let tried = finish(within(resolved, attempt).await);
    (tried, begun.load(Ordering::Relaxed))
}

fn finish(tried: Option<Result<Raw, Refusal>>) -> Result<Raw, Refusal> {
    tried.unwrap_or_else(|| {
        Err(Refusal { message: "timeout expired".to_owned(), kind: RefusalKind::Unreachable })
    })
}

fn config(resolved: &Resolved, target: &Host, address: &Address) -> Config {
    let mut config = resolved.driver.clone();
    config.port(target.port);
    match address {
        Address::Socket(dir) => {
            config.host_path(dir);
        }
        Address::Ip(ip, host) => {
            // The name is only for the certificate; the connection uses the address.
            config.host(host.clone().unwrap_or_else(|| ip.to_string())).hostaddr(*ip);
        }
    }
    if let Some(password) = &target.password {
        config.password(password.reveal());
    }
    config
}

/// Keeps the connection only if the server is of the requested kind.
async fn wanted_only(raw: Raw, wanted: TargetSession) -> Result<Raw, Refusal> {
    let question = match wanted {
        TargetSession::Any | TargetSession::PreferStandby => return Ok(raw),
        TargetSession::ReadWrite | TargetSession::ReadOnly => {
            "SELECT pg_catalog.pg_is_in_recovery() \
             OR pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool"
        }
        TargetSession::Primary | TargetSession::Standby => "SELECT pg_catalog.pg_is_in_recovery()",
    };
    let answer = raw.client.simple_query(question).await.map_err(|error| Refusal {
        message: error.as_db_error().map_or_else(|| error.to_string(), server_message),
        kind: RefusalKind::Refused,
    })?;
    let yes = answer.iter().any(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
        _ => false,
    });
    let unwanted = match (wanted, yes) {
        (TargetSession::ReadWrite, true) => "session is read-only",
        (TargetSession::ReadOnly, false) => "session is not read-only",
        (TargetSession::Primary, true) => "server is in hot standby mode",
        (TargetSession::Standby, false) => "server is not in hot standby mode",
        _ => return Ok(raw),
    };
    Err(Refusal { message: unwanted.to_owned(), kind: RefusalKind::Unwanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_never_encrypted_and_verifying_modes_never_plain() {
        let socket = Address::Socket("/tmp".into());
        let remote = Address::Ip(IpAddr::from([127, 0, 0, 1]), None);
        assert!(encryptions(SslMode::VerifyFull, &socket) == [Encryption::Never]);
        for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
            assert!(encryptions(mode, &remote) == [Encryption::Always]);
        }
        assert!(encryptions(SslMode::Prefer, &remote)[0] == Encryption::IfOffered);
        assert!(encryptions(SslMode::Allow, &remote)[0] == Encryption::Never);
    }
}
