//! The house rules that no compiler checks, read from the sources themselves: layers are imported downwards
//! only, files do not import each other in a circle, the command line neither speaks SQL nor starts tasks, and
//! messages, documents and comments do without phrases that readers stumbled over, and code without some habits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers from the bottom up: a module imports those before it.
const LAYERS: [&str; 22] = [
    "codec", "disk", "model", "heap", "fill", "judge", "testing", "command", "message", "offline",
    "server", "value", "drive", "usage", "advise", "keys", "findings", "inspect", "check",
    "retoast", "report", "cli",
];

/// Where sources stand: the program, and the crates that it is made of.
const ROOTS: [&str; 2] = ["src", "crates/toast-format/src"];

/// What only reads, and what writes: no reader imports the writer, wherever the layers put them.
const READERS: [&str; 6] = ["inspect", "findings", "advise", "check", "keys", "usage"];
const WRITER: &str = "retoast";

/// Files that still import each other in a circle. What is listed here and no longer so fails too.
const KNOWN_CIRCLES: [&[&str]; 0] = [];

/// Files of `cli` that run things themselves, with what was found there: the pager, and the command of `--set on-end`.
const KNOWN_IN_CLI: [(&str, &str); 2] =
    [("cli/pager.rs", "spawn"), ("cli/retoast_output.rs", "spawn")];

/// One source file, without its tests and comments.
struct Source {
    /// The path below `src`.
    file: String,
    /// `["server", "connect", "session"]`; empty for `lib.rs`.
    module: Vec<String>,
    /// The code with the contents of strings taken out.
    code: String,
    /// The contents of strings.
    strings: Vec<String>,
    paths: Vec<Found>,
}

fn sources() -> Vec<Source> {
    ROOTS.iter().flat_map(|root| sources_below(root)).collect()
}

fn sources_below(root: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let read = |path: &PathBuf| {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let name = file.strip_suffix(".rs").unwrap();
        let mut module: Vec<String> = name.split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
            module.pop();
        }
        let (code, strings) = code_and_strings(&fs::read_to_string(path).unwrap());
        let paths = paths(&code);
        Source { file, module, code, strings, paths }
    };
    let is_code = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name != "tests.rs" && name != "main.rs"
    };
    files.iter().filter(is_code).map(read).collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Takes comments, tests and the contents of strings out of a file's text.
fn code_and_strings(text: &str) -> (String, Vec<String>) {
    // tests stand at the end
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let (mut code, mut strings) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            code.push('\n');
        } else if let Some((content, after)) = raw_string(rest) {
            strings.push(content.to_owned());
            code.push_str("\"\"");
            rest = after;
        } else if c == '"' {
            let end = string_end(rest);
            strings.push(rest[1..end].to_owned());
            code.push_str("\"\"");
            rest = &rest[end + 1..];
        } else if let Some(after) = character(rest) {
            code.push_str("' '");
            rest = after;
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    (code, strings)
}

fn raw_string(text: &str) -> Option<(&str, &str)> {
    let hashes = text.strip_prefix('r')?;
    let inner = hashes.trim_start_matches('#');
    let end = format!("\"{}", &hashes[..hashes.len() - inner.len()]);
    inner.strip_prefix('"')?.split_once(&end)
}

/// Where the closing quote of a string is that begins the text.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    panic!("a string without end: {text}");
}

/// What follows a character literal that begins the text; lifetimes are none.
fn character(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('\'')?;
    if let Some(escape) = inner.strip_prefix('\\') {
        let end = escape.char_indices().skip(1).find(|(_, c)| *c == '\'')?.0;
        return Some(&escape[end + 1..]);
    }
    let c = inner.chars().next()?;
    inner[c.len_utf8()..].strip_prefix('\'')
}

/// A path as it is written, with the names of a `use` group written out.
#[derive(Debug)]
struct Found {
    path: Vec<String>,
    /// Made visible to others under its own name (`pub use`).
    passed_on: bool,
}

/// Every path of the code that begins with `crate`, `super` or `self`, and all of `use` statements.
fn paths(code: &str) -> Vec<Found> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // `impl Trait + use<'_>` names no path
        let in_use = at > 0 && tokens[at - 1] == "use" && tokens[at] != "<";
        let begins =
            matches!(tokens[at], "crate" | "super" | "self") && tokens.get(at + 1) == Some(&"::");
        let behind_path = at > 0 && tokens[at - 1] == "::";
        if (in_use || begins) && !behind_path {
            let passed_on = in_use && at > 1 && matches!(tokens[at - 2], "pub" | ")");
            let mut written = Vec::new();
            at = tree(&tokens, at, &[], &mut written).max(at + 1);
            found.extend(written.into_iter().map(|path| Found { path, passed_on }));
        } else {
            at += 1;
        }
    }
    found
}

fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(c) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => c.len_utf8(),
            _ => word,
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Reads a path or a tree of them; returns where it ends.
fn tree(tokens: &[&str], mut at: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = tree(tokens, at, &path, found).max(at + 1);
                    if tokens.get(at) == Some(&",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            // a path with type arguments ends before them
            Some(word)
                if word.starts_with(|c: char| c.is_alphanumeric() || c == '_') || *word == "*" =>
            {
                if *word != "self" || path.is_empty() {
                    path.push((*word).to_owned());
                }
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at) == Some(&"as") {
            at += 2;
        }
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    if !path.is_empty() {
        found.push(path);
    }
    at
}

/// Which files each file uses.
struct House {
    sources: Vec<Source>,
    by_module: BTreeMap<Vec<String>, usize>,
}

impl House {
    fn read() -> House {
        let sources = sources();
        let by_module = sources.iter().enumerate().map(|(n, s)| (s.module.clone(), n)).collect();
        House { sources, by_module }
    }

    /// The full path of one that is written in this module.
    fn full(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            // a child is named without more; everything else is another crate or a name in scope
            child => {
                base.push(child.to_owned());
                if !self.by_module.contains_key(&base) {
                    return None;
                }
                rest = &rest[1..];
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The file in which a full path's item stands, through what modules pass on.
    fn home(&self, full: &[String]) -> Option<usize> {
        let depth = (0..=full.len()).rev().find(|&n| self.by_module.contains_key(&full[..n]))?;
        let file = self.by_module[&full[..depth]];
        let Some(name) = full.get(depth) else { return Some(file) };
        let source = &self.sources[file];
        for found in source.paths.iter().filter(|found| found.passed_on) {
            let Some(target) = self.full(&source.module, &found.path) else { continue };
            match found.path.last() {
                Some(last) if last == name => return self.home(&target),
                Some(last) if last == "*" => {
                    let inner = self.by_module.get(&target[..target.len() - 1]);
                    if let Some(&inner) = inner.filter(|&&inner| self.defines(inner, name)) {
                        return Some(inner);
                    }
                }
                _ => {}
            }
        }
        Some(file)
    }

    fn defines(&self, file: usize, name: &str) -> bool {
        let kinds = ["struct", "enum", "fn", "trait", "type", "const", "static"];
        tokens(&self.sources[file].code)
            .windows(2)
            .any(|pair| kinds.contains(&pair[0]) && pair[1] == name)
    }

    fn uses(&self) -> Vec<BTreeSet<usize>> {
        let uses = |(number, source): (usize, &Source)| {
            let here = source.paths.iter().filter(|found| !found.passed_on);
            let full = here.filter_map(|found| self.full(&source.module, &found.path));
            full.filter_map(|full| self.home(&full)).filter(|&home| home != number).collect()
        };
        self.sources.iter().enumerate().map(uses).collect()
    }
}

/// Files that can be reached from each other (Tarjan's components by repeated search, for some 200 files).
fn circles(uses: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..uses.len())
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut open = vec![from];
            while let Some(next) = open.pop() {
                open.extend(uses[next].iter().filter(|&&to| seen.insert(to)));
            }
            seen
        })
        .collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for file in 0..uses.len() {
        if found.iter().any(|circle| circle.contains(&file)) {
            continue;
        }
        let back = |&other: &usize| reached[other].contains(&file);
        let circle: Vec<usize> = reached[file].iter().copied().filter(back).collect();
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

#[test]
fn layers_are_imported_downwards_only() {
    let house = House::read();
    let layer = |file: usize| {
        let name = house.sources[file].module.first()?.as_str();
        let found = LAYERS.iter().position(|layer| *layer == name);
        Some(found.unwrap_or_else(|| panic!("{name} is in no layer")))
    };
    let mut wrong = Vec::new();
    for (from, uses) in house.uses().iter().enumerate() {
        for &to in uses {
            if layer(from).zip(layer(to)).is_some_and(|(from, to)| from < to) {
                wrong.push(format!("{} uses {}", house.sources[from].file, house.sources[to].file));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn readers_import_no_writer() {
    let house = House::read();
    let room = |file: usize| house.sources[file].module.first().map(String::as_str);
    let is_reader = |file: usize| room(file).is_some_and(|room| READERS.contains(&room));
    let mut wrong = Vec::new();
    for (from, uses) in house.uses().iter().enumerate().filter(|(from, _)| is_reader(*from)) {
        for &to in uses.iter().filter(|to| room(**to) == Some(WRITER)) {
            wrong.push(format!("{} uses {}", house.sources[from].file, house.sources[to].file));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let house = House::read();
    let uses = house.uses();
    let name = |&file: &usize| house.sources[file].file.as_str();
    let mut wrong = Vec::new();
    let mut known: Vec<&[&str]> = KNOWN_CIRCLES.to_vec();
    for circle in circles(&uses) {
        let names: Vec<&str> = circle.iter().map(name).collect();
        let before = known.len();
        known.retain(|known| *known != names);
        if known.len() == before {
            let inside: Vec<String> = circle
                .iter()
                .flat_map(|from| {
                    uses[*from].iter().filter(|to| circle.contains(to)).map(move |to| (from, to))
                })
                .map(|(from, to)| format!("{} -> {}", name(from), name(to)))
                .collect();
            wrong.push(format!("{names:?}\n    {}", inside.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "files that import each other in a circle:\n{}", wrong.join("\n"));
    assert!(known.is_empty(), "no circles any more, so take them off the list: {known:?}");
}

const SQL: [&str; 16] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "ALTER", "CREATE", "DROP", "SET", "BEGIN", "COMMIT",
    "ROLLBACK", "VACUUM", "LOCK", "TRUNCATE", "REINDEX", "WITH",
];
const TASKS: [&str; 3] = ["spawn", "spawn_blocking", "JoinSet"];

#[test]
fn the_command_line_speaks_no_sql_and_starts_no_tasks() {
    let house = House::read();
    let mut found = BTreeSet::new();
    for source in house.sources.iter().filter(|source| source.file.starts_with("cli/")) {
        for text in &source.strings {
            let word = text.split_whitespace().next().unwrap_or_default();
            if SQL.contains(&word) {
                found.insert((source.file.clone(), word.to_owned()));
            }
        }
        for token in tokens(&source.code).into_iter().filter(|token| TASKS.contains(token)) {
            found.insert((source.file.clone(), token.to_owned()));
        }
    }
    let known: BTreeSet<(String, String)> =
        KNOWN_IN_CLI.iter().map(|(file, what)| ((*file).to_owned(), (*what).to_owned())).collect();
    assert_eq!(found, known);
}

/// Phrases that readers stumbled over, each with what to write instead.
const PHRASES: [(&str, &str); 28] = [
    ("as asked", "as requested"),
    ("as chosen", "as requested"),
    ("as it is wanted", "as requested"),
    ("at the most", "at most"),
    ("begins again", "starts again"),
    ("believe", "what is the case, not what somebody thinks"),
    ("beside ", "next to"),
    ("besides", "in addition to"),
    ("by others", "by other sessions"),
    ("does not bear", "does not support"),
    ("gave back", "returned"),
    ("give back", "return"),
    ("given back", "returned"),
    ("gives back", "returns"),
    ("going on", "continuing"),
    ("in vain", "without effect"),
    ("is taken for", "counts as"),
    ("kept waiting", "had to wait"),
    ("set back", "restored"),
    ("set right", "restored"),
    ("so many", "the number, or: this many"),
    ("somebody", "say who"),
    ("taken apart", "analyzed, or: described in detail"),
    ("to be had", "available"),
    ("to spare", "free"),
    ("told of", "reported"),
    ("which is not there", "which does not exist"),
    ("without need", "avoidable"),
];

/// Texts that people read: messages and reports, help (comments of the command line's arguments), documents.
#[test]
fn texts_do_without_phrases_that_readers_stumbled_over() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts: Vec<(String, String)> = Vec::new();
    for source in sources() {
        texts.extend(source.strings.into_iter().map(|text| (source.file.clone(), text)));
    }
    let help = |line: &str| line.trim_start().strip_prefix("/// ").map(str::to_owned);
    for entry in fs::read_dir(root.join("src/cli")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter_map(help).collect::<Vec<_>>();
            texts.push((path.display().to_string(), lines.join(" ")));
        }
    }
    let mut documents =
        ["README.md", "CHANGELOG.md", "ARCHITECTURE.md"].map(|name| root.join(name)).to_vec();
    let man = fs::read_dir(root.join("man")).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(man.filter(|path| path.is_file()));
    for path in documents {
        texts.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
    }
    let mut found = Vec::new();
    for (place, text) in &texts {
        let lines = text.split('\n').map(|line| line.trim().trim_end_matches('\\').trim());
        let text = format!(" {}", lines.collect::<Vec<_>>().join(" "));
        let stands_in = |phrase: &str| text.contains(&format!(" {phrase}"));
        for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| stands_in(phrase)) {
            found.push(format!("{place}: \"{phrase}\" (better: {instead}) in: {text:.200}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// How many texts of other rooms than `message` still contain a hint. The number may only fall.
const HINTS_IN_TEXTS: usize = 62;
/// Where everything goes through `message`.
const WITHOUT_HINTS: [&str; 8] = [
    "cli/",
    "drive/",
    "command.rs",
    "keys/live.rs",
    "advise/run.rs",
    "advise/shards.rs",
    "server/sink.rs",
    "server/citus.rs",
];

#[test]
fn severities_and_hints_become_text_in_one_module() {
    let mut texts = Vec::new();
    for source in sources().into_iter().filter(|source| source.file != "message.rs") {
        for text in &source.strings {
            let has_severity = ["error: ", "warning: "].iter().any(|word| text.starts_with(word));
            if has_severity || text.contains("DETAIL:") || text.contains("HINT:") {
                texts.push(format!("{}: {text}", source.file));
            }
        }
    }
    let is_clean = |text: &&String| WITHOUT_HINTS.iter().any(|place| text.starts_with(place));
    let wrong: Vec<&String> = texts.iter().filter(is_clean).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let is_hint = |text: &&String| !text.starts_with("server/connect/");
    assert_eq!(texts.iter().filter(is_hint).count(), HINTS_IN_TEXTS, "{texts:#?}");
}

/// Habits that make code slower to read, with how often they may still occur. The numbers may only fall.
const HABITS: [(Habit, usize); 6] = [
    (Habit::MatchOnBool, 0),
    (Habit::FilterAsIf, 0),
    (Habit::TupleOfBindings, 2),
    (Habit::BoundClosure, 141),
    (Habit::EmptyName, 17),
    (Habit::ShortDoc, 145),
];

#[derive(Debug, Clone, Copy)]
enum Habit {
    /// `match is_on { true => …, false => … }` instead of `if`.
    MatchOnBool,
    /// `.filter(|_| condition)` instead of `if`.
    FilterAsIf,
    /// `let (a, b) = (x, y);` instead of two lines.
    TupleOfBindings,
    /// `let name = |…| …` instead of the expression in place or a function.
    BoundClosure,
    /// Functions called `of`, `one`, `all`, `look`, `each`, `seen` or `report`.
    EmptyName,
    /// Doc comments of at most three words.
    ShortDoc,
}

impl Habit {
    /// Whether the line has the habit; `before` and `after` are the lines around it.
    fn is_in(self, line: &str, before: &str, after: &str) -> bool {
        match self {
            Habit::MatchOnBool => line.starts_with("true =>") || line.starts_with("false =>"),
            Habit::FilterAsIf => line.contains(".filter(|_|"),
            Habit::TupleOfBindings => {
                line.starts_with("let (") && line.contains(") = (") && line.ends_with(");")
            }
            Habit::BoundClosure => bound_to(line).is_some_and(|value| {
                let value = value.strip_prefix("async ").unwrap_or(value);
                value.strip_prefix("move ").unwrap_or(value).starts_with('|')
            }),
            Habit::EmptyName => {
                ["of", "one", "all", "look", "each", "seen", "report"].iter().any(|name| {
                    line.contains(&format!("fn {name}(")) || line.contains(&format!("fn {name}<"))
                })
            }
            Habit::ShortDoc => line.strip_prefix("///").is_some_and(|words| {
                let is_alone = !before.starts_with("///") && !after.starts_with("///");
                is_alone && words.split_whitespace().count() <= 3
            }),
        }
    }
}

/// What a `let` of one name binds it to.
fn bound_to(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("let ")?;
    let (name, value) = rest.strip_prefix("mut ").unwrap_or(rest).split_once(" = ")?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then_some(value)
}

#[test]
fn habits_do_not_come_back() {
    let mut counts = [0; HABITS.len()];
    for root in ROOTS {
        let mut files = Vec::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(root), &mut files);
        for path in files.iter().filter(|path| !path.ends_with("tests.rs")) {
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines: Vec<&str> = code.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate() {
                let before = if at > 0 { lines[at - 1] } else { "" };
                let after = lines.get(at + 1).copied().unwrap_or_default();
                for ((habit, _), count) in HABITS.iter().zip(&mut counts) {
                    *count += usize::from(habit.is_in(line, before, after));
                }
            }
        }
    }
    let mut wrong = Vec::new();
    for ((habit, limit), count) in HABITS.into_iter().zip(counts) {
        if count > limit {
            wrong.push(format!("{habit:?}: {count}, at most {limit}"));
        } else if count < limit {
            wrong.push(format!("{habit:?}: {count}; lower the limit from {limit}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn paths_are_found_as_they_are_written() {
    let shown = |code: &str| {
        let show = |found: &Found| {
            format!("{}{}", found.path.join("."), if found.passed_on { "!" } else { "" })
        };
        paths(code).iter().map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        shown("use crate::a::{self, b::C, d::{E as F, *}};"),
        "crate.a crate.a.b.C crate.a.d.E crate.a.d.*"
    );
    assert_eq!(shown("pub use child::Name; pub(crate) use super::x;"), "child.Name! super.x!");
    assert_eq!(
        shown("let x = super::super::y::z(crate::K, std::mem::take(a));"),
        "super.super.y.z crate.K"
    );
    let (code, strings) =
        code_and_strings("a('\"', \"b \\\" // c\", 'x: &'static, r#\"d\"e\"#); // \"f\"");
    assert_eq!(strings, ["b \\\" // c", "d\"e"]);
    assert_eq!(code, "a(' ', \"\", 'x: &'static, \"\"); \n");
    let circle = |edges: &[&[usize]]| {
        circles(&edges.iter().map(|uses| uses.iter().copied().collect()).collect::<Vec<_>>())
    };
    assert_eq!(circle(&[&[1], &[2], &[0], &[0]]), [[0, 1, 2]]);
    assert!(circle(&[&[1, 2], &[2], &[]]).is_empty());
}
