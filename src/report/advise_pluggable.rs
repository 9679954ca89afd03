//! What the toasters of servers with pluggable TOAST would do, in a paragraph.

use super::units::size;
use crate::advise::result::PluggableReport;

/// More buffers by this part are said to be more.
const DEARER: f64 = 1.05;

/// The paragraph. The reader has a stock server before him as a rule, and learns what each figure is
/// there now.
pub(super) fn text(p: &PluggableReport) -> String {
    let rest = p.values.saturating_sub(p.divided_values);
    let does = match (p.toaster, rest) {
        ("jsonb_toaster", 0) => "would take all of them apart".to_owned(),
        ("jsonb_toaster", _) => {
            format!("would take {} apart and store the rest as now", p.divided_values)
        }
        (_, 0) => "would make all of them appendable".to_owned(),
        _ => format!("would make {} appendable and keep the rest in the row", p.divided_values),
    };
    let (mut reads, change) = match p.toaster {
        "jsonb_toaster" => (
            format!(
                "Reading one key or element would visit {:.1} TOAST buffers (now {:.1}), reading the \
                 whole document {:.1} (now {:.1})",
                p.read_buffers,
                p.read_buffers_today,
                p.whole_read_buffers,
                p.whole_read_buffers_today
            ),
            "changing one key",
        ),
        _ => (
            format!(
                "Reading a value would visit {:.1} TOAST buffers (now {:.1})",
                p.whole_read_buffers, p.whole_read_buffers_today
            ),
            "appending a little",
        ),
    };
    if p.whole_read_buffers > p.whole_read_buffers_today * DEARER {
        reads.push_str(match p.toaster {
            "jsonb_toaster" => ": whole documents become more expensive to read",
            _ => ": values become more expensive to read",
        });
    }
    format!(
        "Estimate for a server with pluggable TOAST, from {} values that are out of line now: {} \
         {does}. An average value would take {} in the row and {} in the TOAST relation (now {} and {}). \
         {reads}; {change} would write {} (now {}).",
        p.values,
        p.toaster,
        size(p.inline_bytes_per_value),
        size(p.toast_bytes_per_value),
        size(p.inline_bytes_per_value_today),
        size(p.toast_bytes_per_value_today),
        size(p.small_update_bytes),
        size(p.small_update_bytes_today)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gets_more_expensive_is_said() {
        let mut report = PluggableReport {
            toaster: "jsonb_toaster",
            estimated: true,
            values: 300,
            divided_values: 280,
            inline_bytes_per_value: 984,
            inline_bytes_per_value_today: 18,
            toast_bytes_per_value: 1343,
            toast_bytes_per_value_today: 5218,
            read_buffers: 0.82,
            read_buffers_today: 3.25,
            whole_read_buffers: 12.57,
            whole_read_buffers_today: 3.25,
            small_update_bytes: 1513,
            small_update_bytes_today: 2833,
        };
        insta::assert_snapshot!(text(&report), @"Estimate for a server with pluggable TOAST, from 300 values that are out of line now: jsonb_toaster would take 280 apart and store the rest as now. An average value would take 984 bytes in the row and 1343 bytes in the TOAST relation (now 18 bytes and 5218 bytes). Reading one key or element would visit 0.8 TOAST buffers (now 3.2), reading the whole document 12.6 (now 3.2): whole documents become more expensive to read; changing one key would write 1513 bytes (now 2833 bytes).");
        report.toaster = "bytea_toaster";
        report.divided_values = 300;
        report.whole_read_buffers = 3.3;
        insta::assert_snapshot!(text(&report), @"Estimate for a server with pluggable TOAST, from 300 values that are out of line now: bytea_toaster would make all of them appendable. An average value would take 984 bytes in the row and 1343 bytes in the TOAST relation (now 18 bytes and 5218 bytes). Reading a value would visit 3.3 TOAST buffers (now 3.2); appending a little would write 1513 bytes (now 2833 bytes).");
    }
}
