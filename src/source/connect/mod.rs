//! Connections to a server, made as psql makes them.
//!
//! [`resolve()`] turns options, environment and files into [`Resolved`], without IO of its own;
//! [`connect`] makes a [`Connection`] of it, which can open others like itself.

mod attempt;
mod conninfo;
mod error;
mod params;
mod passfile;
mod resolve;
mod resolved;
mod secret;
mod service;
mod session;
mod surroundings;
mod tls;
mod verify;

pub use attempt::{Ask, connect};
pub use conninfo::is_connection_string;
pub use error::{ConnectError, StatementError, server_message};
pub use params::Params;
pub use resolve::{DEFAULT_PORT, DEFAULT_SOCKET_DIRS, resolve};
pub use resolved::{
    ChannelBinding, Place, Resolved, RootCertificates, SslMode, Target, TargetSession, TcpParams,
    TlsParams,
};
pub use secret::Secret;
pub use session::{Canceller, Connection, SessionOptions};
pub use surroundings::{FileSeen, Given, Surroundings, ThisProcess};
