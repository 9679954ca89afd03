//! Questions of a database administrator, each answered by what fits a terminal of 80 columns and 24 lines.
//! The snapshots are the transcripts, with figures masked.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::command::{run, scrub, toastctl};
use crate::support::install;
use crate::support::server::{self, Database, Options, Server};

const COLUMNS: usize = 80;
/// Of a terminal.
const LINES: usize = 24;

/// The demo's data.
fn shop() -> Database<'static> {
    shop_on(server::shared())
}

fn shop_on(server: &Server) -> Database<'_> {
    let database = server.create_database("shop");
    for file in ["demo.sql", "demo-growth.sql"] {
        let path = format!("{}/scripts/{file}", env!("CARGO_MANIFEST_DIR"));
        database.psql(&std::fs::read_to_string(path).unwrap());
    }
    database
}

/// The demo's data, for questions that change nothing.
fn unchanged_shop() -> &'static Database<'static> {
    static SHOP: OnceLock<Database<'static>> = OnceLock::new();
    SHOP.get_or_init(|| {
        let database = shop();
        database.psql("CREATE EXTENSION IF NOT EXISTS pageinspect; VACUUM");
        database
    })
}

/// What a terminal shows of this line of a shell in this directory, which must end with this exit code.
fn shell(database: &Database<'_>, dir: &Path, code: i32, line: &str) -> String {
    let server = database.server();
    let toastctl = Path::new(env!("CARGO_BIN_EXE_toastctl")).parent().unwrap();
    let psql = install::main().program("psql");
    let mut command = Command::new("sh");
    scrub(&mut command);
    command.args(["-c", &format!("exec 2>&1; {line}")]).current_dir(dir);
    let path = [toastctl, psql.parent().unwrap()].map(|dir| dir.display().to_string()).join(":");
    command.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap()));
    command.env("COLUMNS", COLUMNS.to_string());
    command.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
    command.env("PGUSER", server.superuser()).env("PGDATABASE", database.name());
    let run = run(&mut command);
    assert_eq!(run.code, Some(code), "{line}: {}{}", run.stdout, run.stderr);
    format!("$ {line}\n{}", run.stdout)
}

/// What a terminal shows of these commands, with what they print on standard error first. Each must end
/// with this exit code.
fn screen(database: &Database<'_>, columns: usize, code: i32, commands: &[&str]) -> String {
    let mut shown = String::new();
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let mut toastctl = toastctl();
        toastctl.args(&words).env("COLUMNS", columns.to_string());
        if !words.contains(&"help") {
            let server = database.server();
            toastctl.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
            toastctl.env("PGDATABASE", database.name());
            if !words.contains(&"-U") {
                toastctl.env("PGUSER", server.superuser());
            }
        }
        let mut run = run(&mut toastctl);
        // on a busy machine an overview may have no time for advice, and prints the command that advises
        for _ in 0..2 {
            if words[0] == "inspect" && run.stdout.contains("advise-threshold public.") {
                run = crate::support::command::run(&mut toastctl);
            }
        }
        assert_eq!(run.code, Some(code), "{command}: {}{}", run.stdout, run.stderr);
        // a busy machine shows progress
        let said = run.stderr.split_inclusive('\n').filter(|line| !line.contains(" blocks read ("));
        let said: String = said.collect();
        shown.push_str(&format!("$ toastctl {command}\n{said}{}", run.stdout));
    }
    shown
}

/// Fits the terminal, long lines of standard error and commands broken as it breaks them.
#[track_caller]
fn fits(shown: &str, columns: usize) {
    let rows: usize = shown.lines().map(|line| line.chars().count().div_ceil(columns).max(1)).sum();
    // a busy machine makes retoast wait for locks, which takes one line more
    let waits = usize::from(shown.contains("longest wait for a lock"));
    assert!(rows <= LINES + waits, "{rows} lines:\n{shown}");
}

/// What an overview ends with, below the findings: a terminal shows tables and columns together. Other reports as they are.
fn of_the_database(shown: &str) -> &str {
    shown
        .split_once("\n\n")
        .filter(|(_, rest)| rest.contains("by size:"))
        .map_or(shown, |(_, rest)| rest)
}

/// The transcript without figures, units and what line breaks and columns' widths depend on.
fn masked(shown: &str, database: &Database<'_>) -> String {
    // a busy machine reads less in the time that there is
    let shown = shown.replace("; --sample reads more", "").replace(database.name(), "shop");
    let shown = shown.replace(&database.server().socket_dir().display().to_string(), "/tmp/server");
    let mut out: Vec<String> = Vec::new();
    // progress, on a busy machine
    for line in shown.lines().filter(|line| !line.contains(" blocks read (")) {
        let is_row = line.contains(" | ") || line.contains("-+-");
        let words: Vec<String> = line.split_whitespace().map(figureless).collect();
        let line = words
            .join(" ")
            .replace("N bytes", "N kB")
            .replace("N MB", "N kB")
            .replace("N ns", "N µs")
            // an interval is left out where both ends look the same
            .replace(" (N–N kB)", "");
        let is_item = line.contains(": ") && !line.contains("price: ");
        let begins = is_row || line.is_empty() || line.starts_with("$ ") || is_item;
        match out.last_mut() {
            Some(last)
                if !begins
                    && !last.is_empty()
                    && !last.contains(" | ")
                    && !last.starts_with("$ ") =>
            {
                last.push(' ');
                last.push_str(&line);
            }
            _ => out.push(line),
        }
    }
    for line in &mut out {
        // a line may end between a number and its unit
        *line = line.replace("N bytes", "N kB").replace("N MB", "N kB");
        // which parts of it matter depends on when the server's last checkpoint was
        if let Some(end) = line.find("): ").filter(|_| line.starts_with("expected WAL: ")) {
            line.truncate(end + 1);
        }
    }
    // said where the times that were measured tell it for certain
    out.join("\n").replace("N % less CPU time per read, ", "")
}

/// Numbers are one letter, rules one sign; names with digits, such as lz4, stay.
fn figureless(word: &str) -> String {
    let is_rule = word.chars().all(|c| matches!(c, '-' | '+' | '|'));
    let mut out = String::new();
    for c in word.chars() {
        let in_name = out.ends_with(|last: char| last.is_ascii_lowercase());
        let c = if c.is_ascii_digit() && !in_name { 'N' } else { c };
        let again = out.ends_with(c) && (c == 'N' || is_rule && c == '-');
        if !(again || c == '.' && out.ends_with('N')) {
            out.push(c);
        }
    }
    out
}

#[test]
fn which_column_eats_my_disk() {
    let database = shop();
    let shown = screen(&database, COLUMNS, 0, &["inspect"]);
    fits(of_the_database(&shown), COLUMNS);
    let first = shown.lines().find(|line| line.contains(" | ") && line.contains(" %")).unwrap();
    assert!(first.contains(" orders ") && first.contains(" doc "), "{first}");
    insta::assert_snapshot!("question_1_disk", masked(&shown, &database));
}

#[test]
fn why_are_reads_slow_what_would_lz4_give_and_which_target() {
    let database = shop();
    let answer = |name: &str, command: &str| {
        let shown = screen(&database, COLUMNS, 0, &[command]);
        fits(&shown, COLUMNS);
        // choices depend on figures: what is said of them, not which
        assert!(
            shown.contains("today ") && shown.contains("> recommended; * no other is better"),
            "{shown}"
        );
        insta::assert_snapshot!(name.to_owned(), masked(&shown, &database));
    };
    answer("question_2_reads", "advise-threshold orders --optimize read");
    answer("question_3_lz4", "advise-threshold orders --toaster lz4");
    answer(
        "question_4_target",
        "advise-threshold orders --method lz4 --target 2032 --target 4080 --target 8160",
    );
}

#[test]
fn convert_while_the_application_runs() {
    // slots and transactions of other tests would be told
    let server = Server::start(&Options::default());
    let database = shop_on(&server);
    let commands = ["retoast orders -c doc --toaster lz4 --dry-run"];
    let planned = screen(&database, COLUMNS, 0, &commands);
    fits(&planned, COLUMNS);
    assert!(planned.contains("\nexpected WAL: ") && planned.contains("): rows "), "{planned}");
    insta::assert_snapshot!("question_5_plan", masked(&planned, &database));
    let done = screen(&database, COLUMNS, 0, &["retoast orders -c doc --toaster lz4"]);
    assert!(done.contains(": complete: all values are stored as requested"), "{done}");
    assert!(done.trim_end().lines().rev().take(4).any(|line| line.starts_with("public.orders: ")));
    // what it said before it began, and what it has set, may scroll away
    let report = done.split_once("\nto restore: ").unwrap().1;
    fits(report, COLUMNS);
}

#[test]
fn what_can_i_do_without_privileges() {
    let database = shop();
    fits(&screen(&database, COLUMNS, 0, &["help permissions"]), COLUMNS);
    let role = database.create_role("reader_of");
    database.psql(&format!("GRANT SELECT ON orders TO {role}"));
    let read = screen(&database, COLUMNS, 0, &[&format!("inspect orders -U {role}")]);
    let written =
        screen(&database, COLUMNS, 1, &[&format!("retoast orders -c doc --toaster lz4 -U {role}")]);
    fits(&read, COLUMNS);
    fits(&written, COLUMNS);
    let shown = format!("{read}{written}").replace(&*role, "reader");
    // since 17 SQL functions tell where every value stands
    let since = if database.server().major() >= 17 { "_since_17" } else { "" };
    insta::assert_snapshot!(format!("question_6_privileges{since}"), masked(&shown, &database));
}

#[test]
fn what_if_i_mistype() {
    let database = shop();
    let missing = ["inspect ordres", "retoast orders -c dco --toaster lz4"];
    let unreadable = screen(&database, COLUMNS, 1, &missing);
    let usage = screen(
        &database,
        COLUMNS,
        2,
        &["retoast orders -c doc --toaster lz5", "inspect orders --formt json"],
    );
    let shown = format!("{unreadable}{usage}");
    fits(&shown, COLUMNS);
    insta::assert_snapshot!("question_7_typos", masked(&shown, &database));
}

#[test]
fn what_does_a_narrow_terminal_show() {
    let database = shop();
    for (columns, command) in
        [(60, "inspect --limit 2"), (50, "inspect log"), (60, "inspect images")]
    {
        let shown = screen(&database, columns, 0, &[command]);
        assert!(shown.lines().all(|line| line.chars().count() <= columns), "{shown}");
        fits(of_the_database(&shown), columns);
    }
    // which columns are left depends on how many digits the sizes have
    let shown = screen(&database, 60, 0, &["inspect --limit 2"]);
    let first = shown.lines().filter(|line| line.trim_start().starts_with("Table")).count();
    assert_eq!(first, 2, "{shown}");
    assert!(shown.contains("hidden, shown with COLUMNS=0: "), "{shown}");
}

#[test]
fn how_do_i_run_it_at_night() {
    let database = shop();
    let shown = screen(&database, COLUMNS, 0, &["help throttle"]);
    fits(&shown, COLUMNS);
    insta::assert_snapshot!("question_9_night", masked(&shown, &database));
}

#[test]
fn questions_that_change_nothing() {
    let database = unchanged_shop();
    for (question, command) in [
        ("10_large", "value orders --limit 5"),
        ("11_all_lz4", "advise-threshold --toaster lz4 -q"),
        ("12_costs", "inspect --explain orders"),
        ("13_sound", "check"),
        ("14_keys", "keys orders"),
        ("15_space", "compact orders --dry-run -q"),
        ("16_boss", "inspect --format markdown --limit 1"),
    ] {
        let shown = screen(database, COLUMNS, 0, &[command]);
        // what is for a document is not wrapped by a terminal
        fits(&shown, if question == "16_boss" { 140 } else { COLUMNS });
        let mut masked = masked(&shown, database);
        if question == "14_keys" {
            // a busy machine does not get through all blocks in the time that a sample may take
            masked = masked.replace(" ±N kB", "").replace(" ±N", "");
        }
        insta::assert_snapshot!(format!("question_{question}"), masked);
    }
}

#[test]
fn how_do_i_give_space_back_and_undo_a_conversion() {
    let database = shop();
    let converted = screen(&database, COLUMNS, 0, &["retoast orders -c doc --toaster lz4 -q"]);
    assert!(converted.contains("to restore: ALTER TABLE"), "{converted}");
    let compacted = screen(&database, COLUMNS, 0, &["compact orders -q"]);
    fits(&compacted, COLUMNS);
    assert!(compacted.contains("public.orders, compact: complete"), "{compacted}");
    assert!(compacted.contains(" before, ") && compacted.contains(" now "), "{compacted}");
    let undone = screen(&database, COLUMNS, 0, &["retoast orders -c doc --toaster external -q"]);
    fits(undone.split_once("\nto restore: ").unwrap().1, COLUMNS);
    assert!(undone.contains("doc to external: complete: all values are stored as requested"));
    let sql = "SELECT attstorage FROM pg_attribute WHERE attrelid = 'orders'::regclass \
               AND attname = 'doc'";
    assert_eq!(database.psql(sql), "e");
}

#[test]
fn how_does_an_ordinary_owner_do_it() {
    let database = shop();
    let role = database.create_owner("owner");
    database.psql(&format!("ALTER TABLE orders OWNER TO {role}"));
    let command = format!("retoast orders -c doc --toaster lz4 -q -U {role}");
    let planned = screen(&database, COLUMNS, 0, &[&format!("{command} --dry-run")]);
    fits(&planned, COLUMNS);
    let done = screen(&database, COLUMNS, 0, &[&command]);
    // since 17 SQL functions say what is out of line
    let verdicts = [
        "the compression of all values is as requested",
        "complete: all values are stored as requested",
    ];
    assert!(verdicts.iter().any(|verdict| done.contains(verdict)), "{done}");
    database.psql(&format!("ALTER TABLE orders OWNER TO {}", database.server().superuser()));
}

#[test]
fn how_do_i_rescue_damaged_values() {
    let database = server::shared().with_pageinspect("rescued");
    database.psql(
        "CREATE TABLE letters (id int, body text);
         ALTER TABLE letters ALTER body SET STORAGE external;
         INSERT INTO letters SELECT i, repeat(i::text, 9000) FROM generate_series(1, 4) AS i;
         SET allow_system_table_mods = on;
         DO $$DECLARE c regclass; BEGIN
             SELECT reltoastrelid INTO c FROM pg_class WHERE oid = 'letters'::regclass;
             UPDATE pg_class SET relkind = 'r' WHERE oid = c;
             EXECUTE format('DELETE FROM %1$s WHERE chunk_seq = 1
                             AND chunk_id = (SELECT min(chunk_id) FROM %1$s)', c);
             UPDATE pg_class SET relkind = 't' WHERE oid = c; END$$",
    );
    // deleted chunks are found as long as they are there
    database.psql("VACUUM letters");
    let temp = tempfile::tempdir().unwrap();
    let shown = shell(&database, temp.path(), 5, "toastctl check letters --salvage left");
    fits(&shown, COLUMNS);
    insta::assert_snapshot!("question_17_rescue", masked(&shown, &database));
    assert_eq!(
        std::fs::read_to_string(temp.path().join("left/manifest.jsonl")).unwrap().lines().count(),
        1
    );
}

#[test]
fn how_do_i_read_a_copied_file() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures/pg15/dead");
    let database = unchanged_shop();
    let line = "toastctl inspect --relation-file heap.bin --toast-file toast.bin \
                --columns 'id int4, t text, v int4, big text'";
    let shown = shell(database, &dir, 0, line);
    fits(&shown, COLUMNS);
    insta::assert_snapshot!("question_18_file", masked(&shown, database));
}

#[test]
fn how_do_i_run_it_over_several_databases() {
    let branches = ["branch", "branch"].map(|name| server::shared().with_pageinspect(name));
    for database in &branches {
        database.psql("CREATE TABLE sales AS SELECT repeat('x', 100) AS note; VACUUM");
    }
    let line = "for d in $(psql -AtXc \"SELECT datname FROM pg_database WHERE datname ~ '^branch' \
                ORDER BY oid\"); \
                do echo $d; toastctl check -d $d; done";
    let shown = shell(&branches[0], Path::new("/"), 0, line);
    fits(&shown, COLUMNS);
    insta::assert_snapshot!("question_19_databases", masked(&shown, &branches[0]));
}
