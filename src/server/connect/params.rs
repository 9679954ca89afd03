//! The connection parameters of libpq: keywords, environment variables, defaults (`PQconninfoOptions` in
//! `fe-connect.c`), and how far each is supported here.

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

#[derive(Debug)]
struct Definition {
    keyword: &'static str,
    variable: Option<&'static str>,
    support: Support,
}

const fn used(keyword: &'static str, variable: &'static str) -> Definition {
    Definition { keyword, variable: Some(variable), support: Support::Used }
}

const fn used_without_variable(keyword: &'static str) -> Definition {
    Definition { keyword, variable: None, support: Support::Used }
}

const fn no_effect(keyword: &'static str, variable: Option<&'static str>) -> Definition {
    Definition { keyword, variable, support: Support::NoEffect }
}

const fn only(
    keyword: &'static str,
    variable: Option<&'static str>,
    values: &'static [&'static str],
) -> Definition {
    Definition { keyword, variable, support: Support::Only(values) }
}

const DEFINITIONS: &[Definition] = &[
    used("service", "PGSERVICE"),
    used("servicefile", "PGSERVICEFILE"),
    used("user", "PGUSER"),
    used("password", "PGPASSWORD"),
    used("passfile", "PGPASSFILE"),
    used("channel_binding", "PGCHANNELBINDING"),
    used("connect_timeout", "PGCONNECT_TIMEOUT"),
    used("dbname", "PGDATABASE"),
    used("host", "PGHOST"),
    used("hostaddr", "PGHOSTADDR"),
    used("port", "PGPORT"),
    used("options", "PGOPTIONS"),
    used("application_name", "PGAPPNAME"),
    used_without_variable("fallback_application_name"),
    used_without_variable("keepalives"),
    used_without_variable("keepalives_idle"),
    used_without_variable("keepalives_interval"),
    used_without_variable("keepalives_count"),
    used_without_variable("tcp_user_timeout"),
    used("sslmode", "PGSSLMODE"),
    used("sslnegotiation", "PGSSLNEGOTIATION"),
    used("sslcert", "PGSSLCERT"),
    used("sslkey", "PGSSLKEY"),
    used("sslcertmode", "PGSSLCERTMODE"),
    used("sslrootcert", "PGSSLROOTCERT"),
    used("sslsni", "PGSSLSNI"),
    used("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    used("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    used("target_session_attrs", "PGTARGETSESSIONATTRS"),
    used("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    // The session always uses UTF-8.
    no_effect("client_encoding", Some("PGCLIENTENCODING")),
    no_effect("sslcompression", Some("PGSSLCOMPRESSION")),
    no_effect("sslkeylogfile", None),
    no_effect("krbsrvname", Some("PGKRBSRVNAME")),
    no_effect("gsslib", Some("PGGSSLIB")),
    no_effect("gssdelegation", Some("PGGSSDELEGATION")),
    no_effect("min_protocol_version", Some("PGMINPROTOCOLVERSION")),
    no_effect("max_protocol_version", Some("PGMAXPROTOCOLVERSION")),
    only("gssencmode", Some("PGGSSENCMODE"), &["disable", "prefer"]),
    only("requirepeer", Some("PGREQUIREPEER"), &[]),
    only("require_auth", Some("PGREQUIREAUTH"), &[]),
    only("sslcrl", Some("PGSSLCRL"), &[]),
    only("sslcrldir", Some("PGSSLCRLDIR"), &[]),
    only("sslpassword", None, &[]),
    only("replication", None, &["false", "off", "no", "0"]),
    only("scram_client_key", None, &[]),
    only("scram_server_key", None, &[]),
    only("oauth_issuer", None, &[]),
    only("oauth_client_id", None, &[]),
    only("oauth_client_secret", None, &[]),
    only("oauth_scope", None, &[]),
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
