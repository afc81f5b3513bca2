//! Order along an axis.
//!
//! A short axis is ordered by counting for each element those before it, all at once. A long
//! one goes through K. E. Batcher's bitonic network: elements are compared with others at fixed
//! distances, so the order in which the network works does not depend on the data, and every
//! step is one block over all elements.

use super::{Env, Kind, Point};
use graph::ops::TopK;
use ir::names::MAIN;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Reducer, UnaryOp};

/// Elements of an axis that are compared with all others, at most.
const MOST_COMPARED: i64 = 128;

/// Elements that the innermost axis of a network has, at least: as many lanes as a vector has.
const LANES: i64 = 16;

pub(super) fn top_k(env: &Env, b: &mut ProgramBuilder, t: TopK) -> (BufferId, Kind) {
    let extent = env.operand(0).shape()[t.axis];
    let result = match extent <= MOST_COMPARED {
        true => counted(env, b, t),
        false => network(env, b, t),
    };
    let kind = super::movement::kind(env);
    (result, kind.arg("axis", t.axis).arg("of", extent))
}

fn nan(e: &Expr) -> Expr {
    Expr::binary(BinaryOp::Ne, e, e)
}

/// `rank` counts for each element those before it; `main` finds the one of each rank. Both
/// compare every element with every other, and all at once.
fn counted(env: &Env, b: &mut ProgramBuilder, t: TopK) -> BufferId {
    let x = env.operand(0);
    let shape = x.shape().to_vec();
    let (n, float) = (shape[t.axis], env.operand_dtype(0).is_float());
    let above = |a: &Expr, b: &Expr| {
        let larger = b.clone().lt(a);
        if !float {
            return larger;
        }
        larger.or(nan(a).and(Expr::unary(UnaryOp::Not, nan(b))))
    };
    let count = |v: Expr| v.cast(DType::I32);
    let with = |o: &[Expr], i: &Expr| {
        let mut at = o.to_vec();
        at[t.axis] = i.clone();
        at
    };
    let names: Vec<String> = (0..shape.len()).map(|d| format!("i{d}")).collect();
    let all: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(shape).collect();
    let rank = b.reduce("rank", &all, &[("r0", n)], Reducer::Sum, |o, r| {
        let (own, other) = (x.at(o.to_vec()), x.at(with(o, &r[0])));
        let (better, worse) = match t.largest {
            true => (above(&other, &own), above(&own, &other)),
            false => (above(&own, &other), above(&other, &own)),
        };
        let before = r[0].clone().lt(&o[t.axis]);
        let equal = Expr::unary(UnaryOp::Not, worse).and(before);
        let constant = |v| Expr::constant(v, DType::I32);
        Expr::select(better.or(equal), constant(1.0), constant(0.0))
    });
    let axes = env.axes();
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &[("r0", n)],
        Reducer::Sum,
        |o, r| {
            let found = Expr::load(rank, with(o, &r[0])).equals(count(o[t.axis].clone()));
            Expr::select(found, count(r[0].clone()), Expr::constant(0.0, DType::I32))
        },
    );
    let post = |position: Expr, _: &Point| position.cast(DType::I64);
    env.conclude(b, acc, &axes, Some(&post))
}

/// Elements on their way through the network: those of a line are [low, lanes], and element
/// `lane * low + i` lies at `i, lane`. Steps at distances below `low` then have vectors along
/// the lanes.
struct Elements {
    keys: BufferId,
    /// Where the element comes from. Elements that are equal as keys, but not in the order,
    /// are told apart by it: see [`entered`].
    places: BufferId,
    low: i64,
    lanes: i64,
}

/// A network that orders chunks of at least `k` elements, and then keeps the better half of two
/// chunks until one is left.
fn network(env: &Env, b: &mut ProgramBuilder, t: TopK) -> BufferId {
    let x = env.operand(0);
    let shape = x.shape().to_vec();
    let whole = (shape[t.axis] as u64).next_power_of_two() as i64;
    let chunk = (t.k.max(1) as u64).next_power_of_two() as i64;
    let lanes = (whole / chunk).max(LANES);
    let mut lines = Vec::new();
    for (d, n) in shape.iter().enumerate().filter(|(d, _)| *d != t.axis) {
        lines.push((format!("i{d}"), *n));
    }
    let mut network = Network {
        b,
        lines,
        largest: t.largest,
        steps: 0,
    };
    let mut all = entered(env, &mut network, t, [whole / lanes, lanes]);
    let mut size = 2;
    while size <= chunk {
        all = network.step(&all, size - 1, None);
        all = network.merged(all, size / 2);
        size *= 2;
    }
    while all.low * all.lanes > chunk {
        let half = all.low * all.lanes / 2;
        all = network.step(&all, chunk - 1, Some(half));
        all = network.merged(all, chunk);
    }
    env.map(network.b, |p| {
        let mut at = p.index.clone();
        let i = at.remove(t.axis);
        at.push(i.clone().floor_mod(all.low));
        at.push(i.floor_div(all.low));
        let place = Expr::load(all.places, at);
        let own = Expr::constant((whole - 1) as f64, DType::I32);
        Expr::binary(BinaryOp::BitAnd, place, own).cast(DType::I64)
    })
}

/// The operand's elements, and others behind them that come last in the order. NaN is an
/// infinity that comes before or behind all others by its place, to which a multiple of the
/// network's size is added.
fn entered(env: &Env, network: &mut Network, t: TopK, [low, lanes]: [i64; 2]) -> Elements {
    let x = env.operand(0);
    let (n, whole) = (x.shape()[t.axis], low * lanes);
    let dtype = match env.operand_dtype(0) {
        d if d.is_float() => super::work(d),
        DType::I64 => DType::I64,
        _ => DType::I32,
    };
    let best = match (dtype, t.largest) {
        (d, true) if d.is_float() => f64::INFINITY,
        (d, false) if d.is_float() => f64::NEG_INFINITY,
        (_, true) => f64::MAX,
        (_, false) => f64::MIN,
    };
    let number = |v: f64| Expr::constant(v, dtype);
    let place = |v: i64| Expr::constant(v as f64, DType::I32);
    let axes = network.axes(low, lanes);
    let list: Vec<(&str, i64)> = axes.iter().map(|(n, e)| (n.as_str(), *e)).collect();
    let made = network.b.block("enter", &list, &[], None, |o, _| {
        let lines = o.len() - 2;
        let i = o[lines + 1].clone() * low + &o[lines];
        let mut at = o[..lines].to_vec();
        at.insert(t.axis, i.clone().min(n - 1));
        let own = x.at(at);
        let (mut key, mut from) = (own.clone().cast(dtype), i.clone().cast(DType::I32));
        if dtype.is_float() {
            key = Expr::select(nan(&own), number(f64::INFINITY), key);
            let shift = if t.largest { -whole } else { whole };
            from = &from + Expr::select(nan(&own), place(shift), place(0));
        }
        let inside = i.clone().lt(n);
        let last = i.cast(DType::I32) + place(2 * whole);
        vec![
            Expr::select(inside.clone(), key, number(-best)),
            Expr::select(inside, from, last),
        ]
    });
    Elements {
        keys: made[0],
        places: made[1],
        low,
        lanes,
    }
}

struct Network<'a> {
    b: &'a mut ProgramBuilder,
    /// Axes of the lines that are ordered.
    lines: Vec<(String, i64)>,
    largest: bool,
    steps: usize,
}

impl Network<'_> {
    fn axes(&self, low: i64, lanes: i64) -> Vec<(String, i64)> {
        let own = [("low".to_string(), low), ("lane".to_string(), lanes)];
        [&self.lines[..], &own].concat()
    }

    /// Elements whose halves of `2 * size` are bitonic: in order.
    fn merged(&mut self, mut all: Elements, size: i64) -> Elements {
        let mut distance = size / 2;
        while distance > 0 {
            all = self.step(&all, distance, None);
            distance /= 2;
        }
        all
    }

    /// Compares each element with the one whose number differs in the bits of `mask`, and puts
    /// the better one first. With `half`, the other one is so much further on, and only the
    /// better ones are kept.
    fn step(&mut self, from: &Elements, mask: i64, half: Option<i64>) -> Elements {
        let (low, across) = (mask % from.low, mask / from.low);
        let (further, lanes) = match half {
            Some(half) => (half / from.low, from.lanes / 2),
            None => (0, from.lanes),
        };
        // The highest bit says which of two elements comes first.
        let top = 1i64 << (i64::BITS - 1 - mask.max(1).leading_zeros());
        let axes = self.axes(from.low, lanes);
        let list: Vec<(&str, i64)> = axes.iter().map(|(n, e)| (n.as_str(), *e)).collect();
        let name = format!("step{}", self.steps);
        self.steps += 1;
        let largest = self.largest;
        let made = self.b.block(&name, &list, &[], None, |o, _| {
            let lines = o.len() - 2;
            let other = |i: &Expr, bits: i64| match bits {
                0 => i.clone(),
                bits => Expr::binary(BinaryOp::BitXor, i, Expr::int(bits)),
            };
            let at = [
                &o[..lines],
                &[
                    other(&o[lines], low),
                    other(&o[lines + 1], across) + further,
                ],
            ]
            .concat();
            let own = [from.keys, from.places].map(|b| Expr::load(b, o.to_vec()));
            let partner = [from.keys, from.places].map(|b| Expr::load(b, at.clone()));
            let better = match largest {
                true => own[0].clone().lt(&partner[0]),
                false => partner[0].clone().lt(&own[0]),
            };
            let equal = partner[0].clone().equals(&own[0]);
            let earlier = partner[1].clone().lt(&own[1]);
            let comes_before = better.or(equal.and(earlier));
            let takes = match half {
                Some(_) => comes_before,
                None => {
                    let (bits, within) = match top < from.low {
                        true => (&o[lines], top),
                        false => (&o[lines + 1], top / from.low),
                    };
                    let bit = Expr::binary(BinaryOp::BitAnd, bits, Expr::int(within));
                    let is_second = bit.equals(Expr::int(within));
                    Expr::binary(BinaryOp::Ne, comes_before, is_second)
                }
            };
            let [key, place] = partner;
            let [own_key, own_place] = own;
            vec![
                Expr::select(takes.clone(), key, own_key),
                Expr::select(takes, place, own_place),
            ]
        });
        Elements {
            keys: made[0],
            places: made[1],
            low: from.low,
            lanes,
        }
    }
}
