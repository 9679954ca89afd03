//! Values of the sample are timed on the server, and prices fitted to the times.

use std::time::{Duration, Instant};

use super::advisor::Advisor;
use super::calibration::{
    Calibrate, Calibrated, Kept, LEAST_VALUES, asked, chosen, fitted, grouped,
};
use super::candidate::{AdviseError, Variants};
use super::content::Specimen;
use super::result::CalibrationSource;
use crate::server::calibrate::{
    Group, STATEMENT_LIMIT, Subject, identity, refusal, time, too_long,
};
use crate::server::catalog::Relation;
use crate::server::owner_facts::begin_reading;
use crate::server::sink::{Failed, Kind};
use crate::server::snapshot;
use toast_format::model::cost::Pricing;

impl Advisor {
    /// Uses the prices of a file for all columns.
    ///
    /// # Errors
    /// If they are those of another server.
    pub(crate) async fn use_calibration(&self, kept: Kept, file: &str) -> Result<(), Failed> {
        let here = self.connection.reading(async || identity(self.client()).await).await;
        let here = here.map_err(|error| Failed::incomplete(&error))?;
        let Some(why) = kept.refusal(&here, self.major()) else {
            self.calibrations.keep(kept);
            return Ok(());
        };
        let text = format!("calibration file \"{file}\" cannot be used: {why}");
        Err(Failed::new(Kind::Usage, text)
            .hint("Name another file, or remove this one to have toastctl calibrate again."))
    }

    /// The prices to write to the file, once a column has been calibrated.
    pub(crate) fn calibration(&self) -> Option<Kept> {
        self.calibrations.kept()
    }

    /// The prices for each column. Ends the transaction in which the sample was read, and leaves one in which the
    /// temporary tables are.
    pub(super) async fn calibrated(
        &self,
        relation: &Relation,
        variants: &[Variants],
        specimens: &[Vec<Specimen>],
    ) -> Result<Vec<Calibrated>, AdviseError> {
        let mut all = Vec::with_capacity(variants.len());
        for (at, v) in variants.iter().enumerate() {
            let specimens = specimens.get(at).map_or(&[][..], Vec::as_slice);
            let one = match self.options.calibrate {
                Calibrate::Never if self.calibration().is_none() => {
                    Calibrated::none("--calibrate=never")
                }
                _ => self.calibrated_column(relation, v, specimens).await,
            };
            if let (Calibrate::Always, Some(why)) = (self.options.calibrate, &one.report.why) {
                let relation = relation.display_name();
                return Err(AdviseError::NotCalibrated { relation, why: why.clone() });
            }
            all.push(one);
        }
        Ok(all)
    }

    async fn calibrated_column(
        &self,
        relation: &Relation,
        variants: &Variants,
        specimens: &[Specimen],
    ) -> Calibrated {
        if let Some(kept) = self.calibration() {
            return Calibrated::new(kept.pricing, CalibrationSource::File);
        }
        let limit = self.calibrations.left();
        if limit <= STATEMENT_LIMIT {
            return Calibrated::none(too_long());
        }
        let specimens = chosen(specimens);
        if specimens.len() < LEAST_VALUES {
            return Calibrated::none("the sample has too few long values");
        }
        let started = Instant::now();
        let measured = self.measure(relation, variants, &specimens, limit).await;
        self.calibrations.spend(started.elapsed());
        match measured {
            Ok(pricing) => {
                self.keep(pricing).await;
                let mut calibrated = Calibrated::new(pricing, CalibrationSource::Measured);
                calibrated.report.values = specimens.len() as u64;
                calibrated
            }
            Err(why) => Calibrated::none(why),
        }
    }

    /// Keeps prices for the rest of the run if they will be written to a file.
    async fn keep(&self, pricing: Pricing) {
        if !self.options.keeps_calibration {
            return;
        }
        if let Ok(system) = identity(self.client()).await {
            self.calibrations.keep(Kept::new(system, self.major(), pricing));
        }
    }

    /// Times values of a column, and fits prices.
    ///
    /// # Errors
    /// Why that is not possible.
    async fn measure(
        &self,
        relation: &Relation,
        variants: &Variants,
        specimens: &[Specimen],
        limit: Duration,
    ) -> Result<Pricing, String> {
        let client = self.client();
        let page = self.server.page_size;
        let groups = grouped(specimens);
        let asked: Vec<Group> = groups.iter().map(|group| asked(group, page)).collect();
        let subject = Subject {
            table: relation.quoted(),
            column: &variants.name,
            is_array: variants.type_name.ends_with("[]"),
            methods: &variants.methods,
            page,
        };
        if self.server.in_recovery {
            return Err("a standby has no temporary tables".to_owned());
        }
        // Its locks and settings end with it; if that fails the connection is gone, as the next statement will say.
        let _ = snapshot::abandon(client).await;
        let begun = begin_reading(&self.connection, relation, true).await;
        begun.map_err(|error| error.to_string())?;
        if let Some(why) = refusal(client).await.map_err(|error| error.to_string())? {
            return Err(why);
        }
        let timed = time(client, &subject, &asked, limit).await;
        let timed = timed.map_err(|error| error.to_string())?;
        let pricing =
            fitted(&timed, &groups, page).ok_or("the timings vary too much to fit prices")?;
        tracing::debug!("CPU times are fitted to {} values", specimens.len());
        Ok(pricing)
    }

    fn major(&self) -> i32 {
        self.server.version_num / 10_000
    }
}
