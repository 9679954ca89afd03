//! Determines what to connect to from arguments, environment and files, with libpq's precedence
//! (`conninfo_array_parse`, `conninfo_add_defaults` and `connectOptions2` in `fe-connect.c`).
//!
//! Everything is read through [`Surroundings`], so that every rule can be tested.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, SslNegotiation};

use super::conninfo::{self, is_connection_string};
use super::resolved::{
    DEFAULT_PORT, DEFAULT_SOCKET_DIRS, Host, HostPlace, Resolved, RootCertificates, SslMode,
    TargetSession, TlsParams,
};
use super::surroundings::{self, Given, Surroundings};
use super::{ConnectError, ConnectResult, Params, Secret};

/// The directory of the system-wide `pg_service.conf`, unless `PGSYSCONFDIR` is set.
const SYSTEM_CONFIG_DIR: &str = "/etc/postgresql-common";

/// How long to wait for a node that does not answer, unless `connect_timeout` says otherwise.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);

/// Resolves what was given.
///
/// # Errors
/// A parameter is invalid; no message contains a password.
pub fn resolve(given: &Given, around: &impl Surroundings) -> ConnectResult<Resolved> {
    let params = gather(given, around)?;
    params.check_support()?;
    let home = around.environment().get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);

    let user = match params.get("user") {
        Some(user) => user.to_owned(),
        None => around.os_user().ok_or_else(|| {
            ConnectError::usage_with_hint(
                "no user name is given, and the operating system's is unknown",
                "Use --username or PGUSER.",
            )
        })?,
    };
    let dbname = params.get("dbname").unwrap_or(&user).to_owned();
    let mut targets = targets(&params)?;

    let passfile = params
        .get("passfile")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".pgpass")));
    let mut warnings = Vec::new();
    if let Some(password) = params.get("password") {
        for target in &mut targets {
            target.password = Some(Secret::new(password));
        }
    } else if let Some(path) = &passfile
        && let Some(text) = read_passfile(path, around, &mut warnings)
    {
        take_passwords(&mut targets, &text, &dbname, &user);
    }

    let tls = tls(&params, home.as_deref())?;
    Ok(Resolved {
        targets,
        driver: driver_config(&params, &user, &dbname, &tls)?,
        user,
        dbname,
        connect_timeout: match integer(&params, "connect_timeout")? {
            None => None,
            Some(..=0) => Some(Duration::MAX),
            Some(seconds) => Some(Duration::from_secs(seconds.unsigned_abs())),
        },
        tls,
        target_session: choice(
            &params,
            "target_session_attrs",
            TargetSession::Any,
            &[
                ("any", TargetSession::Any),
                ("read-write", TargetSession::ReadWrite),
                ("read-only", TargetSession::ReadOnly),
                ("primary", TargetSession::Primary),
                ("standby", TargetSession::Standby),
                ("prefer-standby", TargetSession::PreferStandby),
            ],
        )?,
        load_balance: choice(
            &params,
            "load_balance_hosts",
            false,
            &[("disable", false), ("random", true)],
        )?,
        passfile,
        warnings,
    })
}

/// Gives servers the passwords that a password file with this text has for them.
fn take_passwords(targets: &mut [Host], text: &str, dbname: &str, user: &str) {
    for target in targets {
        let host = passfile_host(target);
        let port = target.port.to_string();
        let wanted = surroundings::PasswordKey { host: &host, port: &port, dbname, user };
        target.password = surroundings::password_in(text, wanted);
        target.password_from_file = target.password.is_some();
    }
}

impl Resolved {
    /// The same for the server at this address, which is a connection string with a host and a port. Its password is
    /// that of the password file, else the one that the first server has accepted, unless that is from the file too.
    ///
    /// # Errors
    /// It is not such a string.
    pub(crate) fn at(&self, address: &str, around: &impl Surroundings) -> ConnectResult<Resolved> {
        let params = conninfo::parse(address)?;
        let place = ["host", "hostaddr", "port"];
        if let Some(other) = params.keywords().find(|keyword| !place.contains(keyword)) {
            return Err(ConnectError::usage(format!(
                "the address of a node has host, hostaddr and port, but not {other}"
            )));
        }
        if params.get("host").is_none() && params.get("hostaddr").is_none() {
            return Err(ConnectError::usage("the address of a node needs a host"));
        }
        let mut targets = targets(&params)?;
        let mut warnings = Vec::new();
        if let Some(path) = &self.passfile
            && let Some(text) = read_passfile(path, around, &mut warnings)
        {
            take_passwords(&mut targets, &text, &self.dbname, &self.user);
        }
        let first = self.targets.first().filter(|host| !host.password_from_file);
        let known = first.and_then(|host| host.password.clone());
        for target in targets.iter_mut().filter(|target| target.password.is_none()) {
            target.password = known.clone();
        }
        let connect_timeout = self.connect_timeout.or(Some(NODE_TIMEOUT));
        Ok(Resolved { targets, connect_timeout, warnings, ..self.clone() })
    }
}

/// All parameters; in descending precedence: connection string, command-line options, service, environment, defaults.
fn gather(given: &Given, around: &impl Surroundings) -> ConnectResult<Params> {
    let mut params = Params::default();
    for (keyword, value) in [("host", &given.host), ("port", &given.port), ("user", &given.user)] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            params.set(keyword, value)?;
        }
    }
    if let Some(dbname) = given.dbname.as_ref().map(Secret::reveal).filter(|name| !name.is_empty())
    {
        if is_connection_string(dbname) {
            params.override_with(conninfo::parse(dbname)?);
        } else {
            params.set("dbname", dbname)?;
        }
    }
    let environment = Params::from_environment(around.environment());
    if let Some(service) = params.get("service").or_else(|| environment.get("service")) {
        let file = params.get("servicefile").or_else(|| environment.get("servicefile"));
        let found = service_params(service, file, around)?;
        params.fill(found);
    }
    params.fill(environment);
    if let Some(database) = &given.database {
        params.set("dbname", database)?;
    }
    for (keyword, value) in &given.defaults {
        if params.get(keyword).is_none() {
            params.set(keyword, *value)?;
        }
    }
    if params.get("sslrootcert") == Some("system") && !params.is_given("sslmode") {
        params.set("sslmode", "verify-full")?;
    }
    Ok(params)
}

fn service_params(
    service: &str,
    file: Option<&str>,
    around: &impl Surroundings,
) -> ConnectResult<Params> {
    let environment = around.environment();
    let own = match file {
        Some(file) => Some(PathBuf::from(file)),
        None => environment.get("HOME").map(|home| Path::new(home).join(".pg_service.conf")),
    };
    let system_dir = environment.get("PGSYSCONFDIR").map_or(SYSTEM_CONFIG_DIR, String::as_str);
    let system = Path::new(system_dir).join("pg_service.conf");
    for path in own.into_iter().chain([system]) {
        match around.read(&path) {
            Ok(seen) => {
                if let Some(params) = surroundings::service_in(&seen.text, service, &path)? {
                    return Ok(params);
                }
            }
            Err(_) if file.is_some_and(|file| Path::new(file) == path) => {
                return Err(ConnectError::usage(format!(
                    "service file \"{}\" not found",
                    path.display()
                )));
            }
            Err(_) => {}
        }
    }
    Err(ConnectError::usage(format!("definition of service \"{service}\" not found")))
}

fn list<'a>(params: &'a Params, keyword: &str) -> Vec<&'a str> {
    params.get(keyword).map_or_else(Vec::new, |value| value.split(',').collect())
}

fn nonempty(list: &[&str], index: usize) -> Option<String> {
    list.get(index).copied().filter(|item| !item.is_empty()).map(str::to_owned)
}

fn targets(params: &Params) -> ConnectResult<Vec<Host>> {
    let hosts = list(params, "host");
    let addresses = list(params, "hostaddr");
    let ports = list(params, "port");
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(ConnectError::usage(format!(
            "could not match {} host names to {} hostaddr values",
            hosts.len(),
            addresses.len()
        )));
    }
    let count = hosts.len().max(addresses.len()).max(1);
    if ports.len() > 1 && ports.len() != count {
        return Err(ConnectError::usage(format!(
            "could not match {} port numbers to {count} hosts",
            ports.len()
        )));
    }
    let mut targets = Vec::new();
    for index in 0..count {
        let port = match ports.get(index).or(ports.first()) {
            Some(text) if !text.trim().is_empty() => port_number(text)?,
            _ => DEFAULT_PORT,
        };
        let host = nonempty(&hosts, index);
        let places = match (nonempty(&addresses, index), host) {
            (Some(address), host) => {
                let address = address.parse().map_err(|_| {
                    ConnectError::usage(format!("could not parse network address \"{address}\""))
                })?;
                vec![HostPlace::Address { address, host: host.filter(|host| !is_socket_dir(host)) }]
            }
            (None, None) => DEFAULT_SOCKET_DIRS
                .iter()
                .map(|dir| HostPlace::Socket(PathBuf::from(dir)))
                .collect(),
            (None, Some(host)) if is_socket_dir(&host) => {
                vec![HostPlace::Socket(PathBuf::from(host))]
            }
            (None, Some(host)) => vec![HostPlace::Host(host)],
        };
        targets.extend(places.into_iter().map(|place| Host {
            place,
            port,
            password: None,
            password_from_file: false,
        }));
    }
    Ok(targets)
}

/// Whether the host is a directory of sockets, that is, an absolute path (`is_unixsocket_path`).
fn is_socket_dir(host: &str) -> bool {
    host.starts_with('/')
}

fn port_number(text: &str) -> ConnectResult<u16> {
    let text = text.trim();
    let number: i64 = text.parse().map_err(|_| {
        ConnectError::usage(format!(
            "invalid integer value \"{text}\" for connection option \"port\""
        ))
    })?;
    u16::try_from(number)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| ConnectError::usage(format!("invalid port number: \"{text}\"")))
}

/// The host as the password file has it: `localhost` for the default sockets.
fn passfile_host(target: &Host) -> String {
    match &target.place {
        HostPlace::Socket(dir) if DEFAULT_SOCKET_DIRS.map(Path::new).contains(&dir.as_path()) => {
            "localhost".to_owned()
        }
        _ => target.host(),
    }
}

/// The text of the password file, unless other users can read the file.
fn read_passfile(
    path: &Path,
    around: &impl Surroundings,
    warnings: &mut Vec<String>,
) -> Option<String> {
    let seen = around.read(path).ok()?;
    let name = path.display();
    if !seen.is_file {
        warnings.push(format!("password file \"{name}\" is not a plain file"));
        return None;
    }
    if seen.mode & 0o077 != 0 {
        warnings.push(format!(
            "password file \"{name}\" has group or world access; permissions should be u=rw (0600) or less"
        ));
        return None;
    }
    Some(seen.text)
}

fn integer(params: &Params, keyword: &str) -> ConnectResult<Option<i64>> {
    let Some(text) = params.get(keyword) else { return Ok(None) };
    // The range is that of C's int.
    match text.trim().parse::<i32>() {
        Ok(number) => Ok(Some(i64::from(number))),
        Err(_) => Err(ConnectError::usage(format!(
            "invalid integer value \"{text}\" for connection option \"{keyword}\""
        ))),
    }
}

fn choice<T: Copy>(
    params: &Params,
    keyword: &str,
    default: T,
    choices: &[(&str, T)],
) -> ConnectResult<T> {
    let Some(value) = params.get(keyword) else { return Ok(default) };
    match choices.iter().find(|(name, _)| *name == value) {
        Some((_, chosen)) => Ok(*chosen),
        None => Err(ConnectError::usage(format!("invalid {keyword} value: \"{value}\""))),
    }
}

/// A number; zero means the kernel's default.
fn unless_zero(params: &Params, keyword: &str, default: u64) -> ConnectResult<Option<u64>> {
    let given = integer(params, keyword)?.map(|n| u64::try_from(n).unwrap_or(0));
    Ok(Some(given.unwrap_or(default)).filter(|n| *n > 0))
}

/// What all servers have in common. The defaults of TCP detect a dead network within half a minute, because the kernel's
/// two hours are too long for a user who waits for an answer.
fn driver_config(
    params: &Params,
    user: &str,
    dbname: &str,
    tls: &TlsParams,
) -> ConnectResult<Config> {
    let mut config = Config::new();
    config.user(user).dbname(dbname);
    if let Some(options) = params.get("options") {
        config.options(options);
    }
    let name = params.get("application_name");
    if let Some(name) = name.or_else(|| params.get("fallback_application_name")) {
        config.application_name(name);
    }
    config.keepalives(integer(params, "keepalives")?.unwrap_or(1) != 0);
    if let Some(idle) = unless_zero(params, "keepalives_idle", 10)? {
        config.keepalives_idle(Duration::from_secs(idle));
    }
    if let Some(interval) = unless_zero(params, "keepalives_interval", 5)? {
        config.keepalives_interval(Duration::from_secs(interval));
    }
    if let Some(count) = unless_zero(params, "keepalives_count", 3)? {
        config.keepalives_retries(u32::try_from(count).unwrap_or(u32::MAX));
    }
    if let Some(timeout) = unless_zero(params, "tcp_user_timeout", 25_000)? {
        config.tcp_user_timeout(Duration::from_millis(timeout));
    }
    if tls.direct {
        config.ssl_negotiation(SslNegotiation::Direct);
    }
    let bindings = [
        ("disable", ChannelBinding::Disable),
        ("prefer", ChannelBinding::Prefer),
        ("require", ChannelBinding::Require),
    ];
    config.channel_binding(choice(params, "channel_binding", ChannelBinding::Prefer, &bindings)?);
    Ok(config)
}

fn tls(params: &Params, home: Option<&Path>) -> ConnectResult<TlsParams> {
    let mode = choice(
        params,
        "sslmode",
        SslMode::Prefer,
        &[
            ("disable", SslMode::Disable),
            ("allow", SslMode::Allow),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-ca", SslMode::VerifyCa),
            ("verify-full", SslMode::VerifyFull),
        ],
    )?;
    let own = |name: &str| home.map(|home| home.join(".postgresql").join(name));
    let roots = match params.get("sslrootcert") {
        Some("system") => RootCertificates::System,
        Some(path) => RootCertificates::File(PathBuf::from(path)),
        None => own("root.crt").map_or(RootCertificates::Nowhere, RootCertificates::File),
    };
    let mode_name = params.get("sslmode").unwrap_or("prefer");
    if roots == RootCertificates::System && mode != SslMode::VerifyFull {
        return Err(ConnectError::usage(format!(
            "weak sslmode \"{mode_name}\" may not be used with sslrootcert=system (use \"verify-full\")"
        )));
    }
    let direct = choice(params, "sslnegotiation", false, &[("postgres", false), ("direct", true)])?;
    if direct && mode < SslMode::Require {
        return Err(ConnectError::usage(format!(
            "weak sslmode \"{mode_name}\" may not be used with sslnegotiation=direct \
             (use \"require\", \"verify-ca\", or \"verify-full\")"
        )));
    }
    let sends = choice(params, "sslcertmode", true, &[("disable", false), ("allow", true)])?;
    let file = |keyword: &str, default: &str| {
        if sends { params.get(keyword).map(PathBuf::from).or_else(|| own(default)) } else { None }
    };
    let versions = [("TLSv1", 10), ("TLSv1.1", 11), ("TLSv1.2", 12), ("TLSv1.3", 13)];
    let oldest = choice(params, "ssl_min_protocol_version", 12, &versions)?;
    let newest = choice(params, "ssl_max_protocol_version", 13, &versions)?;
    if oldest > newest {
        return Err(ConnectError::usage("invalid SSL protocol version range"));
    }
    if newest < 12 {
        return Err(ConnectError::usage("SSL protocol versions before TLSv1.2 are not supported"));
    }
    Ok(TlsParams {
        mode,
        direct,
        roots,
        certificate: file("sslcert", "postgresql.crt"),
        certificate_given: params.get("sslcert").is_some(),
        key: file("sslkey", "postgresql.key"),
        server_name: choice(params, "sslsni", true, &[("1", true), ("0", false)])?,
        tls12: oldest <= 12,
        tls13: newest >= 13,
    })
}

#[cfg(test)]
mod tests;
