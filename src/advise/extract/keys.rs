//! The keys that `--extract` names, or from which it chooses: how often each is used, as far as anybody knows, and what a
//! few documents tell of them (pure).

use std::collections::HashMap;
use std::str::FromStr;

use serde::Serialize;

use crate::usage::keys::KnownUses;
use toast_format::disk::ByteOrder;
use toast_format::disk::jsonb::split::root_keys;

/// Pages of live servers are read by machines of their byte order.
pub(super) const ORDER: ByteOrder = ByteOrder::Little;

/// More columns than this are not added at once.
const MOST: usize = 100;

const EMPTY: &str = "expected keys, separated by commas; one with a comma in it in double quotes";
const QUOTES: &str = "a double quote is open, or stands inside a key that is not quoted";

/// `--extract`: keys at the root of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extract {
    /// These, each once.
    Keys(Vec<String>),
    /// Those that pay most.
    Auto,
}

impl FromStr for Extract {
    type Err = String;

    fn from_str(text: &str) -> Result<Extract, String> {
        if text == "auto" {
            return Ok(Extract::Auto);
        }
        let keys = parts(text)?;
        if keys.len() > MOST {
            return Err(format!(
                "{} keys are too many: at most {MOST} can be extracted at once",
                keys.len()
            ));
        }
        for (index, key) in keys.iter().enumerate() {
            if keys.iter().take(index).any(|other| other == key) {
                return Err(format!("key \"{key}\" is named twice"));
            }
        }
        Ok(Extract::Keys(keys))
    }
}

/// A key as the option names it.
pub(crate) fn key_word(key: &str) -> String {
    let plain = !key.is_empty() && key != "auto" && !key.contains([',', '"']);
    if plain { key.to_owned() } else { format!("\"{}\"", key.replace('"', "\"\"")) }
}

/// Splits at commas. Inside double quotes a comma is literal, and `""` is a quote.
fn parts(text: &str) -> Result<Vec<String>, String> {
    let mut keys = Vec::new();
    let mut rest = text;
    loop {
        let (key, behind) = match rest.strip_prefix('"') {
            Some(quoted) => in_quotes(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (key, behind) = rest.split_at(end);
                if key.is_empty() {
                    return Err(EMPTY.to_owned());
                }
                if key.contains('"') {
                    return Err(QUOTES.to_owned());
                }
                (key.to_owned(), behind)
            }
        };
        keys.push(key);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None if behind.is_empty() => return Ok(keys),
            None => return Err(QUOTES.to_owned()),
        }
    }
}

/// A key up to its closing quote, and what is behind it.
fn in_quotes(quoted: &str) -> Result<(String, &str), String> {
    let mut key = String::new();
    let mut rest = quoted;
    loop {
        let (before, behind) = rest.split_once('"').ok_or(QUOTES)?;
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

/// The part of all uses that is dealt out by what is known, where something is; the rest is spread evenly.
const KNOWN: f64 = 0.5;

/// What is known of the use of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct KnownUse {
    /// A key, at the root of documents.
    pub key: String,
    /// What names it in the catalog, such as "`index by_state`".
    pub named_in: Vec<String>,
}

/// How often keys are used, as parts of all uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weights {
    /// Keys that most documents have.
    common: usize,
    pub(crate) known: Vec<KnownUse>,
}

impl Weights {
    pub(crate) fn of_keys(common: &[String], column: &str, known: &KnownUses) -> Weights {
        let by_path = known.by_path(column);
        let mut known = Vec::new();
        for key in common {
            if let Some(named) = by_path.get(&vec![Some(key.clone())]) {
                let named_in = named.iter().map(ToString::to_string).collect();
                known.push(KnownUse { key: key.clone(), named_in });
            }
        }
        Weights { common: common.len(), known }
    }

    /// The part of all uses that this key has.
    pub(crate) fn part(&self, key: &str) -> f64 {
        let even = 1.0 / self.common.max(1) as f64;
        let all: usize = self.known.iter().map(|known| known.named_in.len()).sum();
        if all == 0 {
            return even;
        }
        let own = self.known.iter().find(|known| known.key == key);
        let own = own.map_or(0, |known| known.named_in.len());
        (1.0 - KNOWN) * even + KNOWN * own as f64 / all as f64
    }
}

/// Different keys that are counted; documents with more are maps, and no key of theirs is a column.
const MOST_COUNTED: usize = 4096;
/// A column is for what at least this part of the documents has.
const LEAST_PRESENCE: f64 = 0.5;
/// Values of a column are at most this part of the document, and at most so many bytes, on average.
const MOST_SHARE: f64 = 0.1;
const MOST_BYTES: f64 = 500.0;
/// Sets of so many of the first keys are compared.
pub(super) const SETS: [usize; 5] = [1, 2, 4, 8, 16];

/// What a few documents show of their keys.
#[derive(Debug, Default)]
pub(crate) struct Scout {
    documents: f64,
    bytes: f64,
    keys: HashMap<Vec<u8>, KeyCount>,
}

#[derive(Debug, Clone, Copy, Default)]
struct KeyCount {
    documents: f64,
    bytes: f64,
}

impl KeyCount {
    fn mean(&self) -> f64 {
        self.bytes / self.documents.max(1.0)
    }
}

impl Scout {
    /// Counts the keys of a document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn document(&mut self, content: &[u8]) -> Result<(), String> {
        self.documents += 1.0;
        self.bytes += content.len() as f64;
        for (key, value) in root_keys(content, ORDER).map_err(|error| error.to_string())? {
            if self.keys.len() >= MOST_COUNTED && !self.keys.contains_key(key) {
                continue;
            }
            let seen = self.keys.entry(key.to_vec()).or_default();
            seen.documents += 1.0;
            seen.bytes += value.jsonb_size() as f64;
        }
        Ok(())
    }

    /// The keys that most documents have.
    fn common(&self) -> impl Iterator<Item = (&Vec<u8>, &KeyCount)> {
        let least = (self.documents * LEAST_PRESENCE).max(1.0);
        self.keys.iter().filter(move |(_, seen)| seen.documents >= least)
    }

    /// The same as text.
    pub(crate) fn common_keys(&self) -> Vec<String> {
        self.common().filter_map(|(key, _)| String::from_utf8(key.clone()).ok()).collect()
    }

    /// The keys that may be columns, the most used and of these the smallest first.
    pub(crate) fn candidates(&self, weights: &Weights) -> Vec<String> {
        let most = (self.bytes / self.documents.max(1.0) * MOST_SHARE).min(MOST_BYTES);
        let mut small: Vec<(f64, f64, String)> = self
            .common()
            .filter(|(_, seen)| seen.mean() <= most)
            .filter_map(|(key, seen)| {
                let key = String::from_utf8(key.clone()).ok()?;
                Some((weights.part(&key), seen.mean(), key))
            })
            .collect();
        small.sort_by(|(used_a, mean_a, a), (used_b, mean_b, b)| {
            used_b.total_cmp(used_a).then(mean_a.total_cmp(mean_b)).then_with(|| a.cmp(b))
        });
        let most = SETS.last().copied().unwrap_or(0);
        small.into_iter().map(|(_, _, key)| key).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_separated_by_commas() {
        let keys = |text: &str| match text.parse::<Extract>()? {
            Extract::Keys(keys) => Ok(keys),
            Extract::Auto => Err("auto".to_owned()),
        };
        assert_eq!(keys("id").unwrap(), ["id"]);
        assert_eq!(keys("id,Größe,a b").unwrap(), ["id", "Größe", "a b"]);
        assert_eq!(keys(r#""a,b",c,"say ""x""""#).unwrap(), ["a,b", "c", "say \"x\""]);
        assert_eq!(keys(r#""""#).unwrap(), [""]);
        for empty in ["", ",", "a,", ",a", "a,,b"] {
            assert_eq!(keys(empty), Err(EMPTY.to_owned()), "{empty}");
        }
        for odd in ["\"", "\"a", "a\"b", "\"a\"b", "\"a\"\""] {
            assert_eq!(keys(odd), Err(QUOTES.to_owned()), "{odd}");
        }
        assert_eq!(keys("a,b,a"), Err("key \"a\" is named twice".to_owned()));
        for key in ["a,b", "c", "say \"x\"", "", "auto"] {
            assert_eq!(key_word(key).parse(), Ok(Extract::Keys(vec![key.into()])));
        }
        assert_eq!("auto".parse(), Ok(Extract::Auto));
        assert_eq!("\"auto\"".parse(), Ok(Extract::Keys(vec!["auto".into()])));
        let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        let too_many = "101 keys are too many: at most 100 can be extracted at once";
        assert_eq!(keys(&many.join(",")), Err(too_many.to_owned()));
    }
    #[test]
    fn half_of_all_uses_are_as_known() {
        let known = |key: &str, indexes: usize| KnownUse {
            key: key.into(),
            named_in: vec!["index x".to_owned(); indexes],
        };
        let mut weights = Weights { common: 4, known: Vec::new() };
        assert_eq!(weights.part("a"), 0.25);
        weights.known = vec![known("a", 3), known("b", 1)];
        assert_eq!([weights.part("a"), weights.part("b"), weights.part("c")], [0.5, 0.25, 0.125]);
        let all: f64 = ["a", "b", "c", "d"].iter().map(|key| weights.part(key)).sum();
        assert!((all - 1.0).abs() < 1e-9);
    }
}
