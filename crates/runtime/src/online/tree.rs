//! The tree of a step's selectors, for whoever draws what was decided.

use super::{Member, Node, Selectors};

impl Node {
    /// Adds the families on the way to each alternative.
    fn ways(&self, way: &mut Vec<String>, found: &mut Vec<(usize, Vec<String>)>) {
        for member in &self.members {
            match member {
                Member::Alternative(at) => found.push((*at, way.clone())),
                Member::Nested { family, node } => {
                    way.push(family.clone());
                    node.ways(way, found);
                    way.pop();
                }
            }
        }
    }
}

impl Selectors {
    /// The families on the way to each free alternative of a step of a variant, such as `winograd` on the way to
    /// `winograd4`. Empty for steps with one free alternative.
    pub fn ways(&self, variant: usize, step: usize) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        if let Some(node) = self.node(variant, step) {
            node.ways(&mut Vec::new(), &mut found);
        }
        found.sort();
        found.into_iter().map(|(_, way)| way).collect()
    }
}
