//! Tests of verdicts on rows with one value.

use super::*;
use crate::disk::PageSize;
use crate::judge::tests::{table, value};
use crate::model::TupleTarget;

fn compliance(
    storage: Storage,
    method: Method,
    chosen: StoredValue,
    known: Option<CompressedSize>,
) -> Compliance {
    let id = value(Form::Plain, None, 4, 4);
    by_model(&table(storage, method, 1), &[1], &[], &[id, chosen], &|_| known)
}

#[test]
fn another_method_differs_and_the_same_complies() {
    let pglz = value(Form::ExternalCompressed, Some(Method::Pglz), 9000, 3000);
    assert_eq!(compliance(Storage::Extended, Method::Lz4, pglz, None), Compliance::Differs);
    assert_eq!(compliance(Storage::Extended, Method::Pglz, pglz, None), Compliance::Complies);
    assert_eq!(compliance(Storage::External, Method::Pglz, pglz, None), Compliance::Differs);
    // Storage main keeps in the row whatever fits on the page.
    assert_eq!(compliance(Storage::Main, Method::Pglz, pglz, None), Compliance::Differs);
}

#[test]
fn an_uncompressed_value_depends_and_the_answer_decides() {
    let raw = value(Form::External, None, 9000, 9000);
    let lz4 = |known| compliance(Storage::Extended, Method::Lz4, raw, known);
    assert_eq!(lz4(None), Compliance::Depends(vec![1]));
    assert_eq!(lz4(Some(None)), Compliance::Complies);
    assert_eq!(lz4(Some(Some(4000))), Compliance::Differs);
    assert_eq!(compliance(Storage::External, Method::Lz4, raw, None), Compliance::Complies);
    assert_eq!(compliance(Storage::Plain, Method::Lz4, raw, None), Compliance::Differs);
}

#[test]
fn short_rows_stay_as_they_are() {
    let raw = value(Form::Plain, None, 1000, 1004);
    assert_eq!(compliance(Storage::Extended, Method::Lz4, raw, None), Compliance::Complies);
    let inline = value(Form::Compressed, Some(Method::Pglz), 5000, 1000);
    assert_eq!(compliance(Storage::Extended, Method::Pglz, inline, None), Compliance::Complies);
    assert_eq!(compliance(Storage::Plain, Method::Pglz, inline, None), Compliance::Differs);
    assert_eq!(
        compliance(Storage::Extended, Method::Lz4, StoredValue::NULL, None),
        Compliance::Complies
    );
}

#[test]
fn what_any_operation_gives_complies() {
    let low = Table {
        target: TupleTarget::new(128, PageSize::DEFAULT).unwrap(),
        ..table(Storage::Extended, Method::Lz4, 1)
    };
    let id = value(Form::Plain, None, 4, 4);
    let compliance = |value| by_model(&low, &[1], &[], &[id, value], &|_| None);
    // An INSERT leaves the value in the row; an UPDATE of a row with an out-of-line value compresses it.
    let plain = value(Form::Plain, None, 1500, 1504);
    let compressed = value(Form::Compressed, Some(Method::Lz4), 1500, 80);
    let moved = value(Form::ExternalCompressed, Some(Method::Lz4), 1500, 700);
    for value in [plain, compressed, moved] {
        assert_eq!(compliance(value), Compliance::Complies, "{value:?}");
    }
    // No operation moves out a value that is small enough once it is compressed.
    let moved = value(Form::ExternalCompressed, Some(Method::Lz4), 1500, 40);
    assert_eq!(compliance(moved), Compliance::Differs);
}

#[test]
fn generated_columns_that_follow_are_computed_anew() {
    let mut wide = table(Storage::Extended, Method::Lz4, 1);
    wide.columns.push(wide.columns[1]);
    let id = value(Form::Plain, None, 4, 4);
    // The smaller value stays in the row, because the larger one is toasted first and moved out.
    let small = value(Form::Plain, None, 1900, 1904);
    let large = value(Form::External, None, 9000, 9000);
    let values = [id, small, large];
    assert_eq!(by_model(&wide, &[1], &[2], &values, &|_| None), Compliance::Complies);
    // A kept pointer is small, so nothing else would be moved out either.
    assert_eq!(by_model(&wide, &[1], &[], &values, &|_| None), Compliance::Complies);
    // Next to a fresh value, this one would be the larger one.
    let large = value(Form::Plain, None, 1950, 1954);
    let small = value(Form::External, None, 1900, 1900);
    let values = [id, large, small];
    let compliance = |follow: &[usize]| by_model(&wide, &[1], follow, &values, &|_| Some(None));
    assert_eq!(compliance(&[2]), Compliance::Differs);
    assert_eq!(compliance(&[]), Compliance::Complies);
}

#[test]
fn functions_count_what_surely_differs() {
    use Placement::{InRow, OutOfLine, Unknown};
    let lz4 = Toaster::Compressed(Method::Lz4);
    let answer = |size, method, placement| {
        let stored_size = Some(size);
        let form = Form::Unknown;
        FunctionAnswer {
            value: StoredValue { form, method, stored_size, ..StoredValue::NULL },
            placement,
        }
    };
    let by = |toaster, answer, row| by_functions(toaster, Method::Lz4, &answer, row, 2032, 4080);
    assert_eq!(by(lz4, answer(9, Some(Method::Pglz), Unknown), 9), Compliance::Differs);
    assert_eq!(by(lz4, answer(3000, Some(Method::Lz4), Unknown), 3000), Compliance::Complies);
    assert_eq!(by(lz4, answer(3000, None, Unknown), 3000), Compliance::Depends(Vec::new()));
    assert_eq!(by(lz4, answer(300, None, Unknown), 400), Compliance::Complies);
    assert_eq!(by(Toaster::External, answer(5000, None, InRow), 5000), Compliance::Differs);
    assert_eq!(by(Toaster::External, answer(3000, None, InRow), 3000), Compliance::Complies);
    assert_eq!(by(Toaster::External, answer(3000, None, OutOfLine), 3000), Compliance::Complies);
    assert_eq!(by(Toaster::Plain, answer(3000, None, OutOfLine), 3000), Compliance::Differs);
    let null = FunctionAnswer { value: StoredValue::NULL, placement: InRow };
    assert_eq!(by(Toaster::Plain, null, 3000), Compliance::Complies);
}
