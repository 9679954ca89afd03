//! Where pages and values come from.
//!
//! * [`connect`]: connections as psql makes them; [`pattern`]: names as psql takes them.
//! * [`live`]: a server, through pageinspect or SQL functions.
//! * [`file`]: relation files and their segments.
//! * [`toastfile`]: chunks from a TOAST relation's file; [`xact`]: commit status from `pg_xact`.
//! * [`saved`]: what psql printed for pageinspect's functions.
//! * [`hex`]: one value in hexadecimal.
//! * [`columns`]: the columns of a relation given by hand or as rows of `pg_attribute`.
//! * [`missing`]: the size of a missing value from its text form.
//! * [`sample`]: which blocks are read when not all are.
//! * [`sql`]: how identifiers and literals are quoted.

pub mod columns;
pub mod connect;
pub mod file;
pub mod hex;
pub mod live;
pub mod missing;
pub mod pattern;
pub mod sample;
pub mod saved;
pub mod sql;
pub mod toastfile;
pub mod xact;
