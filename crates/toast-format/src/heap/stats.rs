//! Statistics of columns and relations, in accumulators that can be merged.

use std::collections::BTreeMap;

use derive_more::AddAssign;
use hdrhistogram::Histogram;

use crate::codec::Method;
use crate::disk::walk::Simple;
use crate::disk::{Datum, Oid, Varlena};
use crate::model::toaster::catalog::Handler;
use crate::model::toaster::describe::PointerKind;
use crate::model::{Form, StoredValue};

/// Sums over the values with one form and method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct FormSums {
    /// The number of values.
    pub values: u64,
    /// Raw bytes of the values whose raw size is known.
    pub raw_bytes: u64,
    /// The number of values whose raw size is not known.
    pub raw_unknown: u64,
    /// Stored bytes, without TOAST pointers, of the values whose stored size is known.
    pub stored_bytes: u64,
    /// The number of values whose stored size is not known.
    pub stored_unknown: u64,
    /// The size of TOAST pointers.
    pub pointer_bytes: u64,
    /// The number of chunks in the TOAST relation.
    pub chunks: u64,
    /// The number of custom pointers that lead to chunks.
    pub custom_out_of_line: u64,
    /// Those of them that do not say how many chunks there are.
    pub uncounted: u64,
}

impl FormSums {
    /// Adds a value that occurs `n` times.
    fn add(&mut self, value: &StoredValue, n: u64) {
        self.values = self.values.saturating_add(n);
        if value.form == Form::Null {
            return;
        }
        if value.custom.is_some_and(|custom| custom.chunks != Some(0)) {
            self.custom_out_of_line = self.custom_out_of_line.saturating_add(n);
        }
        if value.custom.is_some_and(|custom| custom.chunks.is_none()) {
            self.uncounted = self.uncounted.saturating_add(n);
        }
        add_times(&mut self.chunks, chunks_of(value), n);
        add_times(&mut self.pointer_bytes, value.pointer_size, n);
        match value.raw_size {
            Some(size) => add_times(&mut self.raw_bytes, size, n),
            None => self.raw_unknown = self.raw_unknown.saturating_add(n),
        }
        match value.stored_size {
            Some(size) => add_times(&mut self.stored_bytes, size, n),
            None => self.stored_unknown = self.stored_unknown.saturating_add(n),
        }
    }

    /// These sums without those of `part`.
    pub fn less(&self, part: &FormSums) -> FormSums {
        FormSums {
            values: self.values.saturating_sub(part.values),
            raw_bytes: self.raw_bytes.saturating_sub(part.raw_bytes),
            raw_unknown: self.raw_unknown.saturating_sub(part.raw_unknown),
            stored_bytes: self.stored_bytes.saturating_sub(part.stored_bytes),
            stored_unknown: self.stored_unknown.saturating_sub(part.stored_unknown),
            pointer_bytes: self.pointer_bytes.saturating_sub(part.pointer_bytes),
            chunks: self.chunks.saturating_sub(part.chunks),
            custom_out_of_line: self.custom_out_of_line.saturating_sub(part.custom_out_of_line),
            uncounted: self.uncounted.saturating_sub(part.uncounted),
        }
    }
}

/// Custom pointers that are counted together: the toaster's OID, its kind, and the pointer's kind.
pub type CustomKey = (Oid, Handler, PointerKind);

/// No method, pglz, and lz4.
const METHODS: usize = 3;
const SLOTS: usize = Form::ALL.len() * METHODS;

/// The number of content sizes with a 1-byte header: 0 to 126.
const SHORT_SIZES: usize = 127;

/// Statistics of one column.
///
/// Most values of most tables are of fixed length, short or NULL. For these, only the minimum is counted from which
/// [`ColumnStats::forms`] and the distributions can be derived.
#[derive(Debug, Clone)]
pub struct ColumnStats {
    nulls: u64,
    /// The length of the column's fixed-length values, and their number.
    fixed: (u64, u64),
    /// The number of short values by size of their content.
    short: Box<[u64; SHORT_SIZES]>,
    /// The sums over all other values, by form and method.
    sums: Box<[FormSums; SLOTS]>,
    /// The sums over values of [`Form::Custom`] again, by toaster and kind of pointer.
    custom: BTreeMap<CustomKey, FormSums>,
    raw: SizeHistogram,
    stored: SizeHistogram,
}

impl Default for ColumnStats {
    fn default() -> ColumnStats {
        ColumnStats {
            nulls: 0,
            fixed: (0, 0),
            short: Box::new([0; SHORT_SIZES]),
            sums: Box::new([FormSums::default(); SLOTS]),
            custom: BTreeMap::new(),
            raw: SizeHistogram::default(),
            stored: SizeHistogram::default(),
        }
    }
}

fn slot(form: Form, method: Option<Method>) -> usize {
    let method = match method {
        None => 0,
        Some(Method::Pglz) => 1,
        Some(Method::Lz4) => 2,
    };
    form as usize * METHODS + method
}

impl ColumnStats {
    /// Counts a value as found in a tuple; `stored` computes its form and sizes if they are needed.
    #[inline]
    pub(crate) fn add_datum(&mut self, datum: &Datum<'_>, stored: impl FnOnce() -> StoredValue) {
        match datum {
            Datum::Null => self.nulls += 1,
            Datum::Fixed(bytes) => self.fixed = (bytes.len() as u64, self.fixed.1 + 1),
            Datum::Varlena(Varlena::Short { content }) => {
                if let Some(count) = self.short.get_mut(content.len()) {
                    *count += 1;
                }
            }
            _ => self.add(&stored(), 1),
        }
    }

    /// Counts a value of which only this is known.
    #[inline]
    pub(crate) fn add_simple(&mut self, simple: Simple) {
        match simple {
            Simple::Null => self.nulls += 1,
            Simple::Fixed(length) => self.fixed = (u64::from(length), self.fixed.1 + 1),
            Simple::Short(content) => {
                if let Some(count) = self.short.get_mut(usize::from(content)) {
                    *count += 1;
                }
            }
        }
    }

    /// Counts a value that occurs `n` times.
    pub fn add(&mut self, value: &StoredValue, n: u64) {
        let Some(sums) = self.sums.get_mut(slot(value.form, value.method)) else { return };
        if let Some(custom) = &value.custom {
            let key = (custom.toaster, custom.handler, custom.kind);
            self.custom.entry(key).or_default().add(value, n);
        }
        let value = &value.counted();
        sums.add(value, n);
        if value.form == Form::Null {
            return;
        }
        if let Some(size) = value.raw_size {
            self.raw.add(size, n);
        }
        if let Some(size) = value.stored_size {
            self.stored.add(size, n);
        }
    }

    /// Adds all values counted in `other`.
    pub fn merge(&mut self, other: &ColumnStats) {
        self.nulls = self.nulls.saturating_add(other.nulls);
        let length = self.fixed.0.max(other.fixed.0);
        self.fixed = (length, self.fixed.1.saturating_add(other.fixed.1));
        for (ours, theirs) in self.short.iter_mut().zip(other.short.iter()) {
            *ours = ours.saturating_add(*theirs);
        }
        for (ours, theirs) in self.sums.iter_mut().zip(other.sums.iter()) {
            *ours += *theirs;
        }
        for (key, sums) in &other.custom {
            *self.custom.entry(*key).or_default() += *sums;
        }
        self.raw.merge(&other.raw);
        self.stored.merge(&other.stored);
    }

    /// The content sizes of short values, each with its number of values.
    fn short_sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.short.iter().enumerate().map(|(size, &n)| (size as u64, n)).filter(|&(_, n)| n > 0)
    }

    /// The sums for each form and method that occurs.
    pub fn forms(&self) -> BTreeMap<(Form, Option<Method>), FormSums> {
        let mut all = self.sums.clone();
        let mut add = |form, values, raw_bytes, stored_bytes| {
            if let Some(sums) = all.get_mut(slot(form, None)) {
                *sums += FormSums { values, raw_bytes, stored_bytes, ..FormSums::default() };
            }
        };
        add(Form::Null, self.nulls, 0, 0);
        let (length, values) = self.fixed;
        add(Form::Plain, values, length * values, length * values);
        for (size, values) in self.short_sizes() {
            add(Form::Short, values, size * values, (size + 1) * values);
        }
        let mut forms = BTreeMap::new();
        for &form in Form::ALL {
            for method in [None, Some(Method::Pglz), Some(Method::Lz4)] {
                let sums = all.get(slot(form, method)).filter(|sums| sums.values > 0);
                if let Some(sums) = sums {
                    forms.insert((form, method), *sums);
                }
            }
        }
        forms
    }

    /// The sums for each toaster and kind of custom pointer that occurs.
    pub fn custom(&self) -> &BTreeMap<CustomKey, FormSums> {
        &self.custom
    }

    /// The raw sizes of the values that are not NULL.
    pub fn raw(&self) -> SizeHistogram {
        self.sizes(&self.raw, 0)
    }

    /// The stored sizes of the values that are not NULL.
    pub fn stored(&self) -> SizeHistogram {
        self.sizes(&self.stored, 1)
    }

    fn sizes(&self, others: &SizeHistogram, short_header: u64) -> SizeHistogram {
        let mut sizes = others.clone();
        sizes.add(self.fixed.0, self.fixed.1);
        for (size, n) in self.short_sizes() {
            sizes.add(size + short_header, n);
        }
        sizes
    }
}

/// The number of chunks of a value, according to its pointer.
fn chunks_of(value: &StoredValue) -> u64 {
    match &value.custom {
        Some(custom) => custom.chunks.unwrap_or(0),
        None => value.location.map_or(0, |l| u64::from(l.chunks)),
    }
}

/// Counts of a relation's blocks and tuples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct TupleCounts {
    /// The number of blocks.
    pub blocks: u64,
    /// Blocks that were never written.
    pub new_blocks: u64,
    /// Free bytes between line pointers and tuples; in a new block, everything except the header.
    pub free_bytes: u64,
    /// Tuples that a `SELECT` returns.
    pub live: u64,
    /// Tuples that a current `SELECT` does not return.
    pub dead: u64,
    /// Tuples for which this is not known.
    pub unknown: u64,
    /// Tuples whose next version is on the same page without index entries (`HEAP_HOT_UPDATED`).
    pub hot_updated: u64,
    /// Tuples without index entries of their own (`HEAP_ONLY_TUPLE`).
    pub heap_only: u64,
    /// Line pointers with `LP_UNUSED` (`itemid.h`).
    pub line_pointers_unused: u64,
    /// Line pointers with `LP_REDIRECT` (`itemid.h`).
    pub line_pointers_redirect: u64,
    /// Line pointers with `LP_DEAD` (`itemid.h`).
    pub line_pointers_dead: u64,
}

/// Statistics of all blocks of a relation, or of some of them.
#[derive(Debug, Clone, Default)]
pub struct RelationStats {
    /// The counts of blocks, line pointers and tuples.
    pub tuples: TupleCounts,
    /// One for each attribute, including dropped ones, whose values are counted too.
    pub columns: Vec<ColumnStats>,
}

impl RelationStats {
    /// The statistics for a relation with this number of attributes.
    pub fn new(attributes: usize) -> RelationStats {
        RelationStats {
            tuples: TupleCounts::default(),
            columns: vec![ColumnStats::default(); attributes],
        }
    }

    /// Adds the statistics of another part of the same relation.
    pub fn merge(&mut self, other: &RelationStats) {
        self.tuples += other.tuples;
        for (ours, theirs) in self.columns.iter_mut().zip(&other.columns) {
            ours.merge(theirs);
        }
    }
}

/// Sizes below this are counted individually, larger ones in a histogram.
const EXACT: u64 = 2048;

/// The distribution of sizes in bytes. Minimum and maximum are exact; percentiles are exact below 2048 bytes and have
/// three significant digits above.
#[derive(Debug, Clone, Default)]
pub struct SizeHistogram {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    /// Created when a second size occurs: most columns of fixed length have only one.
    spread: Option<Box<SizeSpread>>,
}

#[derive(Debug, Clone)]
struct SizeSpread {
    /// How often each size below [`EXACT`] occurs.
    small: Vec<u64>,
    /// The larger sizes; created when the first one occurs.
    large: Option<Histogram<u64>>,
}

impl SizeSpread {
    fn new() -> Box<SizeSpread> {
        Box::new(SizeSpread { small: vec![0; EXACT as usize], large: None })
    }

    fn add(&mut self, size: u64, n: u64) {
        if let Some(count) = usize::try_from(size).ok().and_then(|size| self.small.get_mut(size)) {
            *count = count.saturating_add(n);
            return;
        }
        if self.large.is_none() {
            self.large = Histogram::new(3).ok();
        }
        if let Some(large) = &mut self.large {
            // An auto-resizing histogram accepts all values below 2^63.
            let _ = large.record_n(size, n);
        }
    }

    fn merge(&mut self, other: &SizeSpread) {
        for (ours, theirs) in self.small.iter_mut().zip(&other.small) {
            *ours = ours.saturating_add(*theirs);
        }
        match (&mut self.large, &other.large) {
            (_, None) => {}
            (Some(ours), Some(theirs)) => {
                let _ = ours.add(theirs);
            }
            (ours @ None, Some(theirs)) => *ours = Some(theirs.clone()),
        }
    }

    /// The size of the value with this rank, counted from 1 in ascending order.
    fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut before = 0u64;
        for (size, &count) in self.small.iter().enumerate() {
            before = before.saturating_add(count);
            if count > 0 && before >= rank {
                return Some(size as u64);
            }
        }
        let large = self.large.as_ref()?;
        let rank = rank.saturating_sub(before);
        Some(large.value_at_quantile(rank as f64 / large.len().max(1) as f64))
    }
}

impl SizeHistogram {
    /// Adds a size that occurs `n` times.
    #[inline]
    pub fn add(&mut self, size: u64, n: u64) {
        if n == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (size, size);
        } else if self.spread.is_none() && size != self.min {
            self.spread = Some(self.of_one_size());
        }
        if let Some(spread) = &mut self.spread {
            spread.add(size, n);
        }
        self.min = self.min.min(size);
        self.max = self.max.max(size);
        self.count = self.count.saturating_add(n);
        add_times(&mut self.sum, size, n);
    }

    /// The distribution of the sizes counted while all were equal.
    fn of_one_size(&self) -> Box<SizeSpread> {
        let mut spread = SizeSpread::new();
        if self.count > 0 {
            spread.add(self.min, self.count);
        }
        spread
    }

    /// Adds all sizes counted in `other`.
    pub fn merge(&mut self, other: &SizeHistogram) {
        let Some(theirs) = &other.spread else { return self.add(other.min, other.count) };
        let mut ours = self.spread.take().unwrap_or_else(|| self.of_one_size());
        ours.merge(theirs);
        self.spread = Some(ours);
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The number of sizes added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all sizes, in bytes.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The minimum; `None` if there are no sizes.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The maximum; `None` if there are no sizes.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// How many sizes are in each range from one power of two to below the next, without empty ranges: the first and the
    /// last size of the range, and the number.
    pub fn ranges(&self) -> Vec<(u64, u64, u64)> {
        let mut counts = [0u64; 65];
        let mut add = |size: u64, n: u64| {
            if let Some(count) = counts.get_mut((u64::BITS - size.leading_zeros()) as usize) {
                *count = count.saturating_add(n);
            }
        };
        match &self.spread {
            None => add(self.min, self.count),
            Some(spread) => {
                spread.small.iter().enumerate().for_each(|(size, &n)| add(size as u64, n));
                for step in spread.large.iter().flat_map(Histogram::iter_recorded) {
                    add(step.value_iterated_to(), step.count_since_last_iteration());
                }
            }
        }
        let mut ranges = Vec::new();
        for (bits, count) in (0u32..).zip(counts) {
            if count > 0 {
                let (least, most) = match bits.checked_sub(1) {
                    None => (0, 0),
                    Some(first) => (1 << first, u64::MAX >> (u64::BITS - bits)),
                };
                ranges.push((least, most, count));
            }
        }
        ranges
    }

    /// The smallest size such that at least the fraction `quantile` of all sizes are not larger (`percentile_disc`).
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count);
        let size = self.spread.as_ref().and_then(|spread| spread.at_rank(rank));
        Some(size.unwrap_or(self.min).clamp(self.min, self.max))
    }
}

/// Counts also come from servers, and a hostile server must not cause an overflow.
pub(super) fn add_times(sum: &mut u64, size: u64, n: u64) {
    *sum = sum.saturating_add(size.saturating_mul(n));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ValueIdType;
    use proptest::prelude::*;

    fn value(form: Form, raw: u64, stored: u64) -> StoredValue {
        StoredValue { form, raw_size: Some(raw), stored_size: Some(stored), ..StoredValue::NULL }
    }

    #[test]
    fn values_in_tuples_count_like_values_described() {
        use crate::disk::{PageSize, TupleDesc};
        let column = &TupleDesc::toast_relation(ValueIdType::Oid).attributes[2];
        let content = [b'x'; 500];
        let data = [
            Datum::Null,
            Datum::Fixed(&content[..4]),
            Datum::Fixed(&content[..4]),
            Datum::Varlena(Varlena::Short { content: &content[..0] }),
            Datum::Varlena(Varlena::Short { content: &content[..126] }),
            Datum::Varlena(Varlena::Plain { content: &content[..3] }),
            Datum::Varlena(Varlena::Plain { content: &content }),
            Datum::Varlena(Varlena::Compressed { tc_info: 1 << 30 | 9000, stream: &content }),
        ];
        let mut quick = ColumnStats::default();
        let mut plain = ColumnStats::default();
        for datum in &data {
            let stored = StoredValue::new(datum, column, PageSize::DEFAULT);
            quick.add_datum(datum, || stored);
            plain.add(&stored, 1);
        }
        let mut merged = ColumnStats::default();
        merged.merge(&quick);
        for stats in [&quick, &merged] {
            assert_eq!(stats.forms(), plain.forms());
            for (got, expected) in [(stats.raw(), plain.raw()), (stats.stored(), plain.stored())] {
                assert_eq!((got.count(), got.sum()), (expected.count(), expected.sum()));
                assert_eq!((got.min(), got.max()), (expected.min(), expected.max()));
                assert_eq!(got.quantile(0.5), expected.quantile(0.5));
            }
        }
    }

    proptest! {
            #[test]
            fn merged_parts_equal_the_whole(
                values in proptest::collection::vec((0u64..5000, 0u8..4, any::<bool>()), 0..60),
                cut in 0usize..60,
            ) {
                let forms = [Form::Null, Form::Short, Form::Plain, Form::External];
                let add = |stats: &mut ColumnStats, part: &[(u64, u8, bool)]| {
                    for &(size, form, known) in part {
                        let mut v = value(forms[usize::from(form)], size, size / 2);
                        if !known { v.raw_size = None; }
                        stats.add(&v, 1);
                    }
                };
                let cut = cut.min(values.len());
                let mut whole = ColumnStats::default();
    let mut left = ColumnStats::default();
    let mut right = ColumnStats::default();
                add(&mut whole, &values);
                add(&mut left, &values[..cut]);
                add(&mut right, &values[cut..]);
                left.merge(&right);
                prop_assert_eq!(left.forms(), whole.forms());
                for (l, w) in [(left.raw(), whole.raw()), (left.stored(), whole.stored())] {
                    prop_assert_eq!((l.count(), l.sum(), l.min(), l.max()), (w.count(), w.sum(), w.min(), w.max()));
                    for q in [0.5, 0.95, 0.99] {
                        prop_assert_eq!(l.quantile(q), w.quantile(q));
                    }
                }
            }
        }

    #[test]
    fn quantiles_are_exact_below_2048_bytes() {
        let mut sizes = SizeHistogram::default();
        for size in 1..=1000 {
            sizes.add(size, 1);
        }
        assert_eq!(sizes.quantile(0.5), Some(500));
        assert_eq!(sizes.quantile(0.95), Some(950));
        assert_eq!(sizes.quantile(0.99), Some(990));
        assert_eq!((sizes.min(), sizes.max(), sizes.sum()), (Some(1), Some(1000), 500_500));
        assert_eq!(SizeHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn ranges_end_below_powers_of_two() {
        assert_eq!(SizeHistogram::default().ranges(), []);
        let mut sizes = SizeHistogram::default();
        sizes.add(1, 4);
        assert_eq!(sizes.ranges(), [(1, 1, 4)]);
        for size in [0, 2, 3, 2047, 2048, 4095, 4096, 1 << 20, (1 << 21) - 1, 1 << 62] {
            sizes.add(size, 1);
        }
        let expected = [
            (0, 0, 1),
            (1, 1, 4),
            (2, 3, 2),
            (1024, 2047, 1),
            (2048, 4095, 2),
            (4096, 8191, 1),
            (1 << 20, (1 << 21) - 1, 2),
            (1 << 62, (1 << 63) - 1, 1),
        ];
        assert_eq!(sizes.ranges(), expected);
    }

    #[test]
    fn quantiles_of_large_values_never_leave_the_range() {
        let mut sizes = SizeHistogram::default();
        sizes.add(0, 1);
        sizes.add(104_857_601, 1);
        assert_eq!(sizes.quantile(0.5), Some(0));
        assert_eq!(sizes.quantile(0.99), Some(104_857_601));
    }
}
