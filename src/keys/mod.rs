//! `keys`: what each key of a column's documents costs, in the terms of `advise-threshold`.
//!
//! * `language`: the types that have parts, and the columns of such types.
//! * `tree`: the paths of the documents in bounded memory, with what is added up for each; `sketch`: how many different
//!   values, and how their sizes spread.
//! * `cost`: what a document costs now, and a key in a column of its own.
//! * [`gather`]: documents on pages and their chunks, added up; `figures`: the whole table's figures; [`result`]: the
//!   report's type.
//! * [`live`]: a table of a server, by pages or by SQL; [`files`]: a relation file.

mod cost;
mod figures;
pub(crate) mod files;
pub(crate) mod gather;
mod language;
pub(crate) mod live;
pub mod result;
mod sketch;
mod tree;
