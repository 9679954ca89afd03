//! Counts values by column, form and method.

use std::collections::BTreeMap;

use super::result::FormReport;
use crate::codec::Method;
use crate::model::stored::Form;
use crate::model::stored::FunctionAnswer;

/// Counts values by column, form and method.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    counts: BTreeMap<(usize, &'static str, Option<&'static str>), (u64, u64)>,
}

impl Tally {
    /// Adds a value of the `column`-th chosen column, whose form is known.
    pub fn add(&mut self, column: usize, form: Form, method: Option<Method>, bytes: u64) {
        self.add_named(column, form.name(), method, bytes);
    }

    /// Adds a value of which functions tell.
    pub(crate) fn add_told(&mut self, column: usize, told: &FunctionAnswer) {
        let value = &told.value;
        let form = match (value.stored_size, value.method) {
            (None, _) => "null",
            (_, Some(_)) => "compressed",
            _ => "uncompressed",
        };
        self.add_named(column, form, value.method, value.stored_size.unwrap_or(0));
    }

    fn add_named(&mut self, column: usize, form: &'static str, method: Option<Method>, bytes: u64) {
        let count = self.counts.entry((column, form, method.map(Method::name))).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(bytes);
    }

    /// Stored bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.counts.values().map(|&(_, bytes)| bytes).sum()
    }

    /// Those of values whose form is known to be out of line.
    pub fn external_bytes(&self) -> u64 {
        let external = [Form::External.name(), Form::ExternalCompressed.name()];
        let counts = self.counts.iter().filter(|((_, form, _), _)| external.contains(form));
        counts.map(|(_, &(_, bytes))| bytes).sum()
    }

    /// Whether pluggable toasters store any.
    pub fn has_custom(&self) -> bool {
        self.counts.keys().any(|(_, form, _)| *form == Form::Custom.name())
    }

    /// As the report has it.
    pub fn report(&self, columns: &[String]) -> Vec<FormReport> {
        self.counts
            .iter()
            .map(|(&(column, form, method), &(values, bytes))| FormReport {
                column: columns.get(column).cloned().unwrap_or_default(),
                form,
                method,
                values,
                bytes,
            })
            .collect()
    }
}
