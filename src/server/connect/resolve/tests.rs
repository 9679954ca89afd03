use super::*;
use crate::server::connect::surroundings::FileSeen;
use std::collections::BTreeMap;
use std::io;

/// Surroundings made up by a test.
struct Made {
    environment: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, FileSeen>,
}

impl Surroundings for Made {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    fn os_user(&self) -> Option<String> {
        Some("osuser".into())
    }

    fn read(&self, path: &Path) -> io::Result<FileSeen> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Surroundings with the home directory `/home` and these variables.
fn around(variables: &[(&str, &str)]) -> Made {
    let mut environment: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    environment.entry("HOME".into()).or_insert("/home".into());
    Made { environment, files: BTreeMap::new() }
}

impl Made {
    fn file(mut self, path: &str, mode: u32, text: &str) -> Made {
        let seen = FileSeen { text: text.into(), mode, is_file: true };
        self.files.insert(path.into(), seen);
        self
    }

    fn resolve(&self, dbname: &str) -> Resolved {
        self.try_resolve(dbname).unwrap()
    }

    fn try_resolve(&self, dbname: &str) -> Result<Resolved, ConnectError> {
        resolve(&Given { dbname: Some(Secret::new(dbname)), ..Given::default() }, self)
    }

    fn error(&self, dbname: &str) -> String {
        self.try_resolve(dbname).unwrap_err().to_string()
    }
}

fn password(resolved: &Resolved) -> Option<&str> {
    resolved.targets[0].password.as_ref().map(Secret::reveal)
}

#[test]
fn nothing_given_is_the_users_own_database_on_the_local_sockets() {
    let resolved = resolve(&Given::default(), &around(&[])).unwrap();
    assert_eq!((resolved.user.as_str(), resolved.dbname.as_str()), ("osuser", "osuser"));
    let places: Vec<_> = resolved.targets.iter().map(|t| (t.place.clone(), t.port)).collect();
    let socket = |dir: &str| (HostPlace::Socket(dir.into()), 5432);
    assert_eq!(places, [socket("/var/run/postgresql"), socket("/tmp")]);
    assert_eq!(resolved.tls.mode, SslMode::Prefer);
    assert_eq!(resolved.tls.roots, RootCertificates::File("/home/.postgresql/root.crt".into()));
    assert_eq!(resolved.connect_timeout, None);
    // A dead network is noticed within half a minute, regardless of the kernel's settings.
    let driver = resolved.driver;
    assert!(driver.get_keepalives());
    let probes =
        driver.get_keepalives_interval().unwrap() * driver.get_keepalives_retries().unwrap();
    let silence = driver.get_keepalives_idle() + probes;
    assert_eq!((silence, driver.get_tcp_user_timeout()), (Duration::from_secs(25), Some(&silence)));
}

#[test]
fn a_connection_string_beats_options_beat_the_service_beats_the_environment() {
    let made = around(&[
        ("PGHOST", "envhost"),
        ("PGPORT", "1"),
        ("PGUSER", "envuser"),
        ("PGDATABASE", "envdb"),
        ("PGSERVICE", "s"),
        ("PGAPPNAME", "envapp"),
    ])
    .file("/home/.pg_service.conf", 0o644, "[s]\nuser=svcuser\nport=2\nhost=svchost\n");
    let given = |dbname: &str| Given {
        host: Some("opthost".into()),
        port: Some("3".into()),
        dbname: Some(Secret::new(dbname)),
        ..Given::default()
    };
    let resolved = resolve(&given("host=strhost"), &made).unwrap();
    assert_eq!(resolved.targets[0].place, HostPlace::Host("strhost".into()));
    assert_eq!(resolved.targets[0].port, 3);
    assert_eq!(resolved.user, "svcuser");
    assert_eq!(resolved.dbname, "envdb");
    assert_eq!(resolved.driver.get_application_name(), Some("envapp"));
    let resolved = resolve(&given("plain"), &made).unwrap();
    assert_eq!(resolved.targets[0].place, HostPlace::Host("opthost".into()));
    assert_eq!(resolved.dbname, "plain");
}

#[test]
fn an_empty_value_in_a_string_hides_the_environment_but_an_empty_option_does_not() {
    let made = around(&[("PGHOST", "envhost"), ("PGOPTIONS", "-c geqo=off")]);
    assert_eq!(made.resolve("dbname=x").driver.get_options(), Some("-c geqo=off"));
    assert_eq!(made.resolve("options=''").driver.get_options(), None);
    let given = Given { host: Some(String::new()), ..Given::default() };
    let resolved = resolve(&given, &made).unwrap();
    assert_eq!(resolved.targets[0].place, HostPlace::Host("envhost".into()));
}

#[test]
fn services_are_looked_for_in_libpqs_places() {
    let system = "/etc/postgresql-common/pg_service.conf";
    let made = around(&[]).file(system, 0o644, "[sys]\nhost=a\n");
    assert_eq!(made.resolve("service=sys").targets[0].place, HostPlace::Host("a".into()));
    let made =
        around(&[("PGSYSCONFDIR", "/cfg")]).file("/cfg/pg_service.conf", 0o644, "[s]\nhost=b");
    assert_eq!(made.resolve("service=s").targets[0].place, HostPlace::Host("b".into()));
    let made = around(&[("PGSERVICEFILE", "/mine")]).file("/mine", 0o644, "[s]\nhost=c\n");
    assert_eq!(made.resolve("service=s").targets[0].place, HostPlace::Host("c".into()));
    assert_eq!(made.error("service=t"), "definition of service \"t\" not found");
    let made = around(&[("PGSERVICEFILE", "/gone")]);
    assert_eq!(made.error("service=s"), "service file \"/gone\" not found");
}

#[test]
fn hosts_addresses_and_ports_are_matched() {
    let made = around(&[]);
    let resolved = made.resolve("postgresql://a,b:6,[::1]/d?port=1,2,3");
    let places: Vec<_> = resolved.targets.iter().map(|t| (t.place.clone(), t.port)).collect();
    let host = |name: &str| HostPlace::Host(name.into());
    assert_eq!(places, [(host("a"), 1), (host("b"), 2), (host("::1"), 3)]);
    let resolved = made.resolve("host=a,,/run hostaddr='' port=,6,7");
    let ports: Vec<_> = resolved.targets.iter().map(|t| t.port).collect();
    assert_eq!(ports, [5432, 6, 6, 7]);
    assert_eq!(resolved.targets[3].place, HostPlace::Socket("/run".into()));
    let resolved = made.resolve("host=name hostaddr=10.0.0.1");
    let address = "10.0.0.1".parse().unwrap();
    assert_eq!(
        resolved.targets[0].place,
        HostPlace::Address { address, host: Some("name".into()) }
    );
    assert_eq!(
        made.error("host=a,b hostaddr=1.2.3.4"),
        "could not match 2 host names to 1 hostaddr values"
    );
    assert_eq!(made.error("host=a,b port=1,2,3"), "could not match 3 port numbers to 2 hosts");
    assert_eq!(made.error("hostaddr=nowhere"), "could not parse network address \"nowhere\"");
}

#[test]
fn numbers_and_choices_are_checked() {
    let made = around(&[]);
    let refused = [
        ("port=0", "invalid port number: \"0\""),
        ("port=65536", "invalid port number: \"65536\""),
        ("port=x", "invalid integer value \"x\" for connection option \"port\""),
        (
            "connect_timeout=1s",
            "invalid integer value \"1s\" for connection option \"connect_timeout\"",
        ),
        ("sslmode=maybe", "invalid sslmode value: \"maybe\""),
        ("channel_binding=on", "invalid channel_binding value: \"on\""),
        ("target_session_attrs=rw", "invalid target_session_attrs value: \"rw\""),
        ("load_balance_hosts=yes", "invalid load_balance_hosts value: \"yes\""),
        (
            "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
            "invalid SSL protocol version range",
        ),
        ("requirepeer=root", "connection option \"requirepeer\" is not supported"),
        (
            "sslrootcert=system sslmode=require",
            "weak sslmode \"require\" may not be used with sslrootcert=system (use \"verify-full\")",
        ),
        (
            "sslnegotiation=direct",
            "weak sslmode \"prefer\" may not be used with sslnegotiation=direct (use \"require\", \"verify-ca\", or \"verify-full\")",
        ),
    ];
    for (string, message) in refused {
        assert_eq!(made.error(string), message);
    }
    let resolved = made.resolve(
        "connect_timeout=7 keepalives=0 keepalives_count=3 tcp_user_timeout=250 target_session_attrs=standby \
         load_balance_hosts=random ssl_min_protocol_version=TLSv1.3 sslnegotiation=direct sslmode=require",
    );
    assert_eq!(resolved.connect_timeout, Some(Duration::from_secs(7)));
    assert!(!resolved.driver.get_keepalives());
    assert_eq!(resolved.driver.get_keepalives_retries(), Some(3));
    assert_eq!(resolved.driver.get_tcp_user_timeout(), Some(&Duration::from_millis(250)));
    let kernels = made.resolve("keepalives_idle=0 tcp_user_timeout=-1").driver;
    assert_eq!(kernels.get_keepalives_idle(), Config::new().get_keepalives_idle());
    assert_eq!(kernels.get_tcp_user_timeout(), None);
    assert_eq!(resolved.target_session, TargetSession::Standby);
    assert!(resolved.load_balance && resolved.tls.direct && !resolved.tls.tls12);
    assert_eq!(made.resolve("connect_timeout=-1").connect_timeout, Some(Duration::MAX));
    assert_eq!(made.resolve("sslrootcert=system").tls.mode, SslMode::VerifyFull);
}

#[test]
fn passwords_come_from_what_was_given_or_the_password_file() {
    let made = around(&[("PGPASSWORD", "from env")]);
    let made = made.file("/home/.pgpass", 0o600, "*:*:*:*:from file\n");
    assert_eq!(password(&made.resolve("user=u")), Some("from env"));
    assert_eq!(password(&made.resolve("postgres://u:from%20uri@/d")), Some("from uri"));
    let made = around(&[]).file(
        "/home/.pgpass",
        0o600,
        "\
localhost:5432:d:u:default socket
/run:5432:d:u:other socket
name:5432:d:u:by name
10.0.0.1:5432:d:u:by address
",
    );
    assert_eq!(password(&made.resolve("user=u dbname=d")), Some("default socket"));
    assert!(made.resolve("user=u dbname=d").targets[0].password_from_file);
    assert_eq!(password(&made.resolve("user=u dbname=d host=/run")), Some("other socket"));
    assert_eq!(
        password(&made.resolve("user=u dbname=d host=name hostaddr=10.0.0.1")),
        Some("by name")
    );
    assert_eq!(password(&made.resolve("user=u dbname=d hostaddr=10.0.0.1")), Some("by address"));
    assert_eq!(password(&made.resolve("user=u dbname=other")), None);
}

#[test]
fn a_password_file_that_others_can_read_is_ignored_with_a_warning() {
    for mode in [0o640, 0o604, 0o620] {
        let made = around(&[("PGPASSFILE", "/p")]).file("/p", mode, "*:*:*:*:secret\n");
        let resolved = made.resolve("user=u");
        assert_eq!(password(&resolved), None);
        assert_eq!(
            resolved.warnings,
            [
                "password file \"/p\" has group or world access; permissions should be u=rw (0600) or less"
            ]
        );
    }
    let mut made = around(&[("PGPASSFILE", "/p")]).file("/p", 0o600, "*:*:*:*:secret\n");
    made.files.get_mut(Path::new("/p")).unwrap().is_file = false;
    assert_eq!(made.resolve("user=u").warnings, ["password file \"/p\" is not a plain file"]);
    assert_eq!(around(&[("PGPASSFILE", "/gone")]).resolve("user=u").warnings, [""; 0]);
}

#[test]
fn certificates_are_looked_for_at_home_unless_named() {
    let tls = around(&[]).resolve("user=u").tls;
    assert_eq!(tls.certificate, Some("/home/.postgresql/postgresql.crt".into()));
    assert_eq!(tls.key, Some("/home/.postgresql/postgresql.key".into()));
    assert!(!tls.certificate_given);
    let tls = around(&[("PGSSLCERT", "/c"), ("PGSSLKEY", "/k"), ("PGSSLROOTCERT", "/r")])
        .resolve("user=u")
        .tls;
    assert_eq!((tls.certificate, tls.key), (Some("/c".into()), Some("/k".into())));
    assert_eq!(tls.roots, RootCertificates::File("/r".into()));
    assert_eq!(around(&[]).resolve("sslcertmode=disable").tls.certificate, None);
    let homeless = Made { environment: BTreeMap::new(), files: BTreeMap::new() };
    assert_eq!(homeless.resolve("user=u").tls.roots, RootCertificates::Nowhere);
    assert_eq!(around(&[("PGREQUIRESSL", "1")]).resolve("user=u").tls.mode, SslMode::Require);
}

#[test]
fn nothing_resolved_shows_a_password() {
    let made = around(&[("PGPASSWORD", "sesame")]);
    let shown = format!("{:?}", made.resolve("user=u"));
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(
        !format!(
            "{:?}",
            Given { dbname: Some(Secret::new("password=sesame")), ..Given::default() }
        )
        .contains("sesame")
    );
}

#[test]
fn a_node_is_reached_with_the_same_credentials_at_its_own_address() {
    let mut around = around(&[("PGUSER", "joe"), ("PGDATABASE", "app"), ("PGOPTIONS", "-c a=b")]);
    let text = "one:5432:app:joe:first\ntwo:5433:app:joe:second\n".to_owned();
    around
        .files
        .insert(PathBuf::from("/home/.pgpass"), FileSeen { text, mode: 0o600, is_file: true });
    let of_file =
        resolve(&Given { host: Some("one".into()), ..Given::default() }, &around).unwrap();
    let node = of_file.at("host=two port=5433", &around).unwrap();
    assert_eq!((node.servers().as_str(), password(&node)), ("two:5433", Some("second")));
    assert_eq!((node.user.as_str(), node.dbname.as_str()), ("joe", "app"));
    assert_eq!(node.driver, of_file.driver);
    assert_eq!(node.connect_timeout, Some(NODE_TIMEOUT));
    // The file has a password for the first server only, which another server must not get.
    assert_eq!(password(&of_file.at("host=three port=5432", &around).unwrap()), None);
    let dbname = Some(Secret::new("host=one password=given connect_timeout=3"));
    let given = resolve(&Given { dbname, ..Given::default() }, &around).unwrap();
    let node = given.at("host=three", &around).unwrap();
    assert_eq!((password(&node), node.targets[0].port), (Some("given"), DEFAULT_PORT));
    assert_eq!(node.connect_timeout, Some(Duration::from_secs(3)));
    for (address, error) in [
        ("port=1", "the address of a node needs a host"),
        ("host=a user=b", "the address of a node has host, hostaddr and port, but not user"),
    ] {
        assert_eq!(given.at(address, &around).unwrap_err().to_string(), error);
    }
}
