//! Names that differ from a mistyped one in few letters: these are inserted, removed, changed or swapped with a neighbor.

use strsim::osa_distance;

/// The maximum number of suggestions.
const SHOWN: usize = 3;

/// The `names` that differ from `wanted` in few letters, the most similar first.
pub fn similar<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    let wanted = without_schema(&wanted.replace('"', ""));
    let length = wanted.chars().count();
    let allowed = length / 3;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let other = without_schema(name);
        let distance = osa_distance(&wanted, &other);
        if distance < length.max(other.chars().count()) || distance == 0 {
            found.push((distance, name.as_str()));
        }
    }
    if found.iter().any(|(distance, _)| *distance <= allowed) {
        found.retain(|(distance, _)| *distance <= allowed);
    } else {
        // An unquoted name that contains a blank ends at the blank.
        let begin = format!("{wanted} ");
        found.retain(|(_, name)| without_schema(name).starts_with(&begin));
    }
    found.sort_unstable();
    found.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

fn without_schema(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_keyboard_are_understood() {
        let names = ["orders", "order_items", "app.customers", "log"].map(str::to_owned);
        assert_eq!(similar("ordres", &names), ["orders"]);
        assert_eq!(similar("public.Orders", &names), ["orders"]);
        assert_eq!(similar("custmers", &names), ["app.customers"]);
        assert_eq!(similar("logs", &names), ["log"]);
        assert_eq!(similar("images", &names), [""; 0]);
        // two letters are near to too many others
        let short = ["f", "id"].map(str::to_owned);
        for other in ["*", "g", "i", "it", "nosuch.*", "x.y"] {
            assert_eq!(similar(other, &short), [""; 0], "{other}");
        }
        assert_eq!(similar("ID", &short), ["id"]);
    }

    #[test]
    fn distances() {
        for (one, other, letters) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(osa_distance(one, other), letters, "{one} {other}");
            assert_eq!(osa_distance(other, one), letters, "{other} {one}");
        }
    }
}
