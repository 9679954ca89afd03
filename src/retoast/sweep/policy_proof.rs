//! What a scan by a policy answers for.

use super::error::RunError;
use super::machine::Machine;
use super::policy_state::RuleScan;
use super::table::Sweep;
use crate::retoast::memory::since::CutOff;
use crate::retoast::memory::standing;
use crate::retoast::result::TableReport;

impl Sweep<'_> {
    /// With a policy, what the scan that begins now answers for. Those after the second answer for what
    /// the second does: rows that came later are not looked at.
    pub(super) async fn begin_proof(
        &self,
        machine: &Machine,
        by_rule: &mut RuleScan<'_>,
        report: &mut TableReport,
    ) -> Result<(), RunError> {
        by_rule.written_since = 0;
        if self.ready.judge.new_values_comply() || by_rule.cut_off.is_some() {
            return Ok(());
        }
        let now = standing::ask(self.writer.client(), self.ready).await?;
        if machine.is_cut_off() {
            by_rule.cut_off = Some(CutOff::at(&now));
        }
        report.horizon = Some(now.xmin);
        report.proof = Some(now);
        Ok(())
    }
}
