//! `inspect` for monitoring: conditions that raise an alarm, metrics, and the line and exit codes of a Nagios plugin.

use std::collections::{BTreeMap, BTreeSet};

use crate::check_repair::{damage, damaged};
use crate::support::check_cases::{Files, create};
use crate::support::command::{Run, run, toastctl};
use crate::support::findings::{inspect_at_rest, prepared};
use crate::support::holder::Holder;
use crate::support::reports::Printed;
use crate::support::reports::overview::Overview;
use crate::support::server::{Database, Options};
use crate::support::verbs::inspect;

/// Values that compression would shrink, 9 MB of them, and a table with nothing to report.
fn compressible(prefix: &str) -> Database<'static> {
    let database = prepared(prefix);
    database.psql(
        "CREATE TABLE t (id int, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(noise(i, 100), 60) FROM generate_series(1, 1500) i;
         CREATE TABLE fine (id int, v text);
         INSERT INTO fine SELECT i, noise(i, 300) FROM generate_series(1, 4000) i;
         VACUUM ANALYZE",
    );
    database
}

/// `inspect` with a condition.
fn with(database: &Database<'_>, conditions: &[&str], more: &[&str]) -> Run {
    let conditions: Vec<&str> =
        conditions.iter().flat_map(|condition| ["--fail-on", condition]).collect();
    inspect_at_rest(database, &[&conditions[..], more].concat())
}

#[test]
fn what_could_not_be_written_is_no_success_and_a_reader_that_is_gone_no_failure() {
    let database = compressible("unwritten");
    for (format, code) in [("nagios", 3), ("openmetrics", 1), ("csv", 1)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = toastctl();
        command.args(["inspect", "-d", &database.url(), "--format", format]).stdout(full);
        let done = command.stderr(std::process::Stdio::piped()).output().unwrap();
        let told = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{format}: {told}");
        assert!(told.contains("could not write"), "{format}: {told}");
    }
    for format in ["csv", "jsonl", "table"] {
        let mut command = toastctl();
        command.args(["value", "fine", "-d", &database.url(), "--format", format]);
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), &*told), (Some(0), ""), "{format}");
    }
}

#[test]
fn an_alarm_has_an_exit_code_of_its_own() {
    let database = compressible("alarm");
    let ended = |conditions: &[&str]| {
        let run = with(&database, conditions, &[]);
        assert!(run.stdout.contains("2 tables, "), "{run:?}");
        (run.code.unwrap(), run.stderr)
    };
    let met =
        "toastctl: warning: --fail-on medium: 1 finding: no-compression public.t.v (medium)\n";
    assert_eq!(ended(&["medium"]), (7, met.to_owned()));
    assert_eq!(ended(&["high"]), (0, String::new()));
    let (code, told) = ended(&["high", "size > 5MB"]);
    assert_eq!(code, 7);
    assert!(told.starts_with("toastctl: warning: --fail-on size > 5MB: size is "), "{told}");
    assert_eq!(ended(&["size>1GB", "tables<2", "value_id_ratio>=1%"]), (0, String::new()));
    assert_eq!(ended(&["tables<=2"]).0, 7);
    // the finding is gone after its command, and so is the alarm
    run(toastctl().args(["retoast", "-d", &database.url(), "t", "-c", "v"]).args([
        "--toaster",
        "extended",
        "--compact",
    ]))
    .ok();
    assert_eq!(ended(&["low", "size>5MB"]), (0, String::new()));
    let wrong = with(&database, &["fre_space>1MB"], &[]).exits(2);
    assert!(wrong.stderr.contains("there is no figure \"fre_space\"; figures are size, "));
    with(&database, &["low"], &["t", "--details"]).exits(2);
}

#[test]
fn what_an_earlier_report_has_is_no_alarm_and_what_is_new_is_one() {
    let database = compressible("new");
    let earlier = tempfile::NamedTempFile::new().unwrap();
    let report = with(&database, &[], &["--format", "json"]).ok();
    std::fs::write(earlier.path(), report).unwrap();
    let since = ["--compare", earlier.path().to_str().unwrap()];
    let conditions = ["new_findings>0", "growth>5MB"];
    // the finding that is in the report is there still
    assert_eq!(with(&database, &["medium"], &since).code, Some(7));
    let same = with(&database, &conditions, &since);
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""));
    database.psql(
        "CREATE TABLE more (id int, w text); ALTER TABLE more ALTER w SET STORAGE external;
         INSERT INTO more SELECT id, v FROM t; VACUUM ANALYZE more",
    );
    let more = with(&database, &conditions, &since).exits(7);
    let said = "toastctl: warning: --fail-on new_findings>0: new: 1 finding: no-compression \
                public.more.w (medium)\ntoastctl: warning: --fail-on growth>5MB: growth is ";
    assert!(more.stderr.starts_with(said), "{}", more.stderr);
    // what shrinks has not grown
    database.psql("DROP TABLE more; TRUNCATE fine");
    let less = with(&database, &conditions, &since);
    assert_eq!((less.code, less.stderr.as_str()), (Some(0), ""));
    assert_eq!(with(&database, &["growth<0"], &since).code, Some(7));
    let alone = with(&database, &["new_findings>0"], &[]).exits(2);
    assert!(alone.stderr.contains("new_findings>0 requires --compare FILE"), "{}", alone.stderr);
}

#[test]
fn what_is_not_known_raises_no_alarm_and_is_not_fine() {
    let database = compressible("unknown");
    let by_functions = ["--source", "functions"];
    let unknown = with(&database, &["free_space>1TB", "medium"], &by_functions).exits(1);
    let why = "not known (tables whose pages were not read: 2 of 2)";
    for condition in ["free_space>1TB", "medium"] {
        let told = format!("toastctl: error: --fail-on {condition}: {why}\n");
        assert!(unknown.stderr.contains(&told), "{unknown:?}");
    }
    // what SQL functions show is known
    with(&database, &["size>1TB", "value_id_ratio>1%"], &by_functions).exits(0);
    let locker = Holder::of(&database, "LOCK TABLE fine");
    let briefly = ["--max-time", "5s"];
    let with = |condition| inspect(&database, &[&briefly[..], &["--fail-on", condition]].concat());
    let unknown = with("dead_rows>1000000").exits(1);
    let told = "--fail-on dead_rows>1000000: not known (tables not read: 1 of 2)";
    assert!(unknown.stderr.contains(told), "{unknown:?}");
    // an alarm of what was read is one, whatever was not
    let met = with("medium").exits(7);
    assert!(met.stderr.contains("not reached within"), "{met:?}");
    with("tables_not_read>0").exits(7);
    drop(locker);
}

/// A sample: its labels, and its value.
type Sample = (BTreeMap<String, String>, f64);

/// OpenMetrics text, read as strictly as its specification allows for gauges: families in one piece, each with type, unit
/// and help before its samples, the unit at the end of the name, no two samples with the same labels, and an end.
fn parsed(text: &str) -> BTreeMap<String, Vec<Sample>> {
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
    let mut families: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    let mut lines = body.split('\n').peekable();
    while let Some(line) = lines.next().filter(|line| !line.is_empty()) {
        let name = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" gauge"));
        let name = name.unwrap_or_else(|| panic!("not a type: {line}"));
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        let unit = lines.next_if(|line| line.starts_with("# UNIT ")).map(|line| {
            let unit = line.strip_prefix(&format!("# UNIT {name} ")).unwrap();
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
        });
        let has_unit = ["_bytes", "_ratio", "_seconds"].iter().any(|unit| name.ends_with(unit));
        assert_eq!(unit.is_some(), has_unit, "{name}");
        let help = lines.next().unwrap();
        let help =
            help.strip_prefix(&format!("# HELP {name} ")).unwrap_or_else(|| panic!("{help}"));
        assert!(help.ends_with('.') && !help.contains(['\\', '"']), "{help}");
        let mut samples = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some(line) = lines.next_if(|line| !line.is_empty() && !line.starts_with('#')) {
            let (labels, value) = sample(line.strip_prefix(name).unwrap());
            assert!(seen.insert(labels.clone()), "twice: {line}");
            samples.push((labels, value));
        }
        assert!(!samples.is_empty(), "{name}");
        assert!(families.insert(name.to_owned(), samples).is_none(), "{name} in two pieces");
    }
    assert_eq!(lines.next(), None, "{text}");
    families
}

/// `{label="value",...} number`
fn sample(text: &str) -> Sample {
    let mut labels = BTreeMap::new();
    let mut rest = text.strip_prefix('{').unwrap();
    loop {
        let (label, after) = rest.split_once("=\"").unwrap();
        assert!(label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{text}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    other => panic!("\\{other} in {text}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(label.to_owned(), value).is_none(), "{text}");
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    (labels, rest.strip_prefix("} ").unwrap().parse().unwrap())
}

#[test]
fn metrics_are_those_of_the_report_and_bounded() {
    let database = compressible("metrics");
    database.psql(
        r#"CREATE TABLE "odd "" \ |
name" (id int, "v{=""}" text); INSERT INTO "odd "" \ |
name" SELECT i, noise(i, 3000) FROM generate_series(1, 50) i"#,
    );
    let metrics = |more: &[&str]| {
        let run = inspect_at_rest(&database, &[&["--format", "openmetrics"], more].concat());
        assert_eq!(run.stderr, "");
        parsed(&run.exits(0).stdout)
    };
    let report: Printed<Overview> =
        inspect_at_rest(&database, &["--format", "json"]).exits(0).report();
    let families = metrics(&[]);
    let name = database.psql("SELECT current_database()");
    let all = families.values().flatten();
    assert!(all.clone().all(|(labels, _)| labels["database"] == name));
    let only = |family: &str| {
        let samples = &families[family];
        assert_eq!(samples.len(), 1, "{family}");
        samples[0].1
    };
    let totals = report.json()["totals"].clone();
    for (family, total) in [
        ("toastctl_size_bytes", &totals["bytes"]),
        ("toastctl_index_size_bytes", &totals["index_bytes"]),
        ("toastctl_free_space_bytes", &totals["unused_bytes"]["estimate"]),
        ("toastctl_tables", &totals["relations"]),
    ] {
        assert_eq!(only(family), total.as_f64().unwrap(), "{family}");
    }
    assert_eq!((only("toastctl_complete"), only("toastctl_tables_not_read")), (1.0, 0.0));
    let labelled = |family: &str, label: &str, value: &str| {
        let mut found = families[family].iter().filter(|(labels, _)| labels[label] == value);
        let found = (found.next().map(|(_, value)| *value), found.count());
        assert_eq!(found.1, 0, "{family} {value}");
        found.0.unwrap()
    };
    assert_eq!(labelled("toastctl_findings", "severity", "medium"), 1.0);
    assert_eq!(labelled("toastctl_findings", "severity", "high"), 0.0);
    let finding = &families["toastctl_finding_bytes"][0];
    assert_eq!(finding.0["code"], "no-compression");
    assert_eq!(finding.1, report.findings[0].value as f64);
    for relation in &report.relations {
        let line = relation.json();
        let table = &relation.read.name.relation;
        for (family, field) in
            [("toastctl_table_heap_bytes", "heap_bytes"), ("toastctl_table_dead_rows", "dead_rows")]
        {
            assert_eq!(labelled(family, "table", table), line[field].as_f64().unwrap(), "{line}");
        }
        let stored = &line["columns"][1]["stored_bytes"]["estimate"];
        let column = families["toastctl_column_stored_bytes"].iter().find(|(labels, _)| {
            labels["table"] == *table && labels["column"] == line["columns"][1]["column"]
        });
        assert_eq!(column.unwrap().1, stored.as_f64().unwrap(), "{line}");
    }
    assert_eq!(labelled("toastctl_table_toast_values", "table", "public.t"), 1500.0);
    assert_eq!(labelled("toastctl_table_rows", "table", "public.odd \" \\ |\nname"), 50.0);
    // what was added since makes the file no longer than this
    database.psql(
        "DO $$BEGIN FOR i IN 1..40 LOOP
             EXECUTE format('CREATE TABLE t%s AS SELECT 1 AS a, 2 AS b', i);
         END LOOP; END$$",
    );
    let bounded = metrics(&["--limit", "2"]);
    for (family, samples) in &bounded {
        let most = if family == "toastctl_findings" { 3 } else { 2 };
        assert!(samples.len() <= most, "{family}: {samples:?}");
    }
    assert_eq!(bounded["toastctl_tables"][0].1, 43.0);
    let by_default = metrics(&[]);
    assert!(by_default.values().all(|samples| samples.len() <= 15));
}

#[test]
fn metrics_leave_out_what_is_not_known_and_say_that_something_is_missing() {
    let database = compressible("missing");
    let locker = Holder::of(&database, "LOCK TABLE fine");
    let more = ["--format", "openmetrics", "--source", "functions", "--max-time", "5s"];
    let families = parsed(&inspect(&database, &more).exits(1).stdout);
    drop(locker);
    for unknown in
        ["toastctl_free_space_bytes", "toastctl_free_ratio", "toastctl_table_free_space_bytes"]
    {
        assert!(!families.contains_key(unknown), "{unknown}");
    }
    assert_eq!(families["toastctl_complete"][0].1, 0.0);
    assert_eq!(families["toastctl_tables_not_read"][0].1, 1.0);
    assert_eq!(families["toastctl_table_heap_bytes"].len(), 1);
    // and no file takes the place of the one before
    let nobody = ["inspect", "-h", "127.0.0.1", "-p", "1", "-d", "x", "--format", "openmetrics"];
    let failed = run(toastctl().args(nobody));
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(3), ""), "{}", failed.stderr);
    let of_one = ["t", "--format", "openmetrics", "--explain"];
    inspect_at_rest(&database, &of_one).exits(2);
}

#[test]
fn a_plugin_prints_one_line_and_has_its_own_exit_codes() {
    let database = compressible("nagios");
    let plugin = |more: &[&str]| {
        let run = inspect_at_rest(&database, &[&["--format", "nagios"], more].concat());
        assert_eq!(run.stdout.lines().count(), 1, "{run:?}");
        assert_eq!(run.stdout.matches('|').count(), 1, "{run:?}");
        (run.code.unwrap(), run.stdout)
    };
    let (code, line) = plugin(&[]);
    assert_eq!(code, 1, "{line}");
    assert!(line.starts_with("TOAST WARNING: 2 tables, "), "{line}");
    assert!(line.contains("; 1 finding: no-compression public.t.v (medium) | size="), "{line}");
    assert_eq!(plugin(&["--fail-on", "high"]).0, 0);
    assert_eq!(plugin(&["--fail-on", "medium"]).0, 2);
    let limits =
        |first: &'static str, second: &'static str| ["--fail-on", first, "--fail-on", second];
    assert_eq!(plugin(&limits("size>1GB", "size>1TB")).0, 0);
    let (code, line) = plugin(&limits("size>1MB", "size>1TB"));
    assert_eq!(code, 1, "{line}");
    assert!(line.starts_with("TOAST WARNING: size is "), "{line}");
    assert_eq!(plugin(&limits("size>1TB", "size>1MB")).0, 1);
    let (code, line) = plugin(&limits("size>1MB", "size>2MB"));
    assert!(code == 2 && line.starts_with("TOAST CRITICAL: size is "), "{line}");
    let (code, line) = plugin(&["--source", "functions", "--fail-on", "free_ratio>30%"]);
    assert_eq!(code, 3);
    assert!(
        line.contains("free_ratio>30% is not known") && line.contains(" free_ratio=U "),
        "{line}"
    );
    let failures: [&[&str]; 4] = [
        &["-h", "127.0.0.1", "-p", "1", "-d", "x"],
        &["--fail-on", "nonsense"],
        &["nowhere"],
        &["t", "--details"],
    ];
    for more in failures {
        let mut command = toastctl();
        command.args(["inspect", "--format=nagios"]);
        if more[0] != "-h" {
            command.args(["-d", &database.url()]);
        }
        let run = run(command.args(more));
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.stdout.starts_with("TOAST UNKNOWN: "), "{run:?}");
        assert_eq!((run.stdout.lines().count(), run.stdout.contains('|')), (1, false), "{run:?}");
        assert!(run.stderr.starts_with("toastctl: error: "), "{run:?}");
    }
}

/// Quotes tell them apart, which most names do without.
#[test]
fn tables_whose_names_differ_by_quotes_alone_have_series_of_their_own() {
    let database = prepared("quotes");
    database.psql(
        "CREATE SCHEMA \"a.b\"; CREATE SCHEMA a;
         CREATE TABLE \"a.b\".c (id int, v text); CREATE TABLE a.\"b.c\" (id int, v text);
         CREATE TABLE a.parts (id int, v text) PARTITION BY RANGE (id);
         CREATE TABLE a.\"parts.1\" PARTITION OF a.parts DEFAULT;
         INSERT INTO \"a.b\".c SELECT i, noise(i, 3000) FROM generate_series(1, 10) i;
         INSERT INTO a.\"b.c\" SELECT i, noise(i, 3000) FROM generate_series(1, 20) i;
         INSERT INTO a.parts SELECT i, noise(i, 3000) FROM generate_series(1, 30) i;
         ALTER TABLE a.\"b.c\" ALTER v SET STORAGE plain;
         VACUUM ANALYZE",
    );
    let families =
        parsed(&inspect_at_rest(&database, &["--format", "openmetrics"]).exits(0).stdout);
    let of = |family: &str| {
        let samples = families[family].iter();
        samples.map(|(labels, value)| (labels["table"].clone(), *value)).collect::<BTreeMap<_, _>>()
    };
    let expected = [("\"a.b\".c", 10.0), ("a.\"b.c\"", 20.0), ("a.parts", 30.0)];
    let expected: BTreeMap<_, _> =
        expected.map(|(table, rows)| (table.to_owned(), rows)).into_iter().collect();
    assert_eq!(of("toastctl_table_rows"), expected);
    assert_eq!(of("toastctl_table_toast_values"), expected);
    let report: Printed<Overview> =
        inspect_at_rest(&database, &["--format", "json"]).exits(0).report();
    let names: BTreeSet<&str> =
        report.relations.iter().map(|one| one.read.name.relation.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["\"a.b\".c", "a.\"b.c\"", "a.\"parts.1\""]));
}

#[test]
fn conditions_decide_about_the_exit_code_of_a_check() {
    // a header that is said to be shorter than it is
    let lose = |files: &mut Files| {
        let at = files.row(2) + 22;
        files.heap[at] = 8;
    };
    // t_ctid of a chunk, of which nothing depends
    let point_elsewhere = |files: &mut Files| {
        let chunk = files.chunk(2, "ext", 0);
        files.toast[chunk.tuple + 16] += 1;
    };
    let cases = [
        ("lost", damage(move |files, _| lose(files))),
        ("warned", damage(move |files, _| point_elsewhere(files))),
    ];
    let (server, base, _) = damaged(&Options::default(), create, &cases);
    let database = server.database(&base);
    let ended = |table: &str, conditions: &[&str]| {
        let mut command = toastctl();
        command.args(["check", "-d", &database.url(), table]);
        let conditions = conditions.iter().flat_map(|condition| ["--fail-on", condition]);
        let run = run(command.args(conditions));
        let found = if table == "lost" { " 1 error " } else { " 1 warning " };
        assert!(run.stdout.contains(found), "{run:?}");
        (run.code.unwrap(), run.stderr)
    };
    for table in ["lost", "warned"] {
        assert_eq!(ended(table, &[]).0, 5);
        assert_eq!(ended(table, &["notice"]).0, 7);
    }
    let met = "toastctl: warning: --fail-on warnings>0: warnings is 1\n";
    assert_eq!(ended("warned", &["error", "warnings>0"]), (7, met.to_owned()));
    // what meets no condition is printed, and no failure
    assert_eq!(ended("warned", &["error", "damage>1", "incomplete>0"]), (0, String::new()));
    // the row hides what it refers to
    let (code, told) = ended("lost", &["errors>100", "warning"]);
    assert_eq!(code, 7);
    assert!(told.ends_with("warning: --fail-on warning: damage is 1\n"), "{told}");
    let unknown = "toastctl: error: --fail-on errors>100: not known (not everything was checked)\n";
    assert_eq!(ended("lost", &["errors>100"]), (1, unknown.to_owned()));
    let wrong = run(toastctl().args(["check", "--fail-on", "medium"])).exits(2);
    assert!(wrong.stderr.contains("expected error, warning, notice, or a comparison"), "{wrong:?}");
}
