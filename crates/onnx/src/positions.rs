//! Importers of what the positions of tokens add to attention: biases by distance, and rotations.

use crate::attention::{heads, heads_inside, turned};
use crate::grouped::count;
use crate::node::{Imported, NodeImport, Problem};
use graph::ops::{Binary, Gather, Op, Reduce, ReduceKind, Slice, Unary};
use tensor::Tensor;

/// Of T5: the number of the bucket in which a key at a distance behind its query falls. The runtime computes the
/// logarithms in f32, as PyTorch does.
fn bucket(distance: i64, buckets: i64, is_bidirectional: bool, farthest: i64) -> i64 {
    let (buckets, first) = match is_bidirectional {
        true => (buckets / 2, if distance > 0 { buckets / 2 } else { 0 }),
        false => (buckets, 0),
    };
    let distance = match is_bidirectional {
        true => distance.abs(),
        false => -distance.min(0),
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    let share = (distance as f32 / exact as f32).ln() / (farthest as f32 / exact as f32).ln();
    let far = exact + (share * (buckets - exact) as f32) as i64;
    first + far.min(buckets - 1)
}

/// Scores by the distance of keys: [1, heads, length, length].
pub(crate) fn relative_position_bias(n: &mut NodeImport) -> Imported {
    let is_bidirectional = n.attributes.flag("is_bidirectional", false)?;
    let farthest = n.attributes.int("max_distance", 0)?;
    let table = n.input(0)?;
    let &[buckets, heads] = &n.shape(table)[..] else {
        return Problem::unsupported(format!("its table is {}", n.ty(table)));
    };
    let lengths = [
        n.constant_scalar(1, "query length")?,
        n.constant_scalar(2, "key length")?,
    ];
    let length = match lengths {
        [Some(q), Some(k)] if q == k && (1.0..1e6).contains(&q) => q as usize,
        other => return Problem::unsupported(format!("lengths {other:?}, which must be equal")),
    };
    let least = if is_bidirectional { 4 } else { 2 };
    if buckets < least || farthest <= buckets as i64 / least as i64 {
        return Problem::unsupported(format!("max_distance={farthest} for {buckets} buckets"));
    }
    n.take_elements(&[length, length])?;
    let places = (0..length * length).map(|i| (i % length) as i64 - (i / length) as i64);
    let places: Vec<i64> = places
        .map(|d| bucket(d, buckets as i64, is_bidirectional, farthest))
        .collect();
    let places = Tensor::from_slice(&[length, length], &places);
    let places = n.model.add_result(&n.name, places);
    // The table's elements lie by heads, whatever its shape says.
    let by_heads = n.reshape(table, vec![heads, buckets])?;
    let bias = n.emit(Op::Gather(Gather { axis: 1 }), &[by_heads, places])?;
    Ok(vec![n.reshape(bias, vec![1, heads, length, length])?])
}

/// The scores times (u (r a - 1) + 2), where u and r are gates that the queries make.
pub(crate) fn gated_relative_position_bias(n: &mut NodeImport) -> Imported {
    let all = count(n, "num_heads")?;
    if n.optional(6).is_some() {
        return Problem::unsupported("its tokens are packed (token_offset)");
    }
    let (query, own) = (n.input(0)?, n.input(1)?);
    let (scores, weight) = (n.input(2)?, n.input(3)?);
    let (bias, factor) = (n.input(4)?, n.input(5)?);
    let query = n.binary(Binary::Add, query, own)?;
    if n.ty(query).rank() != 3 {
        return Problem::unsupported(format!("its queries are {}", n.ty(query)));
    }
    let query = heads(n, query, all)?;
    let gates = n.emit(Op::MatMul, &[query, weight])?;
    let gates = n.binary(Binary::Add, gates, bias)?;
    let &[batch, heads, rows, width] = &n.shape(gates)[..] else {
        return Problem::unsupported(format!("its weight is {}", n.ty(weight)));
    };
    if width == 0 || width % 2 == 1 {
        return Problem::unsupported(format!("its weight is {}", n.ty(weight)));
    }
    let halves = n.reshape(gates, vec![batch, heads, rows, 2, width / 2])?;
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![4],
        keepdims: false,
    };
    let sums = n.emit(Op::Reduce(reduce), &[halves])?;
    let gates = n.unary(Unary::Sigmoid, sums)?;
    let u = crate::attention::columns(n, gates, 0, 1, 1)?;
    let r = crate::attention::columns(n, gates, 1, 1, 1)?;
    let inner = n.binary(Binary::Mul, r, factor)?;
    let one = n.filled(n.dtype(inner), &[], 1.0)?;
    let inner = n.binary(Binary::Sub, inner, one)?;
    let scaled = n.binary(Binary::Mul, u, inner)?;
    let two = n.filled(n.dtype(inner), &[], 2.0)?;
    let gate = n.binary(Binary::Add, scaled, two)?;
    Ok(vec![n.binary(Binary::Mul, gate, scores)?])
}

/// Which of the three positions of a token turns each pair of elements.
fn streams(sections: &[i64], half: usize, interleaved: bool) -> Option<Vec<usize>> {
    let sections: Vec<usize> = sections
        .iter()
        .map(|s| usize::try_from(*s).ok())
        .collect::<Option<_>>()?;
    let &[first, second, third] = &sections[..] else {
        return None;
    };
    if first + second + third != half {
        return None;
    }
    let of = |i: usize| match (interleaved, i % 3) {
        (true, 1) if i < 3 * second => 1,
        (true, 2) if i < 3 * third => 2,
        (true, _) => 0,
        (false, _) => usize::from(i >= first) + usize::from(i >= first + second),
    };
    Some((0..half).map(of).collect())
}

/// A rotation by angles of three positions of each token.
pub(crate) fn multimodal_rotary_embedding(n: &mut NodeImport) -> Imported {
    // ONNX Runtime does not use the scale.
    n.attributes.ignore(&["is_packed_batching", "scale"]);
    let (x, positions) = (n.input(0)?, n.input(1)?);
    let caches = [n.input(2)?, n.input(3)?];
    let given = n.attributes.int("num_heads", 0)?;
    let interleaved = n.attributes.flag("interleaved", false)?;
    let part = n.attributes.int("rotary_embedding_dim", 0)?;
    let layout = n.attributes.int("mrope_layout", 0)?;
    let sections = n.attributes.ints("mrope_section")?.unwrap_or(&[]);
    let (&[_, half], &[3, batch, rows]) = (&n.shape(caches[0])[..], &n.shape(positions)[..]) else {
        return Problem::unsupported(format!(
            "its angles are {}, its positions {}",
            n.ty(caches[0]),
            n.ty(positions)
        ));
    };
    let streams = match streams(sections, half, layout == 1) {
        Some(streams) if (0..2).contains(&layout) => streams,
        _ => {
            return Problem::unsupported(format!(
                "mrope_section={sections:?}, mrope_layout={layout} of {half} angles"
            ));
        }
    };
    let mut angles = caches;
    for cache in &mut angles {
        let all = n.emit(Op::Gather(Gather { axis: 0 }), &[*cache, positions])?;
        let mut chosen = None;
        for stream in 0..3 {
            let slice = Slice {
                starts: vec![stream, 0, 0, 0],
                steps: vec![1; 4],
                sizes: vec![1, batch, rows, half],
            };
            let own = n.emit(Op::Slice(slice), &[all])?;
            let own = n.reshape(own, vec![batch, rows, half])?;
            let is_its: Vec<bool> = streams.iter().map(|s| *s == stream).collect();
            chosen = Some(match chosen {
                None => own,
                Some(others) => {
                    let mask = Tensor::from_bools(&[half], &is_its);
                    let mask = n.model.add_result(&n.name, mask);
                    n.emit(Op::Where, &[mask, own, others])?
                }
            });
        }
        *cache = chosen.unwrap_or(all);
    }
    let shape = n.shape(x);
    let apart = heads_inside(n, x, given, None)?;
    if part != 0 && part != 2 * half as i64 {
        return Problem::unsupported(format!("rotary_embedding_dim={part} for {half} angles"));
    }
    let y = turned(n, apart, angles, None, (2 * half, interleaved))?;
    Ok(vec![n.reshape(y, shape)?])
}

/// q cos(angles) + q_rot sin(angles), and so of k.
pub(crate) fn gemma_rotary_embedding(n: &mut NodeImport) -> Imported {
    let angles = n.input(0)?;
    let &[batch, rows, size] = &n.shape(angles)[..] else {
        return Problem::unsupported(format!("its angles are {}", n.ty(angles)));
    };
    let angles = n.reshape(angles, vec![batch, 1, rows, size])?;
    let dtype = n.dtype(n.input(1)?);
    let (cosines, sines) = (n.unary(Unary::Cos, angles)?, n.unary(Unary::Sin, angles)?);
    let (cosines, sines) = (n.cast(cosines, dtype)?, n.cast(sines, dtype)?);
    let mut results = Vec::new();
    for i in [1, 3] {
        let (x, rotated) = (n.input(i)?, n.input(i + 1)?);
        let kept = n.binary(Binary::Mul, x, cosines)?;
        let turned = n.binary(Binary::Mul, rotated, sines)?;
        results.push(n.binary(Binary::Add, kept, turned)?);
    }
    Ok(results)
}
