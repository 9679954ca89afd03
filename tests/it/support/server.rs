//! Throwaway PostgreSQL servers: made by initdb in a short temporary directory, reached by a Unix socket,
//! and gone when the test process is gone, however it ends.

use crate::support::command::{Run, run, scrub};
use crate::support::install::{self, Installation};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long a server may take to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest temporary directory under which a socket's path (107 bytes at most) still fits.
const LONGEST_TEMP_DIR: usize = 40;

/// Stops the server and removes its directory once the pipe from the test process closes.
/// `$1` is the directory; a pid that is no longer our postmaster's is left alone.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
ours() { [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$1/data"; }
if ours "$1"; then
    kill -QUIT "$pid"
    tries=0
    while ours "$1" && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    if ours "$1"; then kill -KILL "$pid"; fi
fi
rm -rf -- "$1"
"#;

/// How clients must prove who they are.
#[derive(Debug, Clone)]
pub(crate) enum Auth {
    Trust,
    /// SCRAM-SHA-256 for everybody; the superuser has this password.
    Scram {
        password: String,
    },
}

/// What a server is started with.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// `None`: the main one, 15 where there is a choice, with lz4.
    pub(crate) major: Option<u32>,
    /// Settings on top of the harness's own; the last one of a name wins.
    pub(crate) conf: Vec<(String, String)>,
    pub(crate) auth: Auth,
    /// Also listen on a free TCP port of 127.0.0.1.
    pub(crate) tcp: bool,
    /// Files to put into the data directory before the first start, readable by the server's user alone:
    /// certificates and keys, or another `pg_hba.conf`.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { major: None, conf: Vec::new(), auth: Auth::Trust, tcp: false, files: Vec::new() }
    }
}

impl Options {
    /// A server of this major version.
    pub(crate) fn major(major: u32) -> Options {
        Options { major: Some(major), ..Options::default() }
    }

    /// Adds a setting of `postgresql.conf`.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Options {
        self.conf.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running server; stopped and deleted when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    installation: &'static Installation,
    /// Holds `data`, the socket and `log`.
    dir: PathBuf,
    /// The port of the socket's name and, with `Options::tcp`, of 127.0.0.1.
    port: u16,
    auth: Auth,
    postmaster: Mutex<Option<Child>>,
    /// The watchdog acts when this end of its pipe closes.
    watchdog: Option<(Child, ChildStdin)>,
}

/// The one server of the test process that every test may make databases in
/// (settings: `max_prepared_transactions` 20, `wal_level` logical). Never stop or reconfigure it.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&Options::default()))
}

/// The one server of this major version that tests share in the same way.
pub(crate) fn shared_of(major: u32) -> &'static Server {
    static SHARED: Mutex<BTreeMap<u32, &'static OnceLock<Server>>> = Mutex::new(BTreeMap::new());
    if major == shared().major() {
        return shared();
    }
    let place = *SHARED.lock().unwrap().entry(major).or_insert_with(|| Box::leak(Box::default()));
    place.get_or_init(|| Server::start(&Options::major(major)))
}

/// A new database of the shared server with pageinspect in it.
pub(crate) fn with_pageinspect(prefix: &str) -> Database<'static> {
    shared().with_pageinspect(prefix)
}

/// The major versions there are servers for.
pub(crate) fn available_majors() -> Vec<u32> {
    install::all().keys().copied().collect()
}

/// Those besides the main one, which the shared server is of.
pub(crate) fn other_majors() -> Vec<u32> {
    let mut majors = available_majors();
    majors.retain(|major| *major != shared().major());
    majors
}

/// The shared server of each major.
pub(crate) fn each_server(mut test: impl FnMut(&Server, u32)) {
    for major in available_majors() {
        test(shared_of(major), major);
    }
}

/// Whether there is a server of this major version; if not, a test that needs one does not run.
/// `scripts/test` says which majors are absent.
///
/// # Panics
/// Where there is none, though `scripts/test --all-majors` was asked to run everything: 19 cannot be had everywhere.
pub(crate) fn has_major(major: u32) -> bool {
    let there = install::all().contains_key(&major);
    if !there {
        eprintln!("not run: there is no PostgreSQL {major}");
        assert!(major > 18 || !install::must_run_everything(), "there is no PostgreSQL {major}");
    }
    there
}

/// Removes `dir` when this process is gone, however it ends; not before as long as the result lives.
pub(crate) fn remove_with_process(dir: &Path) -> impl Sized + use<> {
    watchdog(dir)
}

impl Server {
    /// Makes a cluster and starts it.
    ///
    /// # Panics
    /// When PostgreSQL is missing or refuses; the message has its output.
    pub(crate) fn start(options: &Options) -> Server {
        let installation = options.major.map_or_else(install::main, install::of_major);
        let dir = make_dir();
        let watchdog = Some(watchdog(&dir));
        let server = Server {
            installation,
            port: if options.tcp { free_port() } else { 5432 },
            dir,
            auth: options.auth.clone(),
            postmaster: Mutex::new(None),
            watchdog,
        };
        server.initdb(options.major.is_none());
        server.configure(options);
        server.launch();
        server
    }

    /// A streaming standby of this server, which follows until it is dropped.
    ///
    /// # Panics
    /// As [`Server::start`].
    pub(crate) fn start_standby(&self) -> Server {
        let dir = make_dir();
        let watchdog = Some(watchdog(&dir));
        let standby = Server {
            installation: self.installation,
            port: self.port,
            dir,
            auth: self.auth.clone(),
            postmaster: Mutex::new(None),
            watchdog,
        };
        let mut copy = standby.server_program("pg_basebackup");
        copy.arg("-D").arg(standby.data_dir()).arg("-h").arg(&self.dir);
        copy.args(["-U", self.superuser(), "-p", &self.port.to_string()]);
        copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync"]);
        let copied = run(&mut copy);
        assert_eq!(copied.code, Some(0), "pg_basebackup failed: {}", copied.stderr);
        let path = standby.data_dir().join("postgresql.conf");
        let conf = fs::read_to_string(&path).expect("the copy has its settings");
        let here = format!("unix_socket_directories = '{}'\n", standby.dir.display());
        standby.write_private(&path, (conf + &here).as_bytes());
        standby.launch();
        standby
    }

    /// Makes the data directory, where no password is needed by copying one that initdb has made before:
    /// initdb takes a second of CPU time. Copies have one system identifier.
    ///
    /// The main server's pages have no checksums, which from 18 on they have by default: tests damage them.
    fn initdb(&self, is_main: bool) {
        let no_checksums = is_main && self.major() >= 18;
        let Auth::Scram { password } = &self.auth else {
            let template = template(self, no_checksums);
            let mut copy = self.as_its_user("cp");
            let copied = run(copy.arg("-a").arg(template).arg(self.data_dir()));
            assert_eq!(copied.code, Some(0), "cp failed: {}", copied.stderr);
            return;
        };
        let file = self.dir.join("password");
        self.write_private(&file, format!("{password}\n").as_bytes());
        let mut initdb = self.initdb_command(&self.data_dir(), no_checksums);
        made(initdb.args(["-A", "scram-sha-256"]).arg("--pwfile").arg(file));
    }

    fn initdb_command(&self, data: &Path, no_checksums: bool) -> Command {
        let mut initdb = self.server_program("initdb");
        initdb.arg("-D").arg(data).args(["-U", self.superuser(), "-E", "UTF8"]);
        initdb.args(["--locale=C.UTF-8", "--no-sync"]);
        if no_checksums {
            initdb.arg("--no-data-checksums");
        }
        initdb
    }

    fn configure(&self, options: &Options) {
        let mut conf = format!(
            "listen_addresses = '{}'\nport = {}\nunix_socket_directories = '{}'\n",
            if options.tcp { "127.0.0.1" } else { "" },
            self.port,
            self.dir.display()
        );
        let ours = [
            ("fsync", "off"),
            ("autovacuum", "off"),
            ("max_connections", "200"),
            ("max_prepared_transactions", "20"),
            ("wal_level", "logical"),
            ("max_wal_size", "4GB"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
            // 19 has another default
            ("default_toast_compression", "pglz"),
        ];
        let theirs = options.conf.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in ours.into_iter().chain(theirs) {
            conf.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        let path = self.data_dir().join("postgresql.conf");
        let defaults = fs::read_to_string(&path).expect("initdb wrote postgresql.conf");
        self.write_private(&path, (defaults + &conf).as_bytes());
        for (name, contents) in &options.files {
            self.write_private(&self.data_dir().join(name), contents);
        }
    }

    /// Starts the postmaster and waits until it says that it is ready.
    fn launch(&self) {
        let log = File::options().create(true).append(true).open(self.log_file()).expect("log");
        let mut command = self.server_program("postgres");
        command.arg("-D").arg(self.data_dir()).process_group(0);
        command.stdout(log.try_clone().expect("log")).stderr(log);
        let mut child = command.spawn().expect("postgres starts");
        let started = Instant::now();
        while !self.is_ready(&child) {
            let ended = child.try_wait().expect("postgres can be waited for");
            assert!(ended.is_none(), "postgres ended at once: {}", self.log());
            assert!(started.elapsed() < START_TIMEOUT, "postgres does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.postmaster.lock().expect("no test panicked here") = Some(child);
    }

    /// Whether `postmaster.pid` is this child's and its status line says "ready" (`pidfile.h`).
    fn is_ready(&self, child: &Child) -> bool {
        let text = fs::read_to_string(self.data_dir().join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(&child.id().to_string())
            && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    /// Stops at once as `pg_ctl stop -m immediate` does: the next start recovers.
    pub(crate) fn stop(&self) {
        self.stop_by("immediate");
    }

    /// Shuts the server down, so that its files are complete.
    pub(crate) fn shut_down(&self) {
        self.stop_by("fast");
    }

    fn stop_by(&self, mode: &str) {
        if let Some(mut child) = self.postmaster.lock().expect("no test panicked here").take() {
            let mut pg_ctl = self.server_program("pg_ctl");
            pg_ctl.args(["stop", "-m", mode, "-s", "-D"]).arg(self.data_dir());
            let stopped = run(&mut pg_ctl);
            assert_eq!(stopped.code, Some(0), "{}{}", stopped.stdout, stopped.stderr);
            child.wait().expect("postgres can be waited for");
        }
    }

    /// Starts again after [`Server::stop`].
    pub(crate) fn start_again(&self) {
        self.launch();
    }

    /// Overwrites the page headers of these blocks of a file while the server is stopped, and starts it again.
    pub(crate) fn damage(&self, file: &str, blocks: impl IntoIterator<Item = usize>) {
        self.stop();
        let path = self.data_dir().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        for block in blocks {
            bytes[block * 8192..][..24].fill(0xAB);
        }
        std::fs::write(&path, bytes).unwrap();
        self.start_again();
    }

    /// A crash of the server: stops it at once and lets it recover.
    pub(crate) fn restart_immediate(&self) {
        self.stop();
        self.launch();
    }

    /// `pg_ctl restart -m fast`: sessions are terminated, and nothing has to be recovered.
    pub(crate) fn restart_fast(&self) {
        self.stop_by("fast");
        self.launch();
    }

    pub(crate) fn major(&self) -> u32 {
        self.installation.major
    }

    pub(crate) fn superuser(&self) -> &'static str {
        "postgres"
    }

    pub(crate) fn socket_dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Lines of the log of which this is true. A log with all statements may be too long to be read as a whole.
    pub(crate) fn logged(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let log = BufReader::new(File::open(self.log_file()).unwrap());
        let lines =
            log.split(b'\n').map(|line| String::from_utf8_lossy(&line.unwrap()).into_owned());
        lines.filter(|line| is_wanted(line)).collect()
    }

    /// Makes an empty database whose name begins with `prefix`.
    pub(crate) fn create_database(&self, prefix: &str) -> Database<'_> {
        self.create_database_with(prefix, "")
    }

    /// A new database with the locale C and this encoding.
    pub(crate) fn create_database_in(&self, prefix: &str, encoding: &str) -> Database<'_> {
        let options = format!("ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        self.create_database_with(prefix, &options)
    }

    fn create_database_with(&self, prefix: &str, options: &str) -> Database<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.database("postgres").psql(&format!("CREATE DATABASE {name} {options}"));
        Database { server: self, name, temporary: true }
    }

    /// A new database with pageinspect in it.
    pub(crate) fn with_pageinspect(&self, prefix: &str) -> Database<'_> {
        let database = self.create_database(prefix);
        database.psql("CREATE EXTENSION pageinspect");
        database
    }

    /// A database that is already there.
    pub(crate) fn database(&self, name: &str) -> Database<'_> {
        Database { server: self, name: name.to_owned(), temporary: false }
    }

    /// A new empty directory in `parent` that the server may make a tablespace of.
    pub(crate) fn make_tablespace_dir(&self, parent: &Path) -> tempfile::TempDir {
        let dir = tempfile::Builder::new().prefix("toastctl-space-").tempdir_in(parent);
        let dir = dir.expect("a directory can be made");
        give_away(dir.path());
        dir
    }

    /// A program of the server's installation, run as the server's user.
    fn server_program(&self, name: &str) -> Command {
        self.as_its_user(self.installation.program(name))
    }

    /// A program that is run as the server's user, in its directory.
    pub(crate) fn as_its_user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        scrub(&mut command);
        command.current_dir(&self.dir);
        if let Some((uid, gid)) = server_user() {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Writes a file that the server's user alone may read.
    pub(crate) fn write_private(&self, path: &Path, contents: &[u8]) {
        fs::write(path, contents).expect("the server's directory can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
        give_away(path);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((mut watchdog, pipe)) = self.watchdog.take() {
            drop(pipe);
            let _ = watchdog.wait();
        }
        if let Ok(Some(child)) = self.postmaster.get_mut().map(Option::as_mut) {
            let _ = child.wait();
        }
    }
}

/// A database of a test's own; dropped with its handle, unless the test fails.
#[derive(Debug)]
pub(crate) struct Database<'a> {
    server: &'a Server,
    name: String,
    temporary: bool,
}

impl Database<'_> {
    pub(crate) fn server(&self) -> &Server {
        self.server
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Asks until the answer is as wanted, at most for a minute.
    #[track_caller]
    pub(crate) fn until(&self, sql: &str, wanted: impl Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            let answer = self.psql(sql);
            if wanted(&answer) {
                return;
            }
            assert!(began.elapsed().as_secs() < 60, "{sql}: still {answer}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks until the answer is true.
    #[track_caller]
    pub(crate) fn until_true(&self, sql: &str) {
        self.until(sql, |answer| answer == "t");
    }

    /// Waits until the sessions of commands that have ended are gone: a moment longer they keep dead rows from
    /// being removed, and what they have counted from being seen.
    pub(crate) fn rests(&self) {
        const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.until(OTHERS, |others| others == "0");
    }

    /// Runs statements through psql, each in a transaction of its own unless they say otherwise, and
    /// returns what they print: unaligned, `|` between columns, no header, no last line end.
    ///
    /// # Panics
    /// With psql's message when a statement fails.
    #[track_caller]
    pub(crate) fn psql(&self, sql: &str) -> String {
        let run = self.try_psql(sql);
        assert_eq!(run.code, Some(0), "psql: {}", run.stderr);
        let mut output = run.stdout;
        output.truncate(output.strip_suffix('\n').unwrap_or(&output).len());
        output
    }

    /// As [`Database::psql`], for statements that may fail.
    pub(crate) fn try_psql(&self, sql: &str) -> Run {
        let mut psql = self.psql_command();
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]).stdin(Stdio::piped());
        psql.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = psql.spawn().expect("psql starts");
        let mut stdin = child.stdin.take().expect("psql's input is a pipe");
        let output = std::thread::scope(|scope| {
            // psql leaves at the first error: a closed pipe says nothing that its status does not
            scope.spawn(move || drop(stdin.write_all(sql.as_bytes())));
            child.wait_with_output().expect("psql ends")
        });
        if self.server.major() < 15 && sql.contains("pg_stat_force_next_flush") {
            // others may be shown the collector's figures of half a second ago
            std::thread::sleep(Duration::from_secs(1));
        }
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("psql prints UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// `psql -X -At` on this database as the superuser, for a test that adds arguments of its own.
    pub(crate) fn psql_command(&self) -> Command {
        // the fetched majors come without psql; the main one's speaks to all of them
        let mut psql = Command::new(install::main().program("psql"));
        scrub(&mut psql);
        psql.args(["-X", "-At", "-d"]).arg(self.conninfo());
        if let Auth::Scram { password } = &self.server.auth {
            psql.env("PGPASSWORD", password);
        }
        psql
    }

    /// A key=value connection string for the superuser, without a password.
    pub(crate) fn conninfo(&self) -> String {
        let server = self.server;
        format!(
            "host={} port={} user={} dbname={}",
            server.socket_dir().display(),
            server.port,
            server.superuser(),
            self.name
        )
    }

    /// A connection URI for the superuser, without a password.
    pub(crate) fn url(&self) -> String {
        self.url_of(self.server.superuser())
    }

    /// A connection URI for this user.
    pub(crate) fn url_of(&self, user: &str) -> String {
        let server = self.server;
        format!(
            "postgresql:///{}?host={}&port={}&user={user}",
            self.name,
            server.socket_dir().display(),
            server.port,
        )
    }
}

/// A role of a test's own that may log in; dropped with what it owns, unless the test fails.
#[derive(Debug)]
pub(crate) struct Role<'a> {
    database: &'a Database<'a>,
    name: String,
}

impl<'a> Database<'a> {
    /// Makes a role whose name begins with `prefix`.
    pub(crate) fn create_role(&'a self, prefix: &str) -> Role<'a> {
        let name = format!("{prefix}_{}", self.name);
        self.psql(&format!("CREATE ROLE {name} LOGIN"));
        Role { database: self, name }
    }

    /// As [`Database::create_role`]: a role that may make tables in the schema `public`.
    pub(crate) fn create_owner(&'a self, prefix: &str) -> Role<'a> {
        let role = self.create_role(prefix);
        self.psql(&format!("GRANT ALL ON SCHEMA public TO {role}"));
        role
    }
}

impl std::ops::Deref for Role<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for Role<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let sql = format!("DROP OWNED BY {self} CASCADE; DROP ROLE {self}");
        // temporary tables of sessions that end just now belong to it too
        for _ in 0..200 {
            if std::thread::panicking() || self.database.try_psql(&sql).code == Some(0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("role {self} cannot be dropped: {}", self.database.try_psql(&sql).stderr);
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let running = self.server.postmaster.lock().is_ok_and(|child| child.is_some());
        if self.temporary && running && !std::thread::panicking() {
            let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
            self.server.database("postgres").try_psql(&sql);
        }
    }
}

/// The user and group that servers run as, when the tests run as root, which PostgreSQL refuses.
fn server_user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        let id = |arguments: &[&str]| -> Option<u32> {
            let output = Command::new("id").args(arguments).output().ok()?;
            String::from_utf8_lossy(&output.stdout).trim().parse().ok()
        };
        if id(&["-u"]) != Some(0) {
            return None;
        }
        let user = ["postgres", "nobody"]
            .iter()
            .find_map(|name| Some((id(&["-u", name])?, id(&["-g", name])?)));
        assert!(
            user.is_some(),
            "root may not run PostgreSQL, and there is no user postgres or nobody"
        );
        user
    })
}

/// The data directory that those of servers of this installation are copies of, which stays as long as this
/// process.
fn template(server: &Server, no_checksums: bool) -> &'static Path {
    type Place = OnceLock<(PathBuf, (Child, ChildStdin))>;
    static MADE: Mutex<BTreeMap<(u32, bool), &'static Place>> = Mutex::new(BTreeMap::new());
    let key = (server.major(), no_checksums);
    let place = *MADE.lock().unwrap().entry(key).or_insert_with(|| Box::leak(Box::default()));
    let (data, _) = place.get_or_init(|| {
        let dir = make_dir();
        let removed_with_process = watchdog(&dir);
        let data = dir.join("data");
        made(server.initdb_command(&data, no_checksums).args(["-A", "trust"]));
        if server.major() < 15 && install::main().major == server.major() {
            let mut single = server.as_its_user(server.installation.program("postgres"));
            single.args(["--single", "-j", "-D"]).arg(&data).arg("template1");
            single.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut single = single.spawn().expect("postgres starts");
            let input = single.stdin.take().expect("its input is a pipe").write_all(FLUSHES);
            assert!(input.is_ok() && single.wait().is_ok_and(|status| status.success()));
        }
        (data, removed_with_process)
    });
    data
}

/// In PostgreSQL 14 there is no such function, and a session sends its statistics when a statement ends half a second
/// after those that it sent before.
const FLUSHES: &[u8] = b"CREATE FUNCTION public.pg_stat_force_next_flush() RETURNS void
    LANGUAGE sql AS 'SELECT pg_sleep(1)';\n\n";

/// Runs initdb.
fn made(initdb: &mut Command) {
    let made = run(initdb);
    assert_eq!(made.code, Some(0), "initdb failed: {}{}", made.stdout, made.stderr);
}

fn give_away(path: &Path) {
    if let Some((uid, gid)) = server_user() {
        chown(path, Some(uid), Some(gid)).expect("chown");
    }
}

/// A new directory, owned by the server's user, with a path short enough for sockets.
fn make_dir() -> PathBuf {
    let temp = std::env::temp_dir();
    let temp =
        if temp.as_os_str().len() <= LONGEST_TEMP_DIR { temp } else { PathBuf::from("/tmp") };
    let dir = tempfile::Builder::new().prefix("toastctl-").rand_bytes(6).tempdir_in(temp);
    let dir = dir.expect("a temporary directory can be made").keep();
    // others may pass through to the socket
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("chmod");
    give_away(&dir);
    dir
}

fn watchdog(dir: &Path) -> (Child, ChildStdin) {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHDOG, "watchdog"]).arg(dir).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("sh starts");
    let pipe = child.stdin.take().expect("the watchdog's input is a pipe");
    (child, pipe)
}

/// A TCP port that nobody listens on just now.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port can be bound");
    listener.local_addr().expect("a bound port has an address").port()
}

/// A number that a query answers.
pub(crate) fn number(answer: &str) -> u64 {
    answer.parse().unwrap_or_else(|_| panic!("no number: {answer}"))
}
