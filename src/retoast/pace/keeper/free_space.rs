//! Free space: whether there is enough of it for a table, and how much is left.

use super::super::error::PaceError;
use super::super::gauges;
use super::super::space::{self, Place};
use super::Keeper;
use crate::retoast::check::ready::PreparedTable;
use crate::retoast::check::refusal::Refusal;
use crate::retoast::plan::Sizes;

impl Keeper {
    /// Looks whether there is space for a table, before anything is done to it. Says how that was
    /// told.
    ///
    /// # Errors
    /// Too little space, or none can be told though the user has set a limit.
    pub async fn check_space(&self, ready: &PreparedTable) -> Result<Option<String>, Refusal> {
        let Some(limit) = self.wants.limits.free_space else { return Ok(None) };
        let name = ready.relation.display_name();
        let (sizes, max_wal_size) = self
            .measuring
            .read(async |connection| {
                let sizes = gauges::sizes(connection, ready.relation.oid).await?;
                Ok((sizes, gauges::max_wal_size(connection.client()).await?))
            })
            .await?;
        let needs = space::needs(&self.places(ready).await?);
        if needs.is_empty() {
            if self.wants.space_given && !self.wants.dry_run {
                return Err(Refusal::Refused(format!(
                    "{name}: free space cannot be told: the server's file system is not seen here\n\
                     HINT:  Use --disk-limit."
                )));
            }
            return Ok(Some(
                "free space is not watched: the server's file system is not seen here".to_owned(),
            ));
        }
        let wal = expected_wal(sizes, max_wal_size);
        let mut all = Vec::new();
        for need in needs {
            // replaced chunks of pluggable toasters stay beside the new ones
            let leaked = if ready.pluggable { need.parts } else { 0 };
            let growth = need.growth(self.wants.max_bloat, wal).saturating_add(leaked);
            let told = format!(
                "{} MB are free {}, {} may grow by {} MB, and {} MB must stay free",
                need.free.bytes >> 20,
                need.free.place,
                need.what(),
                growth >> 20,
                limit >> 20
            );
            if need.free.bytes < growth.saturating_add(limit) && !self.wants.dry_run {
                return Err(Refusal::Refused(format!(
                    "{name}: not enough space: {told}\nHINT:  Make room, or lower --min-free-space."
                )));
            }
            all.push(told);
        }
        Ok(Some(all.join("; ")))
    }

    /// Why there is no room for a new copy of an index of so many bytes, if that is so: the copy, as much WAL,
    /// and as much again for sorting.
    ///
    /// # Errors
    /// Free space cannot be measured.
    pub(crate) async fn no_room_for(&self, bytes: u64) -> Result<Option<String>, PaceError> {
        let state = self.state.lock().await;
        let need = bytes.saturating_mul(3);
        if let (Some(limit), Some(free)) =
            (self.wants.limits.free_space, space::free_in(&state.places))
            && free.bytes < need.saturating_add(limit)
        {
            return Ok(Some(format!(
                "not enough space: {} MB are free {}, the copy, its WAL and sorting may take {} MB, and {} MB \
                 must stay free (--min-free-space)",
                free.bytes >> 20,
                free.place,
                need.div_ceil(1 << 20),
                limit >> 20
            )));
        }
        let Some((limit, table)) = self.wants.disk_limit.zip(state.table.as_ref()) else {
            return Ok(None);
        };
        let now = self.sizes().sum().saturating_add(bytes);
        let grown = now.saturating_sub(table.figures.before.sum());
        Ok((grown > limit).then(|| {
            format!("the copy takes {bytes} bytes, and --disk-limit is {limit} for the whole run")
        }))
    }

    pub(super) async fn places(&self, ready: &PreparedTable) -> Result<Vec<Place>, PaceError> {
        if self.wants.limits.free_space.is_none() {
            return Ok(Vec::new());
        }
        let oid = ready.relation.oid;
        self.measuring.read(async |c| gauges::directories(c.client(), oid).await).await
    }
}

/// Bytes of WAL that are written if all rows are.
pub(super) fn written_for(sizes: Sizes) -> u64 {
    (sizes.heap + sizes.toast).saturating_mul(22) / 10
}

/// Bytes of WAL that are kept until a checkpoint lets them go.
fn expected_wal(sizes: Sizes, max_wal_size: u64) -> u64 {
    written_for(sizes).min(max_wal_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wal_is_kept_until_a_checkpoint() {
        let sizes = Sizes { heap: 1000, toast: 8000, indexes: 1 << 40 };
        assert_eq!(expected_wal(sizes, u64::MAX), 19_800);
        assert_eq!(expected_wal(sizes, 500), 500);
    }
}
