//! Masks of dropouts, which a training step does not give.

use crate::proto::GraphProto;
use std::collections::HashSet;

/// Takes the name from masks that nothing reads: exporters name the mask of each dropout.
pub(super) fn drop_unread(graph: &mut GraphProto) {
    let read: HashSet<String> = (graph.node.iter().flat_map(|n| n.input.iter().cloned()))
        .chain(graph.output.iter().map(|o| o.name().to_string()))
        .collect();
    let dropouts = graph.node.iter_mut().filter(|n| n.op_type() == "Dropout");
    for node in dropouts {
        if node.output.get(1).is_some_and(|mask| !read.contains(mask)) {
            node.output.truncate(1);
        }
    }
}
