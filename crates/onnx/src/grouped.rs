//! Importers of attention whose queries share keys in groups, with a cache, as decoders have it.

use crate::attention::{Weighting, attend, columns, heads, joined_heads, permission, turned};
use crate::indexing::{counting, stretched};
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, GatherElements, Op};
use tensor::DType;

/// What a GroupQueryAttention asks for.
struct Groups {
    heads: usize,
    key_heads: usize,
    /// New rows, and rows of the cache with them.
    rows: usize,
    total: usize,
    batch: usize,
}

pub(crate) fn count(n: &NodeImport, name: &str) -> Result<usize, Problem> {
    match n.attributes.int(name, 0)? {
        count if (1..1 << 20).contains(&count) => Ok(count as usize),
        count => Problem::unsupported(format!("{name}={count}")),
    }
}

/// Queries, keys and values as [batch, heads, rows, size], which may be packed in one operand.
fn operands(n: &mut NodeImport, g: [usize; 2]) -> Result<[ValueId; 3], Problem> {
    let (q, [all, shared]) = (n.input(0)?, g);
    let qkv = match (n.optional(1), n.optional(2)) {
        (Some(k), Some(v)) => [q, k, v],
        (None, None) => {
            let width = n.shape(q).last().copied().unwrap_or(0);
            if !width.is_multiple_of(all + 2 * shared) {
                return Problem::unsupported(format!(
                    "{all} heads of queries and {shared} of keys and of values in {}",
                    n.ty(q)
                ));
            }
            let size = width / (all + 2 * shared);
            [
                columns(n, q, 0, 1, all * size)?,
                columns(n, q, all * size, 1, shared * size)?,
                columns(n, q, (all + shared) * size, 1, shared * size)?,
            ]
        }
        _ => return Problem::unsupported("it has keys without values, or values without keys"),
    };
    let mut apart = qkv;
    for (x, count) in apart.iter_mut().zip([all, shared, shared]) {
        if n.ty(*x).rank() != 3 || n.ty(*x).is_empty() {
            return Problem::unsupported(format!("an operand is {}", n.ty(*x)));
        }
        *x = heads(n, *x, count)?;
    }
    Ok(apart)
}

impl Groups {
    fn read(n: &NodeImport, q: ValueId, heads: [usize; 2]) -> Result<Groups, Problem> {
        let shape = n.shape(q);
        let (batch, rows) = (shape[0], shape[2]);
        let total = n.constant_ints(6, "total sequence length")?;
        let Some(&[total]) = total.as_deref() else {
            return Problem::unsupported("its total sequence length is not one number");
        };
        let total = usize::try_from(total).unwrap_or(0);
        if total < rows || !heads[0].is_multiple_of(heads[1]) {
            return Problem::unsupported(format!(
                "{rows} new rows of {total}, {} heads of queries for {} of keys",
                heads[0], heads[1]
            ));
        }
        Ok(Groups {
            heads: heads[0],
            key_heads: heads[1],
            rows,
            total,
            batch,
        })
    }

    /// How many rows of each cache come before the new ones: [batch, 1].
    fn earlier(&self, n: &mut NodeImport) -> Result<ValueId, Problem> {
        let last = n.input(5)?;
        if n.ty(last).len() != self.batch {
            return Problem::unsupported(format!(
                "lengths {} of {} sequences",
                n.ty(last),
                self.batch
            ));
        }
        if self.rows == self.total {
            return n.filled(DType::I64, &[self.batch, 1], 0.0);
        }
        let last = n.cast(last, DType::I64)?;
        let last = n.reshape(last, vec![self.batch, 1])?;
        // A length is the position of the last key.
        let back = n.number(1 - self.rows as i64);
        let earlier = n.binary(Binary::Add, last, back)?;
        let none = n.number(0);
        n.binary(Binary::Max, earlier, none)
    }

    /// The cache with new rows behind those that each sequence has.
    fn present(
        &self,
        n: &mut NodeImport,
        past: Option<ValueId>,
        (new, earlier): (ValueId, ValueId),
    ) -> Result<ValueId, Problem> {
        let own = n.shape(new);
        let held = match past {
            Some(past) => n.shape(past),
            None => vec![self.batch, self.key_heads, 0, own[3]],
        };
        let fits = held.len() == 4 && held[..2] == own[..2] && held[3] == own[3];
        if !fits || held[2] + self.rows < self.total {
            return Problem::unsupported(format!(
                "a cache {held:?} and new rows {own:?} for {} rows in all",
                self.total
            ));
        }
        let length = held[2].max(self.total);
        let Some(past) = past.filter(|p| !n.ty(*p).is_empty()) else {
            return Ok(new);
        };
        let place = counting(n, length, 1, 2, 0)?;
        if self.rows == 1 {
            let is_new = n.binary(Binary::Equal, place, earlier)?;
            let is_new = n.reshape(is_new, vec![self.batch, 1, length, 1])?;
            // What is behind the new row of a sequence has no meaning.
            let longer = match length == held[2] {
                true => past,
                false => n.emit(Op::Concat(Concat { axis: 2 }), &[past, new])?,
            };
            return n.emit(Op::Where, &[is_new, new, longer]);
        }
        let all = n.emit(Op::Concat(Concat { axis: 2 }), &[past, new])?;
        let distance = n.binary(Binary::Sub, place, earlier)?;
        let (zero, rows) = (n.number(0), n.number(self.rows as i64));
        let from_new = n.binary(Binary::GreaterOrEqual, distance, zero)?;
        let before_end = n.binary(Binary::Less, distance, rows)?;
        let is_new = n.binary(Binary::And, from_new, before_end)?;
        let first = n.number(held[2] as i64);
        let moved = n.binary(Binary::Add, distance, first)?;
        let most = n.number(held[2] as i64 - 1);
        let kept = n.binary(Binary::Min, place, most)?;
        let index = n.emit(Op::Where, &[is_new, moved, kept])?;
        let index = n.reshape(index, vec![self.batch, 1, length, 1])?;
        let index = stretched(n, index, &[held[0], held[1], length, held[3]])?;
        n.emit(
            Op::GatherElements(GatherElements { axis: 2 }),
            &[all, index],
        )
    }

    /// What keeps a query from keys behind it, and from those before its window.
    fn bias(
        &self,
        n: &mut NodeImport,
        earlier: ValueId,
        length: usize,
        dtype: DType,
    ) -> Result<ValueId, Problem> {
        let window = n.attributes.int("local_window_size", -1)?;
        let row = counting(n, self.rows, 2, 4, 0)?;
        let column = counting(n, length, 3, 4, 0)?;
        let earlier = n.reshape(earlier, vec![self.batch, 1, 1, 1])?;
        let row = n.binary(Binary::Add, row, earlier)?;
        let distance = n.binary(Binary::Sub, row, column)?;
        let zero = n.number(0);
        let mut allowed = n.binary(Binary::GreaterOrEqual, distance, zero)?;
        if window > 0 {
            let window = n.number(window);
            let near = n.binary(Binary::Less, distance, window)?;
            allowed = n.binary(Binary::And, allowed, near)?;
        }
        let own = permission(n, allowed, dtype)?;
        match n.optional(10) {
            Some(given) => n.binary(Binary::Add, own, given),
            None => Ok(own),
        }
    }

    /// A bias with one more column: each head has its own score there, which takes part in the softmax and has no value.
    fn with_sinks(
        &self,
        n: &mut NodeImport,
        bias: ValueId,
        sinks: ValueId,
    ) -> Result<ValueId, Problem> {
        if n.ty(sinks).len() != self.heads {
            return Problem::unsupported(format!("sinks {} of {} heads", n.ty(sinks), self.heads));
        }
        let columns = n.shape(bias)[3];
        let sinks = n.reshape(sinks, vec![1, self.heads, 1, 1])?;
        let sinks = n.cast(sinks, n.dtype(bias))?;
        let sinks = stretched(n, sinks, &[self.batch, self.heads, self.rows, 1])?;
        let bias = stretched(n, bias, &[self.batch, self.heads, self.rows, columns])?;
        n.emit(Op::Concat(Concat { axis: 3 }), &[bias, sinks])
    }
}

/// Operands 7 to 9: the angles by which queries and keys are turned, and their positions.
fn rotated(
    n: &mut NodeImport,
    qk: [ValueId; 2],
    g: &Groups,
    earlier: ValueId,
) -> Result<[ValueId; 2], Problem> {
    let positions = n.optional(9);
    let caches = [n.optional(7), n.optional(8)];
    let interleaved = n.attributes.flag("rotary_interleaved", false)?;
    if !n.attributes.flag("do_rotary", false)? {
        return Ok(qk);
    }
    let [Some(cosines), Some(sines)] = caches else {
        return Problem::unsupported("it turns its operands by angles that it is not given");
    };
    let positions = match positions {
        // The first of a prompt stands for all, in every sequence.
        Some(p) if g.rows == g.total && !n.ty(p).is_empty() => {
            let all = n.reshape(p, vec![n.ty(p).len()])?;
            let (zero, own) = (n.number(0), counting(n, g.rows, 1, 2, 0)?);
            let first = n.emit(Op::Gather(Gather { axis: 0 }), &[all, zero])?;
            let row = n.binary(Binary::Add, own, first)?;
            stretched(n, row, &[g.batch, g.rows])?
        }
        Some(p) if n.ty(p).len() == g.batch * g.rows => n.reshape(p, vec![g.batch, g.rows])?,
        Some(p) => return Problem::unsupported(format!("positions {}", n.ty(p))),
        None => {
            let own = counting(n, g.rows, 1, 2, 0)?;
            n.binary(Binary::Add, own, earlier)?
        }
    };
    let part = match n.shape(cosines)[..] {
        [_, half] => 2 * half,
        _ => return Problem::unsupported(format!("its angles are {}", n.ty(cosines))),
    };
    let mut results = qk;
    for x in &mut results {
        *x = turned(
            n,
            (*x, 1),
            [cosines, sines],
            Some(positions),
            (part, interleaved),
        )?;
    }
    Ok(results)
}

/// The result and the cache with the new rows.
pub(crate) fn group_query_attention(n: &mut NodeImport) -> Imported {
    if n.attributes.int("kv_cache_bit_width", 0)? > 0 {
        return Problem::unsupported("kv_cache_bit_width is set; export it without");
    }
    let smooth = n.attributes.int("smooth_softmax", 0)? > 0;
    if !n.attributes.flag("causal", true)? {
        return Problem::unsupported("its queries see keys behind them (causal=0)");
    }
    n.attributes.ignore(&["qk_output"]);
    let heads = [count(n, "num_heads")?, count(n, "kv_num_heads")?];
    let [q, k, v] = operands(n, heads)?;
    let g = Groups::read(n, q, heads)?;
    let past = [n.optional(3), n.optional(4)];
    let earlier = g.earlier(n)?;
    let [q, k] = rotated(n, [q, k], &g, earlier)?;
    let k = g.present(n, past[0], (k, earlier))?;
    let v = g.present(n, past[1], (v, earlier))?;
    let (size, length, dtype) = (n.shape(q)[3], n.shape(k)[2], n.dtype(q));
    let scale = match n.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => f64::from(scale),
    };
    let mut seen = [k, v, g.bias(n, earlier, length, dtype)?];
    let sinks = n.optional(11);
    if smooth || sinks.is_some() {
        for x in &mut seen[..2] {
            *x = with_zero(n, *x, 2)?;
        }
        seen[2] = match sinks {
            Some(sinks) => g.with_sinks(n, seen[2], sinks)?,
            None => with_zero(n, seen[2], 1)?,
        };
    }
    let how = Weighting {
        scale,
        softcap: n.attributes.float("softcap", 0.0)?,
        bias: Some(seen[2]),
        may_mask_rows: false,
        precision: None,
        shown: None,
    };
    debug_assert_eq!(n.shape(q)[1], g.heads);
    let (y, _) = attend(n, [q, seen[0], seen[1]], &how)?;
    Ok(vec![joined_heads(n, y)?, k, v])
}

/// One zero more along an axis counted from the last one, 1. A smooth softmax has one more score, 0, whose weight goes
/// nowhere: that of a key, a value and a bias of zeros.
fn with_zero(n: &mut NodeImport, x: ValueId, back: usize) -> Result<ValueId, Problem> {
    let mut shape = n.shape(x);
    let axis = shape.len() - back;
    shape[axis] = 1;
    let zero = n.filled(n.dtype(x), &shape, 0.0)?;
    n.emit(Op::Concat(Concat { axis }), &[x, zero])
}
