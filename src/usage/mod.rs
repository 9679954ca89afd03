//! What a server says of how tables, their columns and the keys of their documents are used.
//!
//! * [`workload`]: counters of a table and of its TOAST relation, and what follows for reads and writes.
//! * [`statements`]: the one reader of `pg_stat_statements`; what texts of SQL say of a column.
//! * [`keys`]: which keys of documents the catalog names; [`hot`]: how small those of indexes are.
//! * [`upkeep`]: when autovacuum starts on a TOAST relation, and what updates log of old rows.

pub(crate) mod hot;
pub(crate) mod keys;
pub(crate) mod statements;
pub(crate) mod upkeep;
pub(crate) mod workload;
