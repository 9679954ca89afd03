//! How a session is set up.

use std::time::Duration;

use toast_format::model::sql::{quote_identifier, quote_literal};

/// The only setting whose value is a list of identifiers.
pub(super) const SEARCH_PATH: &str = "search_path";

/// Lets a session of Citus lock and change shards; ordinary roles may set it.
pub(crate) const CHANGES_SHARDS: &str = "citus.enable_manual_changes_to_shards";

/// How a session is set up. The settings are made for each transaction, because a connection pooler may assign the
/// session only for that long. They are made for the whole session only if it is known to belong to this client
/// ([`Connection::make_own`](super::Connection::make_own)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Whether transactions are read-only.
    pub read_only: bool,
    /// The name in `pg_stat_activity`, unless the user has set one.
    pub application_name: String,
    /// The maximum wait for one lock.
    pub lock_timeout: Duration,
    /// The maximum duration of a statement; zero for no limit.
    pub statement_timeout: Duration,
    /// Further settings, by name.
    pub settings: Vec<(String, String)>,
    /// Whether code of the owners of tables may run with this user's rights.
    pub allows_owner_code: bool,
}

impl SessionOptions {
    /// The session of a verb that only reads, such as `inspect`.
    pub fn read_only(verb: &str) -> SessionOptions {
        SessionOptions { read_only: true, ..SessionOptions::read_write(verb) }
    }

    /// The session of a verb that writes.
    pub fn read_write(verb: &str) -> SessionOptions {
        SessionOptions {
            read_only: false,
            application_name: format!("toastctl {verb}"),
            lock_timeout: Duration::from_secs(10),
            statement_timeout: Duration::ZERO,
            settings: Vec::new(),
            allows_owner_code: false,
        }
    }

    /// The settings, by name, for a server of this version (as `server_version_num`). `has_citus`: whether it has
    /// [`CHANGES_SHARDS`], without which Citus refuses LOCK TABLE for shards, even in a session that only reads.
    ///
    /// They are not startup parameters, because connection poolers refuse unknown ones. Timeouts that the user has set
    /// in `PGOPTIONS` are not changed.
    pub(super) fn settings(
        &self,
        version: u32,
        user_options: Option<&str>,
        has_citus: bool,
    ) -> Vec<(String, String)> {
        // Users who can create objects in other schemas must not be able to replace the operators used here.
        let mut settings: Vec<(&str, String)> =
            vec![(SEARCH_PATH, "pg_catalog, pg_temp".to_owned())];
        let timeouts = [
            ("statement_timeout", 0, self.statement_timeout.as_millis().to_string()),
            ("lock_timeout", 0, self.lock_timeout.as_millis().to_string()),
            ("idle_in_transaction_session_timeout", 90_600, "0".to_owned()),
            ("idle_session_timeout", 140_000, "0".to_owned()),
            ("transaction_timeout", 170_000, "0".to_owned()),
            // With these settings, the server releases the locks and the snapshot of a client that has vanished after
            // at most this time.
            ("tcp_keepalives_idle", 0, "10".to_owned()),
            ("tcp_keepalives_interval", 0, "5".to_owned()),
            ("tcp_keepalives_count", 0, "3".to_owned()),
            ("tcp_user_timeout", 120_000, "25000".to_owned()),
        ];
        for (name, since, value) in timeouts {
            if version >= since && !sets(user_options.unwrap_or_default(), name) {
                settings.push((name, value));
            }
        }
        for (name, value) in [
            ("DateStyle", "ISO"),
            ("IntervalStyle", "postgres"),
            ("extra_float_digits", "3"),
            ("bytea_output", "hex"),
            ("standard_conforming_strings", "on"),
            // Names of types are compared.
            ("quote_all_identifiers", "off"),
            // An error that is expected and handled must not end the session.
            ("exit_on_error", "off"),
        ] {
            settings.push((name, value.to_owned()));
        }
        // JIT compilation would take longer than any of the statements on the catalogs.
        if !sets(user_options.unwrap_or_default(), "jit") {
            settings.push(("jit", "off".to_owned()));
        }
        for (name, value) in &self.settings {
            settings.push((name, value.clone()));
        }
        if self.read_only {
            settings.push(("default_transaction_read_only", "on".to_owned()));
            if has_citus {
                settings.push((CHANGES_SHARDS, "on".to_owned()));
            }
        }
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The statements that make these settings. `set`: `SET`, or `SET LOCAL` for the current transaction.
pub(super) fn set(settings: &[(String, String)], set: &str) -> String {
    settings
        .iter()
        .map(|(name, value): &(String, String)| {
            let value = if name == SEARCH_PATH { value.clone() } else { quote_literal(value) };
            format!("{set} {} = {value};\n", setting_name(name))
        })
        .collect()
}

/// Whether command-line options for the backend set this parameter: `-c name=…`, `-cname=…`, `--name=…`.
fn sets(options: &str, name: &str) -> bool {
    options.split_whitespace().any(|word| {
        let word = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word);
        let set = word.split('=').next().unwrap_or_default().replace('-', "_");
        word.contains('=') && set.eq_ignore_ascii_case(name)
    })
}

/// The name of a setting, with each dotted part quoted.
fn setting_name(name: &str) -> String {
    let parts: Vec<String> = name.split('.').map(quote_identifier).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(options: &SessionOptions, version: u32, user: Option<&str>) -> String {
        set(&options.settings(version, user, false), "SET")
    }

    #[test]
    fn a_reading_session_is_read_only_and_knows_what_its_server_has() {
        let options = SessionOptions::read_only("inspect");
        let sql = set_up(&options, 150_020, None);
        insta::assert_snapshot!(sql, @r#"
        SET "search_path" = pg_catalog, pg_temp;
        SET "statement_timeout" = '0';
        SET "lock_timeout" = '10000';
        SET "idle_in_transaction_session_timeout" = '0';
        SET "idle_session_timeout" = '0';
        SET "tcp_keepalives_idle" = '10';
        SET "tcp_keepalives_interval" = '5';
        SET "tcp_keepalives_count" = '3';
        SET "tcp_user_timeout" = '25000';
        SET "DateStyle" = 'ISO';
        SET "IntervalStyle" = 'postgres';
        SET "extra_float_digits" = '3';
        SET "bytea_output" = 'hex';
        SET "standard_conforming_strings" = 'on';
        SET "quote_all_identifiers" = 'off';
        SET "exit_on_error" = 'off';
        SET "jit" = 'off';
        SET "default_transaction_read_only" = 'on';
        "#);
        let local = set(&options.settings(150_020, None, false), "SET LOCAL");
        assert_eq!(local, sql.replace("SET ", "SET LOCAL "));
        let sql = set_up(&SessionOptions::read_write("retoast"), 170_000, None);
        assert!(sql.contains("transaction_timeout") && !sql.contains("read_only"), "{sql}");
    }

    #[test]
    fn a_reading_session_may_lock_shards_and_a_writing_one_only_if_its_user_has_said_so() {
        let on = format!("SET {} = 'on'", setting_name(CHANGES_SHARDS));
        let of = |options: SessionOptions, has_citus| {
            set(&options.settings(150_000, None, has_citus), "SET").contains(&on)
        };
        assert!(of(SessionOptions::read_only("inspect"), true));
        assert!(!of(SessionOptions::read_only("inspect"), false));
        assert!(!of(SessionOptions::read_write("retoast"), true));
    }

    #[test]
    fn the_users_own_timeout_stays_but_not_his_writes() {
        let options =
            "-c statement_timeout=5min --lock-timeout=1s -cdefault_transaction_read_only=off";
        let sql = set_up(&SessionOptions::read_only("inspect"), 150_000, Some(options));
        assert!(!sql.contains("statement_timeout"), "{sql}");
        assert!(!sql.contains("\"lock_timeout"), "{sql}");
        assert!(sql.contains("SET \"default_transaction_read_only\" = 'on'"), "{sql}");
    }

    #[test]
    fn further_settings_are_quoted() {
        let mut options = SessionOptions::read_only("inspect");
        options.settings.push(("my.s\"et".into(), "it's".into()));
        let sql = set_up(&options, 150_000, None);
        assert!(sql.contains("SET \"my\".\"s\"\"et\" = 'it''s';"), "{sql}");
    }
}
