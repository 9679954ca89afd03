//! The plans of our statements against users' tables and TOAST relations: we choose them, not the planner.
//!
//! Nothing gathers statistics of TOAST relations, so the planner guesses: on a large one it reads the whole
//! relation, in parallel and with compiled code, to find a thousand chunks by their index. These settings
//! leave it one plan. They are set in our own transactions alone (`SET LOCAL`).

/// Rows by their addresses and chunks by their index, in its order: what is read is what was asked for,
/// whatever the relation's size.
pub(crate) const BY_KEY: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_indexscan = on; SET LOCAL enable_tidscan = on; \
     SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

/// A whole relation, block after block. Whether several processes share it is the server's to say.
pub(crate) const WHOLE: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL jit = off";
