//! Importers of operators of ai.onnx.ml that are arithmetic on rows of features: those of pipelines that scale and weigh
//! what they get.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, Op, Reduce, ReduceKind, Slice, Unary};
use tensor::{DType, Tensor};

/// A list of numbers that an attribute holds, as a constant.
fn numbers(
    n: &mut NodeImport,
    name: &str,
    shape: impl FnOnce(usize) -> Vec<usize>,
) -> Result<Option<ValueId>, Problem> {
    let Some(given) = n.attributes.floats(name)? else {
        return Ok(None);
    };
    let shape = shape(given.len());
    if shape.iter().product::<usize>() != given.len() || given.is_empty() {
        return Problem::unsupported(format!("{name} has {} numbers", given.len()));
    }
    let values = Tensor::from_slice(&shape, given);
    Ok(Some(n.model.add_result(&n.name, values)))
}

/// Elements along the last axis by their numbers.
pub(crate) fn array_feature_extractor(n: &mut NodeImport) -> Imported {
    let (x, places) = (n.input(0)?, n.input(1)?);
    let count = n.ty(places).len();
    let rank = n.ty(x).rank();
    if rank == 0 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let places = n.reshape(places, vec![count])?;
    let y = n.emit(Op::Gather(Gather { axis: rank - 1 }), &[x, places])?;
    Ok(vec![match rank {
        1 => n.reshape(y, vec![1, count])?,
        _ => y,
    }])
}

/// 1 above a threshold, else 0.
pub(crate) fn binarizer(n: &mut NodeImport) -> Imported {
    let threshold = n.attributes.float("threshold", 0.0)?;
    let x = n.input(0)?;
    let dtype = n.dtype(x);
    let limit = n.filled(DType::F32, &[], f64::from(threshold))?;
    let limit = n.cast(limit, dtype)?;
    let above = n.binary(Binary::Greater, x, limit)?;
    Ok(vec![n.cast(above, dtype)?])
}

/// (x - offset) scale, of each feature or of all.
pub(crate) fn scaler(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let mut y = n.cast(x, DType::F32)?;
    if let Some(offset) = numbers(n, "offset", |len| vec![len])? {
        y = n.binary(Binary::Sub, y, offset)?;
    }
    if let Some(scale) = numbers(n, "scale", |len| vec![len])? {
        y = n.binary(Binary::Mul, y, scale)?;
    }
    if n.shape(y) != n.shape(x) {
        return Problem::unsupported(format!("its scales do not fit {}", n.ty(x)));
    }
    Ok(vec![y])
}

/// Rows by their norms; as they are where that is 0.
pub(crate) fn normalizer(n: &mut NodeImport) -> Imported {
    let norm = n.attributes.text("norm", "MAX")?;
    let x = n.input(0)?;
    let x = n.cast(x, DType::F32)?;
    let last = n.axis(-1, n.ty(x).rank())?;
    let terms = match norm.as_str() {
        "L1" => n.unary(Unary::Abs, x)?,
        "L2" => n.binary(Binary::Mul, x, x)?,
        other => return Problem::unsupported(format!("norm=`{other}`")),
    };
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![last],
        keepdims: true,
    };
    let mut size = n.emit(Op::Reduce(reduce), &[terms])?;
    if norm == "L2" {
        size = n.unary(Unary::Sqrt, size)?;
    }
    let quotient = n.binary(Binary::Div, x, size)?;
    let zero = n.filled(DType::F32, &[], 0.0)?;
    let is_zero = n.binary(Binary::Equal, size, zero)?;
    Ok(vec![n.emit(Op::Where, &[is_zero, x, quotient])?])
}

/// The rows' products with coefficients, plus intercepts.
pub(crate) fn linear_regressor(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let x = n.cast(x, DType::F32)?;
    let targets = n.attributes.int("targets", 1)?;
    let transform = n.attributes.text("post_transform", "NONE")?;
    if transform != "NONE" {
        return Problem::unsupported(format!("post_transform=`{transform}`"));
    }
    let (&[_, width], Ok(targets)) = (&n.shape(x)[..], usize::try_from(targets)) else {
        return Problem::unsupported(format!("targets={targets} of {}", n.ty(x)));
    };
    let Some(weights) = numbers(n, "coefficients", |_| vec![targets, width])? else {
        return Problem::unsupported("it has no coefficients");
    };
    let weights = crate::attention::transposed(n, weights, &[1, 0])?;
    let mut y = n.emit(Op::MatMul, &[x, weights])?;
    if let Some(intercepts) = numbers(n, "intercepts", |_| vec![targets])? {
        y = n.binary(Binary::Add, y, intercepts)?;
    }
    Ok(vec![y])
}

/// Rows of several operands beside each other.
pub(crate) fn feature_vectorizer(n: &mut NodeImport) -> Imported {
    let widths = n.attributes.ints("inputdimensions")?.unwrap_or(&[]);
    let mut parts = Vec::new();
    for (i, x) in n.all_inputs()?.into_iter().enumerate() {
        match (&n.shape(x)[..], widths.get(i)) {
            (&[_, own], Some(width)) if own as i64 == *width => {}
            (_, width) => {
                return Problem::unsupported(format!("inputdimensions {width:?} of {}", n.ty(x)));
            }
        }
        parts.push(n.cast(x, DType::F32)?);
    }
    match parts[..] {
        [] => Problem::unsupported("it has no operands"),
        [one] => Ok(vec![one]),
        _ => Ok(vec![n.emit(Op::Concat(Concat { axis: 1 }), &parts)?]),
    }
}

/// The n-grams of integers that a vectorizer counts.
struct Grams<'a> {
    pool: &'a [i64],
    /// Where those of each length begin in the pool, from length 1 on.
    starts: Vec<usize>,
    /// Most elements that are left out between two of an n-gram.
    skips: usize,
    least: usize,
    most: usize,
}

impl Grams<'_> {
    /// How often each n-gram of a length is in each row: [rows, n-grams].
    fn counts(
        &self,
        n: &mut NodeImport,
        x: ValueId,
        length: usize,
    ) -> Result<Option<ValueId>, Problem> {
        let end = self.starts.get(length).copied().unwrap_or(self.pool.len());
        let Some(own) = self
            .starts
            .get(length - 1)
            .and_then(|s| self.pool.get(*s..end))
        else {
            return Ok(None);
        };
        let count = own.len() / length;
        if !own.len().is_multiple_of(length) {
            return Problem::unsupported(format!("{} integers of n-grams of {length}", own.len()));
        }
        if count == 0 {
            return Ok(None);
        }
        let &[rows, width] = &n.shape(x)[..] else {
            return Problem::unsupported(format!("its input is {}", n.ty(x)));
        };
        let mut sum = n.filled(DType::F32, &[rows, count], 0.0)?;
        if !(self.least..=self.most).contains(&length) {
            return Ok(Some(sum));
        }
        let farthest = if length == 1 { 1 } else { self.skips + 1 };
        for distance in 1..=farthest {
            let reach = distance * (length - 1);
            if reach >= width {
                break;
            }
            let mut all: Option<ValueId> = None;
            for k in 0..length {
                let slice = Slice {
                    starts: vec![0, k * distance],
                    steps: vec![1, 1],
                    sizes: vec![rows, width - reach],
                };
                let part = n.emit(Op::Slice(slice), &[x])?;
                let part = n.reshape(part, vec![rows, 1, width - reach])?;
                let wanted: Vec<i64> = own.iter().skip(k).step_by(length).copied().collect();
                let wanted = Tensor::from_slice(&[1, count, 1], &wanted);
                let wanted = n.model.add_result(&n.name, wanted);
                let same = n.binary(Binary::Equal, part, wanted)?;
                all = Some(match all {
                    None => same,
                    Some(others) => n.binary(Binary::And, others, same)?,
                });
            }
            let Some(all) = all else { continue };
            let found = n.cast(all, DType::F32)?;
            let reduce = Reduce {
                kind: ReduceKind::Sum,
                axes: vec![2],
                keepdims: false,
            };
            let found = n.emit(Op::Reduce(reduce), &[found])?;
            sum = n.binary(Binary::Add, sum, found)?;
        }
        Ok(Some(sum))
    }
}

/// How often n-grams of integers occur in rows, also with elements left out between theirs.
pub(crate) fn tf_idf(n: &mut NodeImport) -> Imported {
    let mode = n.attributes.text("mode", "")?;
    let natural = |name: &str| match n.attributes.int(name, -1)? {
        value if (0..1 << 12).contains(&value) => Ok(value as usize),
        value => Problem::unsupported(format!("{name}={value}")),
    };
    let (skips, least, most) = (
        natural("max_skip_count")?,
        natural("min_gram_length")?.max(1),
        natural("max_gram_length")?,
    );
    let Some(pool) = n.attributes.ints("pool_int64s")? else {
        return Problem::unsupported("it has no n-grams of integers (pool_int64s)");
    };
    let places = n.attributes.ints("ngram_indexes")?.unwrap_or(&[]);
    let starts = n.attributes.ints("ngram_counts")?.unwrap_or(&[]);
    let starts = starts.iter().map(|s| usize::try_from(*s).ok());
    let Some(starts) = starts.collect::<Option<Vec<usize>>>() else {
        return Problem::unsupported("ngram_counts are no positions");
    };
    let x = n.input(0)?;
    let shape = n.shape(x);
    let rows = match shape[..] {
        [_] => 1,
        [rows, _] => rows,
        _ => return Problem::unsupported(format!("its input is {}", n.ty(x))),
    };
    let width = shape[shape.len() - 1];
    let x = n.cast(x, DType::I64)?;
    let x = n.reshape(x, vec![rows, width])?;
    let lengths = starts.len();
    let grams = Grams {
        pool,
        starts,
        skips,
        least,
        most,
    };
    let mut parts = Vec::new();
    for length in 1..=lengths {
        parts.extend(grams.counts(n, x, length)?);
    }
    if parts.is_empty() {
        return Problem::unsupported("it has no n-grams");
    }
    let mut y = n.emit(Op::Concat(Concat { axis: 1 }), &parts)?;
    let found = n.shape(y)[1];
    let weights = numbers(n, "weights", |len| vec![len])?;
    if mode == "IDF" {
        let zero = n.filled(DType::F32, &[], 0.0)?;
        let some = n.binary(Binary::Greater, y, zero)?;
        y = n.cast(some, DType::F32)?;
    }
    match (mode.as_str(), weights) {
        ("TF", _) | ("IDF" | "TFIDF", None) => {}
        ("IDF" | "TFIDF", Some(weights)) if n.ty(weights).len() == found => {
            y = n.binary(Binary::Mul, y, weights)?;
        }
        _ => return Problem::unsupported(format!("mode=`{mode}`, or its weights do not fit")),
    }
    let y = placed(n, y, places)?;
    let mut shape = shape;
    if let Some(last) = shape.last_mut() {
        *last = n.shape(y)[1];
    }
    Ok(vec![n.reshape(y, shape)?])
}

/// Each column at its place; zeros where none has one.
fn placed(n: &mut NodeImport, x: ValueId, places: &[i64]) -> Result<ValueId, Problem> {
    let [rows, found] = n.shape(x)[..] else {
        return Problem::unsupported(format!("columns of {}", n.ty(x)));
    };
    let most = places.iter().max().copied().unwrap_or(-1);
    let refused = || Problem::unsupported(format!("ngram_indexes={places:?} of {found} n-grams"));
    if found != places.len() || !(0..1 << 24).contains(&most) {
        return refused();
    }
    // Places that no n-gram has are of a column of zeros behind the others.
    let mut from = vec![found as i64; most as usize + 1];
    for (i, place) in places.iter().enumerate() {
        match usize::try_from(*place) {
            Ok(place) if from[place] == found as i64 => from[place] = i as i64,
            _ => return refused(),
        }
    }
    let zeros = n.filled(DType::F32, &[rows, 1], 0.0)?;
    let all = n.emit(Op::Concat(Concat { axis: 1 }), &[x, zeros])?;
    let from = Tensor::from_slice(&[from.len()], &from);
    let from = n.model.add_result(&n.name, from);
    n.emit(Op::Gather(Gather { axis: 1 }), &[all, from])
}
