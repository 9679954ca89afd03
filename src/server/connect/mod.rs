//! Connections to a server, made in the same way as by psql.
//!
//! [`resolve()`] turns options, environment and files into [`Resolved`], without IO of its own. [`connect`] turns that
//! into a [`Connection`], which can open others like itself.

mod attempt;
mod canceller;
mod client;
mod conninfo;
mod error;
mod life;
mod params;
mod resolve;
mod resolved;
mod session;
mod settings;
mod surroundings;
mod tls;
mod verify;

pub use attempt::connect;
pub(crate) use canceller::CANCEL_PATIENCE;
pub(crate) use client::OWN;
pub use client::{Client, Parameter, Statement};
pub use conninfo::is_connection_string;
pub(crate) use conninfo::{KINDS, begins_connection_string, is_of_other_kind};
pub use error::{ConnectError, ConnectResult, StatementError, server_message};
pub use params::Params;
pub use resolve::resolve;
pub use resolved::{Resolved, Secret};
pub use session::{Connection, are_lent};
pub(crate) use settings::CHANGES_SHARDS;
pub use settings::SessionOptions;
pub use surroundings::FileSeen;
pub use surroundings::{Given, Surroundings, ThisProcess};
