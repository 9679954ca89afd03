//! Connections to a server, made as psql makes them.
//!
//! [`resolve()`] turns options, environment and files into [`Resolved`], without IO of its own;
//! [`connect`] makes a [`Connection`] of it, which can open others like itself.

mod attempt;
mod canceller;
mod client;
mod conninfo;
mod error;
mod failed;
mod lent;
mod life;
mod params;
mod passfile;
mod resolve;
mod resolved;
mod secret;
mod service;
mod session;
mod settings;
mod surroundings;
mod tls;
mod verify;

pub use attempt::connect;
pub(crate) use canceller::CANCEL_PATIENCE;
pub(crate) use client::OWN;
pub use client::{Client, Statement};
pub use conninfo::is_connection_string;
pub use error::{ConnectError, StatementError, server_message};
pub use lent::are_lent;
pub use params::Params;
pub use resolve::resolve;
pub use resolved::Resolved;
pub use secret::Secret;
pub use session::Connection;
pub use settings::SessionOptions;
#[cfg(feature = "internals")]
pub use surroundings::FileSeen;
pub use surroundings::{Given, Surroundings, ThisProcess};
