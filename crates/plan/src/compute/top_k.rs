//! Order along an axis.
//!
//! Few elements are found by a [`tournament`], and a small part of many elements one by one, as [`winners`]. Most of the
//! elements of long lines are ordered by their [`digits`]. Else all go through K. E. Batcher's bitonic network: elements are
//! compared with others at fixed distances, so the order in which the network works does not depend on the data, and every step is one block over all elements.

use super::winners::{self, Winners};
use super::{Access, Axes, Env, Kind, digits, tournament};
use graph::ops::TopK;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Reducer};

/// Elements that a tournament finds, at most: each round compares four times their square.
const MOST_COMPARED: i64 = 128;

/// Of at least so many elements, one is taken by itself.
const TAKEN: i64 = 4;

/// Elements of a line that is ordered by digits, at least: of 512 an f32 takes 0.9 of a network's time, of 256 it takes 1.7.
const FEWEST: i64 = 512;
/// An i64 has twice the digits: of 1,000 a single line takes 1.5 of a network's time.
const FEWEST_OF_I64: i64 = 2048;

/// Elements that the innermost axis of a network has, at least: as many lanes as a vector has.
const LANES: i64 = 16;

pub(super) fn top_k(env: &Env, b: &mut ProgramBuilder, t: TopK) -> (BufferId, Kind) {
    let extent = env.operand(0).shape()[t.axis];
    let result = match t.k as i64 {
        ..=MOST_COMPARED => by_tournament(env, b, t),
        k if k * TAKEN <= extent && is_narrow(env) => one_by_one(env, b, t),
        k if k * TAKEN > extent && has_digits(env, t) => by_digits(env, b, t),
        _ => network(env, b, t),
    };
    let kind = super::movement::kind(env);
    (result, kind.arg("axis", t.axis).arg("of", extent))
}

/// Whether an i32 holds the order of elements.
fn is_narrow(env: &Env) -> bool {
    let dtype = env.operand_dtype(0);
    dtype != DType::I64 && dtype != DType::F64
}

/// Whether elements are ordered by their digits: there is no operator that gives the bits of an f64, and a network orders
/// many lines side by side. It also orders short lines faster than the counts of all digits are added up.
fn has_digits(env: &Env, t: TopK) -> bool {
    let Axes(lines) = Source::of(env, t).lines();
    let fewest = match env.operand_dtype(0) {
        DType::F64 => return false,
        DType::I64 => FEWEST_OF_I64,
        _ => FEWEST,
    };
    env.operand(0).shape()[t.axis] >= fewest && !lies_side_by_side(&lines)
}

fn lies_side_by_side(lines: &[(String, i64)]) -> bool {
    lines.last().is_some_and(|(_, n)| *n >= LANES)
}

fn nan(e: &Expr) -> Expr {
    Expr::binary(BinaryOp::Ne, e, e)
}

fn by_tournament(env: &Env, b: &mut ProgramBuilder, t: TopK) -> BufferId {
    let source = Source::of(env, t);
    let best = tournament::best(b, &source, &source.lines());
    env.map(b, |p| {
        let mut line = p.index.clone();
        let place = line.remove(t.axis);
        best.at(&line, &place).cast(DType::I64)
    })
}

fn one_by_one(env: &Env, b: &mut ProgramBuilder, t: TopK) -> BufferId {
    let source = Source::of(env, t);
    let elements = winners::Elements {
        lines: source.lines(),
        count: source.n,
        key: &|line, i| source.key(line, i),
    };
    let winners = Winners::of(b, &elements, source.k());
    winners.take(b, (0, source.k()), None);
    env.map(b, |p| {
        let mut line = p.index.clone();
        let place = line.remove(t.axis);
        Expr::load(winners.order, winners::at(&line, place))
    })
}

fn by_digits(env: &Env, b: &mut ProgramBuilder, t: TopK) -> BufferId {
    let order = digits::ordered(b, &Source::of(env, t), !is_narrow(env));
    env.map(b, |p| {
        let mut line = p.index.clone();
        let place = line.remove(t.axis);
        Expr::load(order, winners::at(&line, place)).cast(DType::I64)
    })
}

/// Elements on their way through the network: those of a line are [low, lanes], and element
/// `lane * low + i` lies at `i, lane`. Steps at distances below `low` then have vectors along
/// the lanes.
struct Elements {
    keys: BufferId,
    /// Where the element comes from. Elements that are equal as keys, but not in the order,
    /// are told apart by it: see [`Source::element`].
    places: BufferId,
    low: i64,
    lanes: i64,
}

/// A network that orders chunks of at least `k` elements, and then keeps the better half of two
/// chunks until one is left.
///
/// Among many elements, only those of some groups can be the best ones: of the `k` groups whose own best elements come
/// first. Then a network orders the best elements of groups, and another one those of the groups that it finds.
fn network(env: &Env, b: &mut ProgramBuilder, t: TopK) -> BufferId {
    let source = Source::of(env, t);
    let Axes(axes) = source.lines();
    let mut network = Network {
        b,
        lines: Lines {
            side_by_side: lies_side_by_side(&axes),
            axes,
        },
        chunk: chunk(t),
        source: &source,
        steps: 0,
    };
    let all = match groups(source.n, network.chunk) {
        Some(groups) => {
            let best = network.best(&source, groups);
            let found = network.ordered(best);
            network.members(&source, &found, groups)
        }
        None => network.entered("enter", source.whole, |line, i| {
            source.element(line, i, i.clone())
        }),
    };
    let all = network.ordered(all);
    let lines = network.lines.clone();
    env.map(network.b, |p| {
        let mut line = p.index.clone();
        let i = line.remove(t.axis);
        let place = Expr::load(all.places, lines.at(&all, &line, i));
        source.position(place).cast(DType::I64)
    })
}

fn chunk(t: TopK) -> i64 {
    (t.k.max(1) as u64).next_power_of_two() as i64
}

/// Into how many groups `n` elements are divided, if that halves the elements of networks at least.
fn groups(n: i64, chunk: i64) -> Option<i64> {
    let whole = (n as u64).next_power_of_two() as i64;
    // As many groups as elements of chosen groups.
    let groups = 1 << (chunk.ilog2() + whole.ilog2()).div_ceil(2);
    let members = chunk * (whole / groups);
    (groups + members <= whole / 2).then_some(groups)
}

/// The elements that are ordered.
pub(super) struct Source<'a> {
    x: &'a Access,
    t: TopK,
    /// How many a line has, and the power of two that is not less.
    pub n: i64,
    whole: i64,
    /// Of keys.
    dtype: DType,
}

impl Source<'_> {
    fn of<'a>(env: &'a Env, t: TopK) -> Source<'a> {
        let x = env.operand(0);
        let n = x.shape()[t.axis];
        Source {
            x,
            t,
            n,
            whole: (n as u64).next_power_of_two() as i64,
            dtype: match env.operand_dtype(0) {
                d if d.is_float() => super::work(d),
                DType::I64 => DType::I64,
                _ => DType::I32,
            },
        }
    }

    /// The axes of the result without that of the order.
    pub fn lines(&self) -> Axes {
        let axes = self.x.shape().iter().enumerate();
        let axes = axes.filter(|(d, _)| *d != self.t.axis);
        Axes::new(axes.map(|(d, n)| (format!("i{d}"), *n)))
    }

    pub fn axis(&self) -> usize {
        self.t.axis
    }

    /// How many elements a line has.
    pub fn count(&self) -> i64 {
        self.n
    }

    /// How many elements are wanted.
    pub fn k(&self) -> i64 {
        self.t.k.max(1) as i64
    }

    /// 1 if an element of this key and place comes before another one, else 0. By arithmetic: what a logical
    /// operator loads behind its first operand would be loaded behind a branch.
    pub fn comes_before(&self, one: &[Expr; 2], other: &[Expr; 2]) -> Expr {
        let better = match self.t.largest {
            true => other[0].clone().lt(&one[0]),
            false => one[0].clone().lt(&other[0]),
        };
        let equal = one[0].clone().equals(other[0].clone());
        let earlier = one[1].clone().lt(&other[1]);
        let [better, equal, earlier] = [better, equal, earlier].map(|e| e.cast(DType::I32));
        let same = Expr::binary(BinaryOp::BitAnd, equal, earlier);
        Expr::binary(BinaryOp::BitOr, better, same)
    }

    /// Key and place of element `i` of a line; behind the last one are others that come last in
    /// the order. NaN is an infinity that comes before or behind all others by its place, to which
    /// a multiple of the network's size is added.
    ///
    /// It is loaded from `from`, which is `i` where there is such an element.
    pub fn element(&self, line: &[Expr], i: &Expr, from: Expr) -> [Expr; 2] {
        let (whole, largest) = (self.whole, self.t.largest);
        let number = |v: f64| Expr::constant(v, self.dtype);
        let mut at = line.to_vec();
        at.insert(self.t.axis, from);
        let own = self.x.at(at);
        let (mut key, mut at) = (own.clone().cast(self.dtype), i.clone().cast(DType::I32));
        if self.dtype.is_float() {
            key = Expr::select(nan(&own), number(f64::INFINITY), key);
            let shift = if largest { -whole } else { whole };
            at = &at + Expr::select(nan(&own), place(shift), place(0));
        }
        let inside = i.clone().lt(self.n);
        let last = i.clone().cast(DType::I32) + place(2 * whole);
        [
            Expr::select(inside.clone(), key, self.last()),
            Expr::select(inside, at, last),
        ]
    }

    /// The key of element `i` of a line as one of [`winners`].
    fn key(&self, line: &[Expr], i: &Expr) -> Expr {
        let order = self.place_in_order(line, &i.clone().min(self.n - 1));
        let order = if self.t.largest {
            order
        } else {
            Expr::int(-1) - order
        };
        let inside = i.clone().lt(self.n);
        Expr::select(inside, winners::key(order, i), winners::none())
    }

    /// An i64 of which the least comes first, for element `i` of a line.
    pub fn order(&self, line: &[Expr], i: &Expr) -> Expr {
        let order = self.place_in_order(line, i);
        match self.t.largest {
            true => Expr::int(-1) - order,
            false => order,
        }
    }

    /// An i64 that ascends with element `i` of a line.
    fn place_in_order(&self, line: &[Expr], i: &Expr) -> Expr {
        let mut at = line.to_vec();
        at.insert(self.t.axis, i.clone());
        let own = self.x.at(at).cast(self.dtype);
        match self.dtype.is_float() {
            true => winners::order_of(&own),
            false => own.cast(DType::I64),
        }
    }

    /// A key behind which no other one comes.
    fn last(&self) -> Expr {
        let last = match (self.dtype, self.t.largest) {
            (d, true) if d.is_float() => f64::NEG_INFINITY,
            (d, false) if d.is_float() => f64::INFINITY,
            (_, true) => f64::MIN,
            (_, false) => f64::MAX,
        };
        Expr::constant(last, self.dtype)
    }

    /// The number of the element that has a place.
    fn position(&self, at: Expr) -> Expr {
        Expr::binary(BinaryOp::BitAnd, at, place(self.whole - 1))
    }
}

fn place(v: i64) -> Expr {
    Expr::constant(v as f64, DType::I32)
}

/// The lines that are ordered, each for itself.
#[derive(Clone)]
struct Lines {
    axes: Vec<(String, i64)>,
    /// They lie inside elements, so that a vector has one element of several lines.
    side_by_side: bool,
}

impl Lines {
    /// The axes of lines, and those of elements.
    fn with(&self, low: i64, lanes: i64) -> Axes {
        let own = [("low".to_string(), low), ("lane".to_string(), lanes)];
        Axes(match self.side_by_side {
            true => [&own, &self.axes[..]].concat(),
            false => [&self.axes[..], &own].concat(),
        })
    }

    /// The line and the own two of these axes.
    fn parts<'o>(&self, o: &'o [Expr]) -> (&'o [Expr], &'o [Expr]) {
        match self.side_by_side {
            true => (&o[2..], &o[..2]),
            false => o.split_at(o.len() - 2),
        }
    }

    fn index(&self, line: &[Expr], own: [Expr; 2]) -> Vec<Expr> {
        match self.side_by_side {
            true => [&own, line].concat(),
            false => [line, &own].concat(),
        }
    }

    /// Where element `i` of a line lies.
    fn at(&self, all: &Elements, line: &[Expr], i: Expr) -> Vec<Expr> {
        let own = [i.clone().floor_mod(all.low), i.floor_div(all.low)];
        self.index(line, own)
    }
}

struct Network<'a> {
    b: &'a mut ProgramBuilder,
    lines: Lines,
    /// How many elements are in order in the end.
    chunk: i64,
    source: &'a Source<'a>,
    steps: usize,
}

impl Network<'_> {
    /// `count` elements, of which `element` gives key and place: those that lie side by side follow each other.
    fn entered(
        &mut self,
        name: &str,
        count: i64,
        element: impl Fn(&[Expr], &Expr) -> [Expr; 2],
    ) -> Elements {
        let lines = self.lines.clone();
        let lanes = match lines.side_by_side {
            true => count,
            false => (count / self.chunk).max(LANES).min(count),
        };
        let low = count / lanes;
        let axes = lines.with(low, lanes);
        let made = self.b.block(name, &axes.list(), &[], None, |o, _| {
            let (line, own) = lines.parts(o);
            element(line, &(own[0].clone() * lanes + &own[1])).to_vec()
        });
        Elements {
            keys: made[0],
            places: made[1],
            low,
            lanes,
        }
    }

    /// The best element of each group: group `g` has the elements `g`, `g + groups`, ...
    fn best(&mut self, source: &Source, groups: i64) -> Elements {
        let axes = Axes([&self.lines.axes[..], &[("g".to_string(), groups)]].concat());
        let over = [("r", (source.n - 1) / groups + 1)];
        let element = |o: &[Expr], r: &[Expr]| {
            let (g, line) = o.split_last().expect("a group has a number");
            let i = r[0].clone() * groups + g;
            source.element(line, &i, i.clone())
        };
        let extreme = match self.source.t.largest {
            true => Reducer::Max,
            false => Reducer::Min,
        };
        let keys = self.b.reduce("best", &axes.list(), &over, extreme, |o, r| {
            let [key, _] = element(o, r);
            key
        });
        let places = self
            .b
            .reduce("first", &axes.list(), &over, Reducer::Min, |o, r| {
                let [key, own] = element(o, r);
                let none = place(i64::from(i32::MAX));
                Expr::select(key.equals(Expr::load(keys, o)), own, none)
            });
        self.entered("enter_groups", groups, |line, g| {
            let at = [line, std::slice::from_ref(g)].concat();
            [keys, places].map(|b| Expr::load(b, at.clone()))
        })
    }

    /// All elements of the groups whose best elements were found.
    fn members(&mut self, source: &Source, found: &Elements, groups: i64) -> Elements {
        let chunk = self.chunk;
        let count = chunk * (source.whole / groups);
        let lines = self.lines.clone();
        self.entered("enter_members", count, |line, i| {
            let at = lines.at(found, line, i.clone().floor_mod(chunk));
            let best = Expr::load(found.places, at);
            let group = Expr::binary(BinaryOp::BitAnd, best, place(groups - 1));
            // Within the line by what is written here: the data need no check.
            let group = group.cast(DType::I64).max(0);
            let row = i.clone().floor_div(chunk) * groups;
            let i = row + group;
            source.element(line, &i, i.clone().min(source.n - 1))
        })
    }

    /// The best elements, in order.
    fn ordered(&mut self, mut all: Elements) -> Elements {
        let chunk = self.chunk;
        let mut size = 2;
        while size <= chunk {
            all = self.step(&all, size - 1, None);
            all = self.merged(all, size / 2);
            size *= 2;
        }
        while all.low * all.lanes > chunk {
            let half = all.low * all.lanes / 2;
            all = self.step(&all, chunk - 1, Some(half));
            all = self.merged(all, chunk);
        }
        all
    }

    /// Elements whose halves of `2 * size` are bitonic: in order.
    fn merged(&mut self, mut all: Elements, size: i64) -> Elements {
        let mut distance = size / 2;
        while distance > 0 {
            all = self.step(&all, distance, None);
            distance /= 2;
        }
        all
    }

    /// Compares each element with the one whose number differs in the bits of `mask`, and puts
    /// the better one first. With `half`, the other one is so much further on, and only the
    /// better ones are kept.
    fn step(&mut self, from: &Elements, mask: i64, half: Option<i64>) -> Elements {
        let (low, across) = (mask % from.low, mask / from.low);
        let (further, lanes) = match half {
            Some(half) => (half / from.low, from.lanes / 2),
            None => (0, from.lanes),
        };
        // The highest bit says which of two elements comes first.
        let top = 1i64 << (i64::BITS - 1 - mask.max(1).leading_zeros());
        let lines = self.lines.clone();
        let axes = lines.with(from.low, lanes);
        let name = format!("step{}", self.steps);
        self.steps += 1;
        let source = self.source;
        let made = self.b.block(&name, &axes.list(), &[], None, |o, _| {
            let (line, own) = lines.parts(o);
            let (i, lane) = (&own[0], &own[1]);
            let other = |i: &Expr, bits: i64| match bits {
                0 => i.clone(),
                bits => Expr::binary(BinaryOp::BitXor, i, Expr::int(bits)),
            };
            let at = lines.index(line, [other(i, low), other(lane, across) + further]);
            let own = [from.keys, from.places].map(|b| Expr::load(b, o.to_vec()));
            let partner = [from.keys, from.places].map(|b| Expr::load(b, at.clone()));
            let comes_before = source.comes_before(&partner, &own).equals(place(1));
            let takes = match half {
                Some(_) => comes_before,
                None => {
                    let (bits, within) = match top < from.low {
                        true => (i, top),
                        false => (lane, top / from.low),
                    };
                    let bit = Expr::binary(BinaryOp::BitAnd, bits, Expr::int(within));
                    let is_second = bit.equals(Expr::int(within));
                    Expr::binary(BinaryOp::Ne, comes_before, is_second)
                }
            };
            let [key, place] = partner;
            let [own_key, own_place] = own;
            vec![
                Expr::select(takes.clone(), key, own_key),
                Expr::select(takes, place, own_place),
            ]
        });
        Elements {
            keys: made[0],
            places: made[1],
            low: from.low,
            lanes,
        }
    }
}
