//! Core sets: CPUs of the machine in sets that share no CPU, on each of which candidates are measured at the same time.
//!
//! Owns how sets are written, and how the CPUs of the process are divided. What is measured on a set is the run's decision.

use crate::error::{Error, Result};
use crate::threads::{cpus, siblings};
use std::collections::BTreeMap;
use std::str::FromStr;

/// What `--core-sets` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreSets {
    /// So many sets of equally many cores.
    Equal(usize),
    /// The CPUs of each set.
    Named(Vec<Vec<usize>>),
}

impl FromStr for CoreSets {
    type Err = String;

    /// `2`, or the CPUs of each set as in `0-3;4-7` and `0,2;1,3`.
    fn from_str(text: &str) -> std::result::Result<CoreSets, String> {
        if let Ok(n) = text.parse() {
            return match n {
                0 | 1 => Err("one set is no division; name at least 2".into()),
                _ => Ok(CoreSets::Equal(n)),
            };
        }
        let set = |list: &str| list.split(',').map(range).collect::<Option<Vec<_>>>();
        let sets: Option<Vec<Vec<Vec<usize>>>> = text.split(';').map(set).collect();
        let sets = sets.ok_or("name a number of sets, or the CPUs of each, such as 0-3;4-7")?;
        match sets.len() {
            1 => Err("one set is no division; name at least 2, such as 0-3;4-7".into()),
            _ => Ok(CoreSets::Named(
                sets.into_iter().map(|s| s.concat()).collect(),
            )),
        }
    }
}

/// More CPUs than a system numbers.
const MOST_CPUS: usize = 1 << 16;

/// The CPUs of `3` or `0-3`.
fn range(text: &str) -> Option<Vec<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < MOST_CPUS).then(|| (first..=last).collect())
}

impl CoreSets {
    /// The CPUs of each set, for kernels of so many threads.
    ///
    /// # Errors
    /// If a set has too few CPUs, has one that the process may not use, or shares one with another set.
    pub fn of_process(&self, threads: u32) -> Result<Vec<Vec<usize>>> {
        self.of(&cpus(), threads, siblings)
    }

    fn of(
        &self,
        allowed: &[usize],
        threads: u32,
        core_of: impl Fn(usize) -> String,
    ) -> Result<Vec<Vec<usize>>> {
        let sets = match self {
            CoreSets::Equal(n) => equal(*n, allowed, core_of),
            CoreSets::Named(sets) => sets.clone(),
        };
        let help = |e: Error| e.help(format!("this process may use the CPUs {allowed:?}"));
        let mut seen = Vec::new();
        for cpu in sets.iter().flatten() {
            if !allowed.contains(cpu) {
                return Err(help(Error::new(format!(
                    "a core set has CPU {cpu}, which this process may not use"
                ))));
            }
            if seen.contains(cpu) {
                return Err(help(Error::new(format!("CPU {cpu} is named twice"))));
            }
            seen.push(*cpu);
        }
        if let Some(small) = sets.iter().find(|s| s.len() < threads as usize) {
            return Err(help(Error::new(format!(
                "{} core sets have too few CPUs: --threads {threads} needs as many CPUs in each set, and one set has {}",
                sets.len(),
                small.len()
            ))));
        }
        Ok(sets)
    }
}

/// Equal sets of whole cores; of CPUs where there are more sets than cores. In a set the CPUs of different cores come
/// first.
fn equal(n: usize, allowed: &[usize], core_of: impl Fn(usize) -> String) -> Vec<Vec<usize>> {
    let mut cores: Vec<(String, Vec<usize>)> = Vec::new();
    for cpu in allowed {
        let core = core_of(*cpu);
        match cores.iter_mut().find(|(known, _)| *known == core) {
            Some((_, cpus)) => cpus.push(*cpu),
            None => cores.push((core, vec![*cpu])),
        }
    }
    let mut parts: Vec<Vec<usize>> = cores.into_iter().map(|(_, cpus)| cpus).collect();
    if parts.len() < n {
        parts = allowed.iter().map(|cpu| vec![*cpu]).collect();
    }
    let each = parts.len() / n;
    let set = |i: usize| {
        let own = &parts[i * each..(i + 1) * each];
        let most = own.iter().map(Vec::len).max().unwrap_or(0);
        let of_core = |at: usize| own.iter().filter_map(move |cpus| cpus.get(at).copied());
        (0..most).flat_map(of_core).collect()
    };
    (0..n).map(set).collect()
}

/// What people should know of sets that share a core: a kernel of one slows those of the other.
pub fn shared_cores(sets: &[Vec<usize>]) -> Option<String> {
    sharing(sets, siblings)
}

fn sharing(sets: &[Vec<usize>], core_of: impl Fn(usize) -> String) -> Option<String> {
    let mut owners: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (set, cpus) in sets.iter().enumerate() {
        for cpu in cpus {
            let (owner, first) = *owners.entry(core_of(*cpu)).or_insert((set, *cpu));
            if owner != set {
                return Some(format!(
                    "CPUs {first} and {cpu} are of one core and of different core sets, so candidates slow each other down; \
                     ask for fewer --core-sets"
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs 0 and 4, 1 and 5, ... are of one core.
    fn core_of(cpu: usize) -> String {
        (cpu % 4).to_string()
    }

    fn sets(text: &str, threads: u32) -> Result<Vec<Vec<usize>>> {
        let asked: CoreSets = text.parse().map_err(|e: String| Error::new(e))?;
        asked.of(&[0, 1, 2, 3, 4, 5, 6, 7], threads, core_of)
    }

    #[test]
    fn equal_sets_have_whole_cores() {
        let of = |n| sets(n, 1).unwrap();
        assert_eq!(of("2"), [vec![0, 1, 4, 5], vec![2, 3, 6, 7]]);
        assert_eq!(of("3"), [vec![0, 4], vec![1, 5], vec![2, 6]]);
        assert_eq!(sharing(&of("4"), core_of), None);
        let of_cpus = of("8");
        assert_eq!(of_cpus.concat(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let said = sharing(&of_cpus, core_of).unwrap();
        assert!(said.contains("CPUs 0 and 4 are of one core"), "{said}");
    }

    #[test]
    fn named_sets_have_the_cpus_that_they_name() {
        assert_eq!(sets("0;7", 1).unwrap(), [[0], [7]]);
        assert_eq!(sets("0-2;4,6-7", 3).unwrap(), [[0, 1, 2], [4, 6, 7]]);
    }

    #[test]
    fn sets_that_cannot_be_are_refused() {
        let said = |text: &str, threads| sets(text, threads).unwrap_err().to_string();
        for bad in ["", "x", "0;", "1-0;2", "0;-1", "0;99999999"] {
            assert!(said(bad, 1).contains("name a number of sets"), "{bad}");
        }
        for one in ["0", "1", "0-3", "0,1"] {
            assert!(said(one, 1).contains("one set is no division"), "{one}");
        }
        assert!(said("0;8", 1).contains("CPU 8, which this process may not use"));
        assert!(said("0,1;1", 1).contains("CPU 1 is named twice"));
        assert!(said("4", 3).contains("too few CPUs: --threads 3 needs as many"));
        assert!(said("9", 1).contains("too few CPUs"));
    }
}
