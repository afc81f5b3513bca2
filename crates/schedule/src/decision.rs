//! Decision: an argument of a trace that a search may choose.
//!
//! Values of a decision are numbered `0..cardinality()`, so that a search can
//! enumerate, sample and mutate without knowing what they mean. Randomness is
//! the caller's: `draw(n)` gives a uniform number below `n`.

/// The entry of a `ComputeLocation` that leaves the block where it is.
pub const HERE: &str = ".";

/// What a decision chooses from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DecisionKind {
    /// Ordered factorisations of `extent` into `parts` factors, outermost
    /// first, of which the innermost is at most `max_innermost`. Numbered by
    /// the innermost factor, then by the others from the outermost inwards.
    PerfectTile {
        extent: i64,
        parts: usize,
        max_innermost: i64,
    },
    /// One of some integers; the value is the integer.
    Categorical { options: Vec<i64> },
    /// The loop to move a block to; the value is the position in `loops`.
    ComputeLocation { loops: Vec<String> },
}

/// A decision and its present value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// For people; unique names are not required.
    pub name: String,
    pub kind: DecisionKind,
    /// The factors of a tile; one number for the other kinds.
    pub value: Vec<i64>,
}

impl DecisionKind {
    /// How many values there are. 0 for a kind that admits none.
    pub fn cardinality(&self) -> u64 {
        match self {
            DecisionKind::PerfectTile { extent, parts, .. } => {
                let Some(others) = parts.checked_sub(1) else {
                    return 0;
                };
                self.innermost()
                    .map(|d| factorisations(extent / d, others))
                    .fold(0, u64::saturating_add)
            }
            DecisionKind::Categorical { options } => options.len() as u64,
            DecisionKind::ComputeLocation { loops } => loops.len() as u64,
        }
    }

    /// The innermost factors that a tile may have, ascending; none for other kinds.
    fn innermost(&self) -> impl Iterator<Item = i64> + use<> {
        let (extent, most) = match self {
            DecisionKind::PerfectTile {
                extent,
                max_innermost,
                ..
            } => (*extent, *max_innermost),
            _ => (0, 0),
        };
        divisors(extent).into_iter().filter(move |d| *d <= most)
    }

    /// The number of a value; `None` if it is not one of this kind.
    pub fn index_of(&self, value: &[i64]) -> Option<u64> {
        match self {
            DecisionKind::PerfectTile { extent, parts, .. } => {
                let (inner, others) = value.split_last()?;
                if value.len() != *parts || value.iter().any(|v| *v < 1) {
                    return None;
                }
                let product = value.iter().try_fold(1i64, |n, v| n.checked_mul(*v));
                if product != Some(*extent) || !self.innermost().any(|d| d == *inner) {
                    return None;
                }
                let smaller = self.innermost().take_while(|d| d < inner);
                let mut index: u64 = smaller
                    .map(|d| factorisations(extent / d, others.len()))
                    .fold(0, u64::saturating_add);
                let mut rest = extent / inner;
                for (i, v) in others.iter().enumerate() {
                    let left = others.len() - 1 - i;
                    for d in divisors(rest).into_iter().take_while(|d| d < v) {
                        index = index.saturating_add(factorisations(rest / d, left));
                    }
                    rest /= v;
                }
                Some(index)
            }
            DecisionKind::Categorical { options } => {
                let [v] = value else { return None };
                options.iter().position(|o| o == v).map(|i| i as u64)
            }
            DecisionKind::ComputeLocation { loops } => {
                let [v] = value else { return None };
                let index = u64::try_from(*v).ok()?;
                (index < loops.len() as u64).then_some(index)
            }
        }
    }

    /// The value with that number; `None` if there are not so many.
    pub fn value_at(&self, index: u64) -> Option<Vec<i64>> {
        match self {
            DecisionKind::PerfectTile { extent, parts, .. } => {
                let others = parts.checked_sub(1)?;
                let mut index = index;
                let inner = self
                    .innermost()
                    .find(|d| take(&mut index, factorisations(extent / d, others)))?;
                let mut rest = extent / inner;
                let mut value = Vec::new();
                for left in (0..others).rev() {
                    let factor = divisors(rest)
                        .into_iter()
                        .find(|d| take(&mut index, factorisations(rest / d, left)))?;
                    value.push(factor);
                    rest /= factor;
                }
                value.push(inner);
                Some(value)
            }
            DecisionKind::Categorical { options } => {
                let at = usize::try_from(index).ok()?;
                options.get(at).map(|v| vec![*v])
            }
            DecisionKind::ComputeLocation { loops } => {
                (index < loops.len() as u64).then(|| vec![index as i64])
            }
        }
    }

    /// A uniformly drawn value; `None` if there is none.
    pub fn sample(&self, draw: &mut impl FnMut(u64) -> u64) -> Option<Vec<i64>> {
        let n = self.cardinality();
        if n == 0 {
            return None;
        }
        self.value_at(draw(n))
    }

    /// The numbers of the values next to the one with number `index`: of a tile
    /// those with one prime factor moved from one part to another; of integers
    /// the next smaller and the next larger one; of loops, which have no order,
    /// all others. From every value every other one can be reached by such moves.
    pub fn neighbours(&self, index: u64) -> Vec<u64> {
        let Some(value) = self.value_at(index) else {
            return vec![];
        };
        match self {
            DecisionKind::PerfectTile { max_innermost, .. } => moves(&value, *max_innermost)
                .into_iter()
                .filter_map(|(from, to, prime)| {
                    let mut moved = value.clone();
                    moved[from] /= prime;
                    moved[to] *= prime;
                    self.index_of(&moved)
                })
                .collect(),
            DecisionKind::Categorical { options } => {
                let here = value[0];
                let smaller = options.iter().filter(|o| **o < here).max();
                let larger = options.iter().filter(|o| **o > here).min();
                let next = [smaller, larger].into_iter().flatten();
                next.filter_map(|o| self.index_of(&[*o])).collect()
            }
            DecisionKind::ComputeLocation { loops } => (0..loops.len() as u64)
                .filter(|other| *other != index)
                .collect(),
        }
    }
}

/// Whether `index` lies within the next `count` values; else they are skipped.
fn take(index: &mut u64, count: u64) -> bool {
    if *index < count {
        return true;
    }
    *index -= count;
    false
}

/// (from, to, prime) for every prime factor that can change its part.
fn moves(value: &[i64], max_innermost: i64) -> Vec<(usize, usize, i64)> {
    let mut out = Vec::new();
    for (from, v) in value.iter().enumerate() {
        for prime in prime_powers(*v).into_iter().map(|(p, _)| p) {
            for (to, w) in value.iter().enumerate() {
                let fits = to + 1 < value.len() || w * prime <= max_innermost;
                if to != from && fits {
                    out.push((from, to, prime));
                }
            }
        }
    }
    out
}

impl Decision {
    /// The decision for a kind, at its first value; `None` if the kind has none.
    pub fn new(name: impl Into<String>, kind: DecisionKind) -> Option<Decision> {
        let value = kind.value_at(0)?;
        let name = name.into();
        Some(Decision { name, kind, value })
    }

    pub fn cardinality(&self) -> u64 {
        self.kind.cardinality()
    }

    /// The number of the present value; `None` if it is not one of the kind.
    pub fn index(&self) -> Option<u64> {
        self.kind.index_of(&self.value)
    }

    fn with(&self, value: Vec<i64>) -> Decision {
        let (name, kind) = (self.name.clone(), self.kind.clone());
        Decision { name, kind, value }
    }

    /// The same decision with the value of that number.
    pub fn from_index(&self, index: u64) -> Option<Decision> {
        self.kind.value_at(index).map(|v| self.with(v))
    }

    /// The same decision with a uniformly drawn value.
    pub fn sample(&self, draw: &mut impl FnMut(u64) -> u64) -> Option<Decision> {
        self.kind.sample(draw).map(|v| self.with(v))
    }
}

/// The positive divisors, ascending; none of a number below 1.
fn divisors(n: i64) -> Vec<i64> {
    if n < 1 {
        return vec![];
    }
    let mut out = vec![1];
    for (p, e) in prime_powers(n) {
        let known = out.clone();
        let mut power = 1;
        for _ in 0..e {
            power *= p;
            out.extend(known.iter().map(|d| d * power));
        }
    }
    out.sort_unstable();
    out
}

/// (prime, exponent), ascending.
fn prime_powers(n: i64) -> Vec<(i64, u32)> {
    let mut out = Vec::new();
    let (mut rest, mut p) = (n, 2);
    while p <= rest / p {
        let mut e = 0;
        while rest % p == 0 {
            rest /= p;
            e += 1;
        }
        if e > 0 {
            out.push((p, e));
        }
        p += 1;
    }
    if rest > 1 {
        out.push((rest, 1));
    }
    out
}

/// How many ordered factorisations into `parts` factors there are.
fn factorisations(n: i64, parts: usize) -> u64 {
    if parts == 0 {
        return u64::from(n == 1);
    }
    prime_powers(n)
        .into_iter()
        .map(|(_, e)| binomial(u64::from(e) + parts as u64 - 1, u64::from(e)))
        .fold(1, u64::saturating_mul)
}

fn binomial(n: u64, k: u64) -> u64 {
    (1..=k).fold(1u64, |c, i| c.saturating_mul(n - k + i) / i)
}

#[cfg(test)]
mod tests {
    use super::{Decision, DecisionKind, divisors};

    fn tile(extent: i64, parts: usize, max_innermost: i64) -> DecisionKind {
        DecisionKind::PerfectTile {
            extent,
            parts,
            max_innermost,
        }
    }

    /// All tiles by trying every tuple of divisors.
    fn all(extent: i64, parts: usize, most: i64) -> usize {
        let mut tuples: Vec<Vec<i64>> = vec![vec![]];
        for _ in 0..parts {
            tuples = tuples
                .iter()
                .flat_map(|t| (1..=extent).map(move |d| [t.as_slice(), &[d]].concat()))
                .collect();
        }
        let fits = |t: &&Vec<i64>| t.iter().product::<i64>() == extent && t[parts - 1] <= most;
        tuples.iter().filter(fits).count()
    }

    #[test]
    fn tiles_are_numbered_without_gaps_or_repeats() {
        for extent in 1..=24 {
            for parts in 1..=3 {
                for most in [0, 1, 4, 24] {
                    let kind = tile(extent, parts, most);
                    let n = kind.cardinality();
                    assert_eq!(n as usize, all(extent, parts, most), "{kind:?}");
                    let mut seen = Vec::new();
                    for i in 0..n {
                        let value = kind.value_at(i).expect("below the cardinality");
                        assert_eq!(kind.index_of(&value), Some(i), "{kind:?} {value:?}");
                        assert!(!seen.contains(&value));
                        seen.push(value);
                    }
                    assert_eq!(kind.value_at(n), None);
                }
            }
        }
        assert_eq!(tile(512, 4, 64).cardinality(), 210);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
    }

    #[test]
    fn values_of_another_kind_have_no_number() {
        let kind = tile(12, 2, 4);
        for wrong in [
            vec![],
            vec![12],
            vec![2, 6],
            vec![3, 3],
            vec![-3, -4],
            vec![1, 3, 4],
        ] {
            assert_eq!(kind.index_of(&wrong), None, "{wrong:?}");
        }
        let options = DecisionKind::Categorical {
            options: vec![0, 16],
        };
        assert_eq!(options.index_of(&[16]), Some(1));
        assert_eq!(options.index_of(&[1]), None);
        let loops = DecisionKind::ComputeLocation {
            loops: vec!["a".into()],
        };
        assert_eq!(loops.index_of(&[0]), Some(0));
        assert_eq!(loops.index_of(&[1]), None);
        assert!(Decision::new("none", DecisionKind::Categorical { options: vec![] }).is_none());
        assert!(Decision::new("none", tile(8, 0, 8)).is_none());
    }

    #[test]
    fn neighbours_are_other_values_and_reach_every_one() {
        let kinds = [
            tile(48, 3, 8),
            tile(48, 2, 12),
            tile(7, 2, 3),
            tile(6, 3, 1),
            tile(360, 4, 9),
            DecisionKind::Categorical {
                options: vec![5, 3, 7, 64, 0],
            },
            DecisionKind::ComputeLocation {
                loops: vec!["a".into(), "b".into(), "c".into()],
            },
        ];
        for kind in kinds {
            let mut seen = vec![false; kind.cardinality() as usize];
            let mut open = vec![0];
            while let Some(index) = open.pop() {
                if std::mem::replace(&mut seen[index as usize], true) {
                    continue;
                }
                let next = kind.neighbours(index);
                for n in &next {
                    assert!(*n != index && *n < kind.cardinality(), "{kind:?}");
                    // A move can be taken back.
                    assert!(kind.neighbours(*n).contains(&index), "{kind:?} {index} {n}");
                }
                open.extend(next);
            }
            assert!(seen.into_iter().all(|s| s), "{kind:?}");
        }
    }

    #[test]
    fn neighbours_lie_one_step_away() {
        let of = |kind: &DecisionKind, value: &[i64]| -> Vec<Vec<i64>> {
            let index = kind.index_of(value).expect("a value");
            let at = |n: u64| kind.value_at(n).expect("below the cardinality");
            kind.neighbours(index).into_iter().map(at).collect()
        };
        let mut tiles = of(&tile(12, 2, 4), &[6, 2]);
        tiles.sort();
        // [2, 6] is beyond the innermost part's bound.
        assert_eq!(tiles, [[3, 4], [12, 1]]);
        let options = DecisionKind::Categorical {
            options: vec![16, 0, 64, 256],
        };
        assert_eq!(of(&options, &[16]), [[0], [64]]);
        assert_eq!(of(&options, &[256]), [[64]]);
    }
}
