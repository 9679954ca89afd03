//! Sizes, shares and times for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use toast_format::model::interval::Range;
use x509_cert::der::DateTime;

pub use crate::message::size;

/// A size that may not be known.
pub fn optional_size(bytes: Option<u64>) -> String {
    bytes.map(size).unwrap_or_default()
}

/// A number that may not be known.
pub(super) fn optional_number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// Ends a list of names: ` and 3 more` if there are more than those `shown`.
pub(crate) fn and_more(all: usize, shown: usize) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// The line below a list that a limit cut: `(3 more: --limit)`.
pub(super) fn not_shown(more: u64) -> String {
    format!("({more} more: --limit)")
}

/// A number and its noun: `1 scan`, `2 scans`.
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    let ending = match noun {
        _ if number == 1 => return format!("{number} {noun}"),
        "retry" => return format!("{number} retries"),
        "index" => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// A number in few signs: `9999`, `189 k`, `12 M`.
pub(super) fn short_count(number: u64) -> String {
    let mut rest = number as f64;
    let mut unit = "";
    for larger in [" k", " M", " G", " T"] {
        if rest < 9999.5 {
            break;
        }
        rest /= 1e3;
        unit = larger;
    }
    format!("{rest:.0}{unit}")
}

/// A time in one unit, rounded down: `59 s`, `119 min`, `47 h`, `12 d`.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A part as percents with one digit.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A ratio with two digits.
pub fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// `850 ns`, `12.3 µs`, `4.0 ms`.
pub fn nanoseconds(ns: f64) -> String {
    if ns < 1e3 {
        format!("{ns:.0} ns")
    } else if ns < 1e6 {
        format!("{:.1} µs", ns / 1e3)
    } else {
        format!("{:.1} ms", ns / 1e6)
    }
}

/// `3.2 s`, `4 min 12 s`, `3 h 20 min`.
pub(crate) fn duration(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 3600;
    let seconds = time.as_secs();
    if seconds < 2 * MINUTE {
        format!("{:.1} s", time.as_secs_f64())
    } else if seconds < 2 * HOUR {
        format!("{} min {} s", seconds / MINUTE, seconds % MINUTE)
    } else {
        format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE)
    }
}

/// A time that is not known exactly, in its largest unit: `20 s`, `4 minutes`, `3 hours`.
pub(crate) fn rough_duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => counted(seconds.div_ceil(60), "minute"),
        _ => counted(seconds.div_ceil(3600), "hour"),
    }
}

/// A size and half the width of its interval: `12 kB`, `6850 ±32 bytes`, `32 MB ±900 kB`.
pub(super) fn size_within(estimate: u64, half: u64) -> String {
    let text = size(estimate);
    let within = size(half);
    if half.saturating_mul(1000) <= estimate {
        return text;
    }
    match (text.split_once(' '), within.split_once(' ')) {
        (Some((number, unit)), Some((half, same))) if unit == same => {
            format!("{number} ±{half} {unit}")
        }
        _ => format!("{text} ±{within}"),
    }
}

/// Whole numbers as such, averages of few with a digit.
pub(super) fn plain(value: f64) -> String {
    if value.fract() == 0.0 || value >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// The time, in UTC and to the second, as in 2026-01-31T12:00:00Z.
pub(crate) fn utc() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    DateTime::from_unix_duration(since).map_or_else(|_| String::new(), |time| time.to_string())
}

/// A dry run writes nothing, so that how fast the server is shows only in the run.
pub(super) fn expected_time(seconds: Range) -> String {
    const SHORT: u64 = 60;
    if seconds.high <= SHORT {
        return format!("about {} s if idle", seconds.high);
    }
    let low = rough_duration(seconds.low);
    let high = rough_duration(seconds.high);
    format!("{low} to {high}, depending on the server; the run's first batches will show more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_their_nouns() {
        let counted = |number: u64, noun| super::counted(number, noun);
        assert_eq!([counted(0, "scan"), counted(1, "scan")], ["0 scans", "1 scan"]);
        assert_eq!([counted(1, "retry"), counted(2, "retry")], ["1 retry", "2 retries"]);
    }

    #[test]
    fn numbers_and_ages_are_short() {
        let numbers = [0, 9999, 10_000, 9_999_400, 12_345_678].map(short_count);
        assert_eq!(numbers, ["0", "9999", "10 k", "9999 k", "12 M"]);
        assert_eq!([119, 7199, 172_799, 1 << 24].map(age), ["119 s", "119 min", "47 h", "194 d"]);
    }

    #[test]
    fn times_have_the_units_that_people_use() {
        let texts = [3.24, 119.0, 252.0, 12_000.0].map(|s| duration(Duration::from_secs_f64(s)));
        assert_eq!(texts, ["3.2 s", "119.0 s", "4 min 12 s", "3 h 20 min"]);
        let rough = [1, 20, 230, 9000].map(rough_duration);
        assert_eq!(rough, ["1 s", "20 s", "4 minutes", "3 hours"]);
    }

    #[test]
    fn sizes_say_how_sure_they_are() {
        assert_eq!(size_within(6850, 6), "6850 bytes");
        assert_eq!(size_within(6850, 32), "6850 ±32 bytes");
        assert_eq!(size_within(32 << 20, 900 << 10), "32 MB ±900 kB");
    }
}
