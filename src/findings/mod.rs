//! Findings: avoidable costs of a table's large values, each with the command that acts on it.
//!
//! Rules are pure: [`facts`] in, [`finding`]s out. Facts that only pages show come from a bounded sample of
//! blocks, with intervals; a rule reports only what the less favorable end of the interval still supports.
//!
//! * [`code`]: the kinds of findings, with their texts; [`finding`]: one of them.
//! * [`facts`]: what is known about a table; [`rules`]: what follows from it.
//! * [`whole`]: those about a table in parts, from the sums of their facts.
//! * [`look`]: what rows on pages show, [`targets`]: what longer values of `toast_tuple_target` would do to them;
//!   [`content`]: the contents of values and of their last chunks.
//!
//! # How findings are made
//!
//! `inspect::finding_look` examines a bounded sample of the blocks of a table and of its TOAST relation, in the
//! scan's snapshot. It uses pages that the scan has kept (`inspect::kept`); the table's pages are examined while
//! the TOAST relation is being read. `inspect::findings` uses `server::index_scan` to measure the indexes. One
//! type, `fill::meter::FileMeter`, determines how full a file is and what compaction would move. It reads all
//! blocks during the scan, or a sample of them, and its results are intervals, which are exact if all blocks were
//! read. `advise::compaction` uses it for `advise-threshold`. `compact` uses only the block map on which the meter
//! is built (`fill::room`), because its rounds also need to know the location of each row.
//!
//! The rest is pure. `findings::look` counts rows by `judge`, so that findings agree with what `retoast` would do,
//! and has `findings::targets` compute how each row would be stored with longer targets. `usage::workload`
//! determines from a server's counters how many reads and writes were not toastctl's own, and `usage::upkeep` how
//! autovacuum decides about the TOAST relation. Whether a value was stored anew without a change follows from
//! versions of a row on a page (`findings::look`) and fingerprints of dead chunks, which the meter collects
//! (`fill::dead_values`). `findings::rules` reports a finding only if the lower end of its interval justifies it.
//! The exception is free space in a TOAST relation, which is reported as probable if the sizes of its values
//! (`inspect::findings::toast_spare`) or a sample of its pages make it likely. Codes, thresholds and texts are in
//! the table in `findings::code`, from which help and manual pages are generated. Files are examined while they are
//! read (`inspect::file_findings`), for findings that do not depend on settings.
//!
//! The overview of many relations (`inspect::overview`) makes its plan from the catalog (`server::listing`, which
//! waits for no lock) and assigns relations to connections as these become free, the largest first.
//! `inspect::overview::read` chooses the blocks to read next: each round is spread over the whole relation, so that
//! reading can stop after any round when the time is up. `inspect::overview::rank` adds up the lines of parts.

pub mod code;
pub(crate) mod content;
pub(crate) mod facts;
pub mod finding;
pub(crate) mod look;
pub(crate) mod rules;
pub(crate) mod targets;
pub(crate) mod whole;
