use super::*;

fn row(block: u32) -> Piece {
    let ctid = ItemPointer { block: BlockNumber(block), item: 1 };
    Piece { ctid, rows: 1, bytes: 2_000, versions: 100, ..Piece::default() }
}

fn machine(versions: Option<u64>) -> Rounds {
    let pace = Pace::new(Duration::from_millis(100), 1 << 20);
    Rounds::new(pace, versions)
}

fn layout(blocks: u32, end: u32) -> Layout {
    Layout { blocks, last: blocks, end, least_end: end }
}

fn note(machine: &mut Rounds, event: Event) -> Action {
    machine.note(event, 0.5);
    machine.next_action()
}

fn moved(rows: u64) -> Event {
    Event::Moved { rows, stayed: 0, took: Duration::from_millis(10) }
}

/// A machine that has looked and vacuumed: 1,000 blocks, of which 500 would suffice.
fn begun(versions: Option<u64>) -> Rounds {
    let mut machine = machine(versions);
    assert_eq!(machine.next_action(), Action::Look);
    assert_eq!(note(&mut machine, Event::Looked(layout(1000, 500))), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Vacuumed(1000)), Action::Find(500));
    machine
}

fn found(numbers: &[u32], last: u32) -> Event {
    Event::Found { pieces: numbers.iter().map(|&n| row(n)).collect(), last, all: true }
}

#[test]
fn where_nothing_is_to_spare_it_only_looks() {
    let mut machine = machine(None);
    assert_eq!(machine.next_action(), Action::Look);
    let end = note(&mut machine, Event::Looked(layout(1000, 985)));
    assert_eq!((end, machine.counts.rounds), (Action::Finish(FileEnd::Compact), 0));
}

#[test]
fn where_the_first_vacuum_has_truncated_enough_it_looks_again() {
    let mut machine = machine(None);
    machine.next_action();
    assert_eq!(note(&mut machine, Event::Looked(layout(1000, 500))), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Vacuumed(505)), Action::Look);
    let end = note(&mut machine, Event::Looked(layout(505, 500)));
    assert_eq!((end, machine.counts.rounds), (Action::Finish(FileEnd::Compact), 0));
}

#[test]
fn a_round_moves_what_stands_behind_the_end_then_vacuums_and_looks() {
    let mut machine = begun(None);
    assert_eq!(note(&mut machine, found(&[9, 8], 1000)), Action::Move(vec![row(9), row(8)]));
    assert_eq!(note(&mut machine, moved(2)), Action::Find(500));
    assert_eq!(note(&mut machine, found(&[], 500)), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Vacuumed(505)), Action::Look);
    let end = note(&mut machine, Event::Looked(layout(505, 500)));
    assert_eq!((end, machine.counts.rounds), (Action::Finish(FileEnd::Compact), 1));
    assert_eq!(machine.rows_left(), 0);
}

#[test]
fn locked_rows_are_tried_again_then_left_and_told() {
    let mut machine = begun(None);
    let mut action = note(&mut machine, found(&[9], 1000));
    for _ in 0..100 {
        action = match action {
            Action::Move(_) => note(&mut machine, moved(0)),
            Action::Find(_) => note(&mut machine, found(&[9], 1000)),
            Action::Sleep(_, why) => {
                assert_eq!(why, Wait::RowsToMoveLocked);
                machine.next_action()
            }
            Action::Shrink => break,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(action, Action::Shrink);
    // the row is in the last block: nothing can be truncated, so there is no wait
    assert_eq!(note(&mut machine, Event::Vacuumed(1000)), Action::Look);
    assert_eq!(note(&mut machine, Event::Looked(layout(1000, 500))), Action::Find(500));
    let end = note(&mut machine, found(&[9], 1000));
    assert_eq!((end, machine.rows_left()), (Action::Finish(FileEnd::GainedTooLittle), 1));
}

#[test]
fn a_refused_batch_is_halved_and_what_is_refused_alone_is_not_tried_again() {
    let mut machine = begun(None);
    note(&mut machine, found(&[3, 2, 1], 1000));
    assert_eq!(machine.position(), (3, 3));
    assert_eq!(note(&mut machine, Event::Refused), Action::Move(vec![row(3)]));
    assert_eq!(machine.position(), (1, 3));
    assert_eq!(note(&mut machine, Event::Refused), Action::Move(vec![row(2), row(1)]));
    assert_eq!(note(&mut machine, moved(2)), Action::Find(500));
    assert_eq!(note(&mut machine, found(&[3], 1000)), Action::Shrink);
}

#[test]
fn without_the_lock_to_truncate_it_vacuums_again_some_times() {
    let mut machine = begun(None);
    assert_eq!(note(&mut machine, found(&[], 500)), Action::Shrink);
    let mut vacuums = 0;
    let mut action = Action::Shrink;
    while action == Action::Shrink {
        vacuums += 1;
        action = note(&mut machine, Event::Vacuumed(1000));
        if let Action::Sleep(_, why) = action {
            assert_eq!(why, Wait::Truncation);
            action = machine.next_action();
        }
    }
    assert_eq!((vacuums, action), (SHRINKS, Action::Look));
    let looked = Event::Looked(Layout { blocks: 1000, last: 500, end: 500, least_end: 500 });
    assert_eq!(note(&mut machine, looked), Action::Find(500));
    assert_eq!(note(&mut machine, found(&[], 500)), Action::Finish(FileEnd::GainedTooLittle));
}

#[test]
fn little_at_the_very_end_that_stands_in_the_way_of_a_lot_is_moved_by_another_round() {
    let mut machine = begun(None);
    note(&mut machine, found(&[9, 8, 7, 6], 1000));
    assert_eq!(note(&mut machine, moved(4)), Action::Find(500));
    // it was moved but found no room in front
    assert_eq!(note(&mut machine, found(&[], 1000)), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Vacuumed(1000)), Action::Look);
    assert_eq!(note(&mut machine, Event::Looked(layout(1000, 500))), Action::Find(500));
    assert_eq!(note(&mut machine, found(&[1], 1000)), Action::Move(vec![row(1)]));
    assert_eq!(machine.counts.rounds, 2);
}

#[test]
fn a_lock_timeout_is_waited_out() {
    let mut machine = begun(None);
    note(&mut machine, found(&[1], 1000));
    assert_eq!(
        note(&mut machine, Event::Busy),
        Action::Sleep(Duration::from_millis(100), Wait::LockTimeout)
    );
    assert_eq!(machine.next_action(), Action::Move(vec![row(1)]));
    assert_eq!(machine.counts.retries, 1);
}

#[test]
fn the_table_is_vacuumed_alone_once_enough_of_it_is_old() {
    let mut machine = begun(Some(150));
    let many: Vec<u32> = (0..2_000).collect();
    let Action::Move(first) = note(&mut machine, found(&many, 1000)) else { panic!() };
    assert!(first.len() >= 2);
    assert_eq!(note(&mut machine, moved(2)), Action::VacuumRows);
    assert!(matches!(note(&mut machine, Event::Vacuumed(1000)), Action::Move(_)));
}

#[test]
fn without_room_in_front_the_round_ends_and_a_stop_ends_all() {
    let mut machine = begun(None);
    note(&mut machine, found(&[1], 1000));
    assert_eq!(note(&mut machine, Event::NoRoom), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Stop), Action::Finish(FileEnd::Stopped));
}

#[test]
fn of_too_much_a_part_is_moved_and_the_next_round_goes_on() {
    let mut machine = begun(None);
    let part = Event::Found { pieces: vec![row(9)], last: 1000, all: false };
    assert_eq!(note(&mut machine, part.clone()), Action::Move(vec![row(9)]));
    assert_eq!(note(&mut machine, moved(1)), Action::Find(500));
    assert_eq!(note(&mut machine, part), Action::Shrink);
    machine.note(Event::Vacuumed(990), 0.5);
    while let Action::Sleep(..) = machine.next_action() {
        machine.note(Event::Vacuumed(990), 0.5);
    }
    assert_eq!(note(&mut machine, Event::Looked(layout(990, 500))), Action::Find(500));
    assert_eq!(machine.counts.rounds, 2);
}

/// Carries on until the machine looks again; whatever it finds behind the end finds no room. Returns the ends that
/// were requested.
fn without_room(machine: &mut Rounds, mut action: Action, blocks: u32) -> (Vec<u32>, Action) {
    let mut ends = Vec::new();
    for _ in 0..100 {
        action = match action {
            Action::Find(end) => {
                ends.push(end);
                note(machine, found(&[9], blocks))
            }
            Action::Move(_) => note(machine, Event::NoRoom),
            Action::Shrink => note(machine, Event::Vacuumed(blocks)),
            Action::Look | Action::Finish(_) => return (ends, action),
            other => panic!("{other:?}"),
        };
    }
    panic!("{ends:?}")
}

#[test]
fn a_round_without_room_is_followed_by_some_that_want_less_and_then_there_is_none() {
    let mut machine = begun(None);
    let mut ends = Vec::new();
    let mut action = Action::Find(500);
    let end = loop {
        let (some, then) = without_room(&mut machine, action, 1000);
        ends.extend(some);
        match then {
            Action::Look => action = note(&mut machine, Event::Looked(layout(1000, 500))),
            Action::Finish(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    // each round is decided by what is behind the end of the one before; 62 blocks are the minimum that VACUUM
    // truncates
    assert_eq!((ends, end), (vec![500, 500, 875, 875, 938, 938], FileEnd::NoRoom));
}

#[test]
fn rows_of_others_at_the_end_are_in_the_way_and_no_proof() {
    let mut machine = begun(None);
    let mut action = Action::Find(500);
    let end = loop {
        machine.obstacles.of_others = 1;
        match without_room(&mut machine, action, 1000).1 {
            Action::Look => action = note(&mut machine, Event::Looked(layout(1000, 500))),
            Action::Finish(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((end, machine.obstacles.of_others), (FileEnd::GainedTooLittle, 1));
}

#[test]
fn what_is_not_known_is_tried_with_the_least_and_then_more() {
    let mut machine = machine(None);
    let doubtful = |blocks| Event::Looked(Layout { least_end: 100, ..layout(blocks, blocks) });
    machine.next_action();
    assert_eq!(note(&mut machine, doubtful(1000)), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Vacuumed(1000)), Action::Find(938));
    assert_eq!(note(&mut machine, found(&[9], 1000)), Action::Move(vec![row(9)]));
    assert_eq!(note(&mut machine, moved(1)), Action::Find(938));
    assert_eq!(note(&mut machine, found(&[], 938)), Action::Shrink);
    assert_eq!(note(&mut machine, Event::Vacuumed(938)), Action::Look);
    let Action::Find(next) = note(&mut machine, doubtful(938)) else { panic!() };
    assert!((800..830).contains(&next), "{next}");
}

#[test]
fn rows_that_stay_are_not_called_locked() {
    let stayed = |stayed| Event::Moved { rows: 0, stayed, took: Duration::from_millis(1) };
    let mut machine = begun(None);
    note(&mut machine, found(&[9, 8], 1000));
    assert_eq!(note(&mut machine, stayed(1)), Action::Find(500));
    let wait = note(&mut machine, found(&[9, 8], 1000));
    assert!(matches!(wait, Action::Sleep(_, Wait::RowsToMoveLocked)), "{wait:?}");
    assert_eq!(machine.next_action(), Action::Move(vec![row(9), row(8)]));
    assert_eq!(note(&mut machine, stayed(2)), Action::Find(500));
    assert_eq!((machine.rows_left(), machine.rows_locked()), (2, 0));
    // no other session has them locked, so there is no wait
    let again = note(&mut machine, found(&[9, 8], 1000));
    assert_eq!(again, Action::Move(vec![row(9), row(8)]));
}
