//! `bench`: what is said of latencies, as JSON, as lines, and as a table.

use super::bench_compare::Compared;
use super::bench_energy::InferenceEnergy;
use super::bench_online::{self, OnlineSummary};
use super::compile::Written;
use super::table::{Table, counted, ms, or_unknown};
use serde::Serialize;
use std::time::Duration;
use tune::Result;
use tune::latency::Latencies;

/// A distribution of latencies.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub runs: usize,
    pub mean_ms: f64,
    pub median_ms: f64,
    pub min_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub inferences_per_s: f64,
    /// Rows of the batch; none where the model does not tell how many an inference has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
}

impl Figures {
    /// Of inferences that took so long together.
    pub fn new(l: &Latencies, wall: Duration, batch: Option<usize>) -> Figures {
        let runs = l.samples_ns.len();
        let sum: u64 = l.samples_ns.iter().sum();
        let inferences_per_s = runs as f64 / wall.as_secs_f64();
        Figures {
            runs,
            mean_ms: sum as f64 / runs as f64 / 1e6,
            median_ms: l.median_ms(),
            min_ms: l.min_ms(),
            p90_ms: l.p90_ms(),
            p99_ms: l.p99_ms(),
            inferences_per_s,
            rows_per_s: batch.map(|n| n as f64 * inferences_per_s),
        }
    }

    /// Of inferences that ran one after the other.
    pub fn in_turn(l: &Latencies, batch: Option<usize>) -> Figures {
        let wall = Duration::from_nanos(l.samples_ns.iter().sum());
        Figures::new(l, wall, batch)
    }

    fn milliseconds(&self) -> [String; 5] {
        let all = [
            self.median_ms,
            self.mean_ms,
            self.min_ms,
            self.p90_ms,
            self.p99_ms,
        ];
        all.map(|v| ms(Some(v)))
    }

    fn latencies_text(&self) -> String {
        let [median, mean, min, p90, p99] = self.milliseconds();
        format!(
            "median {median} ms, mean {mean} ms, min {min} ms, 90th percentile {p90} ms, 99th {p99} ms"
        )
    }

    fn throughput_text(&self) -> String {
        let rows = self
            .rows_per_s
            .map_or(String::new(), |n| format!(", {} rows/s", rate(n)));
        format!("{} inferences/s{rows}", rate(self.inferences_per_s))
    }

    fn cells(&self, rows: bool, joules: Option<String>) -> Vec<String> {
        let mut cells = self.milliseconds().to_vec();
        cells.push(rate(self.inferences_per_s));
        cells.extend(rows.then(|| self.rows_per_s.map_or("-".into(), rate)));
        cells.extend(joules);
        cells.push(self.runs.to_string());
        cells
    }
}

/// A rate with at least three digits.
fn rate(v: f64) -> String {
    match v {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 1000.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// What was measured of one variant.
#[derive(Serialize)]
pub struct Summary {
    pub model: String,
    /// Of the variant, such as `batch=1 seq=32`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sizes: String,
    /// Of each stream.
    pub threads: usize,
    /// How exact the model says to be; empty if it does not say.
    pub accuracy: String,
    /// Of all streams together.
    #[serde(flatten)]
    pub figures: Figures,
    /// Of each stream, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Figures>,
    /// How far apart the threads' CPUs were: `doctor` says what it means.
    pub exchange_ns: Option<f64>,
    /// Of one inference of all streams; none where other things ran in turns with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<InferenceEnergy>,
    /// What choosing among alternatives brought, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<OnlineSummary>,
    /// What another program took for the same model, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// The model without the alternatives that lost, if that was asked for and it is the only variant.
    #[serde(flatten)]
    pub written: Option<Written>,
}

impl Summary {
    fn title(&self) -> String {
        match self.sizes.as_str() {
            "" => self.model.clone(),
            sizes => format!("{} {sizes}", self.model),
        }
    }

    fn settings_text(&self) -> String {
        format!(
            "{}, accuracy {}",
            counted(self.threads as u32, "thread"),
            or_unknown(&self.accuracy)
        )
    }
}

/// Prints all that was measured: a table, or lines where there is one row only.
pub fn print(all: &[Summary]) -> Result<()> {
    let several = |s: &Summary| !s.streams.is_empty() || s.compared.is_some();
    match all {
        [one] if !several(one) => print_lines(one)?,
        all => print_table(all)?,
    }
    if let Some(energy) = all.iter().find_map(|s| s.energy.as_ref()) {
        for line in energy.notes(all.len() == 1).lines() {
            super::print_line(line)?;
        }
    }
    for s in all {
        if let Some(online) = &s.online {
            if all.len() > 1 {
                super::print_line(&s.title())?;
            }
            super::print_text(&bench_online::text(online))?;
        }
        if let Some(compared) = &s.compared {
            super::print_line(&compared.text(&s.figures, &s.sizes))?;
        }
    }
    Ok(())
}

fn print_lines(s: &Summary) -> Result<()> {
    super::print_line(&format!("{}: {}", s.title(), s.figures.latencies_text()))?;
    super::print_line(&format!(
        "{} ({} runs, {})",
        s.figures.throughput_text(),
        s.figures.runs,
        s.settings_text()
    ))
}

fn print_table(all: &[Summary]) -> Result<()> {
    let Some(first) = all.first() else {
        return Ok(());
    };
    let rows = all.iter().any(|s| s.figures.rows_per_s.is_some());
    let mut header = vec!["", "median ms", "mean", "min", "p90", "p99", "inferences/s"];
    header.extend(rows.then_some("rows/s"));
    let counted = all.iter().find_map(|s| s.energy.as_ref());
    header.extend(counted.map(InferenceEnergy::heading));
    let no_joules = counted.map(|_| "-".to_string());
    header.push("runs");
    let mut t = Table::new(&header).dispensable(&["mean", "runs", "min", "p90"]);
    for s in all {
        let sizes = match (s.sizes.as_str(), s.streams.len(), &s.compared) {
            (sizes, 0, None) => sizes.to_string(),
            ("", 0, Some(_)) => "tunesmith".into(),
            (sizes, 0, Some(_)) => format!("{sizes} tunesmith"),
            ("", n, _) => format!("{n} streams"),
            (sizes, n, _) => format!("{sizes} {n} streams"),
        };
        let joules = s.energy.as_ref().map(InferenceEnergy::cell);
        let joules = joules.or_else(|| no_joules.clone());
        t.row([vec![sizes], s.figures.cells(rows, joules)].concat());
        for (i, stream) in s.streams.iter().enumerate() {
            let name = format!("  stream {}", i + 1);
            t.row([vec![name], stream.cells(rows, no_joules.clone())].concat());
        }
        if let Some(c) = &s.compared {
            let name = format!("  {}", c.program);
            t.row([vec![name], c.figures.cells(rows, no_joules.clone())].concat());
        }
    }
    super::print_line(&format!("{}: {}", first.model, first.settings_text()))?;
    t.print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_counts_what_ran_at_once() {
        let samples_ns = vec![2_000_000; 10];
        let l = Latencies { samples_ns };
        // Two streams: ten inferences of 2 ms in 10 ms.
        let both = Figures::new(&l, Duration::from_millis(10), Some(8));
        assert!((both.inferences_per_s - 1000.0).abs() < 1e-6);
        assert!((both.rows_per_s.unwrap_or(0.0) - 8000.0).abs() < 1e-6);
        let one = Figures::in_turn(&l, None);
        assert!((one.inferences_per_s - 500.0).abs() < 1e-6);
        assert_eq!((one.mean_ms, one.p99_ms, one.rows_per_s), (2.0, 2.0, None));
    }

    #[test]
    fn rates_have_three_digits() {
        assert_eq!([0.5, 80.94, 12_345.6].map(rate), ["0.50", "80.9", "12346"]);
    }
}
