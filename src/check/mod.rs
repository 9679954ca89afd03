//! `check`: whether every value can be read as it was written.
//!
//! * [`code`]: the kinds of damage; [`finding`]: findings, and totals of what was checked, as they are reported.
//! * [`subject`]: the relation whose pages are checked, and the trait that receives what is found on them.
//! * `page`, `tuple`, `value`, `formats`: the checks themselves, which are pure, from pages to contents by their types.
//! * `collector`: the results of some pages; `relation_run`: those of a relation, and the receiver of its findings;
//!   `chunk_index`: the chunks of a TOAST relation.
//! * [`files`]: relation files, also as a source of damaged values; `files_heap`: their blocks in several threads;
//!   `saved_pages`: saved pages.
//! * `live_check`: some blocks of a live table; `live`: all of a table, in batches that are checked twice;
//!   `live_orphans`: its values without a row; `run`: all tables.
//! * `toast_index`: the pages of a TOAST relation's index, before anything is read by it; `index_entries`: those of a damaged one; `live_chunks`: chunks without it.
//! * `visibility_map`: blocks of a table that were lost; `live_map`: the map and the file of a live one, and what an index
//!   says of its rows; `live_rows`: rows that refer to values, and whether the server misreads values of pluggable toasters;
//!   `live_catalog`: what the catalog says.
//! * `salvage_rows`: salvage of damaged rows and of values without a row, from either of two sources, `files` and
//!   `live_evidence`; `salvage`, `salvage_custom`: the bytes that remain of a value (pure); [`salvage_dir`]: the files for
//!   them.
//! * `damaged_row`: a damaged row as it is found again, with its damaged values; `reading`: how a value can be read;
//!   `live_repair`: the facts about both; `repair`: the way to repair each value, or why there is none; `repair_script`: the
//!   SQL (pure).
//! * `alarm`: conditions about what was found.
//!
//! # How damage is found
//!
//! `check::page`, `check::tuple`, `check::value` and `check::formats` are pure: they take bytes and report
//! findings, from the page's header to the content of a value (`check::formats`; on a server, `disk::type_kind` has
//! what the catalog says of the types). `check::subject` holds what they know of a relation, and the trait
//! (`PageFindings`) to which they report findings. `check::files` reads a TOAST relation's file into `check::chunk_index`
//! and then the heap, in several threads. On a server, `check::live_check` reads some blocks in one transaction.
//! `check::live` does this in batches on all connections, and reports only what two reads in two snapshots agree
//! on. Without decompression, only a packed summary of each value's chunks is fetched; a value whose summary looks
//! wrong is then read chunk by chunk. `check::live_orphans` detects by page LSNs which pages changed in the
//! meantime. Missing chunks are searched for without the index (`check::live_chunks`). SQL for damaged rows is text
//! that `check::repair_script` (pure) generates from facts collected by `check::live_repair`: all chunks of the values, and
//! every row that refers to them. It is printed with `--salvage`; REINDEX is printed without it. `check::salvage_rows` reads
//! rows and chunks from a server or from files, and `check::salvage` (pure) puts together what is left of a value, from
//! chunks found on pages or, where these are not the value's alone, by the index. Codes and their texts are in the table in
//! `check::code`; `toastctl help damage` groups them (`cli::manual::topics`). `tests/it/check_zoo.rs` damages a table in each way
//! that `tests/it/support/zoo.rs` lists, and writes the manual page toastctl-damage-kinds from what the check,
//! amcheck and SQL find.

pub(crate) mod alarm;
mod chunk_index;
pub mod code;
mod collector;
mod damaged_row;
pub mod files;
mod files_heap;
pub mod finding;
mod formats;
mod index_entries;
mod live;
mod live_catalog;
mod live_check;
mod live_chunks;
mod live_evidence;
mod live_map;
mod live_orphans;
mod live_repair;
mod live_rows;
mod page;
mod reading;
mod relation_run;
mod repair;
mod repair_script;
pub(crate) mod run;
mod salvage;
mod salvage_custom;
pub mod salvage_dir;
mod salvage_rows;
pub(crate) mod saved_pages;
pub mod subject;
mod toast_index;
mod tuple;
mod value;
mod visibility_map;
