//! Statements that combine their lanes into one element: the vector of terms is
//! halved until one is left, which takes as many steps as the lane count has
//! digits where one element after the other would take as many as there are lanes.

use crate::emit::Emitter;
use crate::value::{Scope, Typed};
use ir::Expr;
use lower::flat::Store;

impl Emitter<'_> {
    /// Emits `s` if it combines its lanes; false if it does not.
    pub fn combine_lanes(&mut self, s: &Store) -> bool {
        let (Some(lane), Some((op, term))) = (s.lane, s.combined()) else {
            return false;
        };
        let mut scope = Scope::new(s.lane);
        let terms = self.expr(term, &mut scope);
        let dtype = terms.dtype;
        let typed = |value| Typed { value, dtype };
        let mut all = self.widen(terms.value, lane.lanes);
        let mut lanes = lane.lanes;
        while lanes > 2 {
            lanes /= 2;
            let [low, high] = [0, lanes].map(|at| typed(self.b.slice(all, at, lanes)));
            all = self.binary(op, low, high).value;
        }
        let [low, high] = [0, 1].map(|at| typed(self.b.extract(all, at)));
        let all = self.binary(op, low, high);
        let mut one = Scope::new(None);
        let old = self.expr(&Expr::load(s.buffer, [s.offset.clone()]), &mut one);
        let value = self.binary(op, old, all);
        self.store(s.buffer, &s.offset, value, &mut one);
        true
    }
}
