//! The data of a task in a runner: arguments, expected outputs, and how a
//! candidate's outputs are judged.
//!
//! Owns what candidates of one task share. All of it is sealed. Running a candidate is
//! in `loaded`, and making the expected outputs in `oracle`.

use crate::protocol::{ArgFill, OutputDifference, TaskData, TaskKey, Verdict};
use crate::sealed::Sealed;
use runtime::{GuardedBuffer, KernelParam, ParamRole};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

/// Sets of prepared constants that are kept for candidates which prepare the same.
const KEPT_PREPARED: usize = 3;
/// An element may be off by this many times the tolerance, in root mean squares.
pub const ELEMENT_TOLERANCE: f64 = 100.0;

/// Equal buffers at different addresses.
pub type Copies = Vec<Rc<Sealed>>;

pub struct Task {
    pub key: TaskKey,
    arguments: HashMap<String, Copies>,
    prepared: VecDeque<Copies>,
    /// What made which of them, so that it need not run again.
    recipes: VecDeque<Recipe>,
    expected: HashMap<String, Expected>,
}

/// What a prepare entry wrote, by name.
struct Recipe {
    /// [`BuiltKernel::prepare_hash`](runtime::BuiltKernel).
    hash: u64,
    made: Vec<(String, Rc<Sealed>)>,
}

struct Expected {
    dtype: DType,
    shape: Vec<i64>,
    bytes: Sealed,
}

impl Task {
    /// Fills the arguments. Nothing is expected yet ([`Task::expect`]). The error says
    /// what is wrong with the task.
    pub fn new(data: &TaskData) -> Result<Task, String> {
        let mut arguments = HashMap::new();
        for (i, a) in data.args.iter().enumerate() {
            let tensor = make_argument(a, data.seed, i)?;
            let sealed = Sealed::new(tensor.bytes()).map_err(|e| format!("{}: {e}", a.name))?;
            arguments.insert(a.name.clone(), vec![Rc::new(sealed)]);
        }
        Ok(Task {
            key: data.key(),
            arguments,
            prepared: VecDeque::new(),
            recipes: VecDeque::new(),
            expected: HashMap::new(),
        })
    }

    /// Compares the output `p` of candidates with these bytes from here on.
    pub fn expect(&mut self, p: &KernelParam, bytes: Sealed) {
        let expected = Expected {
            dtype: p.dtype,
            shape: p.shape.clone(),
            bytes,
        };
        self.expected.insert(p.name.clone(), expected);
    }

    /// The expected bytes of an output.
    pub fn expected(&self, output: &str) -> Option<&[u8]> {
        self.expected.get(output).map(|e| &*e.bytes)
    }

    /// Bytes of memory this takes.
    pub fn bytes(&self) -> usize {
        let shared = self.arguments.values().chain(&self.prepared).flatten();
        let expected = self.expected.values().map(|e| e.bytes.len());
        shared.map(|c| c.len()).chain(expected).sum()
    }

    /// An argument, once.
    pub fn argument(&mut self, name: &str) -> Result<Copies, Verdict> {
        let missing = || Verdict::Refused(format!("the task has no argument `{name}`"));
        let copies = self.arguments.get_mut(name).ok_or_else(missing)?;
        copy_up_to(copies, 1)
    }

    /// What a prepare entry wrote, once.
    pub fn prepared(&mut self, made: GuardedBuffer) -> Result<Copies, Verdict> {
        let known = self.prepared.iter().position(|c| **c[0] == *made);
        let mut copies = match known.and_then(|at| self.prepared.remove(at)) {
            Some(copies) => copies,
            None => vec![Rc::new(Sealed::seal(made).map_err(out_of_memory)?)],
        };
        let result = copy_up_to(&mut copies, 1);
        self.prepared.push_back(copies);
        result
    }

    /// What the prepare entry of this hash wrote when it last ran.
    pub fn prepared_before(&mut self, hash: u64) -> Option<Vec<(String, Copies)>> {
        let same = |r: &Recipe| r.hash == hash && hash != 0;
        let at = self.recipes.iter().position(same)?;
        let recipe = self.recipes.remove(at)?;
        let mut found = Vec::new();
        for (name, first) in &recipe.made {
            let known = self.prepared.iter().position(|c| Rc::ptr_eq(&c[0], first));
            let copies = known.and_then(|at| self.prepared.remove(at));
            self.prepared
                .push_back(copies.unwrap_or_else(|| vec![first.clone()]));
            found.push((name.clone(), vec![first.clone()]));
        }
        self.recipes.push_back(recipe);
        Some(found)
    }

    /// Remembers what the prepare entry of this hash wrote.
    pub fn remember_prepared(&mut self, hash: u64, made: &[(String, Copies)]) {
        let first = |(name, copies): &(String, Copies)| (name.clone(), copies[0].clone());
        self.recipes.push_back(Recipe {
            hash,
            made: made.iter().map(first).collect(),
        });
        while self.recipes.len() > KEPT_PREPARED {
            self.recipes.pop_front();
        }
    }

    /// `count` copies of what [`Task::argument`] or [`Task::prepared`] gave.
    pub fn copies(&mut self, of: &Rc<Sealed>, count: usize) -> Result<Copies, Verdict> {
        let mut all = self.arguments.values_mut().chain(&mut self.prepared);
        let own = all.find(|c| Rc::ptr_eq(&c[0], of));
        copy_up_to(own.unwrap_or(&mut vec![of.clone()]), count)
    }

    /// Forgets prepared constants but for the latest `sets` kernels that had
    /// `buffers` each.
    pub fn trim_prepared(&mut self, buffers: usize) {
        while self.prepared.len() > KEPT_PREPARED * buffers.max(1) {
            self.prepared.pop_front();
        }
    }

    /// Whether `p` is an output that this task expects, as it expects it. While
    /// the oracle runs nothing is expected yet, and anything goes.
    pub fn expects(&self, p: &KernelParam) -> Result<(), Verdict> {
        match self.expected.get(&p.name) {
            None if self.expected.is_empty() => Ok(()),
            Some(e) if e.dtype == p.dtype && e.shape == p.shape => Ok(()),
            Some(e) => Err(Verdict::Refused(format!(
                "output `{}` is {} {:?} and the task's is {} {:?}",
                p.name, p.dtype, p.shape, e.dtype, e.shape
            ))),
            None => Err(Verdict::Refused(format!(
                "the task has no output `{}`",
                p.name
            ))),
        }
    }

    /// Names of outputs, for a check that a kernel has them all.
    pub fn outputs(&self) -> impl Iterator<Item = &String> {
        self.expected.keys()
    }

    /// Compares an output, of which `expects` said yes, with the expected one; its
    /// relative error (L2).
    pub fn check(&self, p: &KernelParam, actual: &[u8], tolerance: f64) -> Result<f64, Verdict> {
        let expected = &self.expected[&p.name];
        if *actual == *expected.bytes {
            return Ok(0.0);
        }
        if p.dtype == DType::F32
            && let Some(error) = close(actual, &expected.bytes, tolerance)
        {
            return Ok(error);
        }
        let tensor = |bytes| {
            let shape: Vec<usize> = p.shape.iter().map(|d| *d as usize).collect();
            Tensor::from_bytes(p.dtype, &shape, bytes).expect("allocated to this size")
        };
        let (actual, expected) = (tensor(actual), tensor(&expected.bytes));
        let d = compare(&actual, &expected);
        let element = ELEMENT_TOLERANCE * tolerance;
        let agree = d.within(tolerance) && d.max_over_rms <= element;
        if p.dtype.is_float() && (agree || only_rounded(&actual, &expected, tolerance)) {
            return Ok(d.rel_l2);
        }
        Err(Verdict::Wrong(OutputDifference {
            rel_l2: d.rel_l2,
            max_over_rms: d.max_over_rms,
            max_abs: d.max_abs,
            worst: d.worst as u64,
            non_finite: d.non_finite as u64,
            output: p.name.clone(),
            later: false,
        }))
    }
}

fn out_of_memory(e: std::io::Error) -> Verdict {
    Verdict::OutOfMemory(e.to_string())
}

/// The first `count` of `copies`, made where they lack.
fn copy_up_to(copies: &mut Copies, count: usize) -> Result<Copies, Verdict> {
    while copies.len() < count {
        let copy = Sealed::new(&copies[0]).map_err(out_of_memory)?;
        copies.push(Rc::new(copy));
    }
    Ok(copies[..count].to_vec())
}

fn make_argument(a: &ArgFill, seed: u64, index: usize) -> Result<Tensor, String> {
    let dims = a.shape.iter().map(|d| usize::try_from(*d));
    let shape: Vec<usize> = dims
        .collect::<Result<_, _>>()
        .map_err(|_| format!("argument `{}` has the shape {:?}", a.name, a.shape))?;
    if !(a.lo < a.hi && a.lo.is_finite() && a.hi.is_finite()) {
        return Err(format!(
            "argument `{}` is to be filled from {} to {}",
            a.name, a.lo, a.hi
        ));
    }
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
    let fill = Fill::Uniform { lo: a.lo, hi: a.hi };
    Ok(fill_tensor(a.dtype, &shape, fill, seed))
}

/// The relative error (L2) of two `f32` buffers that agree: the common case, without
/// conversions. None where they do not or either holds a value that is not finite.
fn close(actual: &[u8], expected: &[u8], tolerance: f64) -> Option<f64> {
    let (actual, _) = actual.as_chunks::<4>();
    let (expected, _) = expected.as_chunks::<4>();
    let (mut error, mut norm, mut worst) = (0.0f64, 0.0f64, 0.0f64);
    for (a, e) in actual.iter().zip(expected) {
        let e = f64::from(f32::from_le_bytes(*e));
        let d = f64::from(f32::from_le_bytes(*a)) - e;
        let square = d * d;
        error += square;
        norm += e * e;
        worst = if square > worst { square } else { worst };
    }
    // Not a number anywhere makes `error` not a number; an infinity makes one
    // of the sums infinite, and infinities compare equal.
    let element = ELEMENT_TOLERANCE * tolerance;
    let agree = error.is_finite()
        && norm.is_finite()
        && error <= tolerance * tolerance * norm
        && worst * expected.len() as f64 <= element * element * norm;
    let relative = if norm > 0.0 {
        (error / norm).sqrt()
    } else {
        0.0
    };
    agree.then_some(relative)
}

/// Whether halves differ by no more than the tolerance and the rounding of results that lie between two
/// numbers: a result of f32 that differs in its last digits may become the other one. Few are.
fn only_rounded(actual: &Tensor, expected: &Tensor, tolerance: f64) -> bool {
    // From a number to the next, relative to it, at most.
    let step = match expected.dtype() {
        DType::F16 => 2.0f64.powi(-10),
        DType::BF16 => 2.0f64.powi(-7),
        _ => return false,
    };
    let pairs = || (0..expected.len()).map(|i| (actual.get_f64(i), expected.get_f64(i)));
    let (mut error, mut norm) = (0.0, 0.0);
    for (a, e) in pairs() {
        error += (a - e) * (a - e);
        norm += e * e;
    }
    let element = ELEMENT_TOLERANCE * tolerance * (norm / expected.len().max(1) as f64).sqrt();
    // What is not finite is no number that is less.
    let most = tolerance + MOST_ROUNDED * step;
    error <= most * most * norm && pairs().all(|(a, e)| (a - e).abs() <= element + step * e.abs())
}

/// The relative error (L2) of halves of which some are rounded to another number, in steps from a number to the next:
/// of one in a hundred.
const MOST_ROUNDED: f64 = 0.1;

/// Whether a parameter's copies are rotated through: what is the same in every
/// call and so would stay in the caches, which in a model it does not.
pub fn rotates(p: &KernelParam) -> bool {
    matches!(p.role, ParamRole::Constant | ParamRole::Prepared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn agree(actual: &[f32], expected: &[f32], tolerance: f64) -> bool {
        close(&bytes(actual), &bytes(expected), tolerance).is_some()
    }

    #[test]
    fn the_fast_comparison_never_accepts_what_is_not_finite() {
        let good = vec![1.0f32; 100];
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut bad = good.clone();
            bad[3] = special;
            assert!(!agree(&bad, &good, 1e-4), "{special}");
            assert!(!agree(&good, &bad, 1e-4), "{special} expected");
        }
        assert!(agree(&good, &good, 1e-4));
        assert!(agree(&[], &[], 1e-4));
    }

    #[test]
    fn halves_may_be_rounded_to_the_next_number() {
        for (dtype, digits) in [(DType::F16, 10), (DType::BF16, 7)] {
            let whole = Tensor::from_slice(&[1000], &[3.0f32; 1000]);
            let mut expected = Tensor::zeros(dtype, &[1000]);
            (0..1000).for_each(|i| expected.set_f64(i, whole.get_f64(i)));
            let step = 2.0f64.powi(1 - digits);
            let agrees = |count: usize, steps: f64| {
                let mut actual = expected.clone();
                (0..count).for_each(|i| actual.set_f64(i, 3.0 + steps * step));
                only_rounded(&actual, &expected, 1e-6)
            };
            assert!(agrees(5, 1.0) && agrees(5, -1.0), "{dtype}");
            assert!(!agrees(5, 2.0) && !agrees(500, 1.0), "{dtype}");
            assert!(!agrees(1, f64::NAN) && !agrees(1, f64::INFINITY), "{dtype}");
        }
        let one = Tensor::from_slice(&[1], &[1.0f32]);
        assert!(!only_rounded(&one, &one, 1.0), "not of f32");
    }

    #[test]
    fn the_fast_comparison_bounds_the_sum_and_each_element() {
        let expected = vec![1.0f32; 1 << 20];
        let mut actual: Vec<f32> = expected.iter().map(|v| v * 1.00005).collect();
        let error = close(&bytes(&actual), &bytes(&expected), 1e-4).unwrap();
        assert!((error / 5e-5 - 1.0).abs() < 0.01, "{error}");
        assert!(!agree(&actual, &expected, 2e-5));
        actual = expected.clone();
        // Too little for the norm of a million elements.
        actual[77] += 0.02;
        assert!(!agree(&actual, &expected, 1e-4));
        actual[77] = 1.009;
        assert!(agree(&actual, &expected, 1e-4));
    }
}
