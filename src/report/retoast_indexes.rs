//! What `retoast` reports of indexes.

use super::document::Document;
use super::table::{printable, statement};
use super::units::size;
use crate::retoast::plan::Sizes;
use crate::retoast::result::{IndexEnd, IndexReport, TableReport};

/// Bytes that rebuilding the bloated indexes would return.
pub(super) fn spare(table: &TableReport) -> u64 {
    let bloated = table.indexes.iter().filter(|index| index.ended == IndexEnd::Bloated);
    let spare =
        bloated.map(|index| index.before.saturating_sub(index.expected.unwrap_or(index.before)));
    spare.fold(0, u64::saturating_add)
}

/// The result for each index; indexes that are not bloated have none.
pub(super) fn lines(table: &TableReport, document: &mut Document) {
    for text in table.indexes.iter().filter_map(line) {
        document.line(&printable(&text), 7);
    }
    let Sizes { indexes: before, .. } = table.common.before;
    let grown = table.common.after.indexes.saturating_sub(before);
    if grown > 0 && table.indexes.iter().any(|index| index.ended == IndexEnd::NotKnown) {
        document.line(
            &format!(
                "left: indexes take {} more than before: rows that were stored anew have new entries in indexes that \
                 were not rebuilt (--reindex=all rebuilds them)",
                size(grown)
            ),
            7,
        );
    }
}

fn line(index: &IndexReport) -> Option<String> {
    let name = &index.index;
    let before = size(index.before);
    let reason = index.reason.as_deref().unwrap_or("not known");
    let todo = index
        .command
        .as_ref()
        .map_or_else(String::new, |sql| format!("; to do: {};", statement(sql)));
    let expected = index.expected.map(size);
    Some(match index.ended {
        IndexEnd::Kept => return None,
        IndexEnd::Bloated => {
            format!("index: {name}: {before}, about {} if rebuilt", expected.unwrap_or_default())
        }
        IndexEnd::Planned => match expected {
            Some(expected) => {
                let wal = index
                    .wal_expected
                    .map_or_else(String::new, |wal| format!(", with {} of WAL", size(wal)));
                format!("index: {name}: {before} would become {expected}{wal}")
            }
            None => {
                format!(
                    "index: {name}: {before}, would be rebuilt; its size afterwards is not known: {reason}"
                )
            }
        },
        IndexEnd::Rebuilt => format!(
            "index: {name}: {before} became {}{}",
            index.after.map_or_else(|| "?".to_owned(), size),
            expected.map_or_else(String::new, |expected| format!(" ({expected} expected)"))
        ),
        IndexEnd::NotKnown => {
            format!("index: {name}: {before}, size after a rebuild is not known: {reason}")
        }
        IndexEnd::Refused => format!("index: {name}: not rebuilt: {reason}"),
        IndexEnd::Left => format!("left: index {name}: {before}: {reason}{todo}"),
        IndexEnd::Dropped => {
            format!("index: {name}: dropped; an interrupted rebuild had left it behind")
        }
        IndexEnd::Invalid => format!("left: invalid index {name}: {before}: {reason}{todo}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(ended: IndexEnd) -> IndexReport {
        IndexReport {
            index: "public.t_pkey".into(),
            ended,
            before: 2200 << 10,
            expected: Some(1096 << 10),
            wal_expected: Some(992 << 10),
            after: None,
            reason: None,
            command: Some("REINDEX INDEX CONCURRENTLY public.t_pkey".into()),
        }
    }

    #[test]
    fn each_end_is_told() {
        let because = |ended, reason: &str| IndexReport {
            reason: Some(reason.into()),
            command: None,
            ..index(ended)
        };
        let all = [
            index(IndexEnd::Bloated),
            index(IndexEnd::Planned),
            IndexReport { after: Some(1104 << 10), ..index(IndexEnd::Rebuilt) },
            because(IndexEnd::NotKnown, "its access method is gin"),
            because(IndexEnd::Refused, "this is why"),
            IndexReport {
                reason: Some("a lock was not to be had".into()),
                ..index(IndexEnd::Left)
            },
            index(IndexEnd::Dropped),
            IndexReport {
                reason: Some("nobody knows whose".into()),
                command: Some("DROP INDEX CONCURRENTLY public.t_pkey_ccnew".into()),
                ..index(IndexEnd::Invalid)
            },
        ];
        assert_eq!(line(&index(IndexEnd::Kept)), None);
        let text: Vec<String> = all.iter().filter_map(line).collect();
        insta::assert_snapshot!(text.join("\n"), @r##"
index: public.t_pkey: 2200 kB, about 1096 kB if rebuilt
index: public.t_pkey: 2200 kB would become 1096 kB, with 992 kB of WAL
index: public.t_pkey: 2200 kB became 1104 kB (1096 kB expected)
index: public.t_pkey: 2200 kB, size after a rebuild is not known: its access method is gin
index: public.t_pkey: not rebuilt: this is why
left: index public.t_pkey: 2200 kB: a lock was not to be had; to do: REINDEX INDEX CONCURRENTLY public.t_pkey;
index: public.t_pkey: dropped; an interrupted rebuild had left it behind
left: invalid index public.t_pkey: 2200 kB: nobody knows whose; to do: DROP INDEX CONCURRENTLY public.t_pkey_ccnew;
"##);
    }
}
