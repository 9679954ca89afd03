//! Makes the server compress copies of values if the verdict on a row depends on the result.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::machine::Row;
use super::scanner::{Candidate, JUDGED_BYTES, Scanner};
use crate::retoast::sql::{self, Target, row_judge};
use crate::server::chunks::{address, in_parts_of, transaction};
use crate::server::trial::Trial;
use crate::server::{LiveError, LiveResult};
use toast_format::disk::ItemPointer;
use toast_format::judge::stock::{Compliance, CompressedSize};
use toast_format::judge::{FormJudge, Row as Judged};

impl Scanner<'_> {
    /// Makes the server compress values until the verdicts no longer depend on the results. Once the size of one
    /// value is known, the verdict may depend on another.
    pub(super) async fn judge(
        &mut self,
        judge: &FormJudge,
        mut open: Vec<Candidate>,
    ) -> LiveResult<()> {
        let (indexes, follow) = self.indexes();
        if matches!(judge, FormJudge::Stock(_)) && self.hands_values_over_uncompressed() {
            open.retain(|Candidate { row, values, .. }| {
                let table = &self.choice.model;
                let judged = Judged { table, targets: &indexes, follow: &follow, values };
                !self.ours.contains(&row.xmin)
                    || judge.compliance(&judged, &|_| Some(None)) != Compliance::Complies
            });
        }
        let mut answers: HashMap<(ItemPointer, usize), CompressedSize> = HashMap::new();
        while !open.is_empty() {
            self.answer(judge, &open, &mut answers).await?;
            for mut candidate in std::mem::take(&mut open) {
                let found = candidate.row;
                let ctid = found.ctid;
                let answer = |index| answers.get(&(ctid, index)).copied();
                // a row that no longer exists has no result, and nothing needs to be done
                if candidate.open.iter().any(|&index| answer(index).is_none()) {
                    continue;
                }
                let table = &self.choice.model;
                let values = &candidate.values;
                let row = Judged { table, targets: &indexes, follow: &follow, values };
                match judge.compliance(&row, &answer) {
                    Compliance::Complies => {}
                    Compliance::Differs => {
                        let is_left = |index: usize| {
                            let value = values.get(index);
                            judge.may_keep_pointers(index)
                                && value.is_some_and(|value| value.form.is_external())
                        };
                        let left = |index| if is_left(index) { Some(None) } else { answer(index) };
                        let spared = judge.compliance(&row, &left) == Compliance::Complies;
                        self.found.push(Row { spared, ..found });
                    }
                    Compliance::Depends(mut more) => {
                        more.retain(|&index| answer(index).is_none());
                        candidate.open = more;
                        if !candidate.open.is_empty() {
                            open.push(candidate);
                        }
                    }
                }
            }
        }
        if let Some(sampled) = &mut self.sampled {
            sampled.sizes.extend(answers);
        }
        Ok(())
    }

    /// Whether this run's transactions pass every chosen value to the server uncompressed, so that the server has
    /// already tried to compress those that it stored uncompressed, and need not try again. This does not hold if
    /// triggers may change values, or if values are generated.
    fn hands_values_over_uncompressed(&self) -> bool {
        !self.ready.code.triggers_fire()
            && self.ready.targets.iter().all(|target| target.base.is_none())
    }

    /// Makes the server compress the values in question.
    pub(super) async fn answer(
        &mut self,
        judge: &FormJudge,
        open: &[Candidate],
        answers: &mut HashMap<(ItemPointer, usize), CompressedSize>,
    ) -> LiveResult<()> {
        let table = self.ready.relation.quoted();
        for target in &self.ready.targets {
            let (outside, asked): (Vec<&Candidate>, Vec<&Candidate>) = open
                .iter()
                .filter(|candidate| candidate.open.contains(&target.index))
                .partition(|candidate| {
                    judge.may_keep_pointers(target.index) && candidate.is_outside(target)
                });
            self.ask_what_is_left(target, &outside, answers).await?;
            if asked.is_empty() {
                continue;
            }
            let client = self.connection.client();
            let fresh = target.shape.force(&target.column());
            let index = target.index;
            let page = self.choice.model.page;
            let methods = [target.method];
            let trial =
                Trial::with_fresh(table.clone(), index, &target.name, fresh, &methods, page);
            if self.trials.columns.insert(target.index) {
                trial.make(client).await?;
            }
            for group in
                in_parts_of(&asked, usize::MAX, JUDGED_BYTES, |candidate| candidate.row.bytes)
            {
                let rows: Vec<ItemPointer> =
                    group.iter().map(|candidate| candidate.row.ctid).collect();
                for (ctid, sizes) in trial.compress(client, &rows).await? {
                    answers.insert((ctid, target.index), sizes.get(target.method));
                }
            }
        }
        Ok(())
    }

    /// Determines which of these values the toaster would leave unchanged.
    pub(super) async fn ask_what_is_left(
        &self,
        target: &Target,
        candidates: &[&Candidate],
        answers: &mut HashMap<(ItemPointer, usize), CompressedSize>,
    ) -> LiveResult<()> {
        if candidates.is_empty() {
            return Ok(());
        }
        let ctids: Vec<String> = candidates.iter().map(|one| one.row.ctid.to_string()).collect();
        let sql = sql::never_moved(&self.ready.relation.quoted(), target);
        // any size will do: the value would be stored differently
        answers.extend(candidates.iter().map(|one| ((one.row.ctid, target.index), Some(0))));
        let client = self.connection.client();
        for row in client.query_typed(&sql, &[(&ctids, Type::TEXT_ARRAY)]).await? {
            answers.insert((address(row.try_get(0)?)?, target.index), None);
        }
        Ok(())
    }

    /// Makes the server store whole rows, because too little is known for the model if pages cannot be read.
    pub(super) async fn judge_rows(&mut self, open: Vec<Candidate>) -> LiveResult<()> {
        if open.is_empty() {
            return Ok(());
        }
        let table = self.ready.relation.quoted();
        let targets = &self.ready.targets;
        let fresh: Vec<&Target> = targets.iter().chain(&self.choice.follow).collect();
        let stored = self.ready.stored_columns();
        let insert = row_judge::judge_rows(&table, &stored, &fresh);
        let copy = row_judge::judge_rows(&table, &stored, &[]);
        let update = row_judge::judge_update(&fresh, self.choice.model.target);
        let client = self.connection.client();
        if !self.trials.rows {
            let target = self.choice.model.target;
            let make = row_judge::make_row_judge(&table, self.choice.toaster, targets, target);
            client.batch_execute(&make).await?;
            self.trials.rows = true;
        }
        for now in in_parts_of(&open, usize::MAX, JUDGED_BYTES, |candidate| candidate.row.bytes) {
            let ctids: Vec<String> = now.iter().map(|one| one.row.ctid.to_string()).collect();
            // in one snapshot, the rows and the judge's copies of them are in the same order
            let compressed = self.ask_row_judge(&insert, None, &ctids).await?;
            client.batch_execute(row_judge::CLEAR_ROW_JUDGE).await?;
            let doubted: Vec<&Candidate> =
                now.iter().filter(|candidate| differs(candidate, targets, &compressed)).collect();
            if doubted.is_empty() {
                continue;
            }
            // An UPDATE leaves external values as they are, and nothing shows which values of the row are external.
            // In the copy, all values that can be external are; those that the server compresses nevertheless would
            // certainly be compressed in the row.
            let ctids: Vec<String> = doubted.iter().map(|one| one.row.ctid.to_string()).collect();
            client.batch_execute(row_judge::TRY_COPIES).await?;
            let compressed = match self.ask_row_judge(&copy, Some(&update), &ctids).await {
                Ok(moved) => {
                    client.batch_execute(row_judge::COPIES_TRIED).await?;
                    moved
                }
                // in a row with many columns, the pointers alone fill a page, and nothing more is known about it
                Err(LiveError::Server(error))
                    if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) =>
                {
                    client.batch_execute(row_judge::COPIES_REFUSED).await?;
                    compressed
                }
                Err(error) => return Err(error),
            };
            client.batch_execute(row_judge::CLEAR_ROW_JUDGE).await?;
            for candidate in doubted {
                if differs(candidate, targets, &compressed) {
                    self.found.push(Row { by_copy: true, ..candidate.row });
                } else if !self.ours.contains(&candidate.row.xmin) {
                    self.seen.undecided += 1;
                }
            }
        }
        Ok(())
    }

    /// For each row that exists, whether the server compressed each chosen column in its copy, on insertion or in the
    /// UPDATE.
    pub(super) async fn ask_row_judge(
        &self,
        insert: &str,
        update: Option<&(String, String)>,
        ctids: &Vec<String>,
    ) -> LiveResult<HashMap<ItemPointer, Vec<bool>>> {
        let client = self.connection.client();
        let table = self.ready.relation.quoted();
        let rows =
            client.query_typed(&row_judge::there(&table), &[(ctids, Type::TEXT_ARRAY)]).await?;
        if update.is_some() {
            client.batch_execute(row_judge::JUDGE_MOVES_OUT).await?;
        }
        let copies = client.query_typed(insert, &[(ctids, Type::TEXT_ARRAY)]).await?;
        if rows.len() != copies.len() {
            return Err(LiveError::Unexpected(format!(
                "{} rows have {} copies",
                rows.len(),
                copies.len()
            )));
        }
        let mut originals = HashMap::new();
        for (row, copy) in rows.iter().zip(&copies) {
            originals.insert(address(copy.try_get(0)?)?, address(row.try_get(0)?)?);
        }
        if let Some((before, update)) = update {
            client.batch_execute(before).await?;
            for row in client.query_typed(update, &[]).await? {
                if let Some(original) = originals.remove(&address(row.try_get(0)?)?) {
                    originals.insert(address(row.try_get(1)?)?, original);
                }
            }
        }
        let mut compressed = HashMap::new();
        for row in client.query_typed(&row_judge::judged_rows(&self.ready.targets), &[]).await? {
            if let Some(&original) = originals.get(&address(row.try_get(0)?)?) {
                compressed.insert(original, row.try_get(1)?);
            }
        }
        Ok(compressed)
    }

    /// Adds the rows that have compressed fields inside composite values.
    pub(super) async fn hidden(&mut self, blocks: Range<u32>) -> LiveResult<()> {
        let table = self.ready.relation.quoted();
        let Some(sql) = sql::hidden(&table, self.choice.toaster, &self.ready.targets, blocks)
        else {
            return Ok(());
        };
        let known: HashSet<ItemPointer> = self.found.iter().map(|row| row.ctid).collect();
        for row in self.connection.client().query_typed(&sql, &[]).await? {
            let ctid = address(row.try_get(0)?)?;
            if !known.contains(&ctid) {
                let bytes: i64 = row.try_get(1)?;
                let bytes = u64::try_from(bytes).unwrap_or(0);
                let xmin = transaction(row.try_get(2)?)?;
                self.found.push(Row::new(ctid, xmin, bytes, bytes, bytes));
            }
        }
        Ok(())
    }
}
/// Whether a value that the candidate depends on would be compressed.
fn differs(
    candidate: &Candidate,
    targets: &[Target],
    compressed: &HashMap<ItemPointer, Vec<bool>>,
) -> bool {
    let Some(compressed) = compressed.get(&candidate.row.ctid) else { return false };
    let mut columns = targets.iter().zip(compressed);
    columns.any(|(target, &yes)| yes && candidate.open.contains(&target.index))
}
