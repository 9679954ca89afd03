//! What the server itself makes of a sample's values: compressed copies in a temporary table.

use std::collections::{BTreeMap, HashMap};

use super::advisor::AdviseError;
use super::asked;
use super::content::SampledRow;
use super::extract::rows::Extraction;
use super::reading::{Reading, sizes};
use super::variant::{TODAY, Variants};
use crate::codec::Method;
use crate::disk::ItemPointer;
use crate::model::policy::CompressedSizes;
use crate::model::sql::{quote_identifier, quote_literal};
use crate::model::toast::Incoming;
use crate::server::trial::Trial;

/// Rows copied at a time.
const ROWS: usize = 2000;

impl Reading<'_> {
    /// Makes the temporary table for a column.
    pub(super) async fn trial(
        &self,
        column: usize,
        methods: &[Method],
    ) -> Result<Trial, AdviseError> {
        let attribute = self.relation.desc.attributes.get(column);
        let (name, type_name) =
            attribute.map_or(("", ""), |a| (a.name.as_str(), a.type_name.as_str()));
        let page = self.advisor.server.page_size;
        let is_array = type_name.ends_with("[]");
        let trial = Trial::new(self.relation.quoted(), (column, name), is_array, methods, page);
        trial.make(self.advisor.client()).await.map_err(|error| self.live(error))?;
        Ok(trial)
    }

    /// Makes the temporary table for what is left of documents without some keys; `None` where nothing of them is
    /// ever compressed.
    pub(super) async fn trial_of_rests(
        &self,
        extraction: &Extraction,
    ) -> Result<Option<Trial>, AdviseError> {
        let Some((method, document, keys)) = extraction.compressed_by() else { return Ok(None) };
        let name = quote_identifier(document);
        let keys: Vec<String> = keys.iter().map(|key| quote_literal(key)).collect();
        let rest = format!(
            "(ARRAY[CASE pg_catalog.jsonb_typeof(t.{name}) WHEN 'object' THEN t.{name} OPERATOR(pg_catalog.-) \
             ARRAY[{}]::pg_catalog.text[] END])[1]",
            keys.join(", ")
        );
        // the number of no column
        let number = self.relation.desc.attributes.len();
        let page = self.advisor.server.page_size;
        let trial = Trial::of(self.relation.quoted(), (number, document), rest, &[method], page);
        trial.make(self.advisor.client()).await.map_err(|error| self.live(error))?;
        Ok(Some(trial))
    }

    /// Lets the server compress the column's values.
    pub(super) async fn compress_on_server(
        &self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
        trial: &Trial,
    ) -> Result<(), AdviseError> {
        if v.methods.is_empty() {
            return Ok(());
        }
        let is_there = |row: &&SampledRow<'_>| {
            row.facts.values.get(v.column).is_some_and(|value| *value != Incoming::Null)
        };
        let items: Vec<ItemPointer> =
            pages.iter().flatten().filter(is_there).map(|row| row.ctid).collect();
        let sizes = self.compressed(trial, &items).await?;
        for row in pages.iter_mut().flatten() {
            let Some(sizes) = sizes.get(&row.ctid) else { continue };
            for &method in &v.methods {
                row.learn(v.column, method, sizes.get(method));
            }
        }
        Ok(())
    }

    /// Lets the server compress what the toaster may try besides the column's values: those of other columns, whose
    /// content is not at hand.
    pub(super) async fn compress_besides(
        &mut self,
        pages: &mut [Vec<SampledRow<'_>>],
        v: &Variants,
    ) -> Result<(), AdviseError> {
        let Some(table) = v.all.get(TODAY).map(|today| &today.table) else { return Ok(()) };
        let mut wanted: BTreeMap<usize, (Method, Vec<ItemPointer>)> = BTreeMap::new();
        for row in pages.iter().flatten() {
            // columns for keys are filled while the document still has them
            let document =
                row.facts.values.get(v.column).filter(|_| self.wants_documents(v.column));
            let more = document.map_or(0, |document| sizes(*document).1 as u32);
            for (column, method) in
                asked::compressed_besides(v.column, &row.facts.values, table, more)
            {
                if !row.knows(column, method) {
                    wanted.entry(column).or_insert((method, Vec::new())).1.push(row.ctid);
                }
            }
        }
        for (column, (method, items)) in wanted {
            if !self.besides.contains_key(&column) {
                let trial = self.trial(column, &[method]).await?;
                self.besides.insert(column, trial);
            }
            let Some(trial) = self.besides.get(&column) else { continue };
            let sizes = self.compressed(trial, &items).await?;
            for row in pages.iter_mut().flatten() {
                if let Some(sizes) = sizes.get(&row.ctid) {
                    row.learn(column, method, sizes.get(method));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn compressed(
        &self,
        trial: &Trial,
        items: &[ItemPointer],
    ) -> Result<HashMap<ItemPointer, CompressedSizes>, AdviseError> {
        let mut all = HashMap::with_capacity(items.len());
        for some in items.chunks(ROWS) {
            let sizes = trial.compress(self.advisor.client(), some).await;
            all.extend(sizes.map_err(|error| self.live(error))?);
        }
        Ok(all)
    }
}
