//! What each layer of a training step chose: its convolution, and the gradients of its data and of its weights.

use crate::select::Layer;
use serde::Serialize;

/// What a step of a model computes for a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Pass {
    Forward,
    Data,
    Weights,
}

impl Pass {
    pub const ALL: [Pass; 3] = [Pass::Forward, Pass::Data, Pass::Weights];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::Data => "data gradient",
            Pass::Weights => "weight gradient",
        }
    }

    /// The layer and the pass that a step is of, by its name.
    pub fn of(step: &str) -> (&str, Pass) {
        match step.rsplit_once('.') {
            Some((layer, graph::DATA_GRADIENT)) => (layer, Pass::Data),
            Some((layer, graph::WEIGHT_GRADIENT)) => (layer, Pass::Weights),
            _ => (step, Pass::Forward),
        }
    }
}

/// Layers that chose among the same kernels in every pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Winner {
    /// The name of the first one.
    pub layer: String,
    /// The names of all.
    pub layers: Vec<String>,
    pub equal: usize,
    /// By [`Pass`]; none where there is nothing to choose.
    pub passes: [Option<Chosen>; 3],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chosen {
    pub algorithm: String,
    /// The median while exploring.
    pub median_ms: Option<f64>,
}

impl Winner {
    pub fn has(&self, layer: &str) -> bool {
        self.layers.iter().any(|own| own == layer)
    }
}

/// The winners in the order of the layers of the forward pass, equal layers once.
pub fn winners(layers: &[Layer]) -> Vec<Winner> {
    let mut found: Vec<([Option<usize>; 3], Winner)> = Vec::new();
    for name in in_order(layers) {
        let of = |pass: Pass| {
            let is_own = |step: &String| Pass::of(step) == (name, pass);
            layers.iter().position(|l| l.steps.iter().any(is_own))
        };
        let groups = Pass::ALL.map(of);
        if let Some((_, same)) = found.iter_mut().find(|(other, _)| *other == groups) {
            same.equal += 1;
            same.layers.push(name.to_string());
            continue;
        }
        let chosen = |at: usize| layers[at].winner();
        let winner = Winner {
            layer: name.to_string(),
            layers: vec![name.to_string()],
            equal: 1,
            passes: groups.map(|at| at.map(chosen)),
        };
        found.push((groups, winner));
    }
    found.into_iter().map(|(_, w)| w).collect()
}

/// The names of all layers, each once: those of the forward pass first.
fn in_order(layers: &[Layer]) -> Vec<&str> {
    let mut steps: Vec<(usize, &str, Pass)> = Vec::new();
    for l in layers {
        let named = l.steps.iter().zip(&l.positions).map(|(step, at)| {
            let (name, pass) = Pass::of(step);
            (*at, name, pass)
        });
        steps.extend(named);
    }
    steps.sort_by_key(|(at, _, pass)| (*pass, *at));
    let mut names = Vec::new();
    for (_, name, _) in steps {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::LayerTime;

    fn layer(steps: &[(usize, &str)], chosen: &str) -> Layer {
        Layer {
            step: steps[0].1.to_string(),
            equal: steps.len(),
            steps: steps.iter().map(|(_, s)| (*s).to_string()).collect(),
            positions: steps.iter().map(|(at, _)| *at).collect(),
            chosen: 0,
            families: vec![],
            alternatives: vec![LayerTime {
                algorithm: chosen.to_string(),
                families: vec![],
                median_ms: Some(1.0),
            }],
        }
    }

    #[test]
    fn passes_of_a_layer_stand_side_by_side_and_equal_layers_once() {
        let layers = [
            layer(&[(0, "a")], "direct"),
            layer(&[(1, "b"), (2, "c"), (3, "d")], "winograd4"),
            layer(&[(4, "d.taps"), (6, "c.taps")], "im2row"),
            layer(&[(5, "d.dx"), (7, "c.dx")], "winograd2"),
            layer(&[(8, "b.taps")], "convgemm"),
        ];
        let text = |w: &Winner| {
            let of = |c: &Option<Chosen>| c.as_ref().map_or("-".into(), |c| c.algorithm.clone());
            let passes: Vec<String> = w.passes.iter().map(of).collect();
            format!("{} x{}: {}", w.layer, w.equal, passes.join(" "))
        };
        let found: Vec<String> = winners(&layers).iter().map(text).collect();
        assert_eq!(
            found,
            [
                "a x1: direct - -",
                "b x1: winograd4 - convgemm",
                "c x2: winograd4 winograd2 im2row",
            ]
        );
    }
}
