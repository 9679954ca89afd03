//! `retoast`: rewrites stored values with the chosen settings, online.
//!
//! * [`sql`]: the text of all statements.
//! * [`check`]: the checks before the first row is changed, and the reasons for refusing a table.
//! * [`pace`]: when work waits for other sessions, and what is measured to decide that.
//! * [`memory`]: what outlives a run, in files and comments.
//! * [`sweep`]: the conversion of values: scans, batches and vacuums, controlled by a state machine without IO.
//! * [`compact`]: returns free space inside files to the operating system.
//! * [`reindex`]: rebuilds indexes that are much larger than fresh ones.
//! * [`plan`]: what a run will do (pure); [`forecast`]: what it will write, and by how much files will grow (pure).
//! * [`compliance`]: how much of a table complies with a policy.
//! * [`departure`]: converts everything that a pluggable toaster stores, and proves it.
//! * [`run`]: a run over the tables of a server: request, sessions, workers.
//! * [`task`]: session, guard, and what else all tasks share.
//! * [`verdict`]: how work ended (pure); [`error`]: why it cannot continue.
//! * [`result`]: the report; [`listener`]: receives progress, and passes on requests to stop or pause.
//!
//! # How values are re-toasted
//!
//! `retoast::sweep::machine` is a state machine without IO: it takes events (batch done, lock not obtained, timer)
//! and answers with actions (run this batch, vacuum, scan again, finish). `retoast::sweep::conversion` carries them
//! out. The work left is whatever a scan finds not to comply, so the table itself is the journal. `judge` decides
//! this: `judge::stock` by `model::toast`, `judge::pluggable` where pointers differ between toasters, and
//! `judge::policy` for a policy. `retoast::sql` and `model::sql` build the statements as text. Before each piece of
//! work, `retoast::pace::throttle` uses a connection of its own to measure (`retoast::pace::metrics`) what the
//! decisions in `retoast::pace::rules` (pure) depend on, and waits if necessary. `retoast::plan` (pure) predicts a
//! sweep.
//!
//! How the server would store a value is determined in one place, `server::trial`: a temporary table in which the
//! server compresses copies. It is used by `advise-threshold --exact`, for verdicts, and for values that a policy
//! re-toasts through a copy. The module also determines how long the rows of that table must be for each page size.
//!
//! CPU times are sums of prices (`model::cost`) times what there is to do: pages, chunks, and the literals and
//! matches of compressed values, which `codec::items` counts without decompressing them. With `--calibrate`,
//! `server::calibrate` times copies of sampled values in tables of the same kind, and `model::fit` fits the prices
//! and returns their error.
//!
//! A batch checks by the versions of the catalog rows (`retoast::preflight::definition`) whether the table's
//! definition, or code that an UPDATE of the table runs, was changed. If so, the batch fails, the definition is
//! read and approved again, and the batch is retried or the run ends. Triggers are disabled only if the table has
//! any, because the setting makes the server discard its plans. Without triggers, the server can reuse the plans of
//! a batch's statements.
//!
//! A batch first makes room for itself: it prunes the pages of its window, and runs plain index scans that mark as
//! dead the index entries left by earlier batches (`retoast::sweep::dead_entries`), so that leaf pages are cleaned
//! before they would split.
//!
//! With `--policy`, `judge::policy` decides value by value: it computes what a server that knew policies would
//! store, and how values must be passed to an `external` column to get there. Sizes are the server's own, from the
//! trial that `retoast::sql::by_policy` describes.
//!
//! Before a conversion changes anything, `retoast::sweep::sample` reads a few pages, has the server compress copies
//! of some values, and counts the keys that rows have in GIN indexes. `retoast::forecast` (pure) follows the WAL
//! records that the sweep, the vacuums, compaction and rebuilding will write, and the growth of the files. A dry
//! run makes the same forecast after its scan, with the rows that it has counted. The check of free space uses the
//! forecast, and the report compares it with what happened. How fast the server writes is not predicted;
//! `retoast::pace::course` derives the time left from what reading, batches and vacuums have taken so far.
//!
//! In the same way, `retoast::sweep::index_entries` determines whether rows would still fit the indexes
//! (`model::index_entry`, pure, which advice and findings use too).
//!
//! Code that conversion, compaction and the rebuilding of indexes share is in `retoast::task`. A `Session` holds
//! the connections, the throttle, the stop and the listener. A `Guard` holds the table as it was approved: every
//! writing transaction starts with the guard's `Opening`, sent in the same round trip as the statements after it,
//! and every reading one with its `Reading`. A catalog that is added to the check therefore protects all tasks.
//! Each task returns a `TaskReport` (`Common` and its own `Work`), and `retoast::run::request::Tasks::next` (pure)
//! determines which task follows. A table is prepared again for each task (`retoast::preflight`); only a conversion
//! has a `Choice`, which holds what is needed to judge rows. `retoast::verdict` (pure) determines how the work
//! ended and what is left, for a task, for a table and for the whole run; the headline and the exit code are
//! derived from it. Failures have exit codes by their kind (`server::sink::Kind`), and the worst one wins
//! (`cli::retoast_output`); `cli::exit` has the numbers. All reasons for giving up are one type, `RetoastError`.
//!
//! `retoast::compact` uses a state machine of its own (`retoast::compact::rounds`, pure) for each file: it
//! determines how full the blocks are (`fill::room`), moves everything beyond the future end of the file, and lets
//! VACUUM truncate it. The verdict is the free space found by a final look. Without access to pages,
//! `fill::lengths` estimates the likely and the minimum length of rows; if the two differ, or a round finds no
//! room, smaller rounds determine how much room there is.
//!
//! `retoast::reindex` comes last, in the same sessions. `server::index_scan` estimates the size of a fresh index
//! (`model::btree`) from a sample of pages. An index that is much larger is rebuilt by the server's REINDEX INDEX
//! CONCURRENTLY, while `retoast::task::watched` monitors which sessions it waits for and which it blocks. The
//! checkpoint file records which rebuilds were started, so that an index left by a kill can be recognized as this
//! program's.
//!
//! `retoast::departure` (`--from-toaster`) converts everything that a toaster of `pg_toaster` stores. It takes a
//! census of the toaster's pointers on pages, including those of dropped columns, runs sweeps, and then, as the
//! proof, takes the census again and checks the catalog. The proof waits for older transactions to end, because
//! tables they created are not visible yet (`retoast::departure::run`); the printed statements check for anything
//! created later (`retoast::departure::steps`).
//!
//! Every scan begins in a single snapshot, and only a scan that also ends in it proves that nothing is left.
//! Otherwise a row that moves during the scan could be missed. As soon as a row to convert is found, the snapshot
//! is released, since it would prevent old versions from being pruned. With a policy, new values never comply by
//! themselves, so there would be no final scan. Scans after the first therefore cover only rows that existed when
//! the second began (`retoast::memory::since::CutOff`). A row that is still at the address it had then cannot have
//! moved, so these scans need no single snapshot.
//!
//! The last scan judges every row, regardless of who wrote it; the report's headline and the exit code are derived
//! from its counts. A row that still does not comply after the sweep has re-toasted it is tried a few more times,
//! and then counted as left. Each batch checks in its own transaction that the definition and settings of the table
//! are still what the sweep needs (`retoast::preflight::definition`), and so do every scan at its beginning and the
//! run at its end.
//!
//! A window has as many pages as its passes need rows (`Tuning::window`), because each transaction has a fixed cost.
//! During the passes, its pages are left half empty, and those of indexes and TOAST too: all current windows together
//! therefore have no more pages than `max-bloat` allows to be dead, or eight each in a small table.
//!
//! With `--jobs`, the windows take turns, pass by pass. The dead rows of a transaction can be pruned only when all
//! transactions that were running at its end have ended; by the time its window's turn comes again, they usually
//! have.

pub mod compact;
pub mod compliance;
pub mod departure;
pub(crate) mod error;
pub mod forecast;
pub mod listener;
pub mod memory;
pub mod pace;
pub mod plan;
pub mod preflight;
pub mod reindex;
pub mod result;
pub mod run;
pub mod sql;
pub mod sweep;
pub mod task;
pub mod verdict;
