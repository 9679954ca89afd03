//! The algorithm: a row that is being toasted.

use super::types::{
    Column, Compressor, Incoming, Operation, Placed, RowError, SHORT_CONTENT_MAX, Table, Toasted,
};
use crate::codec::Method;
use crate::disk::layout::TUPLE_HEADER_SIZE;
use crate::disk::pointer::TOAST_POINTER_SIZE;
use crate::disk::{PageSize, Storage, max_align};
use crate::model::Policy;
use crate::model::policy::{Circumstances, CompressedSizes, MethodRule, VARLENA_HEADER_SIZE};

impl Table {
    /// The length of a tuple's header, including the null bitmap.
    fn header_size(&self, has_nulls: bool) -> usize {
        let bitmap = if has_nulls { self.columns.len().div_ceil(8) } else { 0 };
        max_align(TUPLE_HEADER_SIZE + bitmap)
    }

    /// The length of a tuple of these incoming values, one for each column, which determines whether the toaster is
    /// called.
    pub fn width(&self, values: &[Incoming]) -> u32 {
        let packed: Vec<Incoming> = self
            .columns
            .iter()
            .zip(values)
            .map(|(column, &value)| column.pack(value, Operation::Insert))
            .collect();
        self.length_of(&packed)
    }

    /// The length of a tuple of these values, one for each column, in their present form.
    pub fn length_of(&self, values: &[Incoming]) -> u32 {
        let data = self
            .columns
            .iter()
            .zip(values)
            .fold(0, |offset, (column, &value)| ValueSlot::new(value).end(column, offset));
        let header = self.header_size(values.contains(&Incoming::Null));
        u32::try_from(header + data).unwrap_or(u32::MAX)
    }

    /// Toasts a row of these values, one for each column.
    pub fn toast(
        &self,
        values: &[Incoming],
        operation: Operation,
        compressor: &mut impl Compressor,
    ) -> Result<Toasted, RowError> {
        if values.len() != self.columns.len() {
            return Err(RowError::ValueCount { values: values.len(), columns: self.columns.len() });
        }
        let has_nulls = values.contains(&Incoming::Null);
        let mut row = Row {
            table: self,
            header: self.header_size(has_nulls),
            slots: self
                .columns
                .iter()
                .zip(values)
                .map(|(column, &value)| ValueSlot::new(column.pack(value, operation)))
                .collect(),
            compressor,
            moved: Vec::new(),
        };
        let called = operation == Operation::UpdateOfExternal
            || row.has_external()
            || row.header + row.data_size() > self.page.toast_tuple_threshold();
        if called {
            row.toast();
        }
        let length = row.header + row.data_size();
        let size = max_align(length);
        let max = self.page.toast_tuple_target_main();
        if size > max {
            return Err(RowError::RowTooBig { size, max });
        }
        let placed = self.columns.iter().zip(&row.slots).map(|(c, s)| s.placed(c, self.page));
        Ok(Toasted {
            values: placed.collect(),
            moved: row.moved,
            tuple_length: u32::try_from(length).unwrap_or(u32::MAX),
            toaster_called: called,
        })
    }
}

/// A value that is being processed.
#[derive(Debug, Clone, Copy)]
struct ValueSlot {
    state: SlotState,
    /// `TOASTCOL_IGNORE` of `toast_helper.h`.
    ignore: bool,
    /// `TOASTCOL_INCOMPRESSIBLE` of `toast_helper.h`.
    incompressible: bool,
}

#[derive(Debug, Clone, Copy)]
enum SlotState {
    Arrived(Incoming),
    /// Moved out by this call.
    Moved {
        stored: u32,
        raw: u32,
        method: Option<Method>,
        compressed: bool,
    },
}

impl ValueSlot {
    fn new(value: Incoming) -> ValueSlot {
        ValueSlot { state: SlotState::Arrived(value), ignore: false, incompressible: false }
    }

    /// `VARSIZE_ANY`: the size of the datum in memory.
    fn size(&self) -> u32 {
        match self.state {
            SlotState::Arrived(value) => match value {
                Incoming::Null => 0,
                Incoming::Fixed { size } | Incoming::Opaque { size, .. } => size,
                Incoming::Short { raw } => raw.saturating_add(1),
                Incoming::Plain { raw } => raw.saturating_add(VARLENA_HEADER_SIZE),
                Incoming::Compressed { size, .. } => size,
                Incoming::Foreign { .. } | Incoming::Kept { .. } => TOAST_POINTER_SIZE as u32,
            },
            SlotState::Moved { .. } => TOAST_POINTER_SIZE as u32,
        }
    }

    fn is_compressed(&self) -> bool {
        matches!(self.state, SlotState::Arrived(Incoming::Compressed { .. }))
    }

    /// The size of a tuple's data after this value is added at `offset` (`heap_compute_data_size`).
    fn end(&self, column: &Column, offset: usize) -> usize {
        let size = self.size() as usize;
        match self.state {
            SlotState::Arrived(Incoming::Null) => offset,
            SlotState::Arrived(Incoming::Plain { raw })
                if column.storage != Storage::Plain && raw <= SHORT_CONTENT_MAX =>
            {
                offset + raw as usize + 1
            }
            SlotState::Moved { .. }
            | SlotState::Arrived(
                Incoming::Short { .. } | Incoming::Foreign { .. } | Incoming::Kept { .. },
            ) => offset + size,
            SlotState::Arrived(_) => column.align.align(offset) + size,
        }
    }

    fn placed(&self, column: &Column, page: PageSize) -> Placed {
        match self.state {
            SlotState::Moved { stored, raw, method, compressed } => Placed {
                kept: false,
                ..Incoming::Foreign { stored, raw, method, compressed }.as_stored(page)
            },
            SlotState::Arrived(value) => {
                let value = match value {
                    Incoming::Plain { raw }
                        if column.storage != Storage::Plain && raw <= SHORT_CONTENT_MAX =>
                    {
                        // The toaster fetches the value from its other location.
                        Incoming::Short { raw }
                    }
                    value => value,
                };
                Placed { kept: matches!(value, Incoming::Kept { .. }), ..value.as_stored(page) }
            }
        }
    }
}

/// A row that is being toasted.
struct Row<'a, C> {
    table: &'a Table,
    header: usize,
    slots: Vec<ValueSlot>,
    compressor: &'a mut C,
    /// The moved values, in the order in which they were moved out.
    moved: Vec<usize>,
}

impl<C: Compressor> Row<'_, C> {
    /// `HeapTupleHasExternal` of `htup_details.h`.
    fn has_external(&self) -> bool {
        self.slots.iter().any(|slot| {
            matches!(
                slot.state,
                SlotState::Arrived(
                    Incoming::Foreign { .. } | Incoming::Kept { .. } | Incoming::Opaque { .. }
                )
            )
        })
    }

    fn data_size(&self) -> usize {
        self.table.columns.iter().zip(&self.slots).fold(0, |offset, (c, slot)| slot.end(c, offset))
    }

    /// Chooses the values that may be changed (`toast_tuple_init`, `toast_helper.c`).
    fn prepare(&mut self) {
        for (column, slot) in self.table.columns.iter().zip(&mut self.slots) {
            let SlotState::Arrived(value) = slot.state else { continue };
            match value {
                Incoming::Null
                | Incoming::Fixed { .. }
                | Incoming::Kept { .. }
                | Incoming::Opaque { .. } => slot.ignore = true,
                Incoming::Foreign { stored, raw, method, compressed } => {
                    let plain = column.storage == Storage::Plain;
                    slot.state = SlotState::Arrived(if compressed && !plain {
                        let size = stored.saturating_add(VARLENA_HEADER_SIZE);
                        Incoming::Compressed { size, raw, method }
                    } else {
                        Incoming::Plain { raw }
                    });
                    slot.ignore = plain;
                }
                Incoming::Short { .. } | Incoming::Plain { .. } | Incoming::Compressed { .. } => {
                    slot.ignore = column.storage == Storage::Plain;
                }
            }
        }
    }

    fn toast(&mut self) {
        self.prepare();
        let table = self.table;
        let limit = table.target.bytes().saturating_sub(self.header);
        let can_move = table.has_toast_relation;

        let mut size = self.data_size();
        // Step 1: compress EXTENDED values, and move out at once those that are too long by themselves.
        while size > limit {
            let Some(index) = self.biggest(true, false) else { break };
            let storage = table.columns.get(index).map(|c| c.storage);
            if storage == Some(Storage::Extended) {
                self.compress(index, limit);
            } else if let Some(slot) = self.slots.get_mut(index) {
                slot.incompressible = true;
            }
            let too_big = self.slots.get(index).is_some_and(|s| s.size() as usize > limit);
            if too_big && can_move {
                self.move_out(index);
            }
            size = self.data_size();
        }
        // Step 2: move EXTENDED and EXTERNAL values out.
        while can_move && size > limit {
            let Some(index) = self.biggest(false, false) else { break };
            self.move_out(index);
            size = self.data_size();
        }
        // Step 3: compress MAIN values.
        while size > limit {
            let Some(index) = self.biggest(true, true) else { break };
            self.compress(index, limit);
            size = self.data_size();
        }
        // Step 4: move MAIN values out if the row would not fit on a page.
        let limit = table.page.toast_tuple_target_main().saturating_sub(self.header);
        while can_move && size > limit {
            let Some(index) = self.biggest(false, true) else { break };
            self.move_out(index);
            size = self.data_size();
        }
    }

    /// `toast_tuple_find_biggest_attribute`: the first of equal ones.
    fn biggest(&self, for_compression: bool, main: bool) -> Option<usize> {
        let mut biggest = None;
        // Moving a shorter value out would save nothing.
        let mut size = max_align(TOAST_POINTER_SIZE) as u32;
        for (index, (column, slot)) in self.table.columns.iter().zip(&self.slots).enumerate() {
            let taken = slot.ignore
                || matches!(slot.state, SlotState::Moved { .. })
                || (for_compression && (slot.incompressible || slot.is_compressed()));
            let wanted = match column.storage {
                Storage::Plain => false,
                Storage::Main => main,
                Storage::External | Storage::Extended => !main,
            };
            if !taken && wanted && slot.size() > size {
                size = slot.size();
                biggest = Some(index);
            }
        }
        biggest
    }

    /// `toast_tuple_try_compression`, with the column's policy applied to the result.
    fn compress(&mut self, index: usize, limit: usize) {
        let (Some(column), Some(slot)) = (self.table.columns.get(index), self.slots.get_mut(index))
        else {
            return;
        };
        let raw = match slot.state {
            SlotState::Arrived(Incoming::Short { raw } | Incoming::Plain { raw }) => raw,
            _ => {
                slot.incompressible = true;
                return;
            }
        };
        let mut sizes = CompressedSizes::default();
        if column.policy != Policy::Never {
            for &method in column.method.methods() {
                sizes.set(method, self.compressor.compressed_size(index, method));
            }
        }
        let circumstances = Circumstances {
            page: self.table.page,
            inline_limit: u32::try_from(limit).unwrap_or(u32::MAX),
            prices: &self.table.prices,
        };
        match column.policy.decide(column.method, raw, sizes, &circumstances) {
            MethodRule::Compressed { method, size } => {
                slot.state =
                    SlotState::Arrived(Incoming::Compressed { size, raw, method: Some(method) });
            }
            MethodRule::Uncompressed => slot.incompressible = true,
        }
    }

    /// `toast_tuple_externalize` of `toast_helper.c` with `toast_save_datum`.
    fn move_out(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.ignore = true;
        self.moved.push(index);
        slot.state = match slot.state {
            SlotState::Arrived(Incoming::Short { raw } | Incoming::Plain { raw }) => {
                SlotState::Moved { stored: raw, raw, method: None, compressed: false }
            }
            SlotState::Arrived(Incoming::Compressed { size, raw, method }) => {
                let stored = size.saturating_sub(VARLENA_HEADER_SIZE);
                SlotState::Moved { stored, raw, method, compressed: true }
            }
            other => other,
        };
    }
}
