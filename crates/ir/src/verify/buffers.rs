//! Buffers: names, sizes, views and the parameter list.

use super::{Body, Broken, repeated};
use crate::program::{Buffer, BufferId, Role, Scope};

fn live<'a>(body: &Body<'a>) -> Vec<(BufferId, &'a Buffer)> {
    let ids = body.p.live_buffers().into_iter();
    ids.map(|id| (id, body.p.buffer(id))).collect()
}

pub(super) fn names(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let buffers = live(body);
    for name in repeated(buffers.iter().map(|(_, b)| b.name.as_str())) {
        broken.push(Broken::DuplicateName {
            kind: "buffer",
            name: name.into(),
        });
    }
}

pub(super) fn sizes(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (_, b) in live(body) {
        for (dim, extent) in b.shape.iter().enumerate().filter(|(_, e)| **e < 1) {
            broken.push(Broken::Extent {
                place: format!("dimension {dim} of `{}`", b.name),
                extent: *extent,
            });
        }
        let bytes = b
            .shape
            .iter()
            .try_fold(b.dtype.size() as i64, |n, e| n.checked_mul(*e));
        if bytes.is_none() {
            broken.push(Broken::TooLarge {
                buffer: b.name.clone(),
            });
        }
    }
}

pub(super) fn views(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (_, b) in live(body) {
        let Some(view) = &b.view else { continue };
        let mut report = |reason| {
            broken.push(Broken::View {
                buffer: b.name.clone(),
                reason,
            });
        };
        if b.role == Role::Intermediate {
            report("only parameters have one");
        }
        if view.strides.len() != b.shape.len() {
            report("it has not one stride a dimension");
            continue;
        }
        // The lowest element of the view, relative to its allocation.
        let mut reach = b.shape.iter().zip(&view.strides);
        let lowest = reach.try_fold(view.offset, |at: i64, (extent, stride)| {
            at.checked_add(stride.checked_mul(extent.checked_sub(1)?)?.min(0))
        });
        if lowest.is_none_or(|at| at < 0) {
            report("it starts before its allocation");
        }
    }
}

pub(super) fn parameters(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    for (i, id) in p.params.iter().enumerate() {
        if p.params[..i].contains(id) {
            broken.push(Broken::ParameterList {
                buffer: body.buffer(*id),
                reason: "is listed twice",
            });
        }
    }
    for (id, b) in live(body) {
        let reason = match (b.role == Role::Intermediate, p.params.contains(&id)) {
            (true, true) => Some("is listed, but is an intermediate"),
            (false, false) => Some("is a parameter, but is not listed"),
            _ => None,
        };
        if let Some(reason) = reason {
            broken.push(Broken::ParameterList {
                buffer: b.name.clone(),
                reason,
            });
        }
        if b.role != Role::Intermediate && b.scope != Scope::Global {
            broken.push(Broken::ParameterScope {
                buffer: b.name.clone(),
            });
        }
    }
}
