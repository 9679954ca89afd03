//! Sources without a server: relation files and saved text.
//!
//! * [`file`]: relation files and their segments; [`target`]: a file to read; [`control`]: whether its cluster has page
//!   checksums.
//! * [`directory`]: directories that are given in place of a file; [`other_file`]: files of other kinds.
//! * [`toastfile`]: chunks from the file of a TOAST relation; [`xact`]: commit status from `pg_xact`.
//! * [`saved`]: saved psql output of pageinspect's functions.

pub mod control;
pub(crate) mod directory;
pub mod file;
pub(crate) mod other_file;
pub mod saved;
pub mod target;
pub mod toastfile;
pub mod xact;
