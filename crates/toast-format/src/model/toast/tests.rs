use super::*;
use crate::codec::Method;
use crate::disk::{Align, Length, PageSize, Storage};
use crate::model::cost::Prices;
use crate::model::{MethodChoice, Policy, TupleTarget};
use proptest::prelude::*;

const LZ4: MethodChoice = MethodChoice::One(Method::Lz4);

fn text(storage: Storage) -> Column {
    Column {
        length: Length::Varlena,
        align: Align::Int,
        storage,
        type_storage: Storage::Extended,
        method: LZ4,
        policy: Policy::Always,
    }
}

const INT4: Column = Column {
    length: Length::Fixed(4),
    align: Align::Int,
    storage: Storage::Plain,
    type_storage: Storage::Plain,
    method: LZ4,
    policy: Policy::Always,
};

fn table(columns: Vec<Column>) -> Table {
    Table {
        columns,
        target: TupleTarget::default_for(PageSize::DEFAULT),
        has_toast_relation: true,
        page: PageSize::DEFAULT,
        prices: Prices::default(),
        indexes: Vec::new(),
    }
}

fn forms(toasted: &Toasted) -> Vec<&'static str> {
    toasted.values.iter().map(|v| v.form.name()).collect()
}

fn insert(table: &Table, values: &[Incoming], size: Option<u32>) -> Toasted {
    table.toast(values, Operation::Insert, &mut |_, _| size).unwrap()
}

const INT: Incoming = Incoming::Fixed { size: 4 };

fn plain(raw: u32) -> Incoming {
    Incoming::Plain { raw }
}

#[test]
fn rows_up_to_the_threshold_stay_as_they_are() {
    let t = table(vec![INT4, text(Storage::Extended)]);
    // The length is 24 + 4 + 4 + 2000.
    let row = insert(&t, &[INT, plain(2000)], Some(100));
    assert_eq!((forms(&row), row.tuple_length), (vec!["plain", "plain"], 2032));
    assert!(!row.toaster_called);
    let row = insert(&t, &[INT, plain(2001)], Some(100));
    assert_eq!((forms(&row), row.tuple_length), (vec!["plain", "compressed"], 128));
    let low = Table { target: TupleTarget::new(128, t.page).unwrap(), ..t.clone() };
    let row = insert(&low, &[INT, plain(2000)], Some(100));
    assert_eq!(forms(&row), ["plain", "plain"]);
    let row = insert(&low, &[INT, plain(2001)], Some(101));
    assert_eq!(forms(&row), ["plain", "external_compressed"]);
    assert_eq!((row.tuple_length, row.values[1].stored_size), (24 + 4 + 18, 97));
    // A row that had an out-of-line value is toasted at any length.
    let row = low.toast(&[INT, plain(200)], Operation::UpdateOfExternal, &mut |_, _| None);
    assert_eq!(forms(&row.unwrap()), ["plain", "external"]);
}

#[test]
fn short_headers_need_no_alignment_and_on_update_no_plain_storage() {
    let t = table(vec![INT4, text(Storage::Extended), text(Storage::Plain), INT4]);
    let values = [INT, plain(126), plain(3), Incoming::Null];
    let row = insert(&t, &values, None);
    assert_eq!(forms(&row), ["plain", "short", "short", "null"]);
    let row = t.toast(&values, Operation::Update, &mut |_, _| None).unwrap();
    assert_eq!(forms(&row), ["plain", "short", "plain", "null"]);
    // The data is 4 + 127, aligned to 132, plus 7.
    assert_eq!(row.tuple_length, 24 + 139);
    let row = insert(&t, &[INT, plain(127), Incoming::Short { raw: 3 }, INT], None);
    assert_eq!(forms(&row), ["plain", "plain", "short", "plain"]);
    // The data is 4 + 131 = 135, plus 4, aligned to 140, plus 4.
    assert_eq!(row.tuple_length, 24 + 144);
}

#[test]
fn null_bitmaps_lengthen_the_header() {
    let t = table(vec![INT4; 9]);
    let mut values = vec![INT; 9];
    assert_eq!(insert(&t, &values, None).tuple_length, 24 + 36);
    values[0] = Incoming::Null;
    assert_eq!(insert(&t, &values, None).tuple_length, 32 + 32);
}

#[test]
fn the_biggest_goes_first_and_of_equals_the_first() {
    let t = table(vec![text(Storage::Extended), text(Storage::External), INT4]);
    let row = insert(&t, &[plain(1500), plain(1500), INT], None);
    assert_eq!(forms(&row), ["external", "plain", "plain"]);
    let row = insert(&t, &[plain(1500), plain(1501), INT], None);
    assert_eq!(forms(&row), ["plain", "external", "plain"]);
    // Once it is compressed to 400 bytes, the first value leaves enough room for the second.
    let row = insert(&t, &[plain(1501), plain(1500), INT], Some(400));
    assert_eq!(forms(&row), ["compressed", "plain", "plain"]);
}

#[test]
fn main_is_compressed_last_and_moved_only_off_a_full_page() {
    let t = table(vec![text(Storage::Main), text(Storage::Extended)]);
    let row = insert(&t, &[plain(5000), plain(1000)], None);
    assert_eq!(forms(&row), ["plain", "external"]);
    // A long MAIN value causes others to be moved out before it is compressed itself.
    let values = [plain(5000), plain(100)];
    let mut sizes = |index, _: Method| (index == 0).then_some(2600);
    let row = t.toast(&values, Operation::Insert, &mut sizes).unwrap();
    assert_eq!(forms(&row), ["compressed", "external"]);
    // 8160 - 24 bytes are left for the data.
    let one = table(vec![text(Storage::Main)]);
    assert_eq!(forms(&insert(&one, &[plain(8132)], None)), ["plain"]);
    assert_eq!(forms(&insert(&one, &[plain(8133)], None)), ["external"]);
}

#[test]
fn rows_that_cannot_shrink_are_refused_as_the_server_does() {
    let error = |t: &Table, values: &[Incoming]| {
        t.toast(values, Operation::Insert, &mut |_, _| None).unwrap_err().to_string()
    };
    let t = table(vec![INT4, text(Storage::Plain)]);
    assert_eq!(error(&t, &[INT, plain(10_000)]), "row is too big: size 10032, maximum size 8160");
    let without = Table { has_toast_relation: false, ..table(vec![text(Storage::Extended)]) };
    assert_eq!(error(&without, &[plain(9000)]), "row is too big: size 9032, maximum size 8160");
    assert_eq!(error(&t, &[INT]), "1 values for 2 columns");
}

#[test]
fn values_keep_the_form_in_which_they_arrive() {
    let t = table(vec![INT4, text(Storage::External), text(Storage::Extended)]);
    let compressed = |size| Incoming::Compressed { size, raw: 9000, method: Some(Method::Pglz) };
    let row = insert(&t, &[INT, compressed(1500), plain(10)], None);
    assert_eq!(forms(&row), ["plain", "compressed", "short"]);
    let row = insert(&t, &[INT, compressed(3000), plain(10)], None);
    assert_eq!(forms(&row), ["plain", "external_compressed", "short"]);
    assert_eq!((row.values[1].stored_size, row.values[1].chunks), (2996, 2));
    let foreign = |compressed| Incoming::Foreign {
        stored: 500,
        raw: if compressed { 5000 } else { 500 },
        method: compressed.then_some(Method::Pglz),
        compressed,
    };
    let row = insert(&t, &[INT, foreign(true), foreign(false)], None);
    assert_eq!(forms(&row), ["plain", "compressed", "plain"]);
    assert_eq!(row.values[1].stored_size, 504);
    let kept = Incoming::Kept { stored: 500, raw: 500, method: None, compressed: false };
    let row = insert(&t, &[INT, kept, plain(1000)], None);
    assert_eq!((forms(&row), row.values[1].kept), (vec!["plain", "external", "plain"], true));
    let into_plain = table(vec![text(Storage::Plain)]);
    let row = insert(&into_plain, &[foreign(true)], None);
    assert_eq!((forms(&row), row.values[0].stored_size), (vec!["plain"], 5004));
}

#[test]
fn the_policy_overrules_compression_and_never_asks_for_what_it_does_not_need() {
    let column = |policy, method| Column { policy, method, ..text(Storage::Extended) };
    let mut asked = Vec::new();
    let mut run = |column, raw| {
        let t = table(vec![column]);
        let row = t.toast(&[plain(raw)], Operation::Insert, &mut |_, method| {
            asked.push(method);
            Some(if method == Method::Lz4 { raw - 100 } else { raw - 50 })
        });
        row.unwrap().values[0].form.name()
    };
    assert_eq!(run(column(Policy::ChunkSaving { chunks: 1 }, LZ4), 7_900), "external");
    assert_eq!(run(column(Policy::Never, LZ4), 7_900), "external");
    assert_eq!(run(column(Policy::Always, MethodChoice::Either), 7_900), "external_compressed");
    assert_eq!(run(column(Policy::Always, LZ4), 100), "short");
    assert_eq!(asked, [Method::Lz4, Method::Pglz, Method::Lz4]);
}

fn any_storage() -> impl Strategy<Value = Storage> {
    prop_oneof![
        Just(Storage::Plain),
        Just(Storage::Main),
        Just(Storage::External),
        Just(Storage::Extended)
    ]
}

fn any_incoming() -> impl Strategy<Value = Incoming> {
    let size = prop_oneof![0u32..300, 0u32..9000, any::<u32>()];
    (0..8u8, size.clone(), size, any::<bool>()).prop_map(|(kind, a, b, compressed)| {
        let method = compressed.then_some(Method::Pglz);
        match kind {
            0 => Incoming::Null,
            1 => Incoming::Fixed { size: a },
            2 => Incoming::Short { raw: a % 127 },
            3 => Incoming::Compressed { size: a, raw: b, method },
            4 => Incoming::Foreign { stored: a, raw: b, method, compressed },
            5 => Incoming::Kept { stored: a, raw: b, method, compressed },
            6 => Incoming::Opaque { size: a, outside: None },
            _ => Incoming::Plain { raw: a },
        }
    })
}

proptest! {
    #[test]
    fn any_row_ends_and_fits_or_is_refused(
        row in proptest::collection::vec((any_storage(), any_incoming()), 1..12),
        has_toast_relation in any::<bool>(),
        target in 128u32..8161,
        size in proptest::option::of(any::<u32>()),
    ) {
        let (storages, values): (Vec<_>, Vec<_>) = row.into_iter().unzip();
        let t = Table {
            target: TupleTarget::new(target, PageSize::DEFAULT).unwrap(),
            has_toast_relation,
            ..table(storages.into_iter().map(text).collect())
        };
        match t.toast(&values, Operation::Insert, &mut |_, _| size) {
            Ok(toasted) => prop_assert!(toasted.tuple_length <= 8160),
            Err(RowError::RowTooBig { size, max }) => prop_assert!(size > max),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}
