//! Operators in which elements come one after the other, or in order.

use super::net::Net;
use super::operators::input;
use super::spec::Arguments;
use crate::model::{ModelError, ValueId};
use crate::ops::{Combine, Cumulative, CumulativeKind, Op, ScatterElements, Suppress, TopK};
use tensor::DType;

type Built = Result<ValueId, ModelError>;

pub(super) fn scatter_add(net: &mut Net, a: &Arguments) -> Built {
    let x = input(net, &[a.get("table"), a.get("cols")]);
    let shape = [a.get("rows"), a.get("cols")];
    let indices = net.model.add_input("indices", DType::I64, &shape);
    let updates = input(net, &shape);
    let scatter = ScatterElements {
        axis: 0,
        combine: Combine::Add,
    };
    net.try_add(Op::ScatterElements(scatter), &[x, indices, updates])
}

pub(super) fn cumulative_sum(net: &mut Net, a: &Arguments) -> Built {
    let x = input(net, &["outer", "n", "inner"].map(|d| a.get(d)));
    let sum = Cumulative {
        kind: CumulativeKind::Sum,
        axis: 1,
        exclusive: false,
        reverse: false,
    };
    net.try_add(Op::Cumulative(sum), &[x])
}

pub(super) fn top_k(net: &mut Net, a: &Arguments) -> Built {
    let x = input(net, &[a.get("rows"), a.get("cols")]);
    let best = TopK {
        axis: 1,
        k: a.get("k"),
        largest: true,
    };
    net.try_add(Op::TopK(best), &[x])
}

pub(super) fn suppress(net: &mut Net, a: &Arguments) -> Built {
    let scores = input(net, &[1, a.get("classes"), a.get("boxes")]);
    let boxes = net
        .model
        .add_input("boxes", DType::F32, &[1, a.get("boxes"), 4]);
    let suppress = Suppress {
        threshold: 0.5,
        centred: false,
        most: a.get("most"),
    };
    net.try_add(Op::Suppress(suppress), &[scores, boxes])
}
