//! TLS by sslmode, certificate and root, beside what psql does with the same.

use crate::support::command::{run, scrub};
use crate::support::library::{Around, write};
use crate::support::server::{self, Options, Server};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use toastctl::cli::connect::{ConnectionArgs, SessionOptions, connect};

/// Who may come in how. `certuser` shows a certificate, `scramuser` a password.
const HBA: &str = "\
local all all trust
hostssl all certuser 127.0.0.1/32 cert
hostssl all scramuser 127.0.0.1/32 scram-sha-256
hostssl all tlsuser 127.0.0.1/32 trust
hostnossl all plainuser 127.0.0.1/32 trust
host all postgres 127.0.0.1/32 trust
";

const ROLES: &str =
    "CREATE ROLE certuser LOGIN; CREATE ROLE tlsuser LOGIN; CREATE ROLE plainuser LOGIN;
     CREATE ROLE scramuser LOGIN PASSWORD 'open sesame'";

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Certificates and their keys, made by openssl once for all tests, in a directory that goes with the process.
pub(crate) struct Authority(PathBuf);

impl Authority {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn openssl(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        scrub(&mut openssl);
        let done = run(openssl.args(arguments.split(' ')).current_dir(&self.0));
        assert_eq!(done.code, Some(0), "openssl {arguments}: {}", done.stderr);
    }

    /// A certificate `name.crt` with `name.key`, signed by the root; without extensions it is of version 1.
    fn issue(&self, name: &str, common_name: &str, extensions: Option<&str>, days: u32) {
        self.openssl(&format!(
            "req -new -newkey rsa:2048 -nodes -subj /CN={common_name} -keyout {name}.key -out {name}.csr"
        ));
        let mut sign = format!(
            "x509 -req -sha256 -in {name}.csr -CA root.crt -CAkey root.key -CAcreateserial -days {days} -out {name}.crt"
        );
        if let Some(extensions) = extensions {
            write(&self.path("extensions"), extensions, 0o600);
            sign.push_str(" -extfile extensions");
        }
        self.openssl(&sign);
    }
}

pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let directory = tempfile::Builder::new().prefix("toastctl-").tempdir().unwrap().keep();
        // statics are not dropped
        std::mem::forget(server::remove_with_process(&directory));
        let authority = Authority(directory);
        for (root, subject) in [("root", "/CN=root"), ("other", "/CN=other"), ("twin", "/CN=root"), ("own", "/CN=localhost")] {
            authority.openssl(&format!(
                "req -new -x509 -newkey rsa:2048 -nodes -days 3650 -subj {subject} -keyout {root}.key -out {root}.crt"
            ));
        }
        authority.issue("named", "database", Some("subjectAltName=DNS:localhost,IP:127.0.0.1"), 365);
        authority.issue("old", "localhost", None, 365);
        authority.issue("elsewhere", "localhost", Some("subjectAltName=DNS:db.example.com"), 365);
        authority.issue("expired", "localhost", Some("subjectAltName=DNS:localhost"), 0);
        authority.issue("certuser", "certuser", Some("basicConstraints=CA:FALSE"), 365);
        authority
    })
}

/// A server with this certificate, which takes clients' certificates of the root.
fn server(certificate: &str, conf: &[(&str, &str)]) -> Server {
    server_with(Options::default(), certificate, conf)
}

fn server_with(options: Options, certificate: &str, conf: &[(&str, &str)]) -> Server {
    let authority = authority();
    let mut options = Options { tcp: true, ..options };
    for (name, value) in [("ssl", "on"), ("ssl_ca_file", "root.crt")].iter().chain(conf) {
        options = options.set(name, value);
    }
    options.files = vec![
        ("server.crt".into(), authority.read(&format!("{certificate}.crt"))),
        ("server.key".into(), authority.read(&format!("{certificate}.key"))),
        ("root.crt".into(), authority.read("root.crt")),
        ("pg_hba.conf".into(), HBA.into()),
    ];
    let server = Server::start(&options);
    server.database("postgres").psql(ROLES);
    server
}

/// Whether the session that a connection string makes is encrypted, or why there is none.
fn ours(conninfo: &str) -> Result<bool, String> {
    let args = ConnectionArgs { dbname: Some(conninfo.into()), ..ConnectionArgs::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let resolved = args.resolve(&Around::new(&[])).map_err(|error| error.to_string())?;
        let session = SessionOptions::read_only("test");
        let connection =
            connect(&resolved, &session, &mut |_| None).await.map_err(|error| error.to_string())?;
        // those that follow, and a cancellation, are as well protected
        let another = connection.open_another().await.map_err(|error| error.to_string())?;
        let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        for one in [&connection, &another] {
            let seen: bool = one.client().driver().query_one(encrypted, &[]).await.unwrap().get(0);
            assert_eq!(seen, connection.is_encrypted());
        }
        connection.canceller().cancel().await.map_err(|error| error.to_string())?;
        Ok(connection.is_encrypted())
    })
}

/// The same through psql.
fn psqls(conninfo: &str) -> Result<bool, String> {
    let mut psql = Command::new("psql");
    scrub(&mut psql);
    psql.args(["-X", "-At", "-w", "-d", conninfo, "-c"]);
    let done = run(psql.arg("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"));
    match done.code {
        Some(0) => Ok(done.stdout == "t\n"),
        _ => Err(done.stderr),
    }
}

#[track_caller]
fn same_as_psql(conninfo: &str) -> Result<bool, String> {
    let (ours, psqls) = (ours(conninfo), psqls(conninfo));
    assert_eq!(
        ours.as_ref().ok(),
        psqls.as_ref().ok(),
        "{conninfo}\nours: {ours:?}\npsql: {psqls:?}"
    );
    ours
}

#[test]
fn every_mode_believes_the_certificates_that_psql_believes() {
    let root = |name: &str| format!("sslrootcert={}", authority().path(name).display());
    let roots = [
        root("absent.crt"),
        root("root.crt"),
        root("other.crt"),
        root("own.crt"),
        root("twin.crt"),
    ];
    let mut outcomes = String::new();
    for certificate in ["named", "old", "own", "elsewhere", "expired"] {
        let server = server(certificate, &[]);
        for mode in MODES {
            for root in &roots {
                let conninfo = format!(
                    "host=localhost hostaddr=127.0.0.1 port={} user=postgres dbname=postgres sslmode={mode} {root}",
                    server.port()
                );
                outcomes.push(match same_as_psql(&conninfo) {
                    Ok(true) => 'e',
                    Ok(false) => 'p',
                    Err(_) => '-',
                });
            }
            outcomes.push(' ');
        }
        outcomes.push_str(certificate);
        outcomes.push('\n');
    }
    // a group for each mode; in it no root, the right one, another, the certificate "own", and one of the
    // right one's name with another key; e: encrypted, p: plain, -: refused
    insta::assert_snapshot!(outcomes, @"
    ppppp ppppp eeppp ee--- -e--- -e--- named
    ppppp ppppp eeppp ee--- -e--- -e--- old
    ppppp ppppp eppep e--e- ---e- ---e- own
    ppppp ppppp eeppp ee--- -e--- ----- elsewhere
    ppppp ppppp epppp e---- ----- ----- expired
    ");
}

#[test]
fn a_certificate_names_an_address_too_and_errors_say_what_is_wrong() {
    let server = server("elsewhere", &[]);
    let root = authority().path("root.crt");
    let conninfo = |host: &str, mode: &str, root: &Path| {
        format!(
            "host={host} hostaddr=127.0.0.1 port={} user=postgres dbname=postgres sslmode={mode} sslrootcert={}",
            server.port(),
            root.display()
        )
    };
    let prefix = format!("connection to server at \"127.0.0.1\", port {} failed: ", server.port());
    let error = same_as_psql(&conninfo("localhost", "verify-full", &root)).unwrap_err();
    let mismatch = "server certificate for \"db.example.com\" (and 1 other name) does not match host name \"localhost\"";
    assert_eq!(error, format!("{prefix}{mismatch}"));
    let error = same_as_psql(&conninfo("localhost", "verify-ca", &authority().path("other.crt")))
        .unwrap_err();
    assert!(error.starts_with(&format!("{prefix}SSL error: certificate verify failed")), "{error}");
    let absent = authority().path("absent.crt");
    let error = same_as_psql(&conninfo("localhost", "verify-ca", &absent)).unwrap_err();
    let missing =
        format!("{prefix}root certificate file \"{}\" does not exist\n", absent.display());
    assert!(error.starts_with(&missing), "{error}");
    assert_eq!(same_as_psql(&conninfo("db.example.com", "verify-full", &root)), Ok(true));

    let server = self::server("named", &[]);
    let by_address = format!(
        "host=127.0.0.1 port={} user=postgres dbname=postgres sslmode=verify-full sslrootcert={}",
        server.port(),
        root.display()
    );
    assert_eq!(same_as_psql(&by_address), Ok(true));
}

#[test]
fn each_mode_comes_in_where_the_server_lets_it() {
    let server = server("named", &[]);
    let root = authority().path("root.crt");
    for user in ["tlsuser", "plainuser", "stranger"] {
        for mode in MODES {
            let conninfo = format!(
                "host=localhost hostaddr=127.0.0.1 port={} user={user} dbname=postgres sslmode={mode} sslrootcert={}",
                server.port(),
                root.display()
            );
            let outcome = same_as_psql(&conninfo);
            if let Err(error) = &outcome {
                let psqls = psqls(&conninfo).unwrap_err();
                assert_eq!(format!("psql: error: {error}\n"), psqls);
            }
            let expected = match (user, mode) {
                ("tlsuser", "disable") | ("plainuser", "require" | "verify-ca" | "verify-full") => {
                    None
                }
                ("tlsuser", _) => Some(true),
                ("plainuser", _) => Some(false),
                _ => None,
            };
            assert_eq!(outcome.ok(), expected, "{user} {mode}");
        }
    }
}

#[test]
fn every_available_major_speaks_tls_and_the_newer_ones_at_once() {
    for major in crate::support::server::available_majors() {
        let server = server_with(Options::major(major), "named", &[]);
        let conninfo = format!(
            "host=127.0.0.1 port={} user=tlsuser dbname=postgres sslmode=verify-full sslrootcert={}",
            server.port(),
            authority().path("root.crt").display()
        );
        assert_eq!(ours(&conninfo), Ok(true), "{major}");
        let direct = ours(&format!("{conninfo} sslnegotiation=direct"));
        assert_eq!(direct.is_ok(), major >= 17, "{major}: {direct:?}");
    }
}

#[test]
fn scram_binds_to_the_channel() {
    for (certificate, versions) in
        [("named", ""), ("old", ""), ("old", "TLSv1.2"), ("named", "TLSv1.2")]
    {
        let server = server(certificate, &[("ssl_max_protocol_version", versions)]);
        let conninfo = format!(
            "host=127.0.0.1 port={} user=scramuser dbname=postgres sslmode=require channel_binding=require \
             sslrootcert=/absent password='open sesame'",
            server.port()
        );
        assert_eq!(same_as_psql(&conninfo), Ok(true), "{certificate} {versions}");
        let wrong = conninfo.replace("open sesame", "closed sesame");
        let error = same_as_psql(&wrong).unwrap_err();
        assert!(
            error.ends_with("FATAL:  password authentication failed for user \"scramuser\""),
            "{error}"
        );
        assert!(!error.contains("sesame"));
    }
}

#[test]
fn a_clients_certificate_lets_in_and_its_key_must_be_its_own() {
    let server = server("named", &[]);
    let key = authority().path("client.key");
    write(&key, &String::from_utf8(authority().read("certuser.key")).unwrap(), 0o600);
    let conninfo = |certificate: &Path, key: &Path| {
        format!(
            "host=127.0.0.1 port={} user=certuser dbname=postgres sslmode=verify-full sslrootcert={} \
             sslcert={} sslkey={}",
            server.port(),
            authority().path("root.crt").display(),
            certificate.display(),
            key.display()
        )
    };
    let certificate = authority().path("certuser.crt");
    let good = conninfo(&certificate, &key);
    assert_eq!(same_as_psql(&good), Ok(true));
    let error = same_as_psql(&good.replace("sslcert=", "sslcertmode=disable sslcert="));
    assert!(error.is_err());

    let open = authority().path("open.key");
    write(&open, &String::from_utf8(authority().read("certuser.key")).unwrap(), 0o644);
    for (certificate, key, message) in [
        (&certificate, open, "has group or world access; file must have permissions u=rw (0600)"),
        (
            &certificate,
            authority().path("absent.key"),
            "certificate present, but not private key file",
        ),
        (&certificate, authority().path("other.key"), "does not match private key file"),
        (&authority().path("other.crt"), authority().path("other.key"), ""),
    ] {
        write_private_copy(&key, key.ends_with("other.key"));
        let error = same_as_psql(&conninfo(certificate, &key)).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// Makes a key that openssl wrote as closed as libpq wants it.
fn write_private_copy(path: &Path, needed: bool) {
    if needed {
        let text = std::fs::read_to_string(path).unwrap();
        write(path, &text, 0o600);
    }
}
