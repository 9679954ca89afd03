//! The application of the soak test: sessions that change rows of two tables, with a model in memory of what
//! the tables must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join3};
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

/// How long a server may take to come back.
const PATIENCE: Duration = Duration::from_secs(300);

/// Rows of `doc` that each worker keeps about, and rows in which all workers count.
const DOCS: usize = 500;
const SHARED: usize = 40;

/// Ids and versions of a worker's rows: this many, from its number times this many on.
const NUMBERS: i64 = 1_000_000_000_000;

pub(crate) const SCHEMA: &str = "
    CREATE FUNCTION keys(m bigint, w text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
        $$SELECT jsonb_build_object('m', m, 'tags', jsonb_build_array(m % 50, m % 97), 'text', left(w, 5000))$$;
    CREATE FUNCTION moment(m bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
        $$SELECT to_timestamp(m % 1000000)$$;
    CREATE TABLE doc (id bigint PRIMARY KEY, owner bigint NOT NULL, place bigint NOT NULL,
        n bigint NOT NULL, m bigint NOT NULL, hits bigint NOT NULL DEFAULT 0,
        v text COMPRESSION pglz, w text, j jsonb, at timestamptz,
        tag text GENERATED ALWAYS AS ('tag ' || (m % 50)::text) STORED,
        UNIQUE (owner, place) DEFERRABLE INITIALLY DEFERRED);
    CREATE TABLE part (id bigint PRIMARY KEY, n bigint NOT NULL, v text COMPRESSION pglz,
        doc bigint NOT NULL REFERENCES doc ON UPDATE CASCADE ON DELETE CASCADE);
    CREATE INDEX by_doc ON part (doc);
    CREATE INDEX by_start ON part (left(v, 9));
    CREATE INDEX by_j ON doc USING gin (j jsonb_path_ops);
    CREATE INDEX by_at ON doc USING brin (at) WITH (pages_per_range = 4, autosummarize = on);
    CREATE INDEX by_tag ON doc USING hash (tag);
    CREATE INDEX by_m ON doc (m) WHERE m % 7 = 0;
    CREATE INDEX by_md5 ON doc (md5(w));";

/// The statements, in the order of [`Sql`].
const SQL: [&str; 14] = [
    "INSERT INTO doc (id, place, owner, n, m, v, w, j, at)
     VALUES ($1, $1, $2, $3, $4, $5, $6, keys($4, $6), moment($4))",
    "UPDATE doc SET n = $2, v = $3 WHERE id = $1",
    "UPDATE doc SET m = $2, w = $3, j = keys($2, $3), at = moment($2) WHERE id = $1",
    "UPDATE doc SET place = $2 WHERE id = $1",
    "UPDATE doc SET id = $2 WHERE id = $1",
    "DELETE FROM doc WHERE id = $1",
    "UPDATE doc SET hits = hits + 1 WHERE id = $1",
    "INSERT INTO part (id, doc, n, v) VALUES ($1, $2, $3, $4)",
    "UPDATE part SET n = $2, v = $3 WHERE id = $1",
    "DELETE FROM part WHERE id = $1",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "SELECT id, place, n, m, hits, v, w, j = keys(m, w) AND at = moment(m) AND tag = 'tag ' || (m % 50)
     FROM doc WHERE id BETWEEN $1 AND $2",
    "SELECT doc, id, n, v FROM part WHERE doc BETWEEN $1 AND $2",
];

#[derive(Debug, Clone, Copy)]
enum Sql {
    Insert,
    SetV,
    SetW,
    SetPlace,
    Renumber,
    Delete,
    Hit,
    InsertPart,
    UpdatePart,
    DeletePart,
    Savepoint,
    RollBackTo,
    Read,
    ReadParts,
}

/// What a row of `doc` must hold: `v` in version `n`, the other columns in version `m`, and parts by id with
/// their versions.
#[derive(Debug, Clone, PartialEq)]
struct Doc {
    place: i64,
    n: i64,
    m: i64,
    hits: i64,
    parts: BTreeMap<i64, i64>,
}

type Docs = BTreeMap<i64, Doc>;
type Parameter = Box<dyn ToSql + Sync + Send>;

/// One transaction.
#[derive(Default)]
struct Change {
    steps: Vec<(Sql, Vec<Parameter>)>,
    /// The rows that it changes as they are afterwards; `None` for a deleted one.
    docs: Vec<(i64, Option<Doc>)>,
    /// The shared row that it counts in.
    hit: Option<i64>,
    rolled_back: bool,
}

impl Change {
    fn add(&mut self, sql: Sql, numbers: &[i64], versions: &[i64]) {
        let numbers = numbers.iter().map(|&number| Box::new(number) as Parameter);
        let texts = versions.iter().map(|&version| Box::new(text(version)) as Parameter);
        self.steps.push((sql, numbers.chain(texts).collect()));
    }
}

/// The content of a version: up to 4 kB that do not compress and up to 10 kB that do.
fn text(version: i64) -> String {
    static NOISE: LazyLock<String> = LazyLock::new(|| {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        (0..1 << 16).map(|_| char::from(b'0' + random.random_range(0..64u8))).collect()
    });
    let bits = (version as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize;
    let noise = &NOISE[bits >> 20 & 0x7fff..][..bits >> 40 & 0xfff];
    let repeated = NOISE[bits >> 30 & 0x7fff..][..40].repeat(bits >> 52 & 0xff);
    format!("{version} {noise}{repeated}")
}

enum Failed {
    /// The session has ended: the server crashed, or somebody terminated it.
    Lost,
    /// Any other error, which an application must not meet.
    Wrong(String),
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Failed {
        let is_io = || error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        match error.code().map(SqlState::code) {
            Some("57P01" | "57P02" | "57P03") => Failed::Lost,
            None if error.is_closed() || is_io() => Failed::Lost,
            _ => Failed::Wrong(format!("{error}: {:?}", error.as_db_error())),
        }
    }
}

/// When something was found, as the server's log tells times, and what.
fn at_this_time(what: &str, wrong: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let of_day = now.unwrap_or_default().as_millis() % 86_400_000;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, fraction) = (of_day / 1000 % 60, of_day % 1000);
    format!("{hour:02}:{minute:02}:{second:02}.{fraction:03} UTC, {what}: {wrong}")
}

/// A connection with its prepared statements.
struct Session {
    client: Client,
    statements: Vec<Statement>,
}

impl Session {
    /// Tries until the server accepts connections.
    async fn open(conninfo: &str) -> Session {
        let began = Instant::now();
        loop {
            match Session::try_open(conninfo).await {
                Ok(session) => return session,
                Err(error) => assert!(began.elapsed() < PATIENCE, "no connection: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn try_open(conninfo: &str) -> Result<Session, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(conninfo, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("SET lock_timeout = '60s'").await?;
        let mut statements = Vec::new();
        for sql in SQL {
            statements.push(client.prepare(sql).await?);
        }
        Ok(Session { client, statements })
    }

    /// Sends all statements at once.
    async fn run(&self, change: &Change) -> Result<(), Failed> {
        let steps = change.steps.iter().map(async |(sql, parameters)| {
            let parameters: Vec<&(dyn ToSql + Sync)> =
                parameters.iter().map(|one| &**one as &(dyn ToSql + Sync)).collect();
            self.client.execute(&self.statements[*sql as usize], &parameters).await
        });
        let end = if change.rolled_back { "ROLLBACK" } else { "COMMIT" };
        let (begin, end) = (self.client.batch_execute("BEGIN"), self.client.batch_execute(end));
        let (begun, done, ended) = join3(begin, join_all(steps), end).await;
        begun?;
        for ((sql, _), rows) in change.steps.iter().zip(done) {
            let expected = u64::from(!matches!(sql, Sql::Savepoint | Sql::RollBackTo));
            match rows.map_err(Failed::from) {
                Ok(rows) if rows == expected => {}
                Ok(rows) => return Err(Failed::Wrong(format!("{sql:?}: {rows} rows"))),
                Err(Failed::Lost) => return Err(Failed::Lost),
                Err(Failed::Wrong(error)) => {
                    return Err(Failed::Wrong(format!("{sql:?}: {error}")));
                }
            }
        }
        Ok(ended?)
    }

    /// Rows of `doc` by id with their parts; each must have the content of its versions.
    async fn read(&self, first: i64, last: i64) -> Result<Docs, Failed> {
        let range: [&(dyn ToSql + Sync); 2] = [&first, &last];
        let mut docs = Docs::new();
        for row in self.client.query(&self.statements[Sql::Read as usize], &range).await? {
            let [id, place, n, m, hits] = [0, 1, 2, 3, 4].map(|column| row.get(column));
            let is_right = row.get::<_, &str>(5) == text(n) && row.get::<_, &str>(6) == text(m);
            if !is_right || row.get::<_, Option<bool>>(7) != Some(true) {
                return Err(Failed::Wrong(format!("doc {id} has other contents: {row:?}")));
            }
            docs.insert(id, Doc { place, n, m, hits, parts: BTreeMap::new() });
        }
        for row in self.client.query(&self.statements[Sql::ReadParts as usize], &range).await? {
            let [doc, id, n] = [0, 1, 2].map(|column| row.get(column));
            let doc = docs.get_mut(&doc).filter(|_| row.get::<_, &str>(3) == text(n));
            let Some(doc) = doc else {
                return Err(Failed::Wrong(format!("part {id} has other contents: {row:?}")));
            };
            doc.parts.insert(id, n);
        }
        Ok(docs)
    }
}

/// One session of the application, which alone changes its rows, and what it knows about them.
pub(crate) struct Worker {
    owner: i64,
    random: ChaCha8Rng,
    docs: Docs,
    /// How often it has counted in each shared row.
    hits: BTreeMap<i64, i64>,
    last_number: i64,
    pub(crate) committed: u64,
    pub(crate) reads: u64,
    /// Sessions that ended.
    pub(crate) lost: u64,
    pub(crate) longest: Duration,
}

impl Worker {
    pub(crate) fn new(owner: i64, seed: u64, shared: &[i64]) -> Worker {
        Worker {
            owner,
            random: ChaCha8Rng::seed_from_u64(seed ^ owner as u64),
            docs: Docs::new(),
            hits: shared.iter().map(|&id| (id, 0)).collect(),
            last_number: owner * NUMBERS,
            committed: 0,
            reads: 0,
            lost: 0,
            longest: Duration::ZERO,
        }
    }

    /// Inserts the rows in which all workers count, as a worker without any of them.
    pub(crate) async fn insert_shared(&mut self, conninfo: &str) -> Result<Vec<i64>, String> {
        let mut session = Session::open(conninfo).await;
        while self.docs.len() < SHARED {
            let change = self.insertion();
            self.transact(&mut session, conninfo, change).await?;
        }
        Ok(self.docs.keys().copied().collect())
    }

    /// Changes and reads rows until asked to stop, or until something is wrong.
    pub(crate) async fn work(&mut self, conninfo: &str, stop: &AtomicBool) -> Result<(), String> {
        let mut session = Session::open(conninfo).await;
        while !stop.load(Ordering::Relaxed) {
            let is_full = self.docs.len() >= DOCS || self.committed > 2 * DOCS as u64;
            let change = if is_full { self.change() } else { self.insertion() };
            self.transact(&mut session, conninfo, change).await?;
            if self.random.random_range(0..3) == 0 {
                self.read_one(&mut session, conninfo).await?;
            }
        }
        Ok(())
    }

    async fn transact(
        &mut self,
        session: &mut Session,
        conninfo: &str,
        change: Change,
    ) -> Result<(), String> {
        let began = Instant::now();
        match session.run(&change).await {
            Ok(()) => {
                self.longest = self.longest.max(began.elapsed());
                self.apply(change);
                Ok(())
            }
            Err(Failed::Wrong(wrong)) => {
                let steps: Vec<Sql> = change.steps.iter().map(|(sql, _)| *sql).collect();
                let docs = change.docs.iter().map(|(id, _)| id).chain(&change.hit);
                let docs: Vec<&i64> = docs.collect();
                Err(at_this_time(&format!("{steps:?} of docs {docs:?}"), &wrong))
            }
            // whether it was committed is not known: all of it must be there, or nothing
            Err(Failed::Lost) => {
                let stored = self.read_all(session, conninfo).await?;
                if stored != self.docs {
                    self.apply(change);
                }
                if stored == self.docs {
                    Ok(())
                } else {
                    Err(at_this_time("after a lost session", &self.difference(&stored)))
                }
            }
        }
    }

    async fn read_one(&mut self, session: &mut Session, conninfo: &str) -> Result<(), String> {
        let Some((&id, doc)) = self.docs.iter().choose(&mut self.random) else { return Ok(()) };
        match session.read(id, id).await {
            Ok(docs) if docs.get(&id) == Some(doc) => self.reads += 1,
            Ok(docs) => {
                let is = format!("is {:?} instead of {doc:?}", docs.get(&id));
                return Err(at_this_time(&format!("reading doc {id}"), &is));
            }
            Err(Failed::Wrong(wrong)) => {
                return Err(at_this_time(&format!("reading doc {id}"), &wrong));
            }
            Err(Failed::Lost) => {
                self.lost += 1;
                *session = Session::open(conninfo).await;
            }
        }
        Ok(())
    }

    /// All rows of this worker in a new session, after one that was lost.
    async fn read_all(&mut self, session: &mut Session, conninfo: &str) -> Result<Docs, String> {
        loop {
            self.lost += 1;
            *session = Session::open(conninfo).await;
            match session.read(self.owner * NUMBERS, (self.owner + 1) * NUMBERS - 1).await {
                Ok(docs) => return Ok(docs),
                Err(Failed::Wrong(wrong)) => {
                    let what = format!("reading all docs of worker {}", self.owner);
                    return Err(at_this_time(&what, &wrong));
                }
                Err(Failed::Lost) => {}
            }
        }
    }

    /// The rows that are not stored as they must be.
    fn difference(&self, stored: &Docs) -> String {
        let ids: BTreeSet<&i64> = self.docs.keys().chain(stored.keys()).collect();
        let differ = ids.into_iter().map(|id| (id, self.docs.get(id), stored.get(id)));
        let differ = differ.filter(|(_, expected, stored)| expected != stored);
        format!("id, expected, stored: {:?}", differ.collect::<Vec<_>>())
    }

    fn apply(&mut self, change: Change) {
        self.committed += u64::from(!change.rolled_back);
        for (id, doc) in change.docs {
            match doc {
                Some(doc) => self.docs.insert(id, doc),
                None => self.docs.remove(&id),
            };
        }
        if let Some(hits) = change.hit.and_then(|hit| self.hits.get_mut(&hit)) {
            *hits += 1;
        }
    }

    /// An id or version that was never used.
    fn number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// A row with up to three parts.
    fn insertion(&mut self) -> Change {
        let [id, n, m] = [(); 3].map(|()| self.number());
        let mut change = Change::default();
        change.add(Sql::Insert, &[id, self.owner, n, m], &[n, m]);
        let mut parts = BTreeMap::new();
        for _ in 0..self.random.random_range(0..4) {
            let part = self.number();
            change.add(Sql::InsertPart, &[part, id, part], &[part]);
            parts.insert(part, part);
        }
        change.docs.push((id, Some(Doc { place: id, n, m, hits: 0, parts })));
        change
    }

    fn change(&mut self) -> Change {
        let random = &mut self.random;
        if random.random_range(0..5) == 0 && random.random_range(0..2 * DOCS) >= self.docs.len() {
            return self.insertion();
        }
        let mut some = || self.docs.iter().choose(random).map(|(&id, doc)| (id, doc.clone()));
        let (Some((id, mut doc)), Some((other, mut swapped))) = (some(), some()) else {
            return self.insertion();
        };
        let (part, kind) = (doc.parts.keys().choose(random).copied(), random.random_range(0..100));
        let hit = self.hits.keys().choose(random).copied().filter(|_| random.random());
        let version = self.number();
        let mut change = Change::default();
        let mut new_id = Some(id);
        match (kind, part) {
            (0..30, _) => {
                change.add(Sql::SetV, &[id, version], &[version]);
                (doc.n, change.hit) = (version, hit);
                if let Some(hit) = hit {
                    change.add(Sql::Hit, &[hit], &[]);
                }
            }
            (30..50, _) => {
                change.add(Sql::SetW, &[id, version], &[version]);
                doc.m = version;
            }
            // right at the end only: the constraint is deferred
            (50..57, _) if id != other => {
                std::mem::swap(&mut doc.place, &mut swapped.place);
                change.add(Sql::SetPlace, &[id, doc.place], &[]);
                change.add(Sql::SetPlace, &[other, swapped.place], &[]);
                change.docs.push((other, Some(swapped)));
            }
            (50..62, _) => {
                change.add(Sql::Renumber, &[id, version], &[]);
                new_id = Some(version);
            }
            (62..70, _) => {
                change.add(Sql::Delete, &[id], &[]);
                new_id = None;
            }
            (70..74, _) => {
                change.add(Sql::SetV, &[id, version], &[version]);
                change.add(Sql::Delete, &[id], &[]);
                change.rolled_back = true;
            }
            (74..78, _) => {
                change.add(Sql::SetV, &[id, version], &[version]);
                doc.n = version;
                change.add(Sql::Savepoint, &[], &[]);
                change.add(Sql::Delete, &[id], &[]);
                change.add(Sql::RollBackTo, &[], &[]);
            }
            (78..86, Some(part)) => {
                change.add(Sql::UpdatePart, &[part, version], &[version]);
                doc.parts.insert(part, version);
            }
            (86..92, Some(part)) => {
                change.add(Sql::DeletePart, &[part], &[]);
                doc.parts.remove(&part);
            }
            _ => {
                change.add(Sql::InsertPart, &[version, id, version], &[version]);
                doc.parts.insert(version, version);
            }
        }
        if !change.rolled_back {
            change.docs.insert(0, (id, None));
            change.docs.extend(new_id.map(|id| (id, Some(doc))));
        }
        change
    }
}

/// Compares everything stored with what the workers know; `shared` has inserted the rows in which they count.
pub(crate) async fn check_everything(
    conninfo: &str,
    mut shared: Worker,
    workers: Vec<Worker>,
) -> Result<(), String> {
    for (id, doc) in &mut shared.docs {
        doc.hits = workers.iter().map(|worker| worker.hits[id]).sum();
    }
    let mut session = Session::open(conninfo).await;
    let mut expected = [0; 2];
    for mut worker in std::iter::once(shared).chain(workers) {
        let stored = worker.read_all(&mut session, conninfo).await?;
        if stored != worker.docs {
            return Err(worker.difference(&stored));
        }
        expected[0] += stored.len();
        expected[1] += stored.values().map(|doc| doc.parts.len()).sum::<usize>();
    }
    let counts = "SELECT (SELECT count(*) FROM doc), (SELECT count(*) FROM part)";
    let row = session.client.query_one(counts, &[]).await.map_err(|error| error.to_string())?;
    let stored = [0, 1].map(|column| row.get::<_, i64>(column) as usize);
    if stored == expected { Ok(()) } else { Err(format!("{stored:?} rows, not {expected:?}")) }
}
