//! What is measured before a piece of work, and where the progress is shown on the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join3, join4};

use super::{Keeper, State, Table};
use crate::model::sql::quote_literal;
use crate::retoast::listener::Listener;
use crate::retoast::pace::error::PaceError;
use crate::retoast::pace::manners::{Held, Readings};
use crate::retoast::pace::{gauges, space};
use crate::server::LiveError;
use crate::server::connect::Connection;
use crate::server::sqlstate::ErrorKind;

/// How often the session's name tells the progress.
const NAME_EVERY: Duration = Duration::from_secs(2);
/// The longest `application_name` (`NAMEDATALEN - 1`).
const LONGEST_NAME: usize = 63;

impl Keeper {
    pub(super) async fn measure(
        &self,
        state: &mut State,
        listener: &dyn Listener,
    ) -> Result<(), PaceError> {
        let limits = &self.wants.limits;
        let ours = self.measuring.own_processes();
        let oid = state.table.as_ref().map(|table| table.oid);
        let before = self.measuring.connection();
        let (mut readings, active, sizes) = self
            .measuring
            .read(async |connection| {
                let replicas = async {
                    match limits.replica_lag {
                        Some(_) => gauges::replicas(connection).await,
                        None => Ok(Vec::new()),
                    }
                };
                let rewrite = async {
                    match oid {
                        Some(oid) => gauges::rewrite(connection, oid).await,
                        None => Ok(None),
                    }
                };
                // sent together
                let of_server = join4(
                    gauges::wal(connection),
                    replicas,
                    gauges::active_sessions(connection, &ours),
                    gauges::holder(connection),
                );
                let ((lsn, replicas, active, holder), rewrite, slots) =
                    join3(of_server, rewrite, gauges::slots(connection)).await;
                let readings = Readings {
                    lsn: lsn?,
                    replicas: replicas?,
                    slots: slots?,
                    holder: holder?,
                    rewrite: rewrite?.map(|rewrite| rewrite.text),
                    ..Readings::default()
                };
                let active = active?;
                let sizes = match oid {
                    None => None,
                    // the last one, for an error ends the transaction
                    Some(oid) => match gauges::sizes(connection, oid).await {
                        Ok(now) => Some(now),
                        // locked just now: what was measured last holds
                        Err(LiveError::Server(error))
                            if ErrorKind::of(&error) == ErrorKind::Busy =>
                        {
                            None
                        }
                        Err(error) => return Err(error),
                    },
                };
                Ok((readings, active, sizes))
            })
            .await?;
        if let Some(sql) = &limits.throttle_query {
            let ask = async |c: &Connection| gauges::truth(c, sql).await;
            readings.query =
                Some(self.measuring.read_for_user(ask).await.map_err(|error| match error {
                    PaceError::Live(error) => {
                        PaceError::Limit(format!("throttle query {}: {error}", quote_literal(sql)))
                    }
                    other => other,
                })?);
        }
        readings.free = space::free_in(&state.places);
        self.note_slots(&readings.slots);
        if !Arc::ptr_eq(&before, &self.measuring.connection()) {
            listener.note(&format!(
                "{}: the measuring connection was lost, and is made again",
                state.table_name()
            ));
        }
        if active > 0 {
            tracing::debug!("{}: other sessions active: {active}", state.table_name());
            self.noted(|noted| noted.others = Some(Instant::now()));
        }
        if let Some(table) = &mut state.table {
            table.figures.now = sizes.unwrap_or(table.figures.now);
            table.figures.wal = readings.lsn.saturating_sub(table.wal);
            self.noted(|noted| {
                table.figures.bytes = noted.bytes;
                noted.sizes = table.figures.now;
                noted.holder.clone_from(&readings.holder);
                if self.wants.dry_run {
                    // a dry run waits for nobody who does that, and has said so
                    readings.rewrite = None;
                } else {
                    noted.rewrite.clone_from(&readings.rewrite);
                }
                // room that was there before costs nobody anything
                let grown = table.figures.now.sum().saturating_sub(table.figures.before.sum());
                let bytes = noted.garbage.held(noted.horizon()).min(grown);
                readings.dead = noted.garbage.total();
                readings.held = Held { bytes, limit: table.growth_limit };
            });
            listener.figures(&table.figures);
            self.check_growth(table)?;
        }
        state.readings = readings;
        state.measured = Some(Instant::now());
        Ok(())
    }

    fn check_growth(&self, table: &Table) -> Result<(), PaceError> {
        let Some(limit) = self.wants.disk_limit else { return Ok(()) };
        let grown = table.figures.now.sum().saturating_sub(table.figures.before.sum());
        if grown <= limit {
            return Ok(());
        }
        Err(PaceError::Limit(format!(
            "the table with its TOAST relation and indexes has grown by {grown} bytes, more than \
             --disk-limit {limit}\n\
             HINT:  See what holds vacuum back; the same command goes on from here."
        )))
    }

    /// Shows in `pg_stat_activity` how far it is.
    pub(super) async fn name_session(
        &self,
        state: &mut State,
        worker: &Connection,
        paused: bool,
    ) -> Result<(), LiveError> {
        if state.named.is_some_and(|then| then.elapsed() < NAME_EVERY) {
            return Ok(());
        }
        let Some(table) = &state.table else { return Ok(()) };
        let mut percent = 0;
        self.noted(|noted| percent = noted.percent);
        let name = session_name(&table.name, percent, paused);
        let sql = format!("SET application_name = {}", quote_literal(&name));
        worker.client().batch_execute(&sql).await?;
        state.named = Some(Instant::now());
        Ok(())
    }
}

/// `toastctl retoast public.t 42 %`, cut to what the server keeps.
fn session_name(table: &str, percent: u32, paused: bool) -> String {
    let end = if paused { " paused".to_owned() } else { format!(" {percent} %") };
    let room = LONGEST_NAME.saturating_sub(gauges::APPLICATION.len() + 1 + end.len());
    let cut = (0..=room.min(table.len())).rev().find(|&at| table.is_char_boundary(at)).unwrap_or(0);
    format!("{} {}{end}", gauges::APPLICATION, table.get(..cut).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_session_fits_and_ends_with_the_progress() {
        assert_eq!(session_name("public.t", 42, false), "toastctl retoast public.t 42 %");
        let long = format!("public.{}", "ä".repeat(40));
        let name = session_name(&long, 100, false);
        assert!((LONGEST_NAME - 1..=LONGEST_NAME).contains(&name.len()), "{name}");
        assert!(name.ends_with("ä 100 %"), "{name}");
        assert!(session_name(&long, 7, true).ends_with("ä paused"));
    }
}
