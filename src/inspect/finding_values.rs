//! Values found in the sample of a table, whose contents are read.

use std::borrow::Cow;
use std::collections::HashMap;

use tokio::task::spawn_blocking;

use crate::findings::content::{
    LONGEST, MethodTrial, few_to_try, is_compressed, is_mended_by, part, savings,
};
use crate::findings::facts::{Contents, ShortEnds};
use crate::findings::look::{ColumnLook, InRow, Rewrite};
use crate::server::catalog::ToastRelation;
use crate::server::chunks::{id_list, readable_data, value_id};
use crate::server::connect::Client;
use crate::server::{LiveError, chunks};
use toast_format::codec::Method;
use toast_format::codec::datum::{self, Compressor};
use toast_format::disk::varlena::TCINFO_SIZE;
use toast_format::disk::{PageSize, ToastPointer};
use toast_format::fill::dead_values::{DeadValues, Fingerprint};
use toast_format::heap::sample::EvenSample;
use toast_format::model::Interval;
use toast_format::model::estimate::ratio;
use toast_format::model::sql::quote_qualified;

/// Most bytes of values that are read for each column.
const MOST: u64 = 4 << 20;
/// Bytes of a value that are read for its format.
const FIRST: i32 = 16;

/// What the server's default compression method and the other one make of a few values of each column that follows the
/// default.
///
/// # Errors
/// The server's.
pub(super) async fn trials(
    client: &Client,
    default: Method,
    toast: Option<&ToastRelation>,
    columns: &[ColumnLook],
) -> Result<Vec<MethodTrial>, LiveError> {
    let mut tried_values = Vec::with_capacity(columns.len());
    for column in columns {
        let mut values: Vec<Vec<u8>> =
            few_to_try(column.in_row.kept()).filter_map(InRow::raw).collect();
        if let Some(toast) = toast {
            values.extend(raw_values(client, toast, column.out_of_line.kept()).await?);
        }
        tried_values.push(values);
    }
    apart(move || tried_values.iter().map(|values| tried(default, values)).collect()).await
}

/// A few of these values, which are in this TOAST relation.
async fn raw_values(
    client: &Client,
    toast: &ToastRelation,
    pointers: &[ToastPointer],
) -> Result<Vec<Vec<u8>>, LiveError> {
    let mine = few_to_try(pointers).filter(|pointer| pointer.toast_relation == toast.oid);
    let few = few(&mine.copied().collect::<Vec<_>>());
    if few.is_empty() {
        return Ok(Vec::new());
    }
    let values = chunks::values(client, &toast.name, &few).await?;
    let found = few.iter().filter_map(|pointer| raw(pointer, values.get(&pointer.value_id.0)?));
    Ok(found.map(Cow::into_owned).collect())
}

fn tried(default: Method, values: &[Vec<u8>]) -> MethodTrial {
    let mut compressor = Compressor::new();
    let mut trial = MethodTrial::default();
    values.iter().for_each(|value| trial.add(&mut compressor, default, value));
    trial
}

/// Some values of one column that are out of line.
pub(super) struct ColumnValues<'a> {
    pub(super) toast: &'a ToastRelation,
    /// The method that would compress them, if that is tried.
    pub(super) method: Option<Method>,
    pub(super) page: PageSize,
    pub(super) column: &'a ColumnLook,
    /// Whether those whose last chunk is nearly empty are read.
    pub(super) needs_ends: bool,
    /// What dead chunks hold.
    pub(super) dead: &'a DeadValues,
}

impl ColumnValues<'_> {
    /// Reads their contents, in a transaction that forces plans by index.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn contents(&self, client: &Client) -> Result<Contents, LiveError> {
        let mut contents = Contents::default();
        let uncompressed = self.mine(&self.column.uncompressed);
        if let Some(method) = self.method
            && !uncompressed.is_empty()
        {
            let few = few(&uncompressed);
            let values = chunks::values(client, &self.toast.name, &few).await?;
            contents.compressed = self.formats(client, &uncompressed, &values).await?;
            (contents.compressible, contents.savings) =
                compressible(method, self.page, few, values).await?;
        }
        let short_ends = self.mine(&self.column.short_ends);
        if self.needs_ends && !short_ends.is_empty() {
            contents.short_ends = self.mended(client, &short_ends).await?;
        }
        if !self.column.rewrites.kept().is_empty() {
            contents.unchanged = self.unchanged(client).await?;
        }
        Ok(contents)
    }

    /// The part of the values stored again that did not change. Values whose chunks were not found are left out.
    async fn unchanged(&self, client: &Client) -> Result<Option<Interval>, LiveError> {
        let toast = self.toast.oid;
        let mine = self.column.rewrites.kept().iter().filter(|rewrite| {
            rewrite.old.toast_relation == toast && rewrite.new.toast_relation == toast
        });
        let mine: Vec<&Rewrite> = mine.collect();
        let needed = mine
            .iter()
            .filter(|rewrite| may_be_equal(rewrite) && self.dead_value(&rewrite.old).is_some());
        let needed: Vec<ToastPointer> = needed.map(|rewrite| rewrite.new).collect();
        let values = chunks::values(client, &self.toast.name, &few(&needed)).await?;
        Ok(part(mine.iter().filter_map(|rewrite| {
            let mut unchanged = false;
            if may_be_equal(rewrite) {
                let old = self.dead_value(&rewrite.old)?;
                let new = match values.get(&rewrite.new.value_id.0) {
                    Some(value) => Fingerprint::new(value, self.page),
                    None => self.dead_value(&rewrite.new)?,
                };
                unchanged = old == new;
            }
            Some((u64::from(rewrite.new.stored_size()), unchanged))
        })))
    }

    /// A value that was deleted, if all of its chunks were found.
    fn dead_value(&self, pointer: &ToastPointer) -> Option<Fingerprint> {
        let found = self.dead.of(pointer.value_id.0)?;
        (found.bytes == u64::from(pointer.stored_size())).then_some(found)
    }

    /// The values that are in this TOAST relation: those with another one are damaged.
    fn mine(&self, pointers: &EvenSample<ToastPointer>) -> Vec<ToastPointer> {
        let mine =
            pointers.kept().iter().filter(|pointer| pointer.toast_relation == self.toast.oid);
        mine.copied().collect()
    }

    /// The fraction of values in compressed formats. Values that are not among `values` are read.
    async fn formats(
        &self,
        client: &Client,
        pointers: &[ToastPointer],
        values: &HashMap<u64, Vec<u8>>,
    ) -> Result<Option<Interval>, LiveError> {
        let others = pointers.iter().filter(|pointer| !values.contains_key(&pointer.value_id.0));
        let others: Vec<ToastPointer> = others.copied().collect();
        let asked = first_bytes(client, &self.toast.name, &others).await?;
        Ok(part(pointers.iter().filter_map(|pointer| {
            let id = pointer.value_id.0;
            let format = match values.get(&id) {
                Some(value) => is_compressed(value),
                None => asked.iter().find(|(asked, _)| *asked == id)?.1,
            };
            Some((u64::from(pointer.stored_size()), format))
        })))
    }

    /// The part of values with a last chunk that is nearly empty for which compression avoids that.
    async fn mended(
        &self,
        client: &Client,
        pointers: &[ToastPointer],
    ) -> Result<ShortEnds, LiveError> {
        let few = few(pointers);
        let values = chunks::values(client, &self.toast.name, &few).await?;
        let page = self.page;
        apart(move || {
            let mut compressor = Compressor::new();
            ShortEnds {
                pglz: mended_part(&mut compressor, Method::Pglz, &few, &values, page),
                lz4: mended_part(&mut compressor, Method::Lz4, &few, &values, page),
            }
        })
        .await
    }
}

/// Whether sizes and method are the same: only then values are read and compared.
fn may_be_equal(rewrite: &Rewrite) -> bool {
    rewrite.old.raw_size_with_header == rewrite.new.raw_size_with_header
        && rewrite.old.ext_info == rewrite.new.ext_info
}

/// The part of these values for which compression avoids a last chunk that is nearly empty.
fn mended_part(
    compressor: &mut Compressor,
    method: Method,
    pointers: &[ToastPointer],
    values: &HashMap<u64, Vec<u8>>,
    page: PageSize,
) -> Option<Interval> {
    part(pointers.iter().filter_map(|pointer| {
        let raw = raw(pointer, values.get(&pointer.value_id.0)?)?;
        let stored = u64::from(pointer.stored_size());
        Some((1, is_mended_by(compressor, method, &raw, stored, page)))
    }))
}

/// The part of these values that the method would compress, and what that would save of all of them.
async fn compressible(
    method: Method,
    page: PageSize,
    few: Vec<ToastPointer>,
    values: HashMap<u64, Vec<u8>>,
) -> Result<(Option<Interval>, Option<Interval>), LiveError> {
    apart(move || {
        let mut compressor = Compressor::new();
        let lengths = few.iter().filter_map(|pointer| {
            let raw = values.get(&pointer.value_id.0)?;
            Some((raw.len(), savings(&mut compressor, method, raw, page)))
        });
        let lengths: Vec<(usize, usize)> = lengths.collect();
        let compressible = part(lengths.iter().map(|&(raw, saved)| (raw as u64, saved > 0)));
        let (raw, saved): (Vec<f64>, Vec<f64>) =
            lengths.iter().map(|&(raw, saved)| (raw as f64, saved as f64)).unzip();
        (compressible, ratio(&saved, &raw, 0.0, false))
    })
    .await
}

/// Computes without blocking other tasks.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LiveError> {
    spawn_blocking(work).await.map_err(|error| LiveError::Unexpected(error.to_string()))
}

/// A value without compression; `None` where it is damaged.
fn raw<'v>(pointer: &ToastPointer, stored: &'v [u8]) -> Option<Cow<'v, [u8]>> {
    let Some(method) = pointer.method() else { return Some(Cow::Borrowed(stored)) };
    let stream = stored.get(TCINFO_SIZE as usize..)?;
    datum::decompress(method, pointer.raw_size() as usize, stream).ok().map(Cow::Owned)
}

/// The values that are read completely, which long ones are not.
fn few(pointers: &[ToastPointer]) -> Vec<ToastPointer> {
    let mut bytes = 0;
    let short = pointers.iter().filter(|pointer| u64::from(pointer.raw_size()) <= LONGEST);
    short
        .take_while(|pointer| {
            bytes += u64::from(pointer.stored_size());
            bytes <= MOST
        })
        .copied()
        .collect()
}

/// By value, whether it is of a format that is compressed.
async fn first_bytes(
    client: &Client,
    toast: &str,
    pointers: &[ToastPointer],
) -> Result<Vec<(u64, bool)>, LiveError> {
    if pointers.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT chunk_id::pg_catalog.int8, pg_catalog.substr(chunk_data, 1, {FIRST}) FROM {} \
         WHERE chunk_id = ANY ({}) AND chunk_seq = 0 AND CASE WHEN {} THEN true END",
        quote_qualified("pg_toast", toast),
        id_list(pointers.iter().map(|pointer| pointer.value_id.0)),
        readable_data()
    );
    let rows = client.query_typed(&sql, &[]).await?;
    let read = rows.iter().map(|row| {
        let id: i64 = row.try_get(0)?;
        let first: &[u8] = row.try_get(1)?;
        Ok((value_id(id).0, is_compressed(first)))
    });
    read.collect()
}
