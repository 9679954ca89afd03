//! What `retoast --dry-run` expects, as lines.

use std::io::{self, Write};

use super::table::printable;
use super::units::size;
use crate::retoast::plan::Plan;

/// Writes the plan.
pub fn lines(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "expected: {} to {} s, {} to {} of WAL, growth of at most {}",
        plan.seconds.low,
        plan.seconds.high,
        size(plan.wal_bytes.low),
        size(plan.wal_bytes.high),
        size(plan.growth_bytes.high)
    )?;
    let parts = [
        ("lock", &plan.locks),
        ("trigger that will fire", &plan.triggers_fire),
        ("trigger that will be silenced", &plan.triggers_silent),
        ("replication", &plan.replication),
        ("serialization", &plan.serialization),
        ("statement", &plan.statements),
    ];
    for (head, list) in parts {
        for item in list {
            writeln!(out, "{head}: {}", printable(item))?;
        }
    }
    Ok(())
}
