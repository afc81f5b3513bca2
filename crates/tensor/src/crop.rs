//! Outputs of which only the first elements along an axis are results.

use crate::Tensor;

/// Of output `output` only the first elements along `axis` are results, as many as the one
/// element of output `count` says. Outputs that say so come after all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Crop {
    pub output: usize,
    pub axis: usize,
    pub count: usize,
}

/// How many of `outputs` outputs are results; the others are counts.
pub fn results(outputs: usize, crops: &[Crop]) -> usize {
    let first = crops.iter().map(|c| c.count).min();
    first.map_or(outputs, |first| first.min(outputs))
}

/// The results among the outputs, cropped.
///
/// # Panics
/// If a crop names an output or an axis that does not exist.
pub fn cropped<T: AsRef<Tensor>>(outputs: &[T], crops: &[Crop]) -> Vec<Tensor> {
    let kept = &outputs[..results(outputs.len(), crops)];
    let crop = |(i, t): (usize, &T)| {
        let own = crops.iter().filter(|c| c.output == i);
        own.fold(t.as_ref().clone(), |t, c| {
            let count = outputs[c.count].as_ref().get_i64(0);
            first(&t, c.axis, usize::try_from(count).unwrap_or(0))
        })
    };
    kept.iter().enumerate().map(crop).collect()
}

/// The first elements along an axis, at most as many as there are.
fn first(t: &Tensor, axis: usize, count: usize) -> Tensor {
    let mut shape = t.shape().to_vec();
    let all = shape[axis];
    let count = count.min(all);
    shape[axis] = count;
    let inner: usize = shape[axis + 1..].iter().product::<usize>() * t.dtype().size();
    let mut out = Tensor::zeros(t.dtype(), &shape);
    if out.is_empty() {
        return out;
    }
    let rows = t.bytes().chunks_exact(all * inner);
    for (to, from) in out.bytes_mut().chunks_exact_mut(count * inner).zip(rows) {
        to.copy_from_slice(&from[..count * inner]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cropped_and_counts_dropped() {
        let outputs = [
            Tensor::from_slice(&[2, 3], &[1i64, 2, 3, 4, 5, 6]),
            Tensor::from_slice(&[], &[2i64]),
            Tensor::from_slice(&[], &[0i64]),
        ];
        let outputs = outputs.map(std::sync::Arc::new);
        let crop = |axis, count| Crop {
            output: 0,
            axis,
            count,
        };
        let columns = cropped(&outputs, &[crop(1, 1)]);
        assert_eq!(columns, [Tensor::from_slice(&[2, 2], &[1i64, 2, 4, 5])]);
        let none = cropped(&outputs, &[crop(0, 2), crop(1, 1)]);
        assert_eq!(none, [Tensor::from_slice::<i64>(&[0, 2], &[])]);
    }
}
