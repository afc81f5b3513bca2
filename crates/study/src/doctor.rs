//! What `doctor --json` says of a machine, as limits that scores are made of.

use analysis::Limits;
use ir::{CpuTarget, Isa};
use search::STARTS_A_CYCLE;
use serde::Deserialize;
use tune::ceiling::Ceiling;
use tune::machine::Machine;
use tune::{Error, Result};

/// A machine's limits, and its name for people.
#[derive(Clone, Debug)]
pub struct Measured {
    pub name: String,
    pub limits: Limits,
}

#[derive(Deserialize)]
struct Doctor {
    cpu: String,
    target: String,
    ceilings: Vec<Ceilings>,
}

#[derive(Deserialize)]
struct Ceilings {
    threads: usize,
    peak_gflops: f64,
    levels: Vec<Level>,
    fork_join: ForkJoin,
}

#[derive(Deserialize)]
struct Level {
    name: String,
    gb_per_s: f64,
}

#[derive(Deserialize)]
struct ForkJoin {
    awake_us: f64,
}

/// Of one thread, and what a parallel loop of several takes.
fn limits(isa: Isa, peak_gflops: f64, levels: &[(&str, f64)], fork_us: f64) -> Result<Limits> {
    let vector_bits = f64::from(CpuTarget::generic(isa).vector_bits);
    // The clock while all units multiply and add, of which a cycle starts as many everywhere as here.
    let per_cycle = 2.0 * vector_bits / 32.0 * STARTS_A_CYCLE as f64;
    let cycle_ns = per_cycle / peak_gflops;
    // A level that is no larger than the one before was not measured: it is as fast.
    let mut gb_per_s = [0.0f64; 4];
    let mut before = None;
    for (rate, name) in gb_per_s.iter_mut().zip(["L1", "L2", "L3", "memory"]) {
        before = levels.iter().find(|l| l.0 == name).map(|l| l.1).or(before);
        *rate = before.unwrap_or(0.0);
    }
    let known = gb_per_s.iter().chain([&peak_gflops]);
    if known.into_iter().any(|v| !v.is_finite() || *v <= 0.0) {
        return Err(Error::new("a rate of the machine is not positive"));
    }
    Ok(Limits::of(
        cycle_ns,
        gb_per_s,
        vector_bits / 8.0,
        1e3 * fork_us,
    ))
}

impl Measured {
    /// Of this machine, by ceilings of one thread and of more.
    ///
    /// # Errors
    /// If a rate is not positive.
    pub fn here(machine: &Machine, ceilings: &[Ceiling]) -> Result<Measured> {
        let (one, all) = ceilings
            .first()
            .zip(ceilings.last())
            .ok_or_else(|| Error::new("nothing was measured"))?;
        let levels: Vec<(&str, f64)> = one.levels.iter().map(|l| (l.name, l.gb_per_s)).collect();
        let fork_us = all.fork_join.awake_us;
        Ok(Measured {
            name: machine.cpu.clone(),
            limits: limits(machine.isa, one.peak_gflops, &levels, fork_us)?,
        })
    }

    /// Of the machine that a text of `doctor --json` is of.
    ///
    /// # Errors
    /// If it is no such text.
    pub fn read(json: &str) -> Result<Measured> {
        let wrong = |why: String| {
            Error::new(format!("no machine can be read of it: {why}"))
                .help("give what `tunesmith doctor --json` prints")
        };
        let d: Doctor = serde_json::from_str(json).map_err(|e| wrong(e.to_string()))?;
        let isa = Isa::ALL.into_iter().find(|isa| isa.name() == d.target);
        let isa = isa.ok_or_else(|| wrong(format!("the target {} is unknown", d.target)))?;
        let one = d.ceilings.iter().find(|c| c.threads == 1);
        let (one, all) = one
            .zip(d.ceilings.last())
            .ok_or_else(|| wrong("it has no ceiling of one thread".into()))?;
        let levels = one.levels.iter().map(|l| (&l.name[..], l.gb_per_s));
        let levels: Vec<(&str, f64)> = levels.collect();
        let of = limits(isa, one.peak_gflops, &levels, all.fork_join.awake_us);
        Ok(Measured {
            name: d.cpu,
            limits: of.map_err(|e| wrong(e.to_string()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_gives_the_clock_and_the_rates() {
        let text = r#"{"cpu": "a CPU", "target": "x86-avx2", "ceilings": [
            {"threads": 1, "peak_gflops": 96.0, "fork_join": {"awake_us": 0.1}, "levels": [
                {"name": "L1", "gb_per_s": 160.0}, {"name": "L2", "gb_per_s": 64.0},
                {"name": "memory", "gb_per_s": 16.0}]},
            {"threads": 4, "peak_gflops": 300.0, "fork_join": {"awake_us": 2.0}, "levels": []}]}"#;
        let m = Measured::read(text).unwrap();
        assert_eq!(m.name, "a CPU");
        // 32 operations a cycle at 3 GHz.
        assert!((m.limits.cycle_ns - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(m.limits.load_ns, 32.0 / 160.0);
        // What comes into the last-level cache comes from memory; there is none beyond the second level.
        assert_eq!(m.limits.line_ns, [1.0, 1.0, 4.0]);
        assert_eq!(m.limits.fork_ns, 2000.0);
        let zero = text.replace("96.0", "0.0");
        for wrong in ["{}", &zero, &text.replace("x86-avx2", "z80")] {
            let error = Measured::read(wrong).unwrap_err().to_string();
            assert!(error.contains("no machine"), "{error}");
        }
    }
}
