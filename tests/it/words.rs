//! What users are told when a name is misspelt, when only some tables have a column, and when they look for help.

use serde_json::Value;

use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::overview::Overview;
use crate::support::retoast::{refused, retoast};
use crate::support::server;
use crate::support::server::with_pageinspect;

#[test]
fn a_misspelt_table_is_answered_with_its_likely_name() {
    let database = server::shared().create_database("words");
    let inspect = |name: &str| {
        let run = run(toastctl().args(["inspect", name, "-d", &database.conninfo()]));
        assert_eq!(run.code, Some(1), "{}", run.stdout);
        run.stderr
    };
    assert_eq!(
        inspect("orders"),
        "toastctl: error: relation \"orders\" does not exist\n\
         HINT:  This database has no tables; -d names another one.\n"
    );
    database.psql(
        "CREATE TABLE orders (v text); CREATE TABLE \"Order Items\" (v text);
         CREATE TABLE \"Shopping Cart\" (v text);
         CREATE SCHEMA app; CREATE TABLE app.customers (v text)",
    );
    for (given, quoted, hint) in [
        ("ordres", "\"ordres\"", "the table \"orders\""),
        ("public.order", "\"public.order\"", "the table \"orders\""),
        ("customers", "\"customers\"", "the table \"app.customers\""),
        (
            "\"Ordr Items\"",
            "\"Ordr Items\"",
            "the table \"Order Items\". Quote it: '\"Order Items\"'",
        ),
        ("Shopping", "\"Shopping\"", "the table \"Shopping Cart\". Quote it: '\"Shopping Cart\"'"),
    ] {
        let expected = format!(
            "toastctl: error: relation {quoted} does not exist\nHINT:  Perhaps you meant {hint}.\n"
        );
        assert_eq!(inspect(given), expected);
    }
    assert_eq!(inspect("zebra"), "toastctl: error: relation \"zebra\" does not exist\n");
}

#[test]
fn an_empty_database_says_so() {
    let database = server::shared().create_database("words");
    let inspect = |format: &str| {
        run(toastctl().args(["inspect", "--format", format, "-d", &database.conninfo()]))
    };
    let found = inspect("table");
    assert_eq!((found.code, found.stdout.as_str()), (Some(0), ""));
    let said = format!("toastctl: notice: database \"{}\" has no tables\n", database.name());
    assert_eq!(found.stderr, said);
    let report: Printed<Overview> = inspect("json").exits(0).report();
    assert!(report.relations.is_empty(), "{report}");
}

/// A table of one row, and two columns to advise on.
#[test]
fn one_is_no_plural_and_what_is_said_of_all_columns_is_said_once() {
    let database = with_pageinspect("words");
    database
        .psql("CREATE TABLE one (v text, w text); INSERT INTO one VALUES ('x', 'y'); VACUUM one");
    let said = |arguments: &[&str], locale: &str| {
        let mut command = toastctl();
        command.args(arguments).args(["one", "-d", &database.conninfo()]);
        run(command.env("LC_ALL", locale)).ok()
    };
    let text = said(&["inspect"], "C.UTF-8");
    assert!(text.contains("heap: 8192 bytes in 1 block, "), "{text}");
    assert!(text.contains(", empty\n"), "{text}");
    let advise = ["advise-threshold", "--details", "-c", "v", "-c", "w"];
    let text = said(&advise, "C.UTF-8");
    assert_eq!(text.matches("sample: 1 of 1 block, 1 row, ").count(), 2, "{text}");
    for once in ["Marks: > ", "Settings apply to new values", "Buffers/read: "] {
        assert_eq!(text.matches(once).count(), 1, "{once}: {text}");
    }
    // signs that not every terminal has
    database.psql(
        "CREATE TABLE many AS SELECT repeat(md5(i::text), 90) AS v FROM generate_series(1, 300) AS i",
    );
    let advise = ["advise-threshold", "--storage", "external", "--details", "many"];
    let (text, plain) = (said(&advise, "C.UTF-8"), said(&advise, "C"));
    assert!(text.contains('±') && text.contains('µ'), "{text}");
    assert!(plain.is_ascii() && plain.lines().count() == text.lines().count(), "{plain}");
}

#[test]
fn help_is_found_where_psql_has_the_host_and_by_topic() {
    let said = |arguments: &[&str]| run(toastctl().args(arguments));
    for arguments in [&["inspect", "-h"][..], &["-h"]] {
        let run = said(arguments);
        assert_eq!(run.code, Some(2));
        assert!(
            run.stderr.contains("HINT:  -h is the server's host, as in psql"),
            "{}",
            run.stderr
        );
    }
    let permissions = said(&["help", "permissions"]).ok();
    assert!(permissions.contains("GRANT SELECT") && permissions.lines().count() <= 24);
    let schema: Value = serde_json::from_str(&said(&["help", "json", "inspect"]).ok()).unwrap();
    assert_eq!(schema["type"], "object");
    let unknown = said(&["help", "permission"]);
    refused(&unknown, 2, "there is no verb or topic \"permission\"\nHINT:  Available: inspect, ");
}

#[test]
fn a_word_that_is_no_toaster_is_answered_with_those_that_are() {
    let database = with_pageinspect("words");
    database.psql("CREATE TABLE t (v text)");
    let run = retoast(&database, &["t", "-c", "v", "--toaster", "lz5"]);
    refused(&run, 2, "\"lz5\"");
    for word in ["pglz", "lz4", "external", "main", "extended", "plain"] {
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
}

/// Styles are for terminals: a pipe has none, unless it is forced, and then nothing but styles is added.
#[test]
fn colours_are_for_terminals() {
    let database = with_pageinspect("words");
    database.psql(
        "CREATE TABLE docs AS SELECT i AS id, jsonb_build_object('id', i, 'note', repeat(md5(i::text), 100)) AS doc
         FROM generate_series(1, 200) AS i; VACUUM docs",
    );
    for verb in [
        &["inspect"][..],
        &["inspect", "docs"],
        &["inspect", "docs", "--explain"],
        &["check"],
        &["keys", "docs"],
        &["advise-threshold", "docs", "-c", "doc", "--method", "pglz", "--reads-per-write", "1"],
        &["compact", "docs", "--dry-run"],
        &["value", "docs.doc@(0,1)"],
    ] {
        let printed = |name: &str, value: &str| {
            let mut command = toastctl();
            command.args(verb).args(["-d", &database.url()]).env("COLUMNS", "80");
            command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env("LC_ALL", "C.UTF-8");
            run(command.env(name, value)).ok()
        };
        let (piped, forced) = (printed("TERM", "xterm"), printed("CLICOLOR_FORCE", "1"));
        assert!(!piped.contains('\u{1b}'), "{piped:?}");
        assert!(forced.contains("\u{1b}["), "{forced:?}");
        // what a progress line or a clock changes is on standard error
        if verb[0] != "compact" {
            assert_eq!(anstream::adapter::strip_str(&forced).to_string(), piped);
        }
    }
    for format in ["json", "jsonl", "csv", "markdown"] {
        let mut command = toastctl();
        command.args(["inspect", "docs", "--format", format, "-d", &database.url()]);
        let printed = run(command.env("CLICOLOR_FORCE", "1")).ok();
        assert!(!printed.contains('\u{1b}'), "{printed:?}");
    }
    let mut command = toastctl();
    command.args(["check", "docs", "-d", &database.url()]).env("CLICOLOR_FORCE", "1");
    let printed = run(&mut command).ok();
    insta::assert_snapshot!("colours", printed.replace('\u{1b}', "ESC"));
}
