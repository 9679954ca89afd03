//! Compares values of pluggable toasters while rows are found, and while they are re-toasted ([`readings`](super::readings)).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::readings::{Comparison, OwnReading, hint_for_left, left};
use crate::message::listed;
use crate::retoast::error::{Result, RetoastError};
use crate::retoast::result::{Common, SkippedRow};
use crate::retoast::sql;
use crate::retoast::sweep::conversion::Conversion;
use crate::retoast::sweep::machine::Row;
use crate::retoast::sweep::scanner::Scanner;
use crate::retoast::task::guard::{BatchEnd, Opening, Reason};
use crate::retoast::task::proof::Stored;
use crate::server::chunks::{ChunkPages, LiveChunks};
use crate::server::sqlstate::is_sudden;
use crate::server::{Client, LiveResult, Moment};
use crate::value::reading::CustomDatum;
use toast_format::disk::{Datum, ItemPointer, PageSize, Varlena};
use toast_format::model::StoredValue;
use toast_format::model::sql::quote_identifier;
use toast_format::model::toaster::describe::KnownFailure;

/// How many rows a message names.
const NAMED: usize = 5;

impl Scanner<'_> {
    /// The first column that an UPDATE reads and whose value the server is known to misread.
    fn known_failure(&self, values: &[StoredValue]) -> Option<(usize, KnownFailure)> {
        let read = self.ready.set_columns();
        let targets = &self.ready.targets;
        values.iter().enumerate().find_map(|(index, value)| {
            let failure = value.custom?.failure?;
            let column = self.ready.relation.desc.attributes.get(index)?;
            let is_read = targets.iter().any(|target| target.index == index)
                || read.contains(&column.name.as_str());
            is_read.then_some((index, failure))
        })
    }

    /// Whether a row that does not comply is left, because the server is known to misread one of its values.
    pub(super) fn is_left(&mut self, ctid: ItemPointer, values: &[StoredValue]) -> bool {
        let Some((index, failure)) = self.known_failure(values) else { return false };
        let column = self.ready.relation.desc.attributes.get(index);
        self.leave(ctid, &left(column.map_or("", |column| &column.name), failure));
        true
    }

    /// Keeps a value of a pluggable toaster that an UPDATE would read.
    pub(super) fn keep_custom(&mut self, ctid: ItemPointer, index: usize, datum: &Datum<'_>) {
        let Datum::Varlena(Varlena::Custom(pointer)) = datum else { return };
        let comparison = self.by_rule.seen_rows.readings.comparison();
        if comparison.is_some_and(|comparison| comparison.reads(index)) {
            let order = pointer.order;
            let bytes = pointer.datum.to_vec();
            self.customs.entry(ctid).or_default().push(CustomDatum { index, order, bytes });
        }
    }

    /// Records a row that is left, and what to do about it.
    fn leave(&mut self, ctid: ItemPointer, problem: &str) {
        self.seen.problems.push(SkippedRow::unread(ctid, problem));
        self.seen.misread += 1;
        let hint = hint_for_left(&self.ready.relation.display_name());
        if !self.seen.hints.contains(&hint) {
            self.seen.hints.push(hint);
        }
    }

    /// Reassembles the values of pluggable toasters in rows that are to be re-toasted. Rows for which that is not
    /// possible, or which the server has misread, are left.
    pub(super) async fn note_readings(
        &mut self,
        moment: &Moment,
        rows: Vec<Row>,
    ) -> LiveResult<Vec<Row>> {
        let customs = std::mem::take(&mut self.customs);
        let readings = &self.by_rule.seen_rows.readings;
        let (Some(comparison), Some(pageinspect)) = (readings.comparison(), self.pages) else {
            return Ok(rows);
        };
        let page_size = self.server.page_size;
        let pages = ChunkPages {
            pageinspect: pageinspect.clone(),
            page_size,
            snapshot: moment.snapshot.clone(),
            dead: false,
        };
        let mut chunks = LiveChunks::with_pages(Arc::clone(&self.connection), pages);
        let mut kept = Vec::with_capacity(rows.len());
        for row in rows {
            let known = readings.known().misread.get(&(row.ctid, row.xmin)).cloned();
            let data = customs.get(&row.ctid).map_or(&[][..], Vec::as_slice);
            let own = match known {
                Some(problem) => Err(problem),
                None => own_values(comparison, data, page_size, &mut chunks).await,
            };
            match own {
                Err(problem) => self.leave(row.ctid, &problem),
                Ok(values) => {
                    let own = OwnReading { xmin: row.xmin, values };
                    readings.known().own.insert(row.ctid, own);
                    kept.push(row);
                }
            }
        }
        Ok(kept)
    }
}

/// The md5 of each value of a pluggable toaster in a row, by the index of its column; or why the row is left.
async fn own_values(
    comparison: &Comparison,
    data: &[CustomDatum],
    page: PageSize,
    chunks: &mut LiveChunks,
) -> Result<BTreeMap<usize, String>, String> {
    let mut values = BTreeMap::new();
    for datum in data {
        let Some(column) = comparison.column(datum.index) else { continue };
        let read = match column.compared {
            Some(compared) => datum
                .reassembled(compared, &comparison.toasters, page, chunks)
                .await
                .map_err(|error| error.to_string()),
            None => Err(format!("toastctl has no text form of type {}", column.type_name)),
        };
        let read = read.map_err(|why| {
            format!(
                "column \"{}\": what the server reads could not be compared with the value's chunks: {why}",
                column.name
            )
        })?;
        values.insert(datum.index, read);
    }
    Ok(values)
}

/// The rows of a batch that the server reads as they are reassembled here.
pub(super) struct ReadAlike {
    pub(super) rows: Vec<String>,
    own: Vec<OwnReading>,
}

impl Conversion<'_> {
    /// Determines what is compared before values of pluggable toasters are converted.
    pub(super) async fn prepare_readings(&self) -> Result<()> {
        let session = self.guard.session;
        if self.guard.ready.pluggable && !session.options.dry_run {
            let readings = &self.seen_rows.readings;
            readings.prepare(session.writer(), session.server, self.guard.ready).await?;
        }
        Ok(())
    }

    /// Of locked rows, those that the server reads as they are reassembled here; all if nothing is compared. `locked`: their addresses and
    /// inserting transactions. The others are left to the next scan, which reports those that are misread.
    ///
    /// Each row is read by a statement of its own, so that it is known which one the server has crashed on.
    pub(super) async fn read_alike(
        &self,
        client: &Client,
        job: usize,
        locked: &[(ItemPointer, u32)],
    ) -> Result<ReadAlike> {
        let readings = &self.seen_rows.readings;
        let mut alike = ReadAlike { rows: Vec::new(), own: Vec::new() };
        let Some(comparison) = readings.comparison() else {
            alike.rows = locked.iter().map(|(ctid, _)| ctid.to_string()).collect();
            return Ok(alike);
        };
        for &(ctid, xmin) in locked {
            let Some(own) = readings.own(ctid, xmin) else { continue };
            let address = ctid.to_string();
            if !own.values.is_empty() {
                readings.reads(job, vec![address.clone()]);
                let indexes: Vec<usize> = own.values.keys().copied().collect();
                let read = self.server_reads(client, comparison, &indexes, &[&address]).await?;
                let other = own.values.iter().enumerate().find(|&(at, (_, md5))| {
                    read.first().and_then(|row| row.get(at)).map(Option::as_deref)
                        != Some(Some(md5.as_str()))
                });
                if let Some((_, (index, _))) = other {
                    let column = comparison.column(*index).map_or("", |column| &column.name);
                    let problem = format!(
                        "column \"{column}\": the server reads another value than its chunks hold; the row was left as \
                         it is stored"
                    );
                    readings.known().misread.insert((ctid, xmin), problem);
                    continue;
                }
            }
            alike.rows.push(address);
            alike.own.push(own);
        }
        let with_values = alike.rows.iter().zip(&alike.own);
        let with_values = with_values.filter(|(_, own)| !own.values.is_empty());
        readings.reads(job, with_values.map(|(row, _)| row.clone()).collect());
        Ok(alike)
    }

    /// The md5s of these columns as the server reads them in the rows at these addresses.
    async fn server_reads(
        &self,
        client: &Client,
        comparison: &Comparison,
        indexes: &[usize],
        addresses: &[&str],
    ) -> LiveResult<Vec<Vec<Option<String>>>> {
        let read = indexes.iter().filter_map(|&index| {
            let column = comparison.column(index)?;
            Some(column.compared?.sql(&format!("t.{}", quote_identifier(&column.name))))
        });
        let read: Vec<String> = read.collect();
        let sql = sql::readings(&self.guard.ready.relation.quoted(), &read);
        let mut all = Vec::new();
        for row in client.query_typed(&sql, &[(&addresses, Type::TEXT_ARRAY)]).await? {
            let columns = 0..read.len();
            all.push(columns.map(|at| row.try_get(at)).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(all)
    }

    /// Compares what an UPDATE has stored with what was reassembled. If the server has stored anything else, the
    /// transaction is rolled back, and the reason is returned.
    pub(super) async fn stored_alike(
        &self,
        opening: &Opening<'_>,
        alike: &ReadAlike,
        stored: &Stored,
    ) -> Result<Option<BatchEnd>> {
        let Some(comparison) = self.seen_rows.readings.comparison() else { return Ok(None) };
        let mut expected: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for own in &alike.own {
            for (index, md5) in &own.values {
                expected.entry(*index).or_default().push(md5);
            }
        }
        if expected.is_empty() {
            return Ok(None);
        }
        let indexes: Vec<usize> = expected.keys().copied().collect();
        let addresses: Vec<&str> = stored.ctids.iter().map(String::as_str).collect();
        let read = self.server_reads(opening.client(), comparison, &indexes, &addresses).await?;
        for (at, md5s) in expected.values().enumerate() {
            let mut now: HashMap<&str, usize> = HashMap::new();
            for md5 in read.iter().filter_map(|row| row.get(at)?.as_deref()) {
                *now.entry(md5).or_default() += 1;
            }
            for md5 in md5s {
                match now.get_mut(md5) {
                    Some(count) if *count > 0 => *count -= 1,
                    _ => {
                        opening.rollback().await?;
                        return Ok(Some(BatchEnd::Refused(Reason {
                            sqlstate: String::new(),
                            is_of_index: false,
                            text: "the server stored another value than its chunks held: the transaction was rolled \
                                   back"
                                .to_owned(),
                        })));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The error of a run that ends because a connection ended while the server read values of pluggable toasters;
    /// other errors are returned as they are. The rows are reported, and not read again in this run.
    pub(super) fn unless_crashed(&self, error: RetoastError, report: &mut Common) -> RetoastError {
        let ended = matches!(&error, RetoastError::Live(error) if is_sudden(error));
        let under_way = std::mem::take(&mut self.seen_rows.readings.known().under_way);
        let rows: Vec<String> = under_way.into_values().flatten().collect();
        if !ended || rows.is_empty() {
            return error;
        }
        let named = listed(&rows, NAMED);
        let name = self.guard.name();
        for ctid in rows {
            let reason =
                "the connection ended while the server read or stored the row's values".to_owned();
            self.guard.set_aside(1, SkippedRow { ctid, reason, sqlstate: None }, report);
        }
        RetoastError::end_run(format!(
            "the connection ended while the server read values of a pluggable toaster, at row {named} of {name}: {error}\n\
             The server may have crashed on the value, which ends all sessions, so the run ends, and reads nothing again.\n\
             HINT:  toastctl value {name} --reassemble=DIR saves the values as toastctl reads them. UPDATE the row with \
             the saved value before you run the command again."
        ))
    }
}
