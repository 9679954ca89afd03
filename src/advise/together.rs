//! Columns of a table that are advised on together: those that get the same settings are one command, and are judged by
//! what it leaves (pure).

use super::compaction::AfterCommand;
use super::estimate::figures;
use super::recommend::{Exclusion, Goal};
use super::report::{ColumnSample, SampledFigures};
use super::result::{Report, SettingsReport};
use super::tally::OtherValues;
use toast_format::model::cost::Pricing;
use toast_format::model::interval::Interval;

/// The command for several columns.
struct JointCommand {
    words: Vec<String>,
    after: AfterCommand,
    /// Why not all of the columns are converted.
    exclusion: Option<Exclusion>,
    /// The columns in the order of the command.
    columns: String,
}

/// Makes one command of those that give all columns of a table the same settings. If the table would grow too much with
/// all of them, the first column alone gets the settings.
pub(super) fn join(samples: &[ColumnSample<'_>], reports: &mut [Report]) {
    let Some(joint) = joint_command(samples, reports) else { return };
    if let Some(exclusion) = joint.exclusion {
        let first = reports.first().map(|report| report.column.clone()).unwrap_or_default();
        for report in reports.iter_mut().skip(1) {
            report.keep(&first, exclusion);
        }
        return;
    }
    for report in reports {
        report.take(&joint);
    }
}

/// `None` unless all columns get the same settings, by commands of their own.
fn joint_command(samples: &[ColumnSample<'_>], reports: &[Report]) -> Option<JointCommand> {
    let [first, others @ ..] = reports else { return None };
    let wanted = first.wanted()?;
    let command = &first.recommendation.command;
    if others.iter().all(|other| other.recommendation.command == *command)
        || others.iter().any(|other| other.wanted() != Some(wanted))
    {
        return None;
    }
    let sample = samples.first()?;
    let present = &sample.variants.present;
    // the command would name the method for one column, and not for another
    if samples.iter().any(|other| other.variants.present != *present) {
        return None;
    }
    let tallies = sample.tally.tallies();
    let at = tallies.iter().position(|one| {
        let settings = one.variant.settings.as_ref().map(SettingsReport::from);
        one.variant.others == OtherValues::Follow && settings.as_ref() == Some(wanted)
    })?;
    let all = figures(sample.tally, &sample.scope(), &Pricing::default());
    let then = SampledFigures { tally: tallies.get(at)?, figures: all.get(at)? };
    let today = SampledFigures { tally: tallies.first()?, figures: all.first()? };
    if then.tally.refused > 0.0 {
        return None;
    }
    let after = sample.after_command(then, today);
    let goal = Goal { optimize: sample.subject.options.optimize, ..Goal::default() };
    let exclusion = Exclusion::of_growth(then.figures, sample.growth(then, today), &goal);
    let settings = then.tally.variant.settings?;
    let named = &then.tally.variant.named;
    Some(JointCommand {
        words: sample.command(named, &settings, &after),
        after,
        exclusion,
        columns: sample.names(named).join(", "),
    })
}

impl Report {
    /// The settings that its command brings.
    fn wanted(&self) -> Option<&SettingsReport> {
        let recommendation = &self.recommendation;
        if recommendation.command.is_empty() {
            return None;
        }
        Some(&self.candidates.get(recommendation.candidate)?.settings)
    }

    /// Takes over a command that converts other columns too.
    fn take(&mut self, joint: &JointCommand) {
        let recommendation = &mut self.recommendation;
        recommendation.command.clone_from(&joint.words);
        recommendation.after_bytes = joint.after.bytes;
        recommendation.reasons.push_str(&format!(
            " The command, and the size after it, are for columns {} together.",
            joint.columns
        ));
        if let Some(candidate) = self.candidates.get_mut(recommendation.candidate) {
            candidate.after_command_bytes = joint.after.bytes;
            candidate.before_compaction_bytes = joint.after.before_compaction;
        }
    }

    /// Advises to keep the settings, because of what they would do together with those of the column `first`.
    fn keep(&mut self, first: &str, exclusion: Exclusion) {
        let recommendation = &mut self.recommendation;
        if let Some(candidate) = self.candidates.get_mut(recommendation.candidate) {
            candidate.marks.recommended = false;
            recommendation.reasons = format!(
                "Keep the present settings: together with column {first}, {} {exclusion}.",
                candidate.name
            );
        }
        recommendation.candidate = 0;
        recommendation.sql.clear();
        recommendation.command.clear();
        recommendation.after_bytes = Interval::exact(self.files.total_bytes);
        if let Some(today) = self.candidates.first_mut() {
            today.marks.recommended = true;
        }
    }
}
