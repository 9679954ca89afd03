//! Sizes through SQL functions, where pages are out of reach: managed services, ordinary owners,
//! relations of another access method.

use tokio_postgres::Client;

use super::LiveError;
use super::catalog::Relation;
use super::server::Server;
use crate::codec::Method;
use crate::disk::Oid;
use crate::disk::desc::{Attribute, Length, Storage};
use crate::disk::layout::PageSize;
use crate::model::stored::{Form, Location, StoredValue};
use crate::source::sql::quote_identifier;

/// Values of one column that the functions cannot tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The column's index from 0, dropped ones counted.
    pub index: usize,
    /// Form and sizes of each.
    pub value: StoredValue,
    /// How many.
    pub count: u64,
}

/// What the functions answer for one value.
#[derive(Debug, Clone, Copy)]
struct Answer {
    /// `pg_column_size`, `None` for NULL.
    stored: Option<u64>,
    /// `pg_column_compression`.
    method: Option<Method>,
    /// `octet_length`, where the type has it.
    raw: Option<u64>,
    /// `pg_column_toast_chunk_id IS NOT NULL`, from 17 on.
    external: Option<bool>,
}

/// The statement that groups the values of all columns in one scan of the table.
fn statement(server: &Server, relation: &Relation) -> String {
    let rows: Vec<String> = relation
        .desc
        .attributes
        .iter()
        .zip(&relation.bytes_like)
        .enumerate()
        .filter(|(_, (column, _))| !column.dropped)
        .map(|(index, (column, bytes_like))| {
            let name = format!("t.{}", quote_identifier(&column.name));
            let varlena = column.length == Length::Varlena;
            let compression = if varlena {
                format!("pg_catalog.pg_column_compression({name})")
            } else {
                "NULL::pg_catalog.text".to_owned()
            };
            let raw = if *bytes_like {
                format!("pg_catalog.octet_length({name})")
            } else {
                "NULL::pg_catalog.int4".to_owned()
            };
            let external = if varlena && server.has_toast_chunk_id() {
                format!("pg_catalog.pg_column_toast_chunk_id({name}) IS NOT NULL")
            } else {
                "NULL::pg_catalog.bool".to_owned()
            };
            format!(
                "({index}, pg_catalog.pg_column_size({name}), {compression}, {raw}, {external})"
            )
        })
        .collect();
    format!(
        "SELECT v.i, v.stored, v.method, v.raw, v.external, pg_catalog.count(*) \
         FROM ONLY {} AS t CROSS JOIN LATERAL (VALUES {}) AS v (i, stored, method, raw, external) \
         GROUP BY 1, 2, 3, 4, 5",
        relation.quoted(),
        rows.join(", ")
    )
}

/// Groups the values of all columns of a table by form and sizes, and counts its rows.
pub async fn groups(
    client: &Client,
    server: &Server,
    relation: &Relation,
) -> Result<(u64, Vec<Group>), LiveError> {
    if relation.desc.attributes.iter().all(|column| column.dropped) {
        let sql = format!("SELECT pg_catalog.count(*) FROM ONLY {}", relation.quoted());
        let rows = client.query_typed(&sql, &[]).await?;
        let count: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        return Ok((u64::try_from(count).unwrap_or(0), Vec::new()));
    }
    let rows = client.query_typed(&statement(server, relation), &[]).await?;
    let mut groups = Vec::with_capacity(rows.len());
    let mut live = 0u64;
    for row in &rows {
        let index = usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(usize::MAX);
        let Some(column) = relation.desc.attributes.get(index) else {
            return Err(LiveError::Unexpected(format!("column number {index}")));
        };
        let size = |at| -> Result<Option<u64>, LiveError> {
            Ok(row.try_get::<_, Option<i32>>(at)?.and_then(|size| u64::try_from(size).ok()))
        };
        let method: Option<String> = row.try_get(2)?;
        let answer = Answer {
            stored: size(1)?,
            method: match method.as_deref() {
                Some("pglz") => Some(Method::Pglz),
                Some("lz4") => Some(Method::Lz4),
                _ => None,
            },
            raw: size(3)?,
            external: row.try_get(4)?,
        };
        let count = u64::try_from(row.try_get::<_, i64>(5)?).unwrap_or(0);
        let first = relation.desc.attributes.iter().position(|column| !column.dropped);
        if first == Some(index) {
            live = live.saturating_add(count);
        }
        let value =
            classify(answer, column, server.page_size, relation.toast.as_ref().map(|t| t.oid));
        groups.push(Group { index, value, count });
    }
    Ok((live, groups))
}

/// The form that the answers allow; [`Form::Unknown`] where they leave several.
fn classify(
    answer: Answer,
    column: &Attribute,
    page: PageSize,
    toast_relation: Option<Oid>,
) -> StoredValue {
    let Some(stored) = answer.stored else { return StoredValue::NULL };
    if column.length != Length::Varlena {
        let raw = if column.length == Length::CString { stored.saturating_sub(1) } else { stored };
        return StoredValue {
            form: Form::Plain,
            raw_size: Some(raw),
            stored_size: Some(stored),
            ..StoredValue::NULL
        };
    }
    // Nothing in a row can be longer than the row may be.
    let too_long = stored > page.toast_tuple_target_main() as u64;
    let external = match (answer.external, answer.method, answer.raw) {
        (Some(external), ..) => Some(external),
        _ if too_long => Some(true),
        _ if toast_relation.is_none() => Some(false),
        // An uncompressed value shows in its size whether it has a header: only rows have.
        (None, None, Some(raw)) => Some(raw == stored),
        (None, _, _) => None,
    };
    let form = match (external, answer.method) {
        (Some(true), None) => Form::External,
        (Some(true), Some(_)) => Form::ExternalCompressed,
        (Some(false), Some(_)) => Form::Compressed,
        (Some(false), None) => match answer.raw {
            Some(raw) if stored == raw + 1 => Form::Short,
            Some(_) => Form::Plain,
            None if stored > 127 || column.storage == Storage::Plain => Form::Plain,
            None => Form::Unknown,
        },
        (None, _) => Form::Unknown,
    };
    let raw_size = answer.raw.or(match form {
        Form::External => Some(stored),
        Form::Plain => Some(stored.saturating_sub(4)),
        _ => None,
    });
    let location = toast_relation.filter(|_| form.is_external()).map(|toast_relation| Location {
        value_id: Oid(0),
        toast_relation,
        chunks: page.chunks(u32::try_from(stored).unwrap_or(u32::MAX)),
    });
    StoredValue {
        form,
        method: answer.method,
        raw_size,
        stored_size: Some(stored),
        pointer_size: if form.is_external() {
            crate::disk::pointer::TOAST_POINTER_SIZE as u64
        } else {
            0
        },
        location,
        custom: None,
    }
}

/// Which figures the functions cannot give on this server, with the reason.
pub fn not_available(server: &Server, relation: &Relation) -> Vec<(&'static str, String)> {
    let mut list = vec![
        ("dead and unknown tuples, free space, HOT updates", "pages were not read".to_owned()),
        ("rows added before a column (form missing)", "no SQL function tells them".to_owned()),
    ];
    let varlena = |column: &&Attribute| !column.dropped && column.length == Length::Varlena;
    if relation.desc.attributes.iter().any(|column| varlena(&column)) {
        if !server.has_toast_chunk_id() {
            list.push((
                "form and chunks of some values",
                "pg_column_toast_chunk_id exists from PostgreSQL 17 on".to_owned(),
            ));
        }
        list.push((
            "raw size of types other than text and bytea",
            "octet_length does not take them".to_owned(),
        ));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::desc::TupleDesc;

    fn classify_text(
        stored: u64,
        method: Option<Method>,
        raw: Option<u64>,
        external: Option<bool>,
    ) -> (Form, Option<u64>) {
        let column = TupleDesc::toast_relation().attributes.remove(2);
        let column = Attribute { storage: Storage::Extended, ..column };
        let answer = Answer { stored: Some(stored), method, raw, external };
        let value = classify(answer, &column, PageSize::DEFAULT, Some(Oid(1)));
        (value.form, value.raw_size)
    }

    #[test]
    fn sizes_tell_the_form_of_text_before_17_unless_it_is_compressed() {
        assert_eq!(classify_text(11, None, Some(10), None), (Form::Short, Some(10)));
        assert_eq!(classify_text(504, None, Some(500), None), (Form::Plain, Some(500)));
        assert_eq!(classify_text(5000, None, Some(5000), None), (Form::External, Some(5000)));
        let pglz = Some(Method::Pglz);
        assert_eq!(classify_text(500, pglz, Some(5000), None), (Form::Unknown, Some(5000)));
        assert_eq!(
            classify_text(9000, pglz, Some(50_000), None),
            (Form::ExternalCompressed, Some(50_000))
        );
    }

    #[test]
    fn from_17_on_the_chunk_id_tells() {
        let pglz = Some(Method::Pglz);
        assert_eq!(classify_text(500, pglz, None, Some(false)), (Form::Compressed, None));
        assert_eq!(classify_text(500, pglz, None, Some(true)), (Form::ExternalCompressed, None));
        assert_eq!(classify_text(500, None, None, Some(true)), (Form::External, Some(500)));
        assert_eq!(classify_text(500, None, None, Some(false)), (Form::Plain, Some(496)));
        assert_eq!(classify_text(100, None, None, Some(false)), (Form::Unknown, None));
    }
}
