//! What the server says of copies in the trial's temporary table, beside what its library makes of the values.

use toast_format::codec::{Method, datum, lz4_size};
use toast_format::disk::layout::PageSize;
use toast_format::disk::{BlockNumber, ItemPointer};
use toastctl::server::trial::Trial;

use crate::support::library::connect;
use crate::support::server;

/// Values of 1 to 400 bytes that compress to almost nothing, to little less, and not at all: among their
/// datums are those that just stay in the row, and those that just do not.
const TABLE: &str = "
    CREATE DOMAIN filled AS bytea NOT NULL;
    CREATE TABLE t (id int, v filled);
    INSERT INTO t SELECT row_number() OVER (), substr(decode(md5(bytes::text), 'hex'), 1, noise)
        || decode(repeat('00', bytes), 'hex')
    FROM generate_series(1, 385, 3) AS bytes, generate_series(0, 15, 3) AS noise;
    INSERT INTO t SELECT 0, sha512('x') || sha512('y');";

#[test]
fn sizes_of_compressed_copies_are_those_of_their_datums() {
    let mut seen = Vec::new();
    for major in server::available_majors() {
        let server = server::shared_of(major);
        let database = server.create_database("trial");
        database.psql(TABLE);
        let lz4 = database.psql(
            "SELECT 'lz4' = ANY (enumvals) FROM pg_settings
             WHERE name = 'default_toast_compression'",
        );
        let methods = if lz4 == "t" { &[Method::Pglz, Method::Lz4][..] } else { &[Method::Pglz] };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connection = connect(&database).await;
            let client = connection.client();
            let values = client
                .driver()
                .query("SELECT ctid::text, v::bytea FROM t ORDER BY ctid", &[])
                .await
                .unwrap();
            let mut rows: Vec<(ItemPointer, Vec<u8>)> = Vec::new();
            for row in &values {
                let ctid: String = row.get(0);
                let (block, item) = ctid.trim_matches(['(', ')']).split_once(',').unwrap();
                let block = BlockNumber(block.parse().unwrap());
                rows.push((ItemPointer { block, item: item.parse().unwrap() }, row.get(1)));
            }
            let page = PageSize::DEFAULT;
            let trial = Trial::new("public.t".into(), 1, "v", false, methods, page);
            trial.make(client).await.unwrap();
            let addresses: Vec<ItemPointer> = rows.iter().map(|row| row.0).collect();
            let found = trial.compress(client, &addresses).await.unwrap();
            let mut compressor = datum::Compressor::new();
            for (address, raw) in &rows {
                for &method in methods {
                    let length = match method {
                        Method::Pglz => compressor.compress(method, raw).map(<[u8]>::len),
                        Method::Lz4 => Some(lz4_size::compressed(raw).0)
                            .filter(|&length| datum::is_worthwhile(raw.len(), length)),
                    };
                    let ours = length.map(|length| length as u32 + 8);
                    // with its 1-byte header too short to be tried
                    let ours = ours.filter(|_| raw.len() + 1 > 24);
                    let servers = found[address].get(method);
                    assert_eq!(servers, ours, "{major}, {method:?}, {} bytes", raw.len());
                    seen.extend(servers);
                }
            }
        });
    }
    for size in 21..=28 {
        assert!(seen.contains(&size), "no datum of {size} bytes");
    }
}
