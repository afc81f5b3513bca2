//! Importers of recurrent networks: LSTM, GRU and RNN.
//!
//! They are written out: one product of the whole sequence with the input weights, then for
//! each step of time one with the recurrent weights, and element-wise operators. The gates
//! are parts that lie behind each other, so every step reads and writes views, and all steps
//! are the same few kernels.

use crate::composite::{above, exp_minus_1, scalar, scaled, soft_plus};
use crate::node::{Imported, NodeImport, Problem};
use crate::quantized::{Along, by_own_range, dequantized};
use graph::ValueId;
use graph::ops::{Binary, Concat, Op, Slice, Split, Transpose, Unary};
use tensor::{DType, Tensor};

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Lstm,
    Gru,
    Rnn,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Rnn => 1,
        }
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Lstm => &["sigmoid", "tanh", "tanh"],
            Cell::Gru => &["sigmoid", "tanh"],
            Cell::Rnn => &["tanh"],
        }
    }
}

/// An activation with its parameters.
#[derive(Clone)]
struct Activation {
    name: String,
    alpha: f32,
    beta: f32,
}

/// The parameters that activations take, and their defaults.
const ACTIVATIONS: [(&str, Option<f32>, Option<f32>); 11] = [
    ("affine", Some(1.0), Some(0.0)),
    ("elu", Some(1.0), None),
    ("hardsigmoid", Some(0.2), Some(0.5)),
    ("leakyrelu", Some(0.01), None),
    ("relu", None, None),
    ("scaledtanh", Some(1.0), Some(1.0)),
    ("sigmoid", None, None),
    ("softplus", None, None),
    ("softsign", None, None),
    ("tanh", None, None),
    ("thresholdedrelu", Some(1.0), None),
];

impl Activation {
    fn apply(&self, n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name.as_str() {
            "affine" => {
                let x = scaled(n, x, alpha)?;
                let beta = scalar(n, x, beta)?;
                n.binary(Binary::Add, x, beta)
            }
            "elu" => {
                let below = exp_minus_1(n, x)?;
                let below = scaled(n, below, alpha)?;
                above(n, x, 0.0, (x, below))
            }
            "hardsigmoid" => n.unary(Unary::HardSigmoid { alpha, beta }, x),
            "leakyrelu" => n.unary(Unary::LeakyRelu { alpha }, x),
            "relu" => n.unary(Unary::Relu, x),
            "scaledtanh" => {
                let inner = scaled(n, x, beta)?;
                let y = n.unary(Unary::Tanh, inner)?;
                scaled(n, y, alpha)
            }
            "softplus" => soft_plus(n, x),
            "softsign" => {
                let size = n.unary(Unary::Abs, x)?;
                let one = scalar(n, x, 1.0)?;
                let divisor = n.binary(Binary::Add, one, size)?;
                n.binary(Binary::Div, x, divisor)
            }
            "tanh" => n.unary(Unary::Tanh, x),
            "thresholdedrelu" => {
                let zero = scalar(n, x, 0.0)?;
                above(n, x, alpha, (x, zero))
            }
            _ => n.unary(Unary::Sigmoid, x),
        }
    }
}

/// The activations of all directions.
fn activations(n: &NodeImport, cell: Cell, directions: usize) -> Result<Vec<Activation>, Problem> {
    let count = cell.activations().len() * directions;
    let names = match n.attributes.texts("activations")? {
        Some(names) if names.len() == count => names,
        Some(names) => {
            return Problem::unsupported(format!(
                "activations={names:?}, where {count} are needed"
            ));
        }
        None => {
            let all = cell.activations().iter().cycle().take(count);
            all.map(ToString::to_string).collect()
        }
    };
    let mut alphas = n
        .attributes
        .floats("activation_alpha")?
        .unwrap_or(&[])
        .iter();
    let mut betas = n
        .attributes
        .floats("activation_beta")?
        .unwrap_or(&[])
        .iter();
    let known = |given: &String| {
        let name = given.to_lowercase();
        let Some(entry) = ACTIVATIONS.iter().find(|a| a.0 == name) else {
            return Problem::unsupported(format!("there is no activation `{given}` here"));
        };
        // Values are for those activations only that take one.
        let next = |default: Option<f32>, given: &mut std::slice::Iter<f32>| {
            default.map_or(0.0, |d| given.next().copied().unwrap_or(d))
        };
        Ok(Activation {
            name,
            alpha: next(entry.1, &mut alphas),
            beta: next(entry.2, &mut betas),
        })
    };
    names.iter().map(known).collect()
}

/// What all steps of one direction share.
struct Direction {
    cell: Cell,
    activations: Vec<Activation>,
    clip: Option<f32>,
    /// Of an LSTM: the forget gate is what the input gate leaves.
    input_forget: bool,
    /// Of a GRU: the reset gate scales the product, not the state.
    linear_before_reset: bool,
    batch: usize,
    hidden: usize,
    /// As of [`Sizes`].
    bytes: bool,
    /// The recurrent weights of some gates, from the first on, ready for [`product`].
    recurrent: Vec<(ValueId, usize)>,
    /// Of a GRU: the bias of the recurrent product.
    reset_bias: Option<ValueId>,
    /// Of an LSTM: [hidden] for the input, output and forget gates.
    peepholes: Option<[ValueId; 3]>,
}

/// A hidden state, and that of an LSTM's cell.
#[derive(Clone, Copy)]
struct State {
    h: ValueId,
    c: ValueId,
}

pub(crate) fn lstm(n: &mut NodeImport) -> Imported {
    recurrent(n, Cell::Lstm, false)
}

/// An LSTM with weights of bytes, [directions, inputs, gates * hidden], and products of bytes: the whole sequence is
/// quantised by its range, and so is each hidden state.
pub(crate) fn dynamic_quantize_lstm(n: &mut NodeImport) -> Imported {
    let given = n.inputs.clone();
    for (i, scale) in [(1, 8), (2, 10)] {
        let weights = n.input(i)?;
        let weights = floats_of_bytes(n, weights, [n.input(scale)?, n.input(scale + 1)?])?;
        n.inputs[i] = Some(transposed(n, weights, &[0, 2, 1])?);
    }
    let results = recurrent(n, Cell::Lstm, true);
    n.inputs = given;
    results
}

/// What weights stand for, of scales and zero points for each direction, or for each direction and column.
fn floats_of_bytes(
    n: &mut NodeImport,
    weights: ValueId,
    steps: [ValueId; 2],
) -> Result<ValueId, Problem> {
    let [directions, _, columns] = n.shape(weights)[..] else {
        return Problem::unsupported(format!("weights {}", n.ty(weights)));
    };
    let mut spread = |v: ValueId| {
        let shape = match n.shape(v)[..] {
            [d] if d == directions => vec![d, 1, 1],
            [d, c] if [d, c] == [directions, columns] => vec![d, 1, c],
            _ => {
                return Problem::unsupported(format!(
                    "a scale or zero point {} of weights {}",
                    n.ty(v),
                    n.ty(weights)
                ));
            }
        };
        let v = n.cast(v, DType::F32)?;
        n.reshape(v, shape)
    };
    let [scale, zero] = [spread(steps[0])?, spread(steps[1])?];
    let numbers = n.widened(weights, DType::F32)?;
    let numbers = n.binary(Binary::Sub, numbers, zero)?;
    n.binary(Binary::Mul, numbers, scale)
}

/// The numbers that bytes can hold of `x`, quantised by its range.
fn by_bytes(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let [bytes, scale, zero] = by_own_range(n, x)?;
    dequantized(n, bytes, (scale, Some(zero)), Along::axis(-1))
}

pub(crate) fn gru(n: &mut NodeImport) -> Imported {
    recurrent(n, Cell::Gru, false)
}

pub(crate) fn rnn(n: &mut NodeImport) -> Imported {
    recurrent(n, Cell::Rnn, false)
}

fn transposed(n: &mut NodeImport, x: ValueId, perm: &[usize]) -> Result<ValueId, Problem> {
    let perm = perm.to_vec();
    n.emit(Op::Transpose(Transpose { perm }), &[x])
}

/// Elements `start..start + size` along an axis.
fn part(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    start: usize,
    size: usize,
) -> Result<ValueId, Problem> {
    let mut sizes = n.shape(x);
    if sizes[axis] == size {
        return Ok(x);
    }
    let (mut starts, steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    starts[axis] = start;
    sizes[axis] = size;
    let slice = Slice {
        starts,
        steps,
        sizes,
    };
    n.emit(Op::Slice(slice), &[x])
}

/// Entry `i` of the first axis, without it.
fn entry(n: &mut NodeImport, x: ValueId, i: usize) -> Result<ValueId, Problem> {
    let one = part(n, x, 0, i, 1)?;
    let rest = n.shape(one)[1..].to_vec();
    n.reshape(one, rest)
}

/// Checks an operand's shape.
fn check(n: &NodeImport, what: &str, x: ValueId, wanted: &[usize]) -> Result<(), Problem> {
    if n.ty(x).shape == wanted {
        return Ok(());
    }
    Problem::unsupported(format!(
        "its {what} is {}, where the shape {wanted:?} is needed",
        n.ty(x)
    ))
}

/// The sizes of a recurrent network.
struct Sizes {
    steps: usize,
    batch: usize,
    hidden: usize,
    directions: usize,
    /// Whether inputs and states are quantised before they are multiplied.
    bytes: bool,
}

fn sizes(n: &NodeImport, cell: Cell, x: ValueId, directions: usize) -> Result<Sizes, Problem> {
    let (w, r) = (n.input(1)?, n.input(2)?);
    let shape = n.shape(x);
    let [steps, batch, inputs] = shape[..] else {
        return Problem::unsupported(format!("its input has shape {shape:?}"));
    };
    let hidden = n.shape(r).last().copied().unwrap_or(0);
    let rows = cell.gates() * hidden;
    check(n, "W", w, &[directions, rows, inputs])?;
    check(n, "R", r, &[directions, rows, hidden])?;
    let given = n.attributes.int("hidden_size", hidden as i64)?;
    if given != hidden as i64 {
        return Problem::unsupported(format!("hidden_size={given} with R {}", n.ty(r)));
    }
    if batch == 0 || inputs == 0 || hidden == 0 {
        return Problem::unsupported(format!("its input {} is empty", n.ty(x)));
    }
    // Every step is written out.
    n.model.room_for(steps.saturating_mul(directions))?;
    Ok(Sizes {
        steps,
        batch,
        hidden,
        directions,
        bytes: false,
    })
}

fn recurrent(n: &mut NodeImport, cell: Cell, bytes: bool) -> Imported {
    let batch_first = n.attributes.flag("layout", false)?;
    let swap = |n: &mut NodeImport, x: ValueId| match batch_first {
        true => transposed(n, x, &[1, 0, 2]),
        false => Ok(x),
    };
    let x = n.input(0)?;
    if batch_first && n.ty(x).rank() != 3 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let x = swap(n, x)?;
    let reverse: &[bool] = match n.attributes.text("direction", "forward")?.as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Problem::unsupported(format!("direction=`{other}`")),
    };
    let s = Sizes {
        bytes,
        ..sizes(n, cell, x, reverse.len())?
    };
    let activations = activations(n, cell, s.directions)?;
    let lengths = lengths(n, &s)?;
    let mut initial = Vec::new();
    for i in 5..if cell == Cell::Lstm { 7 } else { 6 } {
        let zeros = [s.directions, s.batch, s.hidden];
        let state = match n.optional(i) {
            Some(state) if batch_first && n.ty(state).rank() == 3 => swap(n, state)?,
            Some(state) => state,
            None => n.filled(n.dtype(x), &zeros, 0.0)?,
        };
        check(n, "initial state", state, &zeros)?;
        initial.push(state);
    }
    if s.steps == 0 {
        return without_steps(n, &s, batch_first, &initial);
    }
    let mut all: [Vec<ValueId>; 3] = Default::default();
    for (d, reverse) in reverse.iter().enumerate() {
        let own = cell.activations().len();
        let own = activations[d * own..(d + 1) * own].to_vec();
        let (direction, projected) = direction(n, cell, &s, x, d, own)?;
        let mut state = State {
            h: entry(n, initial[0], d)?,
            c: entry(n, initial[initial.len() - 1], d)?,
        };
        let y = run(n, &direction, projected, &s, lengths, *reverse, &mut state)?;
        let y = n.reshape(y, vec![s.steps, 1, s.batch, s.hidden])?;
        all[0].push(y);
        for (list, v) in all[1..].iter_mut().zip([state.h, state.c]) {
            list.push(n.reshape(v, vec![1, s.batch, s.hidden])?);
        }
    }
    let mut results = Vec::new();
    let kinds = [(1, [2, 0, 1, 3]), (0, [1, 0, 2, 3]), (0, [1, 0, 2, 3])];
    for (parts, (axis, perm)) in all.iter().zip(kinds) {
        let joined = joined(n, parts, axis)?;
        results.push(match batch_first {
            true => transposed(n, joined, &perm[..n.ty(joined).rank()])?,
            false => joined,
        });
    }
    results.truncate(if cell == Cell::Lstm { 3 } else { 2 });
    Ok(results)
}

/// Of no step: no hidden states, and the initial states as the last ones.
fn without_steps(
    n: &mut NodeImport,
    s: &Sizes,
    batch_first: bool,
    initial: &[ValueId],
) -> Imported {
    // What the steps would be made of is not read.
    (3..n.inputs.len()).for_each(|i| _ = n.optional(i));
    n.attributes.ignore(&[
        "activation_alpha",
        "activation_beta",
        "activations",
        "clip",
        "input_forget",
        "linear_before_reset",
    ]);
    let none = match batch_first {
        false => [0, s.directions, s.batch, s.hidden],
        true => [s.batch, 0, s.directions, s.hidden],
    };
    let none = Tensor::zeros(n.dtype(initial[0]), &none);
    let mut results = vec![n.model.add_result(&n.name, none)];
    for state in initial {
        results.push(match batch_first {
            true => transposed(n, *state, &[1, 0, 2])?,
            false => *state,
        });
    }
    Ok(results)
}

fn joined(n: &mut NodeImport, parts: &[ValueId], axis: usize) -> Result<ValueId, Problem> {
    match parts {
        [one] => Ok(*one),
        _ => n.emit(Op::Concat(Concat { axis }), parts),
    }
}

/// The lengths of the sequences of a batch, unless all are whole.
fn lengths(n: &mut NodeImport, s: &Sizes) -> Result<Option<ValueId>, Problem> {
    let Some(lengths) = n.optional(4) else {
        return Ok(None);
    };
    check(n, "sequence_lens", lengths, &[s.batch])?;
    let whole = |t: &Tensor| (0..t.len()).all(|i| t.get_i64(i) >= s.steps as i64);
    if n.model.constant(lengths).is_some_and(|t| whole(t)) {
        return Ok(None);
    }
    Ok(Some(n.cast(lengths, DType::I64)?))
}

/// The parameters of direction `d`, and the inputs of all gates for each step.
fn direction(
    n: &mut NodeImport,
    cell: Cell,
    s: &Sizes,
    x: ValueId,
    d: usize,
    activations: Vec<Activation>,
) -> Result<(Direction, Vec<ValueId>), Problem> {
    let (gates, hidden) = (cell.gates(), s.hidden);
    let (w, r) = (n.input(1)?, n.input(2)?);
    let (w, r) = (entry(n, w, d)?, entry(n, r, d)?);
    let flag = |name: &str, of: Cell| match cell == of {
        true => n.attributes.flag(name, false),
        false => Ok(false),
    };
    let input_forget = flag("input_forget", Cell::Lstm)?;
    let linear_before_reset = flag("linear_before_reset", Cell::Gru)?;
    let (mut bias, mut reset_bias) = (None, None);
    if let Some(b) = n.optional(3) {
        check(n, "B", b, &[s.directions, 2 * gates * hidden])?;
        let b = entry(n, b, d)?;
        let own = part(n, b, 0, 0, gates * hidden)?;
        let mut other = part(n, b, 0, gates * hidden, gates * hidden)?;
        if linear_before_reset {
            reset_bias = Some(part(n, other, 0, 2 * hidden, hidden)?);
            let first = part(n, other, 0, 0, 2 * hidden)?;
            let zeros = n.filled(n.dtype(x), &[hidden], 0.0)?;
            other = n.emit(Op::Concat(Concat { axis: 0 }), &[first, zeros])?;
        }
        bias = Some(n.binary(Binary::Add, own, other)?);
    }
    let peepholes = match n.optional(7).filter(|_| cell == Cell::Lstm) {
        Some(p) => {
            check(n, "P", p, &[s.directions, 3 * hidden])?;
            let p = entry(n, p, d)?;
            let mut gate = |i: usize| part(n, p, 0, i * hidden, hidden);
            Some([gate(0)?, gate(1)?, gate(2)?])
        }
        None => None,
    };
    // The reset gate stands between a GRU's state and its last gate.
    let apart = cell == Cell::Gru && !linear_before_reset;
    let counts: &[usize] = if apart { &[2, 1] } else { &[gates] };
    let (mut recurrent, mut first) = (Vec::new(), 0);
    for count in counts {
        let rows = part(n, r, 0, first * hidden, count * hidden)?;
        recurrent.push((weights(n, rows, *count, s)?, *count));
        first += count;
    }
    let projected = project(n, x, w, bias, gates, s)?;
    let direction = Direction {
        cell,
        activations,
        clip: n.attributes.optional_float("clip")?,
        input_forget,
        linear_before_reset,
        batch: s.batch,
        hidden,
        bytes: s.bytes,
        recurrent,
        reset_bias,
        peepholes,
    };
    Ok((direction, projected))
}

/// Rows of weights [gates * hidden, hidden] as the right operand of [`product`]: all gates
/// behind each other for a batch of one, else gate by gate.
fn weights(n: &mut NodeImport, rows: ValueId, gates: usize, s: &Sizes) -> Result<ValueId, Problem> {
    if s.batch == 1 {
        return transposed(n, rows, &[1, 0]);
    }
    let apart = n.reshape(rows, vec![gates, s.hidden, s.hidden])?;
    transposed(n, apart, &[0, 2, 1])
}

/// The product of the whole sequence with the input weights, plus the bias, step by step as
/// [`product`] lays it out.
fn project(
    n: &mut NodeImport,
    x: ValueId,
    w: ValueId,
    bias: Option<ValueId>,
    gates: usize,
    s: &Sizes,
) -> Result<Vec<ValueId>, Problem> {
    let inputs = n.shape(x)[2];
    let mut rows = n.reshape(x, vec![s.steps * s.batch, inputs])?;
    if s.bytes {
        rows = by_bytes(n, rows)?;
    }
    let w = transposed(n, w, &[1, 0])?;
    let mut all = n.emit(Op::MatMul, &[rows, w])?;
    if let Some(bias) = bias {
        all = n.binary(Binary::Add, all, bias)?;
    }
    if s.batch > 1 {
        let apart = vec![s.steps, s.batch, gates, s.hidden];
        all = n.reshape(all, apart)?;
        all = transposed(n, all, &[0, 2, 1, 3])?;
    }
    let shape = match s.batch {
        1 => vec![1, gates * s.hidden],
        _ => vec![gates, s.batch, s.hidden],
    };
    let all = n.reshape(all, [&[s.steps], &shape[..]].concat())?;
    let steps = split(n, all, 0, s.steps)?;
    let step = |v| n.reshape(v, shape.clone());
    steps.into_iter().map(step).collect()
}

fn split(n: &mut NodeImport, x: ValueId, axis: usize, parts: usize) -> Imported {
    if parts == 1 {
        return Ok(vec![x]);
    }
    let sizes = vec![n.shape(x)[axis] / parts; parts];
    n.emit_all(Op::Split(Split { axis, sizes }), &[Some(x)])
}

impl Direction {
    /// The product of a state with the recurrent weights of some gates.
    fn product(&self, n: &mut NodeImport, h: ValueId, which: usize) -> Result<ValueId, Problem> {
        let weights = self.recurrent[which].0;
        let h = match self.bytes {
            true => by_bytes(n, h)?,
            false => h,
        };
        if self.batch == 1 {
            return n.emit(Op::MatMul, &[h, weights]);
        }
        let h = n.reshape(h, vec![1, self.batch, self.hidden])?;
        n.emit(Op::MatMul, &[h, weights])
    }

    /// The gates of a product, [batch, hidden] each.
    fn gates(&self, n: &mut NodeImport, all: ValueId, count: usize) -> Imported {
        let axis = usize::from(self.batch == 1);
        let parts = split(n, all, axis, count)?;
        let shape = vec![self.batch, self.hidden];
        parts
            .into_iter()
            .map(|v| n.reshape(v, shape.clone()))
            .collect()
    }

    fn activate(&self, n: &mut NodeImport, which: usize, x: ValueId) -> Result<ValueId, Problem> {
        let x = match self.clip {
            Some(limit) => {
                let limit = f64::from(limit);
                let (min, max) = (Some(-limit), Some(limit));
                n.unary(Unary::Clip { min, max }, x)?
            }
            None => x,
        };
        self.activations[which].apply(n, x)
    }

    fn step(&self, n: &mut NodeImport, x: ValueId, s: State) -> Result<State, Problem> {
        match self.cell {
            Cell::Lstm => self.lstm(n, x, s),
            Cell::Gru => self.gru(n, x, s),
            Cell::Rnn => {
                let product = self.product(n, s.h, 0)?;
                let sum = n.binary(Binary::Add, product, x)?;
                let sum = n.reshape(sum, vec![self.batch, self.hidden])?;
                let h = self.activate(n, 0, sum)?;
                Ok(State { h, c: h })
            }
        }
    }

    /// c = f c + i g, h = o act(c), with the gates in the order i, o, f, g.
    fn lstm(&self, n: &mut NodeImport, x: ValueId, s: State) -> Result<State, Problem> {
        let product = self.product(n, s.h, 0)?;
        let sum = n.binary(Binary::Add, product, x)?;
        let gates = self.gates(n, sum, 4)?;
        let [i, o, f, g] = gates[..] else {
            unreachable!("four gates are four parts")
        };
        let peep = |n: &mut NodeImport, gate: ValueId, which: usize, c: ValueId| {
            let Some(weights) = self.peepholes else {
                return Ok(gate);
            };
            let seen = n.binary(Binary::Mul, weights[which], c)?;
            n.binary(Binary::Add, gate, seen)
        };
        let i = peep(n, i, 0, s.c)?;
        let i = self.activate(n, 0, i)?;
        let f = if self.input_forget {
            let one = scalar(n, i, 1.0)?;
            n.binary(Binary::Sub, one, i)?
        } else {
            let f = peep(n, f, 2, s.c)?;
            self.activate(n, 0, f)?
        };
        let g = self.activate(n, 1, g)?;
        let kept = n.binary(Binary::Mul, f, s.c)?;
        let added = n.binary(Binary::Mul, i, g)?;
        let c = n.binary(Binary::Add, kept, added)?;
        let o = peep(n, o, 1, c)?;
        let o = self.activate(n, 0, o)?;
        let shown = self.activate(n, 2, c)?;
        let h = n.binary(Binary::Mul, o, shown)?;
        Ok(State { h, c })
    }

    /// h = (1 - z) g + z h, with the gates in the order z, r, g.
    fn gru(&self, n: &mut NodeImport, x: ValueId, s: State) -> Result<State, Problem> {
        let from_x = self.gates(n, x, 3)?;
        let product = self.product(n, s.h, 0)?;
        let from_h = self.gates(n, product, self.recurrent[0].1)?;
        let gate = |n: &mut NodeImport, i: usize| {
            let sum = n.binary(Binary::Add, from_h[i], from_x[i])?;
            self.activate(n, 0, sum)
        };
        let (z, r) = (gate(n, 0)?, gate(n, 1)?);
        let inner = if self.linear_before_reset {
            let inner = match self.reset_bias {
                Some(bias) => n.binary(Binary::Add, from_h[2], bias)?,
                None => from_h[2],
            };
            n.binary(Binary::Mul, r, inner)?
        } else {
            let reset = n.binary(Binary::Mul, r, s.h)?;
            let product = self.product(n, reset, 1)?;
            n.reshape(product, vec![self.batch, self.hidden])?
        };
        let sum = n.binary(Binary::Add, inner, from_x[2])?;
        let g = self.activate(n, 1, sum)?;
        let one = scalar(n, z, 1.0)?;
        let rest = n.binary(Binary::Sub, one, z)?;
        let new = n.binary(Binary::Mul, rest, g)?;
        let old = n.binary(Binary::Mul, z, s.h)?;
        let h = n.binary(Binary::Add, new, old)?;
        Ok(State { h, c: h })
    }
}

/// All steps of one direction, from the given state to the last one: the hidden states
/// [steps, batch, hidden]. Beyond the end of a sequence its state stays and its output is 0.
fn run(
    n: &mut NodeImport,
    direction: &Direction,
    projected: Vec<ValueId>,
    s: &Sizes,
    lengths: Option<ValueId>,
    reverse: bool,
    state: &mut State,
) -> Result<ValueId, Problem> {
    let dtype = n.dtype(state.h);
    let zero = n.filled(dtype, &[], 0.0)?;
    let mut order: Vec<usize> = (0..s.steps).collect();
    if reverse {
        order.reverse();
    }
    let mut outputs = vec![state.h; s.steps];
    for t in order {
        let new = direction.step(n, projected[t], *state)?;
        let Some(lengths) = lengths else {
            *state = new;
            outputs[t] = new.h;
            continue;
        };
        // Backwards too: the steps beyond the end come first, and leave the initial state.
        let at = n.filled(DType::I64, &[], t as f64)?;
        let inside = n.binary(Binary::Less, at, lengths)?;
        let inside = n.reshape(inside, vec![s.batch, 1])?;
        let keep = |n: &mut NodeImport, new, old| n.emit(Op::Where, &[inside, new, old]);
        outputs[t] = keep(n, new.h, zero)?;
        *state = State {
            h: keep(n, new.h, state.h)?,
            c: keep(n, new.c, state.c)?,
        };
    }
    for output in &mut outputs {
        *output = n.reshape(*output, vec![1, s.batch, s.hidden])?;
    }
    joined(n, &outputs, 0)
}
