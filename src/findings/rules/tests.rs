use super::findings;
use crate::findings::facts::{
    BloatedIndex, DamageFacts, Facts, IdUse, ServerFacts, ToastFacts, ToasterFacts, VALUE_IDS,
};
use crate::findings::finding::Finding;
use crate::findings::look::{Count, Counted, RowFacts};
use crate::findings::targets::TargetFacts;
use crate::server::holders::Holder;
use crate::usage::upkeep::{Threshold, ToastVacuum, Upkeep};
use toast_format::fill::deaths::Deaths;
use toast_format::fill::meter::FileFill;
use toast_format::fill::moves::Expected;
use toast_format::model::{BlocksRead, Interval, Range};

const SERVER: ServerFacts = ServerFacts {
    truncates: true,
    compacts_toast: true,
    rebuilds_indexes: true,
    lz4: false,
    has_toasters: false,
};

fn facts() -> Facts {
    Facts::nothing_found()
}

fn found(facts: &Facts) -> Vec<Finding> {
    findings(facts).findings
}

fn codes(facts: &Facts) -> Vec<&'static str> {
    found(facts).iter().map(|finding| finding.code.name()).collect()
}

fn between(low: f64, high: f64) -> Interval {
    Interval { estimate: (low + high) / 2.0, low, high }
}

/// No server is asked: 2^30 values take over 50 GB of pages even if each is of one byte.
#[test]
fn value_ids_are_told_from_a_fourth_on() {
    let of = |low: f64| Facts { out_of_line: between(low, low * 1.5), ..facts() };
    assert_eq!(codes(&of(1e9)), [""; 0]);
    let given = found(&of(1.1e9));
    assert_eq!((given[0].code.name(), given[0].severity.name()), ("value-ids", "high"));
    assert_eq!(given[0].command, "toastctl advise-threshold public.t");
    assert_eq!(
        given[0].what,
        "in the TOAST relation, 32 % of those that it has IDs for; no setting keeps them in their rows, so only \
         partitions, each with a TOAST relation of its own, would have more"
    );
    let wider = Facts { toast_facts: ToastFacts::default(), ..of(1.1e9) };
    assert_eq!(codes(&wider), [""; 0]);
}

/// A column with a toaster of its own is judged by that toaster alone; rules about storage and compression do not apply.
#[test]
fn values_that_the_columns_toaster_has_not_stored_are_found() {
    let of = |others| {
        let look = RowFacts {
            rows: Interval::exact(2000.0),
            dropped: Interval::default(),
            columns: vec![Counted::of_one(Count::IdleRaw, Interval::exact(6e6))],
            targets: Vec::new(),
        };
        let mut facts = Facts { look: Some(look), ..facts() };
        let name = "bytea toaster".to_owned();
        facts.columns[0].toaster = Some(ToasterFacts { name, others });
        facts
    };
    let given = found(&of(Some((Interval::exact(2000.0), Interval::exact(6e6)))));
    assert_eq!(given.len(), 1);
    assert_eq!((given[0].code.name(), given[0].value), ("older-setting", 6_000_000));
    assert_eq!(given[0].what, "not stored by the column's toaster (bytea toaster)");
    let command = "toastctl retoast public.t --column v --toaster 'bytea toaster'";
    assert_eq!(given[0].command, command);
    assert_eq!(codes(&of(Some((Interval::exact(10.0), Interval::exact(3e4))))), [""; 0]);
    assert_eq!(codes(&of(None)), [""; 0]);
    let stock = Facts { columns: facts().columns, ..of(None) };
    assert_eq!(found(&stock)[0].command, "toastctl advise-threshold public.t --column v");
}

#[test]
fn value_ids_say_how_fast_they_are_used_and_what_would_free_them() {
    let use_of_ids = |net| Some(IdUse { assigned: 5e6, net });
    let toast_facts = |net| ToastFacts {
        ids: Some(VALUE_IDS),
        use_of_ids: use_of_ids(net),
        ..ToastFacts::default()
    };
    let target = |bytes, left: f64| TargetFacts {
        bytes,
        fills_pages: false,
        near: Interval::default(),
        more: Interval::default(),
        short_ends: Vec::new(),
        out_of_line: vec![Interval::exact(left)],
    };
    let look = |left| RowFacts {
        rows: Interval::exact(1e9),
        dropped: Interval::default(),
        columns: vec![Counted::of_one(Count::OutOfLineValues, Interval::exact(1.2e9))],
        targets: vec![target(4080, left)],
    };
    let of = |net, left| {
        let facts = Facts {
            out_of_line: Interval::exact(1.2e9),
            toast_facts: toast_facts(net),
            look: Some(look(left)),
            ..facts()
        };
        found(&facts).remove(0)
    };
    let growing = of(1e6, 1e8);
    assert_eq!(
        growing.what,
        "in the TOAST relation, 28 % of those that it has IDs for; at least 5000000 are assigned a day, and half of \
         all are in use within 947 days; with a target of 4080 most of these values would stay in their rows"
    );
    assert_eq!(
        growing.command,
        "toastctl retoast public.t --column v --toaster extended --target 4080 --compact"
    );
    let few = of(-5.0, 1e9);
    assert!(few.what.contains("at least 5000000 are assigned a day; no setting"), "{}", few.what);
    assert_eq!(few.command, "toastctl advise-threshold public.t");
}

#[test]
fn free_space_of_a_toast_relation_follows_from_the_sizes_of_its_values() {
    let of = |low: u32, high: u32| Facts {
        toast_facts: ToastFacts {
            bytes: 100 << 20,
            spare: Some(between(f64::from(low << 20), f64::from(high << 20))),
            ..ToastFacts::default()
        },
        ..facts()
    };
    // values that are stored as densely as they can be leave up to a fourth of the pages empty
    assert_eq!(codes(&of(30, 60)), [""; 0]);
    let given = found(&of(40, 80));
    assert_eq!((given[0].code.name(), given[0].object.as_deref()), ("free-space", Some("toast")));
    assert_eq!(
        given[0].what,
        "probably free in the TOAST relation's file (estimated from the table's rows)"
    );
    assert_eq!(given[0].command, "toastctl compact public.t --files toast");
    // what pages show for certain is reported alone
    let file = FileFill {
        bytes: 100 << 20,
        drawn: BlocksRead { read: 256, total: 12_800 },
        dead: Interval::default(),
        dead_bytes: Interval::default(),
        deaths: Deaths::default(),
        tuples: Interval::exact(1e6),
        spare: Interval::exact(4e7),
        spare_vacuumed: Interval::exact(4e7),
        compaction: None,
    };
    let certain = found(&Facts { toast: Some(file), ..of(40, 80) });
    assert_eq!(certain.len(), 1);
    assert_eq!(certain[0].what, "free in the TOAST relation's file");
    // a sample of them may leave it in doubt whether it is worth a report
    let in_doubt = |estimate| Facts {
        toast: Some(FileFill { spare: estimate, spare_vacuumed: estimate, ..file }),
        ..facts()
    };
    let likely = found(&in_doubt(Interval { estimate: 6e7, low: 2e7, high: 9e7 }));
    assert_eq!(
        likely[0].what,
        "probably free in the TOAST relation's file (estimated from a sample)"
    );
    assert_eq!(codes(&in_doubt(Interval { estimate: 4e7, low: 2e7, high: 9e7 })), [""; 0]);
    // pages that show otherwise are right
    let full =
        FileFill { spare: Interval::exact(1e6), spare_vacuumed: Interval::exact(1e6), ..file };
    assert_eq!(codes(&Facts { toast: Some(full), ..of(60, 80) }), [""; 0]);
    let toasters = ServerFacts { has_toasters: true, ..SERVER };
    assert_eq!(codes(&Facts { server: toasters, ..of(60, 80) }), [""; 0]);
}

#[test]
fn what_a_sample_leaves_in_doubt_is_not_told() {
    let file = |spare: Interval| FileFill {
        deaths: Deaths::default(),
        bytes: 100 << 20,
        drawn: BlocksRead { read: 256, total: 12_800 },
        dead: Interval::default(),
        dead_bytes: Interval::default(),
        tuples: Interval::exact(1e6),
        spare,
        spare_vacuumed: spare,
        compaction: None,
    };
    let of = |low: u32, high: u32| Facts {
        heap: Some(file(between(f64::from(low << 20), f64::from(high << 20)))),
        ..facts()
    };
    assert_eq!(codes(&of(25, 80)), [""; 0]);
    assert_eq!(codes(&of(35, 80)), ["free-space"]);
    // part of it is dead still, and too little of that to be told alone
    let vacuumed = |low: u32| Facts {
        heap: Some(FileFill {
            dead: Interval::exact(2e5),
            dead_bytes: Interval::exact(2e7),
            spare_vacuumed: between(f64::from(low << 20), f64::from(80 << 20)),
            ..file(between(2e7, 8e7))
        }),
        ..facts()
    };
    assert_eq!(codes(&vacuumed(25)), [""; 0]);
    let given = found(&vacuumed(35));
    assert_eq!((given[0].code.name(), given[0].low), ("free-space", 35 << 20));
    assert_eq!(given[0].what, "free in the table's file after VACUUM has removed dead rows");
    // moving rows would give nothing back
    let never = found(&Facts { server: ServerFacts { truncates: false, ..SERVER }, ..of(35, 80) });
    assert!(never[0].what.contains("old_snapshot_threshold"), "{}", never[0].what);
    assert_eq!(never[0].command, "VACUUM FULL \"public\".\"t\";");
    let dead = |low: f64| Facts {
        toast: Some(FileFill {
            dead: between(low, 5e5),
            dead_bytes: between(low * 1000.0, 5e8),
            ..file(Interval::default())
        }),
        ..facts()
    };
    assert_eq!(codes(&dead(2.4e5)), [""; 0]);
    assert_eq!(codes(&dead(2.6e5)), ["dead-rows"]);
}

/// A file of 100 MB, of which 80 MB are free.
fn mostly_free(compaction: Option<Expected>) -> FileFill {
    let free = Interval::exact(f64::from(80 << 20));
    FileFill {
        deaths: Deaths::default(),
        bytes: 100 << 20,
        drawn: BlocksRead { read: 12_800, total: 12_800 },
        dead: Interval::default(),
        dead_bytes: Interval::default(),
        tuples: Interval::exact(1e6),
        spare: free,
        spare_vacuumed: free,
        compaction,
    }
}

/// Each row that moves has new entries in GIN indexes.
#[test]
fn where_gin_indexes_may_grow_by_half_of_what_compaction_returns_they_are_rebuilt_too() {
    let of = |gin_growth| {
        let expected = Expected {
            gives_back: 80 << 20,
            rows: Some(1000),
            values: None,
            moved_bytes: 1 << 20,
            wal_bytes: Range { low: 1 << 20, high: 2 << 20 },
            gin_growth,
            estimated: false,
        };
        let heap = mostly_free(Some(expected));
        let facts = Facts { heap: Some(heap), bytes: 100 << 20, ..facts() };
        found(&facts)[0].command.clone()
    };
    assert_eq!(of(39 << 20), "toastctl compact public.t --files heap");
    assert_eq!(of(40 << 20), "toastctl compact public.t --files heap --reindex=all");
}

/// Compaction is refused there, and VACUUM FULL damages values.
#[test]
fn nothing_is_told_for_which_a_server_with_pluggable_toast_has_no_cure() {
    let free = Interval::exact(f64::from(80 << 20));
    let file = mostly_free(None);
    let rows = Interval::exact(1e6);
    let look = RowFacts { rows, dropped: free, columns: Vec::new(), targets: Vec::new() };
    let stock = Facts {
        heap: Some(file),
        toast: Some(file),
        look: Some(look),
        bytes: 200 << 20,
        ..facts()
    };
    assert_eq!(codes(&stock), ["free-space", "free-space", "dropped-column"]);
    assert_eq!(
        codes(&Facts { server: ServerFacts { has_toasters: true, ..SERVER }, ..stock }),
        [""; 0]
    );
}

#[test]
fn damage_that_was_met_comes_first() {
    let damage = DamageFacts { missing_chunks: 3, places: 0 };
    let given = found(&Facts { damage, out_of_line: Interval::exact(2e9), ..facts() });
    assert_eq!(given[0].code.name(), "damage");
    assert_eq!(given[0].what, "chunks are missing (at least 3)");
    assert_eq!(given[0].command, "toastctl check public.t");
    assert_eq!(given[1].code.name(), "value-ids");
}

#[test]
fn no_vacuum_full_is_printed_while_somebody_holds_rows_back() {
    let server = ServerFacts { compacts_toast: false, ..SERVER };
    let spare = Some(Interval::exact(8e7));
    let toast_facts = ToastFacts { bytes: 100 << 20, spare, ..ToastFacts::default() };
    let free = Facts { server, toast_facts, ..facts() };
    assert_eq!(found(&free)[0].command, "VACUUM FULL \"public\".\"t\";");
    for is_lasting in [false, true] {
        let horizon = Some(Holder { horizon: 700, who: "session 42".into(), is_lasting });
        let finding = &found(&Facts { horizon, ..free.clone() })[0];
        assert_eq!(finding.command.is_empty(), is_lasting);
        assert_eq!(finding.what.contains("once session 42 has ended"), is_lasting);
    }
}

#[test]
fn an_index_that_reindex_would_leave_is_given_no_command() {
    let left = Some("it is large");
    let bloated = BloatedIndex { name: "i".into(), bytes: 90 << 20, fresh: 20 << 20, wal: 0, left };
    let finding = &found(&Facts { bloated: vec![bloated], ..facts() })[0];
    assert_eq!((finding.code.name(), finding.command.as_str()), ("bloated-index", ""));
    assert!(finding.what.ends_with("leaves it as it is: it is large"), "{}", finding.what);
}

#[test]
fn no_rebuild_is_advised_on_servers_where_it_may_miss_rows() {
    let bloated = BloatedIndex { name: "i".into(), bytes: 9 << 20, fresh: 0, wal: 0, left: None };
    let facts = Facts { bloated: vec![bloated], ..facts() };
    assert_eq!(found(&facts)[0].command, "toastctl reindex public.t");
    let server = ServerFacts { rebuilds_indexes: false, ..SERVER };
    let finding = &found(&Facts { server, ..facts })[0];
    assert_eq!((finding.code.name(), finding.command.as_str()), ("bloated-index", ""));
    assert!(finding.what.contains("before PostgreSQL 14.4"), "{}", finding.what);
}

#[test]
fn the_worst_comes_first_and_then_what_is_most() {
    let index = |name: &str, bytes: u64| BloatedIndex {
        name: name.into(),
        bytes,
        fresh: 0,
        wal: 0,
        left: None,
    };
    let mut facts = Facts { target: Some(2032), out_of_line: Interval::exact(2e9), ..facts() };
    facts.bloated = vec![index("small", 2 << 20), index("tiny", 1 << 19), index("large", 9 << 20)];
    let given = found(&facts);
    let given: Vec<_> = given.iter().map(|one| (one.code.name(), one.object.as_deref())).collect();
    assert_eq!(
        given,
        [
            ("value-ids", None),
            ("bloated-index", Some("large")),
            ("bloated-index", Some("small")),
            ("unused-setting", None),
        ]
    );
}

/// A TOAST relation of 4 GB, vacuumed 10 times in 10 days, each time after this many chunks were deleted.
fn vacuumed(threshold: Threshold, each: f64) -> Facts {
    let vacuum = ToastVacuum {
        threshold,
        chunks: 2e6,
        deleted: each * 10.0,
        vacuums: 10.0,
        last: "2026-11-25 10:00".into(),
        age: 864_000.0,
        inherited: vec!["autovacuum_vacuum_cost_delay=5".into()],
    };
    let upkeep = Upkeep { vacuum: Some(vacuum), full_identity: None };
    Facts { toast_facts: ToastFacts { bytes: 4 << 30, upkeep, ..ToastFacts::default() }, ..facts() }
}

#[test]
fn the_threshold_that_is_advised_keeps_what_the_table_has_set_and_a_distance() {
    let default = Threshold { base: 50.0, scale: 0.2, most: None };
    let given = found(&vacuumed(default, 420_000.0));
    assert_eq!(given.iter().map(|one| one.code.name()).collect::<Vec<_>>(), ["late-vacuum"]);
    assert_eq!(
        given[0].command,
        "ALTER TABLE \"public\".\"t\" SET (toast.autovacuum_vacuum_scale_factor = 0.05, \
         toast.autovacuum_vacuum_threshold = 2917, toast.autovacuum_vacuum_cost_delay = 5);"
    );
    assert_eq!(
        given[0].what,
        "of dead chunks in the TOAST relation could be removed earlier: a vacuum starts at 400050 dead chunks (20 % of \
         the live ones), on average every 22.9 hours (the last one was at 2026-11-25 10:00); it would start at 102917 \
         (5 %), every 5.9 hours, each time reading the index of the TOAST relation"
    );
    // chunks are deleted so fast that it would start every few minutes, or all at once
    let vacuum = |facts: &mut Facts, change: fn(&mut ToastVacuum)| {
        facts.toast_facts.upkeep.vacuum.iter_mut().for_each(change);
    };
    let mut fast = vacuumed(default, 420_000.0);
    vacuum(&mut fast, |vacuum| vacuum.age = 12_000.0);
    assert_eq!(codes(&fast), [""; 0]);
    assert_eq!(codes(&vacuumed(default, 1_300_000.0)), [""; 0]);
    // vacuums come earlier anyhow, are few, or there is a maximum
    assert_eq!(codes(&vacuumed(default, 150_000.0)), [""; 0]);
    let mut few = vacuumed(default, 420_000.0);
    vacuum(&mut few, |vacuum| (vacuum.deleted, vacuum.vacuums) = (420_000.0, 1.0));
    assert_eq!(codes(&few), [""; 0]);
    let capped = Threshold { most: Some(150_000.0), ..default };
    assert_eq!(codes(&vacuumed(capped, 150_000.0)), [""; 0]);
}
