//! The TOAST model against the server: generated tables, every value compared.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use toast_format::codec::{Method, datum};
use toast_format::disk::desc::{Length, Storage};
use toast_format::disk::layout::PageSize;
use toast_format::heap::problem::Problems;
use toast_format::model::cost::Prices;
use toast_format::model::settings::TupleTarget;
use toast_format::model::stored::Form;
use toast_format::model::toast::{Column, Incoming, Operation, RowError, Table, Toasted};
use toastctl::advise::content::{SampledRow, rows_of_page};
use toastctl::cli::connect::Connection;
use toastctl::server::about::Server;
use toastctl::server::catalog::{self, Relation};
use toastctl::server::chunks;
use toastctl::server::connect::Client;
use toastctl::server::pages::PageReader;
use toastctl::server::select::select;
use toastctl::server::snapshot;
use toastctl::server::trial::Trial;

use crate::support::library::connect;
use crate::support::server::{self};

/// Rows of each table.
const ROWS: usize = 200;

/// The relation with this name.
pub(crate) async fn relation(connection: &Connection, server: &Server, name: &str) -> Relation {
    let selection = select(connection, &server.database, &[name.into()]).await.unwrap();
    catalog::describe(connection.client(), selection.oids()[0]).await.unwrap().unwrap()
}

/// Every live row of a relation; its pages live as long as the test.
async fn rows(
    connection: &Arc<Connection>,
    server: &Server,
    relation: &Relation,
) -> Vec<SampledRow<'static>> {
    let client = connection.client();
    let moment = snapshot::begin(connection).await.unwrap();
    let pageinspect = server.pageinspect.as_ref().unwrap();
    let quoted = relation.quoted();
    let mut reader = PageReader::new(
        Arc::clone(connection),
        pageinspect,
        server.page_size,
        quoted,
        moment.snapshot,
    )
    .await
    .unwrap();
    let blocks: Vec<_> =
        (0..reader.block_count().await.unwrap()).map(toast_format::disk::BlockNumber).collect();
    let mut all = Vec::new();
    let mut problems = Problems::default();
    if !blocks.is_empty() {
        let pages = Box::leak(Box::new(reader.read(&blocks).await.unwrap()));
        for (block, bytes) in pages.iter() {
            all.extend(rows_of_page(
                "it",
                (block, bytes),
                &relation.desc,
                server.page_size,
                &*pages,
                &mut problems,
            ));
        }
    }
    assert_eq!(problems.kept(), []);
    snapshot::end(client).await.unwrap();
    all
}

/// A generated column.
struct Spec {
    sql_type: &'static str,
    /// `None` for types that are never toasted.
    storage: Option<Storage>,
    method: Method,
    /// Values up to about this many bytes.
    scale: usize,
    null_part: f64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Bytea,
    Json,
    TextArray,
    IntArray,
    Numeric,
    TsVector,
    /// Short texts of a type of fixed or short length.
    Fixed(&'static str),
}

const VARLENA: [(&str, Kind); 9] = [
    ("text", Kind::Text),
    ("varchar", Kind::Text),
    ("json", Kind::Json),
    ("bytea", Kind::Bytea),
    ("jsonb", Kind::Json),
    ("text[]", Kind::TextArray),
    ("bigint[]", Kind::IntArray),
    ("numeric", Kind::Numeric),
    ("tsvector", Kind::TsVector),
];

const FIXED: [(&str, &str); 10] = [
    ("boolean", "t"),
    ("smallint", "7"),
    ("integer", "12345"),
    ("bigint", "123456789012"),
    ("double precision", "2.5"),
    ("uuid", "00000000-0000-0000-0000-00000000002a"),
    ("date", "2022-02-22"),
    ("name", "some name"),
    ("point", "(1,2)"),
    ("\"char\"", "x"),
];

/// Words, hexadecimal noise, one letter, and mixtures of them.
fn text(rng: &mut impl Rng, length: usize) -> String {
    const WORDS: [&str; 12] = [
        "toast",
        "chunk",
        "page",
        "tuple",
        "value",
        "the",
        "of",
        "pointer",
        "stored",
        "line",
        "compressed",
        "header",
    ];
    let mut out = String::with_capacity(length + 16);
    let style = rng.random_range(0..5);
    while out.len() < length {
        match style {
            0 => out.push('a'),
            1 => write!(out, "{:016x}", rng.random::<u64>()).unwrap(),
            2 => {
                out.push_str(WORDS[rng.random_range(0..WORDS.len())]);
                out.push(' ');
            }
            3 => {
                write!(out, "{:08x}{}", rng.random::<u32>(), WORDS[rng.random_range(0..3)])
                    .unwrap();
            }
            _ => {
                let start = out.len();
                write!(out, "{:x} {}", rng.random::<u32>(), WORDS[rng.random_range(0..12)])
                    .unwrap();
                if start > 200 && rng.random_bool(0.3) {
                    out.extend_from_within_ascii(start - 150, 100);
                }
            }
        }
    }
    out.truncate(length);
    out
}

trait Repeat {
    fn extend_from_within_ascii(&mut self, from: usize, length: usize);
}

impl Repeat for String {
    fn extend_from_within_ascii(&mut self, from: usize, length: usize) {
        let part = self[from..from + length].to_owned();
        self.push_str(&part);
    }
}

fn value(rng: &mut impl Rng, spec: &Spec) -> Option<String> {
    if rng.random_bool(spec.null_part) {
        return None;
    }
    // many small ones, few of the full scale; sizes around the limits of headers
    let length = match rng.random_range(0..6) {
        0 => rng.random_range(120..130).min(spec.scale),
        1 => rng.random_range(0..40).min(spec.scale),
        _ => (spec.scale as f64 * rng.random::<f64>().powi(2)) as usize,
    };
    Some(match spec.kind {
        Kind::Fixed(text) => text.to_owned(),
        Kind::Text => text(rng, length),
        Kind::Bytea => {
            let content = text(rng, length);
            let hex = content.bytes().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").unwrap();
                hex
            });
            // COPY takes the backslash escaped
            format!("\\\\x{hex}")
        }
        Kind::Json => {
            let half = text(rng, length / 2);
            format!("{{\"a\": \"{half}\", \"b\": [{}, \"{}\"]}}", length, text(rng, length / 2))
        }
        Kind::TextArray => {
            format!("{{\"{}\",\"{}\"}}", text(rng, length / 2), text(rng, length / 2))
        }
        Kind::IntArray => {
            let range = if rng.random_bool(0.5) { 100 } else { i64::MAX };
            let numbers: Vec<String> =
                (0..length / 8).map(|_| rng.random_range(0..range).to_string()).collect();
            format!("{{{}}}", numbers.join(","))
        }
        Kind::Numeric => {
            let digits = (length * 2).clamp(1, 30_000);
            (0..digits).map(|_| char::from(b'1' + rng.random_range(0..9))).collect()
        }
        Kind::TsVector => {
            let mut out = String::new();
            for position in 0..(length / 12).min(2000) {
                write!(out, "w{:x}:{} ", rng.random::<u32>() % 100_000, position % 1000 + 1)
                    .unwrap();
            }
            out
        }
    })
}

fn storage(rng: &mut impl Rng) -> Storage {
    [Storage::Plain, Storage::Main, Storage::External, Storage::Extended, Storage::Extended]
        [rng.random_range(0..5)]
}

fn specs(rng: &mut impl Rng) -> Vec<Spec> {
    let count = if rng.random_bool(0.5) { rng.random_range(1..6) } else { rng.random_range(1..41) };
    let mut wide = 0;
    (0..count)
        .map(|_| {
            let null_part = [0.0, 0.0, 0.1, 0.5][rng.random_range(0..4)];
            let method = if rng.random_bool(0.4) { Method::Lz4 } else { Method::Pglz };
            if rng.random_bool(0.4) {
                let (sql_type, text) = FIXED[rng.random_range(0..FIXED.len())];
                let kind = Kind::Fixed(text);
                return Spec { sql_type, storage: None, method, scale: 0, null_part, kind };
            }
            let (sql_type, kind) = VARLENA[rng.random_range(0..VARLENA.len())];
            let storage = storage(rng);
            let mut scale = [60, 300, 1500, 4000, 20_000][rng.random_range(0..5)];
            // PLAIN columns would make nearly every row too big
            if storage == Storage::Plain {
                scale = if rng.random_bool(0.1) { 12_000 } else { scale.min(1500) };
            }
            if scale > 300 {
                wide += 1;
                if wide > 5 {
                    scale = 200;
                }
            }
            Spec { sql_type, storage: Some(storage), method, scale, null_part, kind }
        })
        .collect()
}

/// One generated table: raw values in `raw_n`, the same under generated settings in `toasted_n`.
struct Case {
    number: u64,
    specs: Vec<Spec>,
    target: u32,
    /// Whether values are copied as they are stored in `raw_n` instead of computed afresh.
    copied: bool,
}

impl Case {
    fn new(number: u64) -> (Case, ChaCha8Rng) {
        let mut rng = ChaCha8Rng::seed_from_u64(number);
        let specs = specs(&mut rng);
        let target = match rng.random_range(0..5) {
            0 => rng.random_range(128..2032),
            1 => rng.random_range(2032..8161),
            2 => [128, 4080, 8160][rng.random_range(0..3)],
            _ => 2032,
        };
        let copied = rng.random_bool(0.3);
        (Case { number, specs, target, copied }, rng)
    }

    async fn make(&self, client: &Client, rng: &mut ChaCha8Rng) {
        let number = self.number;
        let mut columns = String::from("id integer");
        let mut settings = String::new();
        let mut raw = String::new();
        let mut list = String::from("id");
        for (index, spec) in self.specs.iter().enumerate() {
            write!(columns, ", c{index} {}", spec.sql_type).unwrap();
            let Some(storage) = spec.storage else {
                write!(list, ", c{index}").unwrap();
                continue;
            };
            write!(
                settings,
                "ALTER TABLE toasted_{number} ALTER c{index} SET STORAGE {}, \
                 ALTER c{index} SET COMPRESSION {};",
                storage.name(),
                spec.method.name()
            )
            .unwrap();
            write!(raw, "ALTER TABLE raw_{number} ALTER c{index} SET STORAGE EXTERNAL;").unwrap();
            if self.copied {
                write!(list, ", c{index}").unwrap();
            } else if spec.sql_type.ends_with("[]") {
                // array_cat makes an empty array of NULL
                write!(
                    list,
                    ", CASE WHEN c{index} IS NOT NULL THEN array_cat(c{index}, '{{}}') END"
                )
                .unwrap();
            } else {
                write!(list, ", (ARRAY[c{index}])[1]").unwrap();
            }
        }
        let fillfactor = rng.random_range(10..=100);
        let target = self.target;
        client
            .batch_execute(&format!(
                "CREATE TABLE raw_{number} ({columns}); {raw}
                 CREATE TABLE toasted_{number} ({columns})
                     WITH (fillfactor = {fillfactor}, toast_tuple_target = {target}); {settings}"
            ))
            .await
            .unwrap();
        let mut data = String::new();
        for id in 0..ROWS {
            write!(data, "{id}").unwrap();
            for spec in &self.specs {
                data.push('\t');
                match value(rng, spec) {
                    Some(text) => data.push_str(&text),
                    None => data.push_str("\\N"),
                }
            }
            data.push('\n');
        }
        let sink = client
            .driver()
            .copy_in::<_, Bytes>(&format!("COPY raw_{number} FROM STDIN"))
            .await
            .unwrap();
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from(data)).await.unwrap();
        sink.finish().await.unwrap();
        client
            .batch_execute(&format!(
                "DO $$ DECLARE n integer; BEGIN
                   FOR n IN SELECT id FROM raw_{number} ORDER BY id LOOP
                     BEGIN
                       INSERT INTO toasted_{number} SELECT {list} FROM raw_{number} WHERE id = n;
                     EXCEPTION WHEN program_limit_exceeded THEN
                       INSERT INTO refused VALUES ({number}, n, SQLERRM);
                     END;
                   END LOOP;
                 END $$"
            ))
            .await
            .unwrap();
    }
}

/// What was compared.
#[derive(Default)]
struct Compared {
    values: u64,
    forms: HashMap<Form, u64>,
    refused: u64,
    /// Compressed with lz4: how many, and the biggest difference of our size from the server's, as
    /// a part of the raw size.
    lz4_values: u64,
    lz4_worst: f64,
}

async fn compare(
    connection: &Arc<Connection>,
    server: &Server,
    case: &Case,
    compared: &mut Compared,
) {
    let client = connection.client();
    let raw = relation(connection, server, &format!("raw_{}", case.number)).await;
    let toasted = relation(connection, server, &format!("toasted_{}", case.number)).await;
    let mut before = rows(connection, server, &raw).await;
    let mut after: HashMap<u32, SampledRow<'_>> = HashMap::new();
    for row in rows(connection, server, &toasted).await {
        after.insert(id_of(&row), row);
    }
    let refused: HashMap<i32, String> = client
        .driver()
        .query("SELECT id, message FROM refused WHERE number = $1", &[&(case.number as i64)])
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    let mut compressor = datum::Compressor::new();
    fetch_all(client, &raw, &mut before, &mut compressor).await;
    let exact = exact_lz4(client, case, &raw, &before).await;
    let table = Table {
        columns: toasted.desc.attributes.iter().map(|a| Column::new(a, Method::Pglz)).collect(),
        target: TupleTarget::new(case.target, PageSize::DEFAULT).unwrap(),
        has_toast_relation: toasted.toast.is_some(),
        page: PageSize::DEFAULT,
        prices: Prices::default(),
        indexes: Vec::new(),
    };
    for row in &mut before {
        let id = id_of(row);
        let values: Vec<Incoming> =
            row.facts.values.iter().map(|&value| arrives(value, case.copied)).collect();
        let predicted = table.toast(&values, Operation::Insert, &mut |column, method| {
            let ours = row.compressed_size(column, method, &mut compressor);
            if method == Method::Pglz {
                return ours;
            }
            let servers = exact.get(&(id, column)).copied().expect("the server was asked");
            if let (Some(ours), Some(servers)) = (ours, servers) {
                compared.lz4_values += 1;
                let raw = f64::from(raw_size(values[column]));
                let difference = (f64::from(ours) - f64::from(servers)).abs() / raw;
                compared.lz4_worst = compared.lz4_worst.max(difference);
            }
            servers
        });
        let place = format!("table {}, row {id}", case.number);
        match predicted {
            Ok(predicted) => {
                let stored = after
                    .get(&id)
                    .unwrap_or_else(|| panic!("{place}: refused: {}", refused[&(id as i32)]));
                same(case, &place, &predicted, stored, compared);
            }
            Err(error @ RowError::RowTooBig { .. }) => {
                compared.refused += 1;
                assert_eq!(refused.get(&(id as i32)), Some(&error.to_string()), "{place}");
            }
            Err(error) => panic!("{place}: {error}"),
        }
    }
}

fn raw_size(value: Incoming) -> u32 {
    match value {
        Incoming::Short { raw }
        | Incoming::Plain { raw }
        | Incoming::Foreign { raw, .. }
        | Incoming::Kept { raw, .. }
        | Incoming::Compressed { raw, .. } => raw,
        _ => 0,
    }
}

/// How a value that is stored in the raw table arrives at the other.
fn arrives(stored: Incoming, copied: bool) -> Incoming {
    match stored {
        Incoming::Kept { stored, raw, method, compressed } if copied => {
            Incoming::Foreign { stored, raw, method, compressed }
        }
        Incoming::Kept { raw, .. } => Incoming::Plain { raw },
        Incoming::Short { raw } if !copied => Incoming::Plain { raw },
        other => other,
    }
}

fn id_of(row: &SampledRow<'_>) -> u32 {
    u32::from_le_bytes(row.plain_content(0).unwrap().try_into().unwrap())
}

#[track_caller]
fn same(
    case: &Case,
    place: &str,
    predicted: &Toasted,
    stored: &SampledRow<'_>,
    compared: &mut Compared,
) {
    let types = |column: usize| case.specs.get(column.wrapping_sub(1)).map_or("id", |s| s.sql_type);
    let expected = toastctl::advise::tally::as_stored(&stored.facts.values, PageSize::DEFAULT);
    for (column, (ours, servers)) in predicted.values.iter().zip(&expected).enumerate() {
        let sizes = |v: &toast_format::model::toast::Placed| {
            (v.form, v.method, v.stored_size, v.raw_size, v.chunks)
        };
        assert_eq!(sizes(ours), sizes(servers), "{place}, column {column} ({})", types(column));
        compared.values += 1;
        *compared.forms.entry(ours.form).or_default() += 1;
    }
    assert_eq!(predicted.tuple_length, stored.facts.tuple_length, "{place}");
}

async fn fetch_all(
    client: &Client,
    raw: &Relation,
    rows: &mut [SampledRow<'_>],
    compressor: &mut datum::Compressor,
) {
    let both = [Method::Pglz, Method::Lz4];
    for column in 0..raw.desc.attributes.len() {
        let pointers: Vec<_> =
            rows.iter().filter_map(|row| row.must_fetch(column, &both, false)).collect();
        if pointers.is_empty() {
            continue;
        }
        let toast = raw.toast.as_ref().unwrap();
        let values = chunks::values(client, &toast.name, &pointers).await.unwrap();
        for row in rows.iter_mut() {
            if let Some(pointer) = row.must_fetch(column, &both, false) {
                let bytes = &values[&pointer.value_id.0];
                row.fetched(column, bytes, &both, compressor, |_, _| Ok(())).unwrap();
            }
        }
    }
}

/// What the server's lz4 makes of the values of the columns that use it.
async fn exact_lz4(
    client: &Client,
    case: &Case,
    raw: &Relation,
    rows: &[SampledRow<'_>],
) -> HashMap<(u32, usize), Option<u32>> {
    let items: Vec<_> = rows.iter().map(|row| row.ctid).collect();
    let mut sizes = HashMap::new();
    for (index, column) in raw.desc.attributes.iter().enumerate().skip(1) {
        let spec = &case.specs[index - 1];
        let compresses = matches!(spec.storage, Some(Storage::Main | Storage::Extended));
        if column.length != Length::Varlena || spec.method != Method::Lz4 || !compresses {
            continue;
        }
        let is_array = spec.sql_type.ends_with("[]");
        client.batch_execute("BEGIN").await.unwrap();
        let methods = [Method::Lz4];
        let name = column.name.as_str();
        let trial = Trial::new(raw.quoted(), index, name, is_array, &methods, PageSize::DEFAULT);
        trial.make(client).await.unwrap();
        let found = trial.compress(client, &items).await.unwrap();
        client.batch_execute("ROLLBACK").await.unwrap();
        for row in rows {
            if let Some(size) = found.get(&row.ctid) {
                sizes.insert((id_of(row), index), size.get(Method::Lz4));
            }
        }
    }
    sizes
}

fn compare_cases(numbers: impl Iterator<Item = u64>) -> Compared {
    let database = server::shared().create_database("model");
    database.psql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE refused (number bigint, id integer, message text)",
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connection = connect(&database).await;
        let client = connection.client();
        let server = Server::ask(client).await.unwrap();
        let mut compared = Compared::default();
        for number in numbers {
            let (case, mut rng) = Case::new(number);
            case.make(client, &mut rng).await;
            compare(&connection, &server, &case, &mut compared).await;
            client
                .batch_execute(&format!("DROP TABLE raw_{number}, toasted_{number}"))
                .await
                .unwrap();
        }
        compared
    })
}

#[track_caller]
fn check(compared: &Compared) {
    for form in [
        Form::Null,
        Form::Short,
        Form::Plain,
        Form::Compressed,
        Form::External,
        Form::ExternalCompressed,
    ] {
        assert!(compared.forms.get(&form).is_some_and(|&n| n > 100), "{form:?}");
    }
    assert!(compared.refused > 0 && compared.lz4_values > 1000);
    assert!(compared.lz4_worst == 0.0, "lz4 sizes are off by {}", compared.lz4_worst);
}

#[test]
fn every_value_is_stored_as_the_model_says_first_half() {
    check(&compare_cases(0..150));
}

#[test]
fn every_value_is_stored_as_the_model_says_second_half() {
    check(&compare_cases(150..300));
}
