//! The judge: which settings suit a column's values and its workload, whether they are worth rewriting the table, and why,
//! in sentences (pure).

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::Serialize;

use super::estimate::{Figure, Figures, PrefixRead, part_left};
use crate::message::size;
use crate::usage::workload::{MONTH_DAYS, Workload, WorkloadSource};
use toast_format::model::Interval;
use toast_format::model::cost::Prices;
use toast_format::model::settings::Settings;

/// What each read takes whatever the storage, in nanoseconds: finding the row, and answering. Nobody rewrites a table so
/// that a read takes a fraction of it less.
const READ_NS: f64 = 3000.0;
/// What a change must gain, as a part, to be worth rewriting a table for.
const LEAST_GAIN: f64 = 0.05;
/// Figures that differ by less are equal.
const TIE: f64 = 0.01;
/// Candidates this close to the best one are as good, if their intervals overlap: less than half of the least gain, so
/// that the best one is not worth a second rewrite.
const AS_GOOD: f64 = 0.02;

/// The weights of pages read from disk and of prefixes in the cost of reads; the rest is that of whole values in memory.
const COLD: f64 = 0.1;
const PREFIX: f64 = 0.1;
/// The weights of WAL of updates of other columns, and of compression, in the cost of writes; the rest is bytes and WAL of
/// updates of the value.
const OTHER: f64 = 0.25;
const COMPRESSION: f64 = 0.15;
/// The weight of scans that do not need the column, next to reads or writes: a heap ten times as large adds a quarter.
const SCANS: f64 = 0.1;

/// `--optimize`: what counts most.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Optimize {
    /// What the table costs a month: disk space, CPU time and WAL
    #[default]
    Balanced,
    /// Size
    Size,
    /// The time of reads, as long as the table grows to at most 10 % more than now, and than with
    /// PostgreSQL's defaults
    Read,
    /// Bytes, WAL and CPU time per UPDATE, as long as the table grows to at most 10 % more than now, and than with
    /// PostgreSQL's defaults
    Write,
}

impl Optimize {
    /// `costs 5 % less`: of what counts, with this percentage less of it than today.
    fn compared(self, percent: f64) -> String {
        let [equal, less, more] = match self {
            Optimize::Balanced => ["costs as much", "costs _ % less", "costs _ % more"],
            Optimize::Size => ["is as large", "is _ % smaller", "is _ % larger"],
            Optimize::Read => [
                "is as fast for reads and scans combined",
                "is _ % faster for reads and scans combined",
                "is _ % slower for reads and scans combined",
            ],
            Optimize::Write => [
                "is written as cheaply",
                "is written _ % more cheaply",
                "is written _ % less cheaply",
            ],
        };
        let words = match percent {
            percent if percent.abs() < 0.5 => equal,
            percent if percent > 0.0 => less,
            _ => more,
        };
        words.replace('_', &format!("{:.0}", percent.abs()))
    }

    /// By how much of its size a table may grow for it.
    pub(super) fn growth_limit(self) -> f64 {
        match self {
            Optimize::Balanced => 0.05,
            Optimize::Size => 0.0,
            Optimize::Read | Optimize::Write => 0.10,
        }
    }
}

/// Prices of what a table costs, in dollars. What counts is how they relate to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriceList {
    /// A gigabyte on disk for a month. It is paid twice: there is one copy.
    disk: f64,
    /// An hour of CPU time.
    cpu: f64,
    /// A gigabyte of WAL: written, sent and archived.
    wal: f64,
}

impl Default for PriceList {
    fn default() -> PriceList {
        PriceList { disk: 0.10, cpu: 0.05, wal: 0.02 }
    }
}

impl FromStr for PriceList {
    type Err = String;

    /// `disk=0.10,cpu=0.05,wal=0.02`, or some of them: the others keep their defaults.
    fn from_str(text: &str) -> Result<PriceList, String> {
        let mut prices = PriceList::default();
        for part in text.split(',') {
            let Some((name, dollars)) = part.split_once('=') else {
                return Err(format!(
                    "expected prices such as disk=0.10,cpu=0.05,wal=0.02, got \"{part}\""
                ));
            };
            let price = match name.trim() {
                "disk" => &mut prices.disk,
                "cpu" => &mut prices.cpu,
                "wal" => &mut prices.wal,
                other => {
                    return Err(format!("unknown price \"{other}\": expected disk, cpu or wal"));
                }
            };
            *price = match dollars.trim().parse::<f64>() {
                Ok(dollars) if (0.0..=1e6).contains(&dollars) => dollars,
                _ => {
                    return Err(format!(
                        "expected a price from 0 to 1000000 dollars, got \"{dollars}\""
                    ));
                }
            };
        }
        Ok(prices)
    }
}

/// What a candidate is compared by: parts of today's figures, 1 is the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    size: f64,
    /// The heap, which a scan reads that does not need the column.
    scan: f64,
    read: f64,
    write: f64,
}

/// An end of an interval, or its middle.
pub(super) type End = fn(&Interval) -> f64;

pub(super) const ESTIMATE: End = |change| change.estimate;
const LOW: End = |change| change.low;
const HIGH: End = |change| change.high;

pub(super) fn part(change: Option<Interval>, end: End) -> f64 {
    change.map_or(1.0, |change| part_left(end(&change)))
}

/// A figure, with its change taken at this end.
fn amount(figure: &Figure, end: End) -> f64 {
    match figure.change {
        Some(_) => figure.today() * part(figure.change, end),
        None => end(&figure.value),
    }
}

/// The part that the time of a whole read, or of compression in a whole UPDATE, has become.
pub(super) fn cpu_part(cpu: &Figure, end: End) -> f64 {
    (READ_NS + amount(cpu, end)) / (READ_NS + cpu.today())
}

impl Score {
    /// `end`: whether the estimates are compared, or the low or the high ends of all intervals.
    fn new(figures: &Figures, end: End) -> Score {
        let bytes = part(figures.update_bytes.change, end);
        let wal = part(figures.update_wal_bytes.change, end);
        let costs = &figures.costs;
        let cold = part(costs.cold_pages.change, end);
        let other = part(costs.other_wal_bytes.change, end);
        let PrefixRead { cpu_ns: prefix, .. } = costs.prefix_read.unwrap_or_default();
        Score {
            size: part(figures.files.total_bytes.change, end),
            scan: part(figures.files.heap_bytes.change, end),
            read: cpu_part(&figures.read_cpu_ns.figure, end).powf(1.0 - COLD - PREFIX)
                * cold.powf(COLD)
                * cpu_part(&prefix.figure, end).powf(PREFIX),
            write: (bytes * wal).powf((1.0 - OTHER - COMPRESSION) / 2.0)
                * other.powf(OTHER)
                * cpu_part(&costs.write_cpu_ns.figure, end).powf(COMPRESSION),
        }
    }

    /// Whether it is nowhere worse, and somewhere better by more than a tie.
    fn beats(&self, other: &Score) -> bool {
        let mine = [self.size, self.read, self.write, self.scan];
        let theirs = [other.size, other.read, other.write, other.scan];
        let mut pairs = mine.iter().zip(&theirs);
        pairs.all(|(mine, theirs)| mine <= theirs)
            && mine.iter().zip(&theirs).any(|(mine, theirs)| *mine < theirs * (1.0 - TIE))
    }
}

/// What the table costs a month, in dollars: its files and a copy of them, the CPU time of reads, writes and of scans that
/// do not need the column, and WAL.
fn month(figures: &Figures, goal: &Goal, amount: impl Fn(&Figure) -> f64) -> f64 {
    const GIGABYTE: f64 = 1e9;
    const HOUR_NS: f64 = 3600e9;
    let Goal { workload, prices, .. } = goal;
    let costs = &figures.costs;
    let scanned = amount(&figures.scan_buffers) * Prices::default().heap_page_ns;
    let cpu_ns = workload.reads * amount(&figures.read_cpu_ns.figure)
        + workload.writes * amount(&costs.write_cpu_ns.figure)
        + workload.scans * scanned;
    let wal = workload.writes * amount(&figures.update_wal_bytes);
    let disk = 2.0 * amount(&figures.files.total_bytes);
    let daily = cpu_ns / HOUR_NS * prices.cpu + wal / GIGABYTE * prices.wal;
    disk / GIGABYTE * prices.disk + daily * MONTH_DAYS
}

/// What the other columns of a table take, in bytes of its files: the columns share what the table may grow by.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct OtherColumns {
    /// What the commands that are advised for them add.
    pub(super) added: f64,
    /// What they take today beyond what they would with PostgreSQL's default settings.
    pub(super) excess: f64,
    /// The table with the settings that are advised for each of the others, if these are the same.
    pub(super) joined: Option<Joined>,
    /// Whether the command for one of them comes first, after which this column is judged again.
    pub(super) come_first: bool,
    /// By how much the commands for all columns would make the table larger, as a part, if that is more than it may grow
    /// by: then none of them makes it larger.
    pub(super) larger_together: Option<f64>,
}

/// A table of which all columns have the same settings, without what the others than this one add.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Joined {
    pub(super) settings: Settings,
    /// Bytes of all files, with what is left free next to long rows.
    pub(super) total_bytes: Figure,
    /// The same with the most that may be left free.
    pub(super) most_bytes: f64,
    /// By how much the command makes the files larger, as a part.
    pub(super) growth: Interval,
}

/// What a recommendation is for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Goal {
    pub optimize: Optimize,
    pub workload: Workload,
    pub prices: PriceList,
    pub(super) others: OtherColumns,
}

impl Goal {
    fn interval(&self, figures: &Figures, today: &Figures) -> Interval {
        Interval {
            estimate: self.value(figures, today, ESTIMATE),
            low: self.value(figures, today, LOW),
            high: self.value(figures, today, HIGH),
        }
    }

    /// What counts, as a part of today's: the lower the better. How two candidates compare does not depend on today.
    fn value(&self, figures: &Figures, today: &Figures, end: End) -> f64 {
        let score = Score::new(figures, end);
        let scan = score.scan.powf(SCANS);
        match self.optimize {
            Optimize::Size => score.size * score.read.powf(0.005),
            Optimize::Read => score.read * score.size.powf(0.1) * scan,
            Optimize::Write => score.write * score.read.powf(0.05) * scan,
            Optimize::Balanced => {
                let before = month(today, self, |figure| figure.value.estimate);
                let after = month(figures, self, |figure| amount(figure, end));
                after / before.max(f64::MIN_POSITIVE)
            }
        }
    }
}

/// How many values of other columns, for each row, a candidate may move out of line.
const MOST_MOVED: f64 = 0.05;

/// Why a candidate is not advised, however good its figures are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Exclusion {
    /// It is compared with those that were asked for.
    NotAsked,
    /// The command for another column changes what it would do.
    Waits,
    /// The server would refuse rows of the table.
    Refused,
    /// The table would be larger than with PostgreSQL's default settings by this part, `with_room` that may stay free
    /// next to long rows, and with what other columns add to that.
    Larger { more: f64, limit: f64, with_room: bool, of_all: bool },
    /// The heap would be larger than with the defaults, by this factor, and the table would not shrink by as much.
    WidensHeap(f64),
    /// Reads would take longer than with the defaults, by this factor.
    Slow(f64),
    /// The files after the command would be larger than today's by this part.
    Grows(f64),
    /// With the commands for other columns they would be, by this part.
    GrowTogether(f64),
    /// The same, because of free space that this user cannot return.
    LeavesFree(f64),
    /// The files after the command might be larger than today's by this part.
    MayGrow(f64),
    /// Next to long rows it leaves this part of the table free, and nothing returns that.
    LeavesRoom(f64),
    /// It gains nothing once values of other columns are stored otherwise than now.
    OtherColumns,
    /// It moves values of other columns out of line, up to this many a row.
    MovesOthers(f64),
    /// It is read more slowly, by this part.
    ReadsSlower(f64),
    /// It writes more WAL, by this part.
    WritesMore(f64),
}

impl Exclusion {
    /// What `goal` does not take. `growth`: of the files, by the command, which compacts all of them only if this user may.
    pub(super) fn new(
        figures: &Figures,
        growth: Interval,
        may_compact: bool,
        goal: &Goal,
    ) -> Option<Exclusion> {
        let mut grows = Exclusion::of_growth(figures, growth, goal);
        if !may_compact {
            grows = grows.map(|grows| grows.without_compaction(figures));
        }
        let slower = part(figures.read_cpu_ns.figure.change, ESTIMATE) - 1.0;
        let wal = part(figures.update_wal_bytes.change, ESTIMATE) - 1.0;
        let optimize = goal.optimize;
        if grows.is_some() {
            grows
        } else if optimize == Optimize::Read && slower > 0.0 {
            Some(Exclusion::ReadsSlower(slower))
        } else if optimize == Optimize::Write && wal > 0.0 {
            Some(Exclusion::WritesMore(wal))
        } else {
            None
        }
    }

    /// The same for a user who cannot compact all files of the table.
    fn without_compaction(self, figures: &Figures) -> Exclusion {
        match self {
            Exclusion::Grows(growth) | Exclusion::MayGrow(growth)
                if part(figures.files.total_bytes.change, ESTIMATE) <= 1.0 =>
            {
                Exclusion::LeavesFree(growth)
            }
            other => other,
        }
    }

    /// `moved`: values of other columns that it moves out of line, for each row. Their reads are in no figure of the column.
    /// If they may be too many, they are: another sample of the same table should not allow what this one excludes.
    pub(super) fn of_moves(moved: Interval, goal: &Goal) -> Option<Exclusion> {
        let is_read = goal.optimize != Optimize::Size;
        (is_read && moved.high > MOST_MOVED).then_some(Exclusion::MovesOthers(moved.high))
    }

    /// If a candidate gains space only in new files, and not `in_place`: there it leaves room next to long rows.
    pub(super) fn of_room(fresh: &Figures, in_place: &Figures, goal: &Goal) -> Option<Exclusion> {
        let is_read = matches!(goal.optimize, Optimize::Read | Optimize::Write);
        let [before, after] = [fresh, in_place].map(|figures| figures.files.total_bytes);
        let gain = [before, after].map(|total| 1.0 - part(total.change, ESTIMATE));
        let room = 1.0 - before.value.estimate / after.value.estimate.max(1.0);
        (!is_read && gain[0] >= LEAST_GAIN && gain[1] < LEAST_GAIN)
            .then_some(Exclusion::LeavesRoom(room))
    }

    /// Whether the table grows by more than `goal` takes.
    pub(super) fn of_growth(figures: &Figures, growth: Interval, goal: &Goal) -> Option<Exclusion> {
        let Goal { optimize, others, .. } = *goal;
        let limit = optimize.growth_limit();
        let total = &figures.files.total_bytes;
        let before = total.today().max(1.0);
        if let Some(together) = others.larger_together
            && part(total.change, ESTIMATE) > 1.0
        {
            return Some(Exclusion::GrowTogether(together));
        }
        // as a part of the table as the commands for other columns leave it
        let scale = before / (before + others.added).max(1.0);
        let growth = growth.scaled(scale);
        let larger = (part(total.change, ESTIMATE) - 1.0) * scale;
        let grows = larger.max(growth.estimate);
        // files that are larger with these settings, not only loose
        let may_grow = optimize != Optimize::Size && larger > 0.0;
        let least = (part(total.change, LOW) - 1.0) * scale;
        let another_sample_may_not = larger > limit && least.max(growth.low) <= limit;
        if grows > limit && !another_sample_may_not {
            return Some(Exclusion::Grows(grows));
        }
        let most = growth.high.max(grows);
        (grows > limit || may_grow && most > limit).then_some(Exclusion::MayGrow(most))
    }

    /// Whether it holds whatever is stored today: before a command and after it.
    fn is_lasting(self) -> bool {
        !matches!(
            self,
            Exclusion::Grows(_)
                | Exclusion::GrowTogether(_)
                | Exclusion::LeavesFree(_)
                | Exclusion::MayGrow(_)
                | Exclusion::LeavesRoom(_)
                | Exclusion::Waits
                | Exclusion::MovesOthers(_)
                | Exclusion::ReadsSlower(_)
                | Exclusion::WritesMore(_)
        )
    }
}

/// `12 % larger than today's values need`: than without free space, as everywhere where today's size is meant.
fn larger(part: f64) -> String {
    format!("{} % larger than today's values need", (part * 100.0).ceil())
}

impl fmt::Display for Exclusion {
    /// `leaves files 12 % larger than today's values need`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::NotAsked => f.write_str("was not asked for"),
            Exclusion::Waits => {
                f.write_str("is judged again after the command for another column of these rows")
            }
            Exclusion::Refused => f.write_str("makes the server refuse rows"),
            Exclusion::Larger { more, limit, with_room, of_all } => {
                let [more, limit] = [more, limit].map(|part| (part * 100.0).ceil());
                let all = if *of_all { " of all columns" } else { "" };
                let room =
                    if *with_room { ", with what may stay free next to long rows" } else { "" };
                write!(
                    f,
                    "makes the table {more} % larger than PostgreSQL's default settings{all} would{room} (limit {limit} %)"
                )
            }
            Exclusion::WidensHeap(times) => {
                write!(f, "makes the heap, which every scan reads, {times:.1} times as large")
            }
            Exclusion::Slow(times) => write!(f, "is read {times:.1} times as slowly"),
            Exclusion::Grows(part) => write!(f, "leaves files {}", larger(*part)),
            Exclusion::GrowTogether(part) => {
                write!(f, "leaves, with the commands for other columns, files {}", larger(*part))
            }
            Exclusion::LeavesFree(part) => write!(
                f,
                "leaves files {}, with free space that this user cannot return",
                larger(*part)
            ),
            Exclusion::MayGrow(part) => write!(f, "may leave files {}", larger(*part)),
            Exclusion::LeavesRoom(part) => write!(
                f,
                "moves long rows to pages of their own, next to which {} % of the table stays free",
                (part * 100.0).ceil()
            ),
            Exclusion::OtherColumns => {
                f.write_str("gains only because of how values of other columns are stored now")
            }
            Exclusion::MovesOthers(values) if *values < 1.0 => write!(
                f,
                "moves values of other columns out of line, up to {} in 100 rows",
                (values * 100.0).ceil()
            ),
            Exclusion::MovesOthers(values) => {
                write!(f, "moves up to {values:.1} values of other columns out of line in each row")
            }
            Exclusion::ReadsSlower(part) => {
                write!(f, "takes {} % more CPU time per read", (part * 100.0).ceil())
            }
            Exclusion::WritesMore(part) => write!(f, "writes {} % more WAL", (part * 100.0).ceil()),
        }
    }
}

/// A candidate's score, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub struct Weighed {
    score: Score,
    /// Bytes of the heap and of all files, with what is left free next to long rows.
    heap: f64,
    pub(super) total: f64,
    /// Bytes of all files with the most that may be left free there.
    pub(super) most: f64,
    /// The lower the better; today is 1.
    value: Interval,
    /// The same with the files as the command leaves them.
    delivered: Interval,
    pub(super) exclusion: Option<Exclusion>,
    /// Of candidates that are as good, the one of the lowest rank changes least and is recommended. `None` is today's
    /// storage.
    rank: Option<u8>,
}

impl Weighed {
    pub(super) fn new(
        figures: &Figures,
        today: &Figures,
        exclusion: Option<Exclusion>,
        rank: Option<u8>,
        goal: &Goal,
    ) -> Weighed {
        let value = goal.interval(figures, today);
        Weighed {
            score: Score::new(figures, ESTIMATE),
            heap: figures.files.heap_bytes.value.estimate,
            total: figures.files.total_bytes.value.estimate,
            most: figures.files.total_bytes.value.estimate + figures.room(1.0),
            value,
            delivered: value,
            exclusion,
            rank,
        }
    }

    /// Whether it is worth a command depends on what the command leaves: files that grow by this part.
    pub(super) fn delivering(
        self,
        growth: Interval,
        figures: &Figures,
        today: &Figures,
        goal: &Goal,
    ) -> Weighed {
        let mut left = *figures;
        let total = &mut left.files.total_bytes;
        total.value =
            growth.plus(Interval::exact(1.0)).scaled(today.files.total_bytes.value.estimate);
        total.change = Some(growth);
        Weighed { delivered: goal.interval(&left, today), ..self }
    }

    /// No better than with these figures, of values of other columns that arrive with the row. What a command gains only
    /// where an earlier one has left such values would be a second step, and could be a third.
    pub(super) fn no_better_than(self, figures: &Figures, today: &Figures, goal: &Goal) -> Weighed {
        let value = goal.interval(figures, today);
        if value.estimate <= self.value.estimate {
            return self;
        }
        let delivered =
            if value.estimate > self.delivered.estimate { value } else { self.delivered };
        let worse = Weighed { value, delivered, ..self };
        let exclusion = if self.is_worth() && !worse.is_worth() {
            Some(Exclusion::OtherColumns)
        } else {
            self.exclusion
        };
        Weighed { exclusion, ..worse }
    }

    /// Why it is not advised, in a few words for its row of the table.
    pub(super) fn why_not(&self, optimize: Optimize) -> String {
        if let Some(exclusion) = self.exclusion {
            return exclusion.to_string();
        }
        let [gain, left] = [self.value, self.delivered].map(|part| (1.0 - part.estimate) * 100.0);
        let compared = optimize.compared(gain);
        if self.is_worth() {
            "gains less".to_owned()
        } else if gain < 0.5 {
            compared
        } else if gain >= LEAST_GAIN * 100.0 && left < gain {
            format!(
                "{compared}, but only {:.0} % with the free space that its command leaves",
                left.max(0.0)
            )
        } else {
            format!("{compared}: too little")
        }
    }

    /// What counts, with the files as the command leaves them, as a part of today's.
    pub(super) fn gain_left(&self) -> f64 {
        self.delivered.estimate
    }

    /// Whether it gains enough, and surely, for the table to be rewritten.
    fn is_worth(&self) -> bool {
        self.rank.is_some()
            && self.exclusion.is_none()
            && self.delivered.estimate <= 1.0 - LEAST_GAIN
            && self.value.high < 1.0
    }

    /// The better one first.
    fn compare(&self, other: &Weighed) -> Ordering {
        self.value.estimate.total_cmp(&other.value.estimate)
    }

    /// Whether the difference to the best one is less than what is worth a rewrite, and may be none.
    fn is_as_good_as(&self, best: &Weighed) -> bool {
        self.value.low <= best.value.high
            && self.value.estimate <= best.value.estimate * (1.0 + AS_GOOD)
    }

    /// Whether none of `all` is as good in size, reads, writes and scans that do not need the column, and better in one.
    /// Differences of less than 1 % do not count, and what is stored now is beaten only by what is worth a rewrite.
    pub fn is_on_front(&self, all: &[Weighed]) -> bool {
        let is_beaten = all.iter().any(|other| {
            other.exclusion != Some(Exclusion::Refused)
                && (self.rank.is_some() || other.is_worth())
                && other.score.beats(&self.score)
        });
        self.exclusion != Some(Exclusion::Refused) && !is_beaten
    }

    /// Excludes it if it is out of proportion to what PostgreSQL's defaults would store, and larger than `today`. What is
    /// smaller than today is so after the command for it too, and then it is today's. `fresh`: its figures in new files.
    pub(super) fn measure_by(
        &mut self,
        defaults: &Weighed,
        today: &Weighed,
        fresh: &Figures,
        goal: &Goal,
    ) {
        let is_settled = matches!(self.exclusion, Some(Exclusion::Refused | Exclusion::NotAsked));
        if self.rank.is_none() || is_settled {
            return;
        }
        let Goal { optimize, others, .. } = *goal;
        let more = self.most - defaults.most;
        let elsewhere = if more > 0.0 { (others.excess + others.added).max(0.0) } else { 0.0 };
        let larger = (more + elsewhere) / (defaults.most - others.excess).max(1.0);
        let heap = self.heap / defaults.heap.max(1.0);
        let widens = heap > 2.0 && more > defaults.heap - self.heap;
        let slower = self.score.read / defaults.score.read;
        let exclusion = match optimize {
            Optimize::Size if slower > 4.0 => Exclusion::Slow(slower),
            Optimize::Size => return,
            _ if larger > optimize.growth_limit() && self.most > today.most => {
                let with_room = fresh.room(1.0) > fresh.files.heap_bytes.value.estimate * TIE;
                let of_all = elsewhere > 0.0;
                Exclusion::Larger {
                    more: larger,
                    limit: optimize.growth_limit(),
                    with_room,
                    of_all,
                }
            }
            Optimize::Write | Optimize::Balanced if widens => Exclusion::WidensHeap(heap),
            _ => return,
        };
        self.exclusion = Some(exclusion);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recommendation {
    /// The candidate; 0 means that nothing should change.
    pub choice: usize,
    /// The best of those that are in proportion, worth rewriting the table for or not.
    pub best: Option<usize>,
    /// The candidate with the better estimates, if the choice is as good and changes less.
    pub tied: Option<usize>,
}

/// The best of these numbered candidates, or one as good that changes less; and the best.
fn pick(among: &[(usize, &Weighed)]) -> Option<(usize, usize)> {
    let (index, best) = among.iter().min_by(|(_, a), (_, b)| a.compare(b))?;
    let as_good = among.iter().filter(|(_, weighed)| weighed.is_as_good_as(best));
    let (least, _) = as_good.min_by(|(_, a), (_, b)| a.rank.cmp(&b.rank).then(a.compare(b)))?;
    Some((*least, *index))
}

/// Picks the best candidate, or one as good that changes less, if it is worth rewriting the table. The first is today's
/// storage.
///
/// What is picked depends on today only in that it is left out where it would break a promise; then the best of those is
/// taken that are no larger than today. So the pick of a table that has been rewritten is the same, and there is
/// nothing to gain by it.
pub fn recommend(all: &[Weighed]) -> Recommendation {
    let mut others: Vec<(usize, &Weighed)> = all.iter().enumerate().skip(1).collect();
    others.retain(|(_, weighed)| weighed.exclusion != Some(Exclusion::NotAsked));
    let mut among = others.clone();
    among.retain(|(_, weighed)| !weighed.exclusion.is_some_and(Exclusion::is_lasting));
    let Some((first, best)) = pick(&among).or_else(|| pick(&others)) else {
        return Recommendation { choice: 0, best: None, tied: None };
    };
    let mut picked = (first, best);
    if all.get(first).is_some_and(|weighed| weighed.exclusion.is_some()) {
        among.retain(|(_, weighed)| weighed.exclusion.is_none() && weighed.score.size <= 1.0);
        picked = pick(&among).unwrap_or_default();
    }
    let (choice, best) = picked;
    let kept = Recommendation { choice: 0, best: Some(first), tied: None };
    let recommendation = if all.get(choice).is_some_and(Weighed::is_worth) {
        Recommendation { choice, tied: (best != choice).then_some(best), ..kept }
    } else {
        kept
    };
    let Recommendation { choice, .. } = recommendation;
    tracing::debug!("candidate {choice} of {} is recommended, {first} is the best", all.len());
    recommendation
}

/// What counts how much, in sentences.
pub(super) fn weighting(goal: &Goal) -> String {
    let workload = &goal.workload;
    match goal.optimize {
        Optimize::Balanced => {
            let source = match workload.source {
                WorkloadSource::Assumed => {
                    "assumed, for the workload is not known: ten reads of each value a day".to_owned()
                }
                WorkloadSource::Given => "with the reads per write that were given".to_owned(),
                WorkloadSource::Statistics => {
                    "from rows read through indexes and chunks written, without toastctl's own".to_owned()
                }
                WorkloadSource::Statements(1) => statement_source("one statement"),
                WorkloadSource::Statements(n) => statement_source(&format!("{n} statements")),
            };
            format!(
                "The least cost counts: ${:.2} a month for a GB of files and as much for a copy, ${:.2} for an hour of CPU \
                 time, ${:.2} for a GB of WAL, at {} reads and {} writes a day ({source}). The table \
                 may grow to at most 5 % more than now, and than with PostgreSQL's defaults where these are compared.",
                goal.prices.disk,
                goal.prices.cpu,
                goal.prices.wal,
                about(workload.reads),
                about(workload.writes),
            )
        }
        Optimize::Size => {
            "Size counts most, as requested; where sizes are about equal, the time of reads decides.".into()
        }
        Optimize::Read => {
            "The time of reads counts most, as requested, cold reads and reads of prefixes a tenth each; size and scans that do not need the column have a tenth of its weight, and \
             the table may grow to at most 10 % more than now, and than with PostgreSQL's defaults where these are compared."
                .into()
        }
        Optimize::Write => {
            "Bytes and WAL per UPDATE count most, as requested; WAL of updates of other columns has a quarter of the weight of \
             writes, and CPU time for compression a seventh; scans that do not need the column have a tenth of their weight, reads \
             a twentieth, and the table may grow to at most 10 % more than now, and than with PostgreSQL's defaults where these are compared."
                .into()
        }
    }
}

/// A candidate, as the reasons describe it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) figures: &'a Figures,
    /// CPU time of a read as a part of today's at prices that were not measured here: it decides what is worth mentioning.
    pub(super) read_part: f64,
    pub(super) weighed: &'a Weighed,
    /// The file of the heap today.
    pub(super) heap_bytes: f64,
    /// The heap as the command leaves it, as a part of that.
    pub(super) heap_part: f64,
    /// Bytes of the files as the command leaves them.
    pub(super) after_bytes: u64,
}

/// What is said where values are not stored by the present settings: nothing tells why.
const UNFINISHED: &str = "if a conversion was stopped, its own command finishes it";

/// Why this candidate, or why none, in sentences. `on_disk`: bytes of the files as they are. `as_set`: that of the present
/// settings, if values are not stored by them. `is_complete`: whether every row was examined.
pub(super) fn reasons(
    all: &[Described<'_>],
    recommendation: Recommendation,
    goal: &Goal,
    on_disk: u64,
    as_set: Option<&Described<'_>>,
    is_complete: bool,
) -> String {
    let Recommendation { choice, best, tied } = recommendation;
    let tied_by_sample = if is_complete { String::new() } else { indistinct(all, choice) };
    if choice > 0
        && let Some(chosen) = all.get(choice)
    {
        let tied = tied.and_then(|better| all.get(better)).map_or_else(String::new, |better| {
            format!(" {} is as good, but changes more settings.", better.name)
        });
        let settings = chosen.settings.spelled_out();
        let effect = chosen.effect(goal, on_disk);
        return match as_set {
            None => format!("Recommended: {settings}{effect}.{tied}{tied_by_sample}"),
            Some(as_set) if as_set.settings == chosen.settings => format!(
                "Recommended: the present settings, {settings}, for stored values too{effect}.{tied}{tied_by_sample}"
            ),
            Some(as_set) => {
                let present = as_set.settings.spelled_out();
                format!(
                    "Recommended: {settings}{effect}.{tied}{tied_by_sample} The present settings, {present}, apply to new values; {UNFINISHED}."
                )
            }
        };
    }
    let best = best.and_then(|best| all.get(best));
    let mut why = best.map_or_else(
        || "no others suit the values".to_owned(),
        |best| best.why_not(goal, is_complete),
    );
    if let Some(faster) = faster_but_worse(all, best, goal.optimize) {
        let _ = write!(why, "; {faster}");
    }
    match as_set {
        None => {
            let present = all.first().map(|today| format!(" ({})", today.settings.spelled_out()));
            format!(
                "Keep the present settings{}: {why}.{tied_by_sample}",
                present.unwrap_or_default()
            )
        }
        Some(as_set) => format!(
            "Leave the stored values as they are: {why}.{tied_by_sample} The present settings, {}, apply to new values{}; {UNFINISHED}.",
            as_set.settings.spelled_out(),
            as_set.if_all_were_so().unwrap_or_default()
        ),
    }
}

/// ` Another sample might lead to external or to keeping the present settings.`: what may be as good as the choice, by the
/// intervals; empty if nothing may be.
fn indistinct(all: &[Described<'_>], choice: usize) -> String {
    let chosen = if choice > 0 { all.get(choice).map(|chosen| chosen.weighed) } else { None };
    let mut may_be: Vec<&str> = Vec::new();
    for (at, other) in all.iter().enumerate().skip(1) {
        let Weighed { value, exclusion, .. } = other.weighed;
        let is_as_good = match chosen {
            Some(chosen) => value.low <= chosen.value.high,
            None => value.low <= 1.0 - LEAST_GAIN,
        };
        let is_allowed = matches!(exclusion, None | Some(Exclusion::MayGrow(_)));
        if at != choice && is_allowed && is_as_good {
            may_be.push(other.name);
        }
    }
    if chosen.is_some_and(|chosen| chosen.value.high > 1.0 - LEAST_GAIN) {
        may_be.insert(0, "keeping the present settings");
    }
    may_be.truncate(MOST_TIED);
    match may_be.as_slice() {
        [] => String::new(),
        tied => format!(" Another sample might lead to {}.", tied.join(" or ")),
    }
}

/// How many choices that may be as good are named.
const MOST_TIED: usize = 3;

/// From this growth of the table on, as a fraction of it, the reasons say what storing all values so would add.
const MUCH_MORE: f64 = 0.1;

/// By how much CPU times that are measured differ from one time to the next: less is no gain and no price.
const CPU_NOISE: f64 = 0.25;

/// What a faster read is worth being mentioned for, as a part of today's CPU time.
const FASTER: f64 = 0.7;

/// `main lz4, with 72 % less CPU time per read, costs 2 % more`: the candidate that is read fastest, if it is much faster
/// than today and only its price, or the heap that scans read, speaks against it. `best`: the candidate of which the reason
/// is said anyway.
fn faster_but_worse(
    all: &[Described<'_>],
    best: Option<&Described<'_>>,
    optimize: Optimize,
) -> Option<String> {
    let in_proportion = all.iter().skip(1).filter(|other| other.weighed.exclusion.is_none());
    let fastest = in_proportion.min_by(|a, b| a.read_part.total_cmp(&b.read_part))?;
    if fastest.read_part > FASTER || best.is_some_and(|best| best.name == fastest.name) {
        return None;
    }
    let worse = match optimize {
        Optimize::Balanced => {
            let more = (fastest.weighed.value.estimate - 1.0) * 100.0;
            (more >= 0.5).then(|| format!("costs {more:.0} % more"))
        }
        Optimize::Read => {
            let heap = Exclusion::WidensHeap(fastest.weighed.score.scan);
            (fastest.weighed.score.scan >= 1.1).then(|| heap.to_string())
        }
        Optimize::Size | Optimize::Write => None,
    }?;
    let time = words(&fastest.figures.read_cpu_ns.figure, "CPU time");
    Some(format!("{}, with {time} per read, {worse}", fastest.name))
}

impl Described<'_> {
    /// Why it is not recommended, although it is the best of the others.
    fn why_not(&self, goal: &Goal, is_complete: bool) -> String {
        let name = self.name;
        let Interval { estimate, high, .. } = self.weighed.value;
        let percent = (1.0 - estimate) * 100.0;
        let read = &self.figures.read_cpu_ns.figure;
        if percent < 0.5 && goal.optimize == Optimize::Balanced && self.read_part <= FASTER {
            let total = &self.figures.files.total_bytes;
            let space = size_change(total.today(), total.value.estimate, " on disk");
            let time = words(read, "CPU time");
            let cost = if percent > -0.5 {
                "saves less than 1 % of what the table costs".to_owned()
            } else {
                format!("costs {:.0} % more", -percent)
            };
            let reads = match goal.workload.source {
                WorkloadSource::Assumed => "the assumed ten reads of each value".to_owned(),
                _ => format!("{} reads", about(goal.workload.reads)),
            };
            return format!("{name}, with {space} and {time} per read, {cost} at {reads} a day");
        }
        let better = goal.optimize.compared(percent);
        if percent < 0.5 {
            return match goal.optimize {
                Optimize::Balanced => "none of the others costs less",
                Optimize::Size => "none of the others is smaller",
                Optimize::Read => "none of the others is faster for reads and scans combined",
                Optimize::Write => "none of the others is written more cheaply",
            }
            .to_owned();
        }
        if let Some(exclusion) = self.weighed.exclusion {
            return format!("the best of the others, {name}, {better}, but {exclusion}");
        }
        if high >= 1.0 && !is_complete && estimate <= 1.0 - LEAST_GAIN {
            return format!(
                "the sample is too small to tell whether {name} is better; --sample reads more"
            );
        }
        let left = (1.0 - self.weighed.delivered.estimate).max(0.0) * 100.0;
        let loose = if estimate <= 1.0 - LEAST_GAIN && left < percent {
            format!(" without the free space that the command leaves, {left:.0} % with it")
        } else {
            String::new()
        };
        format!(
            "the best of the others, {name}, {better}{loose}, too little to rewrite the table for"
        )
    }

    /// `; with all values stored so, the table would take 27 MB more (257 %)`: what these settings, which new values have
    /// already, would add, if that is much.
    fn if_all_were_so(&self) -> Option<String> {
        let total = &self.figures.files.total_bytes;
        let is_much = part(total.change, ESTIMATE) > 1.0 + MUCH_MORE;
        is_much.then(|| {
            let more = size_change(total.today(), total.value.estimate, "");
            format!("; with all values stored so, the table would take {more}")
        })
    }

    /// What would be better with it, and what worse: space, reads, writes and scans. Writes and scans that stay as they are
    /// are left out.
    fn effect(&self, goal: &Goal, on_disk: u64) -> String {
        let figures = self.figures;
        let total = &figures.files.total_bytes;
        let before = total.today().min(on_disk as f64);
        let space = change_of_space(total, on_disk as f64, self.after_bytes as f64);
        let read = &figures.read_cpu_ns.figure;
        let mut reads = format!("{} per read", words(read, "CPU time"));
        let seconds = goal.workload.reads * (amount(read, ESTIMATE) - read.today()) / 1e9;
        if seconds.abs() >= 1.0 {
            let less = if seconds < 0.0 { "less" } else { "more" };
            let number = about(goal.workload.reads);
            let time = duration(seconds.abs());
            let _ = write!(reads, " ({time} {less} a day at {number} reads)");
        }
        let mut parts = vec![(total.value.estimate / before.max(1.0), space)];
        if (self.read_part - 1.0).abs() >= CPU_NOISE {
            parts.push((part(read.change, ESTIMATE), reads));
        }
        let update = &figures.update_wal_bytes;
        if (part(update.change, ESTIMATE) - 1.0).abs() >= SAME {
            let words = format!("{} per UPDATE", words(update, "WAL"));
            parts.push((part(update.change, ESTIMATE), words));
        }
        let other = &figures.costs.other_wal_bytes;
        if other.change.is_some_and(|change| change.estimate.abs() >= LEAST_GAIN) {
            let words = format!("{} per UPDATE of other columns", words(other, "WAL"));
            parts.push((part(other.change, ESTIMATE), words));
        }
        let cpu = &figures.costs.write_cpu_ns.figure;
        if goal.optimize == Optimize::Write
            && cpu.change.is_some_and(|change| change.estimate.abs() >= LEAST_GAIN)
        {
            let words = format!("{} to compress it", words(cpu, "CPU time"));
            parts.push((part(cpu.change, ESTIMATE), words));
        }
        parts.extend(self.change_of_scans().map(|words| (self.heap_part, words)));
        let (worse, better): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(times, _)| *times > 1.0 + SAME);
        let [better, worse] = [better, worse].map(|parts| {
            let words: Vec<String> = parts.into_iter().map(|(_, words)| words).collect();
            words.join(", ")
        });
        match (better.as_str(), worse.as_str()) {
            (better, "") => format!(", with {better}"),
            ("", worse) => format!(", at the price of {worse}"),
            (better, worse) => format!(", with {better}. The price: {worse}"),
        }
    }

    /// `12 % more pages in scans of other columns`: if that is so without free space, and of the files as they are.
    fn change_of_scans(&self) -> Option<String> {
        let fresh = &self.figures.files.heap_bytes;
        if fresh.change.is_none_or(|change| change.estimate.abs() < LEAST_GAIN) {
            return None;
        }
        let now = Figure { change: Some(Interval::exact(self.heap_part - 1.0)), ..*fresh };
        let times = self::part(fresh.change, ESTIMATE);
        if (self.heap_part / times - 1.0).abs() < 2.0 * LEAST_GAIN {
            return Some(format!("{} in scans of other columns", words(&now, HEAP_PAGES)));
        }
        let page = fresh.value.estimate / self.figures.scan_buffers.value.estimate.max(1.0);
        let [after, today, compacted] =
            [self.heap_bytes * self.heap_part, self.heap_bytes, fresh.today()]
                .map(|bytes| (bytes / page.max(1.0)).round());
        Some(format!(
            "{after} {HEAP_PAGES} in scans of other columns ({today} today, {compacted} after compaction alone)"
        ))
    }
}

/// What scans of other columns visit.
const HEAP_PAGES: &str = "pages";

/// What is said to be the same, as a part of today's.
const SAME: f64 = 0.005;

/// Free space that is mentioned, as a part of the files.
const LOOSE: f64 = 0.02;

/// `12 MB less on disk (9 %)`, of what the values need without free space, or of the files as they are if these are smaller
/// than estimated; and what becomes of the files, if the command leaves notably more, or no gain.
pub(super) fn change_of_space(total: &Figure, on_disk: f64, left: f64) -> String {
    let before = total.today().min(on_disk);
    let after = total.value.estimate;
    let gains = after < on_disk && left <= on_disk;
    let is_loose = left > after + before * LOOSE || !gains && after < on_disk;
    let has_free = on_disk > before * (1.0 + LOOSE) && (after < before || is_loose);
    let free = if has_free { " apart from free space" } else { "" };
    let space = size_change(before, after, " on disk");
    if is_loose {
        let [now, then] = [on_disk, left].map(|bytes| size(bytes as u64));
        format!("{space}{free}, files of {now} becoming {then}")
    } else {
        format!("{space}{free}")
    }
}

/// `12 MB less (9 %)`, with the place after the first words.
fn size_change(before: f64, after: f64, place: &str) -> String {
    let less = before - after;
    let part = less.abs() / before.max(1.0);
    if part < SAME {
        return format!("as much{place}");
    }
    let direction = if less > 0.0 { "less" } else { "more" };
    format!("{} {direction}{place} ({:.0} %)", size(less.abs() as u64), part * 100.0)
}

/// `12 % less WAL`.
fn words(figure: &Figure, what: &str) -> String {
    let part = part(figure.change, ESTIMATE) - 1.0;
    if part.abs() < SAME && what == HEAP_PAGES {
        format!("as many {what}")
    } else if part.abs() < SAME {
        format!("the same {what}")
    } else if part >= 1.0 {
        format!("{:.1} times the {what}", 1.0 + part)
    } else {
        let less = if what == HEAP_PAGES { "fewer" } else { "less" };
        let direction = if part < 0.0 { less } else { "more" };
        format!("{:.0} % {direction} {what}", part.abs() * 100.0)
    }
}

/// `2.1 million`, `12 thousand`, `340`.
fn about(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{:.1} million", count / 1e6),
        count if count >= 1e4 => format!("{:.0} thousand", count / 1e3),
        count => format!("{count:.0}"),
    }
}

/// `3 minutes`, in the unit that suits.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 7200.0 => format!("{:.0} hours", seconds / 3600.0),
        seconds if seconds >= 120.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds => format!("{seconds:.0} s"),
    }
}

/// What a workload guessed from texts rests on.
fn statement_source(statements: &str) -> String {
    format!(
        "estimated from {statements} in pg_stat_statements that name table and column, by the rows returned and changed; \
         rows that aggregates read are not included"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::estimate::{CpuTime, FileSizes, FurtherCosts};
    use proptest::prelude::*;
    use toast_format::codec::Method;
    use toast_format::disk::{PageSize, Storage};
    use toast_format::model::{MethodChoice, Policy, TupleTarget};

    #[derive(Debug, Clone, Copy)]
    struct Entry {
        figures: Figures,
        is_refused: bool,
        rank: u8,
    }

    const MEGABYTE: f64 = 1e6;

    /// A part of a figure of today's, ±1 %.
    fn part_of(today: f64, part: f64) -> Figure {
        Figure {
            value: Interval::exact(part * today),
            change: Some(Interval { estimate: part - 1.0, low: part - 1.01, high: part - 0.99 }),
        }
    }

    fn cpu_time(part: f64) -> CpuTime {
        CpuTime { figure: part_of(1e5, part), calibrated: false }
    }

    /// Parts of a table of 100 MB and of a read that takes 100 µs.
    fn entry(size: f64, read: f64, write: f64, rank: u8) -> Entry {
        Entry {
            figures: Figures {
                files: FileSizes {
                    total_bytes: part_of(100.0 * MEGABYTE, size),
                    heap_bytes: part_of(10.0 * MEGABYTE, size),
                    ..FileSizes::default()
                },
                read_cpu_ns: cpu_time(read),
                update_bytes: part_of(1e4, write),
                update_wal_bytes: part_of(1e4, write),
                costs: FurtherCosts {
                    write_cpu_ns: cpu_time(write),
                    other_wal_bytes: part_of(100.0, write),
                    prefix_read: Some(PrefixRead {
                        cpu_ns: cpu_time(read),
                        ..PrefixRead::default()
                    }),
                    cold_pages: part_of(3.0, read),
                    ..FurtherCosts::default()
                },
                ..Figures::default()
            },
            is_refused: false,
            rank,
        }
    }

    /// The same figure, with its change relative to another one for today.
    fn compared(figure: &Figure, today: &Figure) -> Figure {
        Figure {
            change: part_of(1.0, figure.value.estimate / today.value.estimate).change,
            ..*figure
        }
    }

    /// The same figures, with changes relative to other figures for today.
    fn compared_with(figures: &Figures, today: &Figures) -> Figures {
        let mut all = *figures;
        let files = &figures.files;
        all.files.total_bytes = compared(&files.total_bytes, &today.files.total_bytes);
        all.files.heap_bytes = compared(&files.heap_bytes, &today.files.heap_bytes);
        all.read_cpu_ns.figure = compared(&figures.read_cpu_ns.figure, &today.read_cpu_ns.figure);
        all.update_bytes = compared(&figures.update_bytes, &today.update_bytes);
        all.update_wal_bytes = compared(&figures.update_wal_bytes, &today.update_wal_bytes);
        let costs = &figures.costs;
        let before = &today.costs;
        all.costs.write_cpu_ns.figure =
            compared(&costs.write_cpu_ns.figure, &before.write_cpu_ns.figure);
        all.costs.other_wal_bytes = compared(&costs.other_wal_bytes, &before.other_wal_bytes);
        all.costs.cold_pages = compared(&costs.cold_pages, &before.cold_pages);
        all.costs.prefix_read = costs.prefix_read.zip(before.prefix_read).map(|(then, now)| {
            let figure = compared(&then.cpu_ns.figure, &now.cpu_ns.figure);
            PrefixRead { cpu_ns: CpuTime { figure, ..then.cpu_ns }, ..then }
        });
        all
    }

    /// The first is today's storage.
    fn weighed(entries: &[Entry], goal: &Goal) -> Vec<Weighed> {
        let today = &entries[0].figures;
        let ranks = std::iter::once(None).chain(entries.iter().skip(1).map(|e| Some(e.rank)));
        let all = entries.iter().zip(ranks);
        all.map(|(entry, rank)| {
            let figures = compared_with(&entry.figures, today);
            let exclusion = if entry.is_refused {
                Some(Exclusion::Refused)
            } else {
                Exclusion::new(&figures, Interval::default(), true, goal)
            };
            Weighed::new(&figures, today, exclusion.filter(|_| rank.is_some()), rank, goal)
        })
        .collect()
    }

    /// A hundred thousand reads a day, and a thousand writes.
    fn goal(optimize: Optimize) -> Goal {
        let workload = Workload { reads: 1e5, writes: 1e3, scans: 1.0, ..Workload::default() };
        Goal { optimize, workload, ..Goal::default() }
    }

    const EVERY: [Optimize; 4] =
        [Optimize::Balanced, Optimize::Size, Optimize::Read, Optimize::Write];

    fn recommended(entries: &[Entry], optimize: Optimize) -> Recommendation {
        recommend(&weighed(entries, &goal(optimize)))
    }

    fn choice(entries: &[Entry], optimize: Optimize) -> usize {
        recommended(entries, optimize).choice
    }

    #[test]
    fn growth_is_refused_and_small_gains_are_not_worth_it() {
        let today = entry(1.0, 1.0, 1.0, 0);
        // the thread's last case
        let grows = entry(1.42, 0.8, 1.3, 1);
        for optimize in EVERY {
            assert_eq!(choice(&[today, grows], optimize), 0);
            assert_eq!(choice(&[today, entry(0.97, 0.99, 0.99, 1)], optimize), 0);
            let refused = Entry { is_refused: true, ..entry(0.1, 0.1, 0.1, 1) };
            assert_eq!(choice(&[today, refused], optimize), 0);
        }
        // the best for reads breaks a promise: another may keep it
        let smaller = entry(0.99, 0.8, 1.0, 1);
        assert_eq!(choice(&[today, grows, smaller], Optimize::Read), 2);
        assert_eq!(choice(&[today, entry(0.7, 1.0, 1.0, 1)], Optimize::Size), 1);
    }

    #[test]
    fn nothing_is_advised_that_contradicts_what_was_asked_for() {
        let today = entry(1.0, 1.0, 1.0, 0);
        assert_eq!(choice(&[today, entry(1.01, 0.1, 0.1, 1)], Optimize::Size), 0);
        assert_eq!(choice(&[today, entry(0.2, 1.01, 0.2, 1)], Optimize::Read), 0);
        assert_eq!(choice(&[today, entry(0.2, 0.2, 1.01, 1)], Optimize::Write), 0);
        assert_eq!(choice(&[today, entry(1.06, 0.01, 0.01, 1)], Optimize::Balanced), 0);
    }

    #[test]
    fn what_gains_only_while_other_values_stay_where_they_are_is_no_second_step() {
        let today = entry(1.0, 1.0, 1.0, 0);
        let goal = goal(Optimize::Size);
        let mut all = weighed(&[today, entry(0.9, 1.0, 1.0, 1)], &goal);
        assert_eq!(recommend(&all).choice, 1);
        let before = today.figures;
        let arriving = compared_with(&entry(0.8, 1.0, 1.0, 1).figures, &before);
        all[1] = all[1].no_better_than(&arriving, &before, &goal);
        assert_eq!((recommend(&all).choice, all[1].exclusion), (1, None));
        let arriving = compared_with(&entry(1.1, 1.0, 1.0, 1).figures, &before);
        all[1] = all[1].no_better_than(&arriving, &before, &goal);
        let excluded = Some(Exclusion::OtherColumns);
        assert_eq!((recommend(&all).choice, all[1].exclusion), (0, excluded));
    }

    #[test]
    fn a_larger_table_is_judged_by_the_most_that_it_may_grow() {
        let growth = Interval { estimate: 0.07, low: 0.01, high: 0.12 };
        fn excluded(size: f64, growth: Interval, optimize: Optimize) -> Option<Exclusion> {
            let figures = entry(size, 0.5, 0.5, 1).figures;
            Exclusion::of_growth(&figures, growth, &goal(optimize))
        }
        assert_eq!(excluded(1.02, growth, Optimize::Read), Some(Exclusion::MayGrow(0.12)));
        assert_eq!(excluded(1.02, growth, Optimize::Balanced), Some(Exclusion::Grows(0.07)));
        // loose files of values that take less
        assert_eq!(excluded(0.98, growth, Optimize::Read), None);
        let surely = Interval { high: 0.09, ..growth };
        assert_eq!(excluded(1.02, surely, Optimize::Write), None);
        // another sample may find that it grows by less
        let mut sampled = entry(1.07, 0.5, 0.5, 1).figures;
        sampled.files.total_bytes.change = Some(Interval { estimate: 0.07, low: 0.04, high: 0.1 });
        let found = Exclusion::of_growth(&sampled, growth, &goal(Optimize::Balanced));
        assert!(matches!(found, Some(Exclusion::MayGrow(_))), "{found:?}");
        // a user who cannot compact them is told why they grow
        let grows = Exclusion::Grows(0.07);
        for (size, left) in [(0.98, Exclusion::LeavesFree(0.07)), (1.02, grows)] {
            let figures = entry(size, 0.5, 0.5, 1).figures;
            assert_eq!(grows.without_compaction(&figures), left);
        }
    }

    #[test]
    fn what_is_no_larger_than_today_is_not_out_of_proportion() {
        let goal = goal(Optimize::Read);
        let defaults = entry(0.3, 1.2, 1.0, 1);
        let judged = |size| {
            judged(&[entry(1.0, 1.0, 1.0, 0), defaults, entry(size, 0.5, 1.0, 1)], &goal, Some(1))
        };
        assert_eq!([judged(0.6).choice, judged(1.05).choice], [2, 0]);
    }

    #[test]
    fn commands_that_together_make_the_table_too_large_are_for_nobody() {
        let others = OtherColumns { larger_together: Some(0.12), ..OtherColumns::default() };
        let goal = Goal { others, ..goal(Optimize::Read) };
        let excluded = |size| {
            Exclusion::of_growth(&entry(size, 0.5, 0.5, 1).figures, Interval::default(), &goal)
        };
        assert_eq!(excluded(1.06), Some(Exclusion::GrowTogether(0.12)));
        assert_eq!(excluded(0.99), None);
    }

    #[test]
    fn columns_share_what_the_table_may_grow_by() {
        let goal = goal(Optimize::Read);
        let with_others = |added, excess| {
            let others = OtherColumns { added, excess, ..OtherColumns::default() };
            Goal { others, ..goal }
        };
        // within a tenth of the table as the command for another column leaves it
        let figures = entry(1.104, 0.5, 0.5, 1).figures;
        let none = Interval::default();
        let excluded = |goal| Exclusion::of_growth(&figures, none, &goal);
        assert!(excluded(goal).is_some());
        assert_eq!(excluded(with_others(9.0 * MEGABYTE, 0.0)), None);

        // and all of them within a tenth of what the defaults store, before that command and after it
        let defaults = weighed(&[entry(1.0, 1.0, 1.0, 0)], &goal)[0];
        let larger = |size, goal: Goal| {
            let mut all = weighed(&[entry(1.0, 1.0, 1.0, 0), entry(size, 0.5, 0.5, 1)], &goal);
            let today = all[0];
            all[1].measure_by(&defaults, &today, &entry(size, 0.5, 0.5, 1).figures, &goal);
            all[1].exclusion
        };
        assert_eq!(larger(1.06, goal), None);
        for goal in [with_others(9.0 * MEGABYTE, 0.0), with_others(0.0, 9.0 * MEGABYTE)] {
            assert!(matches!(larger(1.06, goal), Some(Exclusion::Larger { .. })));
            assert_eq!(larger(0.99, goal), None);
        }
    }

    #[test]
    fn what_a_command_would_leave_free_is_no_gain() {
        let today = entry(1.0, 1.0, 1.0, 0);
        for optimize in [Optimize::Balanced, Optimize::Size] {
            let goal = goal(optimize);
            let smaller = entry(0.85, 1.0, 1.0, 1);
            let mut all = weighed(&[today, smaller], &goal);
            assert_eq!(recommend(&all).choice, 1);
            let before = today.figures;
            let figures = compared_with(&smaller.figures, &before);
            let growth = Interval { estimate: -0.02, low: -0.07, high: 0.04 };
            all[1] = all[1].delivering(growth, &figures, &before, &goal);
            assert_eq!(recommend(&all).choice, 0);
            all[1] = all[1].delivering(Interval::exact(-0.12), &figures, &before, &goal);
            assert_eq!(recommend(&all).choice, 1);
        }
    }

    #[test]
    fn the_least_cost_is_that_of_what_is_used_most() {
        let today = entry(1.0, 1.0, 1.0, 0);
        let smaller = entry(0.8, 1.3, 1.0, 1);
        let faster = entry(1.04, 0.3, 1.0, 1);
        let choice = |reads: f64| {
            let workload = Workload { reads, ..Workload::default() };
            let goal = Goal { workload, ..Goal::default() };
            recommend(&weighed(&[today, smaller, faster], &goal)).choice
        };
        // 100 MB and their copy cost 2 cents a month, and an hour of reads 5
        assert_eq!([choice(0.0), choice(1e4), choice(1e6), choice(1e8)], [1, 1, 2, 2]);

        let choice = |prices: &str| {
            let goal = Goal { prices: prices.parse().unwrap(), ..goal(Optimize::Balanced) };
            recommend(&weighed(&[today, smaller, faster], &goal)).choice
        };
        assert_eq!([choice("disk=0"), choice("cpu=0")], [2, 1]);
    }

    #[test]
    fn what_is_as_good_and_changes_less_is_taken() {
        let today = entry(1.0, 1.0, 1.0, 0);
        let close = [today, entry(0.80, 1.0, 1.0, 9), entry(0.81, 1.0, 1.0, 1)];
        let chosen = recommended(&close, Optimize::Size);
        assert_eq!(chosen, Recommendation { choice: 2, best: Some(2), tied: Some(1) });
        let apart = [today, entry(0.80, 1.0, 1.0, 9), entry(0.83, 1.0, 1.0, 1)];
        let chosen = recommended(&apart, Optimize::Size);
        assert_eq!(chosen, Recommendation { choice: 1, best: Some(1), tied: None });
    }

    #[test]
    fn a_fraction_of_a_microsecond_is_no_reason_to_rewrite_a_table() {
        let today = |ns: f64| {
            let mut entry = entry(1.0, 1.0, 1.0, 0);
            let figure = Figure { value: Interval::exact(ns), change: None };
            entry.figures.read_cpu_ns.figure = figure;
            entry
        };
        let choice = |ns: f64| {
            let mut faster = today(ns * 0.85);
            faster.rank = 1;
            choice(&[today(ns), faster], Optimize::Read)
        };
        assert_eq!([choice(1_700.0), choice(17_000.0)], [0, 1]);
    }

    #[test]
    fn the_front_holds_what_nothing_beats() {
        let entries = [
            entry(1.0, 1.0, 1.0, 0),
            entry(0.8, 1.2, 1.0, 1),
            entry(0.9, 1.3, 1.0, 1),
            Entry { is_refused: true, ..entry(0.1, 0.1, 0.1, 1) },
        ];
        let front = |entries: &[Entry]| -> Vec<bool> {
            let all = weighed(entries, &goal(Optimize::Read));
            all.iter().map(|one| one.is_on_front(&all)).collect()
        };
        assert_eq!(front(&entries), [true, true, false, false]);
        // what is stored now stands against what is not worth a rewrite
        assert_eq!(front(&[entries[0], entry(0.97, 1.0, 1.0, 1)]), [true, true]);
        assert_eq!(front(&[entries[0], entry(0.97, 0.5, 1.0, 1)]), [false, true]);
        // a heap that a scan reads in vain is a figure like the others
        let mut wide = entry(0.8, 1.2, 1.0, 1);
        wide.figures.files.heap_bytes.value = Interval::exact(90.0 * MEGABYTE);
        assert_eq!(front(&[entries[0], entries[1], wide]), [true, true, false]);
        assert_eq!(front(&[entries[0], wide, entry(0.9, 1.3, 1.0, 1)]), [true, true, true]);
    }

    #[test]
    fn a_heap_that_grows_many_times_is_taken_only_where_the_table_shrinks_by_as_much() {
        let today = entry(1.0, 1.0, 1.0, 0);
        let moved = |heap: f64, total: f64| {
            let mut entry = entry(total, 0.05, 0.5, 1);
            entry.figures.files.heap_bytes.value = Interval::exact(heap * MEGABYTE);
            entry
        };
        let choice = |entry, optimize| {
            let mut all = weighed(&[today, entry], &goal(optimize));
            let defaults = all[0];
            let today = all[0];
            all[1].measure_by(&defaults, &today, &entry.figures, &goal(optimize));
            recommend(&all).choice
        };
        // values into the row as they are: no smaller
        let inlined = moved(93.0, 93.0 / 100.0);
        assert_eq!(choice(inlined, Optimize::Balanced), 0);
        assert_eq!(choice(inlined, Optimize::Write), 0);
        assert_eq!(choice(inlined, Optimize::Read), 1);
        // compressed to a fourth, and so into the row
        assert_eq!(choice(moved(25.0, 0.25), Optimize::Balanced), 1);
    }

    /// Files that are larger than their content.
    const ON_DISK: u64 = 1 << 30;

    #[test]
    fn no_more_is_saved_than_there_is() {
        fn said(on_disk: f64) -> String {
            change_of_space(&part_of(100.0 * MEGABYTE, 0.2), on_disk, 0.0)
        }
        assert_eq!(said(130.0 * MEGABYTE), "76 MB less on disk (80 %) apart from free space");
        assert_eq!(said(50.0 * MEGABYTE), "29 MB less on disk (60 %)");
        assert_eq!(said(20.0 * MEGABYTE), "as much on disk");
        assert_eq!(said(10.0 * MEGABYTE), "9766 kB more on disk (100 %)");
    }

    #[test]
    fn free_space_that_a_command_leaves_is_said() {
        let total = part_of(100.0 * MEGABYTE, 1.02);
        let said = |left| change_of_space(&total, 100.0 * MEGABYTE, left);
        assert_eq!(said(102.0 * MEGABYTE), "1953 kB more on disk (2 %)");
        assert_eq!(
            said(108.0 * MEGABYTE),
            "1953 kB more on disk (2 %), files of 95 MB becoming 103 MB"
        );
        // smaller than today, and not as small as without free space
        let total = part_of(100.0 * MEGABYTE, 0.2);
        let said = |left| change_of_space(&total, 100.0 * MEGABYTE, left);
        assert_eq!(
            said(30.0 * MEGABYTE),
            "76 MB less on disk (80 %), files of 95 MB becoming 29 MB"
        );
        // of files with free space only the sizes are compared: the percentage is that of the values
        let total = part_of(40.0 * MEGABYTE, 1.02);
        assert_eq!(
            change_of_space(&total, 100.0 * MEGABYTE, 43.0 * MEGABYTE),
            "781 kB more on disk (2 %) apart from free space, files of 95 MB becoming 41 MB"
        );
    }

    #[test]
    fn values_of_other_columns_are_not_moved_out_of_line() {
        let of_moves =
            |moved, optimize| Exclusion::of_moves(Interval::exact(moved), &goal(optimize));
        assert_eq!(of_moves(0.3, Optimize::Read), Some(Exclusion::MovesOthers(0.3)));
        assert_eq!(of_moves(0.02, Optimize::Write), None);
        assert_eq!(of_moves(0.3, Optimize::Size), None);
        let sampled = Interval { estimate: 0.04, low: 0.02, high: 0.06 };
        let excluded = Exclusion::of_moves(sampled, &goal(Optimize::Read));
        assert_eq!(excluded, Some(Exclusion::MovesOthers(0.06)));
        assert_eq!(
            Exclusion::MovesOthers(0.3).to_string(),
            "moves values of other columns out of line, up to 30 in 100 rows"
        );
    }

    #[test]
    fn reasons_are_sentences() {
        let goal = goal(Optimize::Balanced);
        let entries = [
            entry(1.0, 1.0, 1.0, 0),
            entry(0.8, 0.7, 2.5, 0),
            entry(0.97, 1.0, 1.0, 1),
            entry(1.3, 0.1, 0.1, 1),
            entry(1.25, 0.6, 1.0, 1),
        ];
        let all = weighed(&entries, &goal);
        let lz4 = Settings {
            storage: Storage::Extended,
            method: MethodChoice::One(Method::Lz4),
            target: TupleTarget::default_for(PageSize::DEFAULT),
            policy: Policy::Always,
        };
        let said = |shown: &[(&str, usize)], chosen, is_complete| {
            let described: Vec<Described> = shown
                .iter()
                .map(|&(name, at)| Described {
                    name,
                    settings: &lz4,
                    figures: &entries[at].figures,
                    read_part: part(entries[at].figures.read_cpu_ns.figure.change, ESTIMATE),
                    weighed: &all[at],
                    heap_bytes: MEGABYTE,
                    heap_part: part(entries[at].figures.files.heap_bytes.change, ESTIMATE),
                    after_bytes: 0,
                })
                .collect();
            reasons(&described, chosen, &goal, ON_DISK, None, is_complete)
        };
        let chosen = Recommendation { choice: 1, best: Some(1), tied: None };
        let kept = Recommendation { choice: 0, best: Some(1), tied: None };
        insta::assert_snapshot!(said(&[("today", 0), ("lz4", 1)], chosen, true), @"Recommended: storage extended, compression lz4, toast_tuple_target 2032, with 19 MB less on disk (20 %) apart from free space, 30 % less CPU time per read (3 s less a day at 100 thousand reads), 20 % fewer pages in scans of other columns. The price: 2.5 times the WAL per UPDATE, 2.5 times the WAL per UPDATE of other columns.");
        insta::assert_snapshot!(said(&[("today", 0), ("lz4", 2)], kept, true), @"Keep the present settings (storage extended, compression lz4, toast_tuple_target 2032): the best of the others, lz4, costs 2 % less, too little to rewrite the table for.");
        insta::assert_snapshot!(said(&[("today", 0), ("external", 3)], kept, true), @"Keep the present settings (storage extended, compression lz4, toast_tuple_target 2032): the best of the others, external, costs 11 % less, but leaves files 31 % larger than today's values need.");
        insta::assert_snapshot!(said(&[("today", 0), ("lz4", 4)], kept, true), @"Keep the present settings (storage extended, compression lz4, toast_tuple_target 2032): lz4, with 24 MB more on disk (25 %) and 40 % less CPU time per read, costs 11 % more at the assumed ten reads of each value a day.");
        insta::assert_snapshot!(said(&[("today", 0), ("as set", 0)], kept, true), @"Keep the present settings (storage extended, compression lz4, toast_tuple_target 2032): none of the others costs less.");
        let [today, changed] = [0, 1].map(|at| Described {
            name: "",
            settings: &lz4,
            figures: &entries[at].figures,
            read_part: part(entries[at].figures.read_cpu_ns.figure.change, ESTIMATE),
            weighed: &all[at],
            heap_bytes: MEGABYTE,
            heap_part: part(entries[at].figures.files.heap_bytes.change, ESTIMATE),
            after_bytes: 0,
        });
        let mixture = reasons(&[today, today], kept, &goal, ON_DISK, Some(&today), true);
        insta::assert_snapshot!(mixture, @"Leave the stored values as they are: none of the others costs less. The present settings, storage extended, compression lz4, toast_tuple_target 2032, apply to new values; if a conversion was stopped, its own command finishes it.");
        let mixture = reasons(&[today, changed], chosen, &goal, ON_DISK, Some(&changed), true);
        insta::assert_snapshot!(mixture, @"Recommended: the present settings, storage extended, compression lz4, toast_tuple_target 2032, for stored values too, with 19 MB less on disk (20 %) apart from free space, 30 % less CPU time per read (3 s less a day at 100 thousand reads), 20 % fewer pages in scans of other columns. The price: 2.5 times the WAL per UPDATE, 2.5 times the WAL per UPDATE of other columns.");
        let grown =
            Described { name: "external", figures: &entries[3].figures, weighed: &all[3], ..today };
        let mixture = reasons(&[today, grown], kept, &goal, ON_DISK, Some(&grown), true);
        insta::assert_snapshot!(mixture, @"Leave the stored values as they are: the best of the others, external, costs 11 % less, but leaves files 31 % larger than today's values need. The present settings, storage extended, compression lz4, toast_tuple_target 2032, apply to new values; with all values stored so, the table would take 29 MB more (30 %); if a conversion was stopped, its own command finishes it.");
        let delivered = Interval::exact(0.97);
        let left = Weighed { value: Interval::exact(0.85), delivered, ..all[1] };
        let loose = Described { name: "lz4", weighed: &left, ..changed };
        let loose = reasons(&[today, loose], kept, &goal, ON_DISK, None, true);
        insta::assert_snapshot!(loose, @"Keep the present settings (storage extended, compression lz4, toast_tuple_target 2032): the best of the others, lz4, costs 15 % less without the free space that the command leaves, 3 % with it, too little to rewrite the table for.");
        // what a sample excludes because of its growth another one may not
        let exclusion = Some(Exclusion::MayGrow(0.07));
        let near = Weighed { exclusion, value: Interval::exact(0.85), ..all[1] };
        let near = Described { name: "lz4", weighed: &near, ..changed };
        let near = reasons(&[today, near], kept, &goal, ON_DISK, None, false);
        assert!(near.ends_with(" Another sample might lead to lz4."), "{near}");
        let none = Recommendation { choice: 0, best: None, tied: None };
        insta::assert_snapshot!(said(&[("today", 0)], none, true), @"Keep the present settings (storage extended, compression lz4, toast_tuple_target 2032): no others suit the values.");
        insta::assert_snapshot!(weighting(&Goal { optimize: Optimize::Read, ..goal }), @"The time of reads counts most, as requested, cold reads and reads of prefixes a tenth each; size and scans that do not need the column have a tenth of its weight, and the table may grow to at most 10 % more than now, and than with PostgreSQL's defaults where these are compared.");
        insta::assert_snapshot!(weighting(&goal), @"The least cost counts: $0.10 a month for a GB of files and as much for a copy, $0.05 for an hour of CPU time, $0.02 for a GB of WAL, at 100 thousand reads and 1000 writes a day (assumed, for the workload is not known: ten reads of each value a day). The table may grow to at most 5 % more than now, and than with PostgreSQL's defaults where these are compared.");
        let workload = Workload { source: WorkloadSource::Statements(3), ..goal.workload };
        insta::assert_snapshot!(weighting(&Goal { workload, ..goal }), @"The least cost counts: $0.10 a month for a GB of files and as much for a copy, $0.05 for an hour of CPU time, $0.02 for a GB of WAL, at 100 thousand reads and 1000 writes a day (estimated from 3 statements in pg_stat_statements that name table and column, by the rows returned and changed; rows that aggregates read are not included). The table may grow to at most 5 % more than now, and than with PostgreSQL's defaults where these are compared.");
    }

    /// What is recommended where one of the candidates is what the defaults would store.
    fn judged(entries: &[Entry], goal: &Goal, defaults: Option<usize>) -> Recommendation {
        let mut all = weighed(entries, goal);
        if let Some(defaults) = defaults.and_then(|at| all.get(at)).copied() {
            let today = all[0];
            for (weighed, entry) in all.iter_mut().zip(entries) {
                weighed.measure_by(&defaults, &today, &entry.figures, goal);
            }
        }
        recommend(&all)
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let part = || prop_oneof![Just(1.0), 0.05f64..3.0, 0.97f64..1.03];
        (part(), part(), part(), part(), 0u8..4, proptest::bool::weighted(0.1)).prop_map(
            |(size, read, write, scan, rank, is_refused)| {
                let mut entry = Entry { is_refused, ..entry(size, read, write, rank) };
                entry.figures.files.heap_bytes.value = Interval::exact(10.0 * MEGABYTE * scan);
                entry
            },
        )
    }

    #[test]
    fn prices_are_given_by_name() {
        let prices = "disk=1, wal=0.5".parse::<PriceList>();
        assert_eq!(prices, Ok(PriceList { disk: 1.0, wal: 0.5, ..PriceList::default() }));
        for wrong in ["", "disk", "disk=", "disk=-1", "cpu=NaN", "cpu=inf", "ram=1", "disk=1,"] {
            assert!(wrong.parse::<PriceList>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn after_its_command_the_advice_is_to_keep(
            candidates in proptest::collection::vec(any_entry(), 1..15),
            today in any_entry(),
            reads in 0.0f64..1e8,
            writes in 0.0f64..1e6,
            defaults in 1usize..15,
        ) {
            let mut entries = vec![today];
            entries.extend(candidates);
            let workload = Workload { reads, writes, scans: 1.0, ..Workload::default() };
            let defaults = Some(defaults).filter(|&at| at < entries.len());
            for optimize in EVERY {
                let goal = Goal { optimize, workload, ..Goal::default() };
                let first = judged(&entries, &goal, defaults).choice;
                if first == 0 {
                    continue;
                }
                // its command has been carried out: it is today's storage, and nearest to the settings
                let mut then = entries.clone();
                then[0] = Entry { is_refused: false, ..entries[first] };
                then[first].rank = 0;
                let second = judged(&then, &goal, defaults);
                prop_assert_eq!(second.choice, 0, "{:?} {:?} {:#?}", optimize, first, entries);
            }
        }
    }
}
