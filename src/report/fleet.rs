//! What a run over several databases prints: each result with its database, and at the end what became of all.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

use anstream::adapter::strip_str;
use serde::Serialize;
use serde_json::Value;

use super::charts::Tile;
use super::compare;
use super::document::{Document, Format, OutputFormat, csv_records};
use super::html::Page;
use super::intervals::about_size;
use super::nagios::{self, Service, State};
use super::openmetrics::{self, Family};
use super::overview::{self, View};
use super::table::{Grid, Head, Style, Tone, printable, printable_json};
use super::units::{and_more, counted, not_shown, optional_number, optional_size};
use crate::inspect::compare::{FLEET, RunComparison};
use crate::inspect::overview::rank::{Overview, SortBy, Totals};

/// The name and version of the JSON lines.
pub const SCHEMA: &str = FLEET;

/// Servers that a page names; the rest is counted.
const SERVERS_NAMED: usize = 4;
/// Databases whose problems are listed at the end, and those that a page lists; the rest is counted.
const LISTED: usize = 200;
/// Databases that are listed on a terminal without --limit.
const SHOWN_ON_TERMINAL: usize = 10;

/// One line of --format json or jsonl with --all or --targets: one database. Fields are only ever added.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct TargetReport {
    #[schemars(extend("const" = SCHEMA))]
    pub(crate) schema: &'static str,
    /// host:port/database; for a line of --targets that makes no sense, its number and the file.
    pub(crate) target: String,
    /// The exit code that the command would have had on this database alone.
    pub(crate) exit_code: u8,
    pub(crate) seconds: f64,
    /// Why there is no result, or an incomplete one; with exit code 0, why there is nothing to check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The document that the verb prints with --format json; its field schema names its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
}

/// What a verb has printed on a database.
#[derive(Default)]
pub(crate) struct TargetOutput {
    pub(crate) text: Vec<u8>,
    /// What the exit code means, for a problem that is no error.
    pub(crate) meaning: String,
    /// What is printed together with that of other databases: the overview, and what monitoring systems read.
    pub(crate) overview: Option<Overview>,
    pub(crate) comparison: Option<RunComparison>,
    pub(crate) families: Vec<Family>,
    pub(crate) service: Option<Service>,
}

/// A database among others.
struct DatabaseLine {
    name: String,
    exit_code: u8,
    /// Of its overview, if there is one, with the number of findings.
    totals: Option<(Totals, usize)>,
}

impl DatabaseLine {
    /// Its name without the server that all databases are on, if there is one.
    fn name_without(&self, server: &str) -> &str {
        self.name.strip_prefix(server).unwrap_or(&self.name)
    }

    fn bytes(&self) -> Option<u64> {
        self.totals.map(|(totals, _)| totals.database_bytes.unwrap_or(totals.bytes))
    }

    /// What is unused in it, by estimate.
    fn unused_bytes(&self) -> Option<u64> {
        self.totals.and_then(|(totals, _)| totals.unused_bytes).map(|unused| unused.estimate)
    }
}

/// Writes results as they come.
pub(crate) struct Writer<W: Write> {
    out: W,
    verb: &'static str,
    format: OutputFormat,
    width: Option<usize>,
    view: View,
    overview: Option<Overview>,
    comparison: Option<RunComparison>,
    databases: Vec<DatabaseLine>,
    families: Vec<Family>,
    services: Vec<(String, Service)>,
    page: Page,
    /// The names of the fields, once they are printed.
    fields: Option<csv::StringRecord>,
    done: u64,
    has_text: bool,
    /// Target, exit code and error.
    problems: Vec<(String, u8, String)>,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(
        out: W,
        verb: &'static str,
        format: OutputFormat,
        width: Option<usize>,
        view: View,
    ) -> Writer<W> {
        Writer {
            out,
            verb,
            format,
            width,
            view,
            overview: None,
            comparison: None,
            databases: Vec::new(),
            families: Vec::new(),
            services: Vec::new(),
            page: Page::for_verb(verb),
            fields: None,
            done: 0,
            has_text: false,
            problems: Vec::new(),
        }
    }

    /// States on a page which servers it is about.
    pub(crate) fn about(&mut self, servers: &BTreeSet<String>) {
        let named: Vec<&str> = servers.iter().map(String::as_str).take(SERVERS_NAMED).collect();
        let more = and_more(servers.len(), SERVERS_NAMED);
        self.page.subject = printable(&format!("Databases on {}{more}", named.join("; ")));
    }

    /// Writes the report of a database, or keeps it until those of all are known.
    pub(crate) fn target(
        &mut self,
        mut report: TargetReport,
        printed: TargetOutput,
    ) -> io::Result<()> {
        let TargetOutput { text, meaning, overview, comparison, families, service } = printed;
        let text = text.as_slice();
        match self.format {
            OutputFormat::Openmetrics if families.is_empty() => {
                openmetrics::join(
                    &mut self.families,
                    openmetrics::unread(self.verb, &report.target),
                );
            }
            OutputFormat::Openmetrics => openmetrics::join(&mut self.families, families),
            OutputFormat::Nagios => {
                let why = report.error.as_deref().unwrap_or("nothing was read");
                let is_passed_over = report.exit_code == 0 && report.error.is_some();
                let unread = if is_passed_over { State::Ok } else { State::Unknown };
                let service = service.unwrap_or_else(|| Service::unread(unread, why));
                self.services.push((report.target.clone(), service));
            }
            OutputFormat::Report(format) => self.print(format, &mut report, text)?,
        }
        let totals = overview.as_ref().map(|overview| (overview.totals, overview.findings.len()));
        let name = report.target.clone();
        self.databases.push(DatabaseLine { name, exit_code: report.exit_code, totals });
        match (&mut self.overview, overview) {
            (Some(all), Some(overview)) => all.join(overview),
            (None, Some(overview)) => self.overview = Some(overview),
            (_, None) => {}
        }
        match (&mut self.comparison, comparison) {
            (Some(all), Some(comparison)) => all.join(comparison),
            (all, comparison) => *all = all.take().or(comparison),
        }
        match (report.exit_code, report.error) {
            (0, None) => self.done += 1,
            (code, error) => {
                let why = error.unwrap_or(meaning);
                self.problems.push((report.target, code, why));
            }
        }
        self.out.flush()
    }

    fn print(&mut self, format: Format, report: &mut TargetReport, text: &[u8]) -> io::Result<()> {
        match format {
            Format::Json | Format::Jsonl => {
                report.result = serde_json::from_slice(text).ok();
                let line = serde_json::to_string(report)?;
                writeln!(self.out, "{}", printable_json(line))?;
            }
            Format::Csv => self.records(&report.target, text)?,
            Format::Table | Format::Markdown if !text.is_empty() => {
                let name = printable(&report.target);
                let gap = if self.has_text { "\n" } else { "" };
                match format.style(self.width) {
                    Some(Style::Markdown) => write!(self.out, "{gap}## {name}\n\n")?,
                    _ => writeln!(self.out, "{gap}-- {name} --")?,
                }
                self.out.write_all(text)?;
                self.has_text = true;
            }
            Format::Html if !text.is_empty() => {
                let mut section = Document::of_page(&self.page);
                section.heading(&report.target, 2);
                section
                    .figure(&report.target, &strip_str(&String::from_utf8_lossy(text)).to_string());
                section.add_to(&mut self.page);
            }
            Format::Table | Format::Markdown | Format::Html => {}
        }
        Ok(())
    }

    /// The same records with the database in front.
    fn records(&mut self, target: &str, text: &[u8]) -> io::Result<()> {
        let mut records = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let fields = records.headers()?.clone();
        let mut lines = Vec::new();
        if !fields.is_empty() && self.fields.as_ref() != Some(&fields) {
            lines.push(with_first("target", &fields));
            self.fields = Some(fields);
        }
        for record in records.records() {
            lines.push(with_first(target, &record?));
        }
        csv_records(lines, &mut self.out)
    }

    /// Writes the summary of all databases. `skipped`: databases that an earlier run has finished. Returns what a plugin
    /// says of all.
    pub(crate) fn finish(mut self, skipped: u64) -> io::Result<Option<State>> {
        let style = match self.format {
            OutputFormat::Openmetrics => {
                openmetrics::write(&mut self.out, &self.families)?;
                return Ok(None);
            }
            OutputFormat::Nagios => {
                let (state, lines) = nagios::fleet(self.services);
                self.out.write_all(lines.as_bytes())?;
                self.out.flush()?;
                return Ok(Some(state));
            }
            OutputFormat::Report(format) => format.style(self.width),
        };
        match style {
            Some(Style::Html) => {
                self.page.incomplete = !self.problems.is_empty();
                let mut document = Document::of_page(&self.page);
                self.summary(skipped, &mut document);
                self.out.write_all(document.into_page(&self.page).as_bytes())?;
            }
            Some(style) => {
                let mut document = Document::new(style, false);
                self.summary(skipped, &mut document);
                self.out.write_all(document.text().as_bytes())?;
            }
            None => {}
        }
        self.out.flush()?;
        Ok(None)
    }

    /// A line for each database, the overview of all, and what could not be done.
    fn summary(&mut self, skipped: u64, document: &mut Document) {
        let server = common_server(self.databases.iter().map(|database| database.name.as_str()));
        if let Some(overview) = &mut self.overview {
            if !document.is_html() {
                document.heading("Databases", 2);
            }
            let listed = listed(self.view, document);
            order(&mut self.databases, self.view.sort);
            document.grid("Databases", &databases(self.databases.iter().take(listed), &server));
            if let more @ 1.. = self.databases.len().saturating_sub(listed) {
                document.line(&not_shown(more as u64), 0);
            }
            document.gap();
            overview.leave_out_server(&server);
            let tiles: Option<Vec<Tile>> = document.is_html().then(|| {
                let databases = self.databases.iter();
                databases
                    .filter_map(|database| {
                        let name = database.name_without(&server);
                        Some(overview::database_tile(name, database.bytes()?, overview))
                    })
                    .collect()
            });
            if let Some(comparison) = &mut self.comparison {
                comparison.leave_out_server(&server);
                compare::text(comparison, self.view.shown(Some(document.style)), document);
            }
            if self.comparison.is_none() || document.is_html() {
                overview::text(overview, self.view.limit, tiles.as_deref(), document);
            }
        }
        if self.overview.is_some() || self.has_text {
            document.gap();
        }
        let passed_over = self.problems.iter().filter(|(_, code, _)| *code == 0).count();
        let not_done = self.problems.len() - passed_over;
        let all = self.done + skipped + self.problems.len() as u64;
        let mut words = format!("{}: {} done", counted(all, "database"), self.done);
        if skipped > 0 {
            words.push_str(&format!(", {skipped} done before"));
        }
        if not_done > 0 {
            words.push_str(&format!(", {not_done} with problems"));
        }
        if passed_over > 0 {
            words.push_str(&format!(", {passed_over} not checked"));
        }
        let tone = if not_done > 0 { Tone::Bad } else { Tone::Good };
        document.line(&document.toned(tone, &words), 0);
        if !self.problems.is_empty() {
            document.gap();
            document.grid("Problems", &problems(&self.problems, &server));
            if let more @ 1.. = self.problems.len().saturating_sub(LISTED) {
                document.line(&format!("({more} more: --format json)"), 0);
            }
        }
    }
}

/// What names of databases begin with if all of them are on one server; empty if there are several.
fn common_server<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let first = names.next().unwrap_or_default();
    let server = first.rfind('/').map_or("", |at| first.get(..=at).unwrap_or_default());
    if names.all(|name| name.strip_prefix(server).is_some_and(|rest| !rest.contains('/'))) {
        server.to_owned()
    } else {
        String::new()
    }
}

/// How many databases are listed.
fn listed(view: View, document: &Document) -> usize {
    match document.style {
        Style::Terminal(_) => view.limit.unwrap_or(SHOWN_ON_TERMINAL),
        Style::Markdown | Style::Html => LISTED.max(view.limit.unwrap_or(0)),
    }
}

/// Puts databases in order: the largest first, unless the order is one of databases. Those that are equal are in the order
/// of their names.
fn order(databases: &mut [DatabaseLine], by: SortBy) {
    databases.sort_by_key(|database| database.name.clone());
    match by {
        SortBy::Name => {}
        SortBy::Unused => databases.sort_by_key(|database| Reverse(database.unused_bytes())),
        SortBy::Stored | SortBy::Raw | SortBy::Read | SortBy::Dead => {
            databases.sort_by_key(|database| Reverse(database.bytes()));
        }
    }
}

/// These databases, and how the run on each ended.
fn databases<'a>(databases: impl Iterator<Item = &'a DatabaseLine>, server: &str) -> Grid {
    let mut grid = Grid::new(&[
        Head::name("Database"),
        Head::number("Size", 0),
        Head::number("TOAST", 0),
        Head::number("Free", 0),
        Head::number("Findings", 0),
        Head::text("State", 0),
    ]);
    for database in databases {
        let totals = database.totals;
        // what was not read may have more
        let toast = totals.filter(|(totals, _)| totals.read >= totals.relations);
        let findings = totals.filter(|(totals, findings)| {
            *findings > 0 || totals.unsearched + totals.by_functions == 0
        });
        grid.row(vec![
            database.name_without(server).to_owned(),
            optional_size(database.bytes()),
            optional_size(toast.map(|(totals, _)| totals.toast_bytes)),
            totals
                .and_then(|(totals, _)| totals.unused_bytes)
                .as_ref()
                .map_or_else(String::new, about_size),
            optional_number(findings.map(|(_, findings)| findings as u64)),
            match database.exit_code {
                0 => "done".to_owned(),
                1 => "incomplete".to_owned(),
                3 => "no connection".to_owned(),
                4 => "stopped".to_owned(),
                7 => "alarm".to_owned(),
                code => format!("exit code {code}"),
            },
        ]);
    }
    grid
}

fn problems(problems: &[(String, u8, String)], server: &str) -> Grid {
    let heads = [Head::name("Database"), Head::number("Exit", 0), Head::text("Problem", 0)];
    let mut grid = Grid::new(&heads);
    for (target, code, error) in problems.iter().take(LISTED) {
        let first = error.lines().next().unwrap_or_default();
        // the place is in the first column
        let why = first
            .strip_prefix("connection to server ")
            .and_then(|rest| rest.split_once(" failed: "))
            .map_or(first, |(_, why)| why);
        let name = target.strip_prefix(server).unwrap_or(target);
        grid.row(vec![name.to_owned(), code.to_string(), printable(why)]);
    }
    grid
}

/// A record of CSV with one more field before the others.
fn with_first(first: &str, fields: &csv::StringRecord) -> Vec<String> {
    std::iter::once(first).chain(fields).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::model::interval::Interval;

    fn report(target: &str, exit_code: u8, error: Option<&str>) -> TargetReport {
        TargetReport {
            schema: SCHEMA,
            target: target.into(),
            exit_code,
            seconds: 0.5,
            error: error.map(str::to_owned),
            result: None,
        }
    }

    fn printed(format: Format) -> String {
        let mut out = Vec::new();
        let shape = OutputFormat::Report(format);
        let mut writer = Writer::new(&mut out, "check", shape, Some(80), View::default());
        let printed = |text: &[u8]| TargetOutput { text: text.to_vec(), ..TargetOutput::default() };
        let text: [&[u8]; 2] = match format {
            Format::Csv => [b"a,b\n1,\"x,\ny\"\n", b"a,b\n2,z\n"],
            Format::Json => [b"{\n  \"schema\": \"s/1\"\n}\n", b""],
            _ => [b"one\n", b"two\n"],
        };
        writer.target(report("h:1/a", 0, None), printed(text[0])).unwrap();
        let locked = report("h:1/b", 1, Some("t is locked\nHINT:  x"));
        writer.target(locked, printed(text[1])).unwrap();
        writer.target(report("down:1/c", 3, Some("refused")), printed(b"")).unwrap();
        let damaged = TargetOutput { meaning: "damage".into(), ..TargetOutput::default() };
        writer.target(report("h:1/d", 5, None), damaged).unwrap();
        writer.finish(1).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn line(name: &str, sizes: Option<(u64, u64)>) -> DatabaseLine {
        let totals = sizes.map(|(bytes, unused)| {
            let unused_bytes = Some(Interval::exact(unused));
            (Totals { database_bytes: Some(bytes), unused_bytes, ..Totals::default() }, 0)
        });
        DatabaseLine { name: name.to_owned(), exit_code: 0, totals }
    }

    fn ordered(by: SortBy) -> Vec<String> {
        let mut lines = vec![
            line("down", None),
            line("small", Some((10, 2))),
            line("large", Some((30, 1))),
            line("loose", Some((20, 3))),
        ];
        order(&mut lines, by);
        lines.into_iter().map(|line| line.name).collect()
    }

    #[test]
    fn databases_are_in_the_order_that_was_asked_for() {
        assert_eq!(ordered(SortBy::Stored), ["large", "loose", "small", "down"]);
        assert_eq!(ordered(SortBy::Dead), ["large", "loose", "small", "down"]);
        assert_eq!(ordered(SortBy::Unused), ["loose", "small", "large", "down"]);
        assert_eq!(ordered(SortBy::Name), ["down", "large", "loose", "small"]);
    }

    #[test]
    fn a_terminal_lists_few_databases_and_more_on_request() {
        let limited = View { limit: Some(40), ..View::default() };
        for (style, few, more) in
            [(Style::Terminal(None), 10, 40), (Style::Markdown, 200, 200), (Style::Html, 200, 200)]
        {
            let document = Document::new(style, false);
            assert_eq!(listed(View::default(), &document), few);
            assert_eq!(listed(limited, &document), more);
        }
    }

    #[test]
    fn every_format_names_the_database_of_each_result() {
        assert_eq!(
            printed(Format::Csv),
            "target,a,b\nh:1/a,1,\"x,\ny\"\nh:1/b,2,z\n".replace("x,\ny", "x,\\ny")
        );
        assert_eq!(
            printed(Format::Json),
            "{\"schema\":\"toastctl.fleet/1\",\"target\":\"h:1/a\",\"exit_code\":0,\"seconds\":0.5,\
             \"result\":{\"schema\":\"s/1\"}}\n\
             {\"schema\":\"toastctl.fleet/1\",\"target\":\"h:1/b\",\"exit_code\":1,\"seconds\":0.5,\
             \"error\":\"t is locked\\nHINT:  x\"}\n\
             {\"schema\":\"toastctl.fleet/1\",\"target\":\"down:1/c\",\"exit_code\":3,\"seconds\":0.5,\
             \"error\":\"refused\"}\n\
             {\"schema\":\"toastctl.fleet/1\",\"target\":\"h:1/d\",\"exit_code\":5,\"seconds\":0.5}\n"
        );
        let shown = anstream::adapter::strip_str(&printed(Format::Table)).to_string();
        insta::assert_snapshot!(shown, @r"
        -- h:1/a --
        one

        -- h:1/b --
        two

        5 databases: 1 done, 1 done before, 3 with problems

         Database | Exit | Problem
        ----------+------+-------------
         h:1/b    |    1 | t is locked
         down:1/c |    3 | refused
         h:1/d    |    5 | damage
        ");
        assert!(printed(Format::Markdown).starts_with("## h:1/a\n\none\n\n## h:1/b\n\ntwo\n"));
    }
}
