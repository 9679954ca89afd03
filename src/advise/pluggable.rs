//! What the toasters of servers with pluggable TOAST would make of a column's values (pure).

use super::result::{PluggableReport, Toaster};
use toast_format::codec::datum;
use toast_format::disk::PageSize;
use toast_format::disk::pointer::TOAST_POINTER_SIZE;
use toast_format::model::TupleTarget;
use toast_format::model::btree::ToastIndex;
use toast_format::model::pluggable::jsonb::jsonb_toaster;
use toast_format::model::pluggable::{Taken, bytea_toaster, ordinary};

/// A column whose type has a toaster of its own, and the sums over its values out of line.
#[derive(Debug)]
pub struct Pluggable {
    column: usize,
    toaster: Toaster,
    page: PageSize,
    target: TupleTarget,
    compressor: datum::Compressor,
    today: Taken,
    then: Taken,
}

impl Pluggable {
    /// For a column of this type; `None` if there is no toaster for it.
    pub fn new(
        column: usize,
        type_name: &str,
        page: PageSize,
        target: TupleTarget,
    ) -> Option<Pluggable> {
        let toaster = match type_name {
            "bytea" => Toaster::Bytea,
            "jsonb" => Toaster::Jsonb,
            _ => return None,
        };
        Some(Pluggable {
            column,
            toaster,
            page,
            target,
            compressor: datum::Compressor::new(),
            today: Taken::default(),
            then: Taken::default(),
        })
    }

    /// Whether it is this column's.
    pub fn is_for(&self, column: usize) -> bool {
        self.column == column
    }

    /// Adds a value that is out of line today, in a row of `tuple` bytes, of which the TOAST relation
    /// holds `stored` bytes.
    pub fn external(&mut self, raw: &[u8], stored: u32, tuple: u32) {
        // what the row may take in the place of the pointer
        let others = tuple.saturating_sub(TOAST_POINTER_SIZE as u32);
        let room = (self.target.bytes() as u32).saturating_sub(others);
        let size = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        let then = match self.toaster {
            Toaster::Bytea => Some(bytea_toaster(self.page, room, size)),
            Toaster::Jsonb => jsonb_toaster(self.page, room, raw, &mut self.compressor),
        };
        let today = ordinary(self.page, stored);
        self.today += today;
        self.then += then.unwrap_or(today);
    }

    /// Adds what another relation's column has.
    pub(super) fn add(&mut self, other: &Pluggable) {
        self.today += other.today;
        self.then += other.then;
    }

    /// The averages, where the table has `scale` times what was looked at; `None` if no value out of
    /// line was seen.
    pub fn figures(&self, scale: f64) -> Option<PluggableReport> {
        let values = self.then.values;
        if values < 1.0 {
            return None;
        }
        let then = &self.then;
        let today = &self.today;
        let bytes = |sum: f64| (sum / values).round() as u64;
        let rounded = |sum: f64| (sum / values * 100.0).round() / 100.0;
        let levels = |of: &Taken| ToastIndex::new(self.page, (of.chunks * scale) as u64).levels;
        let then_levels = levels(then);
        let today_levels = levels(today);
        Some(PluggableReport {
            toaster: self.toaster,
            estimated: true,
            values: values as u64,
            divided_values: then.divided as u64,
            inline_bytes_per_value: bytes(then.inline_bytes),
            inline_bytes_per_value_today: bytes(today.inline_bytes),
            toast_bytes_per_value: bytes(then.toast_bytes),
            toast_bytes_per_value_today: bytes(today.toast_bytes),
            read_buffers: rounded(then.read.buffers(then_levels)),
            read_buffers_today: rounded(today.read.buffers(today_levels)),
            whole_read_buffers: rounded(then.read_whole.buffers(then_levels)),
            whole_read_buffers_today: rounded(today.read_whole.buffers(today_levels)),
            small_update_bytes: bytes(then.small_update_bytes),
            small_update_bytes_today: bytes(today.small_update_bytes),
        })
    }
}
