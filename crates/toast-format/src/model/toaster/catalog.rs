//! The toasters of a server (`pg_toaster`), and which one wrote a pointer.

use super::bytea::ByteaPointer;
use super::jsonx::Jsonx;
use crate::codec::Method;
use crate::disk::custom::{CustomLayout, DEFAULT_TOASTER};
use crate::disk::{CustomPointer, Oid, Storage};
use crate::model::sql::shown_qualified;

/// The handler of a toaster's pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Handler {
    /// `default_toaster_handler`: stores values like a stock server.
    Default,
    /// `bytea_toaster_handler`: values to which bytes can be appended.
    Bytea,
    /// `dummy_toaster_handler`: the value is in the pointer.
    Dummy,
    /// `jsonb_toaster_handler`: nested containers are stored separately.
    Jsonb,
    /// A handler of some other toaster.
    Unknown,
}

impl Handler {
    /// The handler with this function name (`tsrhandler`); toasters themselves may have any name.
    pub fn from_function(name: &str) -> Handler {
        match name {
            "default_toaster_handler" => Handler::Default,
            "bytea_toaster_handler" => Handler::Bytea,
            "dummy_toaster_handler" => Handler::Dummy,
            "jsonb_toaster_handler" => Handler::Jsonb,
            _ => Handler::Unknown,
        }
    }

    /// The usual name of its toaster.
    pub fn usual_name(self) -> &'static str {
        match self {
            Handler::Default => "deftoaster",
            Handler::Bytea => "bytea_toaster",
            Handler::Dummy => "dummy_toaster",
            Handler::Jsonb => "jsonb_toaster",
            Handler::Unknown => "unknown",
        }
    }

    /// Which handler wrote `pointer`, judged only by the pointer's bytes: its payload must be exactly in that toaster's
    /// format.
    pub(crate) fn recognize(pointer: &CustomPointer<'_>) -> Handler {
        if pointer.toaster == DEFAULT_TOASTER {
            return Handler::Default;
        }
        if pointer.layout == CustomLayout::Bits32 && Jsonx::parse(pointer).is_ok() {
            return Handler::Jsonb;
        }
        let is_appendable = ByteaPointer::parse(pointer).is_ok_and(|bytea| {
            bytea.external.raw_size_with_header as u32 == pointer.raw_size_with_header
        });
        if is_appendable {
            return Handler::Bytea;
        }
        // Its length field includes the head.
        let value = pointer.payload.len().checked_sub(pointer.layout.head_size());
        if value == Some(pointer.stated_raw_size() as usize) {
            return Handler::Dummy;
        }
        Handler::Unknown
    }
}

/// A row of `pg_toaster`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PluggableToaster {
    /// Its OID, as in pointers.
    pub oid: Oid,
    /// `tsrname`; if the catalog is not available, the usual name of its handler's toaster.
    pub name: String,
    /// The handler, from `tsrhandler`.
    pub handler: Handler,
}

/// The toasters of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toasters {
    rows: Option<Vec<PluggableToaster>>,
}

impl Toasters {
    /// The rows of `pg_toaster`.
    pub fn new(rows: Vec<PluggableToaster>) -> Toasters {
        Toasters { rows: Some(rows) }
    }

    /// For use without `pg_toaster`: pointers are recognized by their bytes.
    pub fn by_bytes() -> Toasters {
        Toasters { rows: None }
    }

    /// The rows; none if the catalog is not available.
    pub fn rows(&self) -> &[PluggableToaster] {
        self.rows.as_deref().unwrap_or(&[])
    }

    /// The toaster with this name.
    pub fn by_name(&self, name: &str) -> Option<&PluggableToaster> {
        self.rows().iter().find(|row| row.name == name)
    }

    /// The toaster that wrote `pointer`; one with [`Handler::Unknown`] if it cannot be determined.
    pub fn writer(&self, pointer: &CustomPointer<'_>) -> PluggableToaster {
        let handler = match &self.rows {
            Some(rows) => match rows.iter().find(|row| row.oid == pointer.toaster) {
                Some(row) => return row.clone(),
                None => Handler::Unknown,
            },
            None => Handler::recognize(pointer),
        };
        let name = match handler {
            Handler::Unknown => format!("toaster {}", pointer.toaster),
            known => known.usual_name().to_owned(),
        };
        PluggableToaster { oid: pointer.toaster, name, handler }
    }
}

/// A column whose values can be toasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToasterColumn {
    /// The OID of its table.
    pub table: Oid,
    /// The schema of its table.
    pub schema: String,
    /// The name of its table.
    pub relation: String,
    /// `pg_class.relkind` of the table.
    pub relkind: char,
    /// Whether the table is temporary.
    pub temporary: bool,
    /// Its index from 0, including dropped columns.
    pub index: usize,
    /// The column's name (`attname`).
    pub name: String,
    /// Its type, as `\d` prints it.
    pub type_name: String,
    /// Its type; for a domain, the innermost base type.
    pub base_type: Oid,
    /// The column's storage (`attstorage`).
    pub storage: Storage,
    /// `attcompression`; `None` if unset.
    pub compression: Option<Method>,
    /// `atttoaster`; the default toaster if the catalog has no such column.
    pub toaster: Oid,
    /// Whether it is dropped; its values stay on pages until their rows are updated.
    pub dropped: bool,
}

impl ToasterColumn {
    /// `schema.name` of its table, as in messages.
    pub fn table_name(&self) -> String {
        shown_qualified(&self.schema, &self.relation)
    }
}
