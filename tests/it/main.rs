//! Everything that needs a live PostgreSQL: one binary, so that one server serves all of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

mod advise;
mod advise_front;
mod advise_owner;
mod advise_statements;
mod advise_wal;
mod check_chains;
mod check_custom;
mod check_files;
mod check_flips;
mod check_live;
mod check_repair;
mod check_salvage;
mod check_soak;
mod codec_live;
mod compact_foretold;
mod connect;
mod connect_cli;
#[path = "../../benches/codec/corpora.rs"]
mod corpora;
mod explain;
mod extract;
mod extract_around;
mod extract_end;
mod extract_owner;
mod extract_partitions;
mod findings;
mod findings_keys;
mod findings_lengths;
#[allow(dead_code, reason = "the tests of the codecs alone ask for more")]
#[path = "../codec/inputs.rs"]
mod inputs;
mod inspect_bad;
mod inspect_live;
mod inspect_sample;
mod jsonb;
mod keys;
mod model;
#[allow(dead_code, reason = "it is only asked whether it is there")]
#[path = "../../benches/codec/oracle.rs"]
mod oracle;
mod overview;
mod pattern;
mod plans;
mod pluggable;
mod pluggable_advice;
mod pluggable_departure;
mod pluggable_estimate;
mod pluggable_real;
mod probe;
mod questions;
mod readme;
mod reassemble;
mod results_kept;
mod retoast;
mod retoast_around;
mod retoast_compact;
mod retoast_compact_ends;
mod retoast_compact_sizes;
mod retoast_complete;
mod retoast_domains;
mod retoast_growth;
mod retoast_horizon;
mod retoast_isolation;
mod retoast_kill;
mod retoast_lost;
mod retoast_manners;
mod retoast_net;
mod retoast_old_entries;
mod retoast_owner;
mod retoast_policy;
mod retoast_pooler;
mod retoast_proof;
mod retoast_reach;
mod retoast_read_only;
mod retoast_reindex;
mod retoast_reindex_around;
mod retoast_rewrite;
mod retoast_settings;
mod retoast_shapes;
mod retoast_since;
mod retoast_slots;
mod retoast_space;
mod retoast_spared;
mod retoast_stalled;
mod retoast_standby;
mod retoast_stuck;
mod retoast_trial;
mod retoast_verdict;
mod soak;
mod support;
mod tls;
mod trial;
mod verbose;
mod words;
