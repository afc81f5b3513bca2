//! Predictors that are inside this program, one for each type of kernel. `bench/predictors.py` makes their files anew.

use crate::predictor::{Predictor, PredictorError};
use std::path::Path;

/// A predictor inside this program.
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
            assert!(about.validation.len() > 1, "{name} knows one shape");
        }
    }
}
