//! From an extraction's sums to what is reported of it.

use super::super::estimate::{Figure, Figures, Scope, figures};
use super::super::rounded::{Fraction, Whole};
use super::super::tally::VariantTally;
use super::migration::{Migration, Moving};
use super::parent::Migrated;
use super::result::{AccessReport, ExtractionReport, KeyReport};
use super::rows::{Extraction, KEYS, REST, TODAY, WHOLE};
use super::target::ExtractError;
use crate::model::cost::Prices;
use crate::model::stored::Form;

impl Extraction {
    /// Whether the sample has every key.
    ///
    /// # Errors
    /// The first that it does not have; `complete`: the sample is the table.
    pub(crate) fn check(&self, complete: bool) -> Result<(), ExtractError> {
        let values = self.counts.values.iter();
        let Some((key, _)) = self.target.keys.iter().zip(values).find(|(_, count)| **count == 0.0)
        else {
            return Ok(());
        };
        let others: Vec<String> = self.others.iter().map(|key| format!("\"{key}\"")).collect();
        let hint = match others.len() {
            0 => String::new(),
            _ => format!("\nHINT:  There are, among others: {}.", others.join(", ")),
        };
        Err(ExtractError::NoSuchKey {
            column: self.target.column_name.clone(),
            key: key.key.clone(),
            sampled: if complete { "" } else { " in the sample" },
            hint,
        })
    }

    /// The table that is migrated.
    pub(crate) fn table(&self) -> &Migrated {
        &self.target.table
    }

    /// The report; `command` is what re-toasts the column afterwards.
    pub(crate) fn report(
        &self,
        scope: &Scope,
        command: &str,
        has_toasters: bool,
    ) -> Option<ExtractionReport> {
        let all = figures(&self.tally, scope, &Prices::default());
        let (tallies, types) = (self.tally.tallies(), self.types.as_ref()?);
        let blocks: f64 = self.tally.blocks().iter().sum();
        let scale = if blocks > 0.0 { f64::from(scope.total_blocks) / blocks } else { 0.0 };
        let whole = |count: f64| (count * scale).round() as u64;
        let external = |tally: &VariantTally| {
            whole(tally.forms.get(Form::External) + tally.forms.get(Form::ExternalCompressed))
        };
        let forms = &tallies.get(TODAY)?.forms;
        let documents: f64 =
            Form::ALL.iter().filter(|form| **form != Form::Null).map(|form| forms.get(*form)).sum();
        let access = |figures: &Figures| access(figures, documents * scale);
        let keys = || self.target.keys.iter().zip(types);
        let moving: Vec<Moving<'_>> = keys()
            .map(|(key, kind)| Moving { key: &key.key, name: &key.name, kind: *kind })
            .collect();
        let migration = Migration {
            table: &self.target.table,
            column: &self.target.column_name,
            keys: &moving,
            rows_per_page: self.tally.rows() / blocks.max(1.0),
            command,
            has_toasters,
            around: &self.target.around,
        };
        let (today, rest) = (all.get(TODAY)?, all.get(REST)?);
        let made = tallies.get(REST)?;
        Some(ExtractionReport {
            auto: self.auto,
            known_uses: self.known.clone(),
            keys: keys()
                .zip(&self.counts.values)
                .zip(all.get(KEYS..)?)
                .map(|(((key, kind), values), figures)| KeyReport {
                    key: key.key.clone(),
                    column: key.name.clone(),
                    kind: *kind,
                    values: whole(*values),
                    access: access(figures),
                })
                .collect(),
            documents: whole(self.counts.documents),
            heap_bytes_today: Whole(today.heap_bytes),
            toast_bytes_today: Whole(today.toast_bytes),
            toast_index_bytes_today: Whole(today.toast_index_bytes),
            total_bytes_today: Whole(today.total_bytes),
            heap_bytes: Whole(rest.heap_bytes),
            toast_bytes: Whole(rest.toast_bytes),
            toast_index_bytes: Whole(rest.toast_index_bytes),
            total_bytes: Whole(rest.total_bytes),
            wide_rows_today: whole(self.counts.wide_today),
            wide_rows: whole(self.counts.wide),
            external_today: external(tallies.get(TODAY)?),
            external: external(made),
            today: access(today),
            rest: access(rest),
            whole: access(all.get(WHOLE)?),
            refused_rows: whole(made.refused),
            script: migration.script(),
        })
    }
}

fn access(figures: &Figures, documents: f64) -> AccessReport {
    let Figure { value, change } = figures.read_buffers;
    AccessReport {
        scan_buffers: Whole(Figure { value: value.scaled(documents), change }),
        read_buffers: Fraction(figures.read_buffers),
        read_cpu_ns: Whole(figures.read_cpu_ns),
        update_bytes: Whole(figures.update_bytes),
        update_wal_bytes: Whole(figures.update_wal_bytes),
    }
}
