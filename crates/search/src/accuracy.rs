//! How exact results must be, and which candidates are.
//!
//! Which steps lose digits is `schedule`'s to say; what error is allowed where
//! is the caller's.

use schedule::Trace;
use std::fmt;
use std::str::FromStr;

/// How exact the results of a compiled model must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// Every operator is computed from its definition: only the order of sums
    /// and fused multiply-adds differ from the reference. Sums of products of quantised
    /// bytes are exact, and divided by the scale of the result as QuantizeLinear defines.
    Strict,
    /// Algorithms that compute the same in exact arithmetic and lose digits in
    /// floating point, such as Winograd convolution, may be used.
    Relaxed,
}

impl Accuracy {
    pub const ALL: [Accuracy; 2] = [Accuracy::Strict, Accuracy::Relaxed];

    pub fn name(self) -> &'static str {
        match self {
            Accuracy::Strict => "strict",
            Accuracy::Relaxed => "relaxed",
        }
    }

    /// Whether a candidate with this trace may be used.
    pub fn allows(self, trace: &Trace) -> bool {
        self == Accuracy::Relaxed || is_exact(trace)
    }
}

/// Whether no step of the trace loses digits.
pub fn is_exact(trace: &Trace) -> bool {
    trace.steps.iter().all(schedule::Step::is_exact)
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names are those that [`Accuracy::name`] gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no accuracy `{0}`; use strict or relaxed")]
pub struct UnknownAccuracy(String);

impl FromStr for Accuracy {
    type Err = UnknownAccuracy;

    fn from_str(text: &str) -> Result<Accuracy, UnknownAccuracy> {
        let all = Accuracy::ALL.into_iter();
        all.into_iter()
            .find(|a| a.name() == text)
            .ok_or_else(|| UnknownAccuracy(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused() {
        for a in Accuracy::ALL {
            assert_eq!(a.to_string().parse(), Ok(a));
        }
        assert!("Strict".parse::<Accuracy>().is_err());
    }

    #[test]
    fn a_step_that_loses_digits_makes_a_trace_inexact() {
        let trace = |lines: &[&str]| Trace {
            steps: lines.iter().map(|l| l.parse().unwrap()).collect(),
            decisions: vec![],
        };
        let exact = trace(&["unroll main.k", "vectorize main.n"]);
        assert!(Accuracy::ALL.iter().all(|a| a.allows(&exact)));
        let filtered = trace(&["winograd main 4", "unroll main.k"]);
        // Wherever the step stands.
        let late = trace(&[&["unroll main.k"; 20][..], &["winograd main 4"]].concat());
        for inexact in [filtered, late] {
            assert!(Accuracy::Relaxed.allows(&inexact) && !Accuracy::Strict.allows(&inexact));
        }
    }
}
