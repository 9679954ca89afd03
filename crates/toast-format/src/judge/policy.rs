//! The choice of a policy that decides for each value, and compliance with it (pure).
//!
//! PostgreSQL has no such policy. What it would store if it had one is what the TOAST algorithm computes for a column
//! with storage `extended` whose compressed results the policy accepts or rejects ([`Rule::ideal`]). To get there, the
//! column is set to `external`, so that it compresses nothing and keeps values that arrive compressed, and a batch
//! hands the values over in their ideal form.
//!
//! **When a row complies.** The ideal determines which of the row's values are compressed, and with which method. The
//! algorithm for an `external` column then determines the forms of these values in the row. The row complies if its
//! values have these forms. So what a batch stores complies by construction, and a second run finds nothing to do.
//!
//! **Where the sizes come from**, without a rewrite of anything:
//!
//! * for a value compressed with the only possible method, its stored size;
//! * for any other value, the server, which compresses a copy in a temporary table. This is exact for lz4 too, whose
//!   results depend on the server's library, and it is the same code that the batch uses, so the two cannot disagree;
//! * rows that this run has stored are not examined again.
//!
//! **The price.** Nothing in a table distinguishes a value that was not worth compressing from one that was never
//! tried. A new run therefore reads all uncompressed values again and compresses copies of them. For values that are
//! stored compressed, it only examines the row.

use crate::codec::Method;
use crate::disk::Storage;
use crate::model::policy::CompressedSizes;
use crate::model::toast::{Compressor, Incoming, Operation, Placed, Table};
use crate::model::{Form, MethodChoice, Policy, StoredValue};

use super::stock::{already, same_form, small};

/// What a policy requires of the chosen columns of a table.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Which compressed values are kept.
    pub policy: Policy,
    /// The possible methods for each chosen column.
    pub methods: Vec<MethodChoice>,
    /// The table as a server with the policy would store it.
    pub ideal: Table,
}

/// What is known about the content of one chosen value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Content bytes, decompressed and without header.
    pub raw: u32,
    /// The sizes to which the server compresses it.
    pub sizes: CompressedSizes,
}

/// A row, as found by a scan.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The inserting transaction, which identifies a row version together with the address.
    pub xmin: u32,
    /// The row's values by column index.
    pub values: Vec<StoredValue>,
    /// For each chosen column, whether it is known if the value is in the row or out of line.
    pub placed: Vec<bool>,
    /// For each chosen column, what the server has found about the value.
    pub contents: Vec<Option<Content>>,
    /// Whether composite values contain compressed fields, which no form shows.
    pub inner: bool,
}

/// How a chosen value must be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// Unchanged: it keeps its chunks in the TOAST relation.
    Keep,
    /// As a new datum, uncompressed.
    Plain,
    /// As compressed with this method in the temporary table.
    Compressed(Method),
}

/// The policy's decision about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The decision for each chosen column.
    Forms(Vec<Wanted>),
    /// It depends on the contents of these chosen columns (indexes into the list of chosen columns).
    Depends(Vec<usize>),
    /// The server would refuse the row.
    TooBig,
}

/// The policy's decision about one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whether the value already has the intended form.
    pub complies: bool,
    /// How to hand the value over so that it gets that form.
    pub handover: Handover,
    /// The form that the policy wants.
    pub form: Form,
    /// The intended compression method.
    pub method: Option<Method>,
    /// The resulting stored size.
    pub bytes: u32,
}

impl Decision {
    /// Whether all values comply.
    pub fn complies(&self) -> bool {
        matches!(self, Decision::Forms(wanted) if wanted.iter().all(|one| one.complies))
    }
}

impl Rule {
    /// The rule for a table; the chosen columns are `external` in `table`.
    pub fn new(
        policy: Policy,
        table: &Table,
        targets: &[usize],
        methods: Vec<MethodChoice>,
    ) -> Rule {
        let mut ideal = table.clone();
        for (&index, &method) in targets.iter().zip(&methods) {
            if let Some(column) = ideal.columns.get_mut(index) {
                (column.storage, column.method, column.policy) =
                    (Storage::Extended, method, policy);
            }
        }
        Rule { policy, methods, ideal }
    }

    /// The content of a chosen value, as found by the server, or as far as its stored form shows it.
    fn content(&self, at: usize, value: &StoredValue, seen: &Seen) -> Option<Content> {
        if let Some(content) = seen.contents.get(at).copied().flatten() {
            return Some(content);
        }
        if seen.inner {
            return None;
        }
        let raw = small(value.raw_size)?;
        let method = value.method.filter(|&m| self.methods.get(at) == Some(&MethodChoice::One(m)));
        if !matches!(value.form, Form::Compressed | Form::ExternalCompressed) {
            return None;
        }
        let mut sizes = CompressedSizes::default();
        sizes.set(method?, already(value));
        Some(Content { raw, sizes })
    }

    fn chosen_values<'a>(&self, targets: &'a [usize], seen: &'a Seen) -> ChosenValues<'a> {
        let mut contents = Vec::with_capacity(targets.len());
        for (at, &index) in targets.iter().enumerate() {
            let value = seen.values.get(index);
            contents.push(value.and_then(|value| self.content(at, value, seen)));
        }
        ChosenValues { targets, seen, contents, needed: Vec::new() }
    }

    /// Whether a chosen value's content is unknown because a toaster of `pg_toaster` stores it. What a batch does with
    /// the value depends on its content.
    pub fn lacks_content(&self, targets: &[usize], seen: &Seen) -> bool {
        targets.iter().enumerate().any(|(at, &index)| {
            seen.values.get(index).is_some_and(|value| is_foreign(value.form))
                && seen.contents.get(at).copied().flatten().is_none()
        })
    }

    /// Whether a chosen value certainly does not comply: because a toaster of `pg_toaster` stores it, because it is
    /// compressed with a method that is not possible, or because it is compressed although the policy allows no
    /// compression.
    pub fn surely_differs(&self, targets: &[usize], seen: &Seen) -> bool {
        seen.inner
            || self.lacks_content(targets, seen)
            || targets.iter().zip(&self.methods).any(|(&index, choice)| {
                let method = seen.values.get(index).and_then(|value| value.method);
                method
                    .is_some_and(|m| self.policy == Policy::Never || !choice.methods().contains(&m))
            })
    }

    /// Decides on a row. In `actual`, the chosen columns (`targets`) are `external`.
    pub fn decide(&self, actual: &Table, targets: &[usize], seen: &Seen) -> Decision {
        let mut chosen = self.chosen_values(targets, seen);
        let incoming = chosen.incoming(actual);
        let operation = if seen.values.iter().any(|value| value.form.is_external()) {
            Operation::UpdateOfExternal
        } else {
            Operation::Insert
        };
        // The row is treated as new, because its present storage must not affect the decision.
        let ideal = self.ideal.toast(&incoming, Operation::Insert, &mut chosen);
        if !chosen.needed.is_empty() {
            chosen.needed.sort_unstable();
            chosen.needed.dedup();
            return Decision::Depends(chosen.needed);
        }
        let Ok(ideal) = ideal else { return Decision::TooBig };
        let handed: Vec<Incoming> = incoming
            .iter()
            .enumerate()
            .map(|(index, &value)| match (chosen.position(index), ideal.values.get(index)) {
                (Some(_), Some(placed)) => handed_over(value, placed),
                _ => value,
            })
            .collect();
        let stored = actual.toast(&handed, operation, &mut |index: usize, _: Method| {
            seen.values.get(index).and_then(already)
        });
        let Ok(stored) = stored else { return Decision::TooBig };
        let wanted = targets.iter().enumerate().map(|(at, &index)| {
            match (seen.values.get(index), stored.values.get(index)) {
                (Some(now), Some(then)) => {
                    let placed = seen.placed.get(at).copied().unwrap_or(true);
                    let wanted = wanted(now, then, placed);
                    if seen.inner { wanted.anew() } else { wanted }
                }
                _ => Wanted {
                    complies: true,
                    handover: Handover::Keep,
                    form: Form::Missing,
                    method: None,
                    bytes: 0,
                },
            }
        });
        Decision::Forms(wanted.collect())
    }
}

/// The chosen values of a row, as far as their contents are known.
struct ChosenValues<'a> {
    targets: &'a [usize],
    seen: &'a Seen,
    contents: Vec<Option<Content>>,
    /// Positions in `targets` of values whose unknown contents the decision depends on.
    needed: Vec<usize>,
}

impl ChosenValues<'_> {
    fn position(&self, index: usize) -> Option<usize> {
        self.targets.iter().position(|&target| target == index)
    }

    fn content(&self, at: usize) -> Option<Content> {
        self.contents.get(at).copied().flatten()
    }

    /// The row's values as an UPDATE hands them to the toaster, the chosen ones decompressed.
    fn incoming(&mut self, actual: &Table) -> Vec<Incoming> {
        let mut incoming = Vec::with_capacity(self.seen.values.len());
        for (index, value) in self.seen.values.iter().enumerate() {
            let carried = actual.carried(index, value);
            let Some(at) = self.position(index) else {
                incoming.push(carried);
                continue;
            };
            incoming.push(match (carried.fresh(), self.content(at)) {
                (Incoming::Plain { .. } | Incoming::Opaque { .. }, Some(content)) => {
                    Incoming::Plain { raw: content.raw }
                }
                (Incoming::Plain { .. }, None) if value.raw_size.is_none() || self.seen.inner => {
                    self.needed.push(at);
                    Incoming::Plain { raw: 0 }
                }
                (other, _) => other,
            });
        }
        incoming
    }
}

impl Compressor for ChosenValues<'_> {
    fn compressed_size(&mut self, index: usize, method: Method) -> Option<u32> {
        let Some(at) = self.position(index) else {
            return self.seen.values.get(index).and_then(already);
        };
        match self.content(at) {
            Some(content) => content.sizes.get(method),
            None => {
                self.needed.push(at);
                None
            }
        }
    }
}

/// A value as a batch hands it over: compressed values come from the temporary table's TOAST relation.
fn handed_over(value: Incoming, ideal: &Placed) -> Incoming {
    let Incoming::Plain { raw } = value else { return value };
    let foreign =
        |stored| Incoming::Foreign { stored, raw, method: ideal.method, compressed: true };
    match ideal.form {
        Form::Compressed => foreign(ideal.stored_size.saturating_sub(4)),
        Form::ExternalCompressed => foreign(ideal.stored_size),
        _ => value,
    }
}

/// Whether the value is stored by a toaster other than PostgreSQL's own, which compresses or splits it by its own
/// rules.
pub fn is_foreign(form: Form) -> bool {
    matches!(form, Form::Custom | Form::Unknown)
}

fn wanted(now: &StoredValue, then: &Placed, placed: bool) -> Wanted {
    let complies = if is_foreign(now.form) {
        false
    } else if placed {
        same_form(now, then)
    } else {
        matches!(now.form, Form::Null | Form::Missing) || now.method == then.method
    };
    let wanted = Wanted {
        complies,
        handover: Handover::Keep,
        form: then.form,
        method: then.method,
        bytes: then.stored_size,
    };
    if complies { wanted } else { wanted.anew() }
}

impl Wanted {
    /// The same decision for a value that does not comply whatever its form.
    fn anew(self) -> Wanted {
        let handover = match (self.form, self.method) {
            (Form::Null | Form::Missing | Form::Custom | Form::Unknown, _) => Handover::Keep,
            (Form::Compressed | Form::ExternalCompressed, Some(method)) => {
                Handover::Compressed(method)
            }
            _ => Handover::Plain,
        };
        Wanted { complies: false, handover, ..self }
    }
}

#[cfg(test)]
mod tests;
