//! `bench`: joules of an inference.

use super::energy_text::{joules, source};
use serde::Serialize;
use tune::energy::{Energy, Metered};

/// What an inference used of the whole machine, by its counter, or under both curves where it has none.
#[derive(Serialize)]
pub struct InferenceEnergy {
    pub estimated: bool,
    /// Whether the curves are those of a usual machine.
    pub usual: bool,
    pub by: Vec<InferenceJoules>,
    /// Of devices, on top.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<InferenceJoules>,
    /// Why a meter could not be read in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Where the joules come from, for people.
    #[serde(skip)]
    told: String,
}

/// What one meter says.
#[derive(Serialize)]
pub struct InferenceJoules {
    pub source: String,
    pub joules_per_inference: f64,
    /// The part that the idle machine draws in the same time.
    pub idle_joules_per_inference: f64,
}

impl InferenceEnergy {
    /// Of so many inferences, which used this together.
    pub fn of(all: &Energy, runs: usize) -> InferenceEnergy {
        let runs = runs as f64;
        let one = |m: &Metered| InferenceJoules {
            source: m.source.clone(),
            joules_per_inference: m.joules / runs,
            idle_joules_per_inference: m.idle_j / runs,
        };
        InferenceEnergy {
            estimated: all.estimated,
            usual: all.usual,
            by: all.by.iter().map(one).collect(),
            devices: all.devices.iter().map(one).collect(),
            failed: all.failed.clone(),
            told: source(all),
        }
    }

    /// The head of a column of such.
    pub fn heading(&self) -> &'static str {
        match self.estimated {
            true => "energy (estimated)",
            false => "energy",
        }
    }

    pub fn cell(&self) -> String {
        let of = |m: &InferenceJoules| joules(m.joules_per_inference);
        let mut texts: Vec<String> = self.by.iter().map(of).collect();
        texts.dedup();
        texts.join(" or ")
    }

    /// Where the joules come from, and how many there are if these are the figures of one row.
    pub fn notes(&self, one_row: bool) -> String {
        let joules_text = match one_row {
            true => format!("{}, ", self.cell()),
            false => String::new(),
        };
        let mut text = format!("energy of an inference: {joules_text}{}\n", self.told);
        for d in self.devices.iter().filter(|_| one_row) {
            text += &format!(
                "{} more on devices, counted by {}\n",
                joules(d.joules_per_inference),
                d.source
            );
        }
        if let Some(why) = &self.failed {
            text += &format!("the meter could not be read in the end: {why}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metered(source: &str, joules: f64) -> Metered {
        Metered {
            source: source.into(),
            joules,
            idle_j: 2.0,
            phases: [].into(),
            tasks: [].into(),
            joules_per_cpu_s: 0.0,
            mj_per_ms: None,
        }
    }

    #[test]
    fn an_inference_has_its_part_under_each_curve() {
        let mut all = Energy {
            estimated: true,
            usual: true,
            wall_s: 1.0,
            cpu_s: 1.0,
            by: vec![metered("steep", 8.0), metered("flat", 12.0)],
            devices: vec![],
            money: None,
            failed: None,
        };
        let one = InferenceEnergy::of(&all, 4);
        assert_eq!(one.cell(), "2.0 J or 3.0 J");
        assert_eq!(one.by[1].idle_joules_per_inference, 0.5);
        assert_eq!(one.heading(), "energy (estimated)");
        let said = one.notes(true);
        assert!(
            said.starts_with("energy of an inference: 2.0 J or 3.0 J, estimated under two curves"),
            "{said}"
        );
        all.estimated = false;
        all.by.pop();
        all.devices.push(metered("nvml", 0.02));
        let one = InferenceEnergy::of(&all, 4);
        assert_eq!(
            one.notes(true),
            "energy of an inference: 2.0 J, counted by steep\n5.00 mJ more on devices, counted by nvml\n"
        );
        assert_eq!(
            one.notes(false),
            "energy of an inference: counted by steep\n"
        );
    }
}
