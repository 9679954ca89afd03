//! Toasters, and the settings that make one the choice of a column.

use std::str::FromStr;

use crate::codec::Method;
use crate::disk::{PageSize, Storage};
use crate::model::TupleTarget;
use crate::model::sql::quote_identifier;

/// What stores a column's long values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Toaster {
    /// Storage `extended`, compressed with this method.
    Compressed(Method),
    /// Storage `external`: out of line, never compressed.
    External,
    /// Storage `main`; the compression method is not changed.
    Main,
    /// Storage `main`, compressed with this method.
    MainCompressed(Method),
    /// Storage `extended`; the compression method is not changed.
    Extended,
    /// Storage `plain`: in the row, never compressed.
    Plain,
}

impl FromStr for Toaster {
    type Err = String;

    fn from_str(text: &str) -> Result<Toaster, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "pglz" => Ok(Toaster::Compressed(Method::Pglz)),
            "lz4" => Ok(Toaster::Compressed(Method::Lz4)),
            "external" => Ok(Toaster::External),
            "main" => Ok(Toaster::Main),
            "main=pglz" => Ok(Toaster::MainCompressed(Method::Pglz)),
            "main=lz4" => Ok(Toaster::MainCompressed(Method::Lz4)),
            "extended" => Ok(Toaster::Extended),
            "plain" => Ok(Toaster::Plain),
            _ => Err(format!(
                "unknown toaster \"{text}\": expected pglz, lz4, external, main[=method], extended or plain"
            )),
        }
    }
}

impl Toaster {
    /// All of them, those that compress first.
    pub const ALL: [Toaster; 8] = [
        Toaster::Compressed(Method::Pglz),
        Toaster::Compressed(Method::Lz4),
        Toaster::External,
        Toaster::Main,
        Toaster::MainCompressed(Method::Pglz),
        Toaster::MainCompressed(Method::Lz4),
        Toaster::Extended,
        Toaster::Plain,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Toaster::Compressed(method) => method.name(),
            Toaster::External => "external",
            Toaster::Main => "main",
            Toaster::MainCompressed(Method::Pglz) => "main=pglz",
            Toaster::MainCompressed(Method::Lz4) => "main=lz4",
            Toaster::Extended => "extended",
            Toaster::Plain => "plain",
        }
    }

    /// The storage (`attstorage`) that the toaster stands for.
    pub fn storage(self) -> Storage {
        match self {
            Toaster::Compressed(_) | Toaster::Extended => Storage::Extended,
            Toaster::External => Storage::External,
            Toaster::Main | Toaster::MainCompressed(_) => Storage::Main,
            Toaster::Plain => Storage::Plain,
        }
    }

    /// Its compression method; `None` if the column's own is used.
    pub fn method(self) -> Option<Method> {
        match self {
            Toaster::Compressed(method) | Toaster::MainCompressed(method) => Some(method),
            _ => None,
        }
    }

    /// Whether it compresses at all.
    pub fn compresses(self) -> bool {
        matches!(self.storage(), Storage::Extended | Storage::Main)
    }
}

/// The current settings of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The column's storage (`attstorage`).
    pub storage: Storage,
    /// `attcompression`; `None` if unset.
    pub compression: Option<Method>,
}

/// A setting that exists only on a server with pluggable TOAST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToasterChange {
    /// The column and its toaster.
    Toaster(String, String),
    /// The column whose compression method is reset.
    NoMethod(String),
}

/// What is done to a table's `toast_tuple_target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetChange {
    /// It is set to this number of bytes, which is not the default.
    Set(TupleTarget),
    /// It is the default that is wanted, which needs no setting.
    Reset,
}

impl TargetChange {
    /// From what the table has to what is requested; `None` if nothing is to be done.
    pub fn new(
        requested: Option<TupleTarget>,
        has: Option<TupleTarget>,
        page: PageSize,
    ) -> Option<TargetChange> {
        match requested {
            Some(target) if target == TupleTarget::default_for(page) => {
                has.map(|_| TargetChange::Reset)
            }
            Some(target) if has != Some(target) => Some(TargetChange::Set(target)),
            _ => None,
        }
    }

    /// The action of `ALTER TABLE`.
    pub fn action(self) -> String {
        match self {
            TargetChange::Set(target) => format!("SET (toast_tuple_target = {target})"),
            TargetChange::Reset => "RESET (toast_tuple_target)".to_owned(),
        }
    }

    /// The target as it is set afterwards.
    pub fn then(self) -> Option<TupleTarget> {
        match self {
            TargetChange::Set(target) => Some(target),
            TargetChange::Reset => None,
        }
    }
}

/// The settings that must be changed to make a toaster the choice of a table's columns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New storage by column.
    pub storage: Vec<(String, Storage)>,
    /// New compression method by column.
    pub compression: Vec<(String, Method)>,
    /// Toasters, in the order of the statement.
    pub toasters: Vec<ToasterChange>,
    /// What is done to `toast_tuple_target`.
    pub target: Option<TargetChange>,
}

impl Changes {
    /// Whether the storage of this column changes.
    pub fn sets_storage(&self, column: &str) -> bool {
        self.storage.iter().any(|(name, _)| name == column)
    }

    /// Whether the compression method of this column changes.
    pub fn sets_compression(&self, column: &str) -> bool {
        self.compression.iter().any(|(name, _)| name == column)
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.storage.is_empty()
            && self.compression.is_empty()
            && self.toasters.is_empty()
            && self.target.is_none()
    }

    /// The differences between the columns' current settings and the choice.
    pub fn new(
        toaster: Toaster,
        columns: &[(String, Current)],
        target: Option<TargetChange>,
    ) -> Changes {
        let mut changes = Changes { target, ..Changes::default() };
        for (name, current) in columns {
            if current.storage != toaster.storage() {
                changes.storage.push((name.clone(), toaster.storage()));
            }
            if let Some(method) = toaster.method().filter(|&m| current.compression != Some(m)) {
                changes.compression.push((name.clone(), method));
            }
        }
        changes
    }

    /// The statement that makes these changes to a table, whose name is quoted: one statement, and so one short lock. `None` if
    /// there is nothing to change.
    pub fn statement(&self, table: &str) -> Option<String> {
        let mut parts = Vec::new();
        for (name, storage) in &self.storage {
            parts.push(set_column(name, &format!("STORAGE {}", storage.name())));
        }
        for (name, method) in &self.compression {
            parts.push(set_column(name, &format!("COMPRESSION {}", method.name())));
        }
        for change in &self.toasters {
            parts.push(match change {
                ToasterChange::Toaster(name, toaster) => {
                    set_column(name, &format!("TOASTER {}", quote_identifier(toaster)))
                }
                ToasterChange::NoMethod(name) => set_column(name, "COMPRESSION default"),
            });
        }
        parts.extend(self.target.map(TargetChange::action));
        (!parts.is_empty()).then(|| format!("ALTER TABLE ONLY {table} {}", parts.join(", ")))
    }
}

fn set_column(name: &str, change: &str) -> String {
    format!("ALTER COLUMN {} SET {change}", quote_identifier(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused() {
        for name in
            ["pglz", "lz4", "external", "main", "main=pglz", "main=lz4", "extended", "plain"]
        {
            assert_eq!(name.parse::<Toaster>().map(Toaster::name), Ok(name));
        }
        assert_eq!("LZ4".parse(), Ok(Toaster::Compressed(Method::Lz4)));
        assert_eq!(
            "zstd".parse::<Toaster>().unwrap_err().to_string(),
            "unknown toaster \"zstd\": expected pglz, lz4, external, main[=method], \
             extended or plain"
        );
    }

    #[test]
    fn only_what_differs_is_set() {
        let page = PageSize::DEFAULT;
        let columns = [
            ("a".to_owned(), Current { storage: Storage::Extended, compression: None }),
            ("b".to_owned(), Current { storage: Storage::Main, compression: Some(Method::Lz4) }),
        ];
        let target = TupleTarget::new(4080, page).ok();
        let lz4 = Toaster::Compressed(Method::Lz4);
        let change = TargetChange::new(target, None, page);
        let changes = Changes::new(lz4, &columns, change);
        assert_eq!(changes.storage, [("b".to_owned(), Storage::Extended)]);
        assert_eq!(changes.compression, [("a".to_owned(), Method::Lz4)]);
        assert_eq!(changes.target.and_then(TargetChange::then), target);
        let main = Changes::new("main=lz4".parse().unwrap(), &columns, None);
        assert_eq!(main.storage, [("a".to_owned(), Storage::Main)]);
        assert_eq!(main.compression, [("a".to_owned(), Method::Lz4)]);
        let same = TargetChange::new(target, target, page);
        assert!(Changes::new(Toaster::Extended, &columns[..1], same).is_empty());
    }

    #[test]
    fn the_default_target_is_no_setting() {
        let page = PageSize::DEFAULT;
        let default = TupleTarget::default_for(page);
        let change = |has| TargetChange::new(Some(default), has, page);
        let high = TupleTarget::new(4080, page).ok();
        assert_eq!(change(None), None);
        assert_eq!(change(high), Some(TargetChange::Reset));
        assert_eq!(change(Some(default)), Some(TargetChange::Reset));
        let changes = Changes { target: change(high), ..Changes::default() };
        let statement = changes.statement(r#""s"."T""#).unwrap();
        assert_eq!(statement, r#"ALTER TABLE ONLY "s"."T" RESET (toast_tuple_target)"#);
    }

    #[test]
    fn settings_are_changed_in_one_statement() {
        let changes = Changes {
            storage: vec![("a\"b".into(), Storage::Extended)],
            compression: vec![("a\"b".into(), Method::Lz4)],
            toasters: Vec::new(),
            target: TupleTarget::new(4080, PageSize::DEFAULT).ok().map(TargetChange::Set),
        };
        insta::assert_snapshot!(changes.statement(r#""s"."T""#).unwrap(), @r##"ALTER TABLE ONLY "s"."T" ALTER COLUMN "a""b" SET STORAGE extended, ALTER COLUMN "a""b" SET COMPRESSION lz4, SET (toast_tuple_target = 4080)"##);
        assert_eq!(Changes::default().statement(r#""s"."T""#), None);
    }
}
