//! `--format html`: pages are well-formed and readable without eyes, contain nothing that names of the database could
//! run, refer to nothing outside, and have the figures of the JSON.

use std::collections::BTreeSet;

use scraper::{ElementRef, Html, Selector};
use serde_json::Value;
use toastctl::report::units::size;

use crate::support::command::{run, toastctl};
use crate::support::findings::{inspect_at_rest, prepared};
use crate::support::holder::Holder;
use crate::support::retoast::{Running, brake, release};
use crate::support::server::Database;
use crate::support::verbs::inspect;

/// A page that was parsed.
struct Page {
    text: String,
    html: Html,
}

impl Page {
    /// Parses a page, which must be what every page is.
    #[track_caller]
    fn parse(text: String) -> Page {
        let html = Html::parse_document(&text);
        assert!(html.errors.is_empty(), "{:?}: {text}", html.errors);
        let page = Page { text, html };
        page.is_readable();
        page.refers_to_nothing();
        page
    }

    fn all(&self, selector: &str) -> Vec<ElementRef<'_>> {
        self.html.select(&Selector::parse(selector).unwrap()).collect()
    }

    fn texts(&self, selector: &str) -> Vec<String> {
        self.all(selector).iter().map(text_of).collect()
    }

    /// Language, headings in order, captions and scopes, names of drawings, and regions that a keyboard can scroll.
    fn is_readable(&self) {
        assert_eq!(self.all("html[lang=en]").len(), 1);
        assert_eq!(self.all("header, main, footer").len(), 3);
        let mut before = 0;
        for heading in self.all("h1, h2, h3, h4, h5, h6") {
            let level = heading.value().name()[1..].parse().unwrap();
            assert!(level <= before + 1 && !text_of(&heading).is_empty(), "{}", heading.html());
            before = level;
        }
        assert_eq!(self.all("h1").len(), 1);
        for table in self.all("table") {
            let part = |selector| table.select(&Selector::parse(selector).unwrap()).count();
            assert_eq!(part("caption"), 1, "{}", table.html());
            assert_eq!(part("thead th"), part("thead th[scope=col]"), "{}", table.html());
            assert_eq!(part("tbody tr"), part("tbody th[scope=row]"), "{}", table.html());
            let parent = ElementRef::wrap(table.parent().unwrap()).unwrap();
            assert_eq!(parent.attr("tabindex"), Some("0"), "{}", table.html());
        }
        assert_eq!(
            self.all("figure > svg, figure > .scroll > svg").len(),
            self.all("figure").len()
        );
        for svg in self.all("figure > svg, figure > .scroll > svg") {
            let begins = svg.child_elements().take(2).map(|element| element.value().name());
            assert_eq!(svg.attr("role"), Some("img"));
            assert_eq!(begins.collect::<Vec<_>>(), ["title", "desc"], "{}", svg.html());
        }
    }

    /// One script, which is the program's own; no handlers, and no addresses except those within the page.
    fn refers_to_nothing(&self) {
        assert_eq!(self.all("script").len(), 1);
        let policy = self.all("meta[http-equiv=Content-Security-Policy]");
        assert!(policy[0].attr("content").unwrap().starts_with("default-src 'none'; "));
        assert!(self.all("link, img, iframe, object, embed, base, form, image, use").is_empty());
        for element in self.all("*") {
            for (name, value) in element.value().attrs() {
                let is_address = matches!(name, "href" | "src" | "xlink:href" | "action" | "style");
                let is_within = value == "#main" || value.starts_with("#part-");
                assert!(!is_address || is_within, "{}", element.html());
                assert!(!name.starts_with("on"), "{}", element.html());
            }
        }
        for address in ["http:", "https:", "//", "@import", "url("] {
            assert!(!self.text.contains(address), "{address}: {}", self.text);
        }
        let is_odd = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!self.text.contains(is_odd), "{:?}", self.text);
    }

    /// The rows of the table whose caption begins so: the texts of their cells.
    #[track_caller]
    fn table(&self, caption: &str) -> Vec<Vec<String>> {
        let has_caption = |table: &&ElementRef<'_>| {
            let selector = Selector::parse("caption").unwrap();
            table.select(&selector).any(|found| text_of(&found).starts_with(caption))
        };
        let tables = self.all("table");
        let table = tables.iter().find(has_caption).unwrap_or_else(|| panic!("{}", self.text));
        let rows = Selector::parse("tr").unwrap();
        let cells = |row: ElementRef<'_>| {
            row.child_elements().map(|cell| text_of(&cell)).collect::<Vec<_>>()
        };
        table.select(&rows).map(cells).collect()
    }
}

fn text_of(element: &ElementRef<'_>) -> String {
    element.text().collect()
}

/// The page of a verb, and its JSON. What is asked must not change in between.
#[track_caller]
fn both(database: &Database<'_>, arguments: &[&str]) -> (Page, Value) {
    let printed = |format: &str| {
        let run = inspect_at_rest(database, &[arguments, &["--format", format]].concat());
        assert!(run.code.is_some_and(|code| code == 0), "{run:?}");
        run.stdout
    };
    let json = serde_json::from_str(&printed("json")).unwrap();
    (Page::parse(printed("html")), json)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Values that compression would shrink, 9 MB of them, and others.
fn compressible(prefix: &str) -> Database<'static> {
    let database = prepared(prefix);
    database.psql(
        "CREATE TABLE t (id int, v text, w text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(noise(i, 100), 60), noise(i, i % 900) FROM generate_series(1, 1500) i;
         CREATE TABLE other AS SELECT noise(i, 300) AS v FROM generate_series(1, 400) i;
         VACUUM ANALYZE",
    );
    database
}

#[test]
fn a_page_of_the_database_has_the_figures_of_the_json() {
    let database = compressible("html_overview");
    let (page, json) = both(&database, &[]);
    assert_eq!(page.texts("h1"), ["toastctl inspect"]);
    let verdict = &page.texts(".verdict")[0];
    assert_eq!(verdict, "1 finding in 1 table of 1 MB or more.");
    let finding = &json["findings"][0];
    // who reads the page has another environment
    let command = format!(
        "{} -h {} -p {} -d {} -U {}",
        finding["command"].as_str().unwrap(),
        database.server().socket_dir().display(),
        database.server().port(),
        database.name(),
        database.server().superuser()
    );
    assert_eq!(page.texts(".command code"), [command]);
    // no line ends within an option
    assert!(page.texts(".command code span").contains(&"--column".to_owned()), "{}", page.text);
    assert!(page.text.contains(finding["why"].as_str().unwrap()));
    let about = |bytes: &Value| {
        let sign = if bytes["low"] == bytes["high"] { "" } else { "≈" };
        format!("{sign}{}", size(number(&bytes["estimate"])))
    };
    let mut expected = Vec::new();
    for column in json["columns"].as_array().unwrap() {
        for form in column["forms"].as_array().unwrap() {
            let method =
                form["method"].as_str().map_or_else(String::new, |name| format!(" {name}"));
            expected.push([
                column["relation"].as_str().unwrap().trim_start_matches("public.").to_owned(),
                column["column"].as_str().unwrap().to_owned(),
                format!("{}{method}", form["form"].as_str().unwrap()),
                about(&form["stored_bytes"]),
            ]);
        }
    }
    assert!(expected.len() >= 4, "{expected:?}");
    let rows = page.table("Columns by form");
    assert_eq!(rows.len(), expected.len() + 1);
    for (row, expected) in rows[1..].iter().zip(&expected) {
        assert_eq!(row[..4], *expected);
    }
    // each form is a tile, with its place and size
    let tiles: BTreeSet<String> = page.texts(".treemap g > title").into_iter().collect();
    let drawn = expected.iter().filter(|[table, column, form, stored]| {
        let stored = stored.trim_start_matches('≈');
        tiles.contains(&format!("{table}, {column}, {form}: {stored}"))
    });
    assert!(drawn.count() >= 2, "{tiles:?}");
    assert!(tiles.iter().any(|tile| tile.starts_with("t, v, external: ")), "{tiles:?}");
    // the forms of a column add up to what it takes
    for column in json["columns"].as_array().unwrap() {
        let forms = column["forms"].as_array().unwrap();
        let sum: u64 = forms.iter().map(|form| number(&form["stored_bytes"]["estimate"])).sum();
        assert_eq!(sum, number(&column["stored_bytes"]["estimate"]), "{column}");
    }
}

#[test]
fn a_page_says_at_its_top_when_and_where_and_a_long_one_has_contents() {
    let database = compressible("html_top");
    database.psql("CREATE TABLE third (v text); CREATE TABLE fourth (v text)");
    let server = database.server();
    let (page, json) = both(&database, &["*", "--details"]);
    let top = page.texts("header p");
    let version = json["server"]["version"].as_str().unwrap();
    let place = format!("{}:{}", server.socket_dir().display(), server.port());
    assert_eq!(top[0], format!("Database {} on {place}, PostgreSQL {version}", database.name()));
    let time = &page.texts("header time")[0];
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 20, "{time}");
    assert!(json["time"].as_str().unwrap() <= time.as_str(), "{time}");
    // each part is linked, in the order of the page
    let ids: Vec<String> =
        page.all("h2[id]").iter().map(|part| format!("#{}", part.attr("id").unwrap())).collect();
    let links = page.all("nav[aria-label=Contents] a");
    let linked: Vec<&str> = links.iter().map(|link| link.attr("href").unwrap()).collect();
    assert!(ids.len() >= 4, "{ids:?}");
    assert_eq!(linked, ids);
    assert_eq!(page.texts("nav a"), page.texts("h2"));
    let (short, _) = both(&database, &[]);
    assert!(short.all("nav").is_empty());
}

#[test]
fn a_page_of_a_table_shows_how_sizes_are_distributed() {
    let database = compressible("html_table");
    database.psql("ALTER TABLE t SET (toast_tuple_target = 4080)");
    let (page, json) = both(&database, &["t"]);
    assert_eq!(page.texts("h2"), ["public.t (table)"]);
    assert!(page.texts(".verdict")[0].ends_with("finding."), "{:?}", page.texts(".verdict"));
    let details = &json["tables"][0]["details"];
    let column =
        details["columns"].as_array().unwrap().iter().find(|c| c["column"] == "w").unwrap();
    let ranges = column["stored_size"]["ranges"].as_array().unwrap();
    let counted: u64 = ranges.iter().map(|range| number(&range["values"])).sum();
    assert_eq!(counted, 1500);
    let rows = page.table("Number of values by size: Sizes of w");
    for range in ranges {
        let bytes = format!("{}–{}", range["from"], range["to"]);
        let row = rows.iter().find(|row| row[0] == bytes).unwrap_or_else(|| panic!("{rows:?}"));
        assert_eq!(row[2], range["values"].to_string(), "{rows:?}");
    }
    // counted by the server itself
    let stored =
        database.psql("SELECT count(*) FROM t WHERE pg_column_size(w) BETWEEN 256 AND 511");
    let row = rows.iter().find(|row| row[0] == "256–511").unwrap();
    assert_eq!(row[2], stored.trim());
    let shown = page.texts("figcaption").concat();
    for mark in ["the threshold of rows at 2032 bytes", "toast_tuple_target at 4080 bytes"] {
        assert!(shown.contains(mark), "{shown}");
    }
}

#[test]
fn a_page_of_advice_has_the_pareto_front() {
    let database = compressible("html_advice");
    // the server counts what the first run reads as use of the table; how much a run reads, and how long that takes,
    // differs from run to run
    let alike = ["--reads-per-write", "1", "--sample", "100%", "--calibrate=never"];
    let advise = [&["advise-threshold", "t", "-c", "v"][..], &alike].concat();
    let (page, json) = both(&database, &advise);
    assert_eq!(page.texts("h1"), ["toastctl advise-threshold"]);
    let report = &json["columns"][0];
    let recommendation = &report["recommendation"];
    let commands = page.texts(".command code").concat();
    for sql in recommendation["sql"].as_array().unwrap() {
        assert!(commands.contains(sql.as_str().unwrap()), "{commands}");
    }
    let first = |text: &str| text.split(". ").next().unwrap().to_owned();
    let verdict = page.texts(".verdict").concat();
    assert_eq!(first(&verdict), first(recommendation["reasons"].as_str().unwrap()));
    let rows = page.table("Points of the chart");
    let candidates = report["candidates"].as_array().unwrap();
    let front = candidates.iter().filter(|c| c["pareto"] == true && c["same_as"].is_null());
    for candidate in front {
        let name = candidate["name"].as_str().unwrap();
        let bytes = candidate["after_vacuum_full"]["total_bytes"]["value"]["estimate"].as_f64();
        let bytes = bytes.or(candidate["after_vacuum_full"]["total_bytes"]["estimate"].as_f64());
        let row = rows.iter().find(|row| row[1] == name).unwrap_or_else(|| panic!("{rows:?}"));
        assert_eq!(row[2], size(bytes.unwrap().round() as u64), "{rows:?}");
        assert!(row[4..].contains(&"yes".to_owned()), "{rows:?}");
    }
    assert_eq!(page.all(".chart circle").len(), rows.len() - 1 + 1, "one has a ring");
}

#[test]
fn a_page_of_a_run_shows_its_course_and_why_it_waited() {
    let database = compressible("html_run");
    let result = tempfile::NamedTempFile::new().unwrap();
    let kept = format!("on-end=cat > {}", result.path().display());
    let mut command = toastctl();
    command.args(["retoast", "-d", &database.url(), "t", "-c", "v", "--toaster", "pglz"]);
    command.args(["--compact", "--set", &kept, "--format", "html"]).args(brake(&database));
    let running = Running::start(&mut command);
    running.says("is true (--throttle-query)");
    release(&database);
    let page = Page::parse(running.end().ok());
    assert_eq!(page.texts("h1"), ["toastctl retoast"]);
    assert_eq!(page.texts(".verdict"), ["complete: all values are stored as requested"]);
    let json = std::fs::read_to_string(result.path()).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let table = &json["tables"][0];
    let sizes = |name: &str| {
        let parts = ["heap", "toast", "indexes"];
        parts.map(|part| size(number(&table[name][part])))
    };
    let rows = page.table("Sizes of files");
    for (row, part) in rows[1..].iter().zip(0..) {
        let expected = ["before", "peak", "after"].map(|name| sizes(name)[part].clone());
        assert_eq!(row[1..], expected);
    }
    let course = table["course"].as_array().unwrap();
    assert!(course.len() >= 3, "{course:?}");
    assert!(course.iter().any(|point| point["waited_for"] == "throttle_query"), "{course:?}");
    let last = course.last().unwrap();
    // what compaction moved is included
    assert!(number(&last["bytes"]) >= number(&table["bytes_found"]), "{table}");
    let rows = page.table("Course of the run");
    assert!(rows.iter().any(|row| row.last().unwrap() == "throttle query"), "{rows:?}");
    let written = &rows.last().unwrap()[1];
    assert_eq!(*written, size(number(&last["bytes"])), "{rows:?}");
    assert_eq!(page.all("figure").len(), 2);
    // a run that has nothing to do has no course, and says so
    let dry = ["compact", "t", "--dry-run", "--format", "html"];
    let page = Page::parse(inspect(&database, &dry).ok());
    assert_eq!(page.texts("h1"), ["toastctl compact"]);
    assert_eq!(page.texts(".verdict"), ["dry run: nothing was changed"]);
}

#[test]
fn a_page_of_damage_has_the_findings_and_what_to_do() {
    let capture =
        |name: &str| format!("{}/fixtures/captures/pg15/states/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut heap = std::fs::read(capture("heap.bin")).unwrap();
    // the second line pointer of the first page
    heap[26..34].copy_from_slice(b"\xffdamaged".get(..8).unwrap());
    let damaged = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(damaged.path(), heap).unwrap();
    let (toast, columns) = (capture("toast.bin"), format!("@{}", capture("meta.json")));
    let printed = |format: &str| {
        let mut command = toastctl();
        command.arg("check").arg("--relation-file").arg(damaged.path());
        let files = ["--toast-file", &toast, "--columns", &columns, "--format", format];
        let run = run(command.args(files));
        assert_eq!(run.code, Some(5), "{run:?}");
        run.stdout
    };
    let json: Value = serde_json::from_str(&printed("json")).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let page = Page::parse(printed("html"));
    let verdict = page.texts(".verdict strong.bad");
    assert!(verdict[0].starts_with(&format!("{} finding", findings.len())), "{verdict:?}");
    let rows = page.table("Findings");
    assert_eq!(rows.len(), findings.len() + 1);
    for (row, finding) in rows[1..].iter().zip(findings) {
        let part = |name: &str| match &finding[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        for name in ["code", "severity", "title", "block", "item", "expected", "found"] {
            assert!(row.contains(&part(name)), "{name}: {row:?} {finding}");
        }
        assert!(page.texts("li").concat().contains(&part("hint")));
    }
}

/// Names that a page must show, and that must not do anything in it.
const HOSTILE: &str =
    "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\u{202e}\u{7}\n";

#[test]
fn names_and_values_cannot_leave_their_place() {
    let database = prepared("html_hostile");
    let name = HOSTILE.chars().take(60).collect::<String>();
    let short = HOSTILE.chars().rev().take(30).collect::<String>();
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let (table, column) = (quoted(&name), quoted(&short));
    database.psql(&format!(
        "CREATE TABLE {table} (id int PRIMARY KEY, {column} text);
         ALTER TABLE {table} ALTER {column} SET STORAGE external;
         INSERT INTO {table} SELECT i, repeat(noise(i, 100), 60) FROM generate_series(1, 600) i;
         VACUUM ANALYZE"
    ));
    let pattern = quoted(&name);
    for arguments in [
        &["inspect"][..],
        &["inspect", &pattern],
        &["inspect", "--explain", &pattern],
        &["advise-threshold", &pattern],
        &["check", &pattern],
        &["compact", &pattern, "--dry-run"],
        &["keys", &pattern],
    ] {
        let mut command = toastctl();
        command.args(arguments).args(["-d", &database.url(), "--format", "html"]);
        let run = run(&mut command);
        if arguments[0] == "keys" {
            assert!(!run.stdout.contains("<script>alert"), "{run:?}");
            continue;
        }
        let page = Page::parse(run.ok());
        let shown = page.texts("main").concat();
        assert!(shown.contains("</title></style><script>alert(1)</script>"), "{shown}");
    }
}

#[test]
fn the_script_is_the_one_that_the_page_permits() {
    let database = prepared("html_script");
    let page = Page::parse(inspect(&database, &["--format", "html"]).ok());
    let script = &page.texts("script")[0];
    let literal = script.replace('\'', "''");
    let hash =
        database.psql(&format!("SELECT encode(sha256(convert_to('{literal}', 'UTF8')), 'base64')"));
    let policy = page.all("meta[http-equiv]")[0].attr("content").unwrap();
    let permitted = format!("script-src 'sha256-{}'", hash.trim());
    assert!(policy.contains(&permitted), "{permitted}: {policy}");
}

#[test]
fn many_tables_take_a_small_page_and_what_was_not_read_is_said() {
    let database = prepared("html_many");
    database.psql(
        "DO $$BEGIN FOR i IN 1..600 LOOP
             EXECUTE format('CREATE TABLE a_table_with_a_long_name_%s (a int, b text, c jsonb, d text, e text)', i);
         END LOOP; END$$;
         INSERT INTO a_table_with_a_long_name_7 SELECT i, noise(i, 3000) FROM generate_series(1, 100) i;
         VACUUM",
    );
    let page = Page::parse(inspect(&database, &["--format", "html"]).ok());
    assert!(page.text.len() < 2_000_000, "{}", page.text.len());
    assert!(page.text.contains("600 tables"), "{}", page.text);
    assert_eq!(page.texts(".verdict strong"), ["No findings in 0 tables of 1 MB or more."]);
    let page = Page::parse(inspect(&database, &["--details", "--format", "html"]).ok());
    assert!(page.text.len() < 2_000_000, "{}", page.text.len());
    let left_out = page.texts("p.note").concat();
    assert!(left_out.contains("sections left out, because a page has room for 1 MB"), "{left_out}");
    assert!(page.text.contains("600 tables, "), "{}", page.text);
    // a page that lacks something begins with that
    let locker = Holder::of(&database, "LOCK TABLE a_table_with_a_long_name_7");
    let run = inspect(&database, &["a_table_with_a_long_name_7*", "--format", "html"]);
    assert_ne!(run.code, Some(0), "{run:?}");
    let page = Page::parse(run.stdout);
    assert_eq!(page.texts(".verdict strong")[0], "Incomplete: not everything could be read.");
    drop(locker);
    let refused = inspect(&database, &["value", "a_table_with_a_long_name_7", "--format", "html"]);
    assert!(
        refused.code == Some(2)
            && refused.stderr.contains("--format html is not available for value")
    );
}
