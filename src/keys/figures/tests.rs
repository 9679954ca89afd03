use super::*;
use crate::keys::cost::{StoredDocument, TableTerms};
use crate::keys::language::DocumentLanguage;
use proptest::prelude::*;
use toast_format::disk::jsonb_of_text::jsonb;
use toast_format::disk::{ByteOrder, PageSize};
use toast_format::model::{Form, StoredValue};

const TERMS: TableTerms = TableTerms { page: PageSize::DEFAULT, levels: 2 };

fn looked(blocks: u32, total: u32, documents: u64, part: f64) -> Looked {
    Looked {
        blocks,
        total_blocks: total,
        documents,
        documents_part: part,
        seed: 1,
        complete: part >= 1.0 && blocks == total,
    }
}

/// A tree of documents, four in a block, and what was sampled of what.
fn read(texts: &[String], depth: u8) -> (Tree, Looked, InBlocks) {
    let mut tree = Tree::new(DocumentLanguage::Jsonb, depth, TERMS);
    let mut in_blocks = InBlocks::default();
    let mut blocks = 0;
    for block in texts.chunks(4) {
        for text in block {
            let content = jsonb(text.as_bytes()).unwrap();
            let raw = content.len() as u64;
            let value = StoredValue {
                form: Form::External,
                raw_size: Some(raw),
                stored_size: Some(raw),
                ..StoredValue::NULL
            };
            let stored = StoredDocument { value, raw, tuple: 60, visits: None };
            tree.document(&content, ByteOrder::Little, &stored).unwrap();
            in_blocks.add(&value);
        }
        tree.end_block();
        in_blocks.end_block();
        blocks += 1;
    }
    let documents = texts.len() as u64;
    (tree, looked(blocks, blocks, documents, 1.0), in_blocks)
}

fn sums(texts: &[String], depth: u8, limit: Option<usize>) -> (u64, u64, Vec<Key>, Option<Others>) {
    let (tree, sample, in_blocks) = read(texts, depth);
    let table = Table::new(&tree, &sample, &in_blocks);
    let (keys, others) = table.keys(limit);
    let own: u64 = keys.iter().map(|key| key.sizes.own_bytes.estimate).sum();
    let of_others = others.map_or(0, |others| others.bytes);
    let raw = table.totals().raw_bytes;
    (raw.estimate, own + of_others + table.container().bytes.estimate, keys, others)
}

fn object(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// The shapes: a record of a film, 1,000 small keys, one huge array, six levels, a map of 20,000 keys, numbers and
/// unicode.
fn shapes() -> Vec<(&'static str, String)> {
    let film = r#"{"id": 42, "cast": [{"name": "Ann", "as": ["A", "B"]}, {"name": "Bo"}], "title": "Ä film", "ratings": {"a": 7.5, "votes": 1234}}"#;
    vec![
        ("film", film.to_owned()),
        ("small", object((0..1000).map(|n| (format!("k{n}"), n.to_string())))),
        ("array", format!("{{\"a\": [{}], \"b\": 1}}", vec!["\"element\""; 5000].join(", "))),
        ("nested", r#"{"a": {"b": {"c": {"d": {"e": {"f": [1, {"g": null}]}}}}}}"#.to_owned()),
        ("map", object((0..20_000).map(|n| (format!("id{n}"), format!("\"v{n}\""))))),
        (
            "unicode",
            r#"{"数": 1e0, "a": -0.000001, "b": 123456789012345678901234567890, "c": "\u0001é😀"}"#
                .replace("1e0", "1"),
        ),
    ]
}

#[test]
fn bytes_by_path_sum_to_the_documents_on_every_shape() {
    for (shape, text) in shapes() {
        for depth in [1, 8] {
            for limit in [None, Some(3)] {
                let (raw, counted, keys, others) = sums(&vec![text.clone(); 2], depth, limit);
                assert_eq!(raw, counted, "{shape}, {depth} levels, limit {limit:?}");
                assert!(limit.is_none_or(|limit| keys.len() <= limit));
                assert!(others.is_none_or(|others| others.paths > 0));
            }
        }
    }
}

#[test]
fn paths_follow_the_ones_they_go_on_from() {
    let text = r#"{"a": {"b": [1, 2], "c d": "x"}, "$": true, "list": [{"k": 1}, [2]]}"#.to_owned();
    let (_, _, keys, _) = sums(&[text], 3, None);
    let shown: Vec<String> = keys
        .iter()
        .map(|key| format!("{} {} {}x", key.path, key.kind, key.values.estimate))
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    list array 1x
    list[] array 2x
    list[].k number 1x
    list[][] number 1x
    a object 1x
    a.b array 1x
    a.b[] number 2x
    a."c d" string 1x
    "$" boolean 1x
    "#);
    let (_, _, keys, _) = sums(&["12".into()], 1, None);
    assert_eq!(keys[0].path, "$");
    // what is in an array has no column of its own
    let (_, _, keys, _) = sums(&["[1, 2]".into()], 1, None);
    assert_eq!((keys[0].path.as_str(), keys[0].presence.estimate), ("[]", 1.0));
    assert!(keys[0].costs.buffers_extracted.is_none() && keys[0].costs.wal_extracted.is_none());
}

#[test]
fn long_keys_are_cut_and_make_no_map() {
    let long = "ä".repeat(5000);
    let text = format!("{{\"{long}\": 1, \"b\": {{\"{long}x\": 2}}}}");
    let (tree, sample, in_blocks) = read(&vec![text; 3], 2);
    let table = Table::new(&tree, &sample, &in_blocks);
    assert!(!table.is_map());
    let (keys, others) = table.keys(None);
    assert!(others.is_none(), "{others:?}");
    let cut = serde_json::to_string(&format!("{}…", "ä".repeat(512))).unwrap();
    let paths: Vec<&str> = keys.iter().map(|key| key.path.as_str()).collect();
    assert_eq!(paths, ["b", &format!("b.{cut}"), &cut]);
}

#[test]
fn documents_that_are_scalars_are_no_elements() {
    let (_, _, keys, _) = sums(&["7".into(), "[1, 2, 3]".into()], 1, None);
    let shown: Vec<(&str, u64)> =
        keys.iter().map(|key| (key.path.as_str(), key.values.estimate)).collect();
    assert_eq!(shown, [("[]", 3), ("$", 1)]);
    assert!(keys[0].costs.buffers_extracted.is_none() && keys[1].costs.buffers_extracted.is_some());
}

#[test]
fn very_many_keys_take_little_memory_and_are_a_map() {
    // 100,000 different keys, and one that all documents have
    let texts: Vec<String> = (0..20)
        .map(|document| {
            let others = (0..5_000).map(|n| (format!("{document:02}x{n:05}"), n.to_string()));
            object(
                [("all".to_owned(), format!("\"{}\"", "z".repeat(5000)))].into_iter().chain(others),
            )
        })
        .collect();
    let (tree, sample, in_blocks) = read(&texts, 1);
    let table = Table::new(&tree, &sample, &in_blocks);
    assert!(table.is_map());
    assert!(tree.paths().count() <= crate::keys::tree::MOST_PATHS);
    let (keys, others) = table.keys(Some(1));
    assert_eq!((keys[0].path.as_str(), keys[0].values.estimate), ("all", 20));
    let others = others.unwrap();
    assert!((others.paths as f64 / 100_000.0 - 1.0).abs() < 0.2, "{others:?}");
    let raw = table.totals().raw_bytes;
    let counted =
        keys[0].sizes.bytes.total.estimate + others.bytes + table.container().bytes.estimate;
    assert_eq!(raw.estimate, counted);
    // a record of as many documents is none
    let (tree, sample, in_blocks) = read(&vec![shapes()[1].1.clone(); 10], 1);
    assert!(!Table::new(&tree, &sample, &in_blocks).is_map());
    // few of many keys
    let texts: Vec<String> =
        (0..300).map(|n| object([(format!("id{n}"), n.to_string())].into_iter())).collect();
    let (tree, sample, in_blocks) = read(&texts, 1);
    assert!(Table::new(&tree, &sample, &in_blocks).is_map());
}

#[test]
fn a_sample_has_intervals_that_hold_the_truth() {
    let text = |n: usize| {
        object(
            [
                ("id".to_owned(), n.to_string()),
                ("t".to_owned(), format!("\"{}\"", "x".repeat(n * 7919 % 4000))),
            ]
            .into_iter(),
        )
    };
    let texts: Vec<String> = (0..2000).map(text).collect();
    let (all, sample, in_blocks) = read(&texts, 1);
    let truth = Table::new(&all, &sample, &in_blocks).keys(None).0;
    let mut held = 0;
    for run in 0..20 {
        // every tenth block
        let some: Vec<String> =
            texts.chunks(4).skip(run % 10).step_by(10).flatten().cloned().collect();
        let (tree, sample, in_blocks) = read(&some, 1);
        let sample = looked(sample.blocks, 500, some.len() as u64, 1.0);
        let keys = Table::new(&tree, &sample, &in_blocks).keys(None).0;
        for (key, truth) in keys.iter().zip(&truth) {
            assert_eq!(key.path, truth.path);
            let within = |low: f64, high: f64, of: f64| u32::from(low <= of && of <= high);
            held += within(key.sizes.share.low, key.sizes.share.high, truth.sizes.share.estimate);
            held += within(
                key.sizes.bytes.total.low as f64,
                key.sizes.bytes.total.high as f64,
                truth.sizes.bytes.total.estimate as f64,
            );
            held += within(
                key.costs.buffers_now.low,
                key.costs.buffers_now.high,
                truth.costs.buffers_now.estimate,
            );
        }
    }
    assert!(held >= 110, "{held} of 120 intervals hold");
}

#[test]
fn rare_huge_documents_that_were_not_analyzed_are_in_every_interval() {
    let texts: Vec<String> = (0..2000).map(|n| format!("{{\"k\": {n}}}")).collect();
    let (tree, _, mut in_blocks) = read(&texts, 1);
    let sample = looked(500, 500, 2000, 0.5);
    let size = Some(100_000_000);
    let huge = StoredValue { raw_size: size, stored_size: size, ..StoredValue::NULL };
    in_blocks.add(&huge);
    in_blocks.end_block();
    let table = Table::new(&tree, &sample, &in_blocks);
    let Totals { stored_bytes, raw_bytes, unseen, .. } = table.totals();
    assert!(stored_bytes.low > 100_000_000 && raw_bytes.high < 100_200_000);
    assert!(unseen > 0.99, "{unseen}");
    let sizes = table.keys(None).0.remove(0).sizes;
    assert!(sizes.share.low < 0.01 && sizes.share.high > 0.99, "{:?}", sizes.share);
    assert!(sizes.stored_bytes.low < 100_000 && sizes.stored_bytes.high > 99_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn bytes_by_path_sum_to_any_documents(
        documents in proptest::collection::vec(
            proptest::collection::btree_map("[a-d]{1,2}", 0u32..1_000_000, 0..6), 1..12),
        depth in 1u8..4,
        limit in 0usize..9,
    ) {
        let texts: Vec<String> = documents.iter().map(|pairs| {
            object(pairs.iter().map(|(key, number)| {
                let value = match number % 4 {
                    0 => number.to_string(),
                    1 => format!("\"{number}\""),
                    2 => format!("{{\"{key}\": [{number}, null], \"x\": {{\"y\": {number}}}}}"),
                    _ => format!("[{number}, {{\"{key}\": true}}]"),
                };
                (key.clone(), value)
            }))
        }).collect();
        let (raw, counted, _, _) = sums(&texts, depth, Some(limit));
        prop_assert_eq!(raw, counted);
    }
}
