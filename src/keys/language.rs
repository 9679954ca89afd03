//! The types whose values are analyzed by parts: documents by key, arrays by element, composite values by attribute;
//! and which columns are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::types::{Oid as PgOid, Type};

use crate::advise::candidate::AdviseError;
use crate::message::Message;
use crate::server::catalog::VIRTUAL;
use crate::server::{Client, LiveError, Relation};
use toast_format::disk::element_parts::{CompositeField, ElementShape, walk_array, walk_row};
use toast_format::disk::hstore_parts::{self, hstore};
use toast_format::disk::jsonb_of_text::jsonb;
use toast_format::disk::jsonb_parts::Visit;
use toast_format::disk::{
    Align, Attribute, ByteOrder, Length, Oid, TupleDesc, element_text, json_parts, jsonb_parts,
    types,
};

/// A type whose values have parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentLanguage {
    Jsonb,
    /// Its text.
    Json,
    /// Of the extension `hstore`, whose OID differs from database to database.
    Hstore,
    /// An array, by the type of its elements.
    Array(ElementShape),
    /// A composite type, with its attributes.
    Row(Arc<[CompositeField]>),
}

/// The types whose columns are analyzed if no columns are named.
const TYPES: &str = "jsonb, json or hstore";

impl DocumentLanguage {
    /// That of a column, if its documents have keys that are known here.
    fn of_column(column: &Attribute) -> Option<DocumentLanguage> {
        let name = column.type_name.as_str();
        let is_hstore = name == "hstore" || name.ends_with(".hstore");
        DocumentLanguage::built_in(column.type_oid)
            .or(is_hstore.then_some(DocumentLanguage::Hstore))
            .or_else(|| array(name))
    }

    /// That of a type of documents that comes with the server.
    fn built_in(type_oid: Oid) -> Option<DocumentLanguage> {
        match type_oid {
            types::JSONB => Some(DocumentLanguage::Jsonb),
            Oid(114) => Some(DocumentLanguage::Json),
            _ => None,
        }
    }

    /// Whether its values are documents, whose keys are not fixed by the type.
    fn is_document(&self) -> bool {
        matches!(self, DocumentLanguage::Jsonb | DocumentLanguage::Json | DocumentLanguage::Hstore)
    }

    /// Gives the parts of a document down to `depth` levels; the bytes that are none's.
    ///
    /// # Errors
    /// Where and how the document is damaged.
    pub(super) fn walk<V: Visit>(
        &self,
        content: &[u8],
        order: ByteOrder,
        depth: u8,
        document: V::At,
        visit: &mut V,
    ) -> Result<u64, String> {
        let walked = match self {
            DocumentLanguage::Jsonb => {
                let walked = jsonb_parts::walk(content, order, depth, document, visit);
                return walked.map_err(|error| error.to_string());
            }
            DocumentLanguage::Json => json_parts::walk(content, depth, document, visit),
            DocumentLanguage::Hstore => hstore_parts::walk(content, order, document, visit),
            DocumentLanguage::Array(shape) => walk_array(content, order, *shape, document, visit),
            DocumentLanguage::Row(fields) => walk_row(content, order, fields, document, visit),
        };
        walked.map_err(|error| error.to_string())
    }

    /// The stored form, little-endian, of a document that the server prints like this.
    ///
    /// # Errors
    /// Where no server prints that.
    pub(super) fn stored<'t>(&self, text: &'t [u8]) -> Result<Cow<'t, [u8]>, String> {
        let stored = match self {
            DocumentLanguage::Jsonb => jsonb(text),
            DocumentLanguage::Json => return Ok(Cow::Borrowed(text)),
            DocumentLanguage::Hstore => hstore(text),
            DocumentLanguage::Array(shape) => element_text::array(text, *shape),
            DocumentLanguage::Row(fields) => element_text::row(text, fields),
        };
        stored.map(Cow::Owned).map_err(|error| error.to_string())
    }
}

/// Arrays of built-in types, as SQL or `pg_type` names them.
fn array(type_name: &str) -> Option<DocumentLanguage> {
    let name = type_name.strip_prefix("pg_catalog.").unwrap_or(type_name);
    let element = match name.strip_suffix(']') {
        Some(rest) => rest.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('[')?,
        None => name.strip_prefix('_')?,
    };
    let types::TypeLayout { oid, length, align, .. } = types::by_name(element)?;
    // arrays of arrays are not analyzed further
    (element.find('[').is_none()).then_some(DocumentLanguage::Array(ElementShape {
        type_oid: oid,
        length,
        align,
    }))
}

/// OIDs of types that come with the server are below (`FirstNormalObjectId`).
const FIRST_OF_USERS: u32 = 16_384;

/// That of each column, as far as its own type says it.
pub(super) fn languages(desc: &TupleDesc) -> Vec<Option<DocumentLanguage>> {
    let languages = desc
        .attributes
        .iter()
        .map(|column| if column.is_stored() { DocumentLanguage::of_column(column) } else { None });
    languages.collect()
}

/// The named columns, or all with documents.
///
/// # Errors
/// Where a named one is of another type, or there is none.
pub(super) fn chosen(
    relation: &str,
    desc: &TupleDesc,
    languages: &[Option<DocumentLanguage>],
    names: &[String],
) -> Result<Vec<(usize, DocumentLanguage)>, AdviseError> {
    let mut known: Vec<(usize, &Attribute, &DocumentLanguage)> = Vec::new();
    for (index, (column, language)) in desc.attributes.iter().zip(languages).enumerate() {
        if let (Some(language), false) = (language, column.dropped) {
            known.push((index, column, language));
        }
    }
    let listed: Vec<&str> = known.iter().map(|(_, column, _)| column.name.as_str()).collect();
    let listed = listed.join(", ");
    if names.is_empty() {
        let documents = known.iter().filter(|(_, _, language)| language.is_document());
        let all: Vec<_> =
            documents.map(|&(index, _, language)| (index, language.clone())).collect();
        if !all.is_empty() {
            return Ok(all);
        }
        let hint = known.first().map_or(String::new(), |(_, first, _)| {
            format!(
                "\nHINT:  Arrays and composite types can be analyzed too: {listed}; for example -c {}.",
                first.name
            )
        });
        return Err(AdviseError::Unfit(format!(
            "relation \"{relation}\" has no column of type {TYPES}{hint}"
        )));
    }
    let allowed = if known.is_empty() {
        format!("It has no column of type {TYPES}, of an array type or of a composite type.")
    } else {
        format!("Columns that can be analyzed: {listed}.")
    };
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let mut columns = desc.attributes.iter().filter(|column| !column.dropped);
        let Some(column) = columns.find(|column| column.name == *name) else {
            let text = format!("column \"{name}\" of relation \"{relation}\" does not exist");
            return Err(AdviseError::NoColumn(Message::error(text).hint(allowed)));
        };
        if column.is_virtual {
            return Err(AdviseError::column(name, relation, VIRTUAL, &allowed));
        }
        let Some((index, _, language)) = known.iter().find(|(_, own, _)| own.name == *name) else {
            let why = format!(
                "is of type {}, which has no keys, elements or attributes that toastctl knows",
                column.type_name
            );
            return Err(AdviseError::column(name, relation, &why, &allowed));
        };
        found.push((*index, (*language).clone()));
    }
    Ok(found)
}

/// The named columns of a relation that matched a pattern, if their types have parts, as far as this is known before
/// composite types and domains are looked up in the catalog; otherwise the reason.
pub(super) fn fitting_columns(
    relation: &Relation,
    names: &[String],
) -> Result<Vec<String>, String> {
    let desc = &relation.desc;
    let mut languages = languages(desc);
    for (column, language) in desc.attributes.iter().zip(&mut languages) {
        if names.contains(&column.name) && column.type_oid.0 >= FIRST_OF_USERS {
            language.get_or_insert(DocumentLanguage::Json);
        }
    }
    chosen(&relation.display_name(), desc, &languages, names)
        .map(|_| names.to_vec())
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// That of each column of a relation.
pub(super) async fn languages_of(
    client: &Client,
    relation: &Relation,
) -> Result<Vec<Option<DocumentLanguage>>, LiveError> {
    let mut languages = languages(&relation.desc);
    // domains count as their base types, arrays by element, composite types by attribute
    let sql = "WITH RECURSIVE base (attnum, type, depth) AS (\
                   SELECT a.attnum, a.atttypid, 0 FROM pg_catalog.pg_attribute AS a \
                   WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped \
                 AND a.attgenerated <> 'v' \
                 UNION ALL \
                   SELECT b.attnum, t.typbasetype, b.depth + 1 FROM base AS b \
                   JOIN pg_catalog.pg_type AS t ON t.oid = b.type WHERE t.typtype = 'd' AND b.depth < 100) \
               SELECT b.attnum, t.oid, NULL::pg_catalog.text, e.oid, e.typlen, e.typalign::pg_catalog.text, false, \
                      EXISTS (SELECT FROM pg_catalog.pg_depend AS d \
                              JOIN pg_catalog.pg_extension AS x ON x.oid = d.refobjid AND x.extname = 'hstore' \
                              WHERE d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.objid = t.oid \
                                AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass \
                                AND d.deptype = 'e') AND t.typname = 'hstore' \
               FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype <> 'd' \
               LEFT JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem AND t.typlen = -1 AND e.typarray = t.oid \
               WHERE t.typtype <> 'c' \
               UNION ALL \
               SELECT b.attnum, t.oid, f.attname::pg_catalog.text, f.atttypid, f.attlen, \
                      f.attalign::pg_catalog.text, f.attisdropped, false \
               FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype = 'c' \
               JOIN (SELECT * FROM pg_catalog.pg_attribute ORDER BY attrelid, attnum) AS f \
                 ON f.attrelid = t.typrelid AND f.attnum > 0";
    let rows = client.query_typed(sql, &[(&relation.oid.0, Type::OID)]).await?;
    let mut fields: BTreeMap<usize, Vec<CompositeField>> = BTreeMap::new();
    for row in &rows {
        let attnum: i16 = row.try_get(0)?;
        let base: PgOid = row.try_get(1)?;
        let name: Option<String> = row.try_get(2)?;
        let shape = shape(row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        let Some(index) = usize::try_from(attnum).ok().and_then(|number| number.checked_sub(1))
        else {
            continue;
        };
        match (name, shape) {
            (Some(name), Some(shape)) => {
                let dropped = row.try_get(6)?;
                fields.entry(index).or_default().push(CompositeField { name, shape, dropped });
            }
            (None, shape) => {
                let Some(place) = languages.get_mut(index) else { continue };
                // another type may have the name of the extension's
                let is_hstore: bool = row.try_get(7)?;
                if is_hstore {
                    *place = Some(DocumentLanguage::Hstore);
                } else if matches!(place, None | Some(DocumentLanguage::Hstore)) {
                    *place = DocumentLanguage::built_in(Oid(base))
                        .or(shape.map(DocumentLanguage::Array));
                }
            }
            (Some(_), None) => {}
        }
    }
    for (index, fields) in fields {
        if let Some(place) = languages.get_mut(index) {
            *place = Some(DocumentLanguage::Row(fields.into()));
        }
    }
    Ok(languages)
}

fn shape(
    type_oid: Option<PgOid>,
    length: Option<i16>,
    align: Option<String>,
) -> Option<ElementShape> {
    Some(ElementShape {
        type_oid: Oid(type_oid?),
        length: Length::from_attlen(i64::from(length?))?,
        align: Align::from_char(align?.chars().next()?)?,
    })
}
