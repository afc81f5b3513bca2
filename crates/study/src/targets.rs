//! The winners of each layer on several targets, such as two kinds of node.

use crate::select::Selection;
use crate::winners::Chosen;
use serde::Serialize;

/// One model on one number of threads, compiled for several targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByTarget {
    pub model: String,
    pub threads: u32,
    pub targets: Vec<String>,
    pub layers: Vec<LayerOnTargets>,
}

/// Layers that chose among the same kernels on every target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerOnTargets {
    /// The name of the first one.
    pub layer: String,
    /// The names of all.
    pub layers: Vec<String>,
    pub equal: usize,
    /// By target; none where there is nothing to choose.
    pub winners: Vec<Option<Chosen>>,
    /// Whether targets have different winners. A target without a choice does not count.
    pub differ: bool,
}

/// Sets what a model decided on one target beside what it decided on others.
pub fn by_target(selections: &[Selection]) -> Vec<ByTarget> {
    let mut found: Vec<ByTarget> = Vec::new();
    for s in selections {
        if found
            .iter()
            .any(|f| (&f.model, f.threads) == (&s.model, s.threads))
        {
            continue;
        }
        let own = selections.iter();
        let own = own.filter(|o| (&o.model, o.threads) == (&s.model, s.threads));
        let own: Vec<&Selection> = own.collect();
        found.push(ByTarget {
            model: s.model.clone(),
            threads: s.threads,
            targets: own.iter().map(|o| o.target.clone()).collect(),
            layers: layers(&own),
        });
    }
    found
}

fn layers(all: &[&Selection]) -> Vec<LayerOnTargets> {
    let mut found: Vec<(Vec<Option<usize>>, LayerOnTargets)> = Vec::new();
    for step in steps(all) {
        let has = |s: &&Selection| {
            s.layers
                .iter()
                .position(|l| l.steps.iter().any(|n| n == step))
        };
        let at: Vec<Option<usize>> = all.iter().map(has).collect();
        if let Some((_, same)) = found.iter_mut().find(|(other, _)| *other == at) {
            same.equal += 1;
            same.layers.push(step.to_string());
            continue;
        }
        let chosen = |(s, at): (&&Selection, &Option<usize>)| at.map(|at| s.layers[at].winner());
        let winners: Vec<Option<Chosen>> = all.iter().zip(&at).map(chosen).collect();
        let mut names = winners.iter().flatten().map(|c| &c.algorithm);
        let first = names.next();
        let differ = names.any(|name| Some(name) != first);
        let layer = LayerOnTargets {
            layer: step.to_string(),
            layers: vec![step.to_string()],
            equal: 1,
            winners,
            differ,
        };
        found.push((at, layer));
    }
    found.into_iter().map(|(_, layer)| layer).collect()
}

/// The names of all steps with a choice, each once: those of the first target in the order of its model, then those
/// that others have beside them.
fn steps<'a>(all: &[&'a Selection]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for s in all {
        let own = s
            .layers
            .iter()
            .flat_map(|l| l.positions.iter().zip(&l.steps));
        let mut own: Vec<(&usize, &String)> = own.collect();
        own.sort();
        for (_, name) in own {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::sample::{layer, selection};

    #[test]
    fn winners_of_targets_stand_side_by_side_and_say_where_they_differ() {
        let on = |target: &str, layers| selection("net", target, layers);
        let all = [
            on(
                "x86-avx2",
                vec![
                    layer(&[(0, "a")], &[("direct", 1.0), ("im2row", 2.0)], 0),
                    layer(
                        &[(1, "b"), (2, "c"), (3, "d")],
                        &[("direct", 2.0), ("im2row", 1.0)],
                        1,
                    ),
                ],
            ),
            on(
                "x86-avx512",
                vec![
                    layer(
                        &[(1, "b"), (2, "c")],
                        &[("direct", 1.0), ("im2row", 2.0)],
                        0,
                    ),
                    layer(&[(3, "d")], &[("direct", 2.0), ("im2row", 1.0)], 1),
                    layer(&[(4, "e")], &[("direct", 2.0), ("im2row", 1.0)], 1),
                ],
            ),
        ];
        let found = by_target(&all);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].targets, ["x86-avx2", "x86-avx512"]);
        let text = |l: &LayerOnTargets| {
            let of = |c: &Option<Chosen>| c.as_ref().map_or("-".into(), |c| c.algorithm.clone());
            let winners: Vec<String> = l.winners.iter().map(of).collect();
            format!(
                "{} x{}: {} {}",
                l.layer,
                l.equal,
                winners.join(" "),
                l.differ
            )
        };
        let rows: Vec<String> = found[0].layers.iter().map(text).collect();
        assert_eq!(
            rows,
            [
                "a x1: direct - false",
                "b x2: im2row direct true",
                "d x1: im2row im2row false",
                "e x1: - im2row false",
            ]
        );
    }
}
