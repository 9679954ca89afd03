//! The README's session: its commands, run on the demo's data, still print what it shows, figures aside.
//! `TOASTCTL_UPDATE_README=1 cargo test --test it readme` writes them anew.

use std::path::Path;

use crate::support::command::{run, toastctl};
use crate::support::server::{Options, Server};

/// The session stands between such a line and the next fence.
const FENCE: &str = "```text\n$ toastctl ";
/// The README's width.
const COLUMNS: &str = "80";

/// Words of a shell's line without quotes.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().skip(1).collect()
}

/// The text with sizes, numbers and times masked, and without what depends on them: line breaks, the widths
/// of tables, columns that found no room, and waits.
fn masked(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("waited: "));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    // said where a busy machine reads less in its time
    let text = text.replace("; --sample reads more", "");
    let mut kept = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("(hidden, shown") {
        kept.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    let mut out: Vec<String> = Vec::new();
    for word in kept.split_whitespace() {
        let core: String = word
            .trim_start_matches(['+', '-', '±'])
            .chars()
            .map(|c| if c.is_ascii_digit() || c == '.' { '#' } else { c })
            .collect();
        let mut core: String = core.chars().fold(String::new(), |mut text, c| {
            if !(matches!(c, '#' | '-' | '+') && text.ends_with(c)) {
                text.push(c);
            }
            text
        });
        for unit in ["bytes", "kB", "MB", "GB", "ns", "µs", "ms", "s"] {
            if core.trim_end_matches([',', ';', ')']) == unit
                && out.last().is_some_and(|last| last.ends_with('#'))
            {
                core = core.replace(unit, "unit");
            }
        }
        let rule = core.chars().all(|c| matches!(c, '-' | '+' | '|'));
        if !core.is_empty() && !rule {
            out.push(core);
        }
    }
    // said where a lock was waited for; a page more or less in the heap is said to be given back or not
    out.join(" ")
        .replace(", longest wait for a lock # unit)", ")")
        .replace(
            "neither VACUUM nor VACUUM FULL would return any space from heap and TOAST",
            "the rest",
        )
        .replace(
            "VACUUM FULL or pg_repack would return # unit from heap and TOAST, VACUUM nothing",
            "the rest",
        )
}

/// The lines of the session: what stands in fences that begin with a command.
fn session(readme: &str) -> String {
    let fences = readme.split(FENCE).skip(1).map(|rest| rest.split("\n```").next().unwrap());
    fences.map(|fence| format!("$ toastctl {fence}\n")).collect()
}

/// A command, and the parts of its output that are shown.
struct Shown {
    command: String,
    /// Runs of lines between which others are left out.
    parts: Vec<String>,
}

/// Stands for lines that are left out.
const LEFT_OUT: &str = "[...]";

fn shown(session: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for line in session.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            shown.push(Shown { command: command.to_owned(), parts: vec![String::new()] });
            continue;
        }
        let parts = &mut shown.last_mut().unwrap().parts;
        if line == LEFT_OUT {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push_str(&format!("{line}\n"));
        }
    }
    shown
}

/// What the session's commands print now, on fresh data.
fn played(server: &Server, session: &[Shown]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let database = server.create_database("readme");
    for file in ["scripts/demo.sql", "scripts/demo-growth.sql"] {
        database.psql(&std::fs::read_to_string(root.join(file)).unwrap());
    }
    let mut printed = Vec::new();
    for Shown { command: line, .. } in session {
        let mut command = toastctl();
        command.args(words(line)).args(["-d", &database.conninfo()]).env("COLUMNS", COLUMNS);
        let output = run(&mut command);
        assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
        printed.push(output.stdout);
    }
    printed
}

/// The README with each line of the session as it is printed now.
fn updated(readme: &str, session: &[Shown], printed: &[String]) -> String {
    let mut readme = readme.to_owned();
    for (Shown { parts, .. }, printed) in session.iter().zip(printed) {
        let mut rest = printed.lines();
        for line in parts.iter().flat_map(|part| part.lines()).filter(|line| !line.is_empty()) {
            let same = |now: &&str| masked(now) == masked(line);
            let mut ahead = rest.clone();
            if let Some(now) = ahead.find(same) {
                rest = ahead;
                readme = readme.replacen(&format!("\n{line}\n"), &format!("\n{now}\n"), 1);
            }
        }
    }
    readme
}

#[test]
fn the_session_is_what_the_program_prints() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    let server = Server::start(&Options::default());
    if server.major() != 15 {
        eprintln!("not run: the session is that of PostgreSQL 15, not {}", server.major());
        return;
    }
    let session = shown(&session(&text));
    assert!(session.len() >= 4, "{} commands", session.len());
    let printed = played(&server, &session);
    if std::env::var_os("TOASTCTL_UPDATE_README").is_some() {
        std::fs::write(&readme, updated(&text, &session, &printed)).unwrap();
    }
    for (Shown { command, parts }, printed) in session.iter().zip(&printed) {
        let now = masked(printed);
        let mut rest = now.as_str();
        for part in parts {
            let part = masked(part);
            let Some((_, after)) = rest.split_once(&part) else {
                panic!(
                    "{command} does not print: {part}\nbut (TOASTCTL_UPDATE_README=1 writes figures):\n{printed}"
                );
            };
            rest = after;
        }
    }
}

/// The demo shows the same commands; the conversion is the advice.
#[test]
fn the_session_is_that_of_the_demo() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let demo = std::fs::read_to_string(root.join("scripts/demo")).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for Shown { command, .. } in shown(&session(&readme)) {
        let line = format!("\nshow {command}\n");
        assert!(demo.contains(&line) || command.starts_with("toastctl retoast "), "{command}");
    }
}

#[test]
fn the_readme_is_short_and_fits_100_columns() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    let text = text.unwrap();
    assert!(text.lines().count() <= 130, "{} lines", text.lines().count());
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn figures_are_masked_and_words_are_not() {
    let one = " doc | 5000 | 33 MB |\n-----+---\nwork: 12 scans, 3.5 s\n(hidden, shown with COLUMNS=0: A,\n B)";
    let other = " doc  | 17  | 330 kB |\n---+-----\nwork: 1\nscans, 0.5 s\n";
    assert_eq!(masked(one), masked(other));
    assert_eq!(masked(one), "doc # # unit work: # scans, # unit");
    assert_ne!(masked("complete"), masked("incomplete"));
    let waited = "work: 3 transactions (longest 5 ms, longest\nwait for a lock 12 ms), 1 scan";
    assert_eq!(masked(waited), masked("work: 3 transactions (longest 91 ms), 1 scan"));
}
