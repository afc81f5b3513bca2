//! Gradients of contractions.

use super::Gradients;
use crate::model::{ModelError, Node, ValueId};
use crate::ops::{Contract, Expand, Op, Reshape};
use crate::training::NotTrainable;

impl Gradients<'_> {
    /// To each operand, the contraction of dy with the other one.
    pub(super) fn contract(
        &mut self,
        node: &Node,
        c: &Contract,
        [a, b, dy]: [ValueId; 3],
    ) -> Result<(), NotTrainable> {
        let sides = [
            ("da", a, &c.left, b, &c.right),
            ("db", b, &c.right, a, &c.left),
        ];
        for (what, own, letters, other, others) in sides {
            if self.wants(Some(own)).is_some() {
                let d =
                    self.of_side(node, what, (own, letters), (other, others), (dy, &c.result))?;
                self.add(own, d)?;
            }
        }
        Ok(())
    }

    /// A letter that neither the other operand nor the result has was summed over alone: every element along it has
    /// the same gradient.
    fn of_side(
        &mut self,
        node: &Node,
        what: &str,
        (own, letters): (ValueId, &[char]),
        (other, others): (ValueId, &[char]),
        (dy, result): (ValueId, &[char]),
    ) -> Result<ValueId, ModelError> {
        let shared = |l: &char| others.contains(l) || result.contains(l);
        let back = Contract {
            left: result.to_vec(),
            right: others.to_vec(),
            result: letters.iter().copied().filter(shared).collect(),
        };
        let whole = back.result.len() == letters.len();
        let product = self.node(node, what, Op::Contract(back), &[dy, other])?;
        if whole {
            return Ok(product);
        }
        let shape = self.model[own].shape().to_vec();
        let extents = letters.iter().zip(&shape);
        let kept = extents
            .map(|(l, n)| if shared(l) { *n } else { 1 })
            .collect();
        let kept = Op::Reshape(Reshape { shape: kept });
        let kept = self.node(node, &format!("{what}.kept"), kept, &[product])?;
        let expand = Op::Expand(Expand { shape });
        self.node(node, &format!("{what}.all"), expand, &[kept])
    }
}
