//! Finds the PostgreSQL installations that the tests run on.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The major version that most tests are written on.
const PREFERRED_MAJOR: u32 = 15;

/// Whether a test that lacks something must fail: `scripts/test --all-majors` says so.
pub(crate) fn must_run_everything() -> bool {
    env::var_os("TOASTCTL_TEST_EVERYTHING").is_some()
}

/// The major versions that tests run on.
const MAJORS: [u32; 6] = [14, 15, 16, 17, 18, 19];

/// The programs of one PostgreSQL.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    pub(crate) major: u32,
    /// The directory of `postgres`, `initdb` and `pg_ctl`.
    pub(crate) bindir: PathBuf,
}

impl Installation {
    /// The installation in `dir` or `dir/bin`, if there is one that runs.
    fn at(dir: &Path) -> Option<Installation> {
        let bindir = [dir.join("bin"), dir.to_path_buf()].into_iter().find(|bin| {
            ["postgres", "initdb", "pg_ctl"].iter().all(|program| bin.join(program).is_file())
        })?;
        let major = major_of(&bindir.join("postgres"))?;
        Some(Installation { major, bindir })
    }

    /// Whether it was built with lz4: its own `pg_config` says so (the fetched ones come without).
    fn has_lz4(&self) -> bool {
        let configured = Command::new(self.program("pg_config")).arg("--configure").output();
        configured
            .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--with-lz4"))
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }
}

/// The major version that `program --version` names.
fn major_of(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version =
        text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    version?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// All installations found, by major version; the first place that has a major wins:
/// `TOASTCTL_PG<major>`, `PG_CONFIG`, `PATH`, the distribution's directories, the cache of `scripts/test`.
pub(crate) fn all() -> &'static BTreeMap<u32, Installation> {
    static ALL: OnceLock<BTreeMap<u32, Installation>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut found = BTreeMap::new();
        for dir in places() {
            if let Some(installation) = Installation::at(&dir) {
                found.entry(installation.major).or_insert(installation);
            }
        }
        found
    })
}

fn places() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for major in MAJORS {
        if let Some(dir) = env::var_os(format!("TOASTCTL_PG{major}")) {
            let dir = PathBuf::from(dir);
            assert!(
                Installation::at(&dir).is_some_and(|i| i.major == major),
                "TOASTCTL_PG{major} names {}, where there is no PostgreSQL {major} that runs",
                dir.display()
            );
            dirs.push(dir);
        }
    }
    for pg_config in [env::var_os("PG_CONFIG"), Some("pg_config".into())].into_iter().flatten() {
        if let Ok(output) = Command::new(pg_config).arg("--bindir").output() {
            dirs.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
        }
    }
    dirs.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut distribution: Vec<PathBuf> = ["/usr/lib/postgresql", "/usr/pgsql"]
        .iter()
        .filter_map(|dir| Path::new(dir).read_dir().ok())
        .flat_map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())))
        .collect();
    distribution.sort();
    dirs.extend(distribution);
    for cache in cache_dirs() {
        for major in MAJORS {
            dirs.push(cache.join(format!("postgresql/{major}")));
        }
    }
    dirs
}

/// Where `scripts/test` keeps what it fetched (`cache_dir` in `scripts/lib.sh`).
fn cache_dirs() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(dir) = env::var_os("TOASTCTL_CACHE") {
        dirs.push(PathBuf::from(dir));
    }
    if let Some(dir) = env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        dirs.push(PathBuf::from(dir).join("toastctl"));
    } else if let Some(home) = env::var_os("HOME") {
        dirs.push(PathBuf::from(home).join(".cache/toastctl"));
    }
    dirs.push(PathBuf::from("/var/cache/toastctl"));
    dirs
}

/// The installation that most tests run on: that of `TOASTCTL_TEST_MAJOR`, else with lz4, so the distribution's; 15 where
/// there is one.
///
/// # Panics
/// Where there is none: a test never passes for want of a server.
pub(crate) fn main() -> &'static Installation {
    static MAIN: OnceLock<Option<&Installation>> = OnceLock::new();
    let main = MAIN.get_or_init(|| {
        if let Ok(major) = env::var("TOASTCTL_TEST_MAJOR") {
            return all().get(&major.parse().ok()?);
        }
        let preferred = all().get(&PREFERRED_MAJOR).into_iter();
        preferred.chain(all().values()).find(|installation| installation.has_lz4())
    });
    main.unwrap_or_else(|| {
        panic!(
            "no PostgreSQL with lz4 found\n\
             HINT:  run scripts/test, which installs what is missing, or set PG_CONFIG or \
             TOASTCTL_PG{PREFERRED_MAJOR}"
        )
    })
}

/// The installation of this major version.
///
/// # Panics
/// Where there is none, as [`main`].
pub(crate) fn of_major(major: u32) -> &'static Installation {
    all().get(&major).unwrap_or_else(|| {
        panic!(
            "no PostgreSQL {major} found\n\
             HINT:  run scripts/test, which installs what is missing, or set TOASTCTL_PG{major} \
             to its directory"
        )
    })
}
