//! What is compared: policies, and policies with one setting changed.
//!
//! Owns which settings a study can vary, and how.

use measure::{CONSTANTS, Constants, Policy};
use serde::{Deserialize, Serialize};

/// A policy with all that a study may change of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub policy: Policy,
    /// What was changed; nothing of the policy itself.
    pub swept: Option<Swept>,
    pub constants: Constants,
    /// Share of the measured candidates that is ranked alone at the end.
    pub rank: f64,
    /// Samples of every candidate; as many as their variance asks for otherwise.
    pub samples: Option<u32>,
}

impl Variant {
    /// The policy, and what was changed.
    pub fn name(&self) -> String {
        name(self.policy, self.swept.as_ref())
    }
}

/// A policy's name with what was changed of it.
pub fn name(policy: Policy, swept: Option<&Swept>) -> String {
    let policy = policy.name();
    swept.map_or(policy.into(), |s| {
        format!("{policy} {}={}", s.name, s.value)
    })
}

/// One changed setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    pub name: String,
    /// A number, as people write it.
    pub value: String,
}

/// The values that a setting is given, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    pub name: String,
    pub values: Vec<f64>,
}

/// Settings that are not constants of doppler.
const OTHERS: [&str; 4] = ["dp", "rank", "samples", "timeout"];

impl Sweep {
    /// Reads `NAME=V1,V2,...`; the error says what may be varied, and how.
    pub fn parse(text: &str) -> Result<Sweep, String> {
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not NAME=V1,V2,..."))?;
        let number = |v: &str| {
            v.trim()
                .parse::<f64>()
                .map_err(|_| format!("`{v}` is no number"))
        };
        let sweep = Sweep {
            name: name.trim().into(),
            values: values.split(',').map(number).collect::<Result<_, _>>()?,
        };
        let any = Variant {
            policy: Policy::Doppler,
            swept: None,
            constants: Constants::PAPER,
            rank: 0.0,
            samples: None,
        };
        for v in &sweep.values {
            changed(&any, &sweep.name, *v)?;
        }
        Ok(sweep)
    }

    /// The policies that the setting means something to.
    fn policies(&self) -> &'static [Policy] {
        match self.name.as_str() {
            "dp" => &[Policy::Naive, Policy::Doppler],
            _ => &[Policy::Doppler],
        }
    }
}

/// A variant with one setting changed.
fn changed(of: &Variant, name: &str, value: f64) -> Result<Variant, String> {
    let mut v = of.clone();
    v.swept = Some(Swept {
        name: name.into(),
        value: value.to_string(),
    });
    let constants = |changes: &str| of.constants.with(changes);
    match name {
        "dp" => v.constants = constants(&format!("max-dp={value}"))?,
        "timeout" => v.constants = constants(&format!("eta={value},iota={value}"))?,
        "rank" if (0.0..=1.0).contains(&value) => v.rank = value,
        "rank" => return Err("rank is a share from 0 to 1".into()),
        "samples" if value >= 1.0 => v.samples = Some(value as u32),
        "samples" => return Err("samples is a number of samples, at least 1".into()),
        _ if CONSTANTS.iter().any(|c| c.name == name) => {
            v.constants = constants(&format!("{name}={value}"))?;
        }
        _ => {
            let names = OTHERS.into_iter().chain(CONSTANTS.iter().map(|c| c.name));
            let names: Vec<&str> = names.collect();
            return Err(format!(
                "`{name}` cannot be swept, only {}",
                names.join(", ")
            ));
        }
    }
    Ok(v)
}

/// The base with each of the policies, then with each setting changed.
///
/// # Errors
/// If a setting cannot have a value, or concerns none of the policies.
pub fn variants(
    base: &Variant,
    policies: &[Policy],
    sweeps: &[Sweep],
) -> Result<Vec<Variant>, String> {
    let with = |policy: Policy| Variant {
        policy,
        ..base.clone()
    };
    let mut all: Vec<Variant> = policies.iter().map(|p| with(*p)).collect();
    for sweep in sweeps {
        let concerned: Vec<&Policy> = sweep.policies().iter().collect();
        let names: Vec<&str> = concerned.iter().map(|p| p.name()).collect();
        if !concerned.iter().any(|p| policies.contains(p)) {
            return Err(format!(
                "`{}` is a setting of {}, which --policies leaves out; add it there, or sweep nothing",
                sweep.name,
                names.join(" and ")
            ));
        }
        for value in &sweep.values {
            for policy in concerned.iter().filter(|p| policies.contains(p)) {
                let new = changed(&with(**policy), &sweep.name, *value)?;
                if !all.contains(&new) {
                    all.push(new);
                }
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Variant {
        Variant {
            policy: Policy::Serial,
            swept: None,
            constants: Constants::PAPER,
            rank: 0.01,
            samples: None,
        }
    }

    #[test]
    fn each_value_is_a_variant_of_the_policies_that_it_concerns() {
        let sweeps = ["tau=.05,0.5", "dp=4", "timeout=3"].map(|s| Sweep::parse(s).unwrap());
        let all = variants(&base(), &Policy::ALL, &sweeps).unwrap();
        let names: Vec<String> = all.iter().map(Variant::name).collect();
        assert_eq!(
            names[4..],
            [
                "doppler tau=0.05",
                "doppler tau=0.5",
                "naive dp=4",
                "doppler dp=4",
                "doppler timeout=3"
            ]
        );
        assert_eq!(all[5].constants.react.tau, 0.5);
        assert_eq!(all[6].constants.max_dp, 4);
        assert_eq!(all[8].constants.timeout.round(64, 1).as_secs(), 3);
        let few = variants(&base(), &[Policy::Serial, Policy::Naive], &sweeps[1..2]).unwrap();
        assert_eq!(few.len(), 3);
    }

    #[test]
    fn a_sweep_of_a_policy_that_is_left_out_is_refused() {
        let error = |sweep: &str| {
            let sweep = Sweep::parse(sweep).unwrap();
            variants(&base(), &[Policy::Serial], &[sweep]).unwrap_err()
        };
        assert!(error("tau=.05,.1").contains("of doppler, which --policies leaves out"));
        assert!(error("dp=4").contains("naive and doppler"));
    }

    #[test]
    fn wrong_sweeps_say_what_is_possible() {
        let error = |text: &str| Sweep::parse(text).unwrap_err();
        assert!(error("tau").contains("NAME=V1"));
        assert!(error("tao=1").contains("zeta"));
        assert!(error("tau=x").contains("no number"));
        assert!(error("tau=7").contains("from 0 to 1"));
        assert!(error("rank=2").contains("share"));
    }
}
