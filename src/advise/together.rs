//! Columns of a table that are advised on together: each is judged by the files that the commands for the others leave, and
//! columns that get the same settings share one command (pure).

use super::candidate::Variants;
use super::compaction::AfterCommand;
use super::estimate::{Figure, figures};
use super::recommend::{Joined, OtherColumns};
use super::report::{ColumnSample, SampledFigures, column_report};
use super::result::{CandidateReport, Report, SettingsReport};
use super::tally::OtherValues;
use toast_format::model::Interval;
use toast_format::model::cost::Pricing;
use toast_format::model::settings::Settings;

/// How often each column is judged again, if the advice for the others keeps changing.
const MOST_ROUNDS: usize = 3;

/// The command for several columns.
struct JointCommand {
    words: Vec<String>,
    after: AfterCommand,
    /// The columns in the order of the command.
    columns: String,
}

/// What is advised for a column, as far as it matters to the others.
#[derive(Clone, Copy, PartialEq, Default)]
struct Advised {
    /// The settings that its command brings.
    settings: Option<Settings>,
    /// Bytes that these add to the files, without free space.
    added: f64,
}

/// The report on each column. What is advised for one decides by how much another may make the table grow, so that its
/// advice is the same before that command and after it.
pub(super) fn reports(samples: &[ColumnSample<'_>]) -> Vec<Report> {
    let alone = OtherColumns::default();
    let mut reports: Vec<Report> =
        samples.iter().map(|sample| column_report(*sample, alone)).collect();
    if samples.len() > 1 && reports.iter().any(|report| report.wanted().is_some()) {
        judge_again(samples, &mut reports);
        settle(samples, &mut reports);
        hold_together(samples, &mut reports);
    }
    join(samples, &mut reports);
    reports
}

/// Columns that get different settings may undo each other's commands, for what is done with a value depends on the others in
/// its row. All get the settings of one of them, if these suit all. Otherwise those columns have a command that share the
/// settings of the one that gains most, and the others are judged again after it.
fn settle(samples: &[ColumnSample<'_>], reports: &mut Vec<Report>) {
    let advised: Vec<Advised> =
        samples.iter().zip(&*reports).map(|(sample, report)| report.advised(sample)).collect();
    let mut wanted: Vec<Settings> = Vec::new();
    for settings in advised.iter().filter_map(|one| one.settings) {
        if !wanted.contains(&settings) {
            wanted.push(settings);
        }
    }
    if wanted.len() < 2 {
        return;
    }
    if let Some(alike) = wanted.iter().find_map(|settings| alike(samples, reports, settings)) {
        *reports = alike;
        return;
    }
    let gains = reports.iter().zip(&advised).filter(|(_, one)| one.settings.is_some());
    let most =
        gains.min_by(|(a, _), (b, _)| a.recommendation.value.total_cmp(&b.recommendation.value));
    let most = most.and_then(|(_, most)| most.settings);
    for ((sample, report), advised) in samples.iter().zip(reports).zip(&advised) {
        if advised.settings.is_some() && advised.settings != most {
            let others = OtherColumns { come_first: true, ..OtherColumns::default() };
            *report = column_report(*sample, others);
        }
    }
}

/// Each command keeps within what the table may grow by. If together they do not, no column gets settings that make it larger:
/// were one of them allowed to, another would be the next time.
fn hold_together(samples: &[ColumnSample<'_>], reports: &mut [Report]) {
    let advised: Vec<Advised> =
        samples.iter().zip(&*reports).map(|(sample, report)| report.advised(sample)).collect();
    let Some(first) = reports.first() else { return };
    let added: f64 = advised.iter().map(|one| one.added).sum();
    let larger = added / bytes(first.candidates.first()).max(1.0);
    if larger <= first.optimize.growth_limit() {
        return;
    }
    for ((sample, report), advised) in samples.iter().zip(reports).zip(&advised) {
        if advised.added > 0.0 {
            let others = OtherColumns { larger_together: Some(larger), ..OtherColumns::default() };
            *report = column_report(*sample, others);
        }
    }
}

/// The reports if each column is advised to have these settings as the others have them.
fn alike(
    samples: &[ColumnSample<'_>],
    reports: &[Report],
    settings: &Settings,
) -> Option<Vec<Report>> {
    let all = AllColumns::new(samples, settings)?;
    let of_candidate = SettingsReport::from(settings);
    let added = reports.iter().map(|report| {
        let own = report.candidates.iter().find(|one| one.settings == of_candidate)?;
        Some(bytes(Some(own)) - bytes(report.candidates.first()))
    });
    let added: Vec<f64> = added.collect::<Option<_>>()?;
    let excess: Vec<f64> =
        samples.iter().zip(reports).map(|(sample, report)| report.excess(sample)).collect();
    let all_added: f64 = added.iter().sum();
    let all_excess: f64 = excess.iter().sum();
    let mut alike = Vec::with_capacity(samples.len());
    for ((sample, own), excess) in samples.iter().zip(added).zip(excess) {
        let added = all_added - own;
        let joined = Some(all.without(added, *settings));
        let excess = all_excess - excess;
        let report = column_report(
            *sample,
            OtherColumns { added, excess, joined, ..OtherColumns::default() },
        );
        if report.advised(sample).settings != Some(*settings) {
            return None;
        }
        alike.push(report);
    }
    Some(alike)
}

/// Judges each column again, as it will be after the commands for the others, until no advice changes.
fn judge_again(samples: &[ColumnSample<'_>], reports: &mut [Report]) {
    let excess: Vec<f64> =
        samples.iter().zip(&*reports).map(|(sample, report)| report.excess(sample)).collect();
    let all_excess: f64 = excess.iter().sum();
    let mut advised = vec![Advised::default(); samples.len()];
    let mut judged = vec![OtherColumns::default(); samples.len()];
    for _ in 0..MOST_ROUNDS {
        let before = advised.clone();
        for (at, sample) in samples.iter().enumerate() {
            let mut others = advised.clone();
            others.remove(at);
            let added = others.iter().map(|other| other.added).sum();
            let excess = all_excess - excess.get(at).unwrap_or(&0.0);
            let joined = common_settings(&others).and_then(|settings| {
                Some(AllColumns::new(samples, &settings)?.without(added, settings))
            });
            let others = OtherColumns { added, excess, joined, ..OtherColumns::default() };
            let (Some(report), Some(judged), Some(advised)) =
                (reports.get_mut(at), judged.get_mut(at), advised.get_mut(at))
            else {
                continue;
            };
            if *judged != others {
                *report = column_report(*sample, others);
                *judged = others;
            }
            *advised = report.advised(sample);
        }
        if advised == before {
            break;
        }
    }
}

/// The settings that all of these columns get, if these are the same.
fn common_settings(columns: &[Advised]) -> Option<Settings> {
    let first = columns.first()?.settings?;
    columns.iter().all(|column| column.settings == Some(first)).then_some(first)
}

/// All columns with these settings.
struct AllColumns {
    /// The files with what is left free next to long rows, likely and at the most.
    total_bytes: Figure,
    most_bytes: f64,
    after: AfterCommand,
    growth: Interval,
    /// The same of today's values.
    today: f64,
}

impl AllColumns {
    /// `None` if these settings are not compared, or the server would refuse rows.
    fn new(samples: &[ColumnSample<'_>], settings: &Settings) -> Option<AllColumns> {
        // those of the first column are those of all
        let sample = samples.first()?;
        let all = figures(sample.tally, &sample.scope(), &Pricing::default(), Variants::AS_SET);
        let then = sample.with_others(OtherValues::Follow, &all, settings)?;
        if then.tally.refused > 0.0 {
            return None;
        }
        let tally = sample.tally.tallies().first()?;
        let today = SampledFigures { tally, figures: all.first()? };
        let in_place = then.figures.in_place(today.figures);
        let total_bytes = in_place.files.total_bytes;
        Some(AllColumns {
            total_bytes,
            most_bytes: total_bytes.value.estimate + in_place.room(1.0),
            after: sample.after_command(then, today),
            growth: sample.growth(then, today),
            today: total_bytes.today(),
        })
    }

    /// The same without these bytes.
    fn without(&self, added: f64, settings: Settings) -> Joined {
        let part = Interval::exact(-added / self.today.max(1.0));
        let Figure { value, change } = self.total_bytes;
        Joined {
            settings,
            total_bytes: Figure {
                value: value.plus(Interval::exact(-added)),
                change: change.map(|change| change.plus(part)),
            },
            most_bytes: self.most_bytes - added,
            growth: self.growth.plus(part),
        }
    }
}

/// Makes one command of those that give all columns of a table the same settings.
fn join(samples: &[ColumnSample<'_>], reports: &mut [Report]) {
    let Some(joint) = joint_command(samples, reports) else { return };
    for report in reports {
        report.take(&joint);
    }
}

/// `None` unless all columns get the same settings, by commands of their own.
fn joint_command(samples: &[ColumnSample<'_>], reports: &[Report]) -> Option<JointCommand> {
    let [first, others @ ..] = reports else { return None };
    let command = &first.recommendation.command;
    if others.iter().all(|other| other.recommendation.command == *command) {
        return None;
    }
    let advised = samples.iter().zip(reports).map(|(sample, report)| report.advised(sample));
    let settings = common_settings(&advised.collect::<Vec<Advised>>())?;
    let sample = samples.first()?;
    let present = &sample.variants.present;
    // the command would name the method for one column, and not for another
    if samples.iter().any(|other| other.variants.present != *present) {
        return None;
    }
    let AllColumns { after, .. } = AllColumns::new(samples, &settings)?;
    let columns: Vec<usize> = samples.iter().map(|sample| sample.variants.column).collect();
    Some(JointCommand {
        words: sample.command(&columns, &settings, &after),
        after,
        columns: sample.names(&columns).join(", "),
    })
}

impl Report {
    /// The candidate that its command brings.
    fn wanted(&self) -> Option<&CandidateReport> {
        let recommendation = &self.recommendation;
        if recommendation.command.is_empty() {
            return None;
        }
        self.candidates.get(recommendation.candidate)
    }

    fn advised(&self, sample: &ColumnSample<'_>) -> Advised {
        let Some(wanted) = self.wanted() else { return Advised::default() };
        let mut variants = sample.tally.tallies().iter().filter_map(|one| one.variant.settings);
        Advised {
            settings: variants.find(|one| SettingsReport::from(one) == wanted.settings),
            added: bytes(Some(wanted)) - bytes(self.candidates.first()),
        }
    }

    /// Bytes that the column takes today beyond what it would with PostgreSQL's default settings, if these would store its
    /// values differently.
    fn excess(&self, sample: &ColumnSample<'_>) -> f64 {
        let narrowing = &sample.subject.options.narrowing;
        if !narrowing.allows(&sample.defaults(), &sample.variants.present) {
            return 0.0;
        }
        let defaults = SettingsReport::from(&sample.defaults());
        let mut others = self.candidates.iter().skip(1);
        let defaults = others.find(|other| other.settings == defaults);
        defaults.map_or(0.0, |defaults| bytes(self.candidates.first()) - bytes(Some(defaults)))
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
}

/// Bytes of the files by which this candidate was judged.
fn bytes(candidate: Option<&CandidateReport>) -> f64 {
    candidate.map_or(0.0, |one| one.judged_bytes)
}
