//! The check of every promise that a model makes.

use super::{Model, Node, NodeId, Origin, TensorType};
use tensor::DType;

impl Model {
    /// Checks every promise and lists the broken ones.
    ///
    /// # Errors
    /// One sentence a broken promise.
    pub fn verify(&self) -> Result<(), Vec<String>> {
        let mut broken = Vec::new();
        self.verify_values(&mut broken);
        for (id, node) in self.nodes() {
            self.verify_node(id, node, &mut broken);
        }
        for v in &self.outputs {
            if v.index() >= self.values.len() {
                broken.push(format!("output {v:?} does not exist"));
            }
        }
        let results = tensor::results(self.outputs.len(), &self.crops);
        for c in &self.crops {
            let count = TensorType::new(DType::I64, &[]);
            let fits = c.output < results
                && c.axis < self[self.outputs[c.output]].shape().len()
                && (results..self.outputs.len()).contains(&c.count)
                && self[self.outputs[c.count]].ty == count;
            if !fits {
                broken.push(format!("{c:?} does not fit the outputs"));
            }
        }
        for s in &self.states {
            let input = self.inputs.get(s.input).map(|v| self[*v].ty());
            let output = self.outputs.get(s.output).map(|v| self[*v].ty());
            let initial = TensorType::of(&s.initial);
            if input != Some(&initial) || output != Some(&initial) {
                broken.push(format!(
                    "the state of input {} does not fit output {}",
                    s.input, s.output
                ));
            }
        }
        if broken.is_empty() {
            Ok(())
        } else {
            Err(broken)
        }
    }

    fn verify_values(&self, broken: &mut Vec<String>) {
        for (id, v) in self.values() {
            if self.names.get(&v.name) != Some(&id) {
                broken.push(format!(
                    "value {id:?}: the name `{}` is not its own",
                    v.name
                ));
            }
            let defined = match &v.origin {
                Origin::Input(i) => self.inputs.get(*i) == Some(&id),
                Origin::Constant(t) => TensorType::of(t) == v.ty,
                Origin::Node(n, i) => {
                    self.nodes.get(n.index()).and_then(|n| n.outputs.get(*i)) == Some(&id)
                }
            };
            if !defined {
                broken.push(format!("value `{}` is not what its origin defines", v.name));
            }
        }
    }

    fn verify_node(&self, id: NodeId, node: &Node, broken: &mut Vec<String>) {
        let mut whole = true;
        for v in node.inputs.iter().flatten().chain(&node.outputs) {
            if v.index() >= self.values.len() {
                broken.push(format!(
                    "node `{}` names {v:?}, which does not exist",
                    node.name
                ));
                whole = false;
            }
        }
        if !whole {
            return;
        }
        for v in node.inputs.iter().flatten() {
            if self.producer(*v).is_some_and(|(n, _)| n >= id) {
                let name = &self.value(*v).name;
                broken.push(format!(
                    "node `{}` reads `{name}` before it is made",
                    node.name
                ));
            }
        }
        let types: Vec<_> = node
            .inputs
            .iter()
            .map(|i| i.map(|v| self.value(v).ty()))
            .collect();
        let outputs: Vec<_> = node
            .outputs
            .iter()
            .map(|v| self.value(*v).ty().clone())
            .collect();
        match node.op.infer(&types) {
            Ok(inferred) if inferred == outputs => {}
            Ok(inferred) => broken.push(format!(
                "node `{}` ({}) should give {inferred:?} and gives {outputs:?}",
                node.name,
                node.op.name()
            )),
            Err(e) => broken.push(format!("node `{}` ({}): {e}", node.name, node.op.name())),
        }
    }
}
