//! Whether a model computes the same from inputs that are padded along a dimension.
//!
//! A model at a smaller size is compared with itself at a larger one. Along any number of its
//! axes the smaller one's value is the first part of the larger one's, its *corner*; this is
//! proven of each value in turn. Rows may see each other, where what they see of the padding
//! has no weight: an input that masks it is padded with zeros, and constants may hide later
//! rows from earlier ones. What is known of the padding's elements is followed with the rows.

use super::rest::{Rest, applied};
use super::{Facts, Rows, Stack, compared_sizes, mixes};
use crate::model::{Model, Node, Origin, TensorType, ValueId};
use crate::ops::{Binary, Op, ReduceKind};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tensor::Tensor;

/// How inputs may be padded, and what is cropped of the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Padded {
    /// Where each output has the rows; none where it has none.
    pub outputs: Vec<Option<Rows>>,
    /// The inputs whose padding is zero. That of others may be anything that they may have.
    pub zeros: Vec<usize>,
    /// The least that a mask takes from what the padding would add to a softmax or a maximum: the
    /// padding has no weight where other elements differ by less than nine tenths of it.
    pub hidden_by: Option<f64>,
}

/// Proves that a model at a larger size of a dimension, which `inputs` have (position of an
/// input, axis), gives in its first rows what it gives at a smaller one, if its inputs are
/// padded behind theirs. A mask must let each row see a row of the smaller size.
///
/// # Errors
/// Says which node or constant stops the proof, and why.
pub fn padded(small: &Model, large: &Model, inputs: &[(usize, usize)]) -> Result<Padded, String> {
    let (small, large) = (small.without_dead_code(), large.without_dead_code());
    let sizes = compared_sizes(&small, &large, inputs)?;
    if small.nodes().len() != large.nodes().len() {
        return Err("the model has other nodes at another size".into());
    }
    if !large.crops().is_empty() || !large.states().is_empty() {
        return Err("the model counts its results or keeps a state".into());
    }
    let masks: BTreeSet<usize> = inputs.iter().map(|(input, _)| *input).collect();
    let mut furthest: Option<Stop> = None;
    for mask in [None].into_iter().chain(masks.into_iter().map(Some)) {
        let mut proof = Proof {
            small: &small,
            large: &large,
            sizes,
            mask,
            hidden_by: None,
            known: HashMap::new(),
        };
        match proof.run(inputs) {
            Ok(outputs) => {
                return Ok(Padded {
                    outputs,
                    zeros: mask.into_iter().collect(),
                    hidden_by: proof.hidden_by,
                });
            }
            Err(stop) if furthest.as_ref().is_none_or(|f| f.nodes < stop.nodes) => {
                furthest = Some(stop);
            }
            Err(_) => {}
        }
    }
    furthest.map_or_else(mixes, |stop| Err(stop.why))
}

/// What stops a proof, behind so many nodes.
struct Stop {
    nodes: usize,
    why: String,
}

/// An axis along which a value has rows, and what its padding is beside the first rows of
/// the other axes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    rows: Stack,
    rest: Rest,
}

struct Proof<'a> {
    small: &'a Model,
    large: &'a Model,
    sizes: (usize, usize),
    /// The input whose padding is zero.
    mask: Option<usize>,
    /// As [`Padded::hidden_by`].
    hidden_by: Option<f64>,
    /// By the value in the large model: that in the small one, and its rows.
    known: HashMap<ValueId, (ValueId, Vec<Place>)>,
}

impl Proof<'_> {
    fn run(&mut self, inputs: &[(usize, usize)]) -> Result<Vec<Option<Rows>>, Stop> {
        let (small, large) = (self.small, self.large);
        let stop = |nodes| move |why| Stop { nodes, why };
        for (at, (s, l)) in small.inputs().iter().zip(large.inputs()).enumerate() {
            let rest = match self.mask == Some(at) {
                true => Rest::Known(0.0),
                false => Rest::Unknown,
            };
            let place = |(_, axis): &(usize, usize)| Place {
                rows: Stack::new(*axis, 1),
                rest,
            };
            let own = inputs.iter().filter(|(input, _)| *input == at);
            self.know(*s, *l, own.map(place).collect())
                .map_err(stop(0))?;
        }
        for (at, ((_, s), (_, l))) in small.nodes().zip(large.nodes()).enumerate() {
            let named = |why| format!("node `{}` ({}) {why}", l.name, l.op.name());
            self.node(s, l).map_err(named).map_err(stop(at))?;
        }
        let outputs = small.outputs().iter().zip(large.outputs());
        let outputs = outputs.map(|(s, l)| self.output(*s, *l));
        let outputs: Result<_, String> = outputs.collect();
        outputs.map_err(stop(large.nodes().len()))
    }

    fn output(&mut self, s: ValueId, l: ValueId) -> Result<Option<Rows>, String> {
        match self.places(s, l)?[..] {
            [] => Ok(None),
            [Place { rows, .. }] if rows.groups == 1 => Ok(Some(Rows {
                axis: rows.axis,
                each: rows.each,
            })),
            _ => {
                let name = self.large[l].name();
                Err(format!(
                    "the output `{name}` has the rows in several places"
                ))
            }
        }
    }

    /// Notes where a value has its rows, if its types say so.
    fn know(&mut self, s: ValueId, l: ValueId, places: Vec<Place>) -> Result<(), String> {
        let (a, b) = (self.small[s].ty(), self.large[l].ty());
        let (from, to) = self.sizes;
        let mut expected = b.clone();
        for Place { rows, .. } in &places {
            let fits = b.shape.get(rows.axis) == Some(&rows.size(to)) && rows.size(to) > 0;
            // Rows that came from two axes to one are not the first part of it.
            if !fits || expected.shape[rows.axis] != rows.size(to) {
                return mixes();
            }
            expected.shape[rows.axis] = rows.size(from);
        }
        if *a != expected {
            let name = self.large[l].name();
            return Err(format!(
                "mixes rows: `{name}` is {a} at one size and {b} at the other"
            ));
        }
        self.known.insert(l, (s, places));
        Ok(())
    }

    /// The rows of a value that both models have in the same places.
    fn places(&mut self, s: ValueId, l: ValueId) -> Result<Vec<Place>, String> {
        let name = self.large[l].name();
        if let Some((own, places)) = self.known.get(&l) {
            return match *own == s {
                true => Ok(places.clone()),
                false => Err(format!("reads another value than `{name}` at another size")),
            };
        }
        let (Origin::Constant(a), Origin::Constant(b)) =
            (self.small[s].origin(), self.large[l].origin())
        else {
            return Err(format!(
                "reads `{name}`, which is computed at one size only"
            ));
        };
        let places = corner(a, b, self.sizes)
            .ok_or_else(|| format!("reads the constant `{name}`, which depends on the size"))?;
        self.know(s, l, places.clone())?;
        Ok(places)
    }

    fn node(&mut self, s: &Node, l: &Node) -> Result<(), String> {
        let other = || Err("is another one at another size".into());
        if s.inputs.len() != l.inputs.len() || s.outputs.len() != l.outputs.len() {
            return other();
        }
        let (mut operands, mut constants, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for pair in s.inputs.iter().zip(&l.inputs) {
            let (own, of_it) = match pair {
                (Some(s), Some(l)) => (Some(*l), self.places(*s, *l)?),
                (None, None) => (None, Vec::new()),
                _ => return other(),
            };
            operands.push(own.map(|v| self.large[v].ty()));
            constants.push(own.and_then(|v| self.large.constant(v).map(|t| &**t)));
            places.push(of_it);
        }
        let reading = Reading {
            ops: [&s.op, &l.op],
            results: [self.small[s.outputs[0]].ty(), self.large[l.outputs[0]].ty()],
            operands,
            constants,
            places,
            sizes: self.sizes,
        };
        if self.mask.is_some() && reading.divides_integers() {
            return Err("divides integers, by zero in the padding of a mask".into());
        }
        let places = reading.result()?;
        let hidden_by = self.hidden_by.into_iter().chain(reading.hidden_by());
        let hidden_by = hidden_by.reduce(f64::min);
        if !reading.is_same_but_sizes(&places) {
            return other();
        }
        for (s, l) in s.outputs.iter().zip(&l.outputs) {
            self.know(*s, *l, places.clone())?;
        }
        self.hidden_by = hidden_by;
        Ok(())
    }
}

/// Where the smaller constant is the first part of the larger one; none if it is not.
fn corner(a: &Arc<Tensor>, b: &Arc<Tensor>, (from, to): (usize, usize)) -> Option<Vec<Place>> {
    if Arc::ptr_eq(a, b) || a == b {
        return Some(Vec::new());
    }
    if a.dtype() != b.dtype() || a.rank() != b.rank() || a.is_empty() {
        return None;
    }
    let mut axes = Vec::new();
    for (axis, (own, all)) in a.shape().iter().zip(b.shape()).enumerate() {
        let each = all / to;
        if own != all {
            if each == 0 || [*own, *all] != [from * each, to * each] {
                return None;
            }
            let inner: usize = b.shape()[axis + 1..].iter().product();
            axes.push((Stack::new(axis, each), inner, None));
        }
    }
    let mut first = 0;
    let bytes = a.dtype().size();
    let element = |t: &'_ Tensor, i: usize| t.bytes()[i * bytes..(i + 1) * bytes].to_vec();
    for i in 0..b.len() {
        let is_padding = |(rows, inner, _): &&mut (Stack, usize, Option<Rest>)| {
            i / *inner % rows.size(to) >= rows.size(from)
        };
        let mut beyond = axes.iter_mut().filter(is_padding);
        match (beyond.next(), beyond.next()) {
            (None, _) if element(a, first) != element(b, i) => return None,
            (None, _) => first += 1,
            (Some((_, _, rest)), None) => {
                let own = Rest::of(b, i);
                *rest = Some(rest.map_or(own, |r: Rest| r.or(own)));
            }
            _ => {}
        }
    }
    let place = |(rows, _, rest): (Stack, usize, Option<Rest>)| Place {
        rows,
        rest: rest.unwrap_or(Rest::Unknown),
    };
    // A constant that is one at both sizes by chance has no rows.
    (!axes.is_empty()).then(|| axes.into_iter().map(place).collect())
}

/// A node at both sizes, and what is known of its operands.
struct Reading<'a> {
    ops: [&'a Op; 2],
    /// The types of the first result.
    results: [&'a TensorType; 2],
    /// In the larger model, as the constants.
    operands: Vec<Option<&'a TensorType>>,
    constants: Vec<Option<&'a Tensor>>,
    places: Vec<Vec<Place>>,
    sizes: (usize, usize),
}

/// What becomes of an axis with rows that see each other.
enum Met {
    Kept(Place),
    /// The result has no rows of it, nor of an axis of another operand.
    Gone(Option<(usize, Place)>),
}

impl Reading<'_> {
    /// Where the result has rows.
    fn result(&self) -> Result<Vec<Place>, String> {
        let mut found = Vec::new();
        let places = self.places.iter().enumerate();
        let mut open: Vec<(usize, Place)> = places
            .flat_map(|(at, all)| all.iter().map(move |p| (at, *p)))
            .collect();
        while let Some((at, place)) = open.first().copied() {
            if let Some((chosen, rows)) = self.apart(at, place, &open) {
                let rest = self.rest(&chosen);
                found.push(Place { rows, rest });
                open.retain(|(at, p)| chosen[*at] != Some(*p));
                continue;
            }
            let also = match self.met(at, place)? {
                Met::Kept(place) => {
                    found.push(place);
                    None
                }
                Met::Gone(also) => also,
            };
            open.retain(|own| *own != (at, place) && Some(*own) != also);
        }
        found.extend(self.begun());
        Ok(found)
    }

    /// The operator may keep the rows of an axis apart from each other, with those of at most
    /// one axis of each other operand: these axes, and where the result has the rows.
    fn apart(
        &self,
        at: usize,
        place: Place,
        open: &[(usize, Place)],
    ) -> Option<(Vec<Option<Place>>, Stack)> {
        let few = self.operands.len() <= 3;
        let choices = |of: usize| -> Vec<Option<Place>> {
            if of == at {
                return vec![Some(place)];
            }
            let own = open.iter().filter(|(operand, _)| *operand == of);
            let own = own.map(|(_, p)| *p).filter(|p| few || p.rows == place.rows);
            own.map(Some).chain([None]).collect()
        };
        let mut all = vec![Vec::new()];
        for of in 0..self.operands.len() {
            let own = choices(of);
            // Many operands must agree, so that one choice is enough.
            let own = if few { &own[..] } else { &own[..1] };
            let with = |chosen: &Vec<_>| {
                let one = |choice: &Option<Place>| [&chosen[..], &[*choice]].concat();
                own.iter().map(one).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        all.into_iter().find_map(|chosen| {
            let facts = Facts {
                operands: self.operands.clone(),
                constants: self.constants.clone(),
                rows: chosen.iter().map(|p| p.map(|p| p.rows)).collect(),
                result: self.results[1],
                size: self.sizes.1,
            };
            let rows = facts.kept(self.ops[1]).ok()?;
            Some((chosen, rows))
        })
    }

    /// What is known of the padding of a result whose rows stay apart, if these are the axes of
    /// the operands.
    fn rest(&self, chosen: &[Option<Place>]) -> Rest {
        let of = |at: usize| match chosen[at] {
            Some(place) => place.rest,
            None => self.constants[at].map_or(Rest::Unknown, uniform),
        };
        match self.ops[1] {
            Op::Identity
            | Op::Dropout(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Cast(_) => {
                let dtypes = self.operands.iter().flatten().map(|x| x.dtype);
                let known = |at: usize| matches!(of(at), Rest::Known(_));
                let all_known = (0..chosen.len()).all(known);
                // What every row gets alike, such as the 20000 of `x - 20000`, hides the padding from none: it counts
                // only where the padding's elements are known.
                let operand = |at: usize| match chosen[at] {
                    None if !all_known && self.is_shift() => Rest::Unknown,
                    _ => of(at),
                };
                if matches!(self.ops[1], Op::Where) && chosen[0].is_none() {
                    return Rest::Unknown;
                }
                let operands: Vec<_> = (0..chosen.len()).map(operand).zip(dtypes).collect();
                applied(self.ops[1], &operands)
            }
            Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Expand(_)
            | Op::Slice(_)
            | Op::Split(_)
            | Op::Gather(_)
            | Op::GatherElements(_)
            | Op::GatherNd(_)
            | Op::Concat(_) => {
                let moved = match self.ops[1] {
                    Op::Concat(_) => chosen,
                    _ => &chosen[..1],
                };
                let rests = moved.iter().map(|p| p.map_or(Rest::Unknown, |p| p.rest));
                rests.reduce(Rest::or).unwrap_or(Rest::Unknown)
            }
            _ => Rest::Unknown,
        }
    }

    fn is_shift(&self) -> bool {
        let shifts = [Binary::Add, Binary::Sub, Binary::Min];
        matches!(self.ops[1], Op::Binary(b) if shifts.contains(b))
    }

    /// What becomes of rows that see each other, if none sees the padding.
    fn met(&self, at: usize, place: Place) -> Result<Met, String> {
        let Place { rows, rest } = place;
        let whole = rows.groups == 1;
        match self.ops[1] {
            Op::Softmax(s) if s.axis == rows.axis => {
                if !rest.is_negligible() {
                    return Err("mixes rows: no mask hides the padding from it".into());
                }
                let mut others = self.places[0].iter().filter(|p| p.rows != rows);
                if others.any(|p| p.rest.is_negligible()) {
                    return Err("mixes rows: a row of the padding sees nothing".into());
                }
                Ok(Met::Kept(Place {
                    rows,
                    rest: Rest::Known(0.0),
                }))
            }
            Op::Cumulative(c) if c.axis == rows.axis && !c.reverse && whole => {
                let rest = Rest::Unknown;
                Ok(Met::Kept(Place { rows, rest }))
            }
            Op::Reduce(r) if r.axes.contains(&rows.axis) => match r.kind {
                ReduceKind::Sum if rest.is_zero() => Ok(Met::Gone(None)),
                ReduceKind::Max if rest.is_negligible() => Ok(Met::Gone(None)),
                _ => mixes(),
            },
            Op::Slice(l) if whole => match self.ops[0] {
                Op::Slice(s) if s.sizes[rows.axis] == l.sizes[rows.axis] => Ok(Met::Gone(None)),
                _ => mixes(),
            },
            Op::Gather(g) if at == 0 && g.axis == rows.axis && whole => {
                let end = rows.size(self.sizes.0) as i64;
                let first = |t: &Tensor| (0..t.len()).all(|i| (0..end).contains(&t.get_i64(i)));
                match self.constants[1] {
                    Some(t) if self.places[1].is_empty() && first(t) => Ok(Met::Gone(None)),
                    _ => mixes(),
                }
            }
            Op::MatMul | Op::Gemm(_) | Op::Contract(_) => self.summed(at, place),
            _ => mixes(),
        }
    }

    /// How far below the other elements those are which the operator is to ignore.
    fn hidden_by(&self) -> Option<f64> {
        let across = |p: &&Place| match self.ops[1] {
            Op::Softmax(s) => s.axis == p.rows.axis,
            Op::Reduce(r) => r.kind == ReduceKind::Max && r.axes.contains(&p.rows.axis),
            _ => false,
        };
        let most = self.places.first().into_iter().flatten().filter(across);
        most.filter_map(|p| p.rest.bound())
            .map(|most| -most)
            .reduce(f64::min)
    }

    /// A sum of products along the rows ignores the padding if one operand is zero there.
    fn summed(&self, at: usize, place: Place) -> Result<Met, String> {
        let other = 1 - at.min(1);
        let axis = self.summed_with(at, place.rows.axis);
        let same = |p: &&Place| {
            let rows = Stack {
                axis: place.rows.axis,
                ..p.rows
            };
            Some(p.rows.axis) == axis && rows == place.rows
        };
        match self.places[other].iter().find(same) {
            Some(partner) if place.rest.is_zero() || partner.rest.is_zero() => {
                Ok(Met::Gone(Some((other, *partner))))
            }
            _ => mixes(),
        }
    }

    /// The axis of the other operand that is summed over with an axis of one.
    fn summed_with(&self, at: usize, axis: usize) -> Option<usize> {
        let rank = |at: usize| self.operands[at].map_or(0, TensorType::rank);
        let of_matmul = |at: usize| match at {
            0 => rank(0).checked_sub(1),
            _ => Some(rank(1).saturating_sub(2)),
        };
        let (own, other) = match self.ops[1] {
            Op::MatMul => (of_matmul(at), of_matmul(1 - at.min(1))),
            Op::Gemm(g) => {
                let axes = [usize::from(!g.trans_a), usize::from(g.trans_b)];
                (axes.get(at).copied(), axes.get(1 - at.min(1)).copied())
            }
            Op::Contract(c) => {
                let letters = [&c.left, &c.right];
                let letter = letters[at][axis];
                let summed = !c.result.contains(&letter);
                let other = letters[1 - at].iter().position(|l| *l == letter);
                (summed.then_some(axis), other)
            }
            _ => return None,
        };
        (own == Some(axis)).then_some(other).flatten()
    }

    /// Rows that the operator makes of an axis without any: it repeats one element, or takes
    /// as many of the first as there are rows.
    fn begun(&self) -> Vec<Place> {
        let [small, large] = self.results;
        let (from, to) = self.sizes;
        let Some(x) = self.operands.first().copied().flatten() else {
            return Vec::new();
        };
        if small.rank() != large.rank() {
            return Vec::new();
        }
        let begins = |axis: usize| match self.ops[1] {
            Op::Expand(_) => {
                let missing = large.rank() - x.rank().min(large.rank());
                axis < missing || x.shape[axis - missing] == 1
            }
            Op::Slice(_) => self.places[0].iter().all(|p| p.rows.axis != axis),
            _ => false,
        };
        let place = |axis: usize| {
            let each = large.shape[axis] / to;
            let sizes = [small.shape[axis], large.shape[axis]];
            let fits = sizes == [from * each, to * each] && each > 0;
            (fits && begins(axis)).then(|| Place {
                rows: Stack::new(axis, each),
                rest: self.constants[0].map_or(Rest::Unknown, uniform),
            })
        };
        (0..large.rank()).filter_map(place).collect()
    }

    /// Whether the operators differ in nothing but the number of rows.
    fn is_same_but_sizes(&self, places: &[Place]) -> bool {
        match self.ops {
            // The types of their results, which are compared, say all of these.
            [Op::Reshape(_), Op::Reshape(_)] | [Op::Expand(_), Op::Expand(_)] => true,
            [Op::Slice(a), Op::Slice(b)] => {
                let has_rows = |axis: usize| places.iter().any(|p| p.rows.axis == axis);
                let mut sizes = a.sizes.iter().zip(&b.sizes).enumerate();
                a.starts == b.starts
                    && a.steps == b.steps
                    && a.sizes.len() == b.sizes.len()
                    && sizes.all(|(axis, (a, b))| a == b || has_rows(axis))
            }
            [a, b] => a == b,
        }
    }

    fn divides_integers(&self) -> bool {
        let divides = matches!(
            self.ops[1],
            Op::Binary(Binary::Div | Binary::Mod | Binary::Fmod)
        );
        divides && self.results[1].dtype.is_int() && !self.places[1].is_empty()
    }
}

/// What all elements of a constant are.
fn uniform(t: &Tensor) -> Rest {
    if t.is_empty() {
        return Rest::Unknown;
    }
    let first = Rest::of(t, 0);
    match (1..t.len()).all(|i| Rest::of(t, i) == first) {
        true => first,
        false => Rest::Unknown,
    }
}
