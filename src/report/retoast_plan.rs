//! What `retoast --dry-run` expects, as lines.

use std::io::{self, Write};

use super::table::{printable, wrapped};
use super::units::size;
use crate::retoast::plan::Plan;

/// Writes the plan. Its statements are in the JSON form.
pub fn lines(plan: &Plan, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let expected = format!(
        "expected: {} to {} s, {} to {} of WAL, growth of at most {}",
        plan.seconds.low,
        plan.seconds.high,
        size(plan.wal_bytes.low),
        size(plan.wal_bytes.high),
        size(plan.growth_bytes.high)
    );
    writeln!(out, "{}", wrapped(&expected, width, 5))?;
    let parts = [
        ("lock", &plan.locks),
        ("trigger that will fire", &plan.triggers_fire),
        ("trigger that will be silenced", &plan.triggers_silent),
        ("replication", &plan.replication),
        ("serialization", &plan.serialization),
    ];
    for (head, list) in parts {
        for item in list {
            writeln!(out, "{}", wrapped(&format!("{head}: {}", printable(item)), width, 5))?;
        }
    }
    Ok(())
}
