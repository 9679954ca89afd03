//! Everything that needs a live PostgreSQL: one binary, so that one server serves all of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

mod advise;
mod advise_statements;
mod advise_wal;
mod codec_live;
mod command;
mod connect;
mod connect_cli;
#[path = "../../benches/codec/corpora.rs"]
mod corpora;
mod harness;
#[allow(dead_code, reason = "the tests of the codecs alone ask for more")]
#[path = "../codec/inputs.rs"]
mod inputs;
mod inspect_bad;
mod inspect_live;
mod inspect_sample;
mod install;
mod jsonb;
mod model;
#[allow(dead_code, reason = "it is only asked whether it is there")]
#[path = "../../benches/codec/oracle.rs"]
mod oracle;
mod pattern;
mod pluggable;
mod reassemble;
mod retoast;
mod retoast_around;
mod retoast_kill;
mod retoast_manners;
mod retoast_policy;
mod retoast_proof;
mod retoast_shapes;
mod server;
mod standin;
mod table_files;
mod tls;
