//! Operator specifications: `NAME` or `NAME(ARG=VALUE,...)`.

use super::BuiltinError;
use super::operators::{OPERATORS, OperatorInfo, Parameter};
use std::collections::BTreeMap;

/// The value of every parameter, by name: numbers, words by their position,
/// booleans as 0 and 1.
pub(super) struct Arguments(BTreeMap<&'static str, i64>);

impl Arguments {
    /// # Panics
    /// If the operator has no such parameter.
    pub fn get(&self, name: &str) -> usize {
        self.try_get(name).expect("a parameter of the operator")
    }

    pub fn try_get(&self, name: &str) -> Option<usize> {
        let value = *self.0.get(name)?;
        Some(usize::try_from(value).expect("arguments are checked not to be negative"))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name) != 0
    }
}

/// The operator and its arguments from what follows `op:`.
pub(super) fn parse(spec: &str) -> Result<(&'static OperatorInfo, Arguments), BuiltinError> {
    let syntax = |problem: &str| BuiltinError::Syntax {
        spec: format!("op:{spec}"),
        problem: problem.to_string(),
    };
    let (name, arguments) = match spec.split_once('(') {
        None => (spec, ""),
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(arguments) => (name, arguments),
            None => return Err(syntax("the closing parenthesis is missing")),
        },
    };
    let name = name.trim();
    let operator = OPERATORS.iter().find(|o| o.name == name);
    let Some(operator) = operator else {
        return Err(BuiltinError::Operator {
            name: name.to_string(),
        });
    };
    let mut values: BTreeMap<_, _> = operator
        .parameters
        .iter()
        .map(|p| (p.name, p.default))
        .collect();
    let mut given = Vec::new();
    for part in arguments
        .split(',')
        .map(str::trim)
        .filter(|p| !p.is_empty())
    {
        let Some((key, value)) = part.split_once('=') else {
            return Err(syntax(&format!("`{part}` is not ARG=VALUE")));
        };
        let (key, value) = (key.trim(), value.trim());
        let Some(parameter) = operator.parameters.iter().find(|p| p.name == key) else {
            return Err(BuiltinError::Argument {
                operator: operator.name,
                argument: key.to_string(),
                valid: describe(operator.parameters),
            });
        };
        if given.contains(&parameter.name) {
            return Err(syntax(&format!("`{key}` is given twice")));
        }
        given.push(parameter.name);
        values.insert(parameter.name, parse_value(operator, parameter, value)?);
    }
    Ok((operator, Arguments(values)))
}

/// Sizes end here, so that products of a few of them fit 64 bits.
const LARGEST: i64 = 1 << 24;

fn parse_value(
    operator: &'static OperatorInfo,
    parameter: &'static Parameter,
    value: &str,
) -> Result<i64, BuiltinError> {
    let refused = |valid: String| BuiltinError::Value {
        operator: operator.name,
        argument: parameter.name,
        value: value.to_string(),
        valid,
    };
    if !parameter.words.is_empty() {
        return match parameter.words.iter().position(|w| *w == value) {
            Some(i) => Ok(i as i64),
            None => Err(refused(parameter.words.join(" or "))),
        };
    }
    let range = parameter.least..=LARGEST;
    match value.parse::<i64>() {
        Ok(v) if range.contains(&v) => Ok(v),
        _ => Err(refused(format!(
            "a whole number from {} to {LARGEST}",
            parameter.least
        ))),
    }
}

fn describe(parameters: &[Parameter]) -> String {
    let one = |p: &Parameter| match p.words.get(p.default as usize) {
        Some(word) => format!("{}={word} ({})", p.name, p.words.join(", ")),
        None => format!("{}={}", p.name, p.default),
    };
    let all: Vec<String> = parameters.iter().map(one).collect();
    all.join(", ")
}
