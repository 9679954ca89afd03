//! Sources without a server: relation files and saved text.
//!
//! * [`file`]: relation files and their segments; [`target`]: a file to read; [`control`]: whether its cluster has page
//!   checksums.
//! * [`toastfile`]: chunks from the file of a TOAST relation; [`xact`]: commit status from `pg_xact`.
//! * [`saved`]: saved psql output of pageinspect's functions.
//! * [`hex`]: one value in hexadecimal.
//! * [`columns`]: the columns of a relation, written by hand or as rows of `pg_attribute`; [`missing`]: values that no
//!   row contains.

pub mod columns;
pub mod control;
pub mod file;
pub mod hex;
pub mod missing;
pub mod saved;
pub mod target;
pub mod toastfile;
pub mod xact;
