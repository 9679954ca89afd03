//! What the toasters of servers with pluggable TOAST would make of a column's values (pure).

use super::result::PluggableReport;
use crate::disk::layout::PageSize;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::model::pluggable::{Taken, bytea_toaster, jsonb_toaster, stock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Toaster {
    Bytea,
    Jsonb,
}

/// A column whose type has a toaster of its own, and the sums over its values out of line.
#[derive(Debug, Clone)]
pub struct Pluggable {
    column: usize,
    toaster: Toaster,
    today: Taken,
    then: Taken,
}

impl Pluggable {
    /// For a column of this type; `None` if there is no toaster for it.
    pub fn of(column: usize, type_name: &str) -> Option<Pluggable> {
        let toaster = match type_name {
            "bytea" => Toaster::Bytea,
            "jsonb" => Toaster::Jsonb,
            _ => return None,
        };
        Some(Pluggable { column, toaster, today: Taken::default(), then: Taken::default() })
    }

    /// Whether it is this column's.
    pub fn is_for(&self, column: usize) -> bool {
        self.column == column
    }

    /// Adds a value that is out of line today, of which the TOAST relation holds `stored` bytes.
    pub fn external(&mut self, page: PageSize, raw: &[u8], stored: u32) {
        let room = page.toast_tuple_threshold() as u32 - 24;
        let size = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        let then = match self.toaster {
            Toaster::Bytea => Some(bytea_toaster(page, room, size)),
            Toaster::Jsonb => jsonb_toaster(page, room, raw),
        };
        let today = stock(page, TOAST_POINTER_SIZE as u32, stored);
        self.today.add(&today);
        // What cannot be split is stored as on a stock server.
        self.then.add(&then.unwrap_or(today));
    }

    /// The averages; `None` if no value out of line was seen.
    pub fn report(&self) -> Option<PluggableReport> {
        let values = self.then.values;
        if values < 1.0 {
            return None;
        }
        let (then, today) = (&self.then, &self.today);
        let bytes = |sum: f64| (sum / values).round() as u64;
        let buffers = |sum: f64| (sum / values * 100.0).round() / 100.0;
        Some(PluggableReport {
            toaster: match self.toaster {
                Toaster::Bytea => "bytea_toaster",
                Toaster::Jsonb => "jsonb_toaster",
            },
            estimated: true,
            values: values as u64,
            inline_bytes_per_value: bytes(then.inline_bytes),
            toast_bytes_per_value: bytes(then.toast_bytes),
            read_buffers: buffers(then.read_buffers),
            read_buffers_today: buffers(today.read_buffers),
            small_update_bytes: bytes(then.small_update_bytes),
            small_update_bytes_today: bytes(today.small_update_bytes),
        })
    }
}
