//! Operator specifications: `NAME` or `NAME(ARG=VALUE,...)`.

use super::BuiltinError;
use super::operators::{OPERATORS, OperatorInfo, Parameter, Preset};
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
    let mut given = BTreeMap::new();
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
        let value = parse_value(operator, parameter, value)?;
        if given.insert(parameter.name, value).is_some() {
            return Err(syntax(&format!("`{key}` is given twice")));
        }
    }
    Ok((operator, Arguments(completed(operator, given))))
}

/// Parameters that are the sizes of windows.
const WINDOWS: [&str; 3] = ["q", "r", "s"];

/// What is given, and the presets of the rest.
fn completed(
    operator: &OperatorInfo,
    mut values: BTreeMap<&'static str, i64>,
) -> BTreeMap<&'static str, i64> {
    for p in operator.parameters {
        if let Preset::Number(n) = p.default {
            values.entry(p.name).or_insert(n);
        }
    }
    let smallest = WINDOWS.iter().filter_map(|w| values.get(w)).min();
    let centred = smallest.map_or(0, |w| (w - 1) / 2);
    for p in operator.parameters {
        if p.default == Preset::Centred {
            values.entry(p.name).or_insert(centred);
        }
    }
    values
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

/// Parameters with what they are where nothing is written, for people.
pub fn describe(parameters: &[Parameter]) -> String {
    let one = |p: &Parameter| match p.default {
        Preset::Centred => format!("{}=(smallest window - 1)/2", p.name),
        Preset::Number(n) => match p.words.get(n as usize) {
            Some(word) => format!("{}={word} ({})", p.name, p.words.join(", ")),
            None => format!("{}={n}", p.name),
        },
    };
    let all: Vec<String> = parameters.iter().map(one).collect();
    all.join(", ")
}
