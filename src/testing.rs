//! Settings that only tests give, through the environment. Release builds ignore them.

use std::str::FromStr;

/// The value of `TOASTCTL_TEST_` and this name.
pub(crate) fn setting<T: FromStr>(name: &str) -> Option<T> {
    if !cfg!(debug_assertions) {
        return None;
    }
    std::env::var(format!("TOASTCTL_TEST_{name}")).ok()?.parse().ok()
}
