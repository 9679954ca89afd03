//! The time of day at which the sweep works (pure).

use std::fmt;
use std::str::FromStr;

const DAY: u16 = 24 * 60;

/// From one time of day until another, perhaps over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Minutes since midnight at which it opens.
    from: u16,
    /// Minutes since midnight at which it is closed again.
    until: u16,
}

/// A text that is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no time window: expected one such as 22:00-05:00")]
pub struct WindowError(String);

impl Window {
    /// Whether it is open at this minute of the day.
    pub fn contains(self, minute: u16) -> bool {
        if self.from <= self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }
}

/// `HH:MM` as minutes since midnight; 24:00 is the end of the day.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let digits =
        |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(hours) || minutes.len() != 2 || !digits(minutes) {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let all = hours * 60 + minutes;
    (minutes < 60 && all <= DAY).then_some(all)
}

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Window, WindowError> {
        let window = text.split_once('-').and_then(|(from, until)| {
            let window = Window { from: minutes(from)?, until: minutes(until)? };
            (window.from != window.until && window.from < DAY).then_some(window)
        });
        window.ok_or_else(|| WindowError(text.to_owned()))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_go_over_midnight() {
        let open = |window: &str, minute| window.parse::<Window>().unwrap().contains(minute);
        assert!(open("9:00-17:30", 540) && open("9:00-17:30", 1049) && !open("9:00-17:30", 1050));
        assert!(!open("9:00-17:30", 539));
        assert!(open("22:00-05:00", 1320) && open("22:00-05:00", 0) && open("22:00-05:00", 299));
        assert!(!open("22:00-05:00", 300) && !open("22:00-05:00", 1319));
        assert!(open("20:00-24:00", 1439) && !open("20:00-24:00", 0));
    }

    #[test]
    fn every_minute_is_in_a_window_or_in_the_rest_of_the_day() {
        let (day, night): (Window, Window) =
            ("05:00-22:00".parse().unwrap(), "22:00-05:00".parse().unwrap());
        assert!((0..DAY).all(|minute| day.contains(minute) != night.contains(minute)));
    }

    #[test]
    fn it_prints_as_it_is_read_and_what_is_none_is_an_error() {
        assert_eq!("9:05 - 24:00".parse::<Window>().unwrap().to_string(), "09:05-24:00");
        for bad in [
            "",
            "9-17",
            "22:00",
            "25:00-26:00",
            "10:60-11:00",
            "1:1-2:00",
            "9:00-9:00",
            "24:00-05:00",
            "+9:00-10:00",
            "9:00-10:00-11:00",
        ] {
            let error = bad.parse::<Window>().unwrap_err().to_string();
            assert!(error.contains("expected one such as 22:00-05:00"), "{bad}");
        }
    }
}
