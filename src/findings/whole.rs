//! Findings about a table in parts, which are its partitions, inheritance children or shards (pure).
//!
//! Parts with the same settings are judged together, by the sums of their facts: what is worth a report in the whole table may
//! be too little in each of them. What is found in some of them but not in the whole is added up too, because a few parts
//! may waste much that is little of the whole. Commands name the parts concerned, or the table if these are all of it.

use super::code::{Code, WORTH};
use super::facts::{ColumnFacts, Contents, Facts, ShortEnds, ToastFacts};
use super::finding::{Finding, Unit};
use super::look::{Count, Counted, RowFacts};
use super::rules;
use crate::command::TableName;
use crate::usage::upkeep::Upkeep;
use toast_format::codec::Method;
use toast_format::disk::Storage;
use toast_format::fill::meter::FileFill;
use toast_format::model::{BlocksRead, Interval};

/// A part of a table.
#[derive(Debug, Clone)]
pub(crate) struct TablePart {
    /// `table` is the name for commands: that of the table of Citus, if the part is a shard.
    pub(crate) facts: Facts,
    /// What is found in it alone.
    pub(crate) findings: Vec<Finding>,
    pub(crate) is_shard: bool,
    /// Whether it is an inheritance child.
    pub(crate) is_child: bool,
}

impl TablePart {
    /// What is found in it, however few bytes it is about.
    fn candidates(&self) -> Vec<Finding> {
        let mut found: Vec<Finding> = self.findings.clone();
        found.retain(|finding| finding.unit != Unit::Bytes);
        let any = Facts { worth: 0, ..self.facts.clone() };
        let of_bytes = rules::findings(&any).findings.into_iter();
        found.extend(of_bytes.filter(|finding| finding.unit == Unit::Bytes));
        found
    }
}

/// The findings about the table that has these parts.
pub(crate) fn findings(table: &TableName, parts: &mut [TablePart]) -> Vec<Finding> {
    let shown = table.shown();
    // numbered ones in the order of their numbers
    parts.sort_by_cached_key(|part| {
        let name = part.facts.table.shown();
        (name.len(), name)
    });
    let parts = &*parts;
    if let [part] = parts
        && part.facts.table == *table
        && !part.is_shard
    {
        return part.findings.clone();
    }
    let mut groups: Vec<Vec<&TablePart>> = Vec::new();
    for part in parts {
        let same = groups.iter_mut().find(|group| {
            group.first().is_some_and(|first| have_same_settings(&first.facts, &part.facts))
        });
        match same {
            Some(group) => group.push(part),
            None => groups.push(vec![part]),
        }
    }
    let mut found = Vec::new();
    for group in groups {
        let group = AlikeParts { table, all: parts, parts: group };
        found.extend(
            group
                .findings()
                .into_iter()
                .map(|finding| Finding { relation: shown.clone(), ..finding }),
        );
    }
    found
}

/// Parts with the same settings.
struct AlikeParts<'a> {
    table: &'a TableName,
    /// The parts of the table.
    all: &'a [TablePart],
    parts: Vec<&'a TablePart>,
}

/// Whether both are about the same column or file of the whole table; an index of one part is like any of another.
fn are_alike(one: &Finding, other: &Finding) -> bool {
    let have_same_object = one.code == Code::BloatedIndex || one.object == other.object;
    one.code == other.code && one.column == other.column && have_same_object
}

impl AlikeParts<'_> {
    fn findings(&self) -> Vec<Finding> {
        let [first, others @ ..] = self.parts.as_slice() else { return Vec::new() };
        let mut sum = first.facts.clone();
        // IDs and options are those of a TOAST relation
        sum.toast_facts.ids = None;
        sum.toast_facts.upkeep = Upkeep::default();
        // indexes are judged each by itself
        sum.bloated.clear();
        for other in others {
            sum.add(&other.facts);
        }
        let candidates: Vec<(&TablePart, Finding)> = self
            .parts
            .iter()
            .flat_map(|part| part.candidates().into_iter().map(|finding| (*part, finding)))
            .collect();
        let together = rules::findings(&sum).findings;
        let mut found: Vec<Finding> =
            together.iter().map(|finding| self.of_whole(finding, &sum, &candidates)).collect();
        let mut models: Vec<&Finding> = together.iter().collect();
        for (_, candidate) in &candidates {
            if !models.iter().any(|model| are_alike(model, candidate)) {
                found.extend(self.of_parts(candidate, &candidates));
                models.push(candidate);
            }
        }
        found
    }

    /// A finding about the whole, with the command for the parts that have it.
    fn of_whole(
        &self,
        model: &Finding,
        sum: &Facts,
        candidates: &[(&TablePart, Finding)],
    ) -> Finding {
        let mut having: Vec<&TablePart> = alike(model, candidates).map(|(part, _)| *part).collect();
        if having.is_empty() {
            having.clone_from(&self.parts);
        }
        let facts = Facts { table: self.name(&having), ..sum.clone() };
        let mut finding = finding_like(model, &facts).unwrap_or_else(|| model.clone());
        let of_shard = alike(model, candidates).find(|(part, _)| part.is_shard);
        if let (Code::HotKeys, Some((_, of_shard))) = (model.code, of_shard) {
            finding.command.clone_from(&of_shard.command);
        }
        finding.what.push_str(&self.place(&self.parts));
        finding
    }

    /// What some parts have, added up, if it is worth a report. `model`: what the first of them has.
    fn of_parts(&self, model: &Finding, candidates: &[(&TablePart, Finding)]) -> Option<Finding> {
        let having: Vec<&(&TablePart, Finding)> = alike(model, candidates).collect();
        let mut sum = model.clone();
        if matches!(sum.unit, Unit::Bytes | Unit::Rows | Unit::Values) {
            for (_, finding) in having.iter().skip(1) {
                sum.value = sum.value.saturating_add(finding.value);
                sum.low = sum.low.saturating_add(finding.low);
                sum.high = sum.high.saturating_add(finding.high);
                sum.compaction =
                    added(sum.compaction, finding.compaction, |sum, more| sum.plus(&more));
            }
        }
        if sum.unit == Unit::Bytes && sum.low < WORTH {
            return None;
        }
        let mut parts: Vec<&TablePart> = having.iter().map(|(part, _)| *part).collect();
        parts.dedup_by(|a, b| std::ptr::eq(*a, *b));
        if sum.code == Code::BloatedIndex && having.len() > 1 {
            sum.object = None;
            sum.what = format!("more than {} indexes would take if rebuilt", having.len());
        }
        sum.what.push_str(&self.place(&parts));
        if parts.len() > 1 {
            sum.command = self.command(model, &parts, &having);
        }
        Some(sum)
    }

    /// The command for these parts, or the statements for each if they need different ones.
    fn command(
        &self,
        model: &Finding,
        parts: &[&TablePart],
        having: &[&(&TablePart, Finding)],
    ) -> String {
        let mut commands = Vec::new();
        for part in parts {
            let facts = Facts { table: self.name(parts), worth: 0, ..part.facts.clone() };
            commands.extend(finding_like(model, &facts).map(|named| named.command));
        }
        commands.dedup();
        match commands.as_slice() {
            [command] => command.clone(),
            _ => {
                let mut each: Vec<&str> =
                    having.iter().map(|(_, finding)| finding.command.as_str()).collect();
                each.dedup();
                // commands of the program name the parts, and are the same for all
                each.join(" ")
            }
        }
    }

    /// The name of these parts in commands.
    fn name(&self, having: &[&TablePart]) -> TableName {
        let mut parts: Vec<TableName> = Vec::new();
        for part in having {
            if !parts.contains(&part.facts.table) {
                parts.push(part.facts.table.clone());
            }
        }
        if parts.as_slice() == std::slice::from_ref(self.table) {
            return self.table.clone();
        }
        TableName::Parts {
            table: Box::new(self.table.clone()),
            parts,
            are_all: having.len() == self.all.len(),
            are_children: having.iter().any(|part| part.is_child),
        }
    }

    /// Where something was found.
    fn place(&self, having: &[&TablePart]) -> String {
        let what = if having.iter().all(|part| part.is_shard) {
            "shard"
        } else if self.all.iter().any(|part| part.is_child) {
            "table"
        } else {
            "partition"
        };
        match having {
            [part] if part.is_shard => " in 1 shard".to_owned(),
            [part] if part.facts.table == *self.table => String::new(),
            [part] => format!(" in {}", part.facts.table.shown()),
            parts if parts.len() == self.all.len() => format!(" in {} {what}s", parts.len()),
            parts => format!(" in {} of {} {what}s", parts.len(), self.all.len()),
        }
    }
}

/// What these facts show about the same.
fn finding_like(model: &Finding, facts: &Facts) -> Option<Finding> {
    rules::findings(facts).findings.into_iter().find(|finding| are_alike(finding, model))
}

/// The findings of parts that are about the same.
fn alike<'c, 'p>(
    model: &Finding,
    candidates: &'c [(&'p TablePart, Finding)],
) -> impl Iterator<Item = &'c (&'p TablePart, Finding)> {
    candidates.iter().filter(|(_, finding)| are_alike(finding, model))
}

/// What decides how values of a column are stored.
fn settings(facts: &Facts) -> Vec<(&str, Storage, Option<&str>, &str)> {
    let columns = facts.columns.iter().map(|column| {
        let set = column.compression.map(Method::name);
        let toaster = column.toaster.as_ref().map(|toaster| toaster.name.as_str());
        (column.name.as_str(), column.storage, set, toaster.unwrap_or(column.method.name()))
    });
    let mut all: Vec<_> = columns.collect();
    all.sort_by_key(|(name, ..)| *name);
    all
}

fn have_same_settings(one: &Facts, other: &Facts) -> bool {
    one.target == other.target && one.page == other.page && settings(one) == settings(other)
}

impl Facts {
    /// Adds those of another part of the table, which has the same settings, as far as rules use them.
    fn add(&mut self, other: &Facts) {
        for column in &mut self.columns {
            let Some(more) = other.columns.iter().find(|more| more.name == column.name) else {
                continue;
            };
            let here = self.look.as_ref().and_then(|look| look.columns.get(column.index));
            column.add(more, here, other.counted(more));
        }
        if let (Some(look), Some(more)) = (&mut self.look, &other.look) {
            look.add(more, &self.columns, &other.columns);
        }
        self.rows = self.rows.plus_independent(other.rows);
        self.toasted = self.toasted.zip(other.toasted).map(|(sum, more)| sum + more);
        self.out_of_line = self.out_of_line.plus_independent(other.out_of_line);
        self.bytes = self.bytes.saturating_add(other.bytes);
        // transactions of several servers cannot be compared
        if self.horizon != other.horizon {
            self.horizon = None;
        }
        self.heap = added(self.heap, other.heap, added_fill);
        self.toast = added(self.toast, other.toast, added_fill);
        self.toast_facts.add(&other.toast_facts);
        self.damage += other.damage;
        self.counters =
            added(self.counters, other.counters, |sum, more| sum.plus_with_chunks(&more));
        self.server.truncates &= other.server.truncates;
        self.server.compacts_toast &= other.server.compacts_toast;
        self.server.rebuilds_indexes &= other.server.rebuilds_indexes;
        self.server.lz4 &= other.server.lz4;
        self.server.has_toasters |= other.server.has_toasters;
    }
}

/// The sum of what is known.
fn added<T>(sum: Option<T>, more: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(add(sum, more)),
        (sum, more) => sum.or(more),
    }
}

/// Numbers of values and their bytes, of two parts.
fn added_values(sum: (Interval, Interval), more: (Interval, Interval)) -> (Interval, Interval) {
    (sum.0.plus_independent(more.0), sum.1.plus_independent(more.1))
}

impl ColumnFacts {
    /// Adds the column of another part. `here`, `there`: what was counted of both.
    fn add(&mut self, more: &ColumnFacts, here: Option<&Counted>, there: Option<&Counted>) {
        self.other_method = added(self.other_method, more.other_method, added_values);
        if let (Some(toaster), Some(more)) = (&mut self.toaster, &more.toaster) {
            toaster.others = added(toaster.others, more.others, added_values);
        }
        self.statements = added(self.statements, more.statements, |sum, more| sum + more);
        if self.keys.is_none() {
            self.keys.clone_from(&more.keys);
        }
        let uncompressed = PartWeights::new(Count::UncompressedBytes, here, there);
        let short = PartWeights::new(Count::ShortUncompressedBytes, here, there);
        let rewritten = PartWeights::new(Count::RewrittenBytes, here, there);
        let ends = PartWeights::new(Count::ShortEnds, here, there);
        let contents = &mut self.contents;
        let Contents { compressed, compressible, savings, unchanged, short_ends, .. } =
            more.contents;
        contents.compressed = uncompressed.mean(contents.compressed, compressed);
        contents.compressible = short.mean(contents.compressible, compressible);
        contents.savings = short.mean(contents.savings, savings);
        contents.unchanged = rewritten.mean(contents.unchanged, unchanged);
        contents.short_ends = ShortEnds {
            pglz: ends.mean(contents.short_ends.pglz, short_ends.pglz),
            lz4: ends.mean(contents.short_ends.lz4, short_ends.lz4),
        };
    }
}

/// How much fractions of two parts count in the mean.
struct PartWeights {
    here: f64,
    there: f64,
}

impl PartWeights {
    fn new(count: Count, here: Option<&Counted>, there: Option<&Counted>) -> PartWeights {
        PartWeights {
            here: here.map_or(0.0, |counted| counted.of(count).estimate),
            there: there.map_or(0.0, |counted| counted.of(count).estimate),
        }
    }

    /// The mean of two fractions; one that is not known is as the other.
    fn mean(&self, here: Option<Interval>, there: Option<Interval>) -> Option<Interval> {
        let (Some(one), Some(other)) = (here, there) else { return here.or(there) };
        let all = self.here + self.there;
        if all <= 0.0 {
            return Some(one);
        }
        Some(one.scaled(self.here / all).plus(other.scaled(self.there / all)))
    }
}

impl RowFacts {
    /// Adds those of another part, in which columns of the same name may have other indexes.
    fn add(&mut self, other: &RowFacts, here: &[ColumnFacts], there: &[ColumnFacts]) {
        self.rows = self.rows.plus_independent(other.rows);
        self.dropped = self.dropped.plus_independent(other.dropped);
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for column in here {
            let more = there.iter().find(|more| more.name == column.name);
            pairs.extend(more.map(|more| (column.index, more.index)));
        }
        for &(at, from) in &pairs {
            if let (Some(sum), Some(more)) = (self.columns.get_mut(at), other.columns.get(from)) {
                sum.add(more);
            }
        }
        for target in &mut self.targets {
            let same = other.targets.iter().find(|same| same.bytes == target.bytes);
            let Some(same) = same else { continue };
            target.near = target.near.plus_independent(same.near);
            target.more = target.more.plus_independent(same.more);
            for &(at, from) in &pairs {
                add_at(&mut target.short_ends, at, same.short_ends.get(from));
                add_at(&mut target.out_of_line, at, same.out_of_line.get(from));
            }
        }
    }
}

fn add_at(sums: &mut [Interval], at: usize, more: Option<&Interval>) {
    if let (Some(sum), Some(more)) = (sums.get_mut(at), more) {
        *sum = sum.plus_independent(*more);
    }
}

fn added_fill(sum: FileFill, more: FileFill) -> FileFill {
    let mut deaths = sum.deaths;
    deaths.merge(more.deaths);
    FileFill {
        bytes: sum.bytes.saturating_add(more.bytes),
        drawn: BlocksRead {
            read: sum.drawn.read + more.drawn.read,
            total: sum.drawn.total + more.drawn.total,
        },
        dead: sum.dead.plus_independent(more.dead),
        dead_bytes: sum.dead_bytes.plus_independent(more.dead_bytes),
        deaths,
        tuples: sum.tuples.plus_independent(more.tuples),
        spare: sum.spare.plus_independent(more.spare),
        spare_vacuumed: sum.spare_vacuumed.plus_independent(more.spare_vacuumed),
        compaction: added(sum.compaction, more.compaction, |sum, more| sum.plus(&more)),
    }
}

impl ToastFacts {
    /// Adds what does not concern one TOAST relation alone.
    fn add(&mut self, other: &ToastFacts) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.stored = self.stored.plus_independent(other.stored);
        self.spare = added(self.spare, other.spare, <Interval>::plus_independent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::facts::BloatedIndex;
    use toast_format::codec::Method;

    fn named(name: &str) -> TableName {
        TableName::Known { schema: "public".into(), name: name.into() }
    }

    /// A 2 MB file with `spare` kB of free space.
    fn file(spare: u64) -> FileFill {
        let spare = Interval::exact((spare << 10) as f64);
        FileFill {
            bytes: 2 << 20,
            drawn: BlocksRead { read: 256, total: 256 },
            dead: Interval::default(),
            dead_bytes: Interval::default(),
            deaths: Default::default(),
            tuples: Interval::exact(100.0),
            spare,
            spare_vacuumed: spare,
            compaction: None,
        }
    }

    fn part(name: &str, facts: Facts) -> TablePart {
        let facts = Facts { table: named(name), ..facts };
        let findings = rules::findings(&facts).findings;
        TablePart { facts, findings, is_shard: false, is_child: false }
    }

    fn with_free_space(name: &str, spare: u64) -> TablePart {
        part(name, Facts { heap: Some(file(spare)), ..Facts::nothing_found() })
    }

    /// Each finding's text, amount and command.
    fn summaries(table: &str, parts: &[TablePart]) -> Vec<(String, u64, String)> {
        let found = findings(&named(table), &mut parts.to_vec()).into_iter();
        found.map(|finding| (finding.what, finding.value, finding.command)).collect()
    }

    #[test]
    fn what_is_little_in_each_part_is_reported_of_the_whole() {
        let parts: Vec<TablePart> =
            (1..=30).map(|at| with_free_space(&format!("p_{at}"), 900)).collect();
        assert!(parts.iter().all(|part| part.findings.is_empty()));
        let what = "free in the table's file in 30 partitions".to_owned();
        let command = "toastctl compact public.p --files heap".to_owned();
        assert_eq!(summaries("p", &parts), [(what, (30 * 900) << 10, command)]);
    }

    #[test]
    fn what_is_much_in_a_few_parts_is_reported_though_it_is_little_of_the_whole() {
        let spare = |at| if at % 10 == 3 { 700 } else { 0 };
        let parts: Vec<TablePart> =
            (1..=30).map(|at| with_free_space(&format!("p_{at}"), spare(at))).collect();
        let what = "free in the table's file in 3 of 30 partitions".to_owned();
        let command = "toastctl compact public.p_3 public.p_13 public.p_23 --files heap".to_owned();
        assert_eq!(summaries("p", &parts), [(what, (3 * 700) << 10, command)]);
        // one that is the table itself, and one that is worth nothing
        let alone = with_free_space("p", 1500);
        assert_eq!(findings(&named("p"), &mut [alone.clone()]), alone.findings);
        assert_eq!(summaries("p", &[with_free_space("p_1", 900)]), []);
        let (_, value, command) = summaries("p", &[alone, with_free_space("p_1", 10)]).remove(0);
        assert_eq!(
            (value, command.as_str()),
            (1510 << 10, "toastctl compact public.p --files heap")
        );
    }

    /// VACUUM of a partitioned table takes its partitions, and before PostgreSQL 18 that of another table leaves its
    /// children out.
    #[test]
    fn statements_for_inheritance_children_name_them() {
        let of = |name: &str, is_child| {
            let look = RowFacts {
                rows: Interval::exact(10.0),
                dropped: Interval::exact(3e6),
                columns: Vec::new(),
                targets: Vec::new(),
            };
            let facts = Facts { look: Some(look), bytes: 4 << 20, ..Facts::nothing_found() };
            TablePart { is_child, ..part(name, facts) }
        };
        let (what, _, command) = summaries("p", &[of("p_1", false), of("p_2", false)]).remove(0);
        assert!(what.ends_with("in 2 partitions"), "{what}");
        assert_eq!(command, "VACUUM FULL \"public\".\"p\";");
        let (what, _, command) = summaries("p", &[of("c_1", true), of("c_2", true)]).remove(0);
        assert!(what.ends_with("in 2 tables"), "{what}");
        assert_eq!(command, "VACUUM FULL \"public\".\"c_1\", \"public\".\"c_2\";");
        let (_, _, command) = summaries("p", &[of("c_1", true)]).remove(0);
        assert_eq!(command, "VACUUM FULL \"public\".\"c_1\";");
    }

    #[test]
    fn indexes_of_parts_are_added_up_and_statements_are_those_of_each_part() {
        let index = |name: &str| BloatedIndex {
            name: format!("public.{name}"),
            bytes: 900 << 10,
            fresh: 100 << 10,
            wal: 1,
            left: None,
        };
        let of = |name: &str| {
            let method = Some(Method::Lz4);
            let mut facts = Facts { bloated: vec![index(name)], ..Facts::nothing_found() };
            facts.columns[0].storage = Storage::Plain;
            facts.columns[0].compression = method;
            part(name, facts)
        };
        let found = summaries("p", &[of("p_1"), of("p_2")]);
        assert_eq!(found[1].0, "more than 2 indexes would take if rebuilt in 2 partitions");
        assert_eq!((found[1].1, found[1].2.as_str()), (1600 << 10, "toastctl reindex public.p"));
        let set = "ALTER COLUMN \"v\" SET COMPRESSION default;";
        let statements: Vec<String> = ["p", "p_1", "p_2"]
            .map(|name| format!("ALTER TABLE \"public\".\"{name}\" {set}"))
            .into();
        assert_eq!(found[0].2, statements.join(" "));
    }

    #[test]
    fn parts_with_other_settings_are_judged_apart_and_columns_go_by_their_names() {
        let of = |name: &str, index: usize, storage| {
            let mut columns = vec![Counted::of_one(Count::Stored, Interval::default()); 2];
            columns[index] = Counted::of_one(Count::OlderBytes, Interval::exact(6e5));
            let look = RowFacts {
                rows: Interval::exact(10.0),
                dropped: Interval::default(),
                columns,
                targets: Vec::new(),
            };
            let mut facts = Facts { look: Some(look), ..Facts::nothing_found() };
            facts.columns[0].index = index;
            facts.columns[0].storage = storage;
            part(name, facts)
        };
        let extended = Storage::Extended;
        let parts = [of("p_1", 0, extended), of("p_2", 1, extended)];
        let mut sum = parts[0].facts.clone();
        sum.add(&parts[1].facts);
        assert_eq!(sum.counted(&sum.columns[0]).unwrap().of(Count::OlderBytes).estimate, 1.2e6);
        assert_eq!(sum.rows, Interval::exact(2e6));
        assert!(have_same_settings(&parts[0].facts, &parts[1].facts));
        assert!(!have_same_settings(&parts[0].facts, &of("p_3", 0, Storage::External).facts));
    }

    #[test]
    fn shards_are_named_as_their_table() {
        let shard = |name| TablePart { is_shard: true, ..with_free_space(name, 700) };
        let (what, _, command) = summaries("d", &[shard("d"), shard("d")]).remove(0);
        assert_eq!(what, "free in the table's file in 2 shards");
        assert_eq!(command, "toastctl compact public.d --files heap");
    }
}
