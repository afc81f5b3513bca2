//! Values of a file that are not what it declares them as.

use super::Importer;
use crate::ImportOptions;
use crate::declared::{Contradiction, contradicted, is_open};
use crate::error::{Declared, ImportError};
use crate::proto::{GraphProto, NodeProto, ValueInfoProto};
use std::collections::HashSet;

impl Importer<'_> {
    /// Compares declarations of inputs and initializers with what they are.
    ///
    /// # Errors
    /// If one is something else.
    pub(super) fn check_given(&self, graph: &GraphProto) -> Result<(), ImportError> {
        let mut infos = graph.input.iter().chain(&graph.value_info);
        match infos.find_map(|info| self.contradiction(info, graph)) {
            Some((_, wrong)) => Err(ImportError::Declared(wrong.into())),
            None => Ok(()),
        }
    }

    /// How a value that has been imported contradicts its declaration, if it does.
    fn contradiction(
        &self,
        info: &ValueInfoProto,
        graph: &GraphProto,
    ) -> Option<(Contradiction, Declared)> {
        let id = (*self.values.get(info.name())?)?;
        let actual = self.model[id].ty();
        // Where the data decide a size, the model has the largest.
        let open: Vec<usize> = self.live.extents(id).iter().map(|e| e.axis).collect();
        let (found, declared) = contradicted(info, actual, self.narrow.get(&id).copied(), &open)?;
        let name = info.name().to_string();
        let makes = |n: &&NodeProto| n.output.contains(&name);
        let node = graph.node.iter().find(makes);
        let wrong = Declared {
            declared,
            actual: actual.clone(),
            node: node.map(|n| {
                let own = Some(n.name()).filter(|n| !n.is_empty());
                (own.unwrap_or(&name).to_string(), n.op_type().to_string())
            }),
            name,
        };
        Some((found, wrong))
    }

    /// Compares declarations of results with what the nodes give. Other shapes are noted and no
    /// errors: exporters compute some in other arithmetic than the specification (as of a
    /// `Resize`), and edits of a file leave the shapes of before. What depends on sizes that
    /// options give may have the shape of an example as its declaration: of such a value a shape
    /// counts only if it leaves some size open, so that the others are meant for all sizes.
    ///
    /// # Errors
    /// If an element type is declared as another.
    pub(super) fn check_results(
        &self,
        graph: &GraphProto,
        options: &ImportOptions,
    ) -> Result<Vec<String>, ImportError> {
        let sized = self.sized_by_options(graph, options);
        let of_example = |info: &ValueInfoProto| sized.contains(info.name()) && !is_open(info);
        let outputs = graph.output.iter().map(|i| (i, true));
        let between = graph.value_info.iter().map(|i| (i, false));
        let (mut notes, mut stale) = (Vec::new(), Vec::new());
        for (info, is_output) in outputs.chain(between) {
            match self.contradiction(info, graph) {
                Some((Contradiction::Shape, _)) if of_example(info) => {}
                Some((Contradiction::Shape, wrong)) if is_output => {
                    notes.push(format!("output {wrong}: {USED}"));
                }
                Some((Contradiction::Shape, wrong)) => stale.push(wrong),
                Some((_, wrong)) => return Err(ImportError::Declared(wrong.into())),
                None => {}
            }
        }
        notes.extend(note_between(&stale));
        Ok(notes)
    }

    /// Names of the inputs that have a size of the options, and of all that is made of these.
    fn sized_by_options<'g>(
        &self,
        graph: &'g GraphProto,
        options: &ImportOptions,
    ) -> HashSet<&'g str> {
        let is_sized = |info: &&ValueInfoProto| {
            let id = self.values.get(info.name()).copied().flatten();
            let shape = id.map_or(&[][..], |id| self.model[id].shape());
            let of_batch = options.batch.is_some() && shape.first() == options.batch.as_ref();
            let named = |axis| {
                options
                    .dims
                    .contains_key(&format!("{}.{axis}", info.name()))
            };
            is_open(info) || of_batch || (0..shape.len()).any(named)
        };
        let inputs = graph.input.iter().filter(is_sized);
        let mut sized: HashSet<&str> = inputs.map(|i| i.name()).collect();
        if sized.is_empty() {
            return sized;
        }
        for node in &graph.node {
            // Graphs of a node may read any value.
            let has_graph = node.attribute.iter().any(|a| a.g.is_some());
            if has_graph || node.input.iter().any(|i| sized.contains(i.as_str())) {
                sized.extend(node.output.iter().map(String::as_str));
            }
        }
        sized
    }
}

/// What becomes of a declared shape that is wrong.
const USED: &str = "the shape that the specification gives is used";

/// One note for all values between nodes whose declared shapes are wrong.
fn note_between(stale: &[Declared]) -> Option<String> {
    let first = stale.first()?;
    let others = match stale.len() - 1 {
        0 => String::new(),
        1 => "; so is the declared shape of 1 more value".into(),
        n => format!("; so are the declared shapes of {n} more values"),
    };
    Some(format!("{first}: {USED}{others}"))
}

/// Drops outputs that are listed before, and notes each.
pub(super) fn drop_repeated(outputs: &mut Vec<ValueInfoProto>) -> Vec<String> {
    let (mut names, mut notes) = (HashSet::new(), Vec::new());
    outputs.retain(|o| {
        let new = names.insert(o.name().to_string());
        if !new {
            let name = o.name();
            notes.push(format!(
                "output `{name}` is listed twice: the model gives it once"
            ));
        }
        new
    });
    notes
}
