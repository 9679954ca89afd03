//! `inspect` and `advise-threshold`, run on a test's database as its superuser.

use crate::support::command::{Run, run, toastctl, verb_of};
use crate::support::reports::inspect::Relation;
use crate::support::reports::{Printed, advise, overview};
use crate::support::server::Database;

/// `inspect`, or the verb that the arguments begin with.
pub(crate) fn inspect(database: &Database<'_>, arguments: &[&str]) -> Run {
    let (verb, arguments) = verb_of("inspect", arguments);
    run(toastctl().args([verb, "-d", &database.url()]).args(arguments))
}

/// The report on one relation.
#[track_caller]
pub(crate) fn relation(database: &Database<'_>, arguments: &[&str]) -> Printed<Relation> {
    inspect(database, &[arguments, &["--format", "json"]].concat()).exits(0).relation()
}

/// The overview of many.
#[track_caller]
pub(crate) fn overview(database: &Database<'_>, arguments: &[&str]) -> Printed<overview::Overview> {
    inspect(database, &[arguments, &["--format", "json"]].concat()).exits(0).report()
}

/// `advise-threshold`, or the verb that the arguments begin with.
pub(crate) fn advise(database: &Database<'_>, arguments: &[&str]) -> Run {
    let (verb, arguments) = verb_of("advise-threshold", arguments);
    run(toastctl().args([verb, "-d", &database.conninfo()]).args(arguments))
}

/// The report of `advise-threshold` on one column.
#[track_caller]
pub(crate) fn advised(database: &Database<'_>, arguments: &[&str]) -> Printed<advise::Report> {
    advise(database, &[arguments, &["--format", "json"]].concat()).exits(0).report()
}
