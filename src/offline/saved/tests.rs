//! Compares recorded formats with the server's own JSON; tests of cut, damaged and made-up texts.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::Value as Json;

use std::io::{self, Read};

use super::reader::MOST;
use super::*;

/// Everything found in a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ParseOutcome {
    results: Vec<(RowKind, Vec<SavedRow>)>,
    errors: Vec<SavedError>,
}

impl SavedSink for ParseOutcome {
    fn begin(&mut self, kind: RowKind) {
        self.results.push((kind, Vec::new()));
    }

    fn row(&mut self, kind: RowKind, row: SavedRow) {
        let (begun, rows) = self.results.last_mut().expect("a result has begun");
        assert_eq!(kind, *begun);
        rows.push(row);
    }

    fn error(&mut self, error: SavedError) {
        self.errors.push(error);
    }
}

const OTHER_FORMAT: &str =
    "rows without a header that names columns of pageinspect, or in a format that is not read";

fn parse(text: &[u8]) -> ParseOutcome {
    let mut outcome = ParseOutcome::default();
    if let Err(error) = read(text, &mut outcome) {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
    outcome
}

/// psql's output in all formats, each after a line `==> NAME`; `truth` is the server's own JSON.
const RECORDED: &str = include_str!("../../../fixtures/pageinspect.txt");

/// All recorded outputs, by name.
fn all_recorded() -> BTreeMap<&'static str, String> {
    let parts = RECORDED.strip_prefix("==> ").unwrap().strip_suffix('\n').unwrap().split("\n==> ");
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).fold(
        BTreeMap::new(),
        |mut all, (name, text)| {
            all.insert(name, format!("{text}\n"));
            all
        },
    )
}

/// The formats that are read, of each function.
const READ: [&str; 22] = [
    "aligned",
    "aligned-1",
    "aligned-1-rows",
    "aligned-no-footer",
    "aligned-null",
    "aligned-rows",
    "aligned-title",
    "block",
    "block-aligned",
    "block-csv",
    "block-expanded",
    "csv",
    "csv-rows",
    "csv-semicolon",
    "expanded",
    "expanded-1",
    "json",
    "json-array",
    "json-array-aligned",
    "json-pretty",
    "json-rows",
    "json-rows-aligned",
];

fn is_read(name: &str) -> bool {
    let form = name.split_once('.').map_or("", |(_, form)| form);
    READ.contains(&form) || form.starts_with("unaligned") && form != "unaligned-expanded"
}

/// The recorded outputs of psql in formats that are read.
fn recorded() -> BTreeMap<String, Vec<u8>> {
    let all = all_recorded().into_iter().filter(|(name, _)| is_read(name));
    all.map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}

fn fixture(name: &str) -> String {
    all_recorded().remove(name).unwrap_or_else(|| panic!("no recorded output {name}"))
}

/// All rows of an outcome without their locations, so that formats can be compared.
#[derive(Debug, Clone, PartialEq, Default)]
struct Rows {
    items: Vec<SavedRow>,
    pages: Vec<SavedRow>,
    attributes: Vec<SavedRow>,
}

impl Rows {
    fn of(outcome: &ParseOutcome) -> Rows {
        let mut rows = Rows::default();
        for (kind, found) in &outcome.results {
            let found = found.iter().map(|row| SavedRow { line: 0, ..row.clone() });
            match kind {
                RowKind::Items => rows.items.extend(found),
                RowKind::Pages => rows.pages.extend(found),
                RowKind::Attributes => rows.attributes.extend(found),
            }
        }
        rows
    }

    fn count(&self) -> usize {
        self.items.len() + self.pages.len() + self.attributes.len()
    }

    fn is_prefix_of(&self, whole: &Rows) -> bool {
        whole.items.starts_with(&self.items)
            && whole.pages.starts_with(&self.pages)
            && whole.attributes.starts_with(&self.attributes)
    }

    fn with_block(mut self, block: u32) -> Rows {
        let block = Some(BlockNumber(block));
        self.items.iter_mut().for_each(|row| row.block = block);
        self.pages.iter_mut().for_each(|row| row.block = block);
        self
    }
}

fn whole(text: &[u8]) -> Rows {
    let outcome = parse(text);
    assert_eq!(outcome.errors, []);
    Rows::of(&outcome)
}

/// The server's own data about the recorded page, by function, parsed without the code under test.
fn truth() -> BTreeMap<&'static str, Rows> {
    let text = fixture("truth");
    let truth: Json = serde_json::from_str(&text).unwrap();
    let bytes = |json: &Json| -> Option<Vec<u8>> {
        let digits = json.as_str()?.strip_prefix("\\x").unwrap();
        let byte = |i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
        Some((0..digits.len()).step_by(2).map(byte).collect())
    };
    let array = |json: &Json| Some(json.as_array()?.iter().map(bytes).collect::<Vec<_>>());
    let number = |json: &Json| match json {
        Json::Null => None,
        Json::String(text) => Some(text.parse::<i64>().unwrap()),
        other => Some(other.as_i64().unwrap()),
    };
    let item = |row: &Json| SavedRow {
        lp: number(&row["lp"]).map(|n| n as u16),
        lp_off: number(&row["lp_off"]).map(|n| n as u16),
        lp_flags: number(&row["lp_flags"]).map(|n| n as u8),
        lp_len: number(&row["lp_len"]).map(|n| n as u16),
        t_xmin: number(&row["t_xmin"]).map(|n| TransactionId(n as u32)),
        t_xmax: number(&row["t_xmax"]).map(|n| TransactionId(n as u32)),
        t_ctid: row["t_ctid"].as_str().map(|tid| {
            let (block, item) = tid[1..tid.len() - 1].split_once(',').unwrap();
            ItemPointer { block: BlockNumber(block.parse().unwrap()), item: item.parse().unwrap() }
        }),
        t_infomask2: number(&row["t_infomask2"]).map(|n| n as u16),
        t_infomask: number(&row["t_infomask"]).map(|n| n as u16),
        t_hoff: number(&row["t_hoff"]).map(|n| n as u8),
        t_bits: row["t_bits"].as_str().map(str::to_owned),
        t_data: row.get("t_data").and_then(bytes),
        t_attrs: row.get("t_attrs").and_then(array),
        ..SavedRow::default()
    };
    let items = |name| truth[name].as_array().unwrap().iter().map(item).collect::<Vec<_>>();
    let attributes = |row: &Json| SavedRow { t_attrs: array(row), ..SavedRow::default() };
    let attributes = truth["split"].as_array().unwrap().iter().map(attributes).collect();
    let page = SavedRow { page: bytes(&truth["page"]), ..SavedRow::default() };
    BTreeMap::from([
        ("items", Rows { items: items("items"), ..Rows::default() }),
        ("attrs", Rows { items: items("attrs"), ..Rows::default() }),
        ("split", Rows { attributes, ..Rows::default() }),
        ("page", Rows { pages: vec![page], ..Rows::default() }),
    ])
}

#[test]
fn the_recorded_page_has_what_matters() {
    let truth = truth();
    let items = &truth["items"].items;
    let flags: Vec<_> = items.iter().map(|item| item.lp_flags.unwrap()).collect();
    for state in [1, 2, 3] {
        assert!(flags.contains(&state), "line pointers of state {state}: {flags:?}");
    }
    let rows = truth["split"].attributes.iter().flat_map(|row| &row.t_attrs);
    let rows: Vec<_> = rows.collect();
    assert!(rows.iter().any(|row| row[1].is_some()), "a dropped column's value");
    assert!(rows.iter().any(|row| row.contains(&None)));
    let has_pointer = rows.iter().any(|row| row[4].as_ref().is_some_and(|v| v[0] == 1));
    assert!(has_pointer, "a TOAST pointer");
    assert_eq!(truth["page"].pages[0].page.as_ref().unwrap().len(), 8192);
}

#[test]
fn every_form_gives_what_the_server_says() {
    let truth = truth();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (name, text) in recorded() {
        let (function, form) = name.split_once('.').unwrap_or((&name, ""));
        let Some(expected) = truth.get(function) else { continue };
        let expected = if form.starts_with("block") {
            expected.clone().with_block(0)
        } else {
            expected.clone()
        };
        compared += 1;
        let outcome = parse(&text);
        if !outcome.errors.is_empty() || Rows::of(&outcome) != expected {
            let found = Rows::of(&outcome);
            wrong.push(format!(
                "{name}: {} items, {} pages, {} attributes, {:?}",
                found.items.len(),
                found.pages.len(),
                found.attributes.len(),
                outcome.errors.iter().map(ToString::to_string).collect::<Vec<_>>()
            ));
        }
    }
    assert!(compared > 60, "{compared}");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Other formats of psql: nothing is read wrong, and an error names CSV.
#[test]
fn other_formats_are_refused() {
    let truth = truth();
    let mut refused = 0;
    for (name, text) in all_recorded() {
        let function = name.split('.').next().unwrap();
        let Some(truth) = truth.get(function).filter(|_| !is_read(name)) else { continue };
        refused += 1;
        let outcome = parse(text.as_bytes());
        let rows = Rows::of(&outcome);
        let block_or_none = |item: &SavedRow| SavedRow { block: None, ..item.clone() };
        let wrong = rows.items.iter().find(|item| !truth.items.contains(&block_or_none(item)));
        assert_eq!(wrong, None, "{name}");
        let wrong = rows.attributes.iter().find(|row| !truth.attributes.contains(row));
        assert_eq!(wrong, None, "{name}");
        let hints: Vec<&str> =
            outcome.errors.iter().filter_map(|error| error.problem.hint()).collect();
        let names_csv = hints.iter().any(|hint| hint.contains("CSV HEADER"));
        // A single column with border 0 differs in nothing but empty lines, which are counted.
        let is_counted =
            name.starts_with("split.") && name.contains("-0") && !outcome.errors.is_empty();
        let is_right = rows == *truth;
        assert!(names_csv || is_counted || is_right, "{name}: {:?}", outcome.errors);
    }
    assert!(refused > 80, "{refused}");
    let utf16: Vec<u8> = fixture("items.csv").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let outcome = parse(&[&[0xff, 0xfe], utf16.as_slice()].concat());
    assert_eq!(outcome.errors[0].to_string(), format!("line 1: {OTHER_FORMAT}"));
    assert!(outcome.results.is_empty());
}

#[test]
fn line_breaks_of_windows_and_a_byte_order_mark() {
    let truth = truth();
    for (name, text) in recorded() {
        if !truth.contains_key(name.split('.').next().unwrap()) {
            continue;
        }
        let expected = whole(&text);
        let crlf = String::from_utf8(text).unwrap().replace('\n', "\r\n");
        assert_eq!(whole(format!("\u{feff}{crlf}").as_bytes()), expected, "{name}");
    }
}

#[test]
fn results_one_after_the_other() {
    let names = [
        "items.aligned-1",
        "attrs.csv",
        "page.unaligned",
        "split.json-rows",
        "items.expanded-1",
        "split.unaligned",
        "attrs.json-pretty",
        "items.aligned-1-rows",
        "page.csv",
        "attrs.expanded-1",
        "items.csv-semicolon",
        "page.expanded",
    ];
    let mut text = String::new();
    let mut expected = Rows::default();
    for name in names {
        let one = fixture(name);
        let rows = whole(one.as_bytes());
        expected.items.extend(rows.items);
        expected.pages.extend(rows.pages);
        expected.attributes.extend(rows.attributes);
        text.push_str(&one);
    }
    assert_eq!(whole(text.as_bytes()), expected);
}

/// Rows as printed by jsonb_agg: one line that is longer than any row, also with psql's header above it.
#[test]
fn json_in_one_long_line() {
    let array = fixture("attrs.json-array");
    let rows = array.trim().trim_matches(['[', ']']).replace('\n', " ");
    let count = 1 + 2 * MOST / rows.len();
    let long = format!("[{}]", vec![rows.as_str(); count].join(", "));
    let width = long.len();
    let blanks = " ".repeat(width / 2);
    let rule = "-".repeat(width + 2);
    let aligned = format!("{blanks}jsonb_agg{blanks}\n{rule}\n {long} \n(1 row)\n\n{array}");
    let once = whole(array.as_bytes());
    for text in [format!("{long}\n\n{array}"), aligned] {
        let outcome = parse(text.as_bytes());
        assert_eq!(outcome.errors, []);
        let got = Rows::of(&outcome).items;
        assert_eq!(got.len(), (count + 1) * once.items.len());
        assert!(got.chunks(once.items.len()).all(|some| some == once.items));
        let last = outcome.results.last().unwrap();
        assert_eq!(last.1.last().unwrap().line, text.lines().count());
        let cut = parse(&text.as_bytes()[..text.len() - array.len() - width / 2]);
        assert!(!cut.errors.is_empty());
    }
}

#[test]
fn lines_and_rows_longer_than_any_are_passed_over() {
    let csv = fixture("items.csv");
    let rows = whole(csv.as_bytes());
    let long = format!("1,{}\n", "x".repeat(3 << 20));
    let (head, tail) = csv.split_at(csv.find("\n5,").unwrap() + 1);
    let text = format!("{head}{long}{tail}");
    let outcome = parse(text.as_bytes());
    let messages: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["line 6: longer than 1048576 bytes, unlike any row of pageinspect"]);
    assert_eq!(Rows::of(&outcome), rows);

    let long = format!("[{{\"lp\":1,\"t_data\":\"{}\"}},\n {{\"lp\":2}}]\n", "0".repeat(4 << 20));
    let outcome = parse(long.as_bytes());
    let messages: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["line 1: longer than 1048576 bytes, unlike any row of pageinspect"]);
    assert_eq!(Rows::of(&outcome).items.len(), 1);
}

/// In line style old-ascii, nothing on a row's own lines shows that it continues.
#[test]
fn a_row_continued_in_old_ascii_is_not_read() {
    let text = " lp | t_data \n----+--------\n  1 | \\x0102\n    ; 0304\n  2 | \\x01\n(2 rows)\n\n";
    let outcome = parse(text.as_bytes());
    assert_eq!(Rows::of(&outcome).items, []);
    assert_eq!(outcome.errors[0].to_string(), format!("line 4: {OTHER_FORMAT}"));
}

#[test]
fn a_source_that_fails_in_the_middle() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("the disk is gone")),
                some => Ok(some),
            }
        }
    }
    let csv = fixture("items.csv");
    let mut outcome = ParseOutcome::default();
    read(Failing(csv.as_bytes()), &mut outcome).unwrap();
    assert_eq!(Rows::of(&outcome), whole(csv.as_bytes()));
    let messages: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["line 9: could not read further: the disk is gone"]);
    assert!(read(Failing(b""), &mut outcome).is_err());
}

#[test]
fn a_session_with_everything() {
    let truth = truth();
    let outcome = parse(fixture("session").as_bytes());
    assert_eq!(outcome.errors, []);
    assert_eq!(outcome.results.len(), 5);
    let few = truth["items"].items.iter().map(|item| {
        let t_data = item.t_data.clone();
        SavedRow { lp: item.lp, t_data, ..SavedRow::default() }
    });
    let mut items = truth["items"].items.clone();
    items.extend(truth["attrs"].items.clone());
    items.extend(few);
    items.extend(truth["items"].items.clone());
    let rows = Rows::of(&outcome);
    assert_eq!(rows.items, items);
    assert_eq!(rows.attributes, truth["split"].attributes);
}

#[test]
fn a_query_may_leave_columns_out_or_find_nothing() {
    let few = whole(fixture("few.aligned").as_bytes());
    assert_eq!(whole(fixture("few.unaligned").as_bytes()), few);
    assert_eq!(few.items.len(), truth()["items"].items.len());
    assert!(few.items.iter().all(|item| item.t_xmin.is_none() && item.lp.is_some()));

    for name in ["empty.aligned", "empty.csv"] {
        let outcome = parse(fixture(name).as_bytes());
        assert_eq!(outcome.errors, [], "{name}");
        assert_eq!(outcome.results.len(), 1, "{name}");
        assert_eq!(Rows::of(&outcome), Rows::default(), "{name}");
    }
}

const EVERY_BYTE: [&str; 7] = [
    "items.aligned-1",
    "items.block-csv",
    "items.expanded-1",
    "items.json-pretty",
    "items.unaligned",
    "attrs.json-array",
    "split.csv",
];

/// Cuts a recorded output at every byte. The result must always be the first rows, and for aligned output with a header
/// and for JSON, an error must report the cut.
#[test]
fn a_cut_anywhere_gives_the_first_rows() {
    let mut wrong = Vec::new();
    for (name, text) in recorded() {
        if name.starts_with("escape") {
            continue;
        }
        let expected = whole(&text);
        let count = expected.count();
        // Both ends are cut byte by byte in the simplest formats; elsewhere larger steps save time.
        let every_byte = EVERY_BYTE.contains(&name.as_str());
        let is_cut = |&end: &usize| {
            let is_near_end = end < 1000 || end + 1000 > text.len();
            end % if !every_byte {
                149
            } else if is_near_end {
                1
            } else {
                37
            } == 0
        };
        let says_nothing =
            name.contains("json-array") || (name.contains(".aligned") && !name.contains("rows"));
        for end in (0..text.len()).filter(is_cut) {
            let outcome = parse(&text[..end]);
            let rows = Rows::of(&outcome);
            let got = rows.count();
            let silent = says_nothing && got < count && outcome.errors.is_empty();
            if !rows.is_prefix_of(&expected) || silent {
                let tail = String::from_utf8_lossy(&text[end.saturating_sub(60)..end]).into_owned();
                wrong.push(format!("{name} at {end}: {got} of {count} rows, …{tail:?}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The errors of a text with their hints, one on each line.
fn errors(text: &str) -> String {
    let outcome = parse(text.as_bytes());
    let mut lines = Vec::new();
    for error in &outcome.errors {
        lines.push(error.to_string());
        lines.extend(error.problem.hint().map(|hint| format!("    hint: {hint}")));
    }
    let rows = Rows::of(&outcome);
    let count = rows.count();
    lines.push(format!("rows read: {count}"));
    lines.join("\n")
}

#[test]
fn output_cut_in_the_middle() {
    let aligned = fixture("items.aligned-1");
    let lines: Vec<&str> = aligned.lines().collect();
    assert_snapshot!(errors(&lines[..6].join("\n")), @r##"
    line 6: the output is cut: the result ends without its number of rows or an empty line
    rows read: 4
    "##);
    assert_snapshot!(errors(&format!("{}\n", lines[..6].join("\n"))), @r##"
    line 6: the output is cut: the result ends without its number of rows or an empty line
    rows read: 4
    "##);
    assert_snapshot!(errors(&aligned[..lines[0].len() * 4 + 60]), @r##"
    line 6: the output is cut: the text ends within a row
    rows read: 3
    "##);
    // Two lines are lost in the middle.
    let without = [&lines[..4], &lines[6..]].concat().join("\n");
    assert_snapshot!(errors(&without), @r##"
    line 9: expected 8 rows according to the footer, got 6
    rows read: 6
    "##);
    let json = fixture("items.json-array");
    assert_snapshot!(errors(&json[..json.len() - 300]), @r##"
    line 8: the output is cut: the JSON value that begins at line 1 is not closed
    rows read: 7
    "##);
    assert_snapshot!(errors(json.trim_end().trim_end_matches(']')), @r##"
    line 8: the output is cut: the JSON value that begins at line 1 is not closed
    rows read: 8
    "##);
    let csv = fixture("attrs.csv");
    assert_snapshot!(errors(&csv[..csv.len() - 30]), @r##"
    line 9, column t_attrs: the output is cut: the array has no closing brace
    rows read: 7
    "##);
    let expanded = fixture("attrs.expanded-1");
    assert_snapshot!(errors(&expanded[..expanded.len() - 30]), @r##"
    line 120, column t_attrs: the output is cut: the array has no closing brace
    rows read: 7
    "##);
    assert_snapshot!(errors(&expanded[..expanded.rfind("t_bits").unwrap()]), @r##"
    line 107: the output is cut: the record does not have all columns
    rows read: 7
    "##);
    let page = fixture("page.unaligned");
    assert_snapshot!(errors(&page[..4000]), @r##"
    line 2, column get_raw_page: odd number of hexadecimal digits: 3985
        hint: the value may have been cut when it was copied
    rows read: 0
    "##);
    assert_snapshot!(errors(&page[..4001]), @r##"
    line 2, column get_raw_page: expected a page of 1024, 2048, 4096, 8192, 16384 or 32768 bytes, got 1993
    rows read: 0
    "##);
    assert_snapshot!(errors(&page[..13 + 2 + 8192]), @r##"
    line 2, column get_raw_page: expected a page of 8192 bytes, got 4096
    rows read: 0
    "##);
}

#[test]
fn damaged_values() {
    let csv = fixture("items.csv");
    let broken = |from: &str, to: &str| {
        assert!(csv.contains(from), "{from}");
        errors(&csv.replacen(from, to, 1))
    };
    assert_snapshot!(broken("\\x04", "\\x0"), @r##"
    line 5, column t_data: odd number of hexadecimal digits: 63
        hint: the value may have been cut when it was copied
    rows read: 7
    "##);
    assert_snapshot!(broken("\\x04", "\\x04g0"), @r##"
    line 5, column t_data: invalid hexadecimal digit 'g' at character 3
    rows read: 7
    "##);
    assert_snapshot!(broken("\\x04", "\\x0404"), @r##"
    line 5, column t_data: expected 32 bytes (lp_len - t_hoff), got 33
    rows read: 7
    "##);
    assert_snapshot!(broken("\"(0,3)\"", "\"(0;3)\""), @r##"
    line 4, column t_ctid: expected a tuple address such as (0,1), got "(0;3)"
    rows read: 7
    "##);
    assert_snapshot!(broken("4,8024,1,", "4,8024,7,"), @r##"
    line 5, column lp_flags: expected a whole number of 0 to 3, got "7"
    rows read: 7
    "##);
    assert_snapshot!(broken("4,8024,1,", "4,x,1,"), @r##"
    line 5, column lp_off: expected a whole number of 0 to 32767, got "x"
    rows read: 7
    "##);
    assert_snapshot!(broken("11100100", "1110010"), @r##"
    line 5, column t_bits: expected a null bitmap of 0 and 1, a multiple of 8 long, got "1110010"
    rows read: 7
    "##);
    assert_snapshot!(broken("4,8024,1,", "4,8024,1,1,"), @r##"
    line 5: expected 14 columns, got 15
    rows read: 7
    "##);
    let attrs = fixture("attrs.unaligned");
    assert_snapshot!(errors(&attrs.replacen("\"\\\\x04", "\"\\\\x4", 1)), @r##"
    line 5, column t_attrs: attribute 1: odd number of hexadecimal digits: 7
        hint: the value may have been cut when it was copied
    rows read: 7
    "##);
    let json = fixture("attrs.json-array");
    assert_snapshot!(errors(&json.replacen("\\\\x04", "\\\\x4", 1)), @r##"
    line 4, column t_attrs: attribute 1: odd number of hexadecimal digits: 7
        hint: the value may have been cut when it was copied
    rows read: 7
    "##);
    assert_snapshot!(errors(&json.replacen("\"lp\":4", "\"lp\":[4]", 1)), @r##"
    line 4, column lp: expected a whole number of 0 to 65535, got "[4]"
    rows read: 7
    "##);
    assert_snapshot!(errors(&json.replacen("\"lp\":4,", "\"lp\" 4,", 1)), @r##"
    line 4: invalid JSON: expected `:`
    rows read: 7
    "##);
    let aligned = fixture("items.aligned-1");
    assert_snapshot!(errors(&aligned.replacen("  4 |", "  4  ", 1)), @r##"
    line 6: expected 14 columns, got 13
    rows read: 7
    "##);
    assert_snapshot!(errors(&aligned.replacen("(8 rows)", "(9 rows)", 1)), @r##"
    line 11: expected 9 rows according to the footer, got 8
    rows read: 8
    "##);
}

#[test]
fn what_is_no_result_or_not_enough() {
    assert_snapshot!(errors("ERROR:  block number 7 is out of range for relation \"t\"\n"), @r##"
    line 1: the output holds an error message of the server: block number 7 is out of range for relation "t"
    rows read: 0
    "##);
    assert_snapshot!(errors(&fixture("escape.aligned")), @r##"
    line 5, column t_data: bytea is in escape format, expected hexadecimal digits after \x
        hint: set bytea_output = 'hex' in the session, then run the query again
    rows read: 2
    "##);
    assert_snapshot!(errors(&fixture("escape.attrs")), @r##"
    line 4, column t_attrs: attribute 1: bytea is in escape format, expected hexadecimal digits after \x
        hint: set bytea_output = 'hex' in the session, then run the query again
    rows read: 2
    "##);
    assert_snapshot!(errors(&fixture("row-value")), @r##"
    line 5: rows without a header that names columns of pageinspect, or in a format that is not read
        hint: write SELECT * FROM heap_page_items(…), keep the header and psql's default format, or save the result as CSV: \copy (SELECT …) TO 'FILE' CSV HEADER
    rows read: 0
    "##);
    let nothing = r"this is not output of pageinspect
    hint: expected what psql prints for SELECT * FROM heap_page_items(get_raw_page('table', 0)), heap_page_item_attrs, get_raw_page or tuple_data_split, or these as CSV: \copy (SELECT …) TO 'FILE' CSV HEADER
rows read: 0";
    let no_header = format!(
        "{OTHER_FORMAT}
    hint: write SELECT * FROM heap_page_items(…), keep the header and psql's default format, or save the result as CSV: \\copy (SELECT …) TO 'FILE' CSV HEADER
rows read: 0"
    );
    let no_header = no_header.as_str();
    let block = fixture("items.block-csv");
    for (text, line, expected) in [
        ("", 1, nothing),
        ("\n\nnothing here\n", 3, nothing),
        ("[1, {\"a\": 2}, {\"lp\": 1}]\n", 1, nothing),
        ("1|\\x0102030405\n2|\\x0102030405\n", 1, no_header),
        (" 1 | 8160 | \\x0102030405\n 2 | 8100 | \\x0102030405\n\n", 1, no_header),
        (block.split_once('\n').unwrap().1, 3, no_header),
        (" n | data \n---+------\n 1 | \\x0102030405\n(1 row)\n\n", 3, no_header),
        ("\\x0102030405\n", 1, no_header),
    ] {
        assert_eq!(errors(text), format!("line {line}: {expected}"), "{text:?}");
    }
}

#[test]
fn talk_around_results_is_passed_over() {
    let rows = whole(fixture("items.aligned-1").as_bytes());
    let talk = "psql (15.8 (Debian 15.8-1))\nType \"help\" for help.\n\n\
        postgres=# \\timing\nTiming is on.\npostgres=# select lp, t_data\npostgres-# from x;\n";
    let tail = "Time: 1,234 ms (00:01,234)\n\npostgres=# \\q\n";
    for name in ["items.aligned-1", "items.csv", "items.expanded-1", "items.unaligned-rows"] {
        let text = format!("{talk}{}{tail}", fixture(name));
        assert_eq!(whole(text.as_bytes()), rows, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_give_an_outcome(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let outcome = parse(&bytes);
        prop_assert!(!outcome.results.is_empty() || !outcome.errors.is_empty());
    }

    /// Texts composed of pieces of psql's formats.
    #[test]
    fn any_pieces_of_output_give_an_outcome(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..40)
    ) {
        let text = pieces.concat();
        let outcome = parse(text.as_bytes());
        prop_assert!(!outcome.results.is_empty() || !outcome.errors.is_empty());
        let last = text.lines().count().max(1);
        prop_assert!(outcome.errors.iter().all(|error| error.line <= last));
    }

    /// After damage to some bytes, no row is longer than the text allows.
    #[test]
    fn damaged_output_gives_an_outcome(
        which in any::<proptest::sample::Index>(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let all = small();
        let mut text = all[which.index(all.len())].clone();
        for (at, byte) in damage {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let rows = Rows::of(&parse(&text));
        let bytes: usize = rows.items.iter().filter_map(|i| i.t_data.as_ref()).map(Vec::len).sum();
        prop_assert!(bytes * 2 <= text.len());
    }
}

/// The time for long uniform texts must grow linearly: each takes some milliseconds, but would take seconds if the time
/// grew quadratically. A test that a busy machine delays is repeated.
#[test]
fn long_texts_take_no_longer_than_their_length() {
    let pieces = PIECES.iter().map(|piece| piece.as_bytes());
    let beginnings = small().iter().step_by(25).map(|text| &text[..text.len() / 3]);
    for piece in pieces.chain(beginnings) {
        for head in ["", "lp,t_data\n", "t_data\n", " t_data \n--------\n", "t_data\n------\n", "["]
        {
            for tail in ["", "\n"] {
                let mut text = head.as_bytes().to_vec();
                while text.len() < 12_000 {
                    text.extend_from_slice(piece);
                    text.extend_from_slice(tail.as_bytes());
                }
                let is_soon = (0..3).any(|_| {
                    let started = std::time::Instant::now();
                    parse(&text);
                    started.elapsed().as_millis() < 1000
                });
                let piece = String::from_utf8_lossy(piece);
                assert!(is_soon, "{head:?} {piece:?} {tail:?}");
            }
        }
    }
}

const PIECES: &[&str] = &[
    "lp",
    "t_data",
    "lp_off",
    "t_attrs",
    "get_raw_page",
    "tuple_data_split",
    "blkno",
    "x",
    "|",
    " | ",
    ",",
    "\t",
    ";",
    ":",
    " ",
    "  ",
    "\n",
    "\n",
    "\n",
    "\r\n",
    "\"",
    "\"\"",
    "\\x",
    "\\\\x",
    "01",
    "1",
    "0",
    "8160",
    "(0,1)",
    "(1 row)",
    "(2 rows)",
    "{",
    "}",
    "[",
    "]",
    "NULL",
    "---",
    "-+-",
    "--- ---",
    "+",
    "│",
    "─",
    "┼",
    "-[ RECORD 1 ]-",
    "* Record 1",
    "+-[ RECORD 2 ]-+",
    ".",
    "…",
    "↵",
    "表",
    "ERROR:  no",
    "{\"lp\":1}",
    "[{\"lp\":1}",
    "lp|t_data\n",
    "lp,t_data\n",
    " lp | t_data \n----+--------\n",
    "lp t_data\n-- ------\n",
    "+----+--------+\n| lp | t_data |\n+----+--------+\n",
    "lp | 1\n",
    "lp|1\n",
    "lp,1\n",
    "lp 1\n",
    "-[ RECORD 1 ]\nlp | 1\n",
    "1|8160|1|28|7|0|0|(0,1)|1|2|24|||\\x01020304\n",
    "\u{fffd}",
];

/// The recorded outputs without those of whole pages.
fn small() -> &'static [Vec<u8>] {
    static SMALL: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SMALL.get_or_init(|| {
        recorded()
            .into_iter()
            .filter(|(name, _)| !name.starts_with("page"))
            .map(|(_, t)| t)
            .collect()
    })
}
