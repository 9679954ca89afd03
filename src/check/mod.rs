//! `inspect --check`: whether every value can be read as it was written.
//!
//! * [`code`]: the kinds of damage; [`finding`]: one of them, and where.
//! * [`subject`]: what is known of a relation, and whom a check tells what it meets.
//! * [`page`], `chain`, [`tuple`], [`value`], [`content`], [`custom`]: the checks themselves, which are pure.
//! * [`collector`]: what the pages of a table gave; [`chunk_index`]: the chunks of a TOAST relation.
//! * [`files`]: relation files; [`saved`]: saved pages.
//! * [`outline`]: values by their chunks' numbers and sizes.
//! * `by_scan`: the chunks of values without the TOAST relation's index.
//! * [`look`]: one look at some blocks of a live table; [`live`]: all of it; `run`: all tables.
//! * [`salvage`]: what is left of a damaged value; [`salvage_dir`]: where it goes.
//! * `damaged_row`: the row of one; `repair`: the SQL that makes it readable again.
//! * [`judged`]: what came out; [`result`]: how it is reported.

mod by_scan;
mod chain;
pub mod chunk_index;
pub mod code;
pub mod collector;
pub mod content;
pub mod custom;
mod damaged_row;
pub mod files;
mod files_worker;
pub mod finding;
pub mod judged;
pub mod live;
mod live_orphans;
mod live_worker;
pub mod look;
mod look_customs;
mod look_repair;
mod look_saved;
mod look_values;
pub mod outline;
pub mod page;
mod repair;
pub mod result;
pub(crate) mod run;
pub mod salvage;
pub mod salvage_dir;
pub mod saved;
pub mod subject;
pub mod tuple;
pub mod value;
