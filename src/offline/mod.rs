//! Sources without a server: relation files and saved text.
//!
//! * [`file`]: relation files and their segments; [`target`]: one that is to be read; [`control`]: whether its
//!   cluster has page checksums.
//! * [`toastfile`]: chunks from a TOAST relation's file; [`xact`]: commit status from `pg_xact`.
//! * [`saved`]: what psql printed for pageinspect's functions.
//! * [`hex`]: one value in hexadecimal.
//! * [`columns`]: the columns of a relation given by hand or as rows of `pg_attribute`; [`missing`]: values that stand
//!   in no row.

pub mod columns;
pub mod control;
pub mod file;
pub mod hex;
pub mod missing;
pub mod saved;
pub mod target;
pub mod toastfile;
pub mod xact;
