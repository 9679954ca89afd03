//! The connection parameters of libpq: keywords, environment variables, defaults (`PQconninfoOptions` in
//! `fe-connect.c`), and how far each is supported here.

use Support::{NoEffect, Only, Used};

use super::ConnectError;
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
    DEFINITIONS.iter().any(|definition| definition.keyword == word)
}

#[derive(Debug)]
struct ParameterDefinition {
    keyword: &'static str,
    variable: Option<&'static str>,
    support: Support,
}

const fn define(
    keyword: &'static str,
    variable: Option<&'static str>,
    support: Support,
) -> ParameterDefinition {
    ParameterDefinition { keyword, variable, support }
}

const DEFINITIONS: &[ParameterDefinition] = &[
    define("service", Some("PGSERVICE"), Used),
    define("servicefile", Some("PGSERVICEFILE"), Used),
    define("user", Some("PGUSER"), Used),
    define("password", Some("PGPASSWORD"), Used),
    define("passfile", Some("PGPASSFILE"), Used),
    define("channel_binding", Some("PGCHANNELBINDING"), Used),
    define("connect_timeout", Some("PGCONNECT_TIMEOUT"), Used),
    define("dbname", Some("PGDATABASE"), Used),
    define("host", Some("PGHOST"), Used),
    define("hostaddr", Some("PGHOSTADDR"), Used),
    define("port", Some("PGPORT"), Used),
    define("options", Some("PGOPTIONS"), Used),
    define("application_name", Some("PGAPPNAME"), Used),
    define("fallback_application_name", None, Used),
    define("keepalives", None, Used),
    define("keepalives_idle", None, Used),
    define("keepalives_interval", None, Used),
    define("keepalives_count", None, Used),
    define("tcp_user_timeout", None, Used),
    define("sslmode", Some("PGSSLMODE"), Used),
    define("sslnegotiation", Some("PGSSLNEGOTIATION"), Used),
    define("sslcert", Some("PGSSLCERT"), Used),
    define("sslkey", Some("PGSSLKEY"), Used),
    define("sslcertmode", Some("PGSSLCERTMODE"), Used),
    define("sslrootcert", Some("PGSSLROOTCERT"), Used),
    define("sslsni", Some("PGSSLSNI"), Used),
    define("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION"), Used),
    define("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION"), Used),
    define("target_session_attrs", Some("PGTARGETSESSIONATTRS"), Used),
    define("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), Used),
    // The session always uses UTF-8.
    define("client_encoding", Some("PGCLIENTENCODING"), NoEffect),
    define("sslcompression", Some("PGSSLCOMPRESSION"), NoEffect),
    define("sslkeylogfile", None, NoEffect),
    define("krbsrvname", Some("PGKRBSRVNAME"), NoEffect),
    define("gsslib", Some("PGGSSLIB"), NoEffect),
    define("gssdelegation", Some("PGGSSDELEGATION"), NoEffect),
    define("min_protocol_version", Some("PGMINPROTOCOLVERSION"), NoEffect),
    define("max_protocol_version", Some("PGMAXPROTOCOLVERSION"), NoEffect),
    define("gssencmode", Some("PGGSSENCMODE"), Only(&["disable", "prefer"])),
    define("requirepeer", Some("PGREQUIREPEER"), Only(&[])),
    define("require_auth", Some("PGREQUIREAUTH"), Only(&[])),
    define("sslcrl", Some("PGSSLCRL"), Only(&[])),
    define("sslcrldir", Some("PGSSLCRLDIR"), Only(&[])),
    define("sslpassword", None, Only(&[])),
    define("replication", None, Only(&["false", "off", "no", "0"])),
    define("scram_client_key", None, Only(&[])),
    define("scram_server_key", None, Only(&[])),
    define("oauth_issuer", None, Only(&[])),
    define("oauth_client_id", None, Only(&[])),
    define("oauth_client_secret", None, Only(&[])),
    define("oauth_scope", None, Only(&[])),
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
    pub(crate) fn set(
        &mut self,
        keyword: &str,
        value: impl Into<String>,
    ) -> Result<(), ConnectError> {
        match DEFINITIONS.iter().find(|definition| definition.keyword == keyword) {
            Some(definition) => {
                self.0.insert(definition.keyword, value.into());
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
        for definition in DEFINITIONS {
            if let Some(value) = definition.variable.and_then(|name| environment.get(name)) {
                params.0.insert(definition.keyword, value.clone());
            }
        }
        // This is the variable's name before 7.4; PGSSLMODE takes precedence.
        if environment.get("PGREQUIRESSL").is_some_and(|value| value.starts_with('1')) {
            params.0.entry("sslmode").or_insert_with(|| "require".to_owned());
        }
        params
    }

    /// Refuses parameters that libpq supports and this client does not.
    pub(crate) fn check_support(&self) -> Result<(), ConnectError> {
        for definition in DEFINITIONS {
            let Support::Only(values) = definition.support else { continue };
            if self.get(definition.keyword).is_some_and(|value| !values.contains(&value)) {
                let keyword = definition.keyword;
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
        let mut keywords: Vec<_> = DEFINITIONS.iter().map(|d| d.keyword).collect();
        let mut variables: Vec<_> = DEFINITIONS.iter().filter_map(|d| d.variable).collect();
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
