//! SQL statements and `toastctl` commands that carry out a choice or act on a finding, quoted for a shell (pure).

use toast_format::disk::desc::Storage;
use toast_format::disk::layout::PageSize;
use toast_format::model::policy::MethodChoice;
use toast_format::model::settings::{Settings, TupleTarget};
use toast_format::model::sql::{
    LONGEST_NAME, is_unprintable, quote_identifier, quote_literal, quote_qualified,
    set_compression, shown_qualified, truncated,
};

/// A column and its table, by their names in the catalog.
#[derive(Debug, Clone, Copy)]
pub struct CommandTarget<'a> {
    pub schema: &'a str,
    pub table: &'a str,
    pub column: &'a str,
}

/// The statements that change the column's settings from `present` to `wanted`. A column with a policy is `EXTERNAL`,
/// so that values which arrive compressed stay compressed and no others are compressed. `partitions`: quoted names of the
/// table's partitions, which get statements of their own; the table then has only the settings that new partitions follow.
pub fn sql(
    target: CommandTarget<'_>,
    partitions: &[String],
    present: &Settings,
    wanted: &Settings,
    page: PageSize,
) -> Vec<String> {
    let table = quote_qualified(target.schema, target.table);
    let mut out = Vec::new();
    for SettingChange { action, is_of_column } in changes(target.column, present, wanted, page) {
        if is_of_column || partitions.is_empty() {
            out.push(format!("ALTER TABLE {table} {action};"));
        }
        for partition in partitions {
            out.push(format!("ALTER TABLE {partition} {action};"));
        }
    }
    out
}

/// An action of ALTER TABLE.
struct SettingChange {
    action: String,
    /// Whether it changes a column; otherwise, a storage parameter, which partitioned tables do not have.
    is_of_column: bool,
}

fn changes(
    column: &str,
    present: &Settings,
    wanted: &Settings,
    page: PageSize,
) -> Vec<SettingChange> {
    let storage = if wanted.is_stock() { wanted.storage } else { Storage::External };
    let mut changes = Vec::new();
    if storage != present.storage {
        let name = storage.name().to_ascii_uppercase();
        let action = format!("ALTER COLUMN {} SET STORAGE {name}", quote_identifier(column));
        changes.push(SettingChange { action, is_of_column: true });
    }
    let compresses = storage.compresses();
    if compresses
        && wanted.method != present.method
        && let MethodChoice::One(method) = wanted.method
    {
        let action = set_compression(column, Some(method));
        changes.push(SettingChange { action, is_of_column: true });
    }
    if wanted.target != present.target {
        let action = if wanted.target == TupleTarget::default_for(page) {
            "RESET (toast_tuple_target)".to_owned()
        } else {
            format!("SET (toast_tuple_target = {})", wanted.target)
        };
        changes.push(SettingChange { action, is_of_column: false });
    }
    changes
}

/// The command that re-toasts the values of the column and of the columns `besides` as `wanted`, as a list of words.
/// `options` are appended for the work that follows.
pub fn command(
    target: CommandTarget<'_>,
    besides: &[&str],
    (present, wanted): (&Settings, &Settings),
    options: &[&str],
) -> Vec<String> {
    let columns: Vec<&str> = [target.column].iter().chain(besides).copied().collect();
    let mut out = retoast(target.schema, target.table, &columns);
    if wanted.is_stock() {
        let toaster = match (wanted.storage, wanted.method) {
            (Storage::Extended, MethodChoice::One(method)) => method.name().to_owned(),
            // Without a method in the option, the column would keep its present one.
            (Storage::Main, MethodChoice::One(method)) if wanted.method != present.method => {
                format!("main={}", method.name())
            }
            (storage, _) => storage.name().to_owned(),
        };
        out.extend(["--toaster".to_owned(), toaster]);
    } else {
        let policy = wanted.policy.to_string();
        let method = wanted.method.to_string();
        out.extend(["--policy".to_owned(), policy, "--method".to_owned(), method]);
    }
    if wanted.target != present.target {
        out.extend(["--target".to_owned(), wanted.target.to_string()]);
    }
    out.extend(options.iter().map(|&option| option.to_owned()));
    out
}

/// The command that re-toasts the values of columns as their settings say, which have this storage.
pub(crate) fn to_storage(
    schema: &str,
    table: &str,
    columns: &[&str],
    storage: Storage,
) -> Vec<String> {
    let mut out = retoast(schema, table, columns);
    out.extend(["--toaster".to_owned(), storage.name().to_owned()]);
    out
}

/// The words of a command that re-toasts the values of columns, without what they become.
fn retoast(schema: &str, table: &str, columns: &[&str]) -> Vec<String> {
    let mut out = vec!["toastctl".to_owned(), "retoast".to_owned(), table_pattern(schema, table)];
    for column in columns {
        // A word that begins with a hyphen would be parsed as an option.
        if column.starts_with('-') {
            out.push(format!("--column={column}"));
        } else {
            out.extend(["--column".to_owned(), (*column).to_owned()]);
        }
    }
    out
}

/// The words as a line for a POSIX shell.
pub(crate) fn shell_line(words: &[String]) -> String {
    words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Whether a table's name can be typed as reports show it: they do not quote it.
pub(crate) fn is_typed_as_shown(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.".contains(&b))
}

/// A table, as an argument of a command in a shell.
pub(crate) fn table_words(schema: &str, table: &str) -> String {
    shell_quoted(&table_pattern(schema, table))
}

/// A table of the search path, as an argument of a command in a shell.
pub(crate) fn name_words(table: &str) -> String {
    shell_quoted(&pattern(table))
}

/// All tables of a schema, as an argument of a command in a shell.
pub(crate) fn schema_words(schema: &str) -> String {
    shell_quoted(&format!("{}.*", pattern(schema)))
}

fn table_pattern(schema: &str, table: &str) -> String {
    format!("{}.{}", pattern(schema), pattern(table))
}

/// The option that selects a column. A word that begins with a hyphen would be parsed as an option.
pub(crate) fn column_words(column: &str) -> String {
    let between = if column.starts_with('-') { '=' } else { ' ' };
    format!("--column{between}{}", shell_quoted(column))
}

/// A name as a psql pattern: quoted unless it is plain.
fn pattern(name: &str) -> String {
    let plain = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if plain { name.to_owned() } else { quote_identifier(name) }
}

/// A word, quoted for a POSIX shell, in printable characters: others are written as escapes of dollar-single-quotes, which
/// POSIX has since 2024 and bash, ksh and zsh had before.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = !word.is_empty()
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./=".contains(&b));
    if plain {
        return word.to_owned();
    }
    if !word.contains(is_unprintable) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut out = "$'".to_owned();
    for c in word.chars() {
        if is_unprintable(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out.push_str(&format!("\\{byte:03o}"));
            }
        } else {
            if matches!(c, '\'' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
    }
    out.push('\'');
    out
}

/// The placeholder in commands for a table of which only the file is known.
const UNKNOWN: &str = "TABLE";

/// A table, as named in commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableName {
    Known {
        schema: String,
        name: String,
    },
    /// The file or text from which its pages were read.
    File(String),
    /// Some or all parts of a table: partitions or inheritance children.
    Parts {
        table: Box<TableName>,
        parts: Vec<TableName>,
        are_all: bool,
        /// Whether they are inheritance children: statements about the table alone, such as VACUUM, leave them out.
        are_children: bool,
    },
}

impl TableName {
    /// `schema.name`, as in reports.
    pub(crate) fn shown(&self) -> String {
        match self {
            TableName::Known { schema, name } => shown_qualified(schema, name),
            TableName::File(file) => file.clone(),
            TableName::Parts { table, .. } => table.shown(),
        }
    }

    /// The table as an argument of a command in a shell.
    fn words(&self) -> String {
        match self {
            TableName::Known { schema, name } => table_words(schema, name),
            TableName::File(_) => UNKNOWN.to_owned(),
            TableName::Parts { table, are_all: true, .. } => table.words(),
            TableName::Parts { parts, .. } => listed(parts, TableName::words, " "),
        }
    }

    /// The table in a command that takes it as a whole.
    fn whole(&self) -> &TableName {
        match self {
            TableName::Parts { table, .. } => table,
            table => table,
        }
    }

    /// The table in an SQL statement.
    fn sql(&self) -> String {
        match self {
            TableName::Known { schema, name } => quote_qualified(schema, name),
            TableName::File(_) => UNKNOWN.to_owned(),
            TableName::Parts { table, are_all: true, are_children: false, .. } => table.sql(),
            TableName::Parts { parts, .. } => listed(parts, TableName::sql, ", "),
        }
    }

    /// The command that re-toasts the values of a column with the options `how`.
    pub(crate) fn retoast(&self, column: &str, how: &str) -> String {
        let table = self.words();
        let column = column_words(column);
        format!("toastctl retoast {table} {column} {how}")
    }

    /// The command that returns free space of a file (`heap` or `toast`).
    pub(crate) fn compact(&self, file: &str) -> String {
        format!("toastctl compact {} --files {file}", self.words())
    }

    /// The command that finds all that is damaged.
    pub(crate) fn check(&self) -> String {
        format!("toastctl check {}", self.words())
    }

    pub(crate) fn reindex(&self) -> String {
        format!("toastctl reindex {}", self.words())
    }

    pub(crate) fn advise(&self, column: Option<&str>) -> String {
        let table = self.whole().words();
        match column {
            Some(column) => format!("toastctl advise-threshold {table} {}", column_words(column)),
            None => format!("toastctl advise-threshold {table}"),
        }
    }

    /// The command that prints the migration which moves keys of a column's documents to columns of their own.
    pub(crate) fn extract(&self, column: &str, keys: &str) -> String {
        let table = self.whole().words();
        let column = column_words(column);
        // A word that begins with a hyphen would be parsed as an option.
        format!("toastctl keys {table} {column} --extract={} --emit sql", shell_quoted(keys))
    }

    /// The statements that create a trigger which gives a column its old value back if an UPDATE sets it to the same
    /// one, and remove the versions that UPDATEs have left. A row gets the TOAST pointer of its old version then.
    pub(crate) fn keep_unchanged(&self, column: &str) -> String {
        let (schema, table) = match self.whole() {
            TableName::Known { schema, name } => (schema.as_str(), name.as_str()),
            TableName::File(_) | TableName::Parts { .. } => ("public", UNKNOWN),
        };
        const SUFFIX: &str = "_unchanged";
        let name = format!("{table}_{column}");
        let name = format!("{}{SUFFIX}", truncated(&name, LONGEST_NAME - SUFFIX.len()));
        let function = quote_qualified(schema, &name);
        let trigger = quote_identifier(&name);
        let tables = match self {
            TableName::Parts { parts, are_children: true, .. } => parts.as_slice(),
            table => std::slice::from_ref(table.whole()),
        };
        let column = quote_identifier(column);
        let body = quote_literal(&format!(
            "BEGIN IF pg_catalog.record_image_eq(ROW(NEW.{column}), ROW(OLD.{column})) THEN NEW.{column} := OLD.{column}; \
             END IF; RETURN NEW; END"
        ));
        let triggers = listed(
            tables,
            |table| {
                format!(
                    "CREATE TRIGGER {trigger} BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION {function}();",
                    table.sql()
                )
            },
            " ",
        );
        format!(
            "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS {body}; {triggers} {}",
            self.vacuum()
        )
    }

    pub(crate) fn vacuum(&self) -> String {
        format!("VACUUM {};", self.sql())
    }

    pub(crate) fn vacuum_full(&self) -> String {
        format!("VACUUM FULL {};", self.sql())
    }

    /// The statement that alters the table, or one for each part: partitions do not take over every setting.
    pub(crate) fn alter(&self, action: &str) -> String {
        match self {
            TableName::Parts { parts, .. } => {
                listed(parts, |part| format!("ALTER TABLE {} {action};", part.sql()), " ")
            }
            table => format!("ALTER TABLE {} {action};", table.sql()),
        }
    }

    pub(crate) fn alter_column(&self, column: &str, action: &str) -> String {
        let action = format!("ALTER COLUMN {} {action}", quote_identifier(column));
        match self {
            // new partitions have the settings of the table
            TableName::Parts { table, parts, .. } if !parts.contains(table) => {
                format!("{} {}", table.alter(&action), self.alter(&action))
            }
            table => table.alter(&action),
        }
    }
}

fn listed(parts: &[TableName], text: impl Fn(&TableName) -> String, between: &str) -> String {
    parts.iter().map(text).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toast_format::codec::Method;

    fn settings(storage: Storage, method: MethodChoice, policy: &str, target: u32) -> Settings {
        Settings {
            storage,
            method,
            target: TupleTarget::new(target, PageSize::DEFAULT).unwrap(),
            policy: policy.parse().unwrap(),
        }
    }

    #[test]
    fn a_shell_reads_every_word_as_it_is() {
        for word in
            ["", "a b", "it's", "tab\there", "line\nend", "it's \\ a\u{202e}\u{7}1", "é\u{ad}é"]
        {
            let quoted = shell_quoted(word);
            assert!(!quoted.contains(is_unprintable), "{quoted}");
            let echo = format!("printf %s {quoted}; printf .");
            let output = std::process::Command::new("bash").args(["-c", &echo]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{word}."), "{quoted}");
        }
    }

    #[test]
    fn from_one_setting_to_another() {
        let pglz = MethodChoice::One(Method::Pglz);
        let lz4 = MethodChoice::One(Method::Lz4);
        let present = settings(Storage::Extended, pglz, "always", 2032);
        let plain = CommandTarget { schema: "public", table: "docs", column: "js" };
        let odd = CommandTarget { schema: "My Schema", table: "it's", column: "a\"b" };
        let page = PageSize::DEFAULT;
        let mut all = String::new();
        for (target, wanted) in [
            (plain, settings(Storage::Extended, lz4, "always", 4080)),
            (odd, settings(Storage::External, pglz, "always", 2032)),
            (plain, settings(Storage::Main, lz4, "always", 2032)),
            (plain, settings(Storage::Main, pglz, "always", 2032)),
            (plain, settings(Storage::Extended, lz4, "chunk-saving", 2032)),
            (plain, settings(Storage::Extended, pglz, "ratio=0.8", 4080)),
            (plain, settings(Storage::Extended, MethodChoice::Either, "best", 2032)),
            (plain, settings(Storage::Extended, MethodChoice::Either, "always", 2032)),
        ] {
            for statement in sql(target, &[], &present, &wanted, page) {
                all.push_str(&statement);
                all.push('\n');
            }
            let compacts = (wanted.storage == Storage::External).then_some("--compact");
            let words = command(target, &[], (&present, &wanted), compacts.as_slice());
            all.push_str(&shell_line(&words));
            all.push_str("\n\n");
        }
        insta::assert_snapshot!(all, @r#"
        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET COMPRESSION lz4;
        ALTER TABLE "public"."docs" SET (toast_tuple_target = 4080);
        toastctl retoast public.docs --column js --toaster lz4 --target 4080

        ALTER TABLE "My Schema"."it's" ALTER COLUMN "a""b" SET STORAGE EXTERNAL;
        toastctl retoast '"My Schema"."it'\''s"' --column 'a"b' --toaster external --compact

        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET STORAGE MAIN;
        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET COMPRESSION lz4;
        toastctl retoast public.docs --column js --toaster main=lz4

        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET STORAGE MAIN;
        toastctl retoast public.docs --column js --toaster main

        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET STORAGE EXTERNAL;
        toastctl retoast public.docs --column js --policy chunk-saving --method lz4

        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET STORAGE EXTERNAL;
        ALTER TABLE "public"."docs" SET (toast_tuple_target = 4080);
        toastctl retoast public.docs --column js --policy ratio=0.80 --method pglz --target 4080

        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET STORAGE EXTERNAL;
        toastctl retoast public.docs --column js --policy best --method either

        ALTER TABLE "public"."docs" ALTER COLUMN "js" SET STORAGE EXTERNAL;
        toastctl retoast public.docs --column js --policy always --method either
        "#);
        assert!(sql(plain, &[], &present, &present, page).is_empty());
    }
}
