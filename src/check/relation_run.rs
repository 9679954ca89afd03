//! What was found in one relation so far, and the receiver of its findings: the same for tables of a server and for files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::code::Code;
use super::collector::CheckedBlocks;
use super::finding::{Checked, Finding};
use super::repair::{ToastIndexState, left_over};
use super::salvage::refuses_page;
use super::salvage_dir::{SalvageDir, TableSalvage};
use super::subject::Depth;
use toast_format::disk::{BlockNumber, ItemPointer};
use toast_format::heap::problem::Place;

/// Findings that are kept until all is known of the table.
const MAX_TOLD: usize = 100_000;

/// Receives the findings of a check; an error ends the check.
pub type Tell<'a> = dyn FnMut(Finding) -> io::Result<()> + Send + 'a;

/// Damage of a table as a whole, taken from its findings.
#[derive(Debug, Clone, Default)]
pub(super) struct TableDamage {
    pub(super) index: ToastIndexState,
    /// Whether pages have wrong checksums.
    pub(super) wrong_checksums: bool,
    /// Pages of the table and of its TOAST relation that the check could not judge; the server may read them.
    pub(super) refused: [BTreeSet<BlockNumber>; 2],
    /// Tuples of the TOAST relation that do not begin where they should, or their columns.
    pub(super) unreadable_chunks: Vec<ItemPointer>,
    /// Whether the catalog contradicts itself about the table.
    pub(super) has_wrong_catalog: bool,
    /// Findings, as far as they are kept.
    told: Vec<(Code, Place)>,
    /// Others: how many, and where the first is.
    more: BTreeMap<Code, (u64, Place)>,
}

impl TableDamage {
    pub(super) fn has_findings(&self) -> bool {
        !self.told.is_empty()
    }

    /// Whether there is a finding of this kind, kept or counted.
    pub(super) fn has(&self, code: Code) -> bool {
        self.more.contains_key(&code) || self.told.iter().any(|(told, _)| *told == code)
    }

    /// Where an INSERT into the table may fail, from the findings that were kept: at tuples whose transaction IDs the server
    /// refuses, to which an index may lead from the new row's key, and in blocks that cannot be read.
    pub(super) fn in_the_way(&self, table: &str) -> Vec<Place> {
        use Code::{MultiRange, PageHeader, Unreadable, XmaxRange, XminRange, Xvac};
        let obstacles = self.told.iter().filter(|(code, place)| {
            let refused = [XminRange, XmaxRange, MultiRange, Xvac, PageHeader, Unreadable];
            place.source == table && refused.contains(code)
        });
        obstacles.map(|(_, place)| place.clone()).collect()
    }

    /// Comments for the findings that have neither a statement nor a comment.
    pub(super) fn left_over(&self, is_covered: impl Fn(Code, &Place) -> bool) -> Vec<String> {
        let mut left: BTreeMap<Code, (u64, &Place)> = BTreeMap::new();
        for (code, place) in &self.told {
            if !is_covered(*code, place) {
                left.entry(*code).or_insert((0, place)).0 += 1;
            }
        }
        for (code, (count, first)) in &self.more {
            if !is_covered(*code, first) {
                left.entry(*code).or_insert((0, first)).0 += count;
            }
        }
        left.into_iter().map(|(code, (count, first))| left_over(code, count, first)).collect()
    }
}

/// One relation that is checked.
pub(super) struct RelationRun<'t> {
    pub(super) checked: Checked,
    /// What is known of the rows of the table.
    pub(super) rows: CheckedBlocks,
    pub(super) salvage: TableSalvage<'t>,
    pub(super) damage: TableDamage,
    /// If the relation is not judged, the number of findings that were left out.
    pub(super) unjudged: Option<u64>,
    tell: &'t mut Tell<'t>,
    /// Findings about the TOAST index, which are told once it is known whether it can be rebuilt.
    of_index: Vec<Finding>,
}

impl<'t> RelationRun<'t> {
    /// Notes that blocks of the table may have lost line pointers.
    pub(super) fn note_lost_pointers(&mut self, count: usize, first: BlockNumber, name: &str) {
        let (s, have) = if count == 1 { ("", "has") } else { ("s", "have") };
        self.checked.note(format!(
            "{count} block{s} of {name}, the first of them {first}, {have} bytes to which no line pointer leads: where no btree \
             index tells, it is not known whether line pointers were lost, or heap_force_kill of pg_surgery was used"
        ));
    }

    pub(super) fn new(
        name: &str,
        depth: Depth,
        salvage: Option<&'t mut SalvageDir>,
        tell: &'t mut Tell<'t>,
    ) -> RelationRun<'t> {
        RelationRun {
            checked: Checked { contents_checked: depth.content, ..Checked::new(name) },
            rows: CheckedBlocks::default(),
            salvage: TableSalvage::new(salvage),
            damage: TableDamage::default(),
            unjudged: None,
            tell,
            of_index: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, finding: Finding) -> io::Result<()> {
        if let Some(count) = &mut self.unjudged {
            *count += 1;
            return Ok(());
        }
        let is_of_table = finding.place.source == self.checked.relation;
        let is_of_index = finding.code.is_of_index();
        let damage = &mut self.damage;
        damage.index.is_damaged |= is_of_index;
        damage.wrong_checksums |= finding.code == Code::Checksum;
        if let (Some(block), None) = (finding.place.block, finding.place.item)
            && refuses_page(finding.code)
        {
            let [heap, toast] = &mut damage.refused;
            if is_of_table { heap } else { toast }.insert(block);
        }
        if !is_of_table {
            let tid = finding.tid();
            if matches!(finding.code, Code::LinePointer | Code::HeaderLength) {
                damage.unreadable_chunks.extend(tid);
            }
            // the finding of a value names it
            if tid.is_some_and(|tid| self.checked.claimed.contains(&tid)) {
                return Ok(());
            }
        }
        if damage.told.len() < MAX_TOLD {
            damage.told.push((finding.code, finding.place.clone()));
        } else {
            damage.more.entry(finding.code).or_insert((0, finding.place.clone())).0 += 1;
        }
        self.checked.count(&finding);
        self.salvage.note(&self.checked.relation, &finding);
        if is_of_index && self.of_index.len() < MAX_TOLD {
            self.of_index.push(finding);
            return Ok(());
        }
        (self.tell)(finding)
    }

    pub(super) fn tell_all(
        &mut self,
        findings: impl IntoIterator<Item = Finding>,
    ) -> io::Result<()> {
        findings.into_iter().try_for_each(|finding| self.tell(finding))
    }

    /// Tells of rows that are lost: what they referred to is not known.
    pub(super) fn tell_lost(
        &mut self,
        findings: impl IntoIterator<Item = Finding>,
    ) -> io::Result<()> {
        let findings: Vec<Finding> = findings.into_iter().collect();
        self.rows.is_incomplete |= !findings.is_empty();
        self.tell_all(findings)
    }

    /// Tells the findings about the TOAST index, with the statement that rebuilds it if that alone loses nothing.
    pub(super) fn tell_of_index(&mut self, rebuild: Option<&str>) -> io::Result<()> {
        for mut finding in std::mem::take(&mut self.of_index) {
            finding.sql = rebuild.map(str::to_owned);
            (self.tell)(finding)?;
        }
        Ok(())
    }

    /// Notes what was looked at in blocks, and tells their findings.
    pub(super) fn add(&mut self, blocks: &mut CheckedBlocks) -> io::Result<()> {
        self.checked.looked.add(&blocks.looked);
        self.rows.remarks.add(std::mem::take(&mut blocks.remarks));
        if blocks.elsewhere > 0 {
            self.checked.leave_out("values of other TOAST relations were not checked");
        }
        self.tell_all(std::mem::take(&mut blocks.findings))
    }

    /// Ends the reading of the table's rows: the values that they refer to are in order then. Gives those that live rows have
    /// twice.
    pub(super) fn end_rows(&mut self) -> BTreeSet<u64> {
        self.checked.remark(&self.rows.remarks);
        self.rows.known.sort_unstable();
        let mut live = std::mem::take(&mut self.rows.live);
        live.sort_unstable();
        live.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
    }
}
