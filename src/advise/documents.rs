//! The documents of a sample whose keys are looked at or extracted.

use std::collections::HashMap;

use super::advisor::AdviseError;
use super::content::SampledRow;
use super::reading::Reading;
use crate::disk::ItemPointer;
use crate::disk::jsonb_of_text::jsonb;
use crate::heap::problem::Problem;
use crate::model::toast::Incoming;
use crate::server::chunks;

/// Bytes of documents, raw, that are asked for as text at a time; a single one may be longer.
const TEXT_BYTES: u64 = 2 << 20;

impl Reading<'_> {
    /// Whether the content of this column's values is looked at.
    pub(super) fn wants_documents(&self, column: usize) -> bool {
        self.extractions.iter().any(|extraction| extraction.is_for(column))
            || self.scout.as_ref().is_some_and(|(scouted, _)| *scouted == column)
    }

    /// Takes documents apart of which nothing but the text is to be had.
    pub(super) async fn documents_by_text(
        &mut self,
        pages: &[Vec<SampledRow<'_>>],
        column: usize,
    ) -> Result<(), AdviseError> {
        let raw = |row: &SampledRow<'_>| match row.facts.values.get(column) {
            None | Some(Incoming::Null) => None,
            Some(value) => Some(super::reading::sizes(*value).1 as u64),
        };
        let rows: Vec<(&SampledRow<'_>, u64)> =
            pages.iter().flatten().filter_map(|row| Some((row, raw(row)?))).collect();
        let mut rows = rows.as_slice();
        while !rows.is_empty() {
            let (now, later) = chunks::together(rows, TEXT_BYTES, |&(_, raw)| raw);
            rows = later;
            let of: HashMap<ItemPointer, &SampledRow<'_>> =
                now.iter().map(|&(row, _)| (row.ctid, row)).collect();
            let items: Vec<ItemPointer> = now.iter().map(|(row, _)| row.ctid).collect();
            let Some(reader) = self.by_functions() else { return Ok(()) };
            let texts = reader.texts(column, &items).await;
            let texts = texts.map_err(|error| self.live(error))?;
            for (ctid, text) in texts {
                let Some(row) = of.get(&ctid) else { continue };
                let taken = jsonb(&text).map_err(|error| error.to_string());
                let taken = taken.and_then(|content| self.document(row, column, &content));
                self.note(row, column, taken);
            }
        }
        Ok(())
    }

    fn document(
        &mut self,
        row: &SampledRow<'_>,
        column: usize,
        content: &[u8],
    ) -> Result<(), String> {
        for extraction in self.extractions.iter_mut().filter(|e| e.is_for(column)) {
            extraction.document(row.ctid, &row.facts.values, content)?;
        }
        match &mut self.scout {
            Some((scouted, scout)) if *scouted == column => scout.document(content),
            _ => Ok(()),
        }
    }

    /// Lets the server compress what is left of the documents at hand.
    pub(super) async fn compress_rests(&mut self) -> Result<(), AdviseError> {
        let (Some(trial), [extraction]) = (self.rests.clone(), &self.extractions[..]) else {
            return Ok(());
        };
        let items = extraction.tried();
        let sizes = self.compressed(&trial, &items).await?;
        if let [extraction] = &mut self.extractions[..] {
            for (ctid, sizes) in sizes {
                extraction.learn(ctid, sizes);
            }
        }
        Ok(())
    }

    /// Takes the documents apart that stand in their rows; the others were when they were fetched.
    pub(super) fn take_apart(&mut self, pages: &[Vec<SampledRow<'_>>]) {
        let mut extractions = std::mem::take(&mut self.extractions);
        for extraction in &mut extractions {
            let column = extraction.column();
            for row in pages.iter().flatten() {
                let apart = row.show_inline(column, |content| {
                    extraction.document(row.ctid, &row.facts.values, content)
                });
                self.note(row, column, apart);
            }
            extraction.begin_rows();
        }
        self.extractions = extractions;
        if let Some((column, mut scout)) = self.scout.take() {
            for row in pages.iter().flatten() {
                let looked = row.show_inline(column, |content| scout.document(content));
                self.note(row, column, looked);
            }
            self.scout = Some((column, scout));
        }
    }

    fn note(&mut self, row: &SampledRow<'_>, column: usize, done: Result<(), String>) {
        if let Err(message) = done {
            let attribute = self.relation.desc.attributes.get(column);
            let place = self.place(row.ctid, attribute.map_or("", |a| a.name.as_str()));
            self.problems.add(Problem { place, message });
        }
    }
}
