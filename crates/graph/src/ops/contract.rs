//! Contractions of two tensors: products summed over named axes, as `einsum` writes them.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;

/// A product of two tensors whose axes have letters. An axis of the result has the
/// letter of the operand's axis that it runs along; letters that the result lacks
/// are summed over. No tensor has a letter twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contract {
    pub left: Vec<char>,
    pub right: Vec<char>,
    pub result: Vec<char>,
}

impl Contract {
    /// From `LEFT,RIGHT->RESULT`, such as `abcd,cbe->aed`.
    ///
    /// # Errors
    /// Says which part or letter is wrong.
    pub fn parse(equation: &str) -> Result<Contract, OpError> {
        let form = || OpError(format!("`{equation}` is not LEFT,RIGHT->RESULT"));
        let (operands, result) = equation.split_once("->").ok_or_else(form)?;
        let (left, right) = operands.split_once(',').ok_or_else(form)?;
        let letters = |part: &str| part.trim().chars().collect::<Vec<_>>();
        let contract = Contract {
            left: letters(left),
            right: letters(right),
            result: letters(result),
        };
        contract.check_letters()?;
        Ok(contract)
    }

    /// `LEFT,RIGHT->RESULT`.
    pub fn equation(&self) -> String {
        let [left, right, result] =
            [&self.left, &self.right, &self.result].map(|l| l.iter().collect::<String>());
        format!("{left},{right}->{result}")
    }

    /// Every letter once: those of the left operand, then those of the right one alone.
    pub fn letters(&self) -> Vec<char> {
        let right = self.right.iter().filter(|l| !self.left.contains(l));
        self.left.iter().chain(right).copied().collect()
    }

    /// The letters that are summed over, in the order of [`Contract::letters`].
    pub fn summed(&self) -> Vec<char> {
        let mut letters = self.letters();
        letters.retain(|l| !self.result.contains(l));
        letters
    }

    fn check_letters(&self) -> Result<(), OpError> {
        let parts = [
            ("the left operand", &self.left),
            ("the right operand", &self.right),
            ("the result", &self.result),
        ];
        for (what, letters) in parts {
            for (i, l) in letters.iter().enumerate() {
                if !l.is_ascii_alphabetic() {
                    return refuse(format!("`{l}` in {} is no letter", self.equation()));
                }
                if letters[..i].contains(l) {
                    let equation = self.equation();
                    return refuse(format!("{what} of {equation} has letter `{l}` twice"));
                }
            }
        }
        let known = |l: &&char| self.left.contains(l) || self.right.contains(l);
        match self.result.iter().find(|l| !known(l)) {
            Some(l) => refuse(format!(
                "the result of {} has letter `{l}`, which no operand has",
                self.equation()
            )),
            None => Ok(()),
        }
    }

    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        self.check_letters()?;
        let (a, b) = (inputs.exactly(2)?.number(0)?, inputs.number(1)?);
        if a.dtype != b.dtype {
            return refuse(format!("takes tensors of one type, not {a} and {b}"));
        }
        for (t, letters) in [(a, &self.left), (b, &self.right)] {
            if t.rank() != letters.len() {
                let letters: String = letters.iter().collect();
                return refuse(format!("{t} does not have the axes `{letters}`"));
            }
        }
        let along = |t: &TensorType, letters: &[char], l: char| {
            let axis = letters.iter().position(|own| *own == l)?;
            Some(t.shape[axis])
        };
        for l in &self.left {
            let extents = (along(a, &self.left, *l), along(b, &self.right, *l));
            if let (Some(m), Some(n)) = extents
                && m != n
            {
                return refuse(format!("`{l}` is {m} in {a} and {n} in {b}"));
            }
        }
        let extent = |l: &char| along(a, &self.left, *l).or(along(b, &self.right, *l));
        Ok(TensorType {
            dtype: a.dtype,
            shape: self.result.iter().filter_map(extent).collect(),
        })
    }
}
