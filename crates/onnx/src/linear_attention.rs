//! Importers of linear attention: a state that each row of a sequence changes, written out row by row.

use crate::grouped::count;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Concat, Op, Split, Unary};
use tensor::DType;

/// The heads that an operator of linear attention has.
struct Heads {
    batch: usize,
    rows: usize,
    /// Heads with a state of their own.
    states: usize,
    /// Heads of queries that read one state.
    shared: usize,
    /// Elements of a key and of a value.
    sizes: [usize; 2],
}

impl Heads {
    fn read(n: &NodeImport, [q, k, v]: [ValueId; 3]) -> Result<Heads, Problem> {
        let (queries, states) = (count(n, "q_num_heads")?, count(n, "kv_num_heads")?);
        let refused = || {
            Problem::unsupported(format!(
                "{queries} heads of {} with {states} of {} and {}",
                n.ty(q),
                n.ty(k),
                n.ty(v)
            ))
        };
        let (&[batch, rows, width], &[kb, kr, keys], &[vb, vr, values]) =
            (&n.shape(q)[..], &n.shape(k)[..], &n.shape(v)[..])
        else {
            return refused();
        };
        // With fewer heads of queries than states, queries would be repeated.
        let is_whole = queries.is_multiple_of(states)
            && width.is_multiple_of(queries)
            && values.is_multiple_of(states);
        let fits = is_whole
            && [kb, kr, vb, vr] == [batch, rows, batch, rows]
            && keys == width / queries * states;
        if !fits || batch * rows * width * values == 0 {
            return refused();
        }
        Ok(Heads {
            batch,
            rows,
            states,
            shared: queries / states,
            sizes: [width / queries, values / states],
        })
    }

    /// The rows of an operand [batch, rows, ..], each in the given shape.
    fn each(
        &self,
        n: &mut NodeImport,
        x: ValueId,
        shape: [usize; 4],
    ) -> Result<Vec<ValueId>, Problem> {
        n.model.room_for(2 * self.rows)?;
        let parts = match self.rows {
            1 => vec![x],
            rows => {
                let sizes = vec![1; rows];
                n.emit_all(Op::Split(Split { axis: 1, sizes }), &[Some(x)])?
            }
        };
        let part = |p| n.reshape(p, shape.to_vec());
        parts.into_iter().map(part).collect()
    }

    /// By what each row multiplies the state before it.
    fn decays(&self, n: &mut NodeImport, wide: DType) -> Result<Vec<ValueId>, Problem> {
        let given = n.input(4)?;
        let size = match n.shape(given)[..] {
            [b, r, w] if [b, r] == [self.batch, self.rows] && w == self.states => 1,
            [b, r, w] if [b, r] == [self.batch, self.rows] && w == self.states * self.sizes[0] => {
                self.sizes[0]
            }
            _ => return Problem::unsupported(format!("its decay is {}", n.ty(given))),
        };
        let given = n.cast(given, wide)?;
        let powers = n.unary(Unary::Exp, given)?;
        self.each(n, powers, [self.batch, self.states, size, 1])
    }

    /// How much of each row the state takes up.
    fn rates(&self, n: &mut NodeImport, wide: DType) -> Result<Vec<ValueId>, Problem> {
        let given = n.input(5)?;
        let heads = match n.shape(given)[..] {
            [b, r, w] if [b, r] == [self.batch, self.rows] && (w == 1 || w == self.states) => w,
            _ => return Problem::unsupported(format!("its beta is {}", n.ty(given))),
        };
        let given = n.cast(given, wide)?;
        self.each(n, given, [self.batch, heads, 1, 1])
    }

    fn first_state(&self, n: &mut NodeImport, wide: DType) -> Result<ValueId, Problem> {
        let shape = [self.batch, self.states, self.sizes[0], self.sizes[1]];
        match n.optional(3) {
            None => n.filled(wide, &shape, 0.0),
            Some(past) if n.shape(past) == shape => n.cast(past, wide),
            Some(past) => Problem::unsupported(format!("its past_state is {}", n.ty(past))),
        }
    }
}

/// Per row S = exp(g) S + k (v - S' k) beta, without the terms that the rule has not; the result is scale S' q.
pub(crate) fn linear_attention(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["chunk_size"]);
    if n.attributes.int("state_window", 0)? != 0 {
        return Problem::unsupported("state_window is set: it keeps the states of several rows");
    }
    let rule = n.attributes.text("update_rule", "gated_delta")?;
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Problem::unsupported(format!("update_rule=`{other}`")),
    };
    let qkv = [n.input(0)?, n.input(1)?, n.input(2)?];
    let h = Heads::read(n, qkv)?;
    let dtype = n.dtype(qkv[0]);
    // The state stays wide between rows.
    let wide = match dtype {
        DType::F64 => dtype,
        _ => DType::F32,
    };
    let kept = n.inputs.get(3).copied().flatten();
    let kept = kept.map_or(dtype, |past| n.dtype(past));
    let ([batch, states], [size, values]) = ([h.batch, h.states], h.sizes);
    let scale = match n.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => f64::from(scale),
    };
    let q = n.cast(qkv[0], wide)?;
    let scale = n.filled(wide, &[], scale)?;
    let q = n.binary(Binary::Mul, q, scale)?;
    let (k, v) = (n.cast(qkv[1], wide)?, n.cast(qkv[2], wide)?);
    let q = h.each(n, q, [batch, states, h.shared, size])?;
    let k_rows = h.each(n, k, [batch, states, 1, size])?;
    let v = h.each(n, v, [batch, states, 1, values])?;
    let decays = gated.then(|| h.decays(n, wide)).transpose()?;
    let rates = delta.then(|| h.rates(n, wide)).transpose()?;
    let mut state = h.first_state(n, wide)?;
    let mut results = Vec::with_capacity(h.rows);
    for t in 0..h.rows {
        if let Some(decays) = &decays {
            state = n.binary(Binary::Mul, state, decays[t])?;
        }
        let mut new = v[t];
        if let Some(rates) = &rates {
            let known = n.emit(Op::MatMul, &[k_rows[t], state])?;
            let unknown = n.binary(Binary::Sub, new, known)?;
            new = n.binary(Binary::Mul, unknown, rates[t])?;
        }
        let column = n.reshape(k_rows[t], vec![batch, states, size, 1])?;
        let written = n.binary(Binary::Mul, column, new)?;
        state = n.binary(Binary::Add, state, written)?;
        let read = n.emit(Op::MatMul, &[q[t], state])?;
        results.push(n.reshape(read, vec![batch, 1, states * h.shared * values])?);
    }
    let y = match results[..] {
        [y] => y,
        _ => n.emit(Op::Concat(Concat { axis: 1 }), &results)?,
    };
    Ok(vec![n.cast(y, dtype)?, n.cast(state, kept)?])
}
