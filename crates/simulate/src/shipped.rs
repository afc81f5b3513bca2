//! Predictors that are inside this program, one for each type of kernel. `bench/predictors.py` makes their files anew.

use crate::predictor::{Predictor, PredictorError};
use std::collections::BTreeSet;
use std::path::Path;

/// A predictor inside this program. Its name is the type of kernel that it is for.
pub struct Shipped {
    pub name: &'static str,
    text: &'static str,
}

/// All of them. The table is in `predictors/README.md`, too, with what they were learned from.
pub const SHIPPED: [Shipped; 3] = [
    Shipped {
        name: "conv2d",
        text: include_str!("../predictors/conv2d.json"),
    },
    Shipped {
        name: "depthwise_conv2d",
        text: include_str!("../predictors/depthwise_conv2d.json"),
    },
    Shipped {
        name: "matmul",
        text: include_str!("../predictors/matmul.json"),
    },
];

impl Shipped {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Shipped> {
        SHIPPED.iter().find(|s| s.name == name)
    }

    /// Those for one of these types of kernel on a processor.
    pub fn fitting(kinds: &BTreeSet<&str>, cpu: &str) -> Vec<&'static Shipped> {
        let fits = |s: &&Shipped| {
            kinds.contains(s.name) && s.predictor().is_ok_and(|p| p.about().cpu == cpu)
        };
        SHIPPED.iter().filter(fits).collect()
    }

    /// Bytes of its text.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// # Errors
    /// If the features or the learners have changed since it was made.
    pub fn predictor(&self) -> Result<Predictor, PredictorError> {
        Predictor::of_text(self.text, Path::new(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::cpus;

    /// More would make every build and every start of the program slower.
    const MOST_BYTES: usize = 300_000;

    #[test]
    fn every_predictor_can_be_used_and_is_small() {
        for shipped in &SHIPPED {
            let name = shipped.name;
            assert!(shipped.bytes() < MOST_BYTES, "{name}: {}", shipped.bytes());
            let predictor = shipped.predictor().unwrap_or_else(|e| panic!("{e}"));
            let about = predictor.about();
            assert!(cpus().iter().any(|c| c.name == about.cpu), "{name}");
            assert_eq!(about.kind, name);
            assert!(about.validation.len() > 1, "{name} knows one shape");
        }
    }

    #[test]
    fn a_predictor_is_found_by_type_and_processor() {
        let names = |kinds: &[&str], cpu| -> Vec<&str> {
            let kinds = kinds.iter().copied().collect();
            let fitting = Shipped::fitting(&kinds, cpu);
            fitting.into_iter().map(|s| s.name).collect()
        };
        assert_eq!(
            names(&["matmul", "conv2d", "softmax"], "ryzen-5800x"),
            ["conv2d", "matmul"]
        );
        assert_eq!(names(&["softmax"], "ryzen-5800x"), [""; 0]);
        assert_eq!(names(&["conv2d"], "cortex-a72"), [""; 0]);
    }
}
