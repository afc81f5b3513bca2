//! Names of files and folders: each says what is inside.

use super::Problem;

/// Names that say nothing.
const FORBIDDEN: [&str; 9] = [
    "util", "utils", "common", "helper", "helpers", "base", "manager", "misc", "shared",
];

/// A component of the path whose words, split at `_` and `-`, hold a forbidden name.
pub fn check(path: &str) -> Option<Problem> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let word = stem
        .split(['/', '_', '-'])
        .find(|word| FORBIDDEN.contains(word))?;
    Some(Problem {
        path: path.into(),
        line: 0,
        message: format!("`{word}` in a name says nothing: name what is inside"),
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn empty_names_are_refused_wherever_they_stand() {
        for path in [
            "crates/ir/src/utils.rs",
            "crates/ir/src/common/mod.rs",
            "crates/ir-base/src/lib.rs",
            "crates/ir/src/task_manager.rs",
            "crates/ir/tests/test_helpers.rs",
        ] {
            assert!(check(path).is_some(), "{path}");
        }
    }

    #[test]
    fn words_that_contain_a_forbidden_one_pass() {
        for path in ["crates/ir/src/database.rs", "crates/ir/src/uncommon.rs"] {
            assert_eq!(check(path), None, "{path}");
        }
    }
}
