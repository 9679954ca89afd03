//! The settings of a column: storage, compression method, tuple target and policy, in one type for all verbs.

use std::fmt;
use std::str::FromStr;

use super::policy::{MethodChoice, Policy, SettingsError};
use crate::disk::{PageSize, Storage};

/// `toast_tuple_target`: the tuple length to which the toaster tries to reduce rows, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TupleTarget(u16);

impl TupleTarget {
    /// The minimum that the server accepts.
    pub const MIN: u16 = 128;

    /// The value if the reloption is not set (`TOAST_TUPLE_TARGET`): the threshold.
    pub fn default_for(page: PageSize) -> TupleTarget {
        TupleTarget(page.toast_tuple_threshold() as u16)
    }

    /// Checks that a server with this page size accepts the target.
    pub fn new(bytes: u32, page: PageSize) -> Result<TupleTarget, SettingsError> {
        let max = page.toast_tuple_target_main();
        u16::try_from(bytes)
            .ok()
            .filter(|&b| b >= Self::MIN && usize::from(b) <= max)
            .map(TupleTarget)
            .ok_or(SettingsError::Target { got: bytes.to_string(), min: Self::MIN, max })
    }

    /// The target in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.0)
    }
}

impl FromStr for TupleTarget {
    type Err = SettingsError;

    /// Parses a target for pages of 8 kB.
    fn from_str(text: &str) -> Result<TupleTarget, SettingsError> {
        let page = PageSize::DEFAULT;
        let min = Self::MIN;
        let max = page.toast_tuple_target_main();
        let bytes = text.trim().parse().map_err(|_| SettingsError::Target {
            got: text.into(),
            min,
            max,
        })?;
        TupleTarget::new(bytes, page)
    }
}

impl fmt::Display for TupleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Storage, String> {
        [Storage::Plain, Storage::Main, Storage::External, Storage::Extended]
            .into_iter()
            .find(|s| s.name().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| {
                format!("unknown storage \"{text}\": expected plain, main, external or extended")
            })
    }
}

/// The choice for one column.
///
/// A policy other than `always` describes what an `EXTENDED` or `MAIN` column would contain if the server's decision to
/// compress could be overridden for each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The column's storage (`attstorage`).
    pub storage: Storage,
    /// The column's method (`attcompression`), never "default".
    pub method: MethodChoice,
    /// The relation's `toast_tuple_target` in bytes.
    pub target: TupleTarget,
    /// Which compressed values are kept.
    pub policy: Policy,
}

impl Settings {
    /// Checks that the settings do not contradict each other.
    pub fn check(&self) -> Result<(), SettingsError> {
        let Settings { storage, policy, .. } = *self;
        let compresses = matches!(storage, Storage::Extended | Storage::Main);
        if !compresses && !matches!(policy, Policy::Always | Policy::Never) {
            return Err(SettingsError::NothingToDecide { policy, storage });
        }
        Ok(())
    }

    /// Whether the server's own settings are sufficient, without a decision for each value.
    pub fn is_stock(&self) -> bool {
        let compresses = matches!(self.storage, Storage::Extended | Storage::Main);
        !compresses || (self.policy == Policy::Always && self.method != MethodChoice::Either)
    }

    /// As by [`Display`](fmt::Display), with what each part is: `storage extended, compression lz4`.
    pub fn spelled_out(&self) -> String {
        let mut parts: Vec<String> =
            self.relevant().into_iter().map(|(_, name, value)| format!("{name} {value}")).collect();
        if self.has_default_target() {
            parts.push(format!("toast_tuple_target {}", self.target));
        }
        parts.join(", ")
    }

    /// The relevant settings: what precedes the value in a few words, the setting's name, and the value.
    fn relevant(&self) -> Vec<(&'static str, &'static str, String)> {
        let mut parts = vec![("", "storage", self.storage.name().to_owned())];
        if matches!(self.storage, Storage::Extended | Storage::Main) {
            parts.push((" ", "compression", self.method.to_string()));
            if self.policy != Policy::Always {
                parts.push((" ", "policy", self.policy.to_string()));
            }
        }
        if !self.has_default_target() {
            parts.push((" target ", "toast_tuple_target", self.target.to_string()));
        }
        parts
    }

    fn has_default_target(&self) -> bool {
        self.target == TupleTarget::default_for(PageSize::DEFAULT)
    }
}

impl fmt::Display for Settings {
    /// Writes the relevant settings in a few words, for reports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.relevant().iter().try_for_each(|(before, _, value)| write!(f, "{before}{value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Method;

    #[test]
    fn targets_and_storages_are_checked() {
        let target = |text: &str| text.parse::<TupleTarget>();
        assert_eq!(target("128").unwrap().bytes(), 128);
        assert_eq!(target("8160").unwrap().bytes(), 8160);
        assert_eq!(
            target("127").unwrap_err().to_string(),
            "invalid toast_tuple_target \"127\": expected a whole number from 128 to 8160"
        );
        assert!(target("8161").is_err() && target("2k").is_err() && target("-1").is_err());
        assert_eq!("Main".parse::<Storage>().unwrap(), Storage::Main);
        assert_eq!(
            "toast".parse::<Storage>().unwrap_err().to_string(),
            "unknown storage \"toast\": expected plain, main, external or extended"
        );
    }

    #[test]
    fn contradictions_are_named() {
        let settings = |storage, method, policy: &str| Settings {
            storage,
            method,
            target: TupleTarget::default_for(PageSize::DEFAULT),
            policy: policy.parse().unwrap(),
        };
        let lz4 = MethodChoice::One(Method::Lz4);
        let check = |s: Settings| s.check().map_err(|e| e.to_string());
        assert_eq!(check(settings(Storage::Extended, lz4, "ratio")), Ok(()));
        assert_eq!(
            check(settings(Storage::External, lz4, "ratio")).unwrap_err(),
            "policy \"ratio=0.95\" needs storage extended or main, not external"
        );
        assert!(settings(Storage::External, lz4, "always").is_stock());
        assert!(settings(Storage::Main, lz4, "always").is_stock());
        assert!(!settings(Storage::Extended, MethodChoice::Either, "always").is_stock());
        assert_eq!(
            settings(Storage::Extended, MethodChoice::Either, "best").to_string(),
            "extended either best"
        );
        assert_eq!(
            settings(Storage::Extended, MethodChoice::Either, "best").spelled_out(),
            "storage extended, compression either, policy best, toast_tuple_target 2032"
        );
        assert_eq!(settings(Storage::External, lz4, "always").to_string(), "external");
    }
}
