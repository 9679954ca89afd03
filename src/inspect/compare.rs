//! What has changed in a database since an earlier run of `inspect`, of which the JSON document is read (pure).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::overview::rank::{Ranking, SortBy, TableLine, name_in};
use super::overview::{ColumnLine, Extent, LeftOut, RelationLine, TableFigures};
use super::result::{RelationReport, SCHEMA};
use crate::findings::finding::Finding;
use crate::offline::other_file::{BEGINNING, OtherFile};
use toast_format::model::interval::Amount;

const EXPECTED: &str = "expected what toastctl inspect --format json has printed";
/// The schema of lines about several databases.
pub(crate) const FLEET: &str = "toastctl.fleet/1";

/// An earlier run, as its document has it.
pub(crate) struct Earlier {
    time: Option<String>,
    ranking: Ranking,
}

/// Earlier runs on several databases, by the names of these.
pub(crate) struct EarlierRuns(BTreeMap<String, Arc<Earlier>>);

/// A line of what such a run has printed.
#[derive(Deserialize)]
struct EarlierLine {
    schema: String,
    target: String,
    result: Option<Value>,
}

impl EarlierRuns {
    /// Reads the lines of a run on several databases. Those that could not be read then are left out.
    ///
    /// # Errors
    /// Why they are no such lines, as the continuation of "the file".
    pub(crate) fn read(bytes: &[u8]) -> Result<EarlierRuns, String> {
        const OF_SEVERAL: &str =
            "expected what toastctl inspect with --all or --targets and --format json has printed";
        let mut runs = BTreeMap::new();
        for line in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
            let line =
                line.map_err(|error| format!("{}: {OF_SEVERAL}", why_no_json(bytes, &error)))?;
            let EarlierLine { schema, target, result } = serde_json::from_value(line)
                .map_err(|_| format!("is not about several databases: {OF_SEVERAL}"))?;
            if schema != FLEET {
                return Err(format!("is {schema}: {OF_SEVERAL}"));
            }
            if let Some(result) = result {
                let run = Earlier::of_document(result, None)
                    .map_err(|why| format!("cannot be compared: {target} {why}"))?;
                runs.insert(target, Arc::new(run));
            }
        }
        if runs.is_empty() { Err(format!("is empty: {OF_SEVERAL}")) } else { Ok(EarlierRuns(runs)) }
    }

    pub(crate) fn run_on(&self, target: &str) -> Option<Arc<Earlier>> {
        self.0.get(target).cloned()
    }

    /// The names of the databases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Why these bytes are no JSON, as the continuation of "the file".
fn why_no_json(bytes: &[u8], error: &serde_json::Error) -> String {
    match OtherFile::recognize(bytes.get(..BEGINNING).unwrap_or(bytes)) {
        Some(kind) if kind != OtherFile::TEXT => format!("is {}", kind.name),
        _ if error.is_eof() => format!("is cut (line {})", error.line()),
        _ => "was not written by toastctl inspect".to_owned(),
    }
}

/// The parts of its document that are compared.
#[derive(Deserialize)]
struct EarlierDocument {
    time: Option<String>,
    tables: Vec<EarlierTable>,
    #[serde(default)]
    findings: Vec<Finding>,
    #[serde(default)]
    left_out: Vec<LeftOut>,
    /// Not there in reports on a table of its own.
    selected: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct EarlierTable {
    #[serde(flatten)]
    line: RelationLine,
    details: Option<RelationReport>,
}

impl Earlier {
    /// Reads the document of a run on this database.
    ///
    /// # Errors
    /// Why it is no such document, as the continuation of "the file".
    pub(crate) fn read(bytes: &[u8], database: &str) -> Result<Earlier, String> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(format!("is empty: {EXPECTED}"));
        }
        // several lines are about several databases
        let mut documents = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
        let first = documents.next().and_then(Result::ok);
        let value = match first {
            Some(first) if first.pointer("/schema").and_then(Value::as_str) == Some(FLEET) => first,
            _ => serde_json::from_slice(bytes)
                .map_err(|error| format!("{}: {EXPECTED}", why_no_json(bytes, &error)))?,
        };
        Earlier::of_document(value, Some(database))
    }

    /// Reads the document of a run on this database, or on the one that it names.
    fn of_document(value: Value, database: Option<&str>) -> Result<Earlier, String> {
        match value.pointer("/schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            Some(FLEET) => {
                return Err("is about several databases: compare it with --all or --targets".into());
            }
            Some(other) if other.starts_with("toastctl.inspect/") => {
                return Err(format!(
                    "is {other}, from another version of toastctl: this one compares {SCHEMA}"
                ));
            }
            Some(other) => return Err(format!("is {other}: {EXPECTED}")),
            None => return Err(format!("has no field schema: {EXPECTED}")),
        }
        match value.pointer("/server/database").and_then(Value::as_str) {
            Some(other) if database.is_some_and(|database| database != other) => {
                let database = database.unwrap_or_default();
                return Err(format!("is about the database \"{other}\", not \"{database}\""));
            }
            Some(_) => {}
            None => return Err("is about files, not about a database".to_owned()),
        }
        if value.pointer("/tables/0/explanation").is_some() {
            return Err("is a report of --explain, which has no sizes".to_owned());
        }
        let EarlierDocument { time, tables, mut findings, left_out, selected } =
            serde_json::from_value(value).map_err(|error| format!("is damaged: {error}"))?;
        let mut ranking = Ranking::new(Extent::default());
        ranking.selected = selected.unwrap_or_else(|| {
            let alone = tables.iter().filter(|table| table.details.is_some());
            alone.map(|table| table.line.read.name.relation.clone()).collect()
        });
        for EarlierTable { mut line, details } in tables {
            let found = details.and_then(|details| details.findings);
            if let Some(found) = found {
                line.figures.findings = Some(found.findings.len() as u64);
                findings.extend(found.findings);
            }
            ranking.add(&line);
        }
        ranking.findings = findings;
        ranking.left_out = left_out;
        Ok(Earlier { time, ranking })
    }
}

/// What has changed since an earlier run. Tables and columns that are as they were are left out, and so are columns whose
/// sizes are estimates that do not differ for certain.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub(crate) struct RunComparison {
    /// When the earlier run began (UTC); null if its document does not say so.
    pub(crate) since: Option<String>,
    /// Tables that only one of the runs has read, and the other was not to read or could not: they are left out.
    pub(crate) read_once: u64,
    /// Size of the tables of both runs with TOAST and indexes, in the earlier one.
    pub(crate) bytes_before: u64,
    /// Size of the same tables now.
    pub(crate) bytes_now: u64,
    /// By the amount of the change; those of parts are added up.
    pub(crate) tables: Vec<TableChange>,
    /// By the amount of the change; those of parts are added up.
    pub(crate) columns: Vec<ColumnChange>,
    /// Findings that the earlier run did not have.
    pub(crate) new_findings: Vec<Finding>,
    /// Findings of the earlier run that are no longer there, if that is known.
    pub(crate) gone_findings: Vec<Finding>,
}

/// A table that has changed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct TableChange {
    pub(crate) relation: String,
    /// Of the sizes with TOAST and indexes.
    pub(crate) bytes_change: i64,
    /// Null if the earlier run did not read it.
    pub(crate) before: Option<TableFigures>,
    /// Null if it is not there any more.
    pub(crate) now: Option<TableFigures>,
}

/// A column that has changed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ColumnChange {
    pub(crate) relation: String,
    pub(crate) column: String,
    /// Of the stored sizes.
    pub(crate) bytes_change: i64,
    /// Null if the earlier run did not read it.
    pub(crate) before: Option<ColumnLine>,
    /// Null if it is not there any more.
    pub(crate) now: Option<ColumnLine>,
}

fn difference(before: u64, now: u64) -> i64 {
    i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(i64::try_from(before).unwrap_or(i64::MAX))
}

/// What is in one of two lists or in both, by key.
type Paired<K, T> = BTreeMap<K, (Option<T>, Option<T>)>;

fn paired<K: Ord, T>(
    before: impl IntoIterator<Item = (K, T)>,
    now: impl IntoIterator<Item = (K, T)>,
) -> Paired<K, T> {
    let mut pairs: Paired<K, T> = BTreeMap::new();
    for (key, item) in before {
        pairs.entry(key).or_default().0 = Some(item);
    }
    for (key, item) in now {
        pairs.entry(key).or_default().1 = Some(item);
    }
    pairs
}

fn tables_by_name(ranking: &Ranking) -> Vec<(String, TableFigures)> {
    let tables = ranking.tables(SortBy::Name, usize::MAX).into_iter();
    tables.map(|TableLine { relation, figures, .. }| (relation, figures)).collect()
}

fn columns_by_name(ranking: &Ranking) -> Vec<((String, String), ColumnLine)> {
    let columns = ranking.columns();
    columns.map(|line| ((line.relation.clone(), line.column.clone()), line.clone())).collect()
}

/// Whether a run that has not read a table would have, if the table had been there. `other`: the run that has read it.
fn would_have_read(run: &Ranking, other: &Ranking, relation: &str) -> bool {
    let is_unread = run.left_out.iter().any(|left_out| left_out.relation == relation);
    (run.selected.is_empty() || run.selected == other.selected) && !is_unread
}

/// Whether a table of either run is compared: if both have read it, or the other one would have if it had been there.
fn is_compared(relation: &str, earlier: &Ranking, now: &Ranking) -> bool {
    match (earlier.table(relation), now.table(relation)) {
        (Some(_), Some(_)) => true,
        (None, Some(_)) => would_have_read(earlier, now, relation),
        (_, None) => would_have_read(now, earlier, relation),
    }
}

/// Whether there is a finding like this one.
fn is_in(finding: &Finding, others: &[Finding]) -> bool {
    others.iter().any(|other| {
        (finding.code, &finding.relation, &finding.column, &finding.object)
            == (other.code, &other.relation, &other.column, &other.object)
    })
}

/// Sizes of files, of which none differs in a table that is as it was.
fn files(figures: &TableFigures) -> (u64, Option<u64>, Option<u64>) {
    (figures.bytes_with_indexes(), figures.toast_bytes, figures.heap_bytes)
}

fn stored(line: Option<&ColumnLine>) -> u64 {
    line.map_or(0, |line| line.stored_bytes.estimate)
}

impl RunComparison {
    /// Tables that only one of the runs was to read, or that could not be read, are left out.
    pub(crate) fn new(earlier: &Earlier, now: &Ranking) -> RunComparison {
        let before = &earlier.ranking;
        let mut comparison =
            RunComparison { since: earlier.time.clone(), ..RunComparison::default() };
        let of_earlier = tables_by_name(before);
        for (relation, (then, after)) in paired(of_earlier, tables_by_name(now)) {
            if is_compared(&relation, before, now) {
                comparison.add_table(relation, then, after);
            } else {
                comparison.read_once += 1;
            }
        }
        let of_earlier = columns_by_name(before);
        for ((relation, column), (then, after)) in paired(of_earlier, columns_by_name(now)) {
            if is_compared(&relation, before, now) {
                comparison.add_column(relation, column, then, after);
            }
        }
        comparison.order();
        let new = now.findings.iter().filter(|found| {
            let relation = &found.relation;
            let is_known =
                before.table(relation).is_some() || would_have_read(before, now, relation);
            is_known && !is_in(found, &before.findings)
        });
        comparison.new_findings = new.cloned().collect();
        let gone = before.findings.iter().filter(|found| {
            let searched = now.searched.get(&found.relation).copied();
            let is_known = searched.unwrap_or_else(|| is_compared(&found.relation, before, now));
            is_known && !is_in(found, &now.findings)
        });
        comparison.gone_findings = gone.cloned().collect();
        comparison
    }

    /// Puts what has changed most first.
    fn order(&mut self) {
        self.tables.sort_by_key(|table| Reverse(table.bytes_change.unsigned_abs()));
        self.columns.sort_by_key(|line| Reverse(line.bytes_change.unsigned_abs()));
    }

    /// Puts the database's name before every relation.
    pub(crate) fn name(&mut self, target: &str) {
        self.relations().for_each(|relation| *relation = name_in(target, relation));
    }

    /// Leaves out the server before the names of databases, which are all there.
    pub(crate) fn leave_out_server(&mut self, server: &str) {
        for relation in self.relations() {
            *relation = relation.strip_prefix(server).unwrap_or(relation).to_owned();
        }
    }

    /// Every name of a relation in it.
    fn relations(&mut self) -> impl Iterator<Item = &mut String> {
        let findings = self.new_findings.iter_mut().chain(&mut self.gone_findings);
        let tables = self.tables.iter_mut().map(|table| &mut table.relation);
        let columns = self.columns.iter_mut().map(|line| &mut line.relation);
        tables.chain(columns).chain(findings.map(|finding| &mut finding.relation))
    }

    /// Adds that of another database. It is since the earlier of both runs.
    pub(crate) fn join(&mut self, other: RunComparison) {
        self.since = self.since.take().into_iter().chain(other.since).min();
        self.read_once += other.read_once;
        self.bytes_before = self.bytes_before.saturating_add(other.bytes_before);
        self.bytes_now = self.bytes_now.saturating_add(other.bytes_now);
        self.tables.extend(other.tables);
        self.columns.extend(other.columns);
        self.new_findings.extend(other.new_findings);
        self.gone_findings.extend(other.gone_findings);
        self.order();
    }

    fn add_table(
        &mut self,
        relation: String,
        before: Option<TableFigures>,
        now: Option<TableFigures>,
    ) {
        let bytes_before = before.map_or(0, |figures| figures.bytes_with_indexes());
        let bytes_now = now.map_or(0, |figures| figures.bytes_with_indexes());
        if before.is_some() && now.is_some() {
            self.bytes_before = self.bytes_before.saturating_add(bytes_before);
            self.bytes_now = self.bytes_now.saturating_add(bytes_now);
        }
        let is_same = before.zip(now).is_some_and(|(before, now)| {
            let free = before.unused_bytes.unwrap_or_default();
            let free_now = now.unused_bytes.unwrap_or_default();
            files(&before) == files(&now) && overlap(free, free_now)
        });
        if !is_same {
            let bytes_change = difference(bytes_before, bytes_now);
            self.tables.push(TableChange { relation, bytes_change, before, now });
        }
    }

    fn add_column(
        &mut self,
        relation: String,
        column: String,
        before: Option<ColumnLine>,
        now: Option<ColumnLine>,
    ) {
        let is_same = before.as_ref().zip(now.as_ref()).is_some_and(|(before, now)| {
            overlap(before.stored_bytes, now.stored_bytes)
                && (before.storage, before.compression) == (now.storage, now.compression)
        });
        let bytes_change = difference(stored(before.as_ref()), stored(now.as_ref()));
        if !is_same {
            self.columns.push(ColumnChange { relation, column, bytes_change, before, now });
        }
    }
}

/// Whether two figures may be the same. Of a hundred columns, five are outside of their 95 % intervals, so these count
/// with twice their width.
fn overlap(one: Amount, other: Amount) -> bool {
    let [(low, high), (other_low, other_high)] = [one, other].map(|figure| {
        let Amount { estimate, low, high } = figure;
        (low.saturating_sub(estimate - low), high.saturating_add(high - estimate))
    });
    low <= other_high && other_low <= high
}
