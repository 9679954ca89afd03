//! `inspect --jsonb-keys`: what each key of a column's documents costs, in the terms of `advise-threshold`.
//!
//! * `tree`: the paths of the documents in bounded memory; `node`, `sketch`: what is added up for one;
//!   `language`: the types that have parts; `chosen`: the columns of such types, `shapes`: what the catalog says of them.
//! * `cost`: what a document costs now, and a key in a column of its own.
//! * `figures`: the whole table's figures; [`result`]: the report's type.
//! * [`gather`]: documents added up, whatever their source; `rows`: those of a page; `chunks`: those out of line.
//! * [`live`]: a table of a server, by pages or by SQL; [`files`]: a relation file.

mod chosen;
mod chunks;
mod cost;
mod figures;
pub(crate) mod files;
pub(crate) mod gather;
mod language;
pub(crate) mod live;
mod node;
pub mod result;
mod rows;
mod shapes;
mod sketch;
mod tree;
