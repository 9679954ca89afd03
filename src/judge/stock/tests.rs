//! Verdicts on rows of one value.

use super::*;
use crate::disk::layout::PageSize;
use crate::judge::tests::{table, value};
use crate::model::settings::TupleTarget;

fn verdict(
    storage: Storage,
    method: Method,
    chosen: StoredValue,
    known: Option<Compressed>,
) -> Verdict {
    let id = value(Form::Plain, None, 4, 4);
    by_model(&table(storage, method, 1), &[1], &[], &[id, chosen], &|_| known)
}

#[test]
fn another_method_differs_and_the_same_complies() {
    let pglz = value(Form::ExternalCompressed, Some(Method::Pglz), 9000, 3000);
    assert_eq!(verdict(Storage::Extended, Method::Lz4, pglz, None), Verdict::Differs);
    assert_eq!(verdict(Storage::Extended, Method::Pglz, pglz, None), Verdict::Complies);
    assert_eq!(verdict(Storage::External, Method::Pglz, pglz, None), Verdict::Differs);
    // main keeps what fits the page in the row
    assert_eq!(verdict(Storage::Main, Method::Pglz, pglz, None), Verdict::Differs);
}

#[test]
fn an_uncompressed_value_depends_and_the_answer_decides() {
    let raw = value(Form::External, None, 9000, 9000);
    let lz4 = |known| verdict(Storage::Extended, Method::Lz4, raw, known);
    assert_eq!(lz4(None), Verdict::Depends(vec![1]));
    assert_eq!(lz4(Some(None)), Verdict::Complies);
    assert_eq!(lz4(Some(Some(4000))), Verdict::Differs);
    assert_eq!(verdict(Storage::External, Method::Lz4, raw, None), Verdict::Complies);
    assert_eq!(verdict(Storage::Plain, Method::Lz4, raw, None), Verdict::Differs);
}

#[test]
fn short_rows_stay_as_they_are() {
    let raw = value(Form::Plain, None, 1000, 1004);
    assert_eq!(verdict(Storage::Extended, Method::Lz4, raw, None), Verdict::Complies);
    let inline = value(Form::Compressed, Some(Method::Pglz), 5000, 1000);
    assert_eq!(verdict(Storage::Extended, Method::Pglz, inline, None), Verdict::Complies);
    assert_eq!(verdict(Storage::Plain, Method::Pglz, inline, None), Verdict::Differs);
    assert_eq!(verdict(Storage::Extended, Method::Lz4, StoredValue::NULL, None), Verdict::Complies);
}

#[test]
fn what_any_operation_gives_complies() {
    let low = Table {
        target: TupleTarget::new(128, PageSize::DEFAULT).unwrap(),
        ..table(Storage::Extended, Method::Lz4, 1)
    };
    let id = value(Form::Plain, None, 4, 4);
    let verdict = |value| by_model(&low, &[1], &[], &[id, value], &|_| None);
    // an INSERT leaves it in the row, an UPDATE of a row with a value out of line compresses it
    let plain = value(Form::Plain, None, 1500, 1504);
    let compressed = value(Form::Compressed, Some(Method::Lz4), 1500, 80);
    let moved = value(Form::ExternalCompressed, Some(Method::Lz4), 1500, 700);
    for value in [plain, compressed, moved] {
        assert_eq!(verdict(value), Verdict::Complies, "{value:?}");
    }
    // none moves out what is small enough once it is compressed
    let moved = value(Form::ExternalCompressed, Some(Method::Lz4), 1500, 40);
    assert_eq!(verdict(moved), Verdict::Differs);
}

#[test]
fn generated_columns_that_follow_are_computed_anew() {
    let mut wide = table(Storage::Extended, Method::Lz4, 1);
    wide.columns.push(wide.columns[1]);
    let id = value(Form::Plain, None, 4, 4);
    // the smaller value stays in the row because the larger one, taken first, has moved out
    let small = value(Form::Plain, None, 1900, 1904);
    let large = value(Form::External, None, 9000, 9000);
    let values = [id, small, large];
    assert_eq!(by_model(&wide, &[1], &[2], &values, &|_| None), Verdict::Complies);
    // a kept pointer is small: nothing else would move either
    assert_eq!(by_model(&wide, &[1], &[], &values, &|_| None), Verdict::Complies);
    // beside a fresh value it would be the larger one
    let large = value(Form::Plain, None, 1950, 1954);
    let small = value(Form::External, None, 1900, 1900);
    let values = [id, large, small];
    let verdict = |follow: &[usize]| by_model(&wide, &[1], follow, &values, &|_| Some(None));
    assert_eq!(verdict(&[2]), Verdict::Differs);
    assert_eq!(verdict(&[]), Verdict::Complies);
}

#[test]
fn functions_count_what_surely_differs() {
    use Placement::{InRow, OutOfLine, Unknown};
    let lz4 = Toaster::Compressed(Method::Lz4);
    let told = |size, method, placement| {
        let stored_size = Some(size);
        let form = Form::Unknown;
        FunctionAnswer {
            value: StoredValue { form, method, stored_size, ..StoredValue::NULL },
            placement,
        }
    };
    let by = |toaster, told, row| by_functions(toaster, Method::Lz4, &told, row, 2032, 4080);
    assert_eq!(by(lz4, told(9, Some(Method::Pglz), Unknown), 9), Verdict::Differs);
    assert_eq!(by(lz4, told(3000, Some(Method::Lz4), Unknown), 3000), Verdict::Complies);
    assert_eq!(by(lz4, told(3000, None, Unknown), 3000), Verdict::Depends(Vec::new()));
    assert_eq!(by(lz4, told(300, None, Unknown), 400), Verdict::Complies);
    assert_eq!(by(Toaster::External, told(5000, None, InRow), 5000), Verdict::Differs);
    assert_eq!(by(Toaster::External, told(3000, None, InRow), 3000), Verdict::Complies);
    assert_eq!(by(Toaster::External, told(3000, None, OutOfLine), 3000), Verdict::Complies);
    assert_eq!(by(Toaster::Plain, told(3000, None, OutOfLine), 3000), Verdict::Differs);
    let null = FunctionAnswer { value: StoredValue::NULL, placement: InRow };
    assert_eq!(by(Toaster::Plain, null, 3000), Verdict::Complies);
}
