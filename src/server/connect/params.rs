//! The connection parameters of libpq: keywords, environment variables, defaults (`PQconninfoOptions` in
//! `fe-connect.c`), and how far each is supported here.

use Support::{NoEffect, Only, Used};

use super::{ConnectError, ConnectResult};
use std::collections::BTreeMap;
use std::fmt;

/// How far a parameter is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    /// It has the same effect as in libpq.
    Used,
    /// It is ignored, because what it configures does not exist here.
    NoEffect,
    /// Other values would change security; only these, which mean what is done anyway, are accepted.
    Only(&'static [&'static str]),
}

/// Whether libpq has a parameter with this keyword.
pub(super) fn is_keyword(word: &str) -> bool {
    DEFINITIONS.iter().any(|(keyword, ..)| *keyword == word)
}

/// The parameters: keyword, environment variable, and how far each is supported.
const DEFINITIONS: &[(&str, Option<&str>, Support)] = &[
    ("service", Some("PGSERVICE"), Used),
    ("servicefile", Some("PGSERVICEFILE"), Used),
    ("user", Some("PGUSER"), Used),
    ("password", Some("PGPASSWORD"), Used),
    ("passfile", Some("PGPASSFILE"), Used),
    ("channel_binding", Some("PGCHANNELBINDING"), Used),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT"), Used),
    ("dbname", Some("PGDATABASE"), Used),
    ("host", Some("PGHOST"), Used),
    ("hostaddr", Some("PGHOSTADDR"), Used),
    ("port", Some("PGPORT"), Used),
    ("options", Some("PGOPTIONS"), Used),
    ("application_name", Some("PGAPPNAME"), Used),
    ("fallback_application_name", None, Used),
    ("keepalives", None, Used),
    ("keepalives_idle", None, Used),
    ("keepalives_interval", None, Used),
    ("keepalives_count", None, Used),
    ("tcp_user_timeout", None, Used),
    ("sslmode", Some("PGSSLMODE"), Used),
    ("sslnegotiation", Some("PGSSLNEGOTIATION"), Used),
    ("sslcert", Some("PGSSLCERT"), Used),
    ("sslkey", Some("PGSSLKEY"), Used),
    ("sslcertmode", Some("PGSSLCERTMODE"), Used),
    ("sslrootcert", Some("PGSSLROOTCERT"), Used),
    ("sslsni", Some("PGSSLSNI"), Used),
    ("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION"), Used),
    ("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION"), Used),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS"), Used),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), Used),
    // The session always uses UTF-8.
    ("client_encoding", Some("PGCLIENTENCODING"), NoEffect),
    ("sslcompression", Some("PGSSLCOMPRESSION"), NoEffect),
    ("sslkeylogfile", None, NoEffect),
    ("krbsrvname", Some("PGKRBSRVNAME"), NoEffect),
    ("gsslib", Some("PGGSSLIB"), NoEffect),
    ("gssdelegation", Some("PGGSSDELEGATION"), NoEffect),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION"), NoEffect),
    ("max_protocol_version", Some("PGMAXPROTOCOLVERSION"), NoEffect),
    ("gssencmode", Some("PGGSSENCMODE"), Only(&["disable", "prefer"])),
    ("requirepeer", Some("PGREQUIREPEER"), Only(&[])),
    ("require_auth", Some("PGREQUIREAUTH"), Only(&[])),
    ("sslcrl", Some("PGSSLCRL"), Only(&[])),
    ("sslcrldir", Some("PGSSLCRLDIR"), Only(&[])),
    ("sslpassword", None, Only(&[])),
    ("replication", None, Only(&["false", "off", "no", "0"])),
    ("scram_client_key", None, Only(&[])),
    ("scram_server_key", None, Only(&[])),
    ("oauth_issuer", None, Only(&[])),
    ("oauth_client_id", None, Only(&[])),
    ("oauth_client_secret", None, Only(&[])),
    ("oauth_scope", None, Only(&[])),
];

/// Parameters and their values. `Debug` hides secret ones.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<&'static str, String>);

impl Params {
    /// The value of a parameter; an empty value counts as none, as in libpq.
    pub(crate) fn get(&self, keyword: &str) -> Option<&str> {
        self.0.get(keyword).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The parameters that are set.
    pub(crate) fn keywords(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Whether the parameter was given, even with an empty value.
    pub(crate) fn is_given(&self, keyword: &str) -> bool {
        self.0.contains_key(keyword)
    }

    /// Sets a parameter, replacing an earlier value.
    ///
    /// # Errors
    /// There is no such parameter.
    pub(crate) fn set(&mut self, keyword: &str, value: impl Into<String>) -> ConnectResult<()> {
        match DEFINITIONS.iter().find(|(known, ..)| *known == keyword) {
            Some((known, ..)) => {
                self.0.insert(known, value.into());
                Ok(())
            }
            None => Err(ConnectError::usage(format!("invalid connection option \"{keyword}\""))),
        }
    }

    /// Adds those of `others` that are not set here.
    pub(crate) fn fill(&mut self, others: Params) {
        for (keyword, value) in others.0 {
            self.0.entry(keyword).or_insert(value);
        }
    }

    /// Adds all of `others`, replacing values that are set here.
    pub(crate) fn override_with(&mut self, others: Params) {
        self.0.extend(others.0);
    }

    /// The parameters set by environment variables.
    pub(crate) fn from_environment(environment: &BTreeMap<String, String>) -> Params {
        let mut params = Params::default();
        for (keyword, variable, _) in DEFINITIONS {
            if let Some(value) = variable.and_then(|name| environment.get(name)) {
                params.0.insert(keyword, value.clone());
            }
        }
        // This is the variable's name before 7.4; PGSSLMODE takes precedence.
        if environment.get("PGREQUIRESSL").is_some_and(|value| value.starts_with('1')) {
            params.0.entry("sslmode").or_insert_with(|| "require".to_owned());
        }
        params
    }

    /// Refuses parameters that libpq supports and this client does not.
    pub(crate) fn check_support(&self) -> ConnectResult<()> {
        for (keyword, _, support) in DEFINITIONS {
            let Support::Only(values) = support else { continue };
            if self.get(keyword).is_some_and(|value| !values.contains(&value)) {
                return Err(ConnectError::usage(format!(
                    "connection option \"{keyword}\" is not supported"
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |keyword: &str, value: &str| {
            let secret = ["password", "secret", "_key"].iter().any(|word| keyword.contains(word));
            if secret { "…".to_owned() } else { value.to_owned() }
        };
        f.debug_map().entries(self.0.iter().map(|(k, v)| (*k, shown(k, v)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_and_variable_is_there_once() {
        let mut keywords: Vec<_> = DEFINITIONS.iter().map(|(keyword, ..)| *keyword).collect();
        let mut variables: Vec<_> =
            DEFINITIONS.iter().filter_map(|(_, variable, _)| *variable).collect();
        for names in [&mut keywords, &mut variables] {
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
        assert!(variables.iter().all(|name| name.starts_with("PG")));
    }

    #[test]
    fn what_cannot_be_done_is_refused_rather_than_forgotten() {
        let mut params = Params::default();
        params.set("gssencmode", "prefer").unwrap();
        params.set("sslcrl", "").unwrap();
        params.check_support().unwrap();
        params.set("require_auth", "scram-sha-256").unwrap();
        let error = params.check_support().unwrap_err();
        assert_eq!(error.to_string(), "connection option \"require_auth\" is not supported");
    }

    #[test]
    fn debug_shows_no_secret() {
        let mut params = Params::default();
        params.set("password", "open sesame").unwrap();
        params.set("user", "ali").unwrap();
        let shown = format!("{params:?}");
        assert!(shown.contains("ali") && !shown.contains("sesame"), "{shown}");
    }
}
