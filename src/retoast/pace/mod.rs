//! When and how a run waits for other sessions.
//!
//! * [`rules`]: when it waits (pure); [`garbage`]: the old row versions left for vacuum (pure);
//!   [`slots`]: replication slots that the server may invalidate (pure).
//! * `course`: how much of a conversion is done, and how long the rest will take (pure).
//! * [`metrics`]: the queries; [`measuring`]: the connection that runs them; [`space`]: where a table and the WAL
//!   grow, and the free space there; [`throttle`]: measures and waits; [`patience`]: the limit of all waits.
//! * `ahead`: what plans and forecasts need to know, for many tables at a time.
//! * [`lock_tries`]: attempts to obtain locks, with short timeouts.

pub(crate) mod ahead;
pub(crate) mod course;
pub mod garbage;
pub mod lock_tries;
pub mod measuring;
pub mod metrics;
pub(crate) mod patience;
pub mod rules;
pub mod slots;
pub mod space;
pub mod throttle;
