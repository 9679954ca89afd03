//! toastctl: see, predict and change how PostgreSQL stores large values.
//!
//! The layers, from the bottom up; a module uses only those above it in this list:
//!
//! * [`codec`]: pglz and lz4, exactly as the server's.
//! * [`disk`]: pages, tuples, varlenas and TOAST pointers, borrowed from the bytes they stand in.
//! * [`model`]: what a column stores and what another setting would store.
//! * [`source`]: where pages and values come from: a live server, files, saved text.
//! * [`inspect`]: the read-only report on what is stored.
//! * [`advise`]: what other settings would store and cost.
//! * [`retoast`]: bringing what is stored to what was chosen, online.
//! * [`report`]: results as tables, JSON, CSV and Markdown.
//! * [`cli`]: arguments, connection, exit codes, terminal.
//!
//! `codec`, `disk` and `model` are pure: no clock, file, socket or terminal.

pub mod advise;
pub mod cli;
pub mod codec;
pub mod disk;
pub mod inspect;
pub mod model;
pub mod report;
pub mod retoast;
pub mod source;
