//! Sources without a server: relation files and saved text.
//!
//! * [`file`]: relation files and their segments; [`target`]: a file to read; [`control`]: whether its cluster has page
//!   checksums.
//! * [`other_file`]: files of other kinds that are given by mistake.
//! * [`toastfile`]: chunks from the file of a TOAST relation; [`xact`]: commit status from `pg_xact`.
//! * [`saved`]: saved psql output of pageinspect's functions.

pub mod control;
pub mod file;
pub(crate) mod other_file;
pub mod saved;
pub mod target;
pub mod toastfile;
pub mod xact;
