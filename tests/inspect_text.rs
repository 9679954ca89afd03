//! What `inspect` prints, in every format and at two widths.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

use std::process::Command;

/// Runs in the project's folder, so that paths in the output are short and the same everywhere.
fn toastctl(width: usize, args: &[&str]) -> String {
    toastctl_in("C.UTF-8", width, args)
}

fn toastctl_in(locale: &str, width: usize, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_toastctl"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("COLUMNS", width.to_string())
        .env("LC_ALL", locale)
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a verb prints of a capture's files.
fn of_file(verb: &str, width: usize, format: &str) -> String {
    let args = [
        verb,
        "--relation-file",
        "fixtures/captures/pg15/states/heap.bin",
        "--toast-file",
        "fixtures/captures/pg15/states/toast.bin",
        "--columns",
        "@fixtures/captures/pg15/states/meta.json",
        "--format",
        format,
    ];
    toastctl(width, &args)
}

#[test]
fn tables_fit_the_terminal() {
    for width in [80, 160] {
        let text = of_file("inspect", width, "table");
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{longest}");
        insta::assert_snapshot!(format!("table_{width}"), text);
        let values = of_file("value", width, "table");
        // the first line is the file's name
        let longest = values.lines().skip(1).map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{longest}");
    }
}

/// What a terminal of so many lines shows of a file's report, with a pager that marks what it shows.
fn on_terminal(lines: u32) -> String {
    let line = format!(
        "stty rows {lines} cols 80; {} inspect --relation-file fixtures/captures/pg15/states/heap.bin \
         --columns @fixtures/captures/pg15/states/meta.json",
        env!("CARGO_BIN_EXE_toastctl")
    );
    let output = Command::new("script")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["-qec", &line, "/dev/null"])
        .env_remove("PSQL_PAGER")
        .env("PAGER", "sed 's/^/paged: /'")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_report_that_is_longer_than_the_terminal_is_shown_in_the_pager() {
    let paged = |lines| on_terminal(lines).contains("paged: ");
    assert!(paged(5), "{}", on_terminal(5));
    assert!(!paged(500), "{}", on_terminal(500));
}

/// A pipe that ends on a terminal has its width, and so have messages; a log keeps whole lines.
#[test]
fn lines_fit_the_terminal_on_which_a_pipe_ends() {
    let shown = |verb: &str, end: &str| {
        let line = format!(
            "stty rows 50 cols 60; {} {verb} --relation-file fixtures/captures/pg15/states/heap.bin \
             --columns @fixtures/captures/pg15/states/meta.json {end}",
            env!("CARGO_BIN_EXE_toastctl")
        );
        let mut script = Command::new("script");
        script.current_dir(env!("CARGO_MANIFEST_DIR")).env("LC_ALL", "C.UTF-8");
        let output = script.args(["-qec", &line, "/dev/null"]).env_remove("COLUMNS").output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let piped = shown("inspect", "| cat");
    assert!(piped.contains("(hidden, ") && longest(&piped) <= 60, "{piped}");
    let wrapped = shown("keys", "| cat");
    assert!(wrapped.contains("has no column") && longest(&wrapped) <= 60, "{wrapped}");
    let logged = shown("keys", "2>&1 | cat");
    assert!(logged.contains("toastctl: error: ") && longest(&logged) > 80, "{logged}");
}

/// The document of a run, without the time at which it began.
fn without_time(text: &str) -> String {
    const BEGIN: &str = "\"time\":";
    let Some((before, rest)) = text.split_once(BEGIN) else { return text.to_owned() };
    let (_, after) = rest.split_once(',').unwrap();
    format!("{before}{BEGIN} \"TIME\",{after}")
}

#[test]
fn other_formats_do_not_depend_on_the_terminal() {
    for format in ["json", "jsonl", "csv", "markdown"] {
        let text = without_time(&of_file("inspect", 80, format));
        assert_eq!(text, without_time(&of_file("inspect", 160, format)));
        insta::assert_snapshot!(format, text);
    }
}

#[test]
fn a_sample_of_a_file() {
    let sampled = |format: &str, sample: &str| {
        let heap = "fixtures/captures/pg15/states/heap.bin";
        let columns = "@fixtures/captures/pg15/states/meta.json";
        let args = ["inspect", "--relation-file", heap, "--columns", columns, "--sample"];
        toastctl(80, &[&args[..], &[sample, "--format", format]].concat())
    };
    let text = sampled("table", "3 blocks,seed=2");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("sample_80", text);
    insta::assert_snapshot!("sample_markdown", sampled("markdown", "3 blocks,seed=2"));
    let args =
        ["inspect", "--relation-file", "fixtures/captures/pg15/states/heap.bin", "--columns"];
    let columns = ["@fixtures/captures/pg15/states/meta.json", "--sample", "3 blocks,seed=2"];
    let plain = toastctl_in("C", 80, &[args.as_slice(), &columns].concat());
    assert!(plain.is_ascii() && plain.lines().all(|line| line.len() <= 80), "{plain}");
    insta::assert_snapshot!("sample_ascii", plain);
    let report: serde_json::Value = serde_json::from_str(&sampled("json", "100%")).unwrap();
    let tuples = &report["tables"][0]["details"]["tuples"];
    assert_eq!(tuples["live"], serde_json::json!({"estimate": 23, "low": 23, "high": 23}));
}

#[test]
fn values_in_every_format() {
    for format in ["table", "json", "jsonl", "csv", "markdown"] {
        let text = of_file("value", 80, format);
        // the first rows say enough
        let head: Vec<&str> = text.lines().take(24).collect();
        insta::assert_snapshot!(format!("values_{format}"), head.join("\n"));
    }
}

#[test]
fn values_as_json_are_one_document() {
    let shown: serde_json::Value = serde_json::from_str(&of_file("value", 80, "json")).unwrap();
    assert_eq!(shown["schema"], "toastctl.value/1");
    assert_eq!(shown["values"].as_array().unwrap().len(), 23 * 8);
    let lines = of_file("value", 80, "jsonl");
    assert_eq!(lines.lines().count(), 23 * 8);
}

#[test]
fn one_datum_in_each_notation() {
    let datum = |args: &[&str]| {
        let mut all = vec!["value", "--format", "csv", "--datum"];
        all.extend(args);
        toastctl(80, &all).lines().nth(1).unwrap().to_owned()
    };
    let external = "datum,,,,,external_compressed,lz4,1000,272,5,6,1,,,,,";
    for hex in [
        r"\x0112ec0300001001004005000000060 00000",
        "0x0112ec030000100100400500000006000000",
        r"E'\\x0112ec030000100100400500000006000000'",
        "01 12 ec030000 10010040 05000000 06000000",
    ] {
        assert_eq!(datum(&[hex]), external);
    }
    let big = r"\x8012000003ec400001100000000500000006";
    assert_eq!(datum(&[big, "--big-endian"]), external);
    assert_eq!(datum([r"\x07aabb"].as_slice()), "datum,,,,,short,,2,3,,,,,,,,");
    assert_eq!(datum([r"\x0163ff"].as_slice()), "datum,,,,,unknown,,,,,,,,,,,");
    // the ID is the main fact of a pointer, and what a datum has not takes no room
    let words = ["value", "--datum", r"\x011214270000102700009e7003009b700300"];
    let shown = toastctl(80, &words);
    assert!(shown.contains(" Value ID ") && shown.contains(" 225438 "), "{shown}");
    assert!(!shown.contains("Ctid") && !shown.contains("Column "), "{shown}");
}
