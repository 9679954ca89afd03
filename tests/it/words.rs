//! What users are told when a name is misspelt, when only some tables have a column, and when they look for help.

use serde_json::Value;

use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::overview::Overview;
use crate::support::retoast::{refused, retoast};
use crate::support::server;
use crate::support::server::{Database, with_pageinspect};
use crate::support::verbs::{advise, advised};

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
        ("ordres", "\"ordres\"", "the table orders"),
        ("public.order", "\"public.order\"", "the table orders"),
        ("customers", "\"customers\"", "the table app.customers"),
        ("\"Ordr Items\"", "\"Ordr Items\"", "the table '\"Order Items\"'"),
        ("Shopping", "\"Shopping\"", "the table '\"Shopping Cart\"'"),
    ] {
        let expected = format!(
            "toastctl: error: relation {quoted} does not exist\nHINT:  Perhaps you meant {hint}.\n"
        );
        assert_eq!(inspect(given), expected);
    }
    let other = "toastctl: error: relation \"zebra\" does not exist\n\
                 HINT:  toastctl inspect shows the tables of this database; -d names another one.\n";
    assert_eq!(inspect("zebra"), other);
    database.psql("CREATE TABLE parcels (id int, contents text)");
    let column = "toastctl: error: relation \"contents\" does not exist\n\
                  HINT:  That is a column of the table parcels: toastctl value 'parcels.contents@id=42' shows a value, and inspect, keys, advise-threshold and retoast take -c contents.\n";
    assert_eq!(inspect("contents"), column);
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
    let advised = run(toastctl().args(["advise-threshold", "-d", &database.conninfo()])).exits(0);
    assert_eq!(advised.stderr, said);
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
    for once in ["Marks: > ", "Settings apply to new values", "Buffers:"] {
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
    refused(
        &unknown,
        2,
        "there is no verb or topic \"permission\"\nHINT:  Perhaps you meant permissions.",
    );
    let undo = said(&["help", "undo"]);
    refused(&undo, 2, "HINT:  Perhaps you meant runbooks: UNDO A CONVERSION.");
    assert!(said(&["help", "runbooks"]).ok().contains("\nUNDO A CONVERSION\n"));
}

#[test]
fn a_word_that_is_no_toaster_is_answered_with_those_that_are() {
    let database = with_pageinspect("words");
    database.psql("CREATE TABLE t (v text)");
    let near = retoast(&database, &["t", "-c", "v", "--toaster", "lz5"]);
    refused(&near, 2, "there is no toaster \"lz5\" on this server\nHINT:  Perhaps you meant lz4.");
    let run = retoast(&database, &["t", "-c", "v", "--toaster", "zstd"]);
    refused(&run, 2, "\"zstd\"");
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
        &["check", "docs"],
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

#[test]
fn the_formats_that_help_offers_are_those_that_are_printed() {
    let database = with_pageinspect("formats");
    database.psql("CREATE TABLE t (id int PRIMARY KEY, v jsonb); INSERT INTO t SELECT i, '{\"a\": 1}' FROM generate_series(1, 100) i");
    let lz4: &[&str] = &["-c", "v", "--toaster", "lz4", "--dry-run"];
    for (verb, words) in [
        ("inspect", &[][..]),
        ("check", &[]),
        ("keys", &[]),
        ("value", &[]),
        ("advise-threshold", &[]),
        ("retoast", lz4),
        ("compact", &["--dry-run"]),
        ("reindex", &["--dry-run"]),
    ] {
        let help = run(toastctl().args([verb, "-?"])).ok();
        let line = help.lines().find(|line| line.contains("--format FORMAT")).unwrap();
        for format in ["table", "json", "jsonl", "csv", "markdown", "html", "openmetrics", "nagios"]
        {
            let offered =
                line.ends_with("...") || line.split([' ', ',']).any(|word| word == format);
            let mut command = toastctl();
            command.args([verb, "t", "-d", &database.url(), "--format", format]).args(words);
            let done = run(&mut command);
            let is_refused = done.stderr.contains("'--format <FORMAT>'")
                || done.stderr.contains(" is not available for ");
            assert_eq!(is_refused, !offered, "{verb} {format}: {}", done.stderr);
            // check has a line for each finding there
            if offered && (verb, format) != ("check", "jsonl") {
                assert_ne!(done.stdout, "", "{verb} {format}: {}", done.stderr);
            }
        }
    }
}

#[test]
fn a_plan_has_what_the_manual_says_of_it() {
    let database = with_pageinspect("plans");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 3000) AS i;
         DELETE FROM t WHERE id <= 2000; VACUUM t",
    );
    let lz4 = ["t", "-c", "v", "--toaster", "lz4"];
    for (verb, words, has) in [
        (
            "retoast",
            &lz4[..],
            &["ALTER TABLE ONLY ", "expected WAL: ", "files grow meanwhile by"][..],
        ),
        ("compact", &["t"], &["compact: TOAST: ", "compact: heap: ", " of WAL", "to move: "]),
        ("reindex", &["t"], &["index: ", " would become "]),
    ] {
        let manual = run(toastctl().args(["help", verb])).ok();
        let manual = manual.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "The plan of a conversion has the statements, the estimated time, WAL and space, and the effects on locks,",
            "that of a compaction has the sizes of files and the WAL; that of a rebuild has the sizes of indexes.",
        ] {
            assert!(manual.contains(said), "{manual}");
        }
        let plan =
            run(toastctl().args([verb, "-d", &database.url(), "--dry-run"]).args(words)).ok();
        let times: &[&str] = if verb == "reindex" { &[] } else { &["expected: about "] };
        for part in has.iter().chain(times).chain(&["dry run: nothing was changed", "\nlock: "]) {
            assert!(plan.contains(part), "{verb} {part}: {plan}");
        }
    }
}

#[test]
fn names_in_hints_can_be_typed_and_a_column_in_a_name_is_recognized() {
    let database = with_pageinspect("typed");
    database.psql(
        "CREATE SCHEMA tenant_a; CREATE SCHEMA \"Tenant-C\"; CREATE TABLE tenant_a.docs (id int, d jsonb);
         CREATE TABLE \"Tenant-C\".docs (id int, d jsonb); CREATE TABLE orders (id int, body text)",
    );
    let inspect = |name: &str| run(toastctl().args(["inspect", name, "-d", &database.url()]));
    let hint = inspect("docs").stderr;
    assert!(hint.contains("one of the tables '\"Tenant-C\".docs', tenant_a.docs."), "{hint}");
    for name in ["tenant_a.docs", "\"Tenant-C\".docs"] {
        assert_eq!(inspect(name).code, Some(0), "{name}");
    }
    for (name, table, column) in
        [("tenant_a.docs.d", "tenant_a.docs", "d"), ("orders.body", "orders", "body")]
    {
        let value = run(toastctl().args(["value", name, "-d", &database.url()]));
        assert_eq!(value.code, Some(1), "{value:?}");
        let hint = format!("HINT:  Name the table, {table}: \"{column}\" is one of its columns.");
        assert!(value.stderr.contains(&hint), "{}", value.stderr);
        assert_eq!(run(toastctl().args(["value", table, "-d", &database.url()])).code, Some(0));
    }
    let other = run(toastctl().args(["inspect", "other.public.orders", "-d", &database.url()]));
    assert!(
        other.stderr.contains("cross-database references are not possible"),
        "{}",
        other.stderr
    );
}

#[test]
fn the_hint_about_a_materialized_view_helps() {
    let database = with_pageinspect("matview");
    database.psql(
        "CREATE TABLE art (id int PRIMARY KEY, body text COMPRESSION pglz);
         INSERT INTO art SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 100) i;
         CREATE MATERIALIZED VIEW mvart AS SELECT id, body, body || '' AS anew FROM art",
    );
    let refusal = retoast(&database, &["mvart", "-c", "body", "--toaster", "lz4"]);
    refused(&refusal, 1, "HINT:  REFRESH MATERIALIZED VIEW rebuilds its files and indexes.");
    assert!(refusal.stderr.contains("convert the tables that it reads, then REFRESH it: "));
    // what would be refused is not advised
    database.psql(
        "CREATE MATERIALIZED VIEW wide AS SELECT id, body || body AS t FROM art WITH NO DATA",
    );
    database.psql(
        "ALTER MATERIALIZED VIEW wide ALTER t SET STORAGE external; REFRESH MATERIALIZED VIEW wide",
    );
    let report = advised(&database, &["wide", "-c", "t"]);
    let advice = &report.recommendation;
    assert!(advice.reasons.starts_with("Recommended: "), "{advice}");
    assert!(advice.reasons.contains("rows of a materialized view cannot be updated"), "{advice}");
    assert!(advice.command.is_empty(), "{advice}");
    let text = advise(&database, &["wide", "-c", "t", "--details"]).ok();
    assert!(
        !text.contains("toastctl retoast public") && !text.contains("toastctl compact"),
        "{text}"
    );
    let methods =
        "SELECT DISTINCT pg_column_compression(body), pg_column_compression(anew) FROM mvart";
    database.psql(
        "ALTER MATERIALIZED VIEW mvart ALTER body SET COMPRESSION lz4, ALTER anew SET COMPRESSION lz4;
         REFRESH MATERIALIZED VIEW mvart",
    );
    assert_eq!(database.psql(methods), "pglz|lz4");
    retoast(&database, &["art", "-c", "body", "--toaster", "lz4"]).exits(0);
    database.psql("REFRESH MATERIALIZED VIEW mvart");
    assert_eq!(database.psql(methods), "lz4|lz4");
}

/// What `toastctl` says of a command line that it does not carry out, with this exit code.
#[track_caller]
fn mistake(database: &Database<'_>, code: i32, words: &[&str], said: &[&str]) {
    let mut command = toastctl();
    command.args(words);
    let is_without = |word: &&str| {
        word.contains("-file")
            || ["--pageinspect", "--datum", "-d", "--targets", "completions"].contains(word)
    };
    if !words.iter().any(is_without) {
        command.args(["-d", &database.url()]);
    }
    let run = run(&mut command);
    assert_eq!(run.code, Some(code), "{words:?}: {}{}", run.stdout, run.stderr);
    for text in said {
        assert!(run.stderr.contains(text), "{words:?}: not said: {text}\n{}", run.stderr);
    }
    for slip in ["invalid digit", " is not in ", "panicked", "Some(", "open-sesame"] {
        assert!(!run.stderr.contains(slip), "{words:?}: {}", run.stderr);
    }
}

#[test]
fn a_value_after_a_blank_is_not_taken_for_a_table() {
    let database = with_pageinspect("mistakes");
    database.psql("CREATE TABLE orders (id int, doc text); CREATE TABLE heap (doc text)");
    let convert = ["retoast", "orders", "-c", "doc", "--toaster", "lz4"];
    let cases: [(&[&str], &[&str], &str); 6] = [
        (&convert, &["--compact", "heap"], "--compact=heap"),
        (&convert, &["--reindex", "all"], "--reindex=all"),
        (&["compact", "orders"], &["--reindex", "bloated"], "--reindex=bloated"),
        (&["check"], &["--deep", "utf8"], "--deep=utf8"),
        (&["value", "orders"], &["--reassemble", "out"], "--reassemble=out"),
        (&["value"], &["--reassemble", "/tmp/out"], "--reassemble=/tmp/out"),
    ];
    for (before, after, instead) in cases {
        let words = [before, after].concat();
        mistake(
            &database,
            2,
            &words,
            &["needs an equals sign", &format!("HINT:  Write {instead};")],
        );
    }
    // a table of that name can be named before the options, and one after an option without a value is one
    for words in [&["compact", "heap", "--reindex"][..], &["value", "--reassemble", "orders"]] {
        run(toastctl().args(words).args(["-d", &database.url()])).ok();
    }
}

#[test]
fn words_of_other_tools_and_verbs_are_answered_with_what_does_it_here() {
    let database = with_pageinspect("mistakes");
    database.psql("CREATE SCHEMA app; CREATE TABLE app.t (v text); CREATE TABLE orders (doc text); CREATE SCHEMA empty");
    database.psql(
        "CREATE MATERIALIZED VIEW mv_orders AS SELECT doc FROM orders; CREATE VIEW v AS SELECT * FROM mv_orders;
         CREATE VIEW v_orders AS SELECT v.doc FROM v, app.t",
    );
    let oid = database.psql("SELECT 'orders'::regclass::oid");
    let toast = database
        .psql("SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'orders'::regclass");
    let dir = tempfile::tempdir().unwrap();
    let slips = dir.path().join("slips");
    std::fs::write(&slips, "no database\n".repeat(80)).unwrap();
    let slips = slips.to_str().unwrap();
    let convert = ["retoast", "orders", "-c", "doc"];
    let name = database.name().to_owned();
    let url = format!("postgres://joe:open-sesame@localhost/{name}");
    let shop = server::shared().create_database("shop_of_words");
    let misspelt = shop.url().replace("words", "wrods");
    let meant = format!("HINT:  Perhaps you meant the database {}.", shop.name());
    let unlike = database.url().replace(&name, "zebra");
    let several = database.url().replace(&name, "odd,shop");
    let cases: [(i32, &[&str], &str); 189] = [
        (2, &["inspect", "-T", "orders"], "HINT:  --exclude TABLE leaves out a table"),
        (2, &["check", "--exclude-table=orders"], "HINT:  --exclude TABLE leaves out a table"),
        (2, &["keys", "-T", "orders"], "HINT:  keys takes the tables that are named"),
        (2, &["retoast", "-T", "10"], "HINT:  retoast takes the tables that are named"),
        (2, &["value", "-N", "app"], "HINT:  value takes the tables that are named"),
        (2, &["keys", "-n", "app"], "HINT:  A pattern names the tables of a schema: toastctl keys"),
        (2, &["inspect", "-D", "/var/lib"], "HINT:  toastctl reads the files of one table"),
        (
            2,
            &["inspect", "--pgdata", "/var/lib"],
            "inspect --relation-file FILE; toastctl help files",
        ),
        (2, &["check", "--data-directory=x"], "check --relation-file FILE; toastctl help files"),
        (2, &["compact", "-D", "/var/lib"], "HINT:  compact needs a server;"),
        (2, &["inspect", "/tmp"], "error: \"/tmp\" is a directory, not a table\n"),
        (2, &["compact", "/tmp"], "HINT:  compact needs a server;"),
        (
            2,
            &["inspect", "--max-time", "5", "minutes"],
            "HINT:  Write --max-time 5min; a table \"minutes\" is named before the options.",
        ),
        (2, &["compact", "orders", "--max-time=5", "h"], "HINT:  Write --max-time 5h;"),
        (
            2,
            &[
                "missing",
                "chunk",
                "number",
                "0",
                "for",
                "toast",
                "value",
                "7",
                "in",
                "pg_toast_2619",
            ],
            "HINT:  toastctl check pg_toast.pg_toast_2619 -d DBNAME\n",
        ),
        (2, &["inspect", "--max-time", "5 minutes"], "HINT:  Write --max-time 5min\n"),
        (2, &["inspect", "--sample", "9", "blocks"], "HINT:  Write --sample '9 blocks';"),
        (2, &["keys", "orders", "--sample", "5", "%"], "HINT:  Write --sample '5%';"),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--set", "disk-limit=10", "MB"]].concat(),
            "HINT:  Write --set disk-limit=10MB;",
        ),
        (
            2,
            &["inspect", "--fail-on", "free_space>1", "gb"],
            "HINT:  Write --fail-on 'free_space>1GB'\n",
        ),
        (
            2,
            &["retoast", "orders", "--toaster", "lz5"],
            "error: \"lz5\" is no storage and no compression method, and a toaster of pg_toaster requires --column\nHINT:  Perhaps you meant lz4.",
        ),
        (
            2,
            &["retoast", "orders", "--toaster", "gzip"],
            "HINT:  --toaster accepts pglz, lz4, external",
        ),
        (
            2,
            &["inspect", "--explain", "orders", "--policy", "best"],
            "HINT:  --explain is about what is stored now: toastctl advise-threshold",
        ),
        (2, &["inspect", "--explain"], "HINT:  --explain is about tables that are named"),
        (2, &["inspect", "--details", "--sort", "raw"], "HINT:  --sort is for the overview"),
        (2, &["inspect", "orders", "-n", "app"], "HINT:  -n takes all tables of a schema:"),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--policy", "best"]].concat(),
            "HINT:  --toaster converts all values",
        ),
        (
            1,
            &["inspect", "-n", "nosuch"],
            "error: no table matches \"nosuch.*\": there is no schema \"nosuch\"\nHINT:  Schemas with tables: app, public.\n",
        ),
        (
            1,
            &["check", "n?such.*"],
            ": no schema matches it\nHINT:  Schemas with tables: app, public.",
        ),
        (1, &["inspect", "-n", "empty"], ": the schema \"empty\" has no tables\nHINT:  Schemas"),
        (1, &["inspect", "nosuch.zebra"], "HINT:  There is no schema \"nosuch\". Schemas with"),
        (1, &["inspect", "x"], "HINT:  toastctl inspect shows the tables of this database"),
        (1, &["inspect", "-N", "nosuch", "zebra*"], "HINT:  toastctl inspect shows the tables"),
        (
            2,
            &["check", "--all", "-d", "app"],
            "error: --all is for all databases, and -d app for one",
        ),
        (2, &["inspect", "--all", "-d", "app"], "HINT:  Leave out one of them. --all connects"),
        (2, &["compact", "orders", "--all", "-d", "app"], "they cannot be used together"),
        (
            2,
            &[&convert[..], &["--toaster", "external", "--method", "lz4"]].concat(),
            "error: --method has no effect with --toaster external, which does not compress\nHINT:  Leave out --method. To compress by lz4: --toaster lz4.",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--method", "lz4"]].concat(),
            "which names the method already\nHINT:  Leave out --method.\n",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "main", "--method", "pglz"]].concat(),
            "HINT:  Leave out --method. To compress by pglz: --toaster main=pglz.",
        ),
        (
            2,
            &[&convert[..], &["--method", "lz4"]].concat(),
            "To convert values to lz4: --toaster lz4.",
        ),
        (2, &["inspect", "orders", "--method", "lz4"], "as in: --policy best --method lz4"),
        (
            3,
            &["inspect", "--format", "nagios", "--compare", "/nosuch.json"],
            "with --format nagios: changes are not published there\nHINT:  Exit code 7 is for growth:",
        ),
        (
            2,
            &["inspect", "--format", "openmetrics", "--fail-on", "growth>1GB"],
            "error: --fail-on growth>1GB cannot be used with --format openmetrics: changes are not",
        ),
        (
            3,
            &["inspect", "orders", "--format", "nagios", "--details"],
            "which has only figures of the overview\nHINT:  Use --format table or json.",
        ),
        (
            2,
            &["inspect", "--all", "--compare", "/nosuch.json"],
            "error: --compare: the file \"/nosuch.json\" cannot be read: No such file or directory",
        ),
        (
            2,
            &["retoast", "*", "--toaster", "plain"],
            "--toaster plain requires --column\nHINT:  Values that are stored plain must fit the row",
        ),
        (
            2,
            &["retoast", "--toaster", "lz4"],
            "HINT:  toastctl advise-threshold says for which tables and columns that pays.",
        ),
        (2, &["\\d"], "HINT:  \\d is a command of psql; toastctl inspect lists the tables."),
        (2, &["inspect", "-x"], "HINT:  --details prints everything"),
        (2, &["inspect", "-A"], "HINT:  --format csv prints CSV."),
        (2, &["compact", "orders", "-n"], "HINT:  --dry-run prints the plan"),
        (2, &["value", "orders", "--where", "id=42"], "toastctl value TABLE.COLUMN@id=42."),
        (2, &["value", "orders.doc@id=42", "--limit", "3"], "are for lists of values"),
        (2, &["value", "orders", "--sort", "raw"], "--limit 10 lists the 10 largest values"),
        (2, &["check", "orders", "--column", "doc"], "HINT:  check takes whole tables."),
        (2, &["help", "--set"], "HINT:  --set is for retoast, compact and reindex"),
        (2, &["help", "--limit"], "HINT:  toastctl help VERB explains the options of a verb."),
        (
            2,
            &["inspect", "--format", "prometheus"],
            "HINT:  inspect and check have --format openmetrics",
        ),
        (2, &["keys", "--format", "xml"], "HINT:  --format json is for programs."),
        (2, &["keys", "orders", "--emit", "sql"], "the columns of --extract KEYS."),
        (2, &["keys", "orders", "--extract", "a", "--emit", "command"], "[possible values: sql]"),
        (2, &["completions"], "HINT:  Available: bash, zsh, fish."),
        (2, &["compact", "orders", "--reindex=yes"], "[possible values: bloated, all]"),
        (2, &["check", "--deep=klingon"], "expected an encoding of PostgreSQL"),
        (1, &["retoast", "orders.doc", "--toaster", "lz4"], "verbs that take columns have -c."),
        (2, &["retoast", "orders", "--target", "9000"], "--target requires --toaster or --policy"),
        (2, &["retoast", "orders", "--target", "100"], "expected a whole number from 128 to 8160"),
        (2, &["advise-threshold", "--target", "2kB"], "expected a whole number from 128 to 8160"),
        (2, &["retoast", "orders", "--jobs", "17"], "expected a whole number from 1 to 16"),
        (2, &["inspect", "--max-time", "2h30m"], "expected one number in ms, s, min or h"),
        (
            2,
            &["inspect", "--fail-on", "free_space>10G"],
            "\"10G\": expected a size in kB, MB, GB or TB",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--set", "nice"]].concat(),
            "as in nice=0: expected a number from 0 to 1000",
        ),
        (2, &["inspect", "--targets", "/nosuch"], "HINT:  Each line names a database"),
        (2, &["inspect", "--targets", slips], "error: 77 more lines: this is not a URI"),
        (
            1,
            &["value", "orders", "doc", "42"],
            "table orders: toastctl value 'orders.doc@id=42' shows",
        ),
        (
            1,
            &["inspect", "order.doc"],
            "HINT:  That is a column of the table orders: toastctl value 'orders.doc@id=42'",
        ),
        (
            1,
            &["inspect", "mv_orders", "doc"],
            "HINT:  That is a column of the table mv_orders: toastctl value 'mv_orders.doc@id=42'",
        ),
        (1, &["inspect", "orders@id=42"], "toastctl value 'orders.COLUMN@id=42'."),
        (1, &["value", "orders.id=42"], "toastctl value 'orders.COLUMN@id=42'."),
        (1, &["inspect", "app.t@id=42"], "toastctl value 'app.t.COLUMN@id=42'."),
        (1, &["inspect", "orders.doc@id=42"], "toastctl value 'orders.doc@id=42'."),
        (1, &["inspect", &oid], "is public.orders.\n"),
        (1, &["check", "pg_toast.pg_toast_1"], "HINT:  No table of this database has the OID 1."),
        (1, &["compact", &toast], "HINT:  Name the table that it belongs to: public.orders\n"),
        (
            2,
            &["advise-threshold", &toast],
            "HINT:  Name the table that it belongs to: public.orders\n",
        ),
        (1, &["inspect", "v_orders"], "name the tables that it reads: app.t, public.mv_orders\n"),
        (2, &["orders"], "HINT:  A verb comes first, as in: toastctl inspect orders"),
        (
            2,
            &["-d", "shop", "inspect", "orders"],
            "HINT:  Options follow the verb: toastctl inspect -d shop orders",
        ),
        (2, &["-d", &url, "check"], "HINT:  Options follow the verb: toastctl check -d ...\n"),
        (2, &["inspect", "--sort", "size"], "stored, raw, unused, read, dead, name"),
        (2, &[&convert[..], &["--toaster", "lz5"]].concat(), "HINT:  Perhaps you meant lz4."),
        (2, &[&convert[..], &["--toaster", "zstd"]].concat(), "HINT:  --toaster accepts pglz, lz4"),
        (
            1,
            &["retoast", "orders", "-c", "docs", "--toaster", "lz4"],
            "HINT:  Perhaps you meant \"doc\".",
        ),
        (
            1,
            &["retoast", "orders", "-c", "payload", "--toaster", "lz4"],
            "HINT:  Columns that can be toasted are \"doc\".",
        ),
        (2, &["--limit", "3"], "HINT:  A verb comes first, as in: toastctl inspect --limit 3"),
        (2, &["inspect", "orders", "--json"], "HINT:  --format json prints JSON."),
        (
            2,
            &["inspect", "-f", "q.sql"],
            "HINT:  --relation-file reads a relation file (toastctl help files)",
        ),
        (2, &["retoast", "-f", "q.sql"], "HINT:  toastctl runs no SQL"),
        (
            2,
            &["inspect", "--tabel", "orders"],
            "HINT:  Tables are named without an option: toastctl inspect TABLE.",
        ),
        (
            2,
            &["compact", "orders", "--files", "index"],
            "HINT:  toastctl reindex TABLE rebuilds indexes",
        ),
        (2, &["retoast", "orders", "--emit", "sql"], "HINT:  --dry-run shows the statements"),
        (2, &["compact", "-d", "shop"], "for all tables of the search path"),
        (2, &["inspect", "orders", "--dry-run"], "HINT:  This verb changes nothing;"),
        (2, &["compact", "orders", "--force"], "HINT:  toastctl never asks"),
        (2, &["check", "orders", "--repair"], "HINT:  check changes nothing: --salvage DIR"),
        (2, &["compact", "orders", "--nice", "5"], "HINT:  That is a setting: --set nice=VALUE"),
        (2, &["inspect", "--max-time", "-5s"], "HINT:  No value of an option is negative."),
        (
            1,
            &["inspect", "orders", "doc"],
            "HINT:  That is a column of the table orders: toastctl value 'orders.doc@id=42'",
        ),
        (1, &["inspect", "-n", "publc"], "HINT:  Perhaps you meant the schema public."),
        (1, &["check", "zebra"], "HINT:  toastctl inspect shows the tables of this database"),
        (1, &["inspect", "orders.doc"], "A single value is named as in table.column@id=42;"),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--set", "nise=1"]].concat(),
            "Perhaps you meant nice.",
        ),
        (2, &["repack", "orders"], "HINT:  toastctl compact TABLE returns free space"),
        (2, &["vacuum", "orders"], "HINT:  toastctl compact TABLE returns free space"),
        (2, &["analyze"], "HINT:  toastctl inspect shows"),
        (2, &["amcheck"], "HINT:  toastctl check finds damage"),
        (2, &["recompress", "orders"], "HINT:  toastctl retoast TABLE -c COLUMN"),
        (
            2,
            &[&convert[..], &["--storage", "external"]].concat(),
            "HINT:  --toaster takes storages",
        ),
        (2, &["compact", "orders", "--toaster", "lz4"], "HINT:  toastctl retoast TABLE"),
        (2, &["check", "--table", "orders"], "without an option: toastctl check TABLE."),
        (2, &["retoast", "-t", "orders"], "without an option: toastctl retoast TABLE."),
        (2, &["-t", "orders"], "without an option: toastctl inspect TABLE."),
        (2, &["inspect", "-a"], "HINT:  --all is for all databases of the server."),
        (2, &["inspect", "-l"], "HINT:  toastctl inspect --all gives an overview"),
        (2, &["inspect", "-s", "app"], "HINT:  -n SCHEMA selects"),
        (2, &["compact", "orders", "--wait-timeout=10"], "HINT:  --set max-wait=10s stops compact"),
        (2, &["compact", "--no-superuser-check"], "HINT:  There is no such check"),
        (2, &["compact", "orders", "-j", "4"], "HINT:  compact takes one table at a time"),
        (2, &["reindex", "orders", "--jobs=4"], "--set parallel-tables=N takes several."),
        (2, &["reindex", "--concurrently"], "HINT:  reindex always rebuilds concurrently."),
        (2, &["check", "--heapallindexed"], "HINT:  pg_amcheck, which comes with PostgreSQL"),
        (2, &["inspect", "--sort", "waste"], "HINT:  --sort unused is by free space"),
        (
            2,
            &["advise-threshold", "orders", "--toaster", "lz4,pglz"],
            "HINT:  Repeat the option: --toaster lz4 --toaster pglz\n",
        ),
        (
            2,
            &["advise-threshold", "--relation-file", "16384"],
            "HINT:  advise-threshold needs a server; inspect, check, value and keys read files.",
        ),
        (2, &["inspect", "/etc/passwd"], "error: \"/etc/passwd\" is a file, not a table\n"),
        (2, &["check", "/etc/passwd"], "HINT:  toastctl check --relation-file FILE --columns '"),
        (2, &["compact", "/etc/passwd"], "HINT:  compact needs a server;"),
        (2, &["retoast", "orders", "--undo"], "HINT:  A run that has ended is undone by"),
        (2, &["undo", "orders"], "toastctl help runbooks, UNDO A CONVERSION."),
        (
            2,
            &["check", "orders", "--salvage", "/etc/passwd"],
            "--salvage: \"/etc/passwd\" is a file: a directory is expected\n",
        ),
        (3, &["inspect", "-d", &misspelt], &meant),
        (3, &["inspect", "-d", &unlike], "FATAL:  database \"zebra\" does not exist\n"),
        (1, &["inspect", "app"], "HINT:  That is a schema: 'app.*' selects its tables."),
        (
            1,
            &["advise-threshold", "orders", "docc"],
            "HINT:  doc is a column of the table orders: toastctl value 'orders.doc@id=42'",
        ),
        (
            1,
            &["value", "orders", "5"],
            "HINT:  A value is named by its row: toastctl value 'TABLE.COLUMN@id=5'",
        ),
        (1, &["inspect", "\\d orders"], "HINT:  toastctl has verbs instead of psql's commands"),
        (
            1,
            &["inspect", "orders", "-c", "dco"],
            "error: column \"dco\" of relation \"public.orders\" does not exist",
        ),
        (
            2,
            &["inspect", "--fail-on", "free>1"],
            "there is no figure \"free\", but free_space and free_ratio",
        ),
        (
            2,
            &["inspect", "--compare", "/nosuch.json"],
            "HINT:  toastctl inspect --format json >FILE",
        ),
        (1, &["inspect", &name], "HINT:  That is this database: toastctl inspect without a name"),
        (1, &["check", "postgres"], "HINT:  That is a database: -d postgres connects to it."),
        (
            2,
            &["inspect", "host=/tmp dbname=shop"],
            "HINT:  -d takes it: toastctl inspect -d STRING.",
        ),
        (2, &["value", &url], "HINT:  -d takes it: toastctl value -d STRING."),
        (1, &["check", "orders,app.t"], "HINT:  Several tables are separate words"),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--set", "batch-ms", "5"]].concat(),
            "the value is missing, as in batch-ms=100",
        ),
        (2, &["check", "orders", "--salvage", "/etc"], "name a new directory"),
        (2, &["check", "--jobs", "99"], "expected a whole number from 1 to 64"),
        (2, &["check", "--jobs", "-1"], "expected a whole number from 1 to 64"),
        (2, &["inspect", "--limit", "0"], "expected a whole number from 1 to 4294967295"),
        (2, &["inspect", "--limit", "x"], "expected a whole number of at least 1"),
        (2, &["inspect", "--sample", "X"], "for '--sample <PART>': expected a part over 0"),
        (2, &["inspect", "--max-connections", "3"], "HINT:  --max-connections is for --all or"),
        (2, &["check", "orders", "--xact", "D"], "HINT:  --xact is for files; a server knows"),
        (2, &["check", "--checksums"], "HINT:  --checksums is for files; a server verifies"),
        (
            2,
            &["value", "--relation-file", "16385", "--columns", "id int", "--reassemble", "left"],
            "HINT:  Write --reassemble=left; ",
        ),
        (2, &["value", "--reassemble", "/tmp", "orders"], "HINT:  Write --reassemble=/tmp; "),
        (
            2,
            &["value", "orders", "--reassemble=/etc/passwd"],
            "--reassemble: \"/etc/passwd\" is a file: a directory is expected\n",
        ),
        (2, &["value", "--datum", "\\x"], "--datum: the value is empty\n"),
        (2, &["value", "orders", "--format", "html"], "HINT:  Available: table, json, jsonl, "),
        (2, &["INSPECT", "orders"], "HINT:  Verbs are in lower case: toastctl inspect."),
        (2, &["man", "inspect"], "HINT:  toastctl help VERB shows the manual page of a verb."),
        (2, &["SELECT 1"], "HINT:  toastctl runs no SQL; "),
        (2, &["inspect", ""], "HINT:  Is a variable of the shell not set?"),
        (
            2,
            &["inspect", "-h", "localhost:5432"],
            "HINT:  -p gives the port: -h localhost -p 5432.",
        ),
        (3, &["inspect", "-d", &several], "HINT:  --targets FILE, or --all, runs on several"),
        (
            2,
            &["inspect", "-d", "odd", "-d", "shop"],
            "HINT:  --targets FILE runs on several databases",
        ),
        (
            2,
            &["inspect", "-q", "-v"],
            "HINT:  -q says less and -v says more: leave out one of them.",
        ),
        (
            2,
            &["keys", "orders", "--extract", "a", "--emit", "sql", "--format", "json"],
            "HINT:  --emit prints nothing but the SQL or the command: leave out --format.",
        ),
        (
            2,
            &["advise-threshold", "orders", "--method", "lz4", "--toaster", "lz4"],
            "--method lz4 has no effect: --toaster compares it\n",
        ),
        (
            1,
            &["retoast", "orders", "-c", "id,doc", "--toaster", "lz4"],
            "HINT:  Columns that can be toasted are \"doc\".",
        ),
        (
            2,
            &[&convert[..], &["-toaster", "lz4"]].concat(),
            "HINT:  Long options have two dashes: --toaster.",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "main=zstd"]].concat(),
            "there is no compression method \"zstd\" for main\n",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--throttle-query", " "]].concat(),
            "for '--throttle-query <SQL>': the query is empty\n",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--since", "2026-01-01"]].concat(),
            "--since takes a file, not a date\nHINT:  ./2026-01-01 is such a file.",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--set", "disk-limit=10"]].concat(),
            "expected a size in kB, MB, GB or TB",
        ),
        (2, &["inspect", "--fail-on", "size>10"], "expected a size in kB, MB, GB or TB"),
        (
            2,
            &["inspect", "-d", "mysql://u:open-sesame@localhost/shop"],
            "the connection string is of an unknown kind\nHINT:  Write postgresql://",
        ),
        (
            2,
            &["inspect", "jdbc:postgresql://localhost/shop?password=open-sesame"],
            "a connection string of an unknown kind was given where a table is expected\n",
        ),
        (
            2,
            &[&convert[..], &["--toaster", "lz4", "--max-time", "soon"]].concat(),
            "such as 90s, 30min or 2h",
        ),
    ];
    for (code, words, said) in cases {
        mistake(&database, code, words, &[said]);
    }
}

#[test]
fn files_of_other_kinds_are_called_what_they_are() {
    let database = with_pageinspect("mistakes");
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let data = database.server().data_dir();
    let mut segments = std::fs::read_dir(data.join("pg_wal")).unwrap().map(|entry| entry.unwrap());
    let segment = segments.find(|entry| entry.file_name().len() == 24).unwrap();
    let wal = file("wal", &std::fs::read(segment.path()).unwrap());
    let control = data.join("global/pg_control").to_str().unwrap().to_owned();
    let mut tar = vec![0; 10_240];
    tar[..6].copy_from_slice(b"README");
    tar[257..262].copy_from_slice(b"ustar");
    let tar = file("x.tar", &tar);
    database.psql("CREATE TABLE t (id int PRIMARY KEY); CHECKPOINT");
    let file_of = |name: &str| {
        let path = database.psql(&format!("SELECT pg_relation_filepath('{name}')"));
        data.join(path).to_str().unwrap().to_owned()
    };
    let index = file_of("t_pkey");
    let map = file("16384_vm", &[0; 8192]);
    let text = file("passwd", &b"root:x:0:0:root:/root:/bin/bash\n".repeat(400));
    let relation_map = data.join("global/pg_filenode.map").to_str().unwrap().to_owned();
    let dump = file("shop.dump", b"PGDMP\x01\x0e\x00\x04\x08\x01");
    let columns = ["--columns", "id int, v jsonb"];
    for (path, kind) in [
        (&wal, "is a WAL file"),
        (&control, "is a control file (pg_control)"),
        (&tar, "is a tar archive"),
        (&index, "is an index"),
        (&map, "is a visibility map"),
        (&dump, "is an archive of pg_dump"),
        (&relation_map, "is a relation map (pg_filenode.map)"),
        (&text, "is text"),
    ] {
        for verb in ["inspect", "check", "value"] {
            let words = [&[verb, "--relation-file", path][..], &columns].concat();
            mistake(&database, 2, &words, &[&format!("\"{path}\" {kind}, not a relation file")]);
            if ![&text, &index, &map].contains(&path) {
                let words = [&[verb, "--pageinspect", path][..], &columns].concat();
                let said = format!("\"{path}\" {kind}, not saved output of pageinspect");
                mistake(&database, 2, &words, &[&said]);
            }
        }
        let words = [&["keys", "--relation-file", path][..], &columns].concat();
        mistake(&database, 2, &words, &[kind]);
    }
    for (path, kind) in [
        (data.clone(), "is a data directory"),
        (data.join("base/1"), "is the directory of a database"),
        (data.join("base"), "is a directory"),
    ] {
        let path = path.to_str().unwrap();
        let said = format!("\"{path}\" {kind}, not ");
        let help = "toastctl help files says how to find and read them.";
        for verb in ["inspect", "check"] {
            mistake(&database, 2, &[verb, path], &[&(said.clone() + "a table\nHINT:"), help]);
        }
        let file = said.clone() + "a relation file\nHINT:";
        for verb in ["inspect", "check", "keys", "value"] {
            let words = [verb, "--relation-file", path];
            mistake(&database, 2, &words, &[&file, help]);
            mistake(&database, 2, &[&words[..], &columns].concat(), &[&file, help]);
        }
        let saved = said + "saved output of pageinspect\nHINT:";
        mistake(&database, 2, &["inspect", "--pageinspect", path], &[&saved]);
    }
    let missing = ["inspect", "--relation-file", "/nosuch/16385"];
    mistake(&database, 2, &missing, &["could not open file \"/nosuch/16385\": No such file"]);
    let table = file_of("pg_class");
    let words = [&["check", "--pageinspect", &table][..], &columns].concat();
    mistake(&database, 2, &words, &["is a relation file, not saved output of pageinspect"]);
    let words = [&["check", "--toast-file", &table][..], &columns].concat();
    mistake(&database, 2, &words, &["HINT:  --relation-file names the table's own file, which"]);
    let twice = ["inspect", "--relation-file", &text, "--columns", "id int, id text"];
    mistake(&database, 2, &twice, &["two columns have the name \"id\""]);
    let words = [&["inspect", "--pageinspect", &text][..], &columns].concat();
    let none = "has no output of pageinspect\nHINT:  Expected what psql prints for ";
    mistake(&database, 2, &words, &[none]);
    for columns in ["id int v text", "id int; v text", "id int, n numeric(10,2) v text"] {
        let words = ["inspect", "--relation-file", &text, "--columns", columns];
        mistake(&database, 2, &words, &["a comma is missing after "]);
    }
}

#[test]
fn options_without_effect_are_refused() {
    let database = with_pageinspect("mistakes");
    database.psql("CREATE TABLE t (v text); CREATE TABLE d (doc jsonb)");
    let fixture = format!("{}/fixtures/captures/pg15/states", env!("CARGO_MANIFEST_DIR"));
    let heap = format!("{fixture}/heap.bin");
    let columns = format!("@{fixture}/meta.json");
    let file = ["--relation-file", &heap, "--columns", &columns];
    let datum = ["value", "--datum", "\\x0112ec030000100100400500000006000000"];
    let convert = ["retoast", "t", "-c", "v", "--toaster", "lz4"];
    let refused = "cannot be used with";
    let cases: [(Vec<&str>, &str); 16] = [
        ([&["inspect"], &file[..], &["-d", "shop"]].concat(), refused),
        ([&["inspect"], &file[..], &["-W"]].concat(), refused),
        ([&["inspect"], &file[..], &["--jobs", "3"]].concat(), refused),
        ([&["inspect"], &file[..], &["--source", "functions"]].concat(), refused),
        ([&["check"], &file[..], &["--scan-toast", "always"]].concat(), refused),
        ([&["check"], &file[..], &["--allow", "owner-code"]].concat(), refused),
        ([&["keys"], &file[..], &["-h", "localhost"]].concat(), refused),
        ([&["value"], &file[..], &["-U", "joe"]].concat(), refused),
        ([&datum[..], &["-d", "shop"]].concat(), refused),
        ([&datum[..], &["--source", "functions"]].concat(), refused),
        (vec!["inspect", "t", "--columns", "v text"], "--columns describes a file"),
        (vec!["keys", "d", "--columns", "v text"], "--columns describes a file"),
        (vec!["value", "t", "--big-endian"], "--big-endian has no effect"),
        (
            [&convert[..], &["--set", "new-values=extended"]].concat(),
            "has no effect with --toaster",
        ),
        (vec!["advise-threshold", "t", "--emit", "sql", "--format", "json"], refused),
        (
            vec!["advise-threshold", "t", "--calibrate", "never", "--calibration", "/nosuch/x"],
            "--calibrate never makes no such file",
        ),
    ];
    for (words, said) in cases {
        mistake(&database, 2, &words, &[said]);
    }
}

#[test]
fn a_file_that_cannot_be_written_ends_the_run_before_anything_is_changed() {
    let database = with_pageinspect("mistakes");
    database.psql("CREATE TABLE t (v text); INSERT INTO t VALUES (repeat('x', 9000))");
    let settings = "SELECT attstorage, attcompression FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum = 1";
    let before = database.psql(settings);
    let convert = ["retoast", "t", "-c", "v"];
    for dry_run in [&["--dry-run"][..], &[]] {
        for (file, said) in [
            (
                ["--toaster", "lz4", "--checkpoint", "/nosuch/x"],
                "checkpoint file \"/nosuch/x\": it cannot be created",
            ),
            (
                ["--policy", "best", "--since", "/nosuch/x"],
                "--since: \"/nosuch/x\": it cannot be created",
            ),
        ] {
            mistake(&database, 2, &[&convert[..], &file, dry_run].concat(), &[said]);
        }
        let compact = ["compact", "t", "--reindex", "--checkpoint", "/nosuch/x"];
        mistake(&database, 2, &[&compact[..], dry_run].concat(), &["it cannot be created"]);
    }
    assert_eq!(database.psql(settings), before);
}

#[test]
fn missing_rights_are_one_message_and_an_empty_database_is_called_that() {
    let database = with_pageinspect("mistakes");
    let tables: Vec<String> = (1..=11).map(|n| format!("CREATE TABLE t{n} (v text);")).collect();
    database.psql(&tables.join(" "));
    database.psql(
        "DO $$BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$",
    );
    let url = database.url_of("stranger");
    let inspect = run(toastctl().args(["inspect", "-q", "-d", &url]));
    assert_eq!(inspect.code, Some(1), "{inspect:?}");
    let lines: Vec<&str> = inspect.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", inspect.stderr);
    assert!(lines[0].ends_with(" and 3 more: permission denied"), "{}", inspect.stderr);
    assert!(lines[1].contains("toastctl help permissions"), "{}", inspect.stderr);
    for verb in ["check", "value", "advise-threshold", "compact"] {
        let run = run(toastctl().args([verb, "t1", "-q", "-d", &url]));
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("HINT:  "), "{}", run.stderr);
    }
    let empty = with_pageinspect("empty");
    let check = run(toastctl().args(["check", "-d", &empty.url()]));
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.stderr.contains("this database has no tables"), "{}", check.stderr);
    empty.psql("DROP EXTENSION pageinspect");
    let check = run(toastctl().args(["check", "-d", &empty.url()]));
    let said = "toastctl: notice: this database has no tables: only its system catalogs are read\n\
                toastctl: error: check needs pages: the extension pageinspect is not installed in this database\n\
                HINT:  CREATE EXTENSION pageinspect; lets toastctl read pages and report everything.\n";
    assert_eq!((check.code, check.stderr.as_str()), (Some(1), said));
}

#[test]
fn a_table_or_column_that_does_not_exist_has_one_exit_code_in_all_verbs() {
    let database = with_pageinspect("missing");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, doc jsonb); INSERT INTO t VALUES (1, 'x', '{}')",
    );
    let to = |table: &'static str, column: &'static str| {
        ["retoast", table, "-c", column, "--toaster", "external"]
    };
    let cases: [&[&str]; 15] = [
        &["inspect", "none"],
        &["inspect", "t", "-c", "none"],
        &["inspect", "-c", "none"],
        &["inspect", "t", "-c", "none", "--explain"],
        &["check", "none"],
        &["value", "none"],
        &["value", "t.none@id=1"],
        &["value", "t.v@none=1"],
        &["keys", "none"],
        &["keys", "t", "-c", "none"],
        &["advise-threshold", "none"],
        &["advise-threshold", "t", "-c", "none"],
        &["compact", "none"],
        &["reindex", "none"],
        &["retoast", "none", "--toaster", "external", "-c", "v", "--dry-run"],
    ];
    let retoast: [&[&str]; 3] = [&to("none", "v"), &to("t", "none"), &to("public.*", "none")];
    for arguments in cases.iter().chain(&retoast) {
        let (verb, rest) = arguments.split_first().unwrap();
        let found = run(toastctl().args([verb, "-d", &database.url()]).args(rest));
        assert_eq!(found.code, Some(1), "{arguments:?}: {}{}", found.stdout, found.stderr);
        assert!(found.stderr.contains("none"), "{arguments:?}: {}", found.stderr);
    }
    for format in ["json", "jsonl"] {
        let url = database.url();
        let found =
            run(toastctl()
                .args([&["compact", "none", "-d", &url, "--format"][..], &[format]].concat()));
        let document: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
        let error = document["errors"][0].as_str().unwrap();
        assert!(error.contains("does not exist") && document["exit_code"] == 1, "{document}");
    }
}
