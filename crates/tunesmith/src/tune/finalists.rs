//! The last choice among the best candidates of a task: alone, on fresh data.

use super::progress::Progress;
use super::record;
use super::session::{Pending, Session};
use super::task_search::Ranked;
use crate::error::Result;
use measure::{Spent, TaskData};

/// A finalist is within this factor of the best.
pub const FINAL_FACTOR: f64 = 1.10;
/// Tasks below this share of the model keep their best without a final ranking.
pub const FINAL_SHARE: f64 = 0.01;

impl Session<'_> {
    /// Measures the finalists of the costly tasks alone, on fresh data.
    pub fn rank_finalists(&mut self, progress: &mut Progress) -> Result<()> {
        let total = self.kernels_ns();
        for i in 0..self.searches.len() {
            let s = &self.searches[i];
            let Some(best) = s.best.first().map(|b| b.ns) else {
                continue;
            };
            if best as f64 * (s.uses as f64) < FINAL_SHARE * total {
                continue;
            }
            progress.stage(&format!("ranking the finalists alone: {}", s.title));
            let data = TaskData {
                seed: self.options.seed ^ 0x5eed,
                ..s.data.clone()
            };
            let mut protocol = self.protocol.clone();
            (protocol.min_samples, protocol.max_samples) = (9, 25);
            let near = |b: &Ranked| b.ns as f64 <= FINAL_FACTOR * best as f64;
            let first = s.finalists();
            let candidates: Vec<usize> = (0..s.best.len())
                .filter(|c| *c < first || near(&s.best[*c]))
                .collect();
            for c in candidates {
                let b = &self.searches[i].best[c];
                let (serial, _) = self.local.alone().expect("there is a device");
                let m = serial.measure(&data, &b.built.kernel, &protocol, None, false);
                let p = Pending {
                    task: i,
                    trial: b.trial,
                    point: b.point.clone(),
                    candidate: b.candidate.clone(),
                    trace: schedule::print(&b.candidate.trace),
                    search: Spent::default(),
                };
                let r = self.record(
                    &p,
                    Some(&b.built),
                    m.outcome.clone(),
                    record::cost(Spent::default()),
                    Some(&m),
                    true,
                );
                self.store.append(&[r], &[])?;
                self.note_disturbances([&m])?;
                self.worker_cpu_ns += m.whole.cpu_ns;
                let b = &mut self.searches[i].best[c];
                (b.ns, b.alone) = (m.outcome.median_ns().unwrap_or(u64::MAX), true);
            }
            let s = &mut self.searches[i];
            s.best.retain(|b| b.ns != u64::MAX);
            // As the store orders them.
            s.best
                .sort_by_key(|b| (!b.alone, b.ns, b.built.kernel.code_hash()));
        }
        Ok(())
    }
}
