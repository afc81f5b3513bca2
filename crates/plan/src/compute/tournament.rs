//! The k best elements of lines by a tournament.
//!
//! Each round keeps the better of two elements. The k best elements of a round are among the k best winners and
//! those that these won over. So the winners of the last round are ordered, and then such candidates of each round
//! before it. Candidates are ordered by counting for each those before it.

use super::Axes;
use super::top_k::Source;
use ir::tensor_expression::AxisExtent;
use ir::{BufferId, DType, Expr, ProgramBuilder, Reducer};

/// Elements that a vector has, and that the last round has at least.
const LANES: i64 = 16;

/// The best elements of every line.
pub(super) struct Best {
    /// Their numbers within the line, the best one first.
    numbers: BufferId,
    side_by_side: bool,
}

impl Best {
    /// The number of the element that comes at `place`.
    pub fn at(&self, line: &[Expr], place: &Expr) -> Expr {
        let place = std::slice::from_ref(place);
        Expr::load(self.numbers, index(self.side_by_side, line, place))
    }
}

/// Finds the best elements of the lines along `lines`.
pub(super) fn best(b: &mut ProgramBuilder, source: &Source, lines: &Axes) -> Best {
    let side_by_side = lines.0.last().is_some_and(|(_, n)| *n >= LANES);
    // A vector of results is of one line, or has one element of several lines.
    let whole = |n: i64| match side_by_side {
        true => n,
        false => (n + LANES - 1) / LANES * LANES,
    };
    let wanted = whole(source.k());
    let (rounds, left) = rounds(source.n, wanted);
    let last = whole(left);
    let mut t = Tournament {
        b,
        source,
        lines,
        side_by_side,
        wanted,
        rounds: Vec::new(),
    };
    for round in 1..=rounds {
        t.round(last << (rounds - round));
    }
    let mut best = t.chosen(rounds, (1, last), |_, _, p| p.clone());
    for round in (0..rounds).rev() {
        let winners = last << (rounds - round - 1);
        let found = best;
        // The best winners, and then those that they won over.
        best = t.chosen(round, (2, wanted), |line, half, p| {
            // Within the round by what is written here: the data need no check.
            let winner = Expr::load(found, index(side_by_side, line, std::slice::from_ref(p)));
            half.clone() * winners + winner.cast(DType::I64).max(0).min(winners - 1)
        });
    }
    Best {
        numbers: best,
        side_by_side,
    }
}

/// How many rounds of `n` elements leave enough winners, and how many these are.
fn rounds(n: i64, wanted: i64) -> (usize, i64) {
    let (mut count, mut left) = (0, n);
    while (left + 1) / 2 >= wanted.max(LANES) {
        left = (left + 1) / 2;
        count += 1;
    }
    (count, left)
}

/// Where an element of a line lies that has this own index.
fn index(side_by_side: bool, line: &[Expr], own: &[Expr]) -> Vec<Expr> {
    match side_by_side {
        true => [own, line].concat(),
        false => [line, own].concat(),
    }
}

struct Tournament<'a, 'b> {
    b: &'a mut ProgramBuilder,
    source: &'a Source<'b>,
    lines: &'a Axes,
    /// Lines lie inside what is ordered, so that a vector has one element of several lines.
    side_by_side: bool,
    /// How many elements are in order in the end.
    wanted: i64,
    /// Keys and places of the winners of each round. They lie as the source does.
    rounds: Vec<[BufferId; 2]>,
}

impl Tournament<'_, '_> {
    /// Keeps the better of the elements `i` and `winners + i` of the round before.
    fn round(&mut self, winners: i64) {
        let axis = self.source.axis();
        let mut axes = self.lines.clone();
        axes.0.insert(axis, ("w".to_string(), winners));
        let name = format!("round{}", self.rounds.len() + 1);
        let source = self.source;
        let before = self.rounds.last().copied();
        let made = self.b.block(&name, &axes.list(), &[], None, |o, _| {
            let mut line = o.to_vec();
            let i = line.remove(axis);
            let [one, other] = [i.clone(), i + winners].map(|i| match before {
                Some(round) => element(source, round, &line, &i),
                None => source.element(&line, &i, i.clone()),
            });
            let takes = source
                .comes_before(&other, &one)
                .equals(Expr::constant(1.0, DType::I32));
            let better = other.into_iter().zip(one);
            better
                .map(|(a, b)| Expr::select(takes.clone(), a, b))
                .collect()
        });
        self.rounds.push([made[0], made[1]]);
    }

    /// The numbers in a round, 0 for the source, of the best of some candidates: so many halves of so many each, to
    /// which `number` gives numbers.
    fn chosen(
        &mut self,
        round: usize,
        (halves, each): (i64, i64),
        number: impl Fn(&[Expr], &Expr, &Expr) -> Expr,
    ) -> BufferId {
        let (source, side_by_side) = (self.source, self.side_by_side);
        let winners = round.checked_sub(1).map(|r| self.rounds[r]);
        let lines = self.lines.0.len();
        // The line, and the own index.
        let parts = |o: &[Expr]| match side_by_side {
            true => (o[o.len() - lines..].to_vec(), o[..o.len() - lines].to_vec()),
            false => (o[..lines].to_vec(), o[lines..].to_vec()),
        };
        let own = [("h", halves), ("p", each)];
        let axes = self.axes(&own);
        let name = format!("candidates{round}");
        let made = self.b.block(&name, &axes.list(), &[], None, |o, _| {
            let (line, own) = parts(o);
            let i = number(&line, &own[0], &own[1]);
            let [key, place] = match winners {
                Some(round) => element(source, round, &line, &i),
                None => source.element(&line, &i, i.clone().min(source.n - 1)),
            };
            vec![key, place, i.cast(DType::I32)]
        });
        let [keys, places, numbers] = [made[0], made[1], made[2]];
        let over = [("rh", halves), ("rp", each)];
        let name = format!("rank{round}");
        let rank = self
            .b
            .reduce(&name, &axes.list(), &over, Reducer::Sum, |o, r| {
                let other = index(side_by_side, &parts(o).0, r);
                let [own, other] =
                    [o.to_vec(), other].map(|at| [keys, places].map(|b| Expr::load(b, at.clone())));
                source.comes_before(&other, &own)
            });
        let axes = self.axes(&[("p", self.wanted)]);
        let name = format!("chosen{round}");
        self.b
            .reduce(&name, &axes.list(), &over, Reducer::Sum, |o, r| {
                let (line, place) = parts(o);
                let at = index(side_by_side, &line, r);
                let place = place[0].clone().cast(DType::I32);
                let found = Expr::load(rank, at.clone()).equals(place);
                found.cast(DType::I32) * Expr::load(numbers, at)
            })
    }

    /// The axes of lines and own ones.
    fn axes(&self, own: &[AxisExtent<'_>]) -> Axes {
        let own: Vec<_> = own.iter().map(|(n, e)| (n.to_string(), *e)).collect();
        Axes(match self.side_by_side {
            true => [&own[..], &self.lines.0].concat(),
            false => [&self.lines.0[..], &own].concat(),
        })
    }
}

/// Key and place of an element of a round.
fn element(source: &Source, round: [BufferId; 2], line: &[Expr], i: &Expr) -> [Expr; 2] {
    let mut at = line.to_vec();
    at.insert(source.axis(), i.clone());
    round.map(|b| Expr::load(b, at.clone()))
}
