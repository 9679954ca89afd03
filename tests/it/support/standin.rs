//! A stock server that looks like one with pluggable TOAST: it has a table `pg_catalog.pg_toaster`, and
//! its tables' files are those that such a server has written. It is to be read only: no statement
//! may touch the values, which it does not understand.

use crate::support::reports::Printed;
use crate::support::server::{Database, Options, Server};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A server that lets a superuser make what stands in the catalog.
pub(crate) fn start() -> Server {
    Server::start(&Options::default().set("allow_system_table_mods", "on"))
}

/// A table whose files are a capture's.
pub(crate) struct Table {
    pub(crate) name: String,
    /// The files with the server's own OID of the TOAST relation, and the columns beside them.
    pub(crate) dir: tempfile::TempDir,
}

/// Makes `pg_toaster` with the rows that the captures of a server have.
pub(crate) fn make_toasters(database: &Database<'_>, rows: &[Toaster]) {
    let mut sql = "CREATE EXTENSION pageinspect;
        CREATE TABLE pg_catalog.pg_toaster (oid oid, tsrname name, tsrhandler regproc);"
        .to_owned();
    for Toaster { oid, name, handler } in rows {
        sql.push_str(&format!(
            "CREATE FUNCTION {handler}() RETURNS int LANGUAGE sql AS 'SELECT 1';
             INSERT INTO pg_catalog.pg_toaster VALUES ({oid}, '{name}', '{handler}');"
        ));
    }
    database.psql(&sql);
}

/// The directory of a capture.
pub(crate) fn capture(server: &str, table: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captures").join(server).join(table)
}

/// What a capture's `meta.json` says of its server and table.
#[derive(Deserialize)]
pub(crate) struct Meta {
    pub(crate) pg_toaster: Vec<Toaster>,
    pub(crate) toast_relations: Vec<ToastRelation>,
    pub(crate) columns: Vec<Printed<Column>>,
    pub(crate) sql_prelude: Vec<String>,
    pub(crate) sql: Vec<String>,
}

impl Meta {
    /// The columns as the server has described them.
    pub(crate) fn columns(&self) -> Vec<&serde_json::Value> {
        self.columns.iter().map(Printed::json).collect()
    }
}

#[derive(Deserialize)]
pub(crate) struct Toaster {
    pub(crate) oid: u32,
    #[serde(rename = "tsrname")]
    pub(crate) name: String,
    #[serde(rename = "tsrhandler")]
    handler: String,
}

#[derive(Deserialize)]
pub(crate) struct ToastRelation {
    pub(crate) oid: u32,
    pub(crate) values: Vec<Value>,
}

#[derive(Deserialize)]
pub(crate) struct Value {
    pub(crate) chunks: u64,
    pub(crate) stored_bytes: u64,
}

/// A row of `pg_attribute`.
#[derive(Clone, Deserialize)]
pub(crate) struct Column {
    #[serde(rename = "attname")]
    name: String,
    #[serde(rename = "typname")]
    type_name: String,
    #[serde(rename = "attlen")]
    length: i16,
    #[serde(rename = "attstorage")]
    storage: String,
    #[serde(rename = "attisdropped")]
    is_dropped: bool,
}

pub(crate) fn meta(dir: &Path) -> Meta {
    serde_json::from_slice(&std::fs::read(dir.join("meta.json")).unwrap()).unwrap()
}

/// Makes tables of the captures and puts the captures' files in the place of their own. The server is
/// stopped and started again.
pub(crate) fn transplant(database: &Database<'_>, captures: &[PathBuf]) -> Vec<Table> {
    let server = database.server();
    let mut files = Vec::new();
    let mut tables = Vec::new();
    for dir in captures {
        let meta = meta(dir);
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        make_table(database, &name, &meta);
        let shown = database.psql(&format!(
            "SELECT reltoastrelid, pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid)
             FROM pg_class WHERE oid = '{name}'::regclass"
        ));
        let parts: Vec<&str> = shown.split('|').collect();
        let target = tempfile::tempdir().unwrap();
        let theirs = meta.toast_relations.first();
        let renamed = theirs.map(|toast| (toast.oid, parts[0].parse::<u32>().unwrap()));
        for (file, path) in [("heap.bin", parts[1]), ("toast.bin", parts[2])] {
            let Ok(mut bytes) = std::fs::read(dir.join(file)) else { continue };
            forget_lsns(&mut bytes);
            if let (Some((from, to)), "heap.bin") = (renamed, file) {
                replace(&mut bytes, from, to);
            }
            std::fs::write(target.path().join(file), &bytes).unwrap();
            files.push((server.data_dir().join(path), bytes));
        }
        std::fs::copy(dir.join("meta.json"), target.path().join("meta.json")).unwrap();
        tables.push(Table { name, dir: target });
    }
    // what the captures' transactions did is over and done with
    database.psql(
        "DO $$BEGIN FOR i IN 1..6000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$;
         CHECKPOINT",
    );
    server.stop();
    for (path, bytes) in files {
        std::fs::write(path, bytes).unwrap();
    }
    server.start_again();
    for table in &tables {
        database.psql(&format!(
            "DO $$BEGIN EXECUTE 'REINDEX TABLE ' ||
                (SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '{}'::regclass); END$$",
            table.name
        ));
    }
    tables
}

fn make_table(database: &Database<'_>, name: &str, meta: &Meta) {
    let mut columns = Vec::new();
    let mut storage = Vec::new();
    for column in &meta.columns {
        assert!(!column.is_dropped, "{name}");
        columns.push(format!("\"{}\" \"{}\"", column.name, column.type_name));
        let kind = match column.storage.as_str() {
            "p" => "plain",
            "m" => "main",
            "e" => "external",
            _ => "extended",
        };
        if column.length == -1 {
            storage.push(format!("ALTER \"{}\" SET STORAGE {kind}", column.name));
        }
    }
    database.psql(&format!(
        "CREATE TABLE {name} ({}); ALTER TABLE {name} {}",
        columns.join(", "),
        storage.join(", ")
    ));
    // a table whose columns are all plain gets none by itself
    let toast = database
        .psql(&format!("SELECT reltoastrelid FROM pg_class WHERE oid = '{name}'::regclass"));
    assert_ne!(toast, "0", "{name}");
}

/// No page is newer than the server's log.
fn forget_lsns(bytes: &mut [u8]) {
    for page in bytes.chunks_exact_mut(8192) {
        page[..8].fill(0);
    }
}

/// Puts the server's own OID of the TOAST relation into pointers.
fn replace(bytes: &mut [u8], from: u32, to: u32) {
    let (from, to) = (from.to_le_bytes(), to.to_le_bytes());
    let mut at = 0;
    while at + 4 <= bytes.len() {
        if bytes[at..at + 4] == from {
            bytes[at..at + 4].copy_from_slice(&to);
            at += 4;
        } else {
            at += 1;
        }
    }
}
