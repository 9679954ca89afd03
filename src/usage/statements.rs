//! How the statements in `pg_stat_statements` use a column.
//!
//! The view has no relations, only texts: whether a statement is about a column is guessed from the
//! names in it. Rows are those that statements returned or changed; what an aggregate looked at to
//! return one row is not known.

use tokio_postgres::types::Type;

use crate::server::connect::OWN;
use crate::server::{Client, LiveError, Relation};
use toast_format::model::sql::{quote_literal, quote_qualified};

/// Statements that are read at the most, the most often run ones, and characters of each.
pub(super) const MOST_TEXTS: i64 = 5000;
pub(super) const LONGEST_TEXT: i64 = 20_000;
/// What the view shows in place of the text of another user's statement.
const HIDDEN: &str = "<insufficient privilege>";

/// What the view gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statements {
    /// The extension is not installed in this database.
    NotInstalled,
    /// It is, but its view cannot be read; the server's message.
    Unreadable(String),

    Read {
        /// Statements whose text has the table's name in it, and the rows that each returned or changed.
        list: Vec<(String, f64)>,
        /// Statements of this database whose text this user may not see.
        hidden: u64,
        /// Whether no other relation of the database has the table's name, so that the name alone
        /// tells it.
        unique_name: bool,
    },
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
struct QualifiedColumn<'a> {
    schema: &'a str,
    table: &'a str,
    column: &'a str,
    /// Whether the table's name without a schema is this table's.
    unique_name: bool,
}

/// How a statement uses the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementUse {
    /// It is about another table, or does not touch the column.
    None,
    /// It returns rows with the column, or looks at it.
    Read,
    /// It inserts rows with the column.
    Insert,
    /// It sets the column.
    Update,
    /// It names the table, but its text does not tell.
    Unclear,
}

/// What the statements say together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ColumnUse {
    /// There is no `pg_stat_statements`.
    NotThere,
    /// Not usable, with the reason.
    Silent(String),
    /// Rows read and written, and from how many statements that is known.
    Counted {
        /// Rows that the column was read of.
        reads: f64,
        /// Rows that it was written to, beyond those that are there now (the load).
        writes: f64,
        statements: usize,
    },
}

/// Minimum of rows for statements to count.
const LEAST_ROWS: f64 = 1000.0;
/// The part of the rows that may come from statements whose use of the column is unclear.
const UNCLEAR_PART: f64 = 0.1;

impl Statements {
    /// What this database's view has of statements with the name of the table in them. The last statement of a
    /// transaction: where its library is not loaded the view is an error.
    ///
    /// # Errors
    /// The server's, but for those of the view itself.
    pub(crate) async fn ask(client: &Client, relation: &Relation) -> Result<Statements, LiveError> {
        let sql = "SELECT n.nspname::pg_catalog.text, \
                          (SELECT count(*) FROM pg_catalog.pg_class AS c WHERE c.relname = $1 \
                           AND c.relkind IN ('r', 'p', 'm', 'v', 'f')) = 1 \
                   FROM pg_catalog.pg_extension AS e \
                   JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace \
                   WHERE e.extname = 'pg_stat_statements'";
        let extension = client.query_typed(sql, &[(&relation.name, Type::NAME)]).await?.pop();
        let Some(extension) = extension else { return Ok(Statements::NotInstalled) };
        let schema: String = extension.try_get(0)?;
        let unique_name: bool = extension.try_get(1)?;
        let sql = format!(
            "SELECT pg_catalog.left(s.query, {LONGEST_TEXT}), s.rows::pg_catalog.float8 \
             FROM {} AS s \
             WHERE s.dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                             WHERE d.datname = pg_catalog.current_database()) \
             AND (s.query IS NULL OR s.query = {} \
                  OR pg_catalog.strpos(pg_catalog.lower(s.query), pg_catalog.lower($1)) > 0) \
             ORDER BY s.calls DESC LIMIT {MOST_TEXTS}",
            quote_qualified(&schema, "pg_stat_statements"),
            quote_literal(HIDDEN),
        );
        let rows = match client.query_typed(&sql, &[(&relation.name, Type::TEXT)]).await {
            Ok(rows) => rows,
            Err(error) => {
                return match error.as_db_error() {
                    Some(db) => Ok(Statements::Unreadable(db.message().to_owned())),
                    None => Err(error.into()),
                };
            }
        };
        let mut list = Vec::with_capacity(rows.len());
        let mut hidden = 0;
        for row in rows {
            match row.try_get::<_, Option<String>>(0)?.filter(|query| query != HIDDEN) {
                Some(query) => list.push((query, row.try_get(1)?)),
                None => hidden += 1,
            }
        }
        Ok(Statements::Read { list, hidden, unique_name })
    }

    /// What they say of a column of a table with so many live rows.
    pub(crate) fn column_use(
        &self,
        relation: &Relation,
        column: &str,
        live_rows: f64,
    ) -> ColumnUse {
        let unique_name = matches!(self, Statements::Read { unique_name: true, .. });
        let schema = relation.schema.as_str();
        let table = relation.name.as_str();
        column_use(self, QualifiedColumn { schema, table, column, unique_name }, live_rows)
    }
}

fn column_use(statements: &Statements, named: QualifiedColumn<'_>, live_rows: f64) -> ColumnUse {
    let (list, hidden) = match statements {
        Statements::NotInstalled => return ColumnUse::NotThere,
        Statements::Unreadable(message) => return ColumnUse::Silent(message.clone()),
        Statements::Read { list, hidden, .. } => (list, *hidden),
    };
    if hidden > 0 {
        return ColumnUse::Silent(format!(
            "the texts of {hidden} statements are hidden from this user, who is not a member of \
             pg_read_all_stats"
        ));
    }
    let mut reads = 0.0;
    let mut inserts = 0.0;
    let mut updates = 0.0;
    let mut unclear = 0.0;
    let mut telling = 0;
    // this program's own are nobody's use of the table
    for (query, rows) in list.iter().filter(|(query, _)| !query.contains(OWN)) {
        let sum = match use_of(query, named) {
            StatementUse::None => continue,
            StatementUse::Read => &mut reads,
            StatementUse::Insert => &mut inserts,
            StatementUse::Update => &mut updates,
            StatementUse::Unclear => &mut unclear,
        };
        *sum += rows;
        telling += 1;
    }
    let writes = updates + f64::max(inserts - live_rows, 0.0);
    let all: f64 = reads + inserts + updates + unclear;
    if telling == 0 {
        return ColumnUse::Silent("no statement in it names table and column".into());
    }
    if unclear > all * UNCLEAR_PART {
        return ColumnUse::Silent(format!(
            "{:.0} % of the rows come from statements whose text does not say what they do with \
             the column",
            unclear / all * 100.0
        ));
    }
    if reads + writes < LEAST_ROWS {
        return ColumnUse::Silent("its statements on the column are about too few rows".into());
    }
    ColumnUse::Counted { reads, writes, statements: telling }
}

/// Where the table stands in a statement.
struct Mention {
    /// The token behind its name.
    next: usize,
    /// Whether it is what an INSERT, UPDATE, DELETE or COPY changes or copies.
    target: bool,
    /// Whether the name may be another table's.
    is_ambiguous: bool,
}

/// Key words that begin a part of a statement.
const PARTS: &str = "select from join where set group order having returning on values using";

/// How a statement uses the column, by its text.
fn use_of(text: &str, named: QualifiedColumn<'_>) -> StatementUse {
    let tokens = tokens(text);
    let mentions: Vec<Mention> =
        (0..tokens.len()).filter_map(|index| mention(&tokens, index, named)).collect();
    if mentions.iter().any(|mention| mention.is_ambiguous) {
        return StatementUse::Unclear;
    }
    if mentions.is_empty() {
        return StatementUse::None;
    }
    let verb = match tokens.iter().find(|token| **token != Token::Symbol('(')) {
        Some(Token::Word { text, quoted: false }) => text,
        _ => return StatementUse::Unclear,
    };
    let read = if names_column(&tokens, named) { StatementUse::Read } else { StatementUse::None };
    let writes = ["insert", "update", "delete", "merge"];
    let target = mentions.iter().find(|mention| mention.target);
    let rest = target.map(|target| tokens.get(target.next..).unwrap_or_default());
    match (verb.as_str(), rest) {
        ("table", _) => StatementUse::Read,
        ("with", _) if tokens.iter().any(|token| token.is_one_of(&writes)) => StatementUse::Unclear,
        ("select" | "with", _) | ("insert" | "update" | "copy", None) => read,
        ("insert", Some(rest)) if lists_column(rest, named) => StatementUse::Insert,
        ("update", Some(rest)) if sets_column(rest, named) => StatementUse::Update,
        ("copy", Some(rest)) if lists_column(rest, named) => {
            let is_load = rest.iter().any(|token| token.is_keyword("from"));
            if is_load { StatementUse::Insert } else { StatementUse::Read }
        }
        ("delete", _) | ("insert" | "update" | "copy", Some(_)) => StatementUse::None,
        _ => StatementUse::Unclear,
    }
}

/// Whether the token at `index` names the table where a table may stand.
fn mention(tokens: &[Token], index: usize, named: QualifiedColumn<'_>) -> Option<Mention> {
    if !tokens.get(index)?.is_name(named.table) {
        return None;
    }
    let previous = index.checked_sub(1).and_then(|previous| tokens.get(previous));
    let qualified = previous == Some(&Token::Symbol('.'));
    if qualified && !tokens.get(index.checked_sub(2)?)?.is_name(named.schema) {
        return None;
    }
    let mut before = index.checked_sub(if qualified { 3 } else { 1 })?;
    if tokens.get(before)?.is_keyword("only") {
        before = before.checked_sub(1)?;
    }
    let token = tokens.get(before)?;
    let mut earlier = tokens.get(..before).unwrap_or_default().iter().rev();
    let listed = *token == Token::Symbol(',')
        && earlier
            .find(|token| PARTS.split(' ').any(|part| token.is_keyword(part)))
            .is_some_and(|part| part.is_one_of(&["from", "join", "using"]));
    let target = token.is_one_of(&["update", "into", "copy"]);
    if !target && !listed && !token.is_one_of(&["from", "join", "using", "table"]) {
        return None;
    }
    let is_ambiguous = !qualified && !named.unique_name;
    Some(Mention { next: index + 1, target, is_ambiguous })
}

/// Whether the column is named anywhere, or all columns are meant by a `*`.
fn names_column(tokens: &[Token], named: QualifiedColumn<'_>) -> bool {
    let star = tokens.windows(2).any(|pair| match pair {
        [before, Token::Symbol('*')] => {
            before.is_one_of(&["select", "distinct", "all", "returning"])
                || matches!(before, Token::Symbol(',' | '.'))
        }
        _ => false,
    });
    star || tokens.iter().any(|token| token.is_name(named.column))
}

/// Whether the column is in the list of columns that follows, or there is none.
fn lists_column(rest: &[Token], named: QualifiedColumn<'_>) -> bool {
    if rest.first() != Some(&Token::Symbol('(')) {
        return true;
    }
    rest.iter()
        .take_while(|token| **token != Token::Symbol(')'))
        .any(|token| token.is_name(named.column))
}

/// Whether the column is assigned to in the `SET` that follows.
fn sets_column(rest: &[Token], named: QualifiedColumn<'_>) -> bool {
    let set = rest.iter().skip_while(|token| !token.is_keyword("set"));
    let set: Vec<&Token> =
        set.take_while(|token| !token.is_one_of(&["from", "where", "returning"])).collect();
    set.windows(3).any(|three| match three {
        [before, name, after] => {
            let starts = before.is_keyword("set") || matches!(before, Token::Symbol(',' | '('));
            starts && name.is_name(named.column) && matches!(after, Token::Symbol('=' | ',' | ')'))
        }
        _ => false,
    })
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// An identifier or key word; folded to lower case unless it was quoted.
    Word {
        text: String,
        quoted: bool,
    },
    Symbol(char),
    /// The content of a string.
    Text(String),
    Number,
    /// What stands in a constant's place: `$1`.
    Parameter,
}

impl Token {
    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self, Token::Word { text, quoted: false } if text == keyword)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self, Token::Word { text, .. } if text == name)
    }

    pub(super) fn is_one_of(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is_keyword(keyword))
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The parts of a text; comments are none.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '-' if chars.peek() == Some(&'-') => while chars.next().is_some_and(|c| c != '\n') {},
            '/' if chars.peek() == Some(&'*') => skip_comment(&mut chars),
            '\'' => out.push(Token::Text(quoted(&mut chars, '\''))),
            '"' => out.push(Token::Word { text: quoted(&mut chars, '"'), quoted: true }),
            '$' => out.push(dollars(&mut chars)),
            c if c.is_ascii_digit() => {
                while chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
                out.push(Token::Number);
            }
            c if c.is_alphabetic() || c == '_' => {
                let mut text = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || "_$".contains(*c)) {
                    text.push(c);
                }
                out.push(Token::Word { text: text.to_lowercase(), quoted: false });
            }
            c => out.push(Token::Symbol(c)),
        }
    }
    out
}

/// Up to the closing quote; a doubled one stands for itself.
fn quoted(chars: &mut Chars<'_>, quote: char) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c == quote && chars.next_if_eq(&quote).is_none() {
            break;
        }
        text.push(c);
    }
    text
}

/// To the end of a comment, which may hold others; its first character is read.
fn skip_comment(chars: &mut Chars<'_>) {
    let mut depth = 0;
    let mut last = '/';
    for c in chars.by_ref() {
        match (last, c) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                last = c;
                continue;
            }
        }
        if depth == 0 {
            return;
        }
        last = ' ';
    }
}

/// A parameter, or a string in dollar quotes.
fn dollars(chars: &mut Chars<'_>) -> Token {
    let mut tag = String::from("$");
    while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
        tag.push(c);
    }
    if chars.next_if_eq(&'$').is_none() {
        return Token::Parameter;
    }
    tag.push('$');
    let mut read = String::new();
    for c in chars.by_ref() {
        read.push(c);
        if read.ends_with(&tag) {
            read.truncate(read.len() - tag.len());
            break;
        }
    }
    Token::Text(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: QualifiedColumn<'_> =
        QualifiedColumn { schema: "public", table: "docs", column: "body", unique_name: true };

    #[test]
    fn statements_are_told_apart_by_their_text() {
        for (text, expected) in [
            ("SELECT body FROM docs WHERE id = $1", StatementUse::Read),
            ("select d.* from public.docs d", StatementUse::Read),
            ("SELECT id, \"body\" FROM ONLY \"public\".\"docs\"", StatementUse::Read),
            ("SELECT a.id FROM a, docs WHERE length(body) > $1", StatementUse::Read),
            ("/* body */ SELECT id FROM docs -- body", StatementUse::None),
            ("SELECT id, $1 AS x, 'body' FROM docs", StatementUse::None),
            ("SELECT count(*) FROM docs", StatementUse::None),
            ("SELECT price * amount FROM docs", StatementUse::None),
            ("SELECT body FROM other.docs", StatementUse::None),
            ("SELECT docs, body FROM other", StatementUse::None),
            ("SELECT docs.body FROM other AS docs", StatementUse::None),
            ("TABLE docs", StatementUse::Read),
            ("WITH d AS (SELECT * FROM docs) SELECT id FROM d", StatementUse::Read),
            ("WITH d AS (DELETE FROM docs RETURNING *) SELECT 1", StatementUse::Unclear),
            ("INSERT INTO docs VALUES ($1, $2)", StatementUse::Insert),
            ("INSERT INTO docs (id, body) VALUES ($1, $2)", StatementUse::Insert),
            ("INSERT INTO docs (id) VALUES ($1)", StatementUse::None),
            ("INSERT INTO archive SELECT * FROM docs", StatementUse::Read),
            ("UPDATE docs SET body = $1 WHERE id = $2", StatementUse::Update),
            ("UPDATE docs AS d SET id = $1, body = body || $2", StatementUse::Update),
            ("UPDATE docs SET (id, body) = ($1, $2)", StatementUse::Update),
            ("UPDATE docs SET seen = now() WHERE body = $1", StatementUse::None),
            ("UPDATE other SET x = d.body FROM docs AS d", StatementUse::Read),
            ("DELETE FROM docs WHERE body = $1", StatementUse::None),
            ("COPY docs FROM stdin", StatementUse::Insert),
            ("COPY docs (id) FROM stdin", StatementUse::None),
            ("COPY public.docs TO stdout", StatementUse::Read),
            ("COPY (SELECT body FROM docs) TO stdout", StatementUse::Read),
            ("MERGE INTO docs USING x ON true WHEN MATCHED THEN DELETE", StatementUse::Unclear),
            ("SELECT $tag$ FROM docs body $tag$", StatementUse::None),
            ("SELECT 'it''s' FROM /* a /* nested */ body */ docs", StatementUse::None),
            ("SELECT 'open", StatementUse::None),
        ] {
            assert_eq!(use_of(text, NAMED), expected, "{text}");
        }
        let other = QualifiedColumn { unique_name: false, ..NAMED };
        assert_eq!(use_of("SELECT body FROM docs", other), StatementUse::Unclear);
        assert_eq!(use_of("SELECT body FROM public.docs", other), StatementUse::Read);
        let odd = QualifiedColumn { table: "My Docs", column: "a\"b", ..NAMED };
        assert_eq!(use_of("SELECT \"a\"\"b\" FROM \"My Docs\"", odd), StatementUse::Read);
    }

    #[test]
    fn what_cannot_be_judged_is_said() {
        let read = |list: &[(&str, f64)], hidden| Statements::Read {
            list: list.iter().map(|&(query, rows)| (query.into(), rows)).collect(),
            hidden,
            unique_name: true,
        };
        let judge = |statements| column_use(&statements, NAMED, 1000.0);
        let select = ("SELECT body FROM docs", 5000.0);
        let update = ("UPDATE docs SET body = $1", 100.0);
        let load = ("COPY docs FROM stdin", 1400.0);
        assert_eq!(judge(Statements::NotInstalled), ColumnUse::NotThere);
        assert_eq!(
            judge(read(&[select, update, load], 0)),
            ColumnUse::Counted { reads: 5000.0, writes: 500.0, statements: 3 }
        );
        let silent = |statements| match judge(statements) {
            ColumnUse::Silent(why) => why,
            other => format!("{other:?}"),
        };
        let own = ("SELECT body FROM docs /* toastctl */", 9e9);
        assert_eq!(
            judge(read(&[select, update, load, own], 0)),
            judge(read(&[select, update, load], 0))
        );
        let merge = ("MERGE INTO docs USING x ON true", 3000.0);
        insta::assert_snapshot!(
            [
                silent(read(&[select], 2)),
                silent(read(&[("SELECT id FROM docs", 9e9)], 0)),
                silent(read(&[update], 0)),
                silent(read(&[select, merge], 0)),
                silent(Statements::Unreadable("not loaded".into())),
            ].join("\n"),
            @r"
        the texts of 2 statements are hidden from this user, who is not a member of pg_read_all_stats
        no statement in it names table and column
        its statements on the column are about too few rows
        38 % of the rows come from statements whose text does not say what they do with the column
        not loaded
        "
        );
    }
}
