//! The codecs against PostgreSQL's own and against damaged data.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of it is a test")]

#[path = "../../benches/codec/corpora.rs"]
mod corpora;
mod differential;
mod hostile;
mod inputs;
mod lz4;
#[allow(dead_code, reason = "the benchmark asks for more")]
#[path = "../../benches/codec/oracle.rs"]
mod oracle;
mod properties;
mod reference;
