//! `study measure --model`: what a model of devices predicts.

use super::MeasureArgs;
use crate::cli::table::Table;
use crate::cli::{print_json, print_line, print_text};
use measure::Policy;
use serde::Serialize;
use study::model::{MEASURING, PAPER, PARAMETERS, Parameters, Prediction, predict};
use tune::Result;

/// Candidates of a prediction.
const PREDICTED: usize = 10_000;

/// Predictions beside the two baselines under the same conditions.
#[derive(Serialize)]
struct Row {
    /// What was varied, and to what.
    varied: String,
    #[serde(flatten)]
    prediction: Prediction,
    /// Changes of the time of measuring, in per cent.
    against_serial_spawn: f64,
    against_serial: f64,
    /// Change of all tuning time against serial-spawn, if nothing else of it
    /// takes less.
    of_tuning: f64,
}

fn row(varied: String, policy: Policy, max_dp: u32, p: Parameters, a: &MeasureArgs) -> Row {
    let candidates = a.candidates.unwrap_or(PREDICTED);
    let of = |policy, max_dp| predict(policy, max_dp, p, candidates, a.seed);
    let prediction = of(policy, max_dp);
    let change = |base: Policy| 100.0 * (prediction.seconds / of(base, 1).seconds - 1.0);
    let against_serial_spawn = change(Policy::SerialSpawn);
    Row {
        varied,
        against_serial_spawn,
        of_tuning: MEASURING * against_serial_spawn,
        against_serial: change(Policy::Serial),
        prediction,
    }
}

/// One condition after the other, the rest as in the paper.
fn rows(a: &MeasureArgs) -> Vec<Row> {
    let mut rows = Vec::new();
    for dp in [1, 2, 4, 8, 16, 32, 64] {
        for policy in [Policy::Naive, Policy::Doppler] {
            rows.push(row(format!("DP {dp}"), policy, dp, PAPER, a));
        }
    }
    for devices in [1, 2, 4, 8] {
        let p = Parameters { devices, ..PAPER };
        rows.push(row(format!("{devices} devices"), Policy::Doppler, 64, p, a));
    }
    for cpus in [1, 2, 4, 8, 16] {
        let kernel_s = 0.1 * PAPER.kernel_s;
        let p = Parameters {
            cpus,
            kernel_s,
            devices: 8,
            ..PAPER
        };
        let varied = format!("{cpus} CPUs, 8 devices, kernels x 0.1");
        rows.push(row(varied, Policy::Doppler, 64, p, a));
    }
    for size in [0.1, 0.3, 1.0, 3.0, 10.0] {
        let p = Parameters {
            kernel_s: size * PAPER.kernel_s,
            ..PAPER
        };
        rows.push(row(format!("kernels x {size}"), Policy::Doppler, 64, p, a));
    }
    for contention in [0.0005, 0.001, 0.005, 0.02] {
        let p = Parameters {
            contention,
            ..PAPER
        };
        let varied = format!("contention {contention}");
        rows.push(row(varied, Policy::Doppler, 64, p, a));
    }
    for parameter in PARAMETERS {
        for factor in [0.5, 2.0] {
            let mut p = PAPER;
            (parameter.set)(&mut p, factor * (parameter.get)(&PAPER));
            let varied = format!("{} x {factor}", parameter.name);
            rows.push(row(varied, Policy::Doppler, 64, p, a));
        }
    }
    rows
}

pub fn run(a: &MeasureArgs) -> Result<()> {
    let rows = rows(a);
    if a.json {
        let parameters: Vec<_> = PARAMETERS
            .iter()
            .map(|p| {
                serde_json::json!({
                    "name": p.name, "value": (p.get)(&PAPER), "doc": p.doc, "source": p.source,
                })
            })
            .collect();
        print_json(&serde_json::json!({
            "kind": "modelled", "parameters": parameters, "rows": rows,
        }))?;
        return Ok(());
    }
    print_modelled(&rows)
}

fn print_modelled(rows: &[Row]) -> Result<()> {
    print_line("modelled, not measured; each row varies one condition\n")?;
    let mut t = Table::new(&["parameter", "value", "meaning", "source"]);
    for p in PARAMETERS {
        let value = format!("{:.3}", (p.get)(&PAPER));
        t.row(vec![p.name.into(), value, p.doc.into(), p.source.into()]);
    }
    t.print()?;
    print_text("\n")?;
    let mut t = Table::new(&[
        "varied",
        "policy",
        "s a candidate",
        "against serial-spawn",
        "of all tuning",
        "against serial",
        "mean DP",
        "CPUs busy",
        "devices busy",
        "timed out",
    ]);
    for r in rows {
        let p = &r.prediction;
        t.row(vec![
            r.varied.clone(),
            p.policy.name().into(),
            format!("{:.4}", p.seconds / p.candidates.max(1) as f64),
            format!("{:+.1}%", r.against_serial_spawn),
            format!("{:+.1}%", r.of_tuning),
            format!("{:+.1}%", r.against_serial),
            p.mean_dp.map_or("-".into(), |dp| format!("{dp:.1}")),
            format!("{:.0}%", 100.0 * p.cpu_busy),
            format!("{:.0}%", 100.0 * p.device_busy),
            p.timed_out.to_string(),
        ]);
    }
    t.print()?;
    print_line(
        "\nThe paper measured -50.5% of all tuning time against serial-spawn over all of its \
         programs, and -32.4% for large ones.\nRows in which candidates \
         time out measure fewer candidates: do not compare their times with others.",
    )?;
    Ok(())
}
