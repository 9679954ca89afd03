//! `check`: whether every value can be read as it was written.
//!
//! * [`code`]: the kinds of damage; [`finding`]: one of them, and what was looked at, as they are reported.
//! * [`subject`]: what is known of a relation, and whom a check tells what it meets.
//! * [`page`], [`tuple`], [`value`], [`content`]: the checks themselves, which are pure; `formats`: contents of types that
//!   consist of parts.
//! * [`collector`]: what the pages of a table gave; [`chunk_index`]: the chunks of a TOAST relation.
//! * [`files`]: relation files and saved pages.
//! * `toast_index`: the pages of a TOAST relation's index, before anything is read by it.
//! * `visibility_map`: blocks of a table that were lost.
//! * [`look`]: one look at some blocks of a live table; `look_readings`: whether the server misreads values of pluggable toasters;
//!   `look_repair`: closer looks at what is damaged;
//!   [`live`]: all of a table, `live_orphans`: its values without a row; `run`: all tables.
//! * `salvage`: what is left of a damaged value and its row, `salvage_custom`: of values of pluggable toasters, [`salvage_dir`]: the files that it is written to;
//!   `damaged_row`: how the row is found again; `repair`: the SQL that makes it readable again.
//! * `alarm`: conditions about what was found.

pub(crate) mod alarm;
pub mod chunk_index;
pub mod code;
pub mod collector;
pub mod content;
mod damaged_row;
pub mod files;
pub mod finding;
mod formats;
pub mod live;
mod live_orphans;
pub mod look;
mod look_readings;
mod look_repair;
pub mod page;
mod reading;
mod repair;
pub(crate) mod run;
mod salvage;
mod salvage_custom;
pub mod salvage_dir;
pub mod subject;
mod toast_index;
pub mod tuple;
pub mod value;
mod visibility_map;
