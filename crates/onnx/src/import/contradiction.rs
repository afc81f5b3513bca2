//! Values of a file that are not what it declares them as.

use super::Importer;
use crate::ImportOptions;
use crate::declared::{Contradiction, contradicted};
use crate::error::{Declared, ImportError};
use crate::proto::{GraphProto, NodeProto, ValueInfoProto};

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
        let (found, declared) = contradicted(info, actual, &open)?;
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

    /// Compares declarations of results with what the nodes give. Shapes of values between nodes
    /// are often those of before an edit of the file, so that they are only noted; and at sizes
    /// that options give no shape is comparable.
    ///
    /// # Errors
    /// If an element type, or the shape of an output, is declared as another.
    pub(super) fn check_results(
        &self,
        graph: &GraphProto,
        options: &ImportOptions,
    ) -> Result<Vec<String>, ImportError> {
        let sizes_are_own = options.batch.is_none() && options.dims.is_empty();
        let between = graph.value_info.iter().map(|i| (i, false));
        let all = between.chain(graph.output.iter().map(|i| (i, true)));
        let mut stale = Vec::new();
        for (info, is_output) in all {
            match self.contradiction(info, graph) {
                Some((Contradiction::Shape, _)) if !sizes_are_own => {}
                Some((Contradiction::Shape, wrong)) if !is_output => stale.push(wrong),
                Some((_, wrong)) => return Err(ImportError::Declared(wrong.into())),
                None => {}
            }
        }
        Ok(note(&stale).into_iter().collect())
    }
}

/// One note for all values between nodes whose declared shapes are wrong.
fn note(stale: &[Declared]) -> Option<String> {
    let first = stale.first()?;
    let others = match stale.len() - 1 {
        0 => String::new(),
        1 => "; so is the declared shape of 1 more value".into(),
        n => format!("; so are the declared shapes of {n} more values"),
    };
    Some(format!("{first}: the declared shape is ignored{others}"))
}
