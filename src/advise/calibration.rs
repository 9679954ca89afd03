//! CPU prices fitted to what a server takes to read and compress values of the sample (`--calibrate`), and the file
//! that keeps them (`--calibration`); pure.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::content::Specimen;
use super::result::{CalibrationReport, CalibrationSource};
use crate::server::calibrate::{Group, LIMIT, Stored, Timed};
use toast_format::codec::Method;
use toast_format::disk::PageSize;
use toast_format::model::btree::ToastIndex;
use toast_format::model::cost::{PGLZ_GIVES_UP, Prices, Pricing, ReadWork, WritePrices, WriteWork};
use toast_format::model::fit::{Measurement, fit};
use toast_format::model::policy::VARLENA_HEADER_SIZE;

/// `--calibrate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Calibrate {
    /// Where times can be measured
    Auto,
    /// Fail where they cannot
    Always,
    /// Use the built-in timings
    #[default]
    Never,
}

/// Most values of a column that are copied.
const MOST_VALUES: usize = 600;
/// Most bytes of these values, so that all copies fit in temp_buffers.
const MOST_BYTES: u64 = 1_500_000;
/// Shorter values may stay in the row, and a read of them takes nearly no time.
pub(super) const SHORTEST: u32 = 200;
/// Values are timed in groups of about the same size.
const GROUPS: usize = 6;
/// Minimum of values for a calibration.
pub(super) const LEAST_VALUES: usize = 6;

/// The name and version of the file's shape.
const SCHEMA: &str = "toastctl.calibration/1";

/// Prices of a server, as the file of `--calibration` keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    schema: String,
    /// The server that was measured: its system identifier.
    system: String,
    major: i32,
    pub(super) pricing: Pricing,
}

impl Kept {
    /// The prices of a server.
    pub(super) fn new(system: String, major: i32, pricing: Pricing) -> Kept {
        Kept { schema: SCHEMA.to_owned(), system, major, pricing }
    }

    /// Why they cannot be used on this server, if they cannot.
    pub(super) fn refusal(&self, system: &str, major: i32) -> Option<String> {
        if self.system != system {
            Some(format!("it is of server {}, and this is {system}", self.system))
        } else {
            (self.major != major)
                .then(|| format!("it is of PostgreSQL {}, and this is {major}", self.major))
        }
    }

    /// From the contents of a file.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn parse(text: &str) -> Result<Kept, String> {
        let kept: Kept = serde_json::from_str(text).map_err(|error| {
            if error.is_eof() { "it is cut" } else { "it was not written by toastctl" }
        })?;
        if kept.schema == SCHEMA && kept.pricing.is_sound() {
            Ok(kept)
        } else {
            Err(format!("not a calibration ({SCHEMA}) with positive prices"))
        }
    }

    /// The contents of a file.
    pub(crate) fn text(&self) -> String {
        // Numbers and strings can always be written.
        serde_json::to_string_pretty(self).map_or_else(|_| String::new(), |text| text + "\n")
    }
}

/// The calibration of one run.
#[derive(Debug, Default)]
pub(crate) struct Calibrations {
    /// Prices for the whole run, if a file keeps them.
    kept: Mutex<Option<Kept>>,
    /// The time that was spent.
    spent: Mutex<Duration>,
}

impl Calibrations {
    /// The prices for the whole run.
    pub(super) fn kept(&self) -> Option<Kept> {
        lock(&self.kept).clone()
    }

    pub(super) fn keep(&self, kept: Kept) {
        *lock(&self.kept) = Some(kept);
    }

    /// The time that is left.
    pub(super) fn left(&self) -> Duration {
        LIMIT.saturating_sub(*lock(&self.spent))
    }

    pub(super) fn spend(&self, time: Duration) {
        *lock(&self.spent) += time;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the times in a report on a column rest on.
#[derive(Debug, Clone, Default)]
pub(super) struct Calibrated {
    pub(super) pricing: Pricing,
    pub(super) report: CalibrationReport,
}

impl Calibrated {
    /// The prices of a common server, and why there are no others.
    pub(super) fn none(why: impl Into<String>) -> Calibrated {
        let mut calibrated = Calibrated::new(Pricing::default(), CalibrationSource::None);
        calibrated.report.why = Some(why.into());
        calibrated
    }

    pub(super) fn new(pricing: Pricing, source: CalibrationSource) -> Calibrated {
        let Pricing { read_error, write_error, .. } = pricing;
        let report = CalibrationReport {
            source,
            why: None,
            values: 0,
            read_error,
            write_error,
            prices: pricing,
        };
        Calibrated { pricing, report }
    }
}

/// The values that are copied, shortest first. Those that no longer fit are left out.
pub(super) fn chosen(specimens: &[Specimen]) -> Vec<Specimen> {
    let mut bytes = 0;
    let long = specimens.iter().filter(|specimen| specimen.raw >= SHORTEST);
    let mut chosen: Vec<Specimen> = long
        .filter(|specimen| {
            let fits = bytes + u64::from(specimen.raw) <= MOST_BYTES;
            bytes += if fits { u64::from(specimen.raw) } else { 0 };
            fits
        })
        .take(MOST_VALUES)
        .copied()
        .collect();
    chosen.sort_by_key(|specimen| specimen.raw);
    chosen
}

/// Values of about the same size together.
pub(super) fn grouped(specimens: &[Specimen]) -> Vec<&[Specimen]> {
    specimens.chunks(specimens.len().div_ceil(GROUPS).max(1)).collect()
}

pub(super) fn asked(group: &[Specimen], page: PageSize) -> Group {
    let work = added(group, |specimen| read(specimen, Stored::Raw, page, 1));
    Group {
        rows: group.iter().map(|specimen| specimen.ctid).collect(),
        expected_ns: Prices::default().read_ns(&work),
    }
}

/// How much longer it takes to fetch a value of a table than a copy from temporary tables, whose buffers need no locks
/// and whose pages are nearer to the CPU, and to copy it or decompress it by lz4, which waits for memory too.
const FROM_TABLE: f64 = 1.55;
const FROM_MEMORY: f64 = 1.1;
/// The largest error of times that are used.
const MOST_ERROR: f64 = 0.5;

/// The least error of the times measured on this many values: a few values stay in the CPU's caches while they are timed
/// again and again, and others may be unlike them.
fn least_error(values: usize) -> f64 {
    0.5 / (values.max(1) as f64).sqrt()
}

/// The prices fitted to the times of these groups.
pub(super) fn fitted(timed: &[Timed], groups: &[&[Specimen]], page: PageSize) -> Option<Pricing> {
    let read_prices = Prices::default();
    let write_prices = WritePrices::default();
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    for one in timed {
        let group = *groups.get(one.group)?;
        let all = groups.iter().flat_map(|group| group.iter());
        let chunks: u64 = all.map(|specimen| u64::from(chunks(specimen, one.stored, page))).sum();
        let levels = ToastIndex::new(page, chunks).levels;
        let work = added(group, |specimen| read(specimen, one.stored, page, levels));
        reads.push(Measurement { parts: read_prices.parts(&work), ns: one.read_ns });
        let work = written(group, one.stored, page);
        writes.push(Measurement { parts: write_prices.parts(&work), ns: one.write_ns });
    }
    // a difference of two times may be negative on a busy machine
    reads.retain(|one| one.ns > 0.0);
    writes.retain(|one| one.ns > 0.0);
    let reads = fit(&reads)?;
    let writes = fit(&writes)?;
    let least = least_error(groups.iter().map(|group| group.len()).sum());
    let pricing = Pricing {
        read: of_table(read_prices.times(reads.factors)),
        write: write_prices.times(writes.factors),
        read_error: Some(reads.error.max(least)),
        write_error: Some(writes.error.max(least)),
    };
    (pricing.is_sound() && reads.error <= MOST_ERROR).then_some(pricing)
}

/// The prices of reads from a table, from those of temporary tables, of which neither heap pages nor rows are timed.
fn of_table(prices: Prices) -> Prices {
    let Prices { heap_page_ns, row_ns, .. } = Prices::default();
    Prices {
        heap_page_ns,
        row_ns,
        lookup_ns: prices.lookup_ns * FROM_TABLE,
        page_ns: prices.page_ns * FROM_TABLE,
        chunk_ns: prices.chunk_ns * FROM_TABLE,
        copy_byte_ns: prices.copy_byte_ns * FROM_MEMORY,
        lz4: prices.lz4.times([FROM_MEMORY; 4]),
        ..prices
    }
}

/// The size of a value out of line in this form.
fn stored_size(specimen: &Specimen, stored: Stored) -> u32 {
    match stored {
        Stored::Raw => specimen.raw,
        Stored::Compressed(method) => specimen
            .compressed(method)
            .map_or(specimen.raw, |(size, _)| size.saturating_sub(VARLENA_HEADER_SIZE)),
    }
}

fn chunks(specimen: &Specimen, stored: Stored, page: PageSize) -> u32 {
    page.chunks(stored_size(specimen, stored))
}

fn read(specimen: &Specimen, stored: Stored, page: PageSize, levels: u32) -> ReadWork {
    let mut work = ToastIndex::read(page, levels, stored_size(specimen, stored), None);
    if let Stored::Compressed(method) = stored
        && let Some((_, items)) = specimen.compressed(method)
    {
        work.decompressions = 1.0;
        *work.items_mut(method) = items;
    }
    work
}

/// The work of reading all values of a group.
fn added(group: &[Specimen], work: impl Fn(&Specimen) -> ReadWork) -> ReadWork {
    group.iter().map(work).fold(ReadWork::default(), |sum, more| sum + more)
}

/// The work of writing all values of a group.
fn written(group: &[Specimen], stored: Stored, page: PageSize) -> WriteWork {
    let mut work = WriteWork::default();
    for specimen in group {
        work.chunks += f64::from(chunks(specimen, stored, page));
        let Stored::Compressed(method) = stored else { continue };
        let (items, refused, most) = match method {
            Method::Pglz => (&mut work.pglz, &mut work.pglz_refused, PGLZ_GIVES_UP),
            Method::Lz4 => (&mut work.lz4, &mut work.lz4_refused, u32::MAX),
        };
        match specimen.compressed(method) {
            Some((_, more)) => {
                *items += more;
                work.compressions += 1.0;
            }
            None => *refused += f64::from(specimen.raw.min(most)),
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::codec::items::Items;
    use toast_format::disk::{BlockNumber, ItemPointer};

    fn specimen(number: u16, raw: u32) -> Specimen {
        let ctid = ItemPointer { block: BlockNumber(0), item: number };
        let items = |part: f64| Items {
            literals: f64::from(raw) * part,
            matches: f64::from(raw) * part / 4.0,
            copied: f64::from(raw) * (1.0 - part),
            overlapping: 0.0,
        };
        let part = f64::from(number % 7) / 10.0;
        Specimen {
            ctid,
            raw,
            pglz: Some((raw / 2, items(part))),
            lz4: (!number.is_multiple_of(5)).then(|| (raw / 3, items(part / 2.0))),
        }
    }

    fn specimens() -> Vec<Specimen> {
        (1..150).map(|number| specimen(number, 300 + u32::from(number) * 60)).collect()
    }

    #[test]
    fn values_are_chosen_within_limits() {
        let many: Vec<Specimen> = (1..1000).map(|number| specimen(number, 10_000)).collect();
        assert_eq!(chosen(&many).len(), 150);
        let short: Vec<Specimen> = (1..1000).map(|number| specimen(number, 100)).collect();
        assert!(chosen(&short).is_empty());
        let mut one = vec![specimen(1, 2_000_000)];
        let few = &many[..20];
        one.extend(few);
        assert_eq!(chosen(&one), few);
        let all = specimens();
        assert_eq!(grouped(&all).len(), 6);
        assert_eq!(grouped(&all).concat(), all);
    }

    #[test]
    fn prices_are_found_from_the_times_they_cause() {
        let all = specimens();
        let groups = grouped(&all);
        let page = PageSize::DEFAULT;
        // reads are twice as slow as assumed, and decompression of pglz four times
        let mut factors = [2.0; toast_format::model::cost::READ_PARTS];
        factors[7..11].fill(4.0);
        let real = Prices::default().times(factors);
        let forms =
            [Stored::Raw, Stored::Compressed(Method::Pglz), Stored::Compressed(Method::Lz4)];
        let mut timed = Vec::new();
        for stored in forms {
            for (group, members) in groups.iter().enumerate() {
                let chunks = all.iter().map(|one| u64::from(chunks(one, stored, page))).sum();
                let levels = ToastIndex::new(page, chunks).levels;
                let work = added(members, |specimen| read(specimen, stored, page, levels));
                let read_ns = real.read_ns(&work);
                let write_ns = WritePrices::default().write_ns(&written(members, stored, page));
                timed.push(Timed { stored, group, read_ns, write_ns });
            }
        }
        let pricing = fitted(&timed, &groups, page).unwrap();
        let longest = all.last().unwrap();
        let of_table = of_table(real);
        for stored in forms {
            let work = read(longest, stored, page, 1);
            let ratio = pricing.read.read_ns(&work) / of_table.read_ns(&work);
            assert!((0.9..1.1).contains(&ratio), "{stored:?} {ratio} {pricing:?}");
        }
        assert!(pricing.read_error.unwrap() < 0.1, "{pricing:?}");
        assert_eq!(pricing.write.chunk_ns, WritePrices::default().chunk_ns);
        // times of a machine that was too busy to measure anything
        for one in &mut timed {
            one.read_ns = -1.0;
        }
        assert_eq!(fitted(&timed, &groups, page), None);
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_checked() {
        let pricing = Pricing { read_error: Some(0.1), ..Pricing::default() };
        let kept = Kept::new("123".into(), 15, pricing);
        assert_eq!(kept.refusal("123", 15), None);
        assert!(kept.refusal("124", 15).is_some() && kept.refusal("123", 16).is_some());
        assert_eq!(Kept::parse(&kept.text()), Ok(kept.clone()));
        for (from, to) in [("lookup_ns\": 1", "lookup_ns\": -1"), ("ion/1", "ion/2"), ("{", "")] {
            let text = kept.text().replacen(from, to, 1);
            assert_ne!(text, kept.text());
            assert!(Kept::parse(&text).is_err(), "{text}");
        }
    }
}
