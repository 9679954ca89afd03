//! Names that somebody may have meant (pure, but for the question which tables there are).

use super::LiveError;
use super::connect::Connection;
use super::visible::visible;

/// Names shown at the most.
const SHOWN: usize = 3;

/// Those of `names` that differ from `wanted` in few letters, the likeliest first.
pub fn similar<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let wanted = bare(&wanted.replace('"', ""));
    let allowed = (wanted.chars().count() / 3).max(1);
    let mut found: Vec<(usize, &str)> = names
        .iter()
        .map(|name| (distance(&wanted, &bare(name)), name.as_str()))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    found.sort_unstable();
    found.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

/// Letters to insert, remove, change or swap with their neighbour to make one word the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut last: Vec<usize> = Vec::new();
    let mut line: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |line: &[usize], j: usize| line.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&line, j) + usize::from(a != b))
                .min(at(&line, j + 1) + 1)
                .min(at(&next, j) + 1);
            if i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a) {
                least = least.min(at(&last, j - 1) + 1);
            }
            next.push(least);
        }
        last = std::mem::replace(&mut line, next);
    }
    line.last().copied().unwrap_or(0)
}

/// A hint on a line of its own for a table that there is not; empty where nothing can be said.
pub async fn tables(connection: &Connection, wanted: &str) -> Result<String, LiveError> {
    let sql = format!(
        "SELECT CASE WHEN {} THEN '' ELSE n.nspname::pg_catalog.text || '.' END \
                || c.relname::pg_catalog.text \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'm', 'p') AND n.nspname <> 'information_schema' \
         AND n.nspname !~ '^pg_' ORDER BY 1 LIMIT 10000",
        visible(connection.schemas())
    );
    let rows = connection.client().query_typed(&sql, &[]).await?;
    let names: Vec<String> =
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, tokio_postgres::Error>>()?;
    if names.is_empty() {
        return Ok("\nHINT:  This database has no tables; -d names another one.".into());
    }
    let found: Vec<String> =
        similar(wanted, &names).iter().map(|name| format!("\"{name}\"")).collect();
    Ok(match found.as_slice() {
        [] => String::new(),
        [one] => format!("\nHINT:  Perhaps you meant the table {one}."),
        several => format!("\nHINT:  Perhaps you meant one of the tables {}.", several.join(", ")),
    })
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
            assert_eq!(distance(one, other), letters, "{one} {other}");
            assert_eq!(distance(other, one), letters, "{other} {one}");
        }
    }
}
