//! Tests of policies' decisions on rows.

use super::*;
use crate::disk::PageSize;
use crate::judge::tests::{self as samples, value};
use crate::model::TupleTarget;

const PAGE: PageSize = PageSize::DEFAULT;

/// A table of an integer and `count` external columns.
fn table(count: usize, target: u32) -> (Table, Vec<usize>) {
    let table = samples::table(Storage::External, Method::Lz4, count);
    let target = TupleTarget::new(target, PAGE).unwrap();
    (Table { target, ..table }, (1..=count).collect())
}

fn seen(values: &[StoredValue]) -> Seen {
    let mut all = vec![value(Form::Plain, None, 4, 4)];
    all.extend_from_slice(values);
    let count = values.len();
    let placed = vec![true; count];
    let contents = vec![None; count];
    Seen { xmin: 700, values: all, placed, contents, inner: false }
}

fn decide(policy: &str, method: MethodChoice, seen: &Seen) -> Decision {
    let (table, targets) = table(seen.contents.len(), 2032);
    let rule = Rule::new(policy.parse().unwrap(), &table, &targets, vec![method; targets.len()]);
    rule.decide(&table, &targets, seen)
}

fn handovers(decision: Decision) -> Vec<Handover> {
    let Decision::Forms(wanted) = decision else { panic!("{decision:?}") };
    wanted.iter().map(|one| one.handover).collect()
}

const LZ4: MethodChoice = MethodChoice::One(Method::Lz4);

#[test]
fn what_another_toaster_has_stored_never_complies_and_its_content_is_asked_for() {
    let (table, targets) = table(2, 2032);
    let custom = value(Form::Custom, None, 9000, 9000);
    let plain = value(Form::External, None, 9000, 9000);
    for policy in ["never", "always", "chunk-saving"] {
        let rule = Rule::new(policy.parse().unwrap(), &table, &targets, vec![LZ4; 2]);
        let mut seen = seen(&[custom, plain]);
        assert!(rule.surely_differs(&targets, &seen) && rule.lacks_content(&targets, &seen));
        seen.contents[1] = content(9000, None, None);
        let Decision::Forms(wanted) = rule.decide(&table, &targets, &seen) else { panic!() };
        // The other column's value complies.
        assert_eq!((wanted[0].complies, wanted[1].complies), (false, true), "{policy}");
        seen.contents[0] = content(9000, Some(3000), None);
        assert!(!rule.lacks_content(&targets, &seen));
        let decision = rule.decide(&table, &targets, &seen);
        assert!(!decision.complies());
        let there = match policy {
            "never" => Handover::Plain,
            _ => Handover::Compressed(Method::Lz4),
        };
        assert_eq!(handovers(decision), [there, Handover::Keep], "{policy}");
    }
}

fn content(raw: u32, lz4: Option<u32>, pglz: Option<u32>) -> Option<Content> {
    Some(Content { raw, sizes: CompressedSizes { pglz, lz4 } })
}

#[test]
fn what_is_stored_with_the_method_is_known_and_other_contents_are_asked_for() {
    let compressed = seen(&[value(Form::ExternalCompressed, Some(Method::Lz4), 9000, 8900)]);
    // The value takes 5 chunks, raw or compressed.
    assert_eq!(handovers(decide("chunk-saving", LZ4, &compressed)), [Handover::Plain]);
    assert!(decide("ratio=0.99", LZ4, &compressed).complies());
    assert_eq!(decide("ratio=0.99", MethodChoice::Either, &compressed), Decision::Depends(vec![0]));
    let mut raw = seen(&[value(Form::External, None, 9000, 9000)]);
    assert_eq!(decide("ratio", LZ4, &raw), Decision::Depends(vec![0]));
    assert!(decide("never", LZ4, &raw).complies());
    raw.contents[0] = content(9000, None, Some(20));
    assert!(decide("ratio", LZ4, &raw).complies());
    assert_eq!(
        handovers(decide("ratio", MethodChoice::Either, &raw)),
        [Handover::Compressed(Method::Pglz)]
    );
}

#[test]
fn short_rows_are_not_compressed_and_null_is_left() {
    let short = seen(&[value(Form::Compressed, Some(Method::Lz4), 1500, 30), StoredValue::NULL]);
    assert_eq!(handovers(decide("always", LZ4, &short)), [Handover::Plain, Handover::Keep]);
    assert!(decide("always", LZ4, &seen(&[value(Form::Plain, None, 1500, 1504)])).complies());
}

#[test]
fn compressed_fields_inside_composite_values_are_never_kept() {
    let mut row = seen(&[value(Form::External, None, 9000, 9000)]);
    row.inner = true;
    let (table, targets) = table(1, 2032);
    let rule = Rule::new(Policy::Never, &table, &targets, vec![LZ4]);
    assert!(rule.surely_differs(&targets, &row));
    assert_eq!(rule.decide(&table, &targets, &row), Decision::Depends(vec![0]));
    row.contents[0] = content(9500, None, None);
    assert_eq!(handovers(rule.decide(&table, &targets, &row)), [Handover::Plain]);
}

/// A row after a batch, stored as the decision requires.
fn stored(row: &Seen, wanted: &[Wanted]) -> Seen {
    let mut after = row.clone();
    for (value, one) in after.values.iter_mut().skip(1).zip(wanted) {
        let raw = value.raw_size;
        let pointer_size = if one.form.is_external() { 18 } else { 0 };
        *value = StoredValue {
            form: one.form,
            method: one.method,
            raw_size: raw,
            stored_size: Some(u64::from(one.bytes)),
            pointer_size,
            ..StoredValue::NULL
        };
    }
    after
}

#[test]
fn what_a_batch_has_stored_complies() {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let policies =
        ["always", "never", "chunk-saving", "ratio=0.7", "chunk-floor=3", "hybrid", "best"];
    let mut changed = 0;
    let mut mixed = 0;
    for _ in 0..20_000 {
        let count = 1 + random(4) as usize;
        let target = [128, 2032, 4080][random(3) as usize];
        let mut values = Vec::new();
        let mut contents = Vec::new();
        for _ in 0..count {
            let longest = [60, 700, 3000, 20_000][random(4) as usize];
            let raw = 1 + random(longest);
            let mut size = |least: u64| {
                let size = (raw * random(100) / 100).max(least) + 8;
                (raw > 40 && random(4) > 0 && size < raw).then_some(size as u32)
            };
            contents.push(content(raw as u32, size(12), size(12)));
            values.push(if raw > 126 {
                value(Form::External, None, raw, raw)
            } else {
                value(Form::Short, None, raw, raw + 1)
            });
        }
        let mut row = seen(&values);
        row.contents = contents;
        let (table, targets) = table(count, target);
        let methods = [LZ4, MethodChoice::One(Method::Pglz), MethodChoice::Either];
        let methods = vec![methods[random(3) as usize]; count];
        let policy = policies[random(7) as usize].parse().unwrap();
        let rule = Rule::new(policy, &table, &targets, methods);
        let Decision::Forms(wanted) = rule.decide(&table, &targets, &row) else { panic!() };
        let after = stored(&row, &wanted);
        let again = rule.decide(&table, &targets, &after);
        assert!(again.complies(), "{rule:?}\n{row:?}\n{after:?}\n{again:?}");
        changed += usize::from(wanted.iter().any(|one| !one.complies));
        let compressed = wanted.iter().filter(|one| one.method.is_some()).count();
        mixed += usize::from(compressed > 0 && compressed < count);
    }
    assert!(changed > 5000 && mixed > 1000, "{changed} {mixed}");
}
