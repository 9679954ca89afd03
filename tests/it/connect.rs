//! Connections to real servers, by every way of saying whom, where and how.

use crate::support::command::{Run, run, scrub};
use crate::support::library::{Around, block_on, write};
use crate::support::proxy::Proxy;
use crate::support::server::{self, Auth, Options, Server};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use toastctl::cli::connect::{
    ConnectError, Connection, ConnectionArgs, Secret, SessionOptions, StatementError, connect,
};

const PASSWORD: &str = "ta'rt \\: pan";

async fn open(dbname: &str, variables: &[(&str, &str)]) -> Result<Connection, ConnectError> {
    let args = ConnectionArgs { dbname: Some(dbname.into()), ..ConnectionArgs::default() };
    let resolved = args.resolve(&Around::new(variables))?;
    connect(&resolved, &SessionOptions::read_only("test"), &mut |_| None).await
}

async fn show(connection: &Connection, sql: &str) -> String {
    connection.client().driver().query_one(sql, &[]).await.unwrap().get(0)
}

/// Who we are, after a successful connection; the error's text otherwise.
fn try_open(dbname: &str, variables: &[(&str, &str)]) -> Result<String, String> {
    block_on(async {
        match open(dbname, variables).await {
            Ok(connection) => Ok(show(&connection, "SELECT current_user::text").await),
            Err(error) => Err(error.to_string()),
        }
    })
}

/// What psql says of the same attempt, without its name.
fn psql_error(dbname: &str, variables: &[(&str, &str)]) -> String {
    let mut psql = Command::new("psql");
    scrub(&mut psql);
    let Run { code, stderr, .. } = run(psql
        .args(["-X", "-w", "-c", "SELECT 1", "-d", dbname])
        .envs(variables.iter().copied()));
    assert_eq!(code, Some(2), "{stderr}");
    stderr.trim_end().strip_prefix("psql: error: ").unwrap_or(&stderr).to_owned()
}

/// A server with passwords, and a port.
fn scram() -> &'static Server {
    static SCRAM: OnceLock<Server> = OnceLock::new();
    SCRAM.get_or_init(|| {
        let auth = Auth::Scram { password: PASSWORD.into() };
        Server::start(&Options { auth, tcp: true, ..Options::default() })
    })
}

fn scram_conninfo() -> String {
    format!("host=127.0.0.1 port={} user=postgres dbname=postgres", scram().port())
}

#[test]
fn a_session_is_read_only_named_and_patient() {
    let database = server::shared().create_database("connect");
    block_on(async {
        let connection = open(&database.conninfo(), &[]).await.unwrap();
        connection.make_own().await.unwrap();
        for (setting, value) in [
            ("transaction_read_only", "on"),
            ("application_name", "toastctl test"),
            ("statement_timeout", "0"),
            ("lock_timeout", "10s"),
            ("client_encoding", "UTF8"),
        ] {
            assert_eq!(show(&connection, &format!("SHOW {setting}")).await, value, "{setting}");
        }
        assert_eq!(connection.server_version() / 10_000, server::shared().major());
        assert!(!connection.is_encrypted());
        let refused = connection.client().batch_execute("CREATE TABLE t ()").await.unwrap_err();
        let StatementError::Refused { message, code } = connection.explain(&refused).await else {
            panic!("{refused}");
        };
        assert_eq!(code, "25006");
        assert_eq!(message, "ERROR:  cannot execute CREATE TABLE in a read-only transaction");
    });
}

#[test]
fn the_server_gives_up_a_client_that_has_vanished() {
    block_on(async {
        let connection = open(&scram_conninfo(), &[("PGPASSWORD", PASSWORD)]).await.unwrap();
        connection.make_own().await.unwrap();
        for (setting, value) in [
            ("tcp_user_timeout", "25000"),
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ] {
            assert_eq!(show(&connection, &format!("SHOW {setting}")).await, value, "{setting}");
        }
    });
}

#[test]
fn sessions_are_set_up_on_every_available_major() {
    for major in server::available_majors() {
        let server = server::shared_of(major);
        block_on(async {
            let connection = open(&server.database("postgres").conninfo(), &[]).await.unwrap();
            assert_eq!(connection.server_version() / 10_000, major);
            let number = show(&connection, "SHOW server_version_num").await;
            assert_eq!(connection.server_version().to_string(), number);
            assert_eq!(show(&connection, "SHOW transaction_read_only").await, "off");
            connection.make_own().await.unwrap();
            assert_eq!(show(&connection, "SHOW transaction_read_only").await, "on");
        });
    }
}

#[test]
fn settings_are_those_of_a_transaction_until_the_session_is_known_to_be_own() {
    let database = server::shared().create_database("connect");
    let name = database.name();
    database.psql(&format!("ALTER DATABASE {name} SET search_path = public"));
    let path = async |connection: &Connection| show(connection, "SHOW search_path").await;
    block_on(async {
        let connection = open(&database.conninfo(), &[]).await.unwrap();
        assert_eq!(connection.schemas(), ["pg_catalog", "public"]);
        assert_eq!(path(&connection).await, "public");
        let fixed = "pg_catalog, pg_temp";
        let within = connection
            .reading(async || {
                let refused = connection.client().batch_execute("CREATE TABLE t ()").await;
                assert!(refused.is_err());
                connection.client().batch_execute("ROLLBACK").await?;
                connection.begin("READ ONLY").await?;
                Ok::<_, tokio_postgres::Error>(path(&connection).await)
            })
            .await;
        assert_eq!(within.unwrap(), fixed);
        assert_eq!(path(&connection).await, "public");
        let users = async || Ok::<_, tokio_postgres::Error>(path(&connection).await);
        assert_eq!(connection.reading_for_user(users).await.unwrap(), "public");
        connection.make_own().await.unwrap();
        assert_eq!(path(&connection).await, fixed);
        assert_eq!(connection.reading_for_user(users).await.unwrap(), "pg_catalog, public");
    });
}

#[test]
fn a_setting_that_the_server_refuses_is_an_error_of_the_session() {
    let conninfo = server::shared().database("postgres").conninfo();
    let args = ConnectionArgs { dbname: Some(conninfo), ..ConnectionArgs::default() };
    let mut session = SessionOptions::read_only("test");
    session.settings.push(("work_mem".into(), "much".into()));
    let resolved = args.resolve(&Around::new(&[])).unwrap();
    block_on(async {
        let connection = connect(&resolved, &session, &mut |_| None).await.unwrap();
        for error in
            [connection.begin("").await.unwrap_err(), connection.make_own().await.unwrap_err()]
        {
            let error = connection.explain(&error).await.to_string();
            let expected = "ERROR:  invalid value for parameter \"work_mem\": \"much\"";
            assert!(error.starts_with(expected), "{error}");
        }
    });
}

#[test]
fn the_environment_and_options_reach_the_session() {
    let database = server::shared().create_database("connect");
    let dir = server::shared().socket_dir().to_str().unwrap();
    block_on(async {
        let variables = [
            ("PGHOST", dir),
            ("PGUSER", "postgres"),
            ("PGDATABASE", database.name()),
            ("PGAPPNAME", "mine"),
            ("PGOPTIONS", "-c statement_timeout=7min -c work_mem=5MB"),
        ];
        let connection = open("", &variables).await.unwrap();
        assert_eq!(show(&connection, "SELECT current_database()::text").await, database.name());
        assert_eq!(show(&connection, "SHOW application_name").await, "mine");
        assert_eq!(show(&connection, "SHOW statement_timeout").await, "7min");
        assert_eq!(show(&connection, "SHOW work_mem").await, "5MB");
    });
}

#[test]
fn a_uri_of_the_database_connects() {
    let database = server::shared().create_database("connect");
    assert_eq!(try_open(&database.url(), &[]).as_deref(), Ok("postgres"));
}

#[test]
fn passwords_work_from_each_place_that_may_hold_one() {
    let conninfo = scram_conninfo();
    assert_eq!(try_open(&conninfo, &[("PGPASSWORD", PASSWORD)]).as_deref(), Ok("postgres"));
    let uri =
        format!("postgresql://postgres:ta'rt%20%5C%3A%20pan@127.0.0.1:{}/postgres", scram().port());
    assert_eq!(try_open(&uri, &[]).as_deref(), Ok("postgres"));

    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("pgpass");
    let line = format!("127.0.0.1:{}:*:postgres:ta'rt \\\\\\: pan\n", scram().port());
    write(&path, &line, 0o600);
    let passfile = [("PGPASSFILE", path.to_str().unwrap())];
    assert_eq!(try_open(&conninfo, &passfile).as_deref(), Ok("postgres"));

    let service = home.path().join("services");
    write(
        &service,
        &format!("[app]\n{}\npassword={PASSWORD}\n", conninfo.replace(' ', "\n")),
        0o644,
    );
    let services = [("PGSERVICEFILE", service.to_str().unwrap()), ("PGSERVICE", "app")];
    assert_eq!(try_open("", &services).as_deref(), Ok("postgres"));
}

#[test]
fn refusals_read_as_psqls() {
    let conninfo = scram_conninfo();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("pgpass");
    write(&path, "*:*:*:*:wrong\n", 0o600);
    let passfile = path.to_str().unwrap().to_owned();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cases = [
        (conninfo.clone(), vec![]),
        (conninfo.clone(), vec![("PGPASSWORD", "open sesame")]),
        (conninfo.clone(), vec![("PGPASSFILE", passfile.as_str())]),
        (format!("{conninfo} sslmode=require"), vec![("PGPASSWORD", PASSWORD)]),
        (format!("{conninfo} channel_binding=require"), vec![("PGPASSWORD", PASSWORD)]),
        (conninfo.replace("dbname=postgres", "dbname=absent"), vec![("PGPASSWORD", PASSWORD)]),
        (format!("host=127.0.0.1 port={free} user=u"), vec![]),
        (format!("host=localhost hostaddr=127.0.0.1 port={free} user=u"), vec![]),
        ("host=/nonexistent user=u".into(), vec![]),
        (format!("host=/nonexistent,127.0.0.1 port=1,{free} user=u"), vec![]),
        (
            format!(
                "{} target_session_attrs=standby",
                server::shared().database("postgres").conninfo()
            ),
            vec![],
        ),
        (server::shared().database("absent").conninfo(), vec![]),
        (
            server::shared()
                .database("postgres")
                .conninfo()
                .replace("user=postgres", "user=nobody"),
            vec![],
        ),
    ];
    for (dbname, variables) in cases {
        let ours = try_open(&dbname, &variables).unwrap_err();
        assert_eq!(ours, psql_error(&dbname, &variables), "{dbname}");
        assert!(!ours.contains("sesame") && !ours.contains("ta'rt"), "{ours}");
    }
}

#[test]
fn the_next_host_is_tried_when_one_does_not_answer_and_a_name_is_looked_up() {
    let server = scram();
    let hosts = format!(
        "host=/nonexistent,localhost port=1,{} user=postgres dbname=postgres",
        server.port()
    );
    assert_eq!(try_open(&hosts, &[("PGPASSWORD", PASSWORD)]).as_deref(), Ok("postgres"));
    let unknown = try_open("host=no.such.host.invalid user=u connect_timeout=20", &[]).unwrap_err();
    let expected = "could not translate host name \"no.such.host.invalid\" to address: ";
    assert!(unknown.starts_with(expected), "{unknown}");
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let conninfo = format!("host=127.0.0.1 port={port} user=u connect_timeout=1");
    let error = try_open(&conninfo, &[]).unwrap_err();
    let prefix = format!("connection to server at \"127.0.0.1\", port {port} failed: ");
    assert_eq!(error, format!("{prefix}timeout expired"));
}

#[test]
fn somebody_is_asked_for_a_password_only_when_the_server_wants_one() {
    let args =
        |dbname: String| ConnectionArgs { dbname: Some(dbname), ..ConnectionArgs::default() };
    let session = SessionOptions::read_only("test");
    block_on(async {
        let mut asked = Vec::new();
        let resolved = args(scram_conninfo()).resolve(&Around::new(&[])).unwrap();
        let connection = connect(&resolved, &session, &mut |user| {
            asked.push(user.to_owned());
            Some(Secret::new(PASSWORD))
        })
        .await
        .unwrap();
        assert_eq!(asked, ["postgres"]);
        // the password that was typed serves the connections after it
        let another = connection.open_another().await.unwrap();
        assert_eq!(show(&another, "SELECT current_user::text").await, "postgres");

        let trusted = server::shared().database("postgres").conninfo();
        let resolved = args(trusted).resolve(&Around::new(&[])).unwrap();
        connect(&resolved, &session, &mut |_| panic!("asked in vain")).await.unwrap();
    });
}

#[test]
fn a_statement_is_cancelled_and_a_lost_server_is_told_from_a_refusal() {
    let server = Server::start(&Options::default());
    let database = server.database("postgres");
    block_on(async {
        let connection = open(&database.conninfo(), &[]).await.unwrap();
        let canceller = connection.canceller();
        let cancel = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            canceller.cancel().await
        });
        let stopped = connection.client().batch_execute("SELECT pg_sleep(60)").await.unwrap_err();
        cancel.await.unwrap().unwrap();
        let StatementError::Refused { code, .. } = connection.explain(&stopped).await else {
            panic!("{stopped}");
        };
        assert_eq!(code, "57014");
        assert!(!connection.is_lost());

        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toastctl test'";
        let sleeping = connection.client().batch_execute("SELECT pg_sleep(60)");
        let (ended, _) = tokio::join!(sleeping, async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            database.psql(terminate)
        });
        let StatementError::Lost(reason) = connection.explain(&ended.unwrap_err()).await else {
            panic!("not seen as lost");
        };
        let said = "FATAL:  terminating connection due to administrator command\n\
                    server closed the connection unexpectedly";
        assert!(reason.starts_with(said), "{reason}");

        let idle = open(&database.conninfo(), &[]).await.unwrap();
        server.stop();
        let reason = tokio::time::timeout(Duration::from_secs(10), idle.lost()).await.unwrap();
        assert!(reason.contains("server closed the connection unexpectedly"), "{reason}");
        let error = idle.client().batch_execute("SELECT 1").await.unwrap_err();
        assert!(matches!(idle.explain(&error).await, StatementError::Lost(_)));
        assert!(idle.is_lost());
    });
}

/// What was to be cancelled may end by itself; a request that arrives late must not hit what comes next.
#[test]
fn a_cancelled_connection_goes_on_only_when_the_server_has_seen_to_it() {
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let proxy = Proxy::with_late_cancels(server.port(), Duration::from_millis(300));
    block_on(async {
        let through = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", proxy.port);
        let connection = open(&through, &[]).await.unwrap();
        let canceller = connection.canceller();
        for _ in 0..3 {
            connection.client().batch_execute("SELECT 1").await.unwrap();
            canceller.cancel().await.unwrap();
            connection.client().batch_execute("SELECT pg_sleep(0.5)").await.unwrap();
        }
    });
}

#[test]
fn target_session_attrs_choose_among_servers() {
    let reading = Server::start(&Options::default().set("default_transaction_read_only", "on"));
    let writing = server::shared();
    let hosts = |attrs: &str| {
        format!(
            "host={},{} user=postgres dbname=postgres target_session_attrs={attrs}",
            reading.socket_dir().display(),
            writing.socket_dir().display()
        )
    };
    let directory = |attrs: &str| {
        block_on(async {
            let connection = open(&hosts(attrs), &[]).await.unwrap();
            show(&connection, "SHOW data_directory").await
        })
    };
    let path = |server: &Server| server.data_dir().to_str().unwrap().to_owned();
    for (attrs, server) in [
        ("any", &reading),
        ("read-only", &reading),
        ("primary", &reading),
        ("prefer-standby", &reading),
        ("read-write", writing),
    ] {
        assert_eq!(directory(attrs), path(server), "{attrs}");
    }
}
