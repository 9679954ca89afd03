//! How often each key is used, as far as anybody knows (pure).

use serde::Serialize;

use crate::advise::keys::used::Known;

/// The part of all uses that is dealt out by what is known, where something is; the rest is spread evenly.
const KNOWN: f64 = 0.5;

/// What is known of the use of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
pub struct KnownUse {
    /// A key, at the root of documents.
    pub key: String,
    /// Calls of statements that name it, by `pg_stat_statements`.
    pub calls: u64,
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
    /// Of these keys of a column.
    pub(crate) fn of(common: &[String], column: &str, known: &Known) -> Weights {
        let (_, by_path) = known.of_column(column);
        let known = common.iter().filter_map(|key| {
            let used = by_path.get(&vec![Some(key.clone())])?;
            let named_in: Vec<String> = used.named.iter().map(ToString::to_string).collect();
            (used.calls > 0 || !named_in.is_empty()).then(|| KnownUse {
                key: key.clone(),
                calls: used.calls,
                named_in,
            })
        });
        Weights { common: common.len(), known: known.collect() }
    }

    /// The part of all uses that is of this key. Calls and what the catalog has count alike, where there are both.
    pub(crate) fn part(&self, key: &str) -> f64 {
        let even = 1.0 / self.common.max(1) as f64;
        let own = self.known.iter().find(|one| one.key == key);
        let share = |of: fn(&KnownUse) -> f64| {
            let all: f64 = self.known.iter().map(of).sum();
            (all > 0.0).then(|| own.map_or(0.0, of) / all)
        };
        let shares: Vec<f64> =
            [share(|one| one.calls as f64), share(|one| one.named_in.len() as f64)]
                .into_iter()
                .flatten()
                .collect();
        if shares.is_empty() {
            return even;
        }
        let known = shares.iter().sum::<f64>() / shares.len() as f64;
        (1.0 - KNOWN) * even + KNOWN * known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_all_uses_are_as_known() {
        let one = |key: &str, calls, named: &[&str]| KnownUse {
            key: key.into(),
            calls,
            named_in: named.iter().map(|&name| name.to_owned()).collect(),
        };
        let mut weights = Weights { common: 4, known: Vec::new() };
        assert_eq!(weights.part("a"), 0.25);
        weights.known = vec![one("a", 30, &[]), one("b", 10, &[])];
        assert_eq!([weights.part("a"), weights.part("b"), weights.part("c")], [0.5, 0.25, 0.125]);
        weights.known = vec![one("a", 30, &["index x"]), one("b", 10, &[])];
        assert_eq!(weights.part("a"), 0.125 + 0.4375);
        let all: f64 = ["a", "b", "c", "d"].iter().map(|key| weights.part(key)).sum();
        assert!((all - 1.0).abs() < 1e-9);
    }
}
