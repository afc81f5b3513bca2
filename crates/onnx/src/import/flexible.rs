//! `FlexAttention`: attention whose scores and weights graphs of the node change.

use super::Importer;
use super::control::{Stop, Values, refuse};
use crate::attributes::Attributes;
use crate::node::Problem;
use crate::proto::NodeProto;
use crate::tensors::dtype_of;
use graph::ValueId;
use graph::ops::{Binary, Op, Softmax, Transpose};
use tensor::DType;

impl Importer<'_> {
    pub(super) fn flex_attention(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        name: &str,
    ) -> Values {
        let &[Some(q), Some(k), Some(v)] = inputs else {
            return refuse(format!("it has {} inputs", node.input.len()));
        };
        let n = self.writer(node, name);
        let (&[batch, heads, rows, size], &[kb, kv, columns, ks], &[vb, vh, vr, values]) =
            (&n.shape(q)[..], &n.shape(k)[..], &n.shape(v)[..])
        else {
            return refuse("its operands have not four axes");
        };
        let fits = [kb, ks, vb, vh, vr] == [batch, size, batch, kv, columns]
            && kv > 0
            && heads.is_multiple_of(kv);
        if !fits || batch * heads * rows * columns * size == 0 {
            return refuse(format!(
                "queries {}, keys {} and values {}",
                n.ty(q),
                n.ty(k),
                n.ty(v)
            ));
        }
        let dtype = n.dtype(q);
        let wide = match dtype {
            DType::F64 => dtype,
            _ => DType::F32,
        };
        let precision = match attributes.optional_int("softmax_precision")? {
            None => wide,
            Some(p) => dtype_of(i32::try_from(p).unwrap_or(0))
                .map_err(|e| Problem::Unsupported(e.to_string()))?,
        };
        let scale = attributes.optional_float("scale")?;
        let scale = scale.map_or(1.0 / (size as f64).sqrt(), f64::from);
        // Queries of several heads share keys: an axis of its own then.
        let shared = heads / kv;
        let of_groups = |own: [usize; 2], shared: usize| match heads == kv {
            true => vec![batch, kv, own[0], own[1]],
            false => vec![batch, kv, shared, own[0], own[1]],
        };
        let mut n = self.writer(node, name);
        let (q, k) = (n.cast(q, wide)?, n.cast(k, wide)?);
        let q = n.reshape(q, of_groups([rows, size], shared))?;
        let k = n.reshape(k, of_groups([columns, size], 1))?;
        let rank = n.ty(k).rank();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 1, rank - 2);
        let k = n.emit(Op::Transpose(Transpose { perm }), &[k])?;
        let scores = n.emit(Op::MatMul, &[q, k])?;
        let scale = n.filled(wide, &[], scale)?;
        let scores = n.binary(Binary::Mul, scores, scale)?;
        let scores = n.cast(scores, precision)?;
        let all = [batch, heads, rows, columns];
        let scores = self.modified((node, name), (attributes, "score_mod"), scores, all)?;
        let mut n = self.writer(node, name);
        let axis = n.ty(scores).rank() - 1;
        let weights = n.emit(Op::Softmax(Softmax { axis }), &[scores])?;
        let weights = self.modified((node, name), (attributes, "prob_mod"), weights, all)?;
        let mut n = self.writer(node, name);
        let weights = n.reshape(weights, of_groups([rows, columns], shared))?;
        let weights = n.cast(weights, wide)?;
        let v = n.cast(v, wide)?;
        let v = n.reshape(v, of_groups([columns, values], 1))?;
        let y = n.emit(Op::MatMul, &[weights, v])?;
        let y = n.reshape(y, vec![batch, heads, rows, values])?;
        Ok(vec![n.cast(y, dtype)?])
    }

    /// What a graph of the node makes of scores or weights, which has their type; as they are if there is none.
    fn modified(
        &mut self,
        (node, name): (&NodeProto, &str),
        (attributes, graph): (&Attributes, &str),
        x: ValueId,
        shape: [usize; 4],
    ) -> Result<ValueId, Stop> {
        let Some(body) = attributes.optional_graph(graph)? else {
            return Ok(x);
        };
        let mut n = self.writer(node, name);
        let before = n.reshape(x, shape.to_vec())?;
        let made = self.inline(body, &[before])?;
        let [y] = made[..] else {
            return refuse(format!("its {graph} makes {} values", made.len()));
        };
        let n = self.writer(node, name);
        if n.ty(y) != n.ty(before) {
            return refuse(format!("its {graph} makes {} of {}", n.ty(y), n.ty(before)));
        }
        Ok(y)
    }
}
