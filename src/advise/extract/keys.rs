//! The keys that `--extract` names.

use std::str::FromStr;

/// More columns than this are not added at once.
const MOST: usize = 100;

/// `--extract`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extract {
    Keys(Keys),
    /// Those that pay most.
    Auto,
}

impl FromStr for Extract {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Extract, KeysError> {
        match text {
            "auto" => Ok(Extract::Auto),
            keys => keys.parse().map(Extract::Keys),
        }
    }
}

/// Keys at the root of a document, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys(pub(in crate::advise) Vec<String>);

/// Why a list of keys cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("expected keys, separated by commas; one with a comma in it in double quotes")]
    Empty,
    #[error("key \"{0}\" is named twice")]
    Twice(String),
    #[error("{0} keys are too many: at most {MOST} can be extracted at once")]
    TooMany(usize),
    #[error("a double quote is open, or stands inside a key that is not quoted")]
    Quotes,
}

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Keys, KeysError> {
        let keys = parts(text)?;
        if keys.len() > MOST {
            return Err(KeysError::TooMany(keys.len()));
        }
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().take(index).any(|other| other == key) {
                return Err(KeysError::Twice(key.clone()));
            }
        }
        Ok(Keys(keys))
    }
}

/// A key as the option names it.
pub(crate) fn key_word(key: &str) -> String {
    let plain = !key.is_empty() && key != "auto" && !key.contains([',', '"']);
    if plain { key.to_owned() } else { format!("\"{}\"", key.replace('"', "\"\"")) }
}

/// What stands between commas; in double quotes a comma is one of a key, and two double quotes are one.
fn parts(text: &str) -> Result<Vec<String>, KeysError> {
    let mut keys = Vec::new();
    let mut rest = text;
    loop {
        let (key, behind) = match rest.strip_prefix('"') {
            Some(quoted) => in_quotes(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (key, behind) = rest.split_at(end);
                if key.is_empty() {
                    return Err(KeysError::Empty);
                }
                if key.contains('"') {
                    return Err(KeysError::Quotes);
                }
                (key.to_owned(), behind)
            }
        };
        keys.push(key);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None if behind.is_empty() => return Ok(keys),
            None => return Err(KeysError::Quotes),
        }
    }
}

/// A key up to its closing quote, and what is behind it.
fn in_quotes(quoted: &str) -> Result<(String, &str), KeysError> {
    let mut key = String::new();
    let mut rest = quoted;
    loop {
        let (before, behind) = rest.split_once('"').ok_or(KeysError::Quotes)?;
        key.push_str(before);
        match behind.strip_prefix('"') {
            Some(more) => {
                key.push('"');
                rest = more;
            }
            None => return Ok((key, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_separated_by_commas() {
        let keys = |text: &str| text.parse::<Keys>().map(|keys| keys.0);
        assert_eq!(keys("id").unwrap(), ["id"]);
        assert_eq!(keys("id,Größe,a b").unwrap(), ["id", "Größe", "a b"]);
        assert_eq!(keys(r#""a,b",c,"say ""x""""#).unwrap(), ["a,b", "c", "say \"x\""]);
        assert_eq!(keys(r#""""#).unwrap(), [""]);
        for empty in ["", ",", "a,", ",a", "a,,b"] {
            assert_eq!(keys(empty), Err(KeysError::Empty), "{empty}");
        }
        for odd in ["\"", "\"a", "a\"b", "\"a\"b", "\"a\"\""] {
            assert_eq!(keys(odd), Err(KeysError::Quotes), "{odd}");
        }
        assert_eq!(keys("a,b,a"), Err(KeysError::Twice("a".into())));
        for key in ["a,b", "c", "say \"x\"", "", "auto"] {
            assert_eq!(key_word(key).parse(), Ok(Extract::Keys(Keys(vec![key.into()]))));
        }
        assert_eq!("auto".parse(), Ok(Extract::Auto));
        assert_eq!("\"auto\"".parse(), Ok(Extract::Keys(Keys(vec!["auto".into()]))));
        let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        assert_eq!(keys(&many.join(",")), Err(KeysError::TooMany(101)));
    }
}
