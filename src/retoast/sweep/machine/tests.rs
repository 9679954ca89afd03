//! The machine in a simulated world.

use std::collections::BTreeSet;

use crate::retoast::sweep::machine::{MOST_TRIES, *};
use toast_format::disk::BlockNumber;

const TUNING: Tuning = Tuning {
    least_window: 8,
    passes: 4,
    batch: Duration::from_millis(100),
    batch_bytes: 1 << 20,
    max_bloat: 0.05,
    jobs: 1,
};

fn row(block: u32, item: u16, bytes: u64) -> Row {
    Row {
        ctid: ItemPointer { block: BlockNumber(block), item },
        xmin: 3,
        by_copy: false,
        spared: false,
        bytes,
        stored: bytes,
        dead: bytes + 64,
    }
}

/// A table, the rows of which that remain to be re-toasted, and a server with its own clock.
struct World {
    left: BTreeSet<Row>,
    blocks: u32,
    /// The size including the TOAST relation.
    bytes: u64,
    now: Duration,
    vacuums: u32,
    /// How many of these were of the TOAST relation alone, and how long each takes.
    early: u32,
    vacuum_takes: Duration,
    /// The time taken by early vacuums and by batches, and the maximum that was dead.
    spent: (Duration, Duration),
    dead: (u64, u64),
    extent: Extent,
    batches: Vec<usize>,
    /// A block, and how many times its rows are locked by other sessions.
    locked: (u32, u32),
    poisoned: Option<Row>,
    /// The work in progress, by job.
    under_way: Vec<(usize, Option<Vec<Row>>)>,
    most_under_way: usize,
    insisted: u32,
}

impl World {
    fn new(blocks: u32, per_page: u16, bytes: u64) -> World {
        let bytes_of_all = u64::from(blocks) * (8192 + u64::from(per_page) * bytes);
        let rows =
            (0..blocks).flat_map(|block| (1..=per_page).map(move |item| row(block, item, bytes)));
        World {
            left: rows.collect(),
            blocks,
            bytes: bytes_of_all,
            now: Duration::ZERO,
            vacuums: 0,
            early: 0,
            vacuum_takes: Duration::from_millis(1),
            spent: (Duration::ZERO, Duration::ZERO),
            dead: (0, 0),
            extent: Extent::Table,
            batches: Vec::new(),
            locked: (0, 0),
            poisoned: None,
            under_way: Vec::new(),
            most_under_way: 0,
            insisted: 0,
        }
    }

    fn run(&mut self, machine: &mut Machine) -> SweepEnd {
        for _ in 0..100_000 {
            let event = match machine.next_action() {
                Action::Finish(end) => return end,
                Action::Sleep(time, _) => {
                    self.now += time;
                    continue;
                }
                Action::Vacuum(job, extent, _) => {
                    self.vacuums += 1;
                    self.early += u32::from(extent == Extent::Toast);
                    self.extent = extent;
                    self.dead.0 = 0;
                    self.under_way.push((job, None));
                    continue;
                }
                Action::Insist(job, rows) => {
                    let block = rows[0].ctid.block;
                    assert!(rows.iter().all(|row| row.ctid.block == block));
                    self.insisted += 1;
                    self.under_way.push((job, Some(rows)));
                    continue;
                }
                Action::Batch(job, rows) => {
                    // rows are sorted, and batches that run at a time are of different windows
                    let ends = |rows: &[Row]| (rows[0].ctid.block, rows[rows.len() - 1].ctid.block);
                    let (first, last) = ends(&rows);
                    for other in self.under_way.iter().filter_map(|(_, rows)| rows.as_ref()) {
                        let other = ends(other);
                        assert!(
                            last < other.0 || other.1 < first,
                            "{other:?} and {:?}",
                            (first, last)
                        );
                    }
                    self.under_way.push((job, Some(rows)));
                    continue;
                }
                Action::Wait => {
                    self.most_under_way = self.most_under_way.max(self.under_way.len());
                    // the job that was started last ends first
                    match self.under_way.pop().unwrap() {
                        (job, None) => {
                            self.now += self.vacuum_takes;
                            let early = self.extent == Extent::Toast;
                            self.spent.0 += if early { self.vacuum_takes } else { Duration::ZERO };
                            Event::Vacuumed { job, done: Some((self.extent, self.vacuum_takes)) }
                        }
                        (job, Some(rows)) => self.batch(job, &rows),
                    }
                }
                Action::BeginScan => Event::Begun { blocks: self.blocks, bytes: self.bytes },
                Action::Scan(range) => Event::Scanned(
                    self.left.iter().filter(|r| range.contains(&r.ctid.block.0)).copied().collect(),
                ),
            };
            machine.note(event, 0.5);
        }
        panic!("the machine does not end");
    }

    fn batch(&mut self, job: usize, rows: &[Row]) -> Event {
        if self.poisoned.is_some_and(|bad| rows.contains(&bad)) {
            return Event::BatchRefused(job);
        }
        let took = Duration::from_millis(1) * rows.len() as u32;
        self.now += took;
        self.spent.1 += took;
        self.dead.0 += rows.iter().map(|row| row.bytes).sum::<u64>();
        self.dead.1 = self.dead.1.max(self.dead.0);
        self.batches.push(rows.len());
        let mut done = 0;
        for row in rows {
            if row.ctid.block.0 == self.locked.0 && self.locked.1 > 0 {
                self.locked.1 -= 1;
            } else {
                assert!(self.left.remove(row), "{row:?} was done before");
                done += 1;
            }
        }
        Event::BatchDone { xid: 0, job, rows: done, took }
    }
}

#[test]
fn all_is_done_and_a_scan_proves_it() {
    let mut world = World::new(600, 20, 300);
    let mut machine = Machine::new(TUNING);
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert!(world.left.is_empty());
    assert_eq!(machine.counts.scans, 2);
    // 600 * 20 * 364 bytes, vacuumed at each 5 % of 600 pages, but at least 1 MB
    assert_eq!(world.vacuums, 5);
}

#[test]
fn vacuums_come_early_where_they_are_cheap_and_no_later_than_asked() {
    for jobs in [1, 2] {
        for ms in [0, 1, 5, 10, 20, 50, 100, 500, 5000] {
            let mut world = World::new(600, 20, 20_000);
            world.vacuum_takes = Duration::from_millis(ms);
            let mut machine = Machine::new(Tuning { jobs, ..TUNING });
            assert_eq!(world.run(&mut machine), SweepEnd::Complete);
            let (early, batches) = world.spent;
            let what =
                format!("{jobs} jobs, {ms} ms: {} of {} vacuums", world.early, world.vacuums);
            // the first vacuum shows how long one takes
            assert!(early <= batches / 8 + world.vacuum_takes, "{what}: {early:?} of {batches:?}");
            let part = world.dead.1 as f64 / world.bytes as f64;
            let some_batches = jobs as f64 * TUNING.batch_bytes as f64 / world.bytes as f64;
            assert!(part <= TUNING.max_bloat + some_batches, "{what}: {part}");
            if ms <= 5 {
                assert!(part <= 0.01 + some_batches, "{what}: {part}");
            }
            assert!(world.early <= 1 || ms < 100, "{what}");
            assert!(world.early > 1 || ms > 20, "{what}");
        }
    }
}

/// A table of 60,000 rows, half of them of one to two kilobytes in the row.
#[test]
fn rows_that_fill_their_pages_take_few_transactions() {
    // with windows of 8 pages for all jobs: 5448, 10896, 21792, 43584
    for (jobs, most) in [(1, 700), (2, 1600), (3, 2200), (8, 3300)] {
        let mut world = World::new(5448, 11, 2000);
        let mut machine = Machine::new(Tuning { passes: 8, jobs, ..TUNING });
        assert_eq!(world.run(&mut machine), SweepEnd::Complete);
        let batches = world.batches.len();
        assert!(batches <= most, "{jobs} jobs: {batches}");
        let took = Duration::from_millis(1) * 100;
        assert!(machine.counts.longest_batch <= took, "{:?}", machine.counts.longest_batch);
    }
}

#[test]
fn an_empty_table_takes_one_scan_and_no_batch() {
    let mut world = World::new(600, 0, 0);
    let mut machine = Machine::new(TUNING);
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert_eq!((machine.counts.scans, world.batches.len(), world.vacuums), (1, 0, 0));
}

#[test]
fn a_pass_takes_every_fourth_row_of_a_window() {
    let mut machine = Machine::new(TUNING);
    assert_eq!(machine.next_action(), Action::BeginScan);
    machine.note(Event::Begun { blocks: 16, bytes: 1 << 17 }, 0.0);
    assert_eq!(machine.next_action(), Action::Scan(0..16));
    let rows: Vec<Row> = (0..16).map(|block| row(block, 1, 10)).collect();
    machine.note(Event::Scanned(rows), 0.0);
    let mut batches = Vec::new();
    while let Action::Batch(job, rows) = machine.next_action() {
        batches.push(rows.iter().map(|row| row.ctid.block.0).collect::<Vec<_>>());
        machine
            .note(Event::BatchDone { xid: 0, job, rows: 2, took: Duration::from_millis(1) }, 0.0);
    }
    let first_window = [[0, 4], [1, 5], [2, 6], [3, 7]];
    assert_eq!(batches[..4], first_window);
    assert_eq!(batches[4..6], [[8, 12], [9, 13]]);
}

#[test]
fn with_two_jobs_three_windows_take_turns_pass_by_pass() {
    let mut machine = Machine::new(Tuning { jobs: 2, ..TUNING });
    machine.next_action();
    machine.note(Event::Begun { blocks: 40, bytes: 1 << 17 }, 0.0);
    machine.next_action();
    machine.note(Event::Scanned((0..40).map(|block| row(block, 1, 10)).collect()), 0.0);
    let took = Duration::from_millis(1);
    let mut begun = Vec::new();
    let mut start = |machine: &mut Machine, job: usize| match machine.next_action() {
        Action::Batch(free, rows) => {
            assert_eq!(free, job);
            begun.push(rows[0].ctid.block.0);
        }
        other => panic!("{other:?}"),
    };
    start(&mut machine, 0);
    start(&mut machine, 1);
    assert_eq!(machine.next_action(), Action::Wait);
    for round in 0..6 {
        machine.note(Event::BatchDone { xid: 0, job: round % 2, rows: 2, took }, 0.0);
        start(&mut machine, round % 2);
    }
    assert_eq!(begun, [0, 8, 16, 1, 9, 17, 2, 10]);
    // the rest of the group, then the last window alone, whose passes follow one another
    let mut rest = 0;
    let mut waited = 0;
    let mut busy = vec![0, 1];
    while rest < 12 {
        match machine.next_action() {
            Action::Batch(job, _) => {
                rest += 1;
                busy.push(job);
            }
            Action::Wait => {
                waited += 1;
                let job = busy.remove(0);
                machine.note(Event::BatchDone { xid: 0, job, rows: 2, took }, 0.0);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(waited >= 10, "{waited}");
}

#[test]
fn a_pass_waits_until_nobody_pins_what_the_one_before_has_left() {
    let mut machine = Machine::new(Tuning { jobs: 2, ..TUNING });
    machine.next_action();
    machine.note(Event::Begun { blocks: 40, bytes: 1 << 17 }, 0.0);
    machine.next_action();
    machine.note(Event::Scanned((0..40).map(|block| row(block, 1, 10)).collect()), 0.0);
    let begin = |machine: &mut Machine| match machine.next_action() {
        Action::Batch(job, rows) => (job, rows[0].ctid.block.0),
        other => panic!("{other:?}"),
    };
    assert_eq!((begin(&mut machine), begin(&mut machine)), ((0, 0), (1, 8)));
    // job 0 takes long: nothing can be pruned in the meantime, and new windows are begun
    for block in [16, 24, 32] {
        machine.note(Event::BatchDone { xid: 0, job: 1, rows: 2, took: Duration::ZERO }, 0.0);
        assert_eq!(begin(&mut machine), (1, block));
    }
    machine.note(Event::BatchDone { xid: 0, job: 1, rows: 2, took: Duration::ZERO }, 0.0);
    assert_eq!(machine.next_action(), Action::Wait);
    machine.note(Event::BatchDone { xid: 0, job: 0, rows: 2, took: Duration::ZERO }, 0.0);
    assert_eq!((begin(&mut machine), begin(&mut machine)), ((0, 1), (1, 9)));
}

#[test]
fn with_jobs_all_is_done_once_and_two_are_under_way() {
    let mut world = World::new(600, 20, 300);
    let mut machine = Machine::new(Tuning { jobs: 2, ..TUNING });
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert!(world.left.is_empty() && world.under_way.is_empty());
    assert_eq!(world.most_under_way, 2);
    assert_eq!(machine.counts.scans, 2);
}

#[test]
fn an_error_of_one_job_lets_the_others_end() {
    let mut machine = Machine::new(Tuning { jobs: 2, ..TUNING });
    machine.next_action();
    machine.note(Event::Begun { blocks: 16, bytes: 1 << 17 }, 0.0);
    machine.next_action();
    machine.note(Event::Scanned((0..16).map(|block| row(block, 1, 10)).collect()), 0.0);
    assert!(matches!(machine.next_action(), Action::Batch(0, _)));
    assert!(matches!(machine.next_action(), Action::Batch(1, _)));
    machine.note(Event::Failed(0), 0.0);
    assert_eq!(machine.next_action(), Action::Wait);
    machine.note(Event::BatchDone { xid: 0, job: 1, rows: 1, took: Duration::ZERO }, 0.0);
    assert_eq!(machine.next_action(), Action::Finish(SweepEnd::Stopped));
}

#[test]
fn batches_follow_time_and_bytes() {
    let mut world = World::new(300, 200, 10);
    let tuning = Tuning { batch: Duration::from_millis(20), ..TUNING };
    assert_eq!(world.run(&mut Machine::new(tuning)), SweepEnd::Complete);
    assert_eq!(world.batches.first(), Some(&50));
    assert!(world.batches.iter().rev().take(200).all(|&rows| rows <= 20));
    let mut world = World::new(8, 40, 100_000);
    assert_eq!(world.run(&mut Machine::new(TUNING)), SweepEnd::Complete);
    assert!(world.batches.iter().all(|&rows| rows <= 10), "{:?}", world.batches);
}

#[test]
fn beside_others_batches_are_short() {
    let mut world = World::new(300, 200, 10);
    let mut machine = Machine::new(TUNING);
    machine.others = true;
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert!(world.left.is_empty());
    assert!(world.batches.iter().all(|&rows| rows <= 16), "{:?}", world.batches);
    let mut world = World::new(300, 200, 10);
    let mut machine = Machine::new(Tuning { batch: Duration::from_millis(1000), ..TUNING });
    machine.others = true;
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert!(world.batches.contains(&100) && world.batches.iter().all(|&rows| rows <= 100));
}

#[test]
fn locked_rows_are_met_again_and_after_long_given_up() {
    let mut world = World { locked: (5, 90), ..World::new(10, 20, 10) };
    assert_eq!(world.run(&mut Machine::new(TUNING)), SweepEnd::Complete);
    assert!(world.left.is_empty() && world.now > Duration::from_millis(500));
    assert!(world.insisted > 0);
    let mut world = World { locked: (5, u32::MAX), ..World::new(10, 20, 10) };
    assert_eq!(world.run(&mut Machine::new(TUNING)), SweepEnd::Incomplete);
    assert_eq!(world.left.len(), 20);
}

#[test]
fn a_row_that_the_server_refuses_is_found_out_and_the_others_done() {
    let bad = row(3, 7, 10);
    let mut world = World { poisoned: Some(bad), ..World::new(10, 20, 10) };
    let mut machine = Machine::new(TUNING);
    assert_eq!(world.run(&mut machine), SweepEnd::Incomplete);
    assert_eq!(world.left.iter().copied().collect::<Vec<_>>(), [bad]);
    // the scan during which a row was refused had released its snapshot; another one proves what is left
    assert_eq!(
        (machine.left(), machine.counts.scans),
        (Noncompliant { refused: 1, ..Noncompliant::default() }, 2)
    );
}

#[test]
fn a_row_that_the_judge_wants_otherwise_again_and_again_is_counted_and_left() {
    let mut machine = Machine::new(TUNING);
    let mut xmin = 3;
    let mut batches = 0;
    let end = loop {
        let event = match machine.next_action() {
            Action::Finish(end) => break end,
            Action::BeginScan => Event::Begun { blocks: 1, bytes: 8192 },
            Action::Scan(_) => Event::Scanned(vec![Row { xmin, ..row(0, 1, 10) }]),
            Action::Vacuum(job, ..) => Event::Vacuumed { job, done: None },
            Action::Sleep(..) => continue,
            Action::Batch(job, rows) => {
                (batches, xmin) = (batches + 1, xmin + 100);
                let took = Duration::from_millis(1);
                machine
                    .note(Event::BatchDone { job, rows: rows.len() as u64, xid: xmin, took }, 0.0);
                continue;
            }
            other => panic!("{other:?}"),
        };
        machine.note(event, 0.0);
    };
    assert_eq!((end, batches), (SweepEnd::Incomplete, MOST_TRIES));
    assert_eq!(machine.left(), Noncompliant { disagreeing: 1, ..Noncompliant::default() });
    assert_eq!(machine.left().sum(), 1);
}

#[test]
fn a_lock_timeout_waits_longer_each_time_and_leaves_the_batch_to_the_next_scan() {
    let mut machine = Machine::new(TUNING);
    machine.next_action();
    machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
    machine.next_action();
    machine.note(Event::Scanned(vec![row(0, 1, 1)]), 0.0);
    let mut waits = Vec::new();
    while let Action::Batch(job, _) = machine.next_action() {
        machine.note(Event::BatchBusy(job), 0.5);
        match machine.next_action() {
            Action::Sleep(time, Wait::LockTimeout) => waits.push(time.as_millis()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits, [100, 200, 400, 800, 1600]);
    assert_eq!(machine.counts.retries, 5);
}

#[test]
fn a_scan_that_begins_in_the_middle_proves_nothing() {
    let mut world = World::new(1000, 2, 10);
    world.left.retain(|row| row.ctid.block.0 < 300);
    let mut machine = Machine::new(TUNING);
    machine.start = 512;
    assert_eq!(machine.next_action(), Action::BeginScan);
    machine.note(Event::Begun { blocks: 1000, bytes: 1 << 23 }, 0.0);
    assert_eq!(machine.next_action(), Action::Scan(512..768));
    machine.note(Event::Scanned(Vec::new()), 0.0);
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert!(world.left.is_empty());
    assert_eq!((machine.counts.scans, world.now < Duration::from_secs(1)), (3, true));
    // a table that has become shorter
    let mut world = World::new(10, 2, 10);
    let mut machine = Machine::new(TUNING);
    machine.start = 512;
    assert_eq!(world.run(&mut machine), SweepEnd::Complete);
    assert!(world.left.is_empty());
}

/// With 180 rows on a page, each of 1 MB, a chunk of 256 pages would take 46 GB.
#[test]
fn a_scan_of_large_values_reads_fewer_pages_at_a_time() {
    let first = |blocks: u32, bytes_of_page: u64| {
        let mut machine = Machine::new(TUNING);
        machine.next_action();
        machine.note(Event::Begun { blocks, bytes: u64::from(blocks) * bytes_of_page }, 0.0);
        machine.next_action()
    };
    assert_eq!(first(1000, 10 << 10), Action::Scan(0..256));
    assert_eq!(first(1000, 1 << 20), Action::Scan(0..64));
    assert_eq!(first(1000, 180 << 20), Action::Scan(0..1));
    assert_eq!(first(10, 0), Action::Scan(0..10));
}

#[test]
fn only_a_scan_in_one_snapshot_proves_anything() {
    let mut machine = Machine::new(TUNING);
    let begin = |machine: &mut Machine| {
        assert_eq!(machine.next_action(), Action::BeginScan);
        machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
        assert!(machine.may_prove());
        assert_eq!(machine.next_action(), Action::Scan(0..1));
    };
    begin(&mut machine);
    machine.note(Event::SnapshotLost, 0.0);
    assert!(!machine.may_prove());
    machine.note(Event::Scanned(Vec::new()), 0.0);
    assert!(matches!(machine.next_action(), Action::Sleep(..)));
    begin(&mut machine);
    machine.note(Event::Scanned(Vec::new()), 0.0);
    assert_eq!(machine.next_action(), Action::Finish(SweepEnd::Complete));
}

#[test]
fn stop_ends_it_at_once_and_for_good() {
    let mut machine = Machine::new(TUNING);
    machine.next_action();
    machine.note(Event::Stop, 0.0);
    machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
    machine.note(Event::Stop, 0.0);
    assert_eq!(machine.next_action(), Action::Finish(SweepEnd::Stopped));
}

/// What is left of a row that is found again as its update has stored it.
fn left_of_updated(found: Row) -> Noncompliant {
    let mut machine = Machine::new(TUNING);
    machine.next_action();
    machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
    machine.next_action();
    machine.note(Event::Scanned(vec![found]), 0.0);
    assert!(matches!(machine.next_action(), Action::Batch(0, _)));
    let took = Duration::from_millis(1);
    machine.note(Event::BatchDone { job: 0, rows: 1, xid: 77, took }, 0.0);
    while machine.next_action() != Action::BeginScan {
        machine.note(Event::Vacuumed { job: 0, done: None }, 0.0);
    }
    machine.note(Event::Begun { blocks: 1, bytes: 8192 }, 0.0);
    machine.next_action();
    machine.note(Event::Scanned(vec![Row { xmin: 77, ..found }]), 0.0);
    assert_eq!(machine.next_action(), Action::Finish(SweepEnd::Complete));
    machine.left()
}

#[test]
fn what_only_a_copy_says_is_settled_by_the_rows_own_update() {
    let found = Row { by_copy: true, ..row(0, 1, 10) };
    assert_eq!(left_of_updated(found), Noncompliant::default());
}

/// `jsonb_toaster` stores some values with ordinary pointers; a row is tried once, and does not count as left after
/// that.
#[test]
fn what_a_toaster_itself_leaves_is_tried_once() {
    let found = Row { spared: true, ..row(0, 1, 10) };
    assert_eq!(left_of_updated(found), Noncompliant { spared: 1, ..Noncompliant::default() });
}

#[test]
fn values_of_other_columns_out_of_line_are_not_dead() {
    let dead = |columns, stored| Row::dead_by_functions(columns, stored, 2032);
    assert_eq!(dead(1700, 200), 1700);
    assert_eq!(dead(9200, 9000), 9200);
    assert_eq!(dead(1_000_200, 200), 2032);
    assert_eq!(dead(1_009_000, 9000), 9000 + 2032);
}

#[test]
fn vacuums_come_by_what_is_left_behind_however_much_it_holds() {
    let due = |stored, dead| {
        let mut machine = Machine::new(TUNING);
        machine.next_action();
        machine.note(Event::Begun { blocks: 1, bytes: 100 << 20 }, 0.0);
        machine.next_action();
        // 90 MB in total, compressed or not
        machine.note(Event::Scanned(vec![Row { stored, dead, ..row(0, 1, 90 << 20) }]), 0.0);
        assert!(matches!(machine.next_action(), Action::Batch(0, _)));
        let took = Duration::from_millis(1);
        machine.note(Event::BatchDone { job: 0, rows: 1, xid: 77, took }, 0.0);
        machine.vacuums.due
    };
    assert_eq!(due(90 << 20, 90 << 20), Some(Extent::Table));
    assert_eq!(due(90 << 10, 90 << 10), None);
    // the rest of the row too
    assert_eq!(due(90 << 10, 90 << 20), Some(Extent::Table));
}
