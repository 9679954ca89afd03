//! Choice and compliance by a per-value policy (pure).
//!
//! PostgreSQL knows no such policy. What it would store if it did is what the toaster's algorithm
//! gives for a column with storage `extended` whose compressed results the policy accepts or refuses
//! ([`Rule::ideal`]). To get there the column is set to `external`, which compresses nothing and
//! keeps what arrives compressed: a batch hands the values over as the ideal has them.
//!
//! **When a row complies.** The ideal says which of the row's values are compressed, and with which
//! method; the algorithm over an `external` column says in which form these then stand in the row.
//! The row complies if it has these forms now. So what a batch stores complies by construction, and
//! a second run finds nothing to do.
//!
//! **Where the sizes come from**, without anything being rewritten:
//! * of a value compressed with the only method in question, from its stored size;
//! * of any other value, from the server itself, which compresses a copy in a temporary table. That
//!   is exact for lz4 too, whose size depends on the server's library, and the same code that the
//!   batch meets: the two cannot disagree;
//! * rows that this run has stored itself are not asked for again.
//!
//! **What the price is.** Nothing in a table tells a value that was not worth compressing from one
//! that was never tried, so a new run reads these again and compresses copies of them. Values stored
//! compressed cost a look at the row.

use crate::codec::Method;
use crate::disk::desc::Storage;
use crate::model::policy::{CompressedSizes, MethodChoice, Policy};
use crate::model::stored::{Form, StoredValue};
use crate::model::toast::{Incoming, Operation, Placed, Table};

use super::stock::{same_form, small};

/// What a policy demands of the chosen columns of a table.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The policy.
    pub policy: Policy,
    /// The methods in question, for each chosen column.
    pub methods: Vec<MethodChoice>,
    /// The table as a server with the policy would have it.
    pub ideal: Table,
}

/// What is known of the content of one chosen value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Content bytes, decompressed.
    pub raw: u32,
    /// What the server compresses it to.
    pub sizes: CompressedSizes,
}

/// A row as a scan saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The inserting transaction: with the address it names a row version.
    pub xmin: u32,
    /// By column index.
    pub values: Vec<StoredValue>,
    /// For each chosen column, whether the form tells in the row from out of line.
    pub placed: Vec<bool>,
    /// For each chosen column, what the server said of the value.
    pub contents: Vec<Option<Content>>,
    /// Whether composite values hold compressed fields, which no form shows.
    pub inner: bool,
}

/// How one chosen value is to be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// As it is: it keeps its place in the TOAST relation.
    Keep,
    /// As a new datum, uncompressed.
    Plain,
    /// As the temporary table has it, compressed with this method.
    Compressed(Method),
}

/// What the policy makes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// For each chosen column.
    Forms(Vec<Wanted>),
    /// It depends on the contents of these chosen columns (indexes into the list of them).
    Depends(Vec<usize>),
    /// The server would refuse the row.
    TooBig,
}

/// What the policy makes of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whether the value has that form.
    pub complies: bool,
    /// How to bring it there.
    pub handover: Handover,
    /// The form.
    pub form: Form,
    /// Its compression method.
    pub method: Option<Method>,
    /// Its stored bytes.
    pub bytes: u32,
}

impl Decision {
    /// Whether all values comply.
    pub fn complies(&self) -> bool {
        matches!(self, Decision::Forms(wanted) if wanted.iter().all(|one| one.complies))
    }
}

impl Rule {
    /// The rule for a table whose chosen columns are `external` in `table`.
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

    /// What is known of a chosen value's content: by the server, or where the stored form tells all.
    fn content(&self, at: usize, value: &StoredValue, seen: &Seen) -> Option<Content> {
        if let Some(content) = seen.contents.get(at).copied().flatten() {
            return Some(content);
        }
        if seen.inner {
            return None;
        }
        let raw = small(value.raw_size)?;
        let method = value.method.filter(|&m| self.methods.get(at) == Some(&MethodChoice::One(m)));
        let mut sizes = CompressedSizes::default();
        match (value.form, method) {
            (Form::Compressed, Some(method)) => sizes.set(method, small(value.stored_size)),
            (Form::ExternalCompressed, Some(method)) => {
                sizes.set(method, small(value.stored_size.map(|size| size + 4)));
            }
            _ => return None,
        }
        Some(Content { raw, sizes })
    }

    /// Whether a chosen value's content is unknown for a toaster of `pg_toaster` has it: what a batch
    /// makes of it depends on that.
    pub fn lacks_content(&self, targets: &[usize], seen: &Seen) -> bool {
        targets.iter().enumerate().any(|(at, &index)| {
            seen.values.get(index).is_some_and(|value| is_foreign(value.form))
                && seen.contents.get(at).copied().flatten().is_none()
        })
    }

    /// Whether a chosen value is surely stored otherwise: by a toaster of `pg_toaster`, compressed with
    /// a method that is not in question, or with any where the policy wants none.
    pub fn surely_differs(&self, targets: &[usize], seen: &Seen) -> bool {
        seen.inner
            || self.lacks_content(targets, seen)
            || targets.iter().zip(&self.methods).any(|(&index, choice)| {
                let method = seen.values.get(index).and_then(|value| value.method);
                method
                    .is_some_and(|m| self.policy == Policy::Never || !choice.methods().contains(&m))
            })
    }

    /// Decides on a row. `actual` is the table with the chosen columns (`targets`) `external`.
    pub fn decide(&self, actual: &Table, targets: &[usize], seen: &Seen) -> Decision {
        let contents: Vec<Option<Content>> = targets
            .iter()
            .enumerate()
            .map(|(at, &index)| {
                seen.values.get(index).and_then(|value| self.content(at, value, seen))
            })
            .collect();
        let chosen = |index: usize| targets.iter().position(|&target| target == index);
        let content_of = |at: usize| contents.get(at).copied().flatten();
        let mut open = Vec::new();
        let incoming: Vec<Incoming> = seen
            .values
            .iter()
            .enumerate()
            .map(|(index, value)| match chosen(index) {
                None => actual.carried(index, value),
                Some(at) => match (actual.carried(index, value).fresh(), content_of(at)) {
                    (Incoming::Plain { .. } | Incoming::Opaque { .. }, Some(content)) => {
                        Incoming::Plain { raw: content.raw }
                    }
                    (Incoming::Plain { .. }, None) if value.raw_size.is_none() || seen.inner => {
                        open.push(at);
                        Incoming::Plain { raw: 0 }
                    }
                    (other, _) => other,
                },
            })
            .collect();
        let operation = if seen.values.iter().any(|value| value.form.is_external()) {
            Operation::UpdateOfExternal
        } else {
            Operation::Insert
        };
        let mut compress = |index: usize, method: Method| match chosen(index) {
            Some(at) => match content_of(at) {
                Some(content) => content.sizes.get(method),
                None => {
                    open.push(at);
                    None
                }
            },
            None => seen.values.get(index).and_then(compressed_size),
        };
        // as if the row were new: what it is stored as now must not change what it is to become
        let ideal = self.ideal.toast(&incoming, Operation::Insert, &mut compress);
        if !open.is_empty() {
            open.sort_unstable();
            open.dedup();
            return Decision::Depends(open);
        }
        let Ok(ideal) = ideal else { return Decision::TooBig };
        let handed: Vec<Incoming> = incoming
            .iter()
            .enumerate()
            .map(|(index, &value)| match (chosen(index), ideal.values.get(index)) {
                (Some(_), Some(placed)) => handed_over(value, placed),
                _ => value,
            })
            .collect();
        let mut others = |index: usize, _: Method| seen.values.get(index).and_then(compressed_size);
        let Ok(stored) = actual.toast(&handed, operation, &mut others) else {
            return Decision::TooBig;
        };
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

/// The datum's size if the value is compressed now; a value that is not is taken for incompressible.
fn compressed_size(value: &StoredValue) -> Option<u32> {
    match value.form {
        Form::Compressed => small(value.stored_size),
        Form::ExternalCompressed => small(value.stored_size.map(|size| size + 4)),
        _ => None,
    }
}

/// A value as a batch hands it over: compressed ones come out of the temporary table's TOAST relation.
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

/// Whether something else than PostgreSQL's own toaster has stored the value, and compresses or cuts it
/// by rules of its own.
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
    /// The same for a value that does not comply, whatever its form.
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
