//! What readings mean for each kind of work.

use crate::retoast::pace::rules::*;
use crate::retoast::pace::slots::Slot;

const MB: u64 = 1 << 20;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn rules(limits: Limits) -> ThrottleRules {
    ThrottleRules::new(limits)
}

fn replica(replayed: u64, reported: Option<f64>) -> Replica {
    Replica { name: "\"r\"".into(), replayed, reported: reported.map(at) }
}

#[test]
fn without_limits_nothing_is_waited_for() {
    let mut rules = rules(Limits::default());
    let readings = Readings {
        lsn: 1 << 40,
        replicas: vec![replica(0, Some(1e6))],
        query: Some(true),
        free: Some(Free { bytes: 0, place: String::new() }),
        holder: Some(Holder { horizon: 3, who: String::new(), is_lasting: false }),
        held: HeldBack { bytes: 5, limit: 5 },
        rewrite: None,
        slots: Slots::default(),
        dead: 1 << 40,
    };
    for work in [WorkKind::Scan, WorkKind::Batch, WorkKind::Vacuum] {
        assert_eq!(rules.judge(at(1.0), &readings, work), None);
    }
    assert_eq!(rules.nice(at(1.0)), None);
}

#[test]
fn who_writes_the_table_anew_is_waited_for_without_any_limit() {
    let mut rules = rules(Limits::default());
    let text = "REPACK of this table is under way (PID 7, user u)";
    let readings = Readings { rewrite: Some(text.into()), ..Readings::default() };
    for work in [WorkKind::Scan, WorkKind::Batch, WorkKind::Vacuum] {
        let pause = rules.judge(at(1.0), &readings, work).unwrap();
        assert_eq!((pause.cause, pause.text.as_str()), (Cause::Rewrite, text));
        assert!(pause.cause.is_others());
    }
}

#[test]
fn a_replica_that_replays_nothing_is_late_by_the_time_since_it_stopped() {
    let limits = Limits { replica_lag: Some(Lag::Time(at(10.0))), ..Limits::default() };
    let mut rules = rules(limits);
    let mut judge = |now: f64, lsn, replayed, reported| {
        let replicas = vec![replica(replayed, reported)];
        let readings = Readings { lsn, replicas, ..Readings::default() };
        rules.judge(at(now), &readings, WorkKind::Batch)
    };
    assert_eq!(judge(0.0, 100, 100, None), None);
    assert_eq!(judge(5.0, 200, 100, None), None);
    assert_eq!(judge(14.0, 300, 100, None), None);
    let pause = judge(15.1, 300, 100, None).unwrap();
    assert_eq!(pause.cause, Cause::ReplicaLag);
    assert!(pause.text.contains("replica \"r\" is 200 bytes of WAL and 10 s behind"), "{pause:?}");
    // WAL written at 14 s is not that late yet
    assert_eq!(judge(16.0, 300, 200, None), None);
    assert!(judge(25.0, 300, 200, None).is_some());
    // the server's own figure counts if it is larger, unless everything is replayed
    assert!(judge(26.0, 400, 300, Some(11.0)).is_some());
    assert_eq!(judge(27.0, 400, 400, Some(11.0)), None);
}

#[test]
fn lag_in_bytes_holds_up_what_writes_and_not_what_reads() {
    let limits = Limits { replica_lag: Some(Lag::Bytes(MB)), ..Limits::default() };
    let mut rules = rules(limits);
    let replicas = vec![replica(4 * MB, None), replica(2 * MB, None)];
    let mut readings = Readings { lsn: 5 * MB, replicas, ..Readings::default() };
    assert!(rules.judge(at(0.0), &readings, WorkKind::Vacuum).is_some());
    assert_eq!(rules.judge(at(0.0), &readings, WorkKind::Scan), None);
    readings.replicas.truncate(1);
    assert_eq!(rules.judge(at(0.0), &readings, WorkKind::Batch), None);
}

#[test]
fn an_old_snapshot_holds_up_vacuum_alone_and_little_space_batches_alone() {
    let mut rules = rules(Limits { free_space: Some(100 * MB), ..Limits::default() });
    let holder = Holder { horizon: 3, who: "session 42".into(), is_lasting: false };
    let held = HeldBack { bytes: 2, limit: 1 };
    let free = Free { bytes: 99 * MB, place: "in \"/x\"".into() };
    let readings = Readings { holder: Some(holder), held, free: Some(free), ..Readings::default() };
    let mut cause = |work| rules.judge(at(0.0), &readings, work).map(|pause| pause.cause);
    let causes = [WorkKind::Scan, WorkKind::Batch, WorkKind::Vacuum].map(&mut cause);
    assert_eq!(causes, [None, Some(Cause::FreeSpace), Some(Cause::Xmin)]);
}

#[test]
fn however_young_a_snapshot_is_growth_is_the_limit() {
    let mut rules = rules(Limits::default());
    let mut judge = |bytes| {
        let holder = Holder { horizon: 3, who: "session 42".into(), is_lasting: false };
        let held = HeldBack { bytes, limit: 4 * MB };
        let readings = Readings { holder: Some(holder), held, ..Readings::default() };
        rules.judge(at(0.0), &readings, WorkKind::Vacuum)
    };
    assert_eq!(judge(4 * MB), None);
    let pause = judge(5 * MB).unwrap();
    assert_eq!(pause.cause, Cause::Xmin);
    assert_eq!(
        pause.text,
        "session 42 keeps vacuum from removing 5120 kB of old row versions of this table, \
         more than 4096 kB (setting max-bloat)"
    );
    assert!(pause.cause.is_others() && !Cause::Signal.is_others());
}

#[test]
fn niceness_follows_the_batch() {
    let rules = rules(Limits { nice: 2.5, ..Limits::default() });
    assert_eq!(rules.nice(at(0.2)).unwrap().wait, at(0.5));
}

#[test]
fn a_slot_that_bears_little_holds_up_what_writes_by_how_much_that_is() {
    let mut rules = rules(Limits::default());
    let slot = |safe| Slots {
        all: vec![Slot {
            name: "s".into(),
            kind: "logical".into(),
            active: false,
            safe: Some(safe),
            lost: false,
        }],
        kept: 1000 * MB,
        segment: 16 * MB,
    };
    let mut readings = Readings { lsn: 100 * MB, slots: slot(30 * MB), ..Readings::default() };
    let mut cause =
        |readings: &Readings, work| rules.judge(at(0.0), readings, work).map(|pause| pause.cause);
    assert_eq!(cause(&readings, WorkKind::Batch), None);
    assert_eq!(cause(&readings, WorkKind::Rebuild(15 * MB)), Some(Cause::ReplicationSlot));
    readings.dead = 15 * MB;
    assert_eq!(cause(&readings, WorkKind::Vacuum), Some(Cause::ReplicationSlot));
    // batches of 2 MB: 24 MB must remain of 30 MB, so up to 6 MB may be written after the measurement
    for step in 0..3 {
        assert!(!rules.slots_at(100 * MB + step * 2 * MB, &readings, WorkKind::Batch), "{step}");
    }
    assert!(rules.slots_at(107 * MB, &readings, WorkKind::Batch));
    readings.slots = slot(23 * MB);
    let pause = rules.judge(at(0.0), &readings, WorkKind::Batch).unwrap();
    assert!(
        pause.cause.is_others() && pause.text.contains("can tolerate only 23 MB more"),
        "{pause:?}"
    );
    assert_eq!(rules.judge(at(0.0), &readings, WorkKind::Scan), None);
}
