//! What the catalog, settings and counters say of a table's upkeep: when autovacuum starts on its TOAST relation, and
//! what its updates log of old rows.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::workload::cluster_age;
use crate::server::catalog::option;
use crate::server::{Client, LiveError, Relation};
use crate::testing;
use toast_format::model::sql::quote_identifier;

/// The upkeep of a table with a TOAST relation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Upkeep {
    /// `None` if autovacuum does not decide about its TOAST relation, or there are no counters.
    pub(crate) vacuum: Option<ToastVacuum>,
    /// `None` unless whole old rows are logged although a key would do.
    pub(crate) full_identity: Option<FullIdentity>,
}

/// From how many dead tuples on autovacuum starts (`relation_needs_vacanalyze`, autovacuum.c).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Threshold {
    /// `autovacuum_vacuum_threshold`, in rows.
    pub(crate) base: f64,
    /// `autovacuum_vacuum_scale_factor`, a part of the live rows.
    pub(crate) scale: f64,
    /// `autovacuum_vacuum_max_threshold` (since PostgreSQL 18), if there is one.
    pub(crate) most: Option<f64>,
}

impl Threshold {
    /// The number of dead tuples at which autovacuum starts, in a relation of `tuples`.
    pub(crate) fn dead_tuples(self, tuples: f64) -> f64 {
        let threshold = self.base + self.scale * tuples;
        self.most.map_or(threshold, |most| threshold.min(most))
    }
}

/// How often a TOAST relation is vacuumed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToastVacuum {
    pub(crate) threshold: Threshold,
    /// `pg_class.reltuples`: chunks at the last vacuum.
    pub(crate) chunks: f64,
    /// Chunks deleted since the statistics began, and the vacuums since.
    pub(crate) deleted: f64,
    pub(crate) vacuums: f64,
    /// When the last one ended.
    pub(crate) last: String,
    /// Seconds since the statistics began, or since a time before that.
    pub(crate) age: f64,
    /// Further options of the table that count for its TOAST relation as long as that has none of its own.
    pub(crate) inherited: Vec<String>,
}

/// `REPLICA IDENTITY FULL` of a table that has a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FullIdentity {
    /// `DEFAULT`, or `USING INDEX` with the index.
    pub(crate) instead: String,
    /// Rows updated and deleted since the statistics began.
    pub(crate) changed: f64,
}

/// Options that a TOAST relation takes over from its table, apart from the threshold (`RELOPT_KIND_TOAST`,
/// reloptions.c).
const INHERITED: [&str; 12] = [
    "log_autovacuum_min_duration",
    "autovacuum_vacuum_max_threshold",
    "autovacuum_vacuum_insert_threshold",
    "autovacuum_vacuum_insert_scale_factor",
    "autovacuum_vacuum_cost_delay",
    "autovacuum_vacuum_cost_limit",
    "autovacuum_freeze_min_age",
    "autovacuum_freeze_max_age",
    "autovacuum_freeze_table_age",
    "autovacuum_multixact_freeze_min_age",
    "autovacuum_multixact_freeze_max_age",
    "autovacuum_multixact_freeze_table_age",
];

/// One row about the table $1 and its TOAST relation $2. A TOAST relation without options has those of its table
/// (`table_recheck_autovac`, autovacuum.c). Old rows are logged whole in a permanent table if `wal_level` is logical
/// (`ExtractReplicaIdentity`, heapam.c). A row filter of a publication may need other columns than the key has.
const SQL: &str = "
    SELECT t.reloptions IS NULL, o.options, \
           pg_catalog.current_setting('autovacuum')::pg_catalog.bool \
               AND pg_catalog.current_setting('track_counts')::pg_catalog.bool \
               AND coalesce((SELECT x.option_value::pg_catalog.bool \
                             FROM pg_catalog.pg_options_to_table(o.options) AS x \
                             WHERE x.option_name = 'autovacuum_enabled'), true), \
           pg_catalog.current_setting('autovacuum_vacuum_threshold')::pg_catalog.float8, \
           pg_catalog.current_setting('autovacuum_vacuum_scale_factor')::pg_catalog.float8, \
           pg_catalog.current_setting('autovacuum_vacuum_max_threshold', true)::pg_catalog.float8, \
           t.reltuples::pg_catalog.float8, s.n_tup_del::pg_catalog.float8, \
           (s.vacuum_count + s.autovacuum_count)::pg_catalog.float8, \
           pg_catalog.to_char(greatest(s.last_vacuum, s.last_autovacuum), 'YYYY-MM-DD HH24:MI'), \
           (SELECT extract(epoch FROM pg_catalog.now() - d.stats_reset)::pg_catalog.float8 \
            FROM pg_catalog.pg_stat_database AS d \
            WHERE d.datname = pg_catalog.current_database()), \
           CASE WHEN m.relreplident = 'f' AND m.relpersistence = 'p' \
                     AND 'logical' IN (pg_catalog.current_setting('wal_level'), \
                                       pg_catalog.current_setting('effective_wal_level', true)) \
                     AND NOT EXISTS \
                         (SELECT FROM pg_catalog.pg_publication_rel AS p \
                          WHERE p.prrelid IN (SELECT m.oid UNION ALL \
                                              SELECT a.relid FROM pg_catalog.pg_partition_ancestors(m.oid) AS a) \
                                AND pg_catalog.to_jsonb(p) ->> 'prqual' IS NOT NULL) \
                THEN (SELECT CASE WHEN i.indisprimary THEN '' ELSE x.relname::pg_catalog.text END \
                      FROM pg_catalog.pg_index AS i \
                      JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid \
                      WHERE i.indrelid = m.oid AND i.indisunique AND i.indimmediate AND i.indisvalid \
                            AND i.indpred IS NULL AND i.indexprs IS NULL \
                            AND NOT EXISTS \
                                (SELECT FROM pg_catalog.pg_attribute AS a \
                                 WHERE a.attrelid = m.oid AND NOT a.attnotnull \
                                       AND a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1])) \
                      ORDER BY i.indisprimary DESC, x.relname LIMIT 1) END, \
           (u.n_tup_upd + u.n_tup_del)::pg_catalog.float8 \
    FROM pg_catalog.pg_class AS m \
    JOIN pg_catalog.pg_class AS t ON t.oid = $2, \
    LATERAL (SELECT coalesce(t.reloptions, m.reloptions, '{}')) AS o (options), \
    pg_catalog.pg_stat_all_tables AS s, pg_catalog.pg_stat_all_tables AS u \
    WHERE m.oid = $1 AND s.relid = t.oid AND u.relid = m.oid";

impl Upkeep {
    /// That of a table and of its TOAST relation.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn ask(client: &Client, relation: &Relation) -> Result<Upkeep, LiveError> {
        let Some(toast) = &relation.toast else { return Ok(Upkeep::default()) };
        let about = [(&relation.oid.0 as _, Type::OID), (&toast.oid.0 as _, Type::OID)];
        let Some(row) = client.row(SQL, &about).await? else { return Ok(Upkeep::default()) };
        let mut vacuum = vacuum(&row)?;
        if let Some(vacuum) = &mut vacuum {
            // tests cannot wait for hours
            vacuum.age = match (testing::setting("STATISTICS_AGE"), row.try_get(10)?) {
                (Some(age), _) | (None, Some(age)) => age,
                (None, None) => cluster_age(client).await?,
            };
        }
        let instead = row.try_get::<_, Option<String>>(11)?.map(|index| match index.as_str() {
            "" => "DEFAULT".to_owned(),
            index => format!("USING INDEX {}", quote_identifier(index)),
        });
        let changed = row.try_get(12)?;
        let full_identity = instead.map(|instead| FullIdentity { instead, changed });
        Ok(Upkeep { vacuum, full_identity })
    }
}

/// Everything but the age; `None` if the TOAST relation was never vacuumed, or autovacuum leaves it alone.
fn vacuum(row: &Row) -> Result<Option<ToastVacuum>, LiveError> {
    let decides: bool = row.try_get(2)?;
    let last: Option<String> = row.try_get(9)?;
    let Some(last) = last else { return Ok(None) };
    if !decides {
        return Ok(None);
    }
    let mut options: Vec<String> = row.try_get(1)?;
    // a negative option stands for the setting, but a negative maximum for none
    let base = option::<f64>(&options, "autovacuum_vacuum_threshold").filter(|&base| base >= 0.0);
    let scale =
        option::<f64>(&options, "autovacuum_vacuum_scale_factor").filter(|&scale| scale >= 0.0);
    let threshold = Threshold {
        base: if let Some(base) = base { base } else { row.try_get(3)? },
        scale: if let Some(scale) = scale { scale } else { row.try_get(4)? },
        most: match option::<f64>(&options, "autovacuum_vacuum_max_threshold") {
            Some(most) => Some(most),
            None => row.try_get(5)?,
        }
        .filter(|&most| most >= 0.0),
    };
    let inherited = if row.try_get(0)? {
        options.retain(|option| {
            option.split_once('=').is_some_and(|(name, _)| INHERITED.contains(&name))
        });
        options
    } else {
        Vec::new()
    };
    Ok(Some(ToastVacuum {
        threshold,
        chunks: row.try_get::<_, f64>(6)?.max(0.0),
        deleted: row.try_get(7)?,
        vacuums: row.try_get(8)?,
        last,
        age: 0.0,
        inherited,
    }))
}
