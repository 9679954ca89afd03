//! A randomised trial of `retoast`: random tables, choices and troubles, and after every run the one question
//! whether what the report says is true, counted by plain SQL.
//!
//! `TOASTCTL_TRIAL_SECONDS` says how long (1800 by hand; else 60, but no more than 20 runs),
//! `TOASTCTL_TRIAL_SEED` with which run it begins, and `TOASTCTL_TRIAL_TROUBLE` a word that must be in the name
//! of the trouble. Each run depends on its own number alone, so that one that failed can be tried again.

mod table;
mod trouble;
mod truth;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::command::{Run, toastctl};
use crate::support::proxy::Proxy;
use crate::support::reports::{Printed, retoast as reports};
use crate::support::server::{Database, Options, Server};
use table::Table;
use trouble::Trouble;

/// The first run in CI.
const SEED: u64 = 20_000;
/// Runs in CI.
const RUNS: u64 = 20;
/// A run that takes longer hangs.
const HANGS: Duration = Duration::from_secs(240);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What is chosen.
pub(crate) struct Choice {
    /// `--toaster` or `--policy` with its value.
    pub(crate) option: &'static str,
    pub(crate) name: &'static str,
    /// `--method`.
    pub(crate) method: Option<&'static str>,
    /// The rest of the command line.
    pub(crate) more: Vec<String>,
    /// Pages of a window and passes over it, if they are not those of every run.
    window: Option<(u32, u32)>,
}

impl Choice {
    fn random(rng: &mut ChaCha8Rng) -> Choice {
        const TOASTERS: [&str; 9] = [
            "lz4",
            "pglz",
            "external",
            "main",
            "main=lz4",
            "main=pglz",
            "extended",
            "plain",
            "lz4",
        ];
        const POLICIES: [&str; 7] =
            ["always", "never", "chunk-saving", "ratio=0.8", "chunk-floor=2", "hybrid=0.9", "best"];
        let mut more = Vec::new();
        let mut add = |option: &str, value: String| more.extend([option.to_owned(), value]);
        if rng.random_bool(0.25) {
            add("--target", [256, 2032, 4080, 8160][rng.random_range(0..4)].to_string());
        }
        if rng.random_bool(0.2) {
            add("--set", "source=functions".to_owned());
        }
        if rng.random_bool(0.3) {
            add("--verify", ["off", "full"][rng.random_range(0..2)].to_owned());
        }
        let window =
            rng.random_bool(0.3).then(|| (rng.random_range(1..40), rng.random_range(1..9)));
        if rng.random_bool(0.6) {
            let name = TOASTERS[rng.random_range(0..TOASTERS.len())];
            if rng.random_bool(0.3) {
                add("--jobs", rng.random_range(2..4u32).to_string());
            }
            return Choice { option: "--toaster", name, method: None, more, window };
        }
        let name = POLICIES[rng.random_range(0..POLICIES.len())];
        let method = [None, Some("pglz"), Some("lz4"), Some("either")][rng.random_range(0..4)];
        if rng.random_bool(0.3) {
            add("--set", "new-values=extended".to_owned());
        }
        Choice { option: "--policy", name, method, more, window }
    }

    fn arguments(&self, table: &Table) -> Vec<String> {
        let mut arguments = vec!["t".to_owned(), self.option.to_owned(), self.name.to_owned()];
        for column in &table.chosen {
            arguments.extend(["-c".to_owned(), column.clone()]);
        }
        arguments.extend(self.method.iter().flat_map(|m| ["--method".to_owned(), (*m).to_owned()]));
        arguments.extend(self.more.iter().cloned());
        arguments
    }
}

/// `toastctl retoast` through the proxy, which a trouble may disturb.
fn command(
    database: &Database<'_>,
    proxy: &Proxy,
    choice: &Choice,
    arguments: &[String],
) -> Command {
    let mut command = toastctl();
    let port = proxy.port.to_string();
    command.args(["retoast", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
    command.args(["-d", database.name(), "--format", "json"]).args(arguments);
    if let Some((pages, passes)) = choice.window {
        command.env("TOASTCTL_TEST_WINDOW", pages.to_string());
        command.env("TOASTCTL_TEST_PASSES", passes.to_string());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end; `None` when it hangs.
fn ended(mut child: Child) -> Option<Run> {
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn std::io::Read| {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read(&mut stdout));
        let err = scope.spawn(move || read(&mut stderr));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if began.elapsed() > HANGS {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
        status.map(|status| Run { code: status.code(), stdout, stderr })
    })
}

/// The report's only table, if there is a report.
fn report(run: &Run) -> Option<Printed<reports::Table>> {
    let report: Printed<reports::Report> = serde_json::from_str(&run.stdout).ok()?;
    report.tables.first().cloned()
}

/// One run of the trial. What is not true of it. `None` if its trouble is not asked for.
fn trial(database: &Database<'_>, proxy: &Proxy, seed: u64) -> Option<(String, Vec<String>)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let table = Table::random(&mut rng);
    let choice = Choice::random(&mut rng);
    let trouble = Trouble::random(&mut rng, &table);
    if std::env::var("TOASTCTL_TRIAL_TROUBLE").is_ok_and(|word| !trouble.name().contains(&word)) {
        return None;
    }
    table.make(database);
    let quickly = choice.arguments(&table);
    let mut arguments = quickly.clone();
    let what = format!(
        "{} under {}: {} (windows {:?})",
        trouble.name(),
        table.ddl(),
        arguments.join(" "),
        choice.window
    );
    if trouble.wants_time() {
        let slowly = ["--set", "batch-ms=1", "--set", "nice=8", "--set", "progress=none"];
        arguments.extend(slowly.map(str::to_owned));
    }
    let before = truth::contents(database, &table);
    let child = command(database, proxy, &choice, &arguments).spawn().unwrap();
    let met = trouble.make(database, proxy, &mut rng, child.id());
    let Some(run) = ended(child) else {
        met.end(database);
        return Some((what, vec!["it hangs".to_owned()]));
    };
    let met = met.end(database);
    let what = format!(
        "{what}: code {:?}{}",
        run.code,
        if met.too_late { ", the trouble came too late" } else { "" }
    );
    let mut untrue = truth::of(database, &table, &choice, &met, &run);
    let done = run.code == Some(0);
    if met.contents_stay {
        untrue.extend(truth::same_contents(database, &table, &before, &met));
    }
    // what was disturbed, or stopped, goes on, and what is done needs nothing more
    if !met.changed_settings || !done {
        let undisturbed = truth::Met::none();
        let again: Vec<String> =
            if done { [quickly, vec!["--dry-run".to_owned()]].concat() } else { quickly };
        let Some(second) = ended(command(database, proxy, &choice, &again).spawn().unwrap()) else {
            return Some((what, [untrue, vec!["the second run hangs".to_owned()]].concat()));
        };
        if done {
            if choice.option == "--toaster" && !met.wrote {
                let found = report(&second).map(|table| table.rows_found);
                if found != Some(0) {
                    untrue.push(format!("after complete a second run finds {found:?} rows to do"));
                }
            }
        } else if trouble.is_none() && !truth::may_refuse(&choice) && !truth::owns_up(&run) {
            untrue.push(format!("it does not get done: {:?} {}", run.code, run.stderr));
        } else {
            let (wrote, contents_stay) = (met.wrote, met.contents_stay);
            let met = truth::Met { wrote, contents_stay, ..undisturbed };
            untrue.extend(truth::of(database, &table, &choice, &met, &second));
            let excused = truth::may_refuse(&choice) || truth::owns_up(&second);
            if second.code != Some(0) && !excused {
                let said = &second.stderr;
                untrue.push(format!("the second run does not get done: {:?} {said}", second.code));
            }
            if met.contents_stay {
                untrue.extend(truth::same_contents(database, &table, &before, &met));
            }
        }
    }
    if !untrue.is_empty() {
        untrue.push(format!("exit {:?}, {}\n{}", run.code, run.stdout, run.stderr));
    }
    Some((what, untrue))
}

#[test]
fn what_the_report_says_is_true() {
    let seconds = number("TOASTCTL_TRIAL_SECONDS", 60);
    let first = number("TOASTCTL_TRIAL_SEED", SEED);
    let server = Server::start(&Options { tcp: true, ..Options::default() });
    let database = server.create_database("trial");
    database.psql(table::FUNCTIONS);
    let proxy = Proxy::start(server.port());
    let (began, mut untrue, mut runs) = (Instant::now(), Vec::new(), 0);
    let most = std::env::var_os("TOASTCTL_TRIAL_SECONDS").map_or(RUNS, |_| u64::MAX);
    for seed in first.. {
        if began.elapsed() >= Duration::from_secs(seconds) || runs >= most {
            break;
        }
        let Some((what, found)) = trial(&database, &proxy, seed) else { continue };
        runs += 1;
        println!("run {seed}: {what}: {}", if found.is_empty() { "true" } else { "UNTRUE" });
        if !found.is_empty() {
            println!("  {}", found.join("\n  "));
            untrue.push(format!("TOASTCTL_TRIAL_SEED={seed}: {what}\n  {}", found.join("\n  ")));
        }
    }
    println!("{runs} runs");
    assert!(runs > 2, "too few runs to tell");
    assert!(untrue.is_empty(), "{}", untrue.join("\n"));
}
